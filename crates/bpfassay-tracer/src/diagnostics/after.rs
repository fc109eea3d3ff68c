// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pitfalls that are visible after counting.

use bpfassay_protocol::{
    finding_name::{Finding, Pitfall},
    tracer_messages::Losses,
};

use super::{finding, tidy};
use crate::loader::plan::probes::copy_of;

/// The kernel's counts of what one program missed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProgramMisses {
    /// Name of the program in the object.
    pub(crate) program: String,
    /// The function or event to which the program was attached.
    pub(crate) attached_to: String,
    /// Whether the program ran at the function's return, by a kretprobe.
    pub(crate) kretprobe: bool,
    /// Hits that ran no handler, if the kernel counts them.
    pub(crate) probes: Option<u64>,
    /// Runs that were skipped because a program or an operation on a map was already running on
    /// that CPU, if the kernel counts them.
    pub(crate) recursion: Option<u64>,
}

/// Returns the findings that follow from `losses` and `programs`. Counts are since attaching, over
/// the whole machine.
pub(crate) fn after(losses: &Losses, programs: &[ProgramMisses]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let some = |count: Option<u64>| count.filter(|&count| count > 0);
    for program in programs {
        let ProgramMisses { program, attached_to, kretprobe, probes, recursion } = program;
        if let Some(count) = some(*probes) {
            findings.push(match kretprobe {
                // The kernel adds both up for a return probe (`trace_kprobe_missed`,
                // kernel/trace/trace_kprobe.c).
                true => finding(
                    Pitfall::MaxactiveExhausted,
                    program,
                    format!(
                        "{count} calls of {attached_to} were not watched to their return: more at once than the probe \
                         has places for (maxactive), or made while another probe ran on that CPU"
                    ),
                ),
                false => finding(
                    Pitfall::MissedProbes,
                    program,
                    format!("{count} hits of {attached_to} ran no handler: another probe was running on that CPU"),
                ),
            });
        }
        // A copy counts for the program whose name it has, and is reported together with that
        // program.
        if copy_of(program).is_none()
            && let Some(count) = some(*recursion)
        {
            let copies: Vec<u64> = programs
                .iter()
                .filter(|other| copy_of(&other.program).is_some_and(|(name, _)| name == program))
                .filter_map(|other| other.recursion)
                .collect();
            let lost = match copies.iter().min() {
                None => String::new(),
                Some(0) => ". A copy of the program ran for each of these calls: none is lost".to_owned(),
                Some(fewest) => {
                    let most = count.min(*fewest);
                    format!(". Copies of the program ran for the other calls: at most {most} of these calls are lost")
                }
            };
            let detail = format!(
                "{count} runs on {attached_to} were skipped: a program or an operation on a map was running on that CPU \
                 already, in a task that was preempted inside it or in the context that was interrupted{lost}"
            );
            findings.push(finding(Pitfall::RecursionMisses, program, detail));
        }
    }
    if let Some(count) = some(losses.map_insert_failures) {
        let detail = format!("{count} events did not fit into the map with their key and were not counted");
        findings.push(finding(Pitfall::MapInsertFailures, bpfassay_tracer_common::map::COUNTERS, detail));
    }
    if let Some(count) = some(losses.lru_evictions) {
        let detail = format!("{count} keys were evicted with their counts");
        findings.push(finding(Pitfall::LruEvictions, bpfassay_tracer_common::map::COUNTERS, detail));
    }
    if let Some(count) = some(losses.ring_buffer_drops) {
        let detail = format!("{count} events did not fit into the buffer and were not counted");
        findings.push(finding(Pitfall::RingBufferDrops, "ring buffer", detail));
    }
    tidy(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_lost_or_nothing_known_is_no_finding() {
        let programs = [ProgramMisses {
            program: "read_exit".to_owned(),
            attached_to: "vfs_read".to_owned(),
            kretprobe: false,
            probes: None,
            recursion: Some(0),
        }];
        assert_eq!(after(&Losses::default(), &programs), []);
        assert_eq!(after(&Losses { map_insert_failures: Some(0), ..Losses::default() }, &programs), []);
    }

    #[test]
    fn copies_bound_what_was_lost() {
        let detail = |misses: [u64; 3]| {
            let programs: Vec<_> = ["read_exit", "read_exit_2", "read_exit_3"]
                .into_iter()
                .zip(misses)
                .map(|(program, count)| ProgramMisses {
                    program: program.to_owned(),
                    attached_to: "vfs_read".to_owned(),
                    kretprobe: false,
                    probes: None,
                    recursion: Some(count),
                })
                .collect();
            let found = after(&Losses::default(), &programs);
            assert!(found.iter().all(|finding| finding.subject == "read_exit"), "{found:?}");
            found.first().map(|finding| finding.detail.clone()).unwrap_or_default()
        };
        assert!(detail([5, 0, 2]).ends_with("none is lost"));
        assert!(detail([5, 3, 2]).ends_with("at most 2 of these calls are lost"));
        assert_eq!(detail([0, 3, 2]), "", "the program itself missed nothing");
    }

    #[test]
    fn every_kind_of_loss_is_a_finding_with_its_number() {
        let program = |kretprobe| ProgramMisses {
            program: if kretprobe { "read_return" } else { "read_entry" }.to_owned(),
            attached_to: "vfs_read+0x8".to_owned(),
            kretprobe,
            probes: Some(3),
            recursion: Some(4),
        };
        let losses = Losses {
            missed_probes: Some(6),
            recursion_misses: Some(8),
            map_insert_failures: Some(5),
            lru_evictions: Some(7),
            ring_buffer_drops: Some(9),
        };
        let found = after(&losses, &[program(false), program(true)]);
        let shown: Vec<_> = found
            .iter()
            .map(|finding| (finding.pitfall, finding.subject.as_str(), finding.detail.split(' ').next().unwrap()))
            .collect();
        assert_eq!(
            shown,
            [
                (Pitfall::MissedProbes, "read_entry", "3"),
                (Pitfall::MaxactiveExhausted, "read_return", "3"),
                (Pitfall::RecursionMisses, "read_entry", "4"),
                (Pitfall::RecursionMisses, "read_return", "4"),
                (Pitfall::MapInsertFailures, "counters", "5"),
                (Pitfall::LruEvictions, "counters", "7"),
                (Pitfall::RingBufferDrops, "ring buffer", "9"),
            ]
        );
        // The kernel does not tell which of them it was.
        let said = &found.iter().find(|finding| finding.pitfall == Pitfall::RecursionMisses).unwrap().detail;
        assert!(said.contains("a program or an operation on a map was running on that CPU"), "{said}");
    }
}
