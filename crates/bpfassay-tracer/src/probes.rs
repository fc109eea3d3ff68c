//! The probe configurations: one line each.
//!
//! A probe is a C source `src/bpf/NAME.bpf.c` whose `SEC("KIND/FUNCTION")` names say what to hook, and a line in
//! [`PROBES`] that says how its programs are attached. A way of attaching that does not exist yet is a new
//! variant of [`Attachment`].

use bpfassay_protocol::probe::Probe;

/// How the programs of a probe are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attachment {
    /// kprobe at function entry, through a perf event.
    KprobeEntry,
    /// BPF trampoline on the function that the section names.
    Trampoline,
    /// Iterator over tasks and raw tracepoint: as the sections name them.
    TaskAccounting,
}

const PROBES: &[(Probe, Attachment)] = &[
    (Probe::Kprobe, Attachment::KprobeEntry),
    (Probe::Fexit, Attachment::Trampoline),
    (Probe::TaskIo, Attachment::TaskAccounting),
];

/// How `probe` is attached; nothing for the baseline.
pub(crate) fn attachment(probe: Probe) -> Option<Attachment> {
    PROBES.iter().find(|(known, _)| *known == probe).map(|&(_, attachment)| attachment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_but_the_baseline_is_registered_once() {
        for &probe in Probe::ALL {
            let lines = PROBES.iter().filter(|(known, _)| *known == probe).count();
            assert_eq!(lines, usize::from(probe != Probe::None), "{probe}");
        }
    }
}
