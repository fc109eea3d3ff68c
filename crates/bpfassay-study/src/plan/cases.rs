//! Which workloads can run on which targets, and by what.

use std::collections::BTreeSet;

use bpfassay_protocol::{
    Arch,
    job::{IorEngine, Workload},
};

use super::{Available, Case, LeftOut};
use crate::{EngineChoice, Interface, IorSpec, IorTest, Study, Target, WorkloadKind, narrow::list};

/// Per target the cases that can run there; what cannot is added to `left_out`.
pub(super) fn cases<'a>(
    study: &Study,
    targets: &'a [Target],
    available: &Available,
    left_out: &mut Vec<LeftOut>,
) -> Vec<(&'a Target, Vec<Case>)> {
    let mut refused: Vec<(LeftOut, Vec<Arch>)> = Vec::new();
    let mut per_target = Vec::new();
    for target in targets {
        let mut possible = Vec::new();
        for spec in &study.workloads {
            let ior = match &spec.kind {
                WorkloadKind::Ior(ior) => ior,
                WorkloadKind::Command(command) => {
                    match command.workload(&spec.name, target.arch) {
                        Ok(workload) => possible.push(Case::other(spec, workload)),
                        Err(reason) => refuse(&mut refused, &spec.name, reason, target.arch),
                    }
                    continue;
                }
                WorkloadKind::IoPaths { size } => {
                    possible.push(Case::other(spec, Workload::IoPaths { size: *size }));
                    continue;
                }
                WorkloadKind::KernelFeatures => {
                    possible.push(Case::other(spec, Workload::KernelFeatures));
                    continue;
                }
                WorkloadKind::Microbenchmark { microbenchmark, operations, size } => {
                    let workload = Workload::Microbenchmark {
                        microbenchmark: *microbenchmark,
                        operations: *operations,
                        size: *size,
                    };
                    possible.push(Case::other(spec, workload));
                    continue;
                }
            };
            for (id, test) in case_ids(&spec.name, &ior.tests).into_iter().zip(&ior.tests) {
                match engine(ior, test.interface, available.external_ior.get(&target.arch)) {
                    Ok(engine) => possible.push(Case::ior(id, ior, test, engine)),
                    Err(reason) => refuse(&mut refused, &id, reason, target.arch),
                }
            }
        }
        per_target.push((target, possible));
    }
    left_out.extend(
        refused.into_iter().map(|(left, archs)| LeftOut { what: format!("{} on {}", left.what, list(&archs)), ..left }),
    );
    per_target
}

/// Notes why there is no workload `id` on `arch`.
fn refuse(refused: &mut Vec<(LeftOut, Vec<Arch>)>, id: &str, reason: String, arch: Arch) {
    let left = LeftOut { what: format!("workload {id}"), reason };
    match refused.iter_mut().find(|(known, _)| *known == left) {
        Some((_, archs)) if archs.contains(&arch) => {}
        Some((_, archs)) => archs.push(arch),
        None => refused.push((left, vec![arch])),
    }
}

/// Names of the tests of one workload: the workload's name alone where there is one test, with the transfer size
/// where that tells the tests apart, else with their number.
fn case_ids(name: &str, tests: &[IorTest]) -> Vec<String> {
    if tests.len() == 1 {
        return vec![name.to_owned()];
    }
    let sizes: BTreeSet<u64> = tests.iter().map(|test| test.transfer_size).collect();
    let by_size = sizes.len() == tests.len();
    tests
        .iter()
        .enumerate()
        .map(|(index, test)| match by_size {
            true => format!("{name}-t{}", binary_size(test.transfer_size)),
            false => format!("{name}-{}", index + 1),
        })
        .collect()
}

/// `size` bytes in the largest binary unit that holds it exactly: `256KiB`.
fn binary_size(size: u64) -> String {
    [("GiB", 30), ("MiB", 20), ("KiB", 10)]
        .into_iter()
        .find(|(_, shift)| size > 0 && size.trailing_zeros() >= *shift)
        .map_or_else(|| format!("{size}B"), |(unit, shift)| format!("{}{unit}", size >> shift))
}

/// The engine that runs a test, or why none does.
fn engine(spec: &IorSpec, interface: Interface, external: Option<&BTreeSet<Interface>>) -> Result<IorEngine, String> {
    if !spec.interfaces.is_empty() && !spec.interfaces.contains(&interface) {
        return Err(format!("the study keeps only tests with the interface {}", list(&spec.interfaces)));
    }
    let external_has = external.is_some_and(|interfaces| interfaces.contains(&interface));
    match spec.engine {
        EngineChoice::Auto | EngineChoice::External if external_has => Ok(IorEngine::External),
        EngineChoice::Auto | EngineChoice::Embedded if interface.is_embedded() => Ok(IorEngine::Embedded),
        EngineChoice::Embedded => Err(format!("the embedded engine does not have {interface}")),
        EngineChoice::Auto | EngineChoice::External => {
            let embedded = match spec.engine {
                EngineChoice::Auto => format!("the embedded engine does not have {interface}, and "),
                EngineChoice::Embedded | EngineChoice::External => String::new(),
            };
            Err(match external {
                None => format!("{embedded}no IOR was given for this architecture (--ior ARCH=DIR)"),
                Some(_) => format!("{embedded}the IOR given for this architecture does not have {interface}"),
            })
        }
    }
}
