// SPDX-License-Identifier: MIT OR Apache-2.0
use bpfassay_protocol::{
    Arch,
    job::{Nfs, NfsVersion, Task},
    message::{FixedThreads, MountFacts},
};

use super::*;

const NFS: FileSystem =
    FileSystem::Nfs(Nfs { version: NfsVersion::V42, localio: Some(false), threads: 8, size_mib: 64, scheduling: None });

fn asked(file_system: FileSystem, scheduling: Scheduling, parameters: &[&str]) -> AskedGuest {
    let mut machine = Machine::new(Arch::Aarch64, "");
    machine.kernel_parameters = parameters.iter().map(|&parameter| parameter.to_owned()).collect();
    let job = Job { scheduling, ..Job::new(file_system, Task::Serve) };
    AskedGuest::new("6.12.107+deb13-arm64", &machine, &job)
}

/// Facts of a guest that is as it was requested, with the figures of a real guest.
fn facts(asked: &AskedGuest) -> GuestFacts {
    let mount = |file_system: &str, options: &str| MountFacts {
        file_system: file_system.to_owned(),
        options: options.to_owned(),
        ..MountFacts::default()
    };
    let line = asked.machine.kernel_command_line();
    GuestFacts {
        kernel_release: asked.release.clone(),
        machine: "aarch64".to_owned(),
        cpus: asked.machine.cpus,
        memory_kib: 968 << 10,
        sysctls: sysctls(&line).map(|(name, value)| (name.to_owned(), Some(value.to_owned()))).collect(),
        security_modules: security_modules(&line).map(|names| format!("lockdown,capability,{names},ima")),
        kernel_command_line: line,
        fixed_threads: (asked.scheduling == Scheduling::Fixed).then(FixedThreads::default),
        mount: match asked.file_system {
            FileSystem::Nfs(_) => mount("nfs4", "rw,vers=4.2,rsize=1048576"),
            _ => mount("tmpfs", "rw,size=65536k"),
        },
        ..GuestFacts::default()
    }
}

#[test]
fn a_guest_that_is_as_it_was_asked_for_does_not_differ() {
    let tmpfs = FileSystem::Tmpfs { size_mib: 64 };
    for (file_system, scheduling) in
        [(NFS, Scheduling::Fixed), (NFS, Scheduling::Kernel), (tmpfs.clone(), Scheduling::Kernel)]
    {
        let parameters = ["sysctl.vm.swappiness=1", "lsm=landlock,bpf"];
        let asked = asked(file_system, scheduling, &parameters);
        assert_eq!(asked.difference(&facts(&asked)), None);
    }
    // The agent schedules nothing on a guest without a server.
    let asked = asked(tmpfs, Scheduling::Fixed, &[]);
    assert_eq!(asked.difference(&GuestFacts { fixed_threads: None, ..facts(&asked) }), None);
}

type Change<'a> = &'a dyn Fn(&mut GuestFacts);

#[test]
fn whatever_differs_is_named_with_both_values() {
    let asked = asked(NFS, Scheduling::Fixed, &["sysctl.vm.swappiness=1", "lsm=landlock,bpf", "x=last"]);
    let line = asked.machine.kernel_command_line();
    let cut = line.strip_suffix(" x=last").unwrap();
    let changes: [(Change<'_>, &str); 14] = [
        (
            &|facts| facts.kernel_release = "6.1.0-50-arm64".to_owned(),
            "kernel release: 6.12.107+deb13-arm64 was asked for, it has 6.1.0-50-arm64",
        ),
        (&|facts| facts.machine = "x86_64".to_owned(), "architecture: aarch64 was asked for, it has x86_64"),
        (
            &|facts| facts.kernel_command_line = cut.to_owned(),
            &format!("kernel command line: {line} was asked for, it has {cut}"),
        ),
        (&|facts| facts.cpus = 2, "CPUs: 1 was asked for, it has 2"),
        (&|facts| facts.memory_kib = 4 << 20, "memory in KiB: 1048576 was asked for, it has 4194304"),
        (&|facts| facts.memory_kib = 500 << 10, "memory in KiB: 1048576 was asked for, it has 512000"),
        (
            &|facts| drop(facts.sysctls.insert("vm.swappiness".to_owned(), Some("60".to_owned()))),
            "sysctl vm.swappiness: 1 was asked for, it has 60",
        ),
        (
            &|facts| drop(facts.sysctls.insert("vm.swappiness".to_owned(), None)),
            "sysctl vm.swappiness: 1 was asked for, it has no such setting",
        ),
        (&|facts| facts.sysctls.clear(), "sysctl vm.swappiness: 1 was asked for, it has no such setting"),
        (
            &|facts| facts.security_modules = Some("capability,landlock".to_owned()),
            "Linux security modules: landlock,bpf was asked for, it has capability,landlock",
        ),
        (
            &|facts| facts.security_modules = Some("capability,bpf,landlock".to_owned()),
            "Linux security modules: landlock,bpf was asked for, it has capability,bpf,landlock",
        ),
        (&|facts| facts.fixed_threads = None, "scheduling: fixed was asked for, it has kernel"),
        (
            &|facts| facts.mount.options = "rw,vers=4.1".to_owned(),
            "file system: NFS 4.2 was asked for, it has nfs4 (rw,vers=4.1)",
        ),
        (&|facts| facts.localio = Some(true), "LOCALIO: not in use was asked for, it has in use"),
    ];
    for (change, sentence) in changes {
        let mut facts = facts(&asked);
        change(&mut facts);
        let expected = format!("the guest is not as it was asked for: {sentence}");
        assert_eq!(asked.difference(&facts), Some(expected));
    }
}

#[test]
fn every_difference_is_named_and_the_node() {
    let mut asked = asked(NFS, Scheduling::Kernel, &[]);
    asked.node = Some(Node { number: 2, count: 2 });
    let facts = GuestFacts { cpus: 3, machine: "riscv64".to_owned(), ..facts(&asked) };
    let difference = asked.difference(&facts).unwrap();
    assert!(difference.starts_with("node 2: the guest is not as it was asked for: architecture: "), "{difference}");
    assert!(difference.contains("it has riscv64; CPUs: 1 was asked for, it has 3"), "{difference}");
}

#[test]
fn a_kernel_may_have_parameters_of_its_own_that_override_nothing() {
    assert!(holds("a=1 b", "a=1 b"));
    assert!(holds("a=1 b", "a=2 root=/dev/vda a=1 b c=3\n"));
    for found in ["", "a=1", "a=1 c b", "a=12 b", "b a=1", "a=1 b a=2", "a=1 b b=3"] {
        assert!(!holds("a=1 b", found), "{found}");
    }
    assert!(!holds("x-y=1", "x-y=1 x_y=2"));
}

#[test]
fn parameters_that_limit_a_machine_are_heard() {
    let limited = asked(NFS, Scheduling::Kernel, &["maxcpus=1", "mem=256M"]);
    let mut wide = limited.clone();
    wide.machine.cpus = 4;
    let facts = GuestFacts { cpus: 1, memory_kib: 200 << 10, ..facts(&wide) };
    assert_eq!(wide.difference(&facts), None);
    wide.machine.kernel_parameters.clear();
    let facts = GuestFacts { kernel_command_line: wide.machine.kernel_command_line(), ..facts };
    assert!(wide.difference(&facts).unwrap().contains("CPUs: 4 was asked for, it has 1; memory in KiB: "));
}

#[test]
fn values_of_settings_are_compared_as_the_kernel_reads_them() {
    for (asked, found) in [("1", "1"), ("0x10", "16"), ("010", "8"), ("-1", "-1"), ("0", "0"), ("x", "x")] {
        assert!(is_same_value(asked, found), "{asked} {found}");
    }
    for (asked, found) in [("1", "2"), ("1", ""), ("x", "y"), ("1", "1\t2"), ("9z", "9")] {
        assert!(!is_same_value(asked, found), "{asked} {found}");
    }
}

#[test]
fn long_texts_of_guests_are_bounded() {
    let asked = asked(NFS, Scheduling::Kernel, &[]);
    let long = "x".repeat(1 << 20);
    let facts = GuestFacts { kernel_release: long.clone(), kernel_command_line: long, ..facts(&asked) };
    assert!(asked.difference(&facts).unwrap().len() < 10_000);
}
