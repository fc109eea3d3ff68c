// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ground truth: what happened while a tool was attached.

use std::borrow::Cow;

use bpfassay_protocol::{Operation, operation::Variant};

use super::process_identity::{ProcessKey, ProcessNames};
use crate::file::{CountedUnit, ReportedFigure, Whose};

/// The ground truth of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Truth {
    /// Begin of the truth, in nanoseconds of the guest's `CLOCK_MONOTONIC`. The tool was ready, and
    /// no operation had been done.
    pub from_ns: u64,
    /// End of the truth. All operations were done, and a tool that reports at intervals had time to
    /// report them.
    pub to_ns: u64,
    /// All operations, each listed once.
    pub shares: Vec<CallShare>,
    /// The part of `shares` that a correct tool can lack. It includes operations after the tool's
    /// last report and before the truth was read. It also includes calls of the agent, kernel
    /// threads and the tool itself.
    pub optional: Vec<CallShare>,
    /// The part of `shares` that a figure by process can lack: what the agent's fork did under the
    /// agent's name in the workload's cgroup, before it executed the workload.
    pub copies: Vec<CallShare>,
    /// Additional operations that a correct tool can have: those after its first report and before
    /// the truth was read.
    pub earlier: Vec<CallShare>,
    /// The part of `shares` in each phase of the workload, by phase name, as far as known.
    pub phases: Vec<(String, Vec<CallShare>)>,
    /// Length of all `phases` together, in nanoseconds. No thread of the workload uses a file from
    /// one phase into the next.
    pub phases_ns: u64,
    /// Threads of the workload, whether or not any of `shares` is attributed to them.
    pub threads: Vec<ProcessNames>,
    /// Whether `shares` covers the whole system. Otherwise, figures of the whole system can be
    /// higher.
    pub is_whole_system: bool,
    /// Whether other programs use the same machine, with mounts and cgroups whose names are partly
    /// unknown (other mount namespaces).
    pub is_shared: bool,
    /// The units with known amounts. Figures with other units need the truth of another run or
    /// phase. For example, requested and moved bytes are not counted together.
    pub units: Vec<CountedUnit>,
}

/// The calls of one operation by one process on one mount. The lists have all names that a tool can
/// use; see [`Whose`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallShare {
    /// Names of the cgroup.
    pub cgroup: Vec<String>,
    /// Names of the mount.
    pub mount: Vec<String>,
    /// Names of the process.
    pub process: ProcessNames,
    /// Whether the calls used a file of a mounted file system.
    pub is_file: bool,
    /// Type of the file system (`nfs4`); `None` if unknown or absent.
    pub file_system: Option<String>,
    /// The operation.
    pub operation: Operation,
    /// Variant of the calls; `None` if unknown, or if the operation has only one.
    pub variant: Option<Variant>,
    /// Number of calls, including failed ones.
    pub calls: u64,
    /// Number of failed calls; `None` if unknown.
    pub errors: Option<u64>,
    /// Bytes that the calls returned; `None` if unknown.
    pub bytes_returned: Option<u64>,
    /// Bytes that the calls requested; `None` if unknown.
    pub bytes_requested: Option<u64>,
}

impl CallShare {
    /// Returns the amount in `unit`; `None` if unknown.
    pub(super) const fn amount(&self, unit: CountedUnit) -> Option<u64> {
        match unit {
            CountedUnit::BytesReturned => self.bytes_returned,
            CountedUnit::BytesRequested => self.bytes_requested,
            CountedUnit::Calls => Some(self.calls),
            CountedUnit::Errors => self.errors,
            CountedUnit::Successes => match self.errors {
                Some(errors) => Some(self.calls.saturating_sub(errors)),
                None => None,
            },
        }
    }

    /// Returns the subject's names. For processes, only names of the kind `key`. Empty for the
    /// whole system.
    pub(super) fn names(&self, whose: Whose, key: ProcessKey) -> &[String] {
        match whose {
            Whose::System => &[],
            Whose::Cgroup => &self.cgroup,
            Whose::Mount => &self.mount,
            Whose::Process => key.names(&self.process),
        }
    }

    /// Whether `figure` counts the operation on this kind of object. True if the file system is
    /// unknown.
    pub(super) fn is_of(&self, figure: &ReportedFigure) -> bool {
        figure.operations.contains(&self.operation) && self.is_on(figure) != Some(false)
    }

    /// Whether `figure` counts operations on the object of this share. `None` if the figure is
    /// limited to some file systems, and this one is unknown.
    pub(super) fn is_on(&self, figure: &ReportedFigure) -> Option<bool> {
        if figure.file_systems.is_empty() {
            return Some(self.is_file || !figure.only_files);
        }
        match &self.file_system {
            Some(file_system) => Some(figure.file_systems.contains(file_system)),
            None if self.is_file => None,
            None => Some(false),
        }
    }

    /// Whether `figure` counts the share. True if the variant is unknown.
    pub(super) fn is_counted(&self, figure: &ReportedFigure) -> bool {
        self.is_of(figure) && self.has_variant_of(figure)
    }

    /// Whether `figure` counts the variant. True if the variant is unknown.
    fn has_variant_of(&self, figure: &ReportedFigure) -> bool {
        let is_wanted = |variant| !figure.distinguishes(self.operation) || figure.variants.contains(&variant);
        self.variant.is_none_or(is_wanted)
    }

    /// Whether `figure` counts files in memory (memfd), and the calls can be writes to such a file:
    /// it has no mount, and the magic number of tmpfs. The agent writes to files in memory and
    /// never reads them (`crates/bpfassay-guest/src/free_memory.rs`).
    fn may_be_in_memory(&self, figure: &ReportedFigure) -> bool {
        let counts_files_in_memory = match &figure.file_systems[..] {
            [] => figure.only_files,
            file_systems => file_systems.iter().any(|one| one == "tmpfs"),
        };
        let is_written = !self.is_file && self.operation == Operation::Write;
        counts_files_in_memory && is_written && figure.operations.contains(&self.operation)
    }

    /// Whether `figure` counts only some variants of the operation, and this variant is unknown.
    pub(super) fn may_be_counted(&self, figure: &ReportedFigure) -> bool {
        self.is_of(figure) && self.variant.is_none() && figure.distinguishes(self.operation)
    }
}

/// Shares of one subject. One number of a figure should be their sum.
#[derive(Debug)]
pub(super) struct ShareSubject<'t> {
    /// Names of the subject; empty for the whole system.
    pub(super) names: Cow<'t, [String]>,
    pub(super) shares: Vec<&'t CallShare>,
    /// The subject's part of [`Truth::optional`].
    pub(super) optional: Vec<&'t CallShare>,
    /// Shares that a correct tool can have in addition: [`Truth::earlier`], shares on an unknown
    /// file system, and the agent's operations on files in memory.
    pub(super) besides: Vec<&'t CallShare>,
    /// The subject's part of [`Truth::phases`].
    pub(super) phases: Vec<(&'t str, Vec<&'t CallShare>)>,
}

/// Sums up `shares` in `unit`; `None` if an amount is unknown.
pub(super) fn total(shares: &[&CallShare], unit: CountedUnit) -> Option<u64> {
    shares.iter().try_fold(0_u64, |sum, share| Some(sum.saturating_add(share.amount(unit)?)))
}

impl ShareSubject<'_> {
    pub(super) fn total(&self, unit: CountedUnit) -> Option<u64> {
        total(&self.shares, unit)
    }

    /// Sums up the shares of one operation.
    pub(super) fn of(&self, operation: Operation, unit: CountedUnit) -> u64 {
        let shares = self.shares.iter().filter(|share| share.operation == operation);
        shares.filter_map(|share| share.amount(unit)).fold(0, u64::saturating_add)
    }

    /// Whether `name` is one of the subject's names.
    pub(super) fn has_name(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Name of the subject for evidence.
    pub(super) fn shown(&self) -> &str {
        self.names.first().map_or("whole system", String::as_str)
    }

    /// Like [`Self::shown`]. For a process that is named by its id, adds its name: `17 (cat)`.
    pub(super) fn shown_of(&self, whose: Whose) -> Cow<'_, str> {
        let most = self.shares.iter().max_by_key(|share| share.calls).filter(|_| whose == Whose::Process);
        match most.and_then(|share| share.process.name.first()) {
            Some(name) if name != self.shown() => Cow::Owned(format!("{} ({name})", self.shown())),
            _ => Cow::Borrowed(self.shown()),
        }
    }
}

/// Unites subjects that a tool reports under one name from `reported`. For example, several mounts
/// of a file system share its device, and a tool that reports by device reports their sum.
pub(super) fn united<'t, 'n>(
    mut subjects: Vec<ShareSubject<'t>>,
    reported: impl Iterator<Item = &'n String>,
) -> Vec<ShareSubject<'t>> {
    for name in reported {
        let (mut meant, others): (Vec<_>, Vec<_>) = subjects.into_iter().partition(|subject| subject.has_name(name));
        subjects = others;
        if meant.len() > 1 {
            let mut one = ShareSubject {
                names: Cow::Owned(vec![name.clone()]),
                shares: Vec::new(),
                optional: Vec::new(),
                besides: Vec::new(),
                phases: Vec::new(),
            };
            for part in meant.drain(..) {
                one.shares.extend(part.shares);
                one.optional.extend(part.optional);
                one.besides.extend(part.besides);
                for (phase, shares) in part.phases {
                    match one.phases.iter_mut().find(|(known, _)| *known == phase) {
                        Some((_, all)) => all.extend(shares),
                        None => one.phases.push((phase, shares)),
                    }
                }
            }
            meant.push(one);
        }
        subjects.extend(meant);
    }
    subjects
}

impl Truth {
    /// Whether a subject of kind `whose` with this name did anything.
    pub(super) fn knows(&self, whose: Whose, name: &str) -> bool {
        let all = || self.shares.iter().chain(&self.earlier);
        ProcessKey::ALL.iter().any(|&key| all().flat_map(|share| share.names(whose, key)).any(|known| known == name))
    }

    /// The subjects that `figure` should count. Processes are named by `key`.
    pub(super) fn subjects(&self, figure: &ReportedFigure, key: ProcessKey) -> Vec<ShareSubject<'_>> {
        let mut subjects: Vec<ShareSubject<'_>> = Vec::new();
        for share in self.shares.iter().filter(|share| share.is_counted(figure)) {
            let names = share.names(figure.whose, key);
            // It is unknown which name a tool would report.
            if names.is_empty() && figure.whose != Whose::System {
                continue;
            }
            if !subjects.iter().any(|subject| *subject.names == *names) {
                subjects.push(self.subject(figure, key, names));
            }
        }
        subjects
    }

    /// Builds the subject `names` from the shares that `figure` counts.
    fn subject<'t>(&'t self, figure: &ReportedFigure, key: ProcessKey, names: &'t [String]) -> ShareSubject<'t> {
        let is_of = |share: &&CallShare| share.is_counted(figure) && share.names(figure.whose, key) == names;
        let is_certain = |share: &&CallShare| is_of(share) && share.is_on(figure) == Some(true);
        let is_uncertain = |share: &&CallShare| is_of(share) && share.is_on(figure).is_none();
        // The agent uses files in memory.
        let is_in_memory =
            |share: &&CallShare| share.may_be_in_memory(figure) && share.names(figure.whose, key) == names;
        let uncertain = self.shares.iter().filter(is_uncertain).chain(self.optional.iter().filter(is_in_memory));
        let copies = self.copies.iter().filter(|_| figure.whose == Whose::Process);
        let phases = self.phases.iter();
        ShareSubject {
            names: Cow::Borrowed(names),
            shares: self.shares.iter().filter(is_certain).collect(),
            optional: self.optional.iter().chain(copies).filter(is_certain).collect(),
            besides: self.earlier.iter().filter(is_of).chain(uncertain).collect(),
            phases: phases.map(|(name, shares)| (name.as_str(), shares.iter().filter(is_certain).collect())).collect(),
        }
    }
}
