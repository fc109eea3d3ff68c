// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ground truth: what happened while a tool was attached.

use std::borrow::Cow;

use bpfassay_protocol::{Operation, operation::Variant, tracer::Task};

use super::process::ProcessKey;
use crate::{ReportedFigure, Unit, Whose};

/// Ground truth of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Truth {
    /// When it begins, in nanoseconds of the guest's `CLOCK_MONOTONIC`: the tool was ready, and
    /// nothing had been done.
    pub from_ns: u64,
    /// When it ends: everything was done, and a tool that reports at intervals had the time to
    /// report it.
    pub to_ns: u64,
    /// All that happened, each thing once.
    pub shares: Vec<Share>,
    /// What of `shares` a correct tool may lack: what happened after its last report was made and
    /// before the truth was read, and what the guest's agent, kernel threads and the tool itself
    /// did.
    pub optional: Vec<Share>,
    /// What of `shares` a figure of processes may lack: what the agent's copy did in the workload's
    /// cgroup until it was executed, with the agent's name.
    pub copies: Vec<Share>,
    /// What a correct tool may have besides: what happened after its first report was made and
    /// before the truth was read.
    pub earlier: Vec<Share>,
    /// What of `shares` happened in each phase of the workload, by its name, where that is known.
    pub phases: Vec<(String, Vec<Share>)>,
    /// Threads of the workload, whether or not any of `shares` is known to be theirs.
    pub threads: Vec<Process>,
    /// Whether that is all that happened in the whole system. Otherwise figures of the whole system
    /// may be higher.
    pub is_whole_system: bool,
    /// Whether other programs work on the same machine, with mounts and cgroups of which this does
    /// not have every name: those of other mount namespaces.
    pub is_shared: bool,
    /// The units that it has amounts of. What counts something else is left to the truth of another
    /// run, or part of one: what calls were asked to move is not counted where what they moved is.
    pub units: Vec<Unit>,
}

/// The names of a thread and its process that a tool may use, by kind; none where they are not
/// known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// The id of the process.
    pub id: Vec<String>,
    /// The id of the thread, and that of both in one number (`bpf_get_current_pid_tgid`).
    pub thread: Vec<String>,
    /// The thread's name.
    pub name: Vec<String>,
}

impl From<&Task> for Process {
    fn from(task: &Task) -> Self {
        let thread = task.thread.unwrap_or(task.process);
        let both = u64::from(task.process) << 32 | u64::from(thread);
        Self {
            id: vec![task.process.to_string()],
            thread: vec![thread.to_string(), both.to_string()],
            name: vec![task.name.clone()],
        }
    }
}

/// The calls of one operation by one process on one mount. Names are all those that a tool may use:
/// see [`Whose`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Names of the cgroup.
    pub cgroup: Vec<String>,
    /// Names of the mount.
    pub mount: Vec<String>,
    /// Names of the process.
    pub process: Process,
    /// Whether it was done with a file of a mounted file system.
    pub is_file: bool,
    /// The type of the file system (`nfs4`); `None`: not known, or there is none.
    pub file_system: Option<String>,
    /// The operation.
    pub operation: Operation,
    /// Which of its calls; `None`: it has one kind only, or that is not known.
    pub variant: Option<Variant>,
    /// Calls, those that failed included.
    pub calls: u64,
    /// Calls that failed; `None`: not known.
    pub errors: Option<u64>,
    /// Bytes that the calls returned; `None`: not known.
    pub bytes_returned: Option<u64>,
    /// Bytes that the calls asked for; `None`: not known.
    pub bytes_requested: Option<u64>,
}

impl Share {
    /// The amount of it that `unit` counts; `None` where that is not known.
    pub(super) const fn amount(&self, unit: Unit) -> Option<u64> {
        match unit {
            Unit::BytesReturned => self.bytes_returned,
            Unit::BytesRequested => self.bytes_requested,
            Unit::Calls => Some(self.calls),
            Unit::Errors => self.errors,
            Unit::Successes => match self.errors {
                Some(errors) => Some(self.calls.saturating_sub(errors)),
                None => None,
            },
        }
    }

    /// The names of whose it is, of processes those of one kind; none for the whole system.
    pub(super) fn names(&self, whose: Whose, key: ProcessKey) -> &[String] {
        match whose {
            Whose::System => &[],
            Whose::Cgroup => &self.cgroup,
            Whose::Mount => &self.mount,
            Whose::Process => key.names(&self.process),
        }
    }

    /// Whether `figure` counts its operation, and what it is done with; what may be on any file
    /// system, too.
    pub(super) fn is_of(&self, figure: &ReportedFigure) -> bool {
        figure.operations.contains(&self.operation) && self.is_on(figure) != Some(false)
    }

    /// Whether `figure` counts what is done with the things that this was done with; `None`: it
    /// counts some file systems, and which one this was done on is not known.
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

    /// Whether `figure` counts it; what may be of any variant, too.
    pub(super) fn is_counted(&self, figure: &ReportedFigure) -> bool {
        self.is_of(figure) && self.has_variant_of(figure)
    }

    /// Whether `figure` counts its variant; what may be of any variant, too.
    fn has_variant_of(&self, figure: &ReportedFigure) -> bool {
        let is_wanted = |variant| !figure.distinguishes(self.operation) || figure.variants.contains(&variant);
        self.variant.is_none_or(is_wanted)
    }

    /// Whether `figure` counts files in memory (memfd), and this was written to a thing of no mount,
    /// which can be such a file. Files in memory have the magic number of tmpfs. The agent, which
    /// makes them, writes to them and never reads them
    /// (`crates/bpfassay-guest/src/free_memory.rs`).
    fn may_be_in_memory(&self, figure: &ReportedFigure) -> bool {
        let counts_files_in_memory = match &figure.file_systems[..] {
            [] => figure.only_files,
            file_systems => file_systems.iter().any(|one| one == "tmpfs"),
        };
        let is_written = !self.is_file && self.operation == Operation::Write;
        counts_files_in_memory && is_written && figure.operations.contains(&self.operation)
    }

    /// Whether `figure` counts some variants of its operation, and which it is is not known.
    pub(super) fn may_be_counted(&self, figure: &ReportedFigure) -> bool {
        self.is_of(figure) && self.variant.is_none() && figure.distinguishes(self.operation)
    }
}

/// Shares of one subject, which one number of a figure should be the sum of.
#[derive(Debug)]
pub(super) struct Subject<'t> {
    /// Its names; none for the whole system.
    pub(super) names: Cow<'t, [String]>,
    pub(super) shares: Vec<&'t Share>,
    /// Those of [`Truth::optional`].
    pub(super) optional: Vec<&'t Share>,
    /// A correct tool may have these besides: [`Truth::earlier`], shares on a file system that is
    /// not known, and what the agent did with files in memory.
    pub(super) besides: Vec<&'t Share>,
    /// Those of [`Truth::phases`].
    pub(super) phases: Vec<(&'t str, Vec<&'t Share>)>,
}

/// The amount of `shares` that `unit` counts; `None` where that is not known.
pub(super) fn total(shares: &[&Share], unit: Unit) -> Option<u64> {
    shares.iter().try_fold(0_u64, |sum, share| Some(sum.saturating_add(share.amount(unit)?)))
}

impl Subject<'_> {
    pub(super) fn total(&self, unit: Unit) -> Option<u64> {
        total(&self.shares, unit)
    }

    /// The amount of it that is of one operation.
    pub(super) fn of(&self, operation: Operation, unit: Unit) -> u64 {
        let shares = self.shares.iter().filter(|share| share.operation == operation);
        shares.filter_map(|share| share.amount(unit)).fold(0, u64::saturating_add)
    }

    /// Whether `name` is one of its names.
    pub(super) fn has_name(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// How it is called in evidence.
    pub(super) fn shown(&self) -> &str {
        self.names.first().map_or("whole system", String::as_str)
    }

    /// The same, of a process that is called by its id with its name: `17 (cat)`.
    pub(super) fn shown_of(&self, whose: Whose) -> Cow<'_, str> {
        let most = self.shares.iter().max_by_key(|share| share.calls).filter(|_| whose == Whose::Process);
        match most.and_then(|share| share.process.name.first()) {
            Some(name) if name != self.shown() => Cow::Owned(format!("{} ({name})", self.shown())),
            _ => Cow::Borrowed(self.shown()),
        }
    }
}

/// `subjects`, where those are one that a tool calls by one of the names in `reported`: several
/// mounts of a file system have its device, and who reports by device reports their sum.
pub(super) fn united<'t, 'n>(
    mut subjects: Vec<Subject<'t>>,
    reported: impl Iterator<Item = &'n String>,
) -> Vec<Subject<'t>> {
    for name in reported {
        let (mut meant, others): (Vec<_>, Vec<_>) = subjects.into_iter().partition(|subject| subject.has_name(name));
        subjects = others;
        if meant.len() > 1 {
            let mut one = Subject {
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
    /// Whether a `whose` of this name did anything that is known of.
    pub(super) fn knows(&self, whose: Whose, name: &str) -> bool {
        let all = || self.shares.iter().chain(&self.earlier);
        ProcessKey::ALL.iter().any(|&key| all().flat_map(|share| share.names(whose, key)).any(|known| known == name))
    }

    /// The subjects that `figure` should count; processes are those of `key`.
    pub(super) fn subjects(&self, figure: &ReportedFigure, key: ProcessKey) -> Vec<Subject<'_>> {
        let mut subjects: Vec<Subject<'_>> = Vec::new();
        for share in self.shares.iter().filter(|share| share.is_counted(figure)) {
            let names = share.names(figure.whose, key);
            // The name by which a tool would report it is not known.
            if names.is_empty() && figure.whose != Whose::System {
                continue;
            }
            if !subjects.iter().any(|subject| *subject.names == *names) {
                subjects.push(self.subject(figure, key, names));
            }
        }
        subjects
    }

    /// The subject `names`, with the shares that `figure` counts.
    fn subject<'t>(&'t self, figure: &ReportedFigure, key: ProcessKey, names: &'t [String]) -> Subject<'t> {
        let is_of = |share: &&Share| share.is_counted(figure) && share.names(figure.whose, key) == names;
        let is_certain = |share: &&Share| is_of(share) && share.is_on(figure) == Some(true);
        let is_uncertain = |share: &&Share| is_of(share) && share.is_on(figure).is_none();
        // The agent uses files in memory.
        let is_in_memory = |share: &&Share| share.may_be_in_memory(figure) && share.names(figure.whose, key) == names;
        let uncertain = self.shares.iter().filter(is_uncertain).chain(self.optional.iter().filter(is_in_memory));
        let copies = self.copies.iter().filter(|_| figure.whose == Whose::Process);
        let phases = self.phases.iter();
        Subject {
            names: Cow::Borrowed(names),
            shares: self.shares.iter().filter(is_certain).collect(),
            optional: self.optional.iter().chain(copies).filter(is_certain).collect(),
            besides: self.earlier.iter().filter(is_of).chain(uncertain).collect(),
            phases: phases.map(|(name, shares)| (name.as_str(), shares.iter().filter(is_certain).collect())).collect(),
        }
    }
}
