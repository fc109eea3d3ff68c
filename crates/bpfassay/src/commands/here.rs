//! `bpfassay here`: run a study on this machine itself, without guests.

use std::{
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use bpfassay_protocol::Arch;
use bpfassay_runner::{Agent, HereConfig};
use bpfassay_study::{Available, Clock, LeftOut, Narrowing, Plan, Study, Target};
use tokio_util::sync::CancellationToken;

use super::run;
use crate::{
    cli,
    exit::{Failure, INFRASTRUCTURE, Outcome, USAGE},
    progress::{Reporting, Watcher},
    provenance,
    session::{check_ids, stop_on_signals},
    setup,
};

/// The agent, and what it starts.
const AGENT: &str = "bpfassay-guest";
const PAYLOAD: [&str; 2] = ["bpfassay-tracer", "bpfassay-ior"];

pub(crate) async fn here(arguments: cli::Here) -> Outcome {
    let mount = std::fs::canonicalize(&arguments.mount).map_err(|error| Failure {
        code: USAGE,
        report: miette::miette!(
            help = "--mount names the directory where the file system under test is mounted",
            "cannot use {}: {error}",
            arguments.mount.display()
        ),
    })?;
    let host = provenance::host();
    let plan = plan(&arguments, host.facts(1).memory_kib / 1024, host.room.cpus)?;
    // The kernel's release is part of them.
    check_ids(&plan)?;
    let target = plan
        .study
        .targets
        .first()
        .cloned()
        .ok_or_else(|| Failure { code: USAGE, report: miette::miette!("the study has no target") })?;
    let agent = Agent { program: program(AGENT)?, mount, external_ior: arguments.ior.clone() };
    let mut payload = PAYLOAD.iter().map(|name| program(name)).collect::<Result<Vec<_>, _>>()?;
    payload.extend(arguments.ior.clone());
    let payload: Vec<&Path> = payload.iter().map(PathBuf::as_path).collect();
    let provenance = provenance::here(host.facts(1), target, &agent.program, &payload)?;

    let (directory, journal, blocks) = run::begin(&plan, arguments.output.as_deref(), provenance)?;
    let cancel = CancellationToken::new();
    stop_on_signals(&cancel);
    let reporting = Reporting {
        study: Some(&arguments.study),
        overlays: &[],
        format: arguments.message_format,
        here: Some(&agent.mount),
    };
    let summary = run::until_narrow(&plan, &directory, journal, blocks, async |blocks, journal| {
        let watcher = Watcher::new(&plan, &blocks, NonZeroU32::MIN, &directory, reporting);
        let blocks = blocks.into_iter().map(|todo| todo.block).collect();
        let order = HereConfig { study: &plan.study, blocks, agent: &agent, directory: &directory };
        let outcome = bpfassay_runner::execute_here(order, journal, &watcher, &cancel).await;
        watcher.finish();
        outcome.map_err(Failure::infrastructure)
    })
    .await?;
    let end = run::End { summary, how_to_go_on: "; what was measured is kept".to_owned() };
    run::report(&directory, &end, arguments.message_format)
}

/// The study with this machine as its only target.
fn plan(arguments: &cli::Here, memory_mib: u64, cpus: u32) -> Result<Plan, Failure> {
    let uname = rustix::system::uname();
    let machine = uname.machine().to_string_lossy();
    let arch: Arch = machine.parse().map_err(Failure::usage)?;
    let study = bpfassay_study::load(&arguments.study).map_err(Failure::usage)?;
    let target = Target { arch, kernel: uname.release().to_string_lossy().into_owned() };
    let (study, left_out) = on(study, target, memory_mib, cpus);
    let narrowing = Narrowing {
        probes: arguments.probe.clone(),
        cells: arguments.cell.clone(),
        replicates: arguments.replicates,
        ..Narrowing::default()
    };
    let mut available = Available::default();
    if let Some(program) = &arguments.ior {
        available.external_ior.insert(arch, setup::interfaces_of(program)?);
    }
    let mut plan = bpfassay_study::expand(&study, &narrowing, &available)?;
    plan.left_out.extend(left_out);
    Ok(plan)
}

/// `study` on a machine that is there already, and what of it cannot be.
fn on(study: Study, target: Target, memory_mib: u64, cpus: u32) -> (Study, Option<LeftOut>) {
    let mut study = Study { targets: vec![target], clock: Clock::Wall, clock_of_host: false, ..study };
    let parameters = std::mem::take(&mut study.guest.kernel_parameters);
    study.guest.cpus = cpus;
    study.guest.memory_mib = u32::try_from(memory_mib).unwrap_or(u32::MAX);
    let left_out = (!parameters.is_empty()).then(|| LeftOut {
        what: format!("kernel parameters {}", parameters.join(" ")),
        reason: "this machine has been booted already".to_owned(),
    });
    (study, left_out)
}

/// The program `name`, where `PATH` finds it.
fn program(name: &str) -> Result<PathBuf, Failure> {
    which::which(name).map_err(|_| {
        let report = miette::miette!(
            help =
                "put it into PATH: the guests' programs of the cache or of the flake (packages payload-ARCH) will do",
            "there is no {name} in PATH that may be executed"
        );
        Failure { code: INFRASTRUCTURE, report }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_study_is_done_on_this_machine_as_it_is() {
        let mut study = bpfassay_study::load("quick").unwrap();
        study.guest.kernel_parameters = vec!["mitigations=off".to_owned()];
        let target = Target { arch: Arch::X86_64, kernel: "6.12.117+deb13-amd64".to_owned() };
        let (study, left_out) = on(study, target.clone(), 7900, 4);
        assert_eq!((study.targets.as_slice(), study.clock), ([target].as_slice(), Clock::Wall));
        assert_eq!((study.guest.cpus, study.guest.memory_mib), (4, 7900));
        assert_eq!(left_out.unwrap().what, "kernel parameters mitigations=off");
        // Names of kernels in expectations and gates stand for the builds that a release string names.
        let plan = bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        let cell = plan.cells.iter().find(|cell| !cell.is_baseline()).unwrap();
        let gate = bpfassay_study::Gate { kernels: vec!["6.12".to_owned()], ..Default::default() };
        assert!(gate.covers(&plan.study, cell));
    }
}
