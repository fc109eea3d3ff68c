// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rebuilds the contents of a journal from published results.

use std::collections::BTreeMap;

use super::JournalContents;
use crate::{BlockEnded, BlockStarted, BootVerdict, JOURNAL_VERSION, JournalEntry, JournalHeader, Results, RunRecord};

impl JournalContents {
    /// Rebuilds what `results` keep of their journal: plan, provenance, and the record that counts
    /// for each run. The course of boots, plugin counts and superseded records are missing, so
    /// results derived from this have less.
    #[must_use]
    pub fn of_results(results: Results) -> Self {
        let Results { started_unix_ms, plan, provenance, boots, runs, .. } = results;
        let mut provenance = provenance.into_iter();
        let header = JournalHeader {
            journal: JOURNAL_VERSION,
            started_unix_ms,
            plan,
            provenance: provenance.next().unwrap_or_default(),
        };
        let resumed =
            |provenance| JournalEntry::Resumed { at_unix_ms: started_unix_ms, provenance: Box::new(provenance) };
        let mut entries: Vec<JournalEntry> = provenance.map(resumed).collect();
        let verdicts: BTreeMap<(String, u32), Option<BootVerdict>> =
            boots.into_iter().map(|boot| ((boot.block, boot.boot), boot.verdict)).collect();
        let mut of_boots = BTreeMap::<(String, u32), Vec<Box<RunRecord>>>::new();
        for run in runs {
            of_boots.entry((run.record.block.clone(), run.record.boot)).or_default().push(run.record);
        }
        for (key, records) in of_boots {
            // Records of an unfinished boot must stay provisional.
            let verdict = verdicts.get(&key).cloned().flatten().unwrap_or(BootVerdict::Complete);
            let ids: Vec<String> = records.iter().map(|record| record.run.clone()).collect();
            let is_open = matches!(verdict, BootVerdict::Complete | BootVerdict::Interrupted | BootVerdict::Host);
            let settled = if is_open { Vec::new() } else { ids.clone() };
            let (block, boot) = key;
            entries.push(JournalEntry::BlockStarted(Box::new(BlockStarted {
                block: block.clone(),
                boot,
                at_unix_ms: started_unix_ms,
                qemu: Vec::new(),
                attempt: 1,
                log: None,
                runs: ids,
                confirming: None,
                reused: None,
            })));
            entries.extend(records.into_iter().map(JournalEntry::Run));
            entries.push(JournalEntry::BlockEnded(Box::new(BlockEnded {
                block,
                boot,
                at_unix_ms: started_unix_ms,
                failure: None,
                notes: Vec::new(),
                counts: None,
                code_coverage: None,
                verdict,
                settled,
            })));
        }
        Self { header, entries, torn: None, digest: None }
    }
}
