// SPDX-License-Identifier: MIT OR Apache-2.0
//! A made-up study of kernel features: three features, two probe configurations, two kernels on two
//! architectures.

use bpfassay_protocol::{
    Arch, Operation,
    kernel_feature::{Feature, FeatureKind, Support},
    message::RunFigures,
    probe::Probe,
};
use bpfassay_results::Outcome;
use bpfassay_study::{Block, PlannedRun, Study};

use super::{figures, not_supported};

pub(crate) fn study(expected: &str) -> Study {
    let text = format!(
        r#"
schema = 1
name = "matrix"
description = "For tests."
clock = "wall"
probes = ["none", "kprobe", "fexit"]
[[targets]]
arch = ["x86_64", "aarch64"]
kernels = ["6.1", "6.12"]
[[file_systems]]
type = "tmpfs"
[[workloads]]
type = "kernel-features"
[design]
replicates = 1
seed = 1
control = false
{expected}
"#
    );
    Study::parse("made-up", &text, &|_| Ok(None)).unwrap()
}

pub(crate) fn feature(kind: FeatureKind, name: &str, works: bool) -> Feature {
    let support = match works {
        true => Support::Works { value: None },
        false => Support::Refused { errno: Some(22), message: "the kernel's \u{1b} message".to_owned() },
    };
    Feature { kind, name: name.to_owned(), support }
}

/// Returns three features as Debian's kernels offer them.
fn features(block: &Block) -> Vec<Feature> {
    let is_new = block.target.kernel == "6.12";
    vec![
        feature(FeatureKind::MapType, "ringbuf", true),
        feature(FeatureKind::Kfunc, "fexit/bpf_strcmp", false),
        feature(FeatureKind::AttachType, "kprobe.multi", is_new && block.target.arch == Arch::X86_64),
        feature(FeatureKind::Construct, "may-goto", is_new),
    ]
}

/// Creates a run of reads and writes of 4 KiB, all of them counted.
fn exact(probe: Probe) -> RunFigures {
    let mut figures = figures(bpfassay_protocol::ProbeConfiguration::with_defaults(probe), 100.0, 100.0);
    let (cgroup, device) = (figures.cgroup, figures.mount.device);
    for phase in &mut figures.phases {
        for operation in [Operation::Read, Operation::Write] {
            let of = |sample: &bpfassay_protocol::tracer_messages::Sample| {
                let ours =
                    |row: &bpfassay_protocol::tracer_messages::CounterRow| row.cgroup == cgroup && row.device == device;
                bpfassay_protocol::tracer_messages::sum(&sample.rows, ours).get(&operation).copied().unwrap_or_default()
            };
            if let (Some(before), Some(after)) = (&phase.interval.before.tracer, &phase.interval.after.tracer) {
                phase.moved.insert(operation, of(after) - of(before));
            }
        }
    }
    figures
}

pub(crate) fn outcome(block: &Block, run: &PlannedRun) -> Outcome {
    match (run.spec.probe.probe, block.target.arch, block.target.kernel.as_str()) {
        (Probe::None, ..) => {
            Outcome::Measured(Box::new(RunFigures { features: features(block), ..exact(Probe::None) }))
        }
        (Probe::Fexit, Arch::Aarch64, "6.1") => Outcome::Refused(not_supported()),
        (probe, ..) => Outcome::Measured(Box::new(exact(probe))),
    }
}
