// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything that determines figures changes the key, and nothing else does.

use std::{collections::BTreeSet, sync::LazyLock};

use bpfassay_protocol::Arch;
use bpfassay_results::provenance::{Artefact, QemuFacts};
use bpfassay_study::{Addresses, Available, Clock, Denied, Gate, Model, Narrowing, Study};
use proptest::prelude::*;

use super::*;
use crate::blocks::block_store::key::{NoKey, key};

/// The inputs of a key.
#[derive(Clone)]
struct Case {
    study: Study,
    block: Block,
    provenance: Provenance,
    command: Vec<String>,
}

impl Case {
    fn new() -> Self {
        static MADE: LazyLock<Case> = LazyLock::new(Case::made);
        MADE.clone()
    }

    fn made() -> Self {
        let plan = whole_plan();
        let contents = journal(&plan, "a");
        let block = plan.blocks[0].clone();
        let command = block::command(&host_setup(&plan), &plan.study, &block).unwrap();
        Self { study: plan.study, block, provenance: contents.header.provenance, command }
    }

    fn key(&self) -> Result<StoreKey, NoKey> {
        key(&self.study, &self.block, &self.provenance, &self.command)
    }

    /// A case with `change` applied.
    fn with(change: impl FnOnce(&mut Self)) -> Self {
        let mut case = Self::new();
        change(&mut case);
        case
    }

    fn target(&mut self) -> &mut bpfassay_results::provenance::TargetArtefacts {
        let target = self.block.target.clone();
        self.provenance.targets.iter_mut().find(|made| made.target == target).unwrap()
    }

    fn qemu(&mut self) -> &mut QemuFacts {
        self.provenance.qemu.get_mut(&self.block.target.arch).unwrap()
    }
}

fn other_digest(artefact: &mut Artefact) {
    artefact.sha256 = Some(Digest::of(b"other").to_string());
}

#[test]
fn everything_that_determines_figures_changes_the_key() {
    let argument = |case: &mut Case, name: &str, value: &str| {
        let at = case.command.iter().position(|argument| argument == name).unwrap();
        case.command[at + 1] = value.to_owned();
    };
    let changes: Vec<(&str, Case)> = vec![
        ("program", Case::with(|case| other_digest(&mut case.provenance.bpfassay))),
        ("program's version", Case::with(|case| case.provenance.bpfassay.version = "9".to_owned())),
        ("kernel", Case::with(|case| other_digest(&mut case.target().kernel))),
        ("segment", Case::with(|case| other_digest(&mut case.target().initramfs[0]))),
        ("segment's role", Case::with(|case| case.target().initramfs[0].name = "other".to_owned())),
        (
            "a further segment, with tools",
            Case::with(|case| {
                let tools = Artefact { name: "tools".to_owned(), ..case.target().initramfs[0].clone() };
                case.target().initramfs.push(tools);
            }),
        ),
        ("payload", Case::with(|case| other_digest(&mut case.target().payload[0]))),
        ("QEMU", Case::with(|case| other_digest(&mut case.qemu().program))),
        ("QEMU's version", Case::with(|case| case.qemu().program.version = "8.0".to_owned())),
        ("plugin", Case::with(|case| case.qemu().plugin_api = Some(4))),
        ("seed of the guest", Case::with(|case| argument(case, "-seed", "77"))),
        ("memory", Case::with(|case| argument(case, "-m", "4096M"))),
        ("processor", Case::with(|case| argument(case, "-cpu", "other"))),
        ("accelerator", Case::with(|case| argument(case, "-accel", "kvm"))),
        ("kernel's command line", Case::with(|case| argument(case, "-append", "quiet"))),
        ("a further argument", Case::with(|case| case.command.push("-snapshot".to_owned()))),
        ("seed of the study", Case::with(|case| case.study.design.seed += 1)),
        ("clock", Case::with(|case| case.study.clock = Clock::Wall)),
        ("model", Case::with(|case| case.study.model = Model::named("cachegrind"))),
        ("memory of the study", Case::with(|case| case.study.guest.memory_mib += 1)),
        ("addresses", Case::with(|case| case.study.guest.addresses = Addresses::Fixed)),
        ("kernel parameters", Case::with(|case| case.study.guest.kernel_parameters.push("nosmt".to_owned()))),
        ("deadlines", Case::with(|case| case.study.deadlines.workload_ms += 1)),
        ("workload", Case::with(|case| case.study.workloads = workload("options = '-a POSIX -w -r -t 8k -b 16m'"))),
        ("kind of workload", Case::with(|case| case.study.workloads = workload("type = 'load'"))),
        (
            "whether instructions are counted",
            Case::with(|case| {
                let besides = case.study.workloads[0].clone();
                case.study.workloads = workload("type = 'load'");
                case.study.workloads.push(bpfassay_study::WorkloadSpec { name: "besides".to_owned(), ..besides });
            }),
        ),
        ("replicate", Case::with(|case| case.block.replicate += 1)),
        ("order of runs", Case::with(|case| case.block.runs.swap(0, 1))),
        ("fewer runs", Case::with(|case| drop(case.block.runs.pop()))),
        ("argument of the tracer", Case::with(|case| case.block.runs[0].spec.tracer_arguments.push("-x".to_owned()))),
        ("name of a run", Case::with(|case| case.block.runs[0].spec.id.push('x'))),
        ("kind of a run", Case::with(|case| case.block.runs[0].warm_up ^= true)),
        ("name of the block", Case::with(|case| case.block.id.push('x'))),
    ];
    let mut keys = BTreeSet::from([Case::new().key().unwrap()]);
    for (what, case) in changes {
        assert!(keys.insert(case.key().unwrap()), "{what} is no part of the key");
    }
}

/// A workload with the name of the one in the bundled study `quick`, but with other keys.
fn workload(keys: &str) -> Vec<bpfassay_study::WorkloadSpec> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.toml");
    let text = format!(
        "schema = 1\nname = 'other'\ndescription = 'x'\nprobes = ['none']\n[[targets]]\narch = 'x86_64'\nkernels = '7.2'\n\
         [[file_systems]]\ntype = 'tmpfs'\n[[workloads]]\nname = 'quick'\n{keys}\n[design]\nreplicates = 1\nseed = 1\n"
    );
    std::fs::write(&path, text).unwrap();
    bpfassay_study::load(path.to_str().unwrap()).unwrap().workloads
}

#[test]
fn what_names_no_figure_is_no_part_of_the_key() {
    let same: Vec<(&str, Case)> = vec![
        ("where QEMU is", Case::with(|case| case.command[0] = "/opt/qemu".to_owned())),
        ("what facts have of QEMU's path", Case::with(|case| case.qemu().path = "/opt/qemu".to_owned())),
        (
            "the filter of system calls",
            Case::with(|case| {
                let at = case.command.iter().position(|argument| argument == "-sandbox").unwrap();
                case.command.drain(at..=at + 1);
            }),
        ),
        ("the host", Case::with(|case| case.provenance.host.machine = "other".to_owned())),
        ("where the testbed lies", Case::with(|case| case.provenance.manifest = serde_json::json!({}))),
        ("guests of other targets", {
            Case::with(|case| {
                let target = case.block.target.clone();
                case.provenance.targets.retain(|made| made.target == target);
            })
        }),
        ("the description", Case::with(|case| case.study.description = "other".to_owned())),
        ("the study's name", Case::with(|case| case.study.name = "other".to_owned())),
        ("gates", {
            Case::with(|case| {
                let deny = Denied::kinds(&["all".parse().unwrap()]);
                case.study.gates.push(Gate { deny, ..Gate::default() });
            })
        }),
        ("expectations", Case::with(|case| case.study.expectations.clear())),
        ("how many replicates there are", Case::with(|case| case.study.design.replicates += 10)),
        ("other targets", Case::with(|case| case.study.targets.truncate(1))),
    ];
    let key = Case::new().key();
    for (what, case) in same {
        assert_eq!(case.key(), key, "{what} is part of the key");
    }
}

#[test]
fn by_the_wall_clock_the_host_is_part_of_the_key() {
    let wall = |change: fn(&mut Case)| {
        let case = Case::with(|case| {
            case.study.clock = Clock::Wall;
            change(case);
        });
        case.key().unwrap()
    };
    let keys = [
        wall(|_| {}),
        wall(|case| case.provenance.host.cpu_model = "other".to_owned()),
        wall(|case| case.provenance.host.kernel_release = "other".to_owned()),
        wall(|case| case.provenance.host.jobs += 1),
    ];
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    assert_eq!(wall(|case| case.provenance.host.jobs += 1), keys[3]);
}

#[test]
fn what_is_not_known_makes_no_key() {
    type Change = fn(&mut Case);
    let missing: [(Change, &str); 5] = [
        (|case| case.provenance.bpfassay.sha256 = None, "the digest of bpfassay is not known"),
        (|case| case.target().kernel.sha256 = None, "the digest of kernel is not known"),
        (|case| case.qemu().program.sha256 = None, "the digest of qemu is not known"),
        (|case| case.provenance.targets.clear(), "what the guest for"),
        (|case| case.provenance.qemu.clear(), "QEMU for"),
    ];
    for (change, message) in missing {
        let problem = Case::with(change).key().unwrap_err().to_string();
        assert!(problem.starts_with(message), "{problem}");
    }
}

#[test]
fn a_changed_study_has_the_keys_of_what_is_the_same_in_it() {
    let keys = |change: fn(&mut Study, &mut Narrowing)| {
        let mut study = bpfassay_study::load("quick").unwrap();
        (study.clock, study.clock_of_host) = (Clock::Instructions, false);
        let mut narrowing = Narrowing { replicates: Some(2), archs: vec![Arch::X86_64], ..Narrowing::default() };
        change(&mut study, &mut narrowing);
        let plan = bpfassay_study::expand(&study, &narrowing, &Available::default()).unwrap();
        let (setup, provenance) = (host_setup(&plan), crate::merge::tests::provenance(&plan, "a"));
        let of = |block: &Block| {
            let command = block::command(&setup, &plan.study, block).unwrap();
            key(&plan.study, block, &provenance, &command).unwrap()
        };
        plan.blocks.iter().map(of).collect::<BTreeSet<_>>()
    };
    // The plan has three kernels on x86_64 with two boots each.
    let all = keys(|_, _| {});
    assert_eq!(all.len(), 6);
    let shared = |change| keys(change).intersection(&all).count();
    assert_eq!(shared(|_, narrowing| narrowing.replicates = Some(5)), 6, "more boots");
    assert_eq!(shared(|_, narrowing| narrowing.kernels = vec!["6.12".to_owned()]), 2, "one kernel");
    assert_eq!(shared(|study, _| study.description.clear()), 6);
    assert_eq!(shared(|study, _| study.design.seed += 100), 0, "another seed");
    assert_eq!(shared(|study, _| study.probes.truncate(1)), 0, "a probe fewer");
    assert_eq!(shared(|study, _| study.design.rounds += 1), 0, "more rounds");
}

proptest! {
    /// Two boots have the same key only if everything that determines their figures is the same.
    #[test]
    fn keys_are_the_same_only_of_the_same(
        (a, b) in (0_u64..3, 0_u64..3), (c, d) in ("[ab]{0,2}", "[ab]{0,2}"), (e, f) in (0_u32..2, 0_u32..2)
    ) {
        let of = |seed, argument: &str, replicate| Case::with(|case| {
            case.study.design.seed = seed;
            case.block.runs[0].spec.tracer_arguments = vec![argument.to_owned()];
            case.block.replicate = replicate;
        });
        prop_assert_eq!(of(a, &c, e).key() == of(b, &d, f).key(), (a, c, e) == (b, d, f));
    }
}
