// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exact QEMU command lines. A difference here is a difference of the measured machine. Check
//! it, then renew the files with `BPFASSAY_RENEW=1 cargo test -p bpfassay-vm --test
//! without_guests`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and prints what it skips and measures")]

use std::{env, ffi::OsString, fs, path::Path};

use bpfassay_protocol::Arch;
use bpfassay_vm::{Accelerator, Aslr, GuestClock, Initramfs, Machine, qemu::program_name};

fn check(name: &str, machine: &Machine) {
    let program = program_name(machine.arch);
    // One argument per line, with an option and its value on one line.
    let shown = machine.shell_command(&[OsString::from(&program)]).replace(" -", "\n  -") + "\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command-lines").join(name);
    if env::var_os("BPFASSAY_RENEW").is_some() {
        fs::write(&file, &shown).unwrap();
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(shown, expected, "{} differs", file.display());
}

fn machine(arch: Arch) -> Machine {
    let initrd = Some(Initramfs::Path("/cache/guest.cpio".into()));
    Machine { initrd, ..Machine::new(arch, "/cache/kernel") }
}

#[test]
fn every_architecture_under_tcg() {
    for &arch in Arch::ALL {
        check(&format!("{arch}-tcg"), &machine(arch));
    }
}

#[test]
fn every_architecture_under_kvm() {
    for &arch in Arch::ALL {
        check(&format!("{arch}-kvm"), &Machine { accelerator: Accelerator::Kvm, ..machine(arch) });
    }
}

#[test]
fn every_architecture_under_the_instruction_clock() {
    for &arch in Arch::ALL {
        check(&format!("{arch}-instructions"), &Machine { clock: GuestClock::Instructions, seed: 7, ..machine(arch) });
    }
}

#[test]
fn every_option_of_a_study() {
    let options = Machine {
        cpus: 4,
        memory_mib: 2048,
        aslr: Aslr::Random,
        verbose: true,
        kernel_parameters: vec!["mitigations=off".to_owned(), "nfs.localio_enabled=0".to_owned()],
        kernel: "/cache/it's here/kernel".into(),
        ..machine(Arch::X86_64)
    };
    check("x86_64-options", &options);
    check("aarch64-processes", &Machine { aslr: Aslr::Processes, ..machine(Arch::Aarch64) });
}

#[test]
fn arguments_do_not_depend_on_the_paths_of_kernel_and_initramfs() {
    let shown = machine(Arch::X86_64);
    let args = |machine: &Machine| {
        machine.arguments().into_iter().map(|arg| arg.into_string().unwrap()).collect::<Vec<_>>().join(" ")
    };
    let given = args(&shown);
    assert!(given.contains(" -kernel /dev/fd/904 -initrd /dev/fd/903 -append "), "{given}");
    let elsewhere = Machine { kernel: "/other".into(), initrd: Some(Initramfs::OpenFile), ..shown.clone() };
    assert_eq!(args(&elsewhere), given);
    let for_people = elsewhere.shell_command(&["qemu".into()]);
    assert!(for_people.contains(" -kernel /other -initrd /dev/fd/903 "), "{for_people}");
    assert!(!args(&Machine { initrd: None, ..shown.clone() }).contains("-initrd"));
    let sandbox = "-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
    assert!(given.starts_with(sandbox), "{given}");
    assert_eq!(args(&Machine { sandbox: false, ..shown }), given.replacen(sandbox, "", 1).trim_start());
}

#[test]
fn a_machine_is_read_as_it_was_written() {
    let machine = machine(Arch::Riscv64);
    let text = serde_json::to_string(&machine).unwrap();
    assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine);
}
