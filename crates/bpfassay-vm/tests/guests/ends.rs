// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real guests: the report of each kind of end, on the three architectures.
//!
//! These tests boot the kernels in the variables `BPFASSAY_TEST_KERNEL_ARCH` (6.12 or newer). They
//! print that they are skipped if none is set.
#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints what it skips and measures"
)]

use std::{
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use bpfassay_protocol::{
    Arch, PROTOCOL_VERSION, frame,
    message::{GuestMessage, HostMessage, Phase},
};
use bpfassay_vm::{
    EndReason, Guest, GuestEnding, Initramfs, KernelIncident, KernelIncidentKind, Machine, Severity, VmError, VmEvent,
    file_for_initramfs,
};

use crate::common::{TestBoot, runs};

/// Creates a module with one test per architecture from an async function of the architecture.
macro_rules! on_every_architecture {
    ($($name:ident),+ $(,)?) => { $(
        mod $name {
            use super::Arch;

            #[tokio::test]
            async fn x86_64() {
                super::scenario::$name(Arch::X86_64).await;
            }

            #[tokio::test]
            async fn aarch64() {
                super::scenario::$name(Arch::Aarch64).await;
            }

            #[tokio::test]
            async fn riscv64() {
                super::scenario::$name(Arch::Riscv64).await;
            }
        }
    )+ };
}

on_every_architecture![
    a_kernel_without_root_panics,
    a_crash_is_reported_with_its_excerpt,
    an_agent_that_is_done_on_two_processors_ends_well,
    an_agent_that_never_speaks,
    an_agent_that_hangs_in_a_phase,
    garbage_on_the_port,
    a_restart_without_a_message,
    the_host_can_talk_to_the_agent,
    incidents_are_reported_while_the_guest_goes_on,
    naps_by_the_instruction_clock_are_the_same_beside_any_load,
    a_guest_is_the_same_however_its_files_come_to_qemu,
    phases_out_of_order,
];

fn frames(messages: &[GuestMessage]) -> Vec<u8> {
    messages.iter().flat_map(|message| frame::encode(message).unwrap()).collect()
}

/// The messages of an agent that becomes ready, then `more`.
fn up(more: &[GuestMessage]) -> Vec<GuestMessage> {
    let ready = GuestMessage::Ready(Box::default());
    [&[hello(), GuestMessage::Phase { phase: Phase::SetUp, run: None }, ready], more].concat()
}

fn hello() -> GuestMessage {
    GuestMessage::Hello { agent: "test".to_owned() }
}

fn phase(phase: Phase) -> GuestMessage {
    GuestMessage::Phase { phase, run: Some("run-1".to_owned()) }
}

/// Threads that compute on each CPU of this test until this is dropped.
struct Load(Arc<AtomicBool>);

impl Load {
    fn start() -> Self {
        let wanted = Arc::new(AtomicBool::new(true));
        for _ in 0..thread::available_parallelism().unwrap().get() {
            let wanted = Arc::clone(&wanted);
            thread::spawn(move || while wanted.load(Ordering::Relaxed) {});
        }
        Self(wanted)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Collects everything until the end.
async fn story(guest: &mut Guest) -> (Vec<GuestMessage>, Vec<KernelIncident>, GuestEnding) {
    let (mut messages, mut incidents) = (Vec::new(), Vec::new());
    loop {
        match guest.next_event().await {
            VmEvent::Message(message) => messages.push(message),
            VmEvent::KernelIncident(incident) => incidents.push(incident),
            VmEvent::Ended(ending) => return (messages, incidents, *ending),
        }
    }
}

mod scenario {
    use super::*;

    pub(crate) async fn a_kernel_without_root_panics(arch: Arch) {
        let Some(test) = TestBoot::new(arch).await else { return };
        let mut guest = test.boot().await;
        let (_, incidents, ending) = story(&mut guest).await;
        let EndReason::KernelDied { incident } = &ending.reason else { panic!("{ending:?}") };
        assert_eq!(incident.kind, KernelIncidentKind::Panic);
        assert!(incident.line.contains("Unable to mount root fs"), "{incident:?}");
        assert!(incident.time_us.is_some());
        assert_eq!(incidents.len(), 1, "nothing else on an ordinary console: {incidents:?}");
        assert_eq!(ending.phase, Phase::Boot);
        let log = test.log();
        assert!(log.contains("Call Trace:") || log.contains("Call trace:"), "the log holds the whole report: {log}");
        assert!(ending.console_tail.iter().any(|line| line.contains("Kernel panic")));
        assert_eq!(ending.log_incomplete, None);
        println!("{arch}: {} ms from QEMU's start to the end of the panic; {ending}", ending.lived_ms);
    }

    pub(crate) async fn a_crash_is_reported_with_its_excerpt(arch: Arch) {
        let data = frames(&up(&[phase(Phase::Workload)]));
        let Some(test) = TestBoot::with_init(arch, &data, "sc", "").await else { return };
        let mut guest = test.boot().await;
        let (messages, _, ending) = story(&mut guest).await;
        assert_eq!(messages, up(&[phase(Phase::Workload)]));
        let EndReason::KernelDied { incident } = &ending.reason else { panic!("{ending:?}") };
        assert!(incident.line.contains("sysrq triggered crash"), "{incident:?}");
        assert!(incident.details.iter().any(|line| line.contains("sysrq")), "first frames: {incident:?}");
        assert_eq!((ending.phase, ending.run.as_deref()), (Phase::Workload, Some("run-1")));
    }

    pub(crate) async fn an_agent_that_is_done_on_two_processors_ends_well(arch: Arch) {
        let Some(mut test) = TestBoot::with_init(arch, &frames(&up(&[GuestMessage::Done])), "p", "").await else {
            return;
        };
        test.machine.cpus = 2;
        test.machine.verbose = true;
        let mut guest = test.boot().await;
        let process = guest.process_id().unwrap();
        assert!(runs(process));
        let (messages, incidents, ending) = story(&mut guest).await;
        assert_eq!(messages, up(&[GuestMessage::Done]));
        assert_eq!(incidents, []);
        assert_eq!(ending.reason, EndReason::Done, "{ending:?}");
        assert!(!runs(process));
        let log = test.log();
        assert!(log.contains("Brought up 1 node, 2 CPUs"), "{log}");
        println!("{arch}: {} ms from QEMU's start to its exit", ending.lived_ms);
    }

    pub(crate) async fn an_agent_that_never_speaks(arch: Arch) {
        let Some(mut test) = TestBoot::with_init(arch, b"", "h", "").await else { return };
        test.options.deadlines.boot = Some(3);
        let mut guest = test.boot().await;
        let (messages, _, ending) = story(&mut guest).await;
        assert_eq!(messages, []);
        assert_eq!(ending.reason, EndReason::BootTimeout { seconds: 3 });
        assert!(ending.lived_ms >= 3000);
        assert!(!runs(guest.process_id().unwrap()));
    }

    pub(crate) async fn an_agent_that_hangs_in_a_phase(arch: Arch) {
        let data = frames(&up(&[phase(Phase::Workload)]));
        let Some(mut test) = TestBoot::with_init(arch, &data, "h", "").await else { return };
        test.options.deadlines.workload = Some(1);
        let mut guest = test.boot().await;
        let (_, _, ending) = story(&mut guest).await;
        assert_eq!(ending.reason, EndReason::PhaseTimeout { seconds: 1 });
        assert_eq!((ending.phase, ending.run.as_deref()), (Phase::Workload, Some("run-1")));
        assert!(ending.to_string().contains("phase workload of run run-1"), "{ending}");
    }

    pub(crate) async fn garbage_on_the_port(arch: Arch) {
        let mut data = frames(&[hello()]);
        data.extend_from_slice(b"[    1.234567] a line of a kernel\n");
        let Some(test) = TestBoot::with_init(arch, &data, "h", "").await else { return };
        let mut guest = test.boot().await;
        let (messages, _, ending) = story(&mut guest).await;
        assert_eq!(messages, [hello()], "what came before it counts");
        let EndReason::ProtocolError { message } = &ending.reason else { panic!("{ending:?}") };
        assert!(message.contains("does not use this protocol"), "{message}");
    }

    pub(crate) async fn a_restart_without_a_message(arch: Arch) {
        let Some(test) = TestBoot::with_init(arch, &frames(&[hello()]), "r", "").await else { return };
        let mut guest = test.boot().await;
        let (_, _, ending) = story(&mut guest).await;
        assert_eq!(ending.reason, EndReason::Reset, "{ending:?}");
    }

    pub(crate) async fn the_host_can_talk_to_the_agent(arch: Arch) {
        let Some(test) = TestBoot::with_init(arch, &frames(&[hello()]), "wp", "").await else { return };
        let mut guest = test.boot().await;
        assert_eq!(guest.next_event().await, VmEvent::Message(hello()));
        guest.send(&HostMessage::PowerOff).unwrap();
        let (_, _, ending) = story(&mut guest).await;
        assert_eq!(ending.reason, EndReason::PoweredOffEarly, "it read the message: {ending:?}");
    }

    /// Checks that naps are equal, for which the plugin holds back QEMU's main loop while the guest
    /// executes.
    pub(crate) async fn naps_by_the_instruction_clock_are_the_same_beside_any_load(arch: Arch) {
        let mut lines = Vec::new();
        for loaded in [true, false] {
            let data = frames(&up(&[phase(Phase::Workload)]));
            let Some(mut test) = TestBoot::with_init(arch, &data, "nnp", "").await else { return };
            test.count_instructions().await;
            test.options.deadlines.workload = Some(240);
            let load = loaded.then(Load::start);
            let (_, incidents, _) = story(&mut test.boot().await).await;
            drop(load);
            assert_eq!(incidents, []);
            let log = test.log();
            let naps: Vec<_> = log.lines().filter(|line| line.contains("naps ")).map(str::to_owned).collect();
            assert_eq!(naps.len(), 2, "{log}");
            lines.push(naps);
        }
        assert_eq!(lines[0], lines[1]);
    }

    /// The console of a guest under the instruction clock shows the times of all kernel events.
    pub(crate) async fn a_guest_is_the_same_however_its_files_come_to_qemu(arch: Arch) {
        let mut consoles = Vec::new();
        // Two boots that differ in both.
        for (way, sandbox) in [("path", true), ("open file", false)] {
            let Some(mut test) = TestBoot::with_init(arch, &frames(&up(&[GuestMessage::Done])), "p", "").await else {
                return;
            };
            test.count_instructions().await;
            test.machine.verbose = true;
            test.machine.sandbox = sandbox;
            if way == "open file"
                && let Some(Initramfs::Path(path)) = test.machine.initrd.take()
            {
                let mut file = file_for_initramfs().unwrap();
                std::io::copy(&mut File::open(&path).unwrap(), &mut file).unwrap();
                std::fs::remove_file(path).unwrap();
                test.machine.initrd = Some(Initramfs::OpenFile);
                test.options.initramfs = Some(Arc::new(file));
            }
            let mut guest = test.boot().await;
            assert_eq!(guest.unconfined().is_empty(), sandbox, "{:?}", guest.unconfined());
            let ending = guest.end().await;
            assert_eq!(ending.reason, EndReason::Done, "{way}: {ending:?}");
            consoles.push(test.log());
        }
        assert!(consoles[0].lines().count() > 100, "{}", consoles[0]);
        assert_eq!(consoles[0], consoles[1]);
    }

    pub(crate) async fn phases_out_of_order(arch: Arch) {
        // Each of these messages would restart the time limit, or have none, for a guest that does
        // nothing any more.
        let shell = GuestMessage::Phase { phase: Phase::Shell, run: None };
        for (last, part) in [
            (phase(Phase::Workload), "received phase `workload` of run `run-1`, expected phase `tear-down`"),
            (shell, "received phase `shell`, expected phase `tear-down`"),
        ] {
            let data = frames(&up(&[phase(Phase::Workload), last]));
            let Some(test) = TestBoot::with_init(arch, &data, "h", "").await else { return };
            let (messages, _, ending) = story(&mut test.boot().await).await;
            assert_eq!(messages, up(&[phase(Phase::Workload)]), "what came before it counts");
            let EndReason::ProtocolError { message } = &ending.reason else { panic!("{ending:?}") };
            assert!(message.contains(part), "{message}");
        }
    }

    pub(crate) async fn incidents_are_reported_while_the_guest_goes_on(arch: Arch) {
        // Messages of priority 2 are shown at any log level.
        let text = "<2>watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [ior:77]";
        let data = frames(&up(&[GuestMessage::Done]));
        let Some(test) = TestBoot::with_init(arch, &data, "kp", text).await else { return };
        let mut guest = test.boot().await;
        let (_, incidents, ending) = story(&mut guest).await;
        assert_eq!(incidents.len(), 1, "{incidents:?}");
        assert_eq!(incidents[0].kind, KernelIncidentKind::SoftLockup);
        assert_eq!(incidents[0].kind.severity(), Severity::SpoilsRun);
        assert_eq!(ending.reason, EndReason::Done);
        assert_eq!(ending.incidents, incidents);
    }
}

#[tokio::test]
async fn the_last_message_of_an_agent_is_acknowledged() {
    // After `Done` or `Failed`, this init waits for the host before it powers off.
    let failed = GuestMessage::Failed { message: "no module nfsd".to_owned() };
    for (last, reason) in [
        (GuestMessage::Done, EndReason::Done),
        (failed, EndReason::AgentFailed { message: "no module nfsd".to_owned() }),
    ] {
        let Some(test) = TestBoot::with_init(Arch::X86_64, &frames(&up(&[last])), "wp", "").await else { return };
        assert_eq!(test.boot().await.end().await.reason, reason);
    }
}

#[tokio::test]
async fn another_protocol_version_is_named() {
    let mut data = frames(&[hello()]);
    data[3] = 99;
    let Some(test) = TestBoot::with_init(Arch::X86_64, &data, "h", "").await else { return };
    let ending = test.boot().await.end().await;
    assert_eq!(ending.reason, EndReason::ProtocolVersion { theirs: 99, ours: PROTOCOL_VERSION });
}

#[tokio::test]
async fn powering_off_before_the_work_is_done_is_an_early_end() {
    let Some(test) = TestBoot::with_init(Arch::X86_64, &frames(&up(&[phase(Phase::Attach)])), "p", "").await else {
        return;
    };
    let ending = test.boot().await.end().await;
    assert_eq!((ending.reason, ending.phase), (EndReason::PoweredOffEarly, Phase::Attach));
}

#[tokio::test]
async fn an_agent_that_fails_and_one_that_does_not_power_off() {
    let failed = GuestMessage::Failed { message: "mount: no such device".to_owned() };
    let data = frames(&[hello(), failed]);
    let Some(mut test) = TestBoot::with_init(Arch::X86_64, &data, "p", "").await else { return };
    let ending = test.boot().await.end().await;
    assert_eq!(ending.reason, EndReason::AgentFailed { message: "mount: no such device".to_owned() });

    test = TestBoot::with_init(Arch::X86_64, &frames(&up(&[GuestMessage::Done])), "h", "").await.unwrap();
    test.options.deadlines.power_off = Some(1);
    let ending = test.boot().await.end().await;
    assert_eq!(ending.reason, EndReason::ShutdownTimeout { seconds: 1 });
}

#[tokio::test]
async fn a_boot_ends_whatever_the_guest_does_although_its_events_are_not_received() {
    let data = frames(&up(&[phase(Phase::Workload)]));
    let Some(mut test) = TestBoot::with_init(Arch::X86_64, &data, "h", "").await else { return };
    test.options.deadlines.workload = None;
    test.options.deadlines.whole_boot = Some(8);
    let mut guest = test.boot().await;
    let process = guest.process_id().unwrap();
    let gone = async {
        while runs(process) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(18), gone).await.expect("QEMU runs on");
    let ending = guest.end().await;
    assert_eq!(ending.reason, EndReason::TooLong { seconds: 8 });
    assert!((8000..18_000).contains(&ending.lived_ms), "{ending:?}");
}

#[tokio::test]
async fn an_open_initramfs_that_is_not_given_is_an_error() {
    let Some(mut test) = TestBoot::new(Arch::X86_64).await else { return };
    test.machine.initrd = Some(Initramfs::OpenFile);
    let error = Guest::boot(test.qemu(), &test.machine, test.options.clone()).await.unwrap_err();
    assert!(matches!(error, VmError::NoInitramfs), "{error}");
}

#[tokio::test]
async fn stopping_is_an_end_of_its_own_with_and_without_grace() {
    let Some(test) = TestBoot::with_init(Arch::X86_64, &frames(&[hello()]), "h", "").await else { return };
    for grace in [Duration::ZERO, Duration::from_millis(300)] {
        let mut guest = test.boot().await;
        assert_eq!(guest.next_event().await, VmEvent::Message(hello()));
        let process = guest.process_id().unwrap();
        assert_eq!(guest.shut_down(grace).await.reason, EndReason::Stopped);
        assert!(!runs(process));
    }
    // An agent that powers off does not use up the grace.
    let test = TestBoot::with_init(Arch::X86_64, &frames(&[hello()]), "wp", "").await.unwrap();
    let mut guest = test.boot().await;
    assert_eq!(guest.next_event().await, VmEvent::Message(hello()));
    let ending = tokio::time::timeout(Duration::from_secs(30), guest.shut_down(Duration::from_secs(3600))).await;
    assert_eq!(ending.unwrap().reason, EndReason::Stopped);
}

#[tokio::test]
async fn a_killed_qemu_is_distinguished_from_a_guest_that_ended() {
    let Some(test) = TestBoot::with_init(Arch::X86_64, &frames(&[hello()]), "h", "").await else { return };
    let mut guest = test.boot().await;
    assert_eq!(guest.next_event().await, VmEvent::Message(hello()));
    let process = rustix::process::Pid::from_raw(guest.process_id().unwrap() as i32).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    let EndReason::QemuExited { status } = guest.end().await.reason else { panic!("another end") };
    assert!(status.contains("signal: 9"), "{status}");
}

#[tokio::test]
async fn dropping_a_guest_kills_qemu() {
    let Some(test) = TestBoot::with_init(Arch::X86_64, &frames(&[hello()]), "h", "").await else { return };
    let mut guest = test.boot().await;
    assert_eq!(guest.next_event().await, VmEvent::Message(hello()));
    let process = guest.process_id().unwrap();
    drop(guest);
    tokio::time::timeout(Duration::from_secs(10), async {
        while runs(process) {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("QEMU outlived its guest");
}

#[tokio::test]
async fn a_console_above_the_limit_keeps_beginning_and_end() {
    let Some(mut test) = TestBoot::new(Arch::X86_64).await else { return };
    test.machine.verbose = true;
    test.options.log_limit = 1000;
    let ending = test.boot().await.end().await;
    let log = test.log();
    assert!(log.contains("Linux version"), "{log}");
    assert!(log.contains("Kernel panic"), "{log}");
    assert!(ending.log_incomplete.is_some());
}

#[tokio::test]
async fn what_qemu_refuses_is_an_error_with_its_message() {
    let Some(test) = TestBoot::new(Arch::X86_64).await else { return };
    let machine = Machine { kernel: test.directory.path().join("not-a-kernel"), ..test.machine.clone() };
    let error = Guest::boot(test.qemu(), &machine, test.options.clone()).await.unwrap_err();
    assert!(matches!(error, VmError::Input { what: "kernel", .. }), "{error}");
    std::fs::write(&machine.kernel, "text").unwrap();
    let error = Guest::boot(test.qemu(), &machine, test.options.clone()).await.unwrap_err();
    let VmError::Refused { stderr, .. } = &error else { panic!("{error}") };
    assert!(!stderr.is_empty());
}
