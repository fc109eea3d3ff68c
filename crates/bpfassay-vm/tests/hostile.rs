// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests that write as much as they can. Each ends in time, with a classified reason, and takes
//! little of the host's memory.
//!
//! This program is started again in place of QEMU. It has QEMU's descriptors, and is faster than
//! any guest. It replies on the monitor, but never quits on request.
#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints what it measures"
)]

use std::{
    env,
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::{
        fd::{FromRawFd, RawFd},
        unix::fs::{MetadataExt, PermissionsExt},
        unix::net::UnixStream,
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use bpfassay_protocol::{
    Arch,
    frame::{self, MAX_PAYLOAD},
    message::{GuestMessage, Phase, RunOutcome},
};
use bpfassay_vm::{
    BootOptions, Confinement, EndReason, Guest, GuestClock, GuestEnding, Machine, Qemu, device::descriptor,
};

/// Selects what the program writes when it is started again.
const MODE: &str = "BPFASSAY_TEST_HOSTILE";

/// Time limit of the guests, in seconds.
const SECONDS: u64 = 3;
/// Largest CPU time of this process for a guest. Elapsed time depends on other load of the machine.
const CPU_TIME: Duration = Duration::from_secs(SECONDS + 10);
/// Largest amount of the host's memory for a guest, in bytes.
const MEMORY: u64 = 256 << 20;

fn frame(message: &GuestMessage) -> Vec<u8> {
    frame::encode(message).unwrap()
}

/// A frame of the largest size, with as many `unit`s as fit.
fn largest(before: &str, unit: &str, after: &str) -> Vec<u8> {
    let count = (MAX_PAYLOAD - before.len() - after.len()) / unit.len();
    let payload = format!("{before}{}{after}", unit.repeat(count));
    assert!(payload.len() <= MAX_PAYLOAD);
    let mut frame = frame(&GuestMessage::Done)[..4].to_vec();
    frame.extend((payload.len() as u32).to_le_bytes());
    frame.extend(payload.as_bytes());
    frame
}

/// Replaces QEMU. It is not a test.
#[test]
#[ignore = "stands in for QEMU"]
fn stand_in() {
    let Ok(mode) = env::var(MODE) else { return };
    // SAFETY: QEMU inherits these descriptors, and nothing else here owns them.
    let inherited = |number: RawFd| unsafe { File::from_raw_fd(number) };
    // SAFETY: as above.
    let mut monitor = unsafe { UnixStream::from_raw_fd(descriptor::MONITOR) };
    let (mut agent, mut console) = (inherited(descriptor::AGENT), inherited(descriptor::CONSOLE));
    let version = r#"{"qemu":{"micro":0,"minor":2,"major":7},"package":""}"#;
    writeln!(monitor, r#"{{"QMP":{{"version":{version},"capabilities":[]}}}}"#).unwrap();
    let mut lines = BufReader::new(monitor.try_clone().unwrap()).lines();
    let mut answer = move || {
        let Some(Ok(line)) = lines.next() else { return false };
        let command: serde_json::Value = serde_json::from_str(&line).unwrap();
        let mut answer = serde_json::json!({ "return": {} });
        if let Some(id) = command.get("id") {
            answer["id"] = id.clone();
        }
        writeln!(monitor, "{answer}").is_ok()
    };
    assert!(answer());
    thread::spawn(move || while answer() {});

    let hello = frame(&GuestMessage::Hello { agent: "hostile".to_owned() });
    let set_up = frame(&GuestMessage::Phase { phase: Phase::SetUp, run: None });
    let ready = frame(&GuestMessage::Ready(Box::default()));
    let up = [hello, set_up, ready].concat();
    let log = |length: usize| frame(&GuestMessage::Log { text: "x".repeat(length) });
    let for_ever = |to: &mut File, bytes: &[u8]| while to.write_all(bytes).is_ok() {};
    match mode.as_str() {
        "console lines" => for_ever(&mut console, "[    1.000000] a line\n".repeat(4096).as_bytes()),
        "one console line" => for_ever(&mut console, &[b'x'; 64 << 10]),
        "both" => {
            thread::spawn(move || for_ever(&mut console, &[b'\n'; 64 << 10]));
            agent.write_all(&up).unwrap();
            for_ever(&mut agent, &log(1000).repeat(64));
        }
        "small messages" => {
            agent.write_all(&up).unwrap();
            for_ever(&mut agent, &log(0).repeat(1000));
        }
        "large messages" => {
            agent.write_all(&up).unwrap();
            for_ever(&mut agent, &log(MAX_PAYLOAD - 100));
        }
        "many values" => {
            agent.write_all(&up).unwrap();
            for_ever(&mut agent, &largest(r#"{"type":"log","text":"","x":["#, "0,", "0]}"));
        }
        "many strings" => {
            agent.write_all(&up).unwrap();
            for_ever(&mut agent, &largest(r#"{"type":"unsound","run":"","differences":["#, r#""\n","#, r#"""]}"#));
        }
        "many runs" => {
            agent.write_all(&up).unwrap();
            for number in 0u64.. {
                let outcome = Box::new(RunOutcome::Failed { message: String::new() });
                if agent.write_all(&frame(&GuestMessage::RunEnded { run: number.to_string(), outcome })).is_err() {
                    break;
                }
            }
        }
        "half a message" => {
            let _ = agent.write_all(&log(MAX_PAYLOAD - 100)[..1000]);
        }
        _ => for_ever(&mut agent, &[0; 64 << 10]),
    }
    loop {
        thread::park();
    }
}

/// A QEMU that is this program.
fn stand_in_for(mode: &str, directory: &Path) -> Qemu {
    let program = directory.join("qemu");
    let this = env::current_exe().unwrap();
    let text = format!("#!/bin/sh\n{MODE}='{mode}' exec '{}' --exact stand_in --ignored --nocapture\n", this.display());
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    // Other users may have no access to this program.
    let confinement = Confinement { sandbox: false, own_user: false, lacking: Vec::new() };
    let version = "7.2.0".parse().unwrap();
    Qemu { arch: Arch::X86_64, program, own_root: None, version, version_text: "7.2.0".to_owned(), confinement }
}

/// A field of this process's /proc/self/status, in bytes.
fn own(field: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// CPU time of all threads of this process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Bytes of the files in memory that this process has open.
fn files_in_memory() -> u64 {
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten().filter(|entry| {
        fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().starts_with("/memfd:"))
    });
    // Two descriptors of one file count once.
    let sizes: std::collections::BTreeMap<_, _> = open
        .filter_map(|entry| fs::metadata(entry.path()).ok())
        .map(|found| (found.ino(), found.blocks() * 512))
        .collect();
    sizes.values().sum()
}

/// The peak size of files in memory until it is read.
struct Meter {
    wanted: Arc<AtomicBool>,
    thread: thread::JoinHandle<u64>,
}

impl Meter {
    fn start() -> Self {
        let wanted = Arc::new(AtomicBool::new(true));
        let still = Arc::clone(&wanted);
        let thread = thread::spawn(move || {
            let mut most = 0;
            while still.load(Ordering::Relaxed) {
                most = most.max(files_in_memory());
                thread::sleep(Duration::from_millis(1));
            }
            most
        });
        Self { wanted, thread }
    }

    fn most(self) -> u64 {
        self.wanted.store(false, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Boots a guest that does `mode`. Its owner takes events, or none before the end.
async fn boot(mode: &str, clock: GuestClock, takes_events: bool) -> GuestEnding {
    let directory = tempfile::tempdir().unwrap();
    let qemu = stand_in_for(mode, directory.path());
    let kernel = directory.path().join("kernel");
    fs::write(&kernel, "").unwrap();
    let machine = Machine { clock, ..Machine::new(Arch::X86_64, kernel) };
    let mut options = BootOptions::new(directory.path().join("log"));
    options.deadlines.boot = Some(SECONDS);
    options.deadlines.set_up = Some(SECONDS);
    options.deadlines.tear_down = Some(SECONDS);
    options.deadlines.whole_boot = Some(SECONDS);
    // Resets the peak of this process's memory.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = own("VmRSS:");
    let meter = Meter::start();
    let since = cpu_time();
    let mut guest = Guest::boot(&qemu, &machine, options).await.unwrap();
    if !takes_events {
        let process = guest.process_id().unwrap();
        while Path::new("/proc").join(process.to_string()).exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let ending = guest.end().await;
    let used = cpu_time().saturating_sub(since);
    let (files, own) = (meter.most(), own("VmHWM:").saturating_sub(before));
    println!(
        "{mode}, clock {clock}, events taken: {takes_events}: {} ms, CPU time {used:?}, {} MiB of files in memory, {} MiB of its own: {ending}",
        ending.lived_ms,
        files >> 20,
        own >> 20
    );
    assert!(used < CPU_TIME, "{used:?}: {ending:?}");
    assert!(files + own < MEMORY, "{files} bytes in files and {own} bytes");
    let log = fs::metadata(directory.path().join("log")).unwrap().len();
    assert!(log < 5 << 20, "{log}");
    assert!(ending.console_tail.iter().all(|line| line.len() <= 512));
    ending
}

/// This is one test, because it measures the memory of the whole process.
#[test]
fn every_flood_ends_in_time_with_a_classified_reason_and_in_little_memory() {
    use EndReason::{BootTimeout, Flood, PhaseTimeout, ProtocolError, TooLong};
    // A new runtime for each guest, because its end waits for the guest's tasks.
    let boot =
        |mode, clock, takes_events| tokio::runtime::Runtime::new().unwrap().block_on(boot(mode, clock, takes_events));
    for mode in ["small messages", "large messages", "many values"] {
        let ending = boot(mode, GuestClock::Instructions, false);
        let Flood { message } = &ending.reason else { panic!("{mode}: {ending:?}") };
        assert_eq!(message, "more than 24 MiB were left to be read on the agent's port");
    }
    // It depends on the host whether these are read fast enough.
    for mode in ["console lines", "both", "small messages", "large messages", "many values", "many runs"] {
        let ending = boot(mode, GuestClock::Instructions, true);
        assert!(
            matches!(ending.reason, Flood { .. } | PhaseTimeout { .. } | BootTimeout { .. } | TooLong { .. }),
            "{ending:?}"
        );
    }
    for clock in [GuestClock::Wall, GuestClock::Instructions] {
        let half = boot("half a message", clock, true);
        assert!(matches!(half.reason, BootTimeout { .. } | TooLong { .. }), "{half:?}");
        let garbage = boot("garbage", clock, true);
        assert!(matches!(garbage.reason, ProtocolError { .. } | Flood { .. }), "{garbage:?}");
        let strings = boot("many strings", clock, true);
        assert!(matches!(strings.reason, ProtocolError { .. } | Flood { .. }), "{strings:?}");
        let line = boot("one console line", clock, true);
        assert!(matches!(line.reason, BootTimeout { .. } | TooLong { .. } | Flood { .. }), "{line:?}");
    }
    // If QEMU waits until the host reads, the guest is ended by its time limit, or by the limit of
    // the agent's log.
    for (mode, takes_events) in [("small messages", true), ("many values", true), ("both", false)] {
        let ending = boot(mode, GuestClock::Wall, takes_events);
        assert!(matches!(ending.reason, Flood { .. } | PhaseTimeout { .. } | TooLong { .. }), "{mode}: {ending:?}");
    }
    for takes_events in [false, true] {
        let ending = boot("large messages", GuestClock::Wall, takes_events);
        let Flood { message } = &ending.reason else { panic!("{ending:?}") };
        assert_eq!(message, "more than 32 MiB were logged by the agent");
    }
}
