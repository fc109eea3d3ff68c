// SPDX-License-Identifier: MIT OR Apache-2.0
//! Testbeds that grew while a plan was executed: readers of a journal find the whole testbed at its
//! beginning.

use crate::{JournalEntry, Provenance};

/// Replaces the initial testbed by the one that it grew to, in `first` (from the header) or in the
/// resumption that began with it. A resumption whose testbed is larger than before the interruption
/// counts as growth. Returns the other entries.
///
/// # Errors
/// The line number of an entry whose testbed lacks something, and a message.
pub(super) fn fold(first: &mut Provenance, entries: Vec<JournalEntry>) -> Result<Vec<JournalEntry>, (usize, String)> {
    let mut kept = Vec::with_capacity(entries.len());
    let mut grown = Grown { of_header: true, of_entries: Vec::new(), provenance: first.clone() };
    for (index, entry) in entries.into_iter().enumerate() {
        match entry {
            JournalEntry::Provisioned { provenance, .. } => {
                if !provenance.extends(&grown.provenance) {
                    // Entries begin at line 2, after the header.
                    return Err((index + 2, "the testbed lacks something that was there before".to_owned()));
                }
                grown.provenance = *provenance;
            }
            JournalEntry::Resumed { at_unix_ms, provenance } => {
                if provenance.extends(&grown.provenance) {
                    grown.provenance = (*provenance).clone();
                } else {
                    let next = Grown { of_header: false, of_entries: Vec::new(), provenance: (*provenance).clone() };
                    std::mem::replace(&mut grown, next).put(first, &mut kept);
                }
                grown.of_entries.push(kept.len());
                kept.push(JournalEntry::Resumed { at_unix_ms, provenance });
            }
            other => kept.push(other),
        }
    }
    grown.put(first, &mut kept);
    Ok(kept)
}

/// The current testbed, and where it has to be stored.
struct Grown {
    of_header: bool,
    of_entries: Vec<usize>,
    provenance: Provenance,
}

impl Grown {
    fn put(self, first: &mut Provenance, kept: &mut [JournalEntry]) {
        for index in self.of_entries {
            if let Some(JournalEntry::Resumed { provenance, .. }) = kept.get_mut(index) {
                **provenance = self.provenance.clone();
            }
        }
        if self.of_header {
            *first = self.provenance;
        }
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::Arch;
    use bpfassay_study::Target;

    use super::*;
    use crate::provenance::{Artefact, HostFacts, TargetArtefacts};

    fn artefact(name: &str) -> Artefact {
        Artefact { name: name.to_owned(), ..Artefact::default() }
    }

    /// Creates a testbed with these targets on the host `machine`.
    fn with(targets: &[&str], machine: &str) -> Provenance {
        let target = |kernel: &&str| TargetArtefacts {
            target: Target { arch: Arch::X86_64, kernel: (*kernel).to_owned() },
            kernel: artefact(kernel),
            initramfs: Vec::new(),
            payload: Vec::new(),
        };
        let jobs = u32::try_from(targets.len()).unwrap();
        let host = HostFacts { machine: machine.to_owned(), jobs, ..HostFacts::default() };
        Provenance {
            bpfassay: artefact("bpfassay"),
            host,
            targets: targets.iter().map(target).collect(),
            manifest: serde_json::json!({ "targets": targets }),
            ..Provenance::default()
        }
    }

    fn provisioned(provenance: &Provenance) -> JournalEntry {
        JournalEntry::Provisioned { at_unix_ms: 1, provenance: Box::new(provenance.clone()) }
    }

    fn resumed(provenance: &Provenance) -> JournalEntry {
        JournalEntry::Resumed { at_unix_ms: 2, provenance: Box::new(provenance.clone()) }
    }

    #[test]
    fn what_was_added_while_measuring_counts_as_there_from_the_beginning() {
        let (one, two, all) = (with(&["a"], "h"), with(&["a", "b"], "h"), with(&["a", "b", "c"], "h"));
        let mut first = one.clone();
        assert_eq!(fold(&mut first, vec![provisioned(&two), provisioned(&all)]), Ok(Vec::new()));
        assert_eq!(first, all);
        // The run was interrupted before the last target was there. It was resumed with all targets
        // at once, or with one after the other.
        for later in [vec![resumed(&all)], vec![resumed(&two), provisioned(&all)]] {
            let mut first = one.clone();
            let kept = fold(&mut first, [vec![provisioned(&two)], later].concat()).unwrap();
            assert_eq!((&first, &kept[..]), (&all, &[resumed(&all)][..]));
        }
    }

    #[test]
    fn another_testbed_stays_another() {
        let (one, other, others) = (with(&["a"], "h"), with(&["a"], "elsewhere"), with(&["a", "b"], "elsewhere"));
        let mut first = one.clone();
        let kept = fold(&mut first, vec![resumed(&other), provisioned(&others)]).unwrap();
        assert_eq!((first, kept), (one, vec![resumed(&others)]));
    }

    #[test]
    fn a_testbed_that_shrinks_or_changes_is_damage() {
        let (one, two) = (with(&["a"], "h"), with(&["a", "b"], "h"));
        for later in [with(&["b"], "h"), with(&["b", "c", "d"], "h"), with(&["a", "b", "c"], "elsewhere")] {
            let folded = fold(&mut one.clone(), vec![provisioned(&two), provisioned(&later)]);
            assert_eq!(folded.unwrap_err().0, 3);
        }
    }
}
