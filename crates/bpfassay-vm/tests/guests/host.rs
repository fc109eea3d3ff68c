// SPDX-License-Identifier: MIT OR Apache-2.0
//! Expectations of the host's user: the choice of the accelerator, no QEMU left behind, and a
//! restored terminal.
//!
//! Some of these tests start this test program again, because they check a whole process.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints what it skips and measures"
)]

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use bpfassay_protocol::{Arch, frame, message::GuestMessage};
use bpfassay_vm::{
    Accelerator, AcceleratorWish, EndReason, GuestClock, VmError, VmEvent,
    acceleration::{AcceleratorKey, choose, is_native},
};
use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, tcgetattr},
};

use crate::common::{TestBoot, runs};

/// Set in the program when it is started again.
const INNER: &str = "BPFASSAY_TEST_INNER";

/// The command that runs the test `name` of this program again.
fn again(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([&format!("host::{name}"), "--exact", "--nocapture"]).env(INNER, "1").stdout(Stdio::piped());
    command
}

fn hello() -> Vec<u8> {
    frame::encode(&GuestMessage::Hello { agent: "test".to_owned() }).unwrap()
}

#[tokio::test]
async fn the_accelerator_is_chosen_by_booting_with_it() {
    let native = *Arch::ALL.iter().find(|&&arch| is_native(arch)).unwrap();
    let Some(test) = TestBoot::new(native).await else { return };
    let log = test.directory.path().join("trial.log");
    // Three times the duration of a boot under working KVM. If KVM hangs, the test waits twice, on
    // a busy CPU.
    let patience = Duration::from_secs(6);
    let choice = choose(test.qemu(), &test.machine, AcceleratorWish::Auto, &log, patience).await.unwrap();
    println!("{choice:?}");
    assert!(!choice.reason.is_empty());
    let forced = choose(test.qemu(), &test.machine, AcceleratorWish::Kvm, &log, patience).await;
    match choice.accelerator {
        Accelerator::Kvm => {
            assert_eq!(forced.unwrap().accelerator, Accelerator::Kvm);
            let text = std::fs::read_to_string(&log).unwrap();
            assert!(text.contains("Kernel panic"), "the trial's kernel reached its own end: {text}");
        }
        Accelerator::Tcg => assert!(matches!(forced, Err(VmError::NoKvm { .. })), "{forced:?}"),
    }
    let key = AcceleratorKey::of_host(test.qemu());
    assert_eq!(key, AcceleratorKey::of_host(test.qemu()));
    assert!(key.qemu.starts_with(&test.qemu().version.to_string()[..2]), "{key:?}");
}

#[tokio::test]
async fn foreign_guests_are_not_tried_under_kvm() {
    let foreign = *Arch::ALL.iter().find(|&&arch| !is_native(arch)).unwrap();
    let Some(test) = TestBoot::new(foreign).await else { return };
    let log = test.directory.path().join("trial.log");
    let choice = choose(test.qemu(), &test.machine, AcceleratorWish::Auto, &log, Duration::from_secs(1)).await.unwrap();
    assert_eq!(choice.accelerator, Accelerator::Tcg);
    assert!(choice.reason.contains(foreign.name()), "{choice:?}");
    assert!(!log.exists(), "nothing was booted");
}

#[tokio::test]
async fn qemu_dies_with_the_program_that_started_it() {
    let Some(test) = TestBoot::with_init(Arch::X86_64, &hello(), "h", "").await else { return };
    if env::var_os(INNER).is_some() {
        let mut guest = test.boot().await;
        assert!(matches!(guest.next_event().await, VmEvent::Message(_)));
        println!("qemu is {}", guest.process_id().unwrap());
        std::future::pending::<()>().await;
    }
    let mut inner = again("qemu_dies_with_the_program_that_started_it").spawn().unwrap();
    let mut lines = BufReader::new(inner.stdout.take().unwrap()).lines();
    // On a single CPU, the name of the test precedes the text.
    let qemu = lines.find_map(|line| line.unwrap().split_once("qemu is ")?.1.parse::<u32>().ok()).unwrap();
    assert!(runs(qemu));
    // A change of user also clears the death signal.
    let user = status(qemu, "Uid");
    assert_eq!(user.starts_with("20"), test.qemu().confinement.own_user, "{user}");
    inner.kill().unwrap();
    inner.wait().unwrap();
    let start = Instant::now();
    while runs(qemu) {
        assert!(start.elapsed() < Duration::from_secs(10), "QEMU {qemu} outlived the program that started it");
        std::thread::yield_now();
    }
}

/// A field of /proc/PID/status.
fn status(process: u32, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn qemu_is_kept_away_from_the_host() {
    let Some(mut test) = TestBoot::with_init(Arch::X86_64, &hello(), "h", "").await else { return };
    // No other user can reach or read this kernel.
    let kernel = test.directory.path().join("kernel");
    std::fs::copy(&test.machine.kernel, &kernel).unwrap();
    std::fs::set_permissions(&kernel, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    test.machine.kernel = kernel;
    for clock in [GuestClock::Wall, GuestClock::Instructions] {
        test.machine.clock = clock;
        let mut guest = test.boot().await;
        assert!(matches!(guest.next_event().await, VmEvent::Message(_)));
        let qemu = guest.process_id().unwrap();
        assert_eq!(guest.unconfined(), test.qemu().confinement.lacking);
        assert_eq!(status(qemu, "NoNewPrivs"), "1");
        assert_eq!(status(qemu, "Seccomp"), if test.qemu().confinement.sandbox { "2" } else { "0" });
        if test.qemu().confinement.own_user {
            let user = (0x7b00_0000 + qemu).to_string();
            for field in ["Uid", "Gid"] {
                assert_eq!(status(qemu, field), [user.as_str(); 4].join(" "));
            }
            assert_eq!(status(qemu, "Groups"), "");
            assert_eq!(status(qemu, "CapEff"), "0000000000000000");
        } else {
            println!("QEMU has no user of its own here: {:?}", guest.unconfined());
        }
        let limits = std::fs::read_to_string(format!("/proc/{qemu}/limits")).unwrap();
        let limit = |name: &str| {
            let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(limit("Max core file size"), "0 0");
        assert_eq!(limit("Max open files"), "1024 1024");
        assert_eq!(limit("Max file size"), format!("{0} {0}", 4u64 << 30));
        assert_eq!(std::fs::read_link(format!("/proc/{qemu}/cwd")).unwrap(), std::path::Path::new("/"));
        let environment = std::fs::read(format!("/proc/{qemu}/environ")).unwrap();
        assert!(!String::from_utf8_lossy(&environment).contains("CARGO"), "the caller's variables are not QEMU's");
        guest.kill().await;
        assert!(!runs(qemu));
    }
}

#[tokio::test]
async fn a_terminal_shows_the_console_takes_keys_and_is_as_before_afterwards() {
    // The guest writes to its console, waits for a typed line, writes again, and waits for the
    // host's signal to continue.
    let text = "<2>a line of the guest\n";
    let Some(mut test) = TestBoot::with_init(Arch::X86_64, &hello(), "ktkwp", text).await else { return };
    if env::var_os(INNER).is_some() {
        test.options.interactive = true;
        let guest = test.boot().await;
        let ending = guest.interact(|_| {}).await.unwrap();
        let canonical = tcgetattr(std::io::stdin()).unwrap().local_modes.contains(LocalModes::ICANON);
        assert_eq!(ending.reason, EndReason::Stopped);
        println!("terminal restored: {canonical}");
        return;
    }
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = std::fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    assert!(tcgetattr(&theirs).unwrap().local_modes.contains(LocalModes::ICANON));
    let inner = again("a_terminal_shows_the_console_takes_keys_and_is_as_before_afterwards").stdin(theirs).spawn();
    let mut inner = inner.unwrap();
    let mut keyboard = std::fs::File::from(ours);
    let mut output = inner.stdout.take().unwrap();
    let mut shown = String::new();
    let mut times = |count: usize, what: &str| {
        let mut buffer = [0; 4096];
        while shown.matches(what).count() < count {
            let read = output.read(&mut buffer).unwrap();
            assert!(read > 0, "the program ended; it showed {shown}");
            shown.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    };
    times(1, "a line of the guest");
    keyboard.write_all(b"a line\r").unwrap();
    times(2, "a line of the guest");
    keyboard.write_all(b"\x1d").unwrap();
    times(1, "terminal restored: true");
    assert!(inner.wait().unwrap().success());
}
