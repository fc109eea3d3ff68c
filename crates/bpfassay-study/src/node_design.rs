// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restrictions of studies with several nodes (`guest.nodes`). Nodes coordinate only at barriers,
//! and all nodes have the same set-up.

use bpfassay_protocol::job::{FileSystem, Scheduling};

use crate::{
    Clock, Study, WarmUp, WarmUpRule,
    workload::{WorkloadKind, check_nodes},
};

/// Checks `study`. A study with one node has no restrictions.
///
/// # Errors
/// A sentence with the first violation and its solution.
pub(crate) fn check(study: &Study) -> Result<(), String> {
    let nodes = study.guest.nodes;
    if nodes == 1 {
        return Ok(());
    }
    let is_fixed = |scheduling: Option<Scheduling>| scheduling == Some(Scheduling::Fixed);
    let without_nfs = |file_system: &FileSystem| !matches!(file_system, FileSystem::Nfs(_));
    let with_localio = |file_system: &FileSystem| matches!(file_system, FileSystem::Nfs(nfs) if nfs.localio.is_some());
    let design = &study.design;
    let impossible = [
        (
            study.clock != Clock::Wall,
            "nodes are guests that wait for each other, and each would count its instructions alone: set `clock = \"wall\"`",
        ),
        (
            study.file_systems.iter().any(without_nfs),
            "nodes share a file system over the network: name NFS file systems only",
        ),
        (
            study.file_systems.iter().any(with_localio),
            "the server of several nodes is another guest, which LOCALIO does not reach: leave out `localio`",
        ),
        (
            is_fixed(study.guest.scheduling) || study.file_systems.iter().any(|one| is_fixed(one.scheduling())),
            "`scheduling = \"fixed\"` is for a guest with a server of its own: leave it out",
        ),
        (!study.mounts.is_empty(), "nodes have the mount of the server only: leave out `[[mounts]]`"),
        (
            !study.tools.is_empty() || !study.tool_files.is_empty(),
            "tools under test run in one guest: test them with `nodes = 1`",
        ),
        (
            design.sampling_interval_ms.is_some(),
            "samples of several nodes are not taken at the same time: leave out `sampling_interval_ms`",
        ),
        (design.bpf_stats, "statistics of programs are read in one guest: leave out `bpf_stats`"),
        (
            design.warm_up == WarmUp::Rule(WarmUpRule::Steady),
            "nodes would be steady after different numbers of repeats: set `warm_up` to a number or to \"probes\"",
        ),
    ];
    if let Some((_, problem)) = impossible.into_iter().find(|(is_so, _)| *is_so) {
        return Err(problem.to_owned());
    }
    for workload in &study.workloads {
        let WorkloadKind::Ior(spec) = &workload.kind else {
            return Err(format!(
                "`{}` is no workload of several nodes: only IOR has ranks on each of them",
                workload.name
            ));
        };
        check_nodes(spec, nodes).map_err(|problem| format!("workload `{}`: {problem}", workload.name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::{Arch, job::Program};

    use crate::{Available, Interface, Narrowing, Study, StudyError, expand};

    const STUDY: &str = r#"
        schema = 1
        name = "several"
        description = "Several nodes."
        probes = ["none", "fexit"]
        [[targets]]
        arch = "x86_64"
        kernels = ["6.12"]
        [[file_systems]]
        type = "nfs"
        [[workloads]]
        name = "shared"
        options = "-a POSIX -b 1m -t 1m -w -r -C"
        ranks = 16
        [design]
        replicates = 1
        rounds = 2
        seed = 1
        control = true
        [guest]
        nodes = 4
    "#;

    fn read(text: &str) -> Result<Study, StudyError> {
        Study::parse("test", text, &|_| Ok(None))
    }

    #[test]
    fn each_node_runs_its_share_of_the_ranks() {
        let study = read(STUDY).unwrap();
        assert_eq!((study.guest.nodes, study.guest.guests()), (4, 5));
        assert_eq!((study.clock, study.clock_of_host), (crate::Clock::Wall, false));
        let plan = expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        let arguments = &plan.cells[0].workload.arguments;
        assert_eq!(arguments[..2], ["--ranks=4", "--node={node}"]);
        // A study with one node keeps the digest from before nodes existed.
        let alone = read(&STUDY.replace("nodes = 4", "nodes = 1")).unwrap();
        assert!(!serde_json::to_string(&alone).unwrap().contains("\"nodes\":"));
        let plan = expand(&alone, &Narrowing::default(), &Available::default()).unwrap();
        assert_eq!(plan.cells[0].workload.arguments[0], "--ranks=16");
    }

    #[test]
    fn a_real_ior_launches_its_ranks_on_all_nodes() {
        let mpi_io = STUDY.replace("-a POSIX", "-a MPIIO -D 1");
        let available = |interfaces: &[Interface]| {
            let interfaces = interfaces.iter().copied().collect();
            Available { external_ior: [(Arch::X86_64, interfaces)].into(), ..Available::default() }
        };
        let plan = |text: &str, available: &Available| expand(&read(text).unwrap(), &Narrowing::default(), available);
        let workloads = |text: &str, available: &Available| -> Vec<_> {
            plan(text, available).unwrap().cells.into_iter().map(|cell| cell.workload).collect()
        };
        for workload in workloads(&mpi_io, &available(&[Interface::Mpiio])) {
            // All ranks: the launcher distributes them.
            assert_eq!(workload.program, Program::ExternalIor { ranks: 16 });
            assert!(workload.arguments.iter().all(|argument| !argument.contains("--node")));
        }
        let nothing = format!("{:?}", plan(&mpi_io, &Available::default()).unwrap_err());
        assert!(nothing.contains("--ior ARCH=DIR"), "{nothing}");
        // The embedded engine refuses options that need more than barriers, also in a study that
        // only possibly uses that engine.
        let external =
            STUDY.replace("-w -r -C", "-w -r -D 1").replace("ranks = 16", "ranks = 16\n engine = \"external\"");
        assert_eq!(
            workloads(&external, &available(&[Interface::Posix]))[0].program,
            Program::ExternalIor { ranks: 16 }
        );
    }

    #[test]
    fn what_several_nodes_do_not_have_is_refused_with_what_to_do() {
        for (from, to, hint) in [
            ("nodes = 4", "nodes = 9", "from 1 to 8"),
            ("[design]", "[design]\n bpf_stats = true", "bpf_stats"),
            ("[design]", "[design]\n sampling_interval_ms = 100", "sampling_interval_ms"),
            ("[design]", "[design]\n warm_up = \"steady\"", "warm_up"),
            ("schema = 1", "schema = 1\n clock = \"instructions\"", "clock"),
            ("type = \"nfs\"", "type = \"tmpfs\"", "NFS"),
            ("type = \"nfs\"", "type = \"nfs\"\n localio = true", "LOCALIO"),
            ("nodes = 4", "nodes = 4\n scheduling = \"fixed\"", "fixed"),
            ("ranks = 16", "ranks = 15", "15"),
            ("ranks = 16", "ranks = 16\n neighbour = true", "neighbour"),
            ("ranks = 16", "ranks = 16\n bystander = '-w -t 4k -b 64k'", "a bystander is on one guest"),
            ("-w -r -C", "-w -r -D 1", "-D"),
            ("-w -r -C", "-w -R", "-G"),
            ("[design]", "[[workloads]]\n type = \"io-paths\"\n size = 65536\n [design]", "only IOR"),
            ("[design]", "[[tools]]\n name = \"one\"\n command = [\"x\"]\n [design]", "tools"),
        ] {
            let text = STUDY.replacen(from, to, 1);
            let problems = match read(&text) {
                Err(error) => format!("{:?}", error.invalid().unwrap()),
                Ok(_) => panic!("{to} is accepted"),
            };
            assert!(problems.contains(hint), "{to}: {problems}");
        }
    }
}
