// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent's readers of untrusted bytes, for fuzz targets only (`crates/bpfassay-fuzz`). Each
//! function passes its input to one reader and asserts what always holds of the result.

use bpfassay_protocol::{
    control::{MAX_LINE, PhaseEvent},
    frame,
    job::NfsVersion,
    message::{GuestMessage, Reading, RunOutcome},
    tool_job::{MAX_CAPTURED, MAX_PIECES, Source},
};

use crate::{
    bpf, cgroup, facts, guest_shell, here_agent, hierarchy,
    line_buffer::{Lines, Taken},
    nfs::{self, channel, rpc, upcall},
    phases::Phases,
    proc::cpu_activity::Activity,
    proc::{idle, meminfo, mountinfo, mountstats},
    run_figures,
    tool::{endpoint, tool_output, tool_processes, traces},
    tracer, uevent,
};

/// Reads `/proc/self/mountinfo`. A mount that is found at a path has that path.
pub fn mountinfo(text: &str) {
    for path in ["/mnt/nfs", "/", "/a b"] {
        if let Some(mount) = mountinfo::find(text, path) {
            assert_eq!(mount.path, path);
        }
    }
}

/// Reads `/proc/self/mountstats`.
pub fn mountstats(text: &str) {
    let _ = mountstats::find(text, "/mnt/nfs");
}

/// Reads `/proc/timer_list`. A sum without terms is not 0.
pub fn timer_list(text: &str) {
    assert_ne!(idle::total(text), Some(0));
}

/// Reads small files of /proc, /sys and cgroups.
pub fn kernel_texts(text: &str) {
    let _ = facts::count_cpus(text);
    let _ = meminfo::kib(text, "MemTotal");
    let _ = cgroup::populated(text);
    assert!(cgroup::processes(text).all(|process| process.as_raw_nonzero().get() > 0));
    let _ = bpf::memlock(text);
    let _ = tool_processes::rss(text);
    let _ = tool_processes::usage(text);
    let _ = hierarchy::of_version_2(text);
    let _ = guest_shell::console(text);
    let names: usize = text.lines().map(|line| traces::name_of(line).len()).sum();
    assert!(names <= text.len());
    for version in [NfsVersion::V3, NfsVersion::V41, NfsVersion::V42] {
        assert_eq!(nfs::versions(text, version).matches('\n').count(), 1);
    }
}

/// Reads a call of the port mapper's or the mount protocol. A reply carries the number of its call
/// and fits into a record.
pub fn rpc_call(call: &[u8]) {
    let exported = rpc::Exported { path: "/srv".to_owned(), handle: vec![1, 0, 1, 0, 0, 0, 0, 0, 9] };
    if let Some((&mark, _)) = call.split_first_chunk() {
        assert!(rpc::record_length(mark).is_none_or(|length| length <= rpc::MAX_RECORD));
    }
    if let Some(reply) = rpc::reply(call, &exported) {
        assert_eq!(reply.get(..4), call.get(..4));
        assert!(rpc::record_mark(reply.len()).and_then(rpc::record_length).is_some_and(|length| length < 256));
    }
}

/// Reads a question of one of the kernel's caches, and a message of the client tracker. A reply is
/// one line.
pub fn upcall(question: &[u8]) {
    for cache in channel::NfsdCache::ALL {
        if let Some(answer) = cache.answer(question, channel::Export { path: "/srv" }) {
            assert_eq!((answer.matches('\n').count(), answer.ends_with('\n')), (1, true));
            assert!(answer.len() <= 4 * question.len() + 100);
        }
    }
    let mut message = question.to_vec();
    let _ = upcall::cld::answer(&mut message);
    assert_eq!(message.len(), question.len());
}

/// Reads a uevent of the kernel.
pub fn uevent(message: &[u8]) {
    let _ = uevent::parse(message);
}

/// Reads what a workload writes on the control channel, cut into arbitrary pieces: lines of bounded
/// length that announce phases.
pub fn control_channel(bytes: &[u8]) {
    let (mut lines, mut phases) = (Lines::new(MAX_LINE), Phases::default());
    for mut piece in bytes.chunks(997) {
        if !matches!(lines.take(&mut piece), Ok(Taken::Open)) {
            return;
        }
        while let Some(line) = lines.next() {
            assert!(line.len() <= MAX_LINE && !line.contains(&b'\n'));
            let Ok(event) = serde_json::from_slice::<PhaseEvent>(&line) else { return };
            let reading = Reading { monotonic_ns: 1, idle_ns: None, tracer: None, mountstats: None };
            let reading = (reading, Activity::default());
            let taken = match event {
                PhaseEvent::Begin(phase) => phases.begin(phase, reading),
                PhaseEvent::End { phase, moved, events, mount: _ } => phases.end(phase, moved, events, None, reading),
                PhaseEvent::Calls { phase, calls } => phases.calls(&phase, calls),
                PhaseEvent::Meet => Ok(()),
            };
            if taken.is_err() {
                return;
            }
        }
    }
    let _ = phases.finish();
}

/// Reads a line of the tracer.
pub fn tracer_line(line: &[u8]) {
    if let Err(message) = tracer::parse(line) {
        assert!(message.len() < 2000, "the error quotes {} bytes", message.len());
    }
}

/// Reads the output of a tool, which is kept up to a bound.
pub fn tool_output(bytes: &[u8]) {
    // The first byte selects the awaited event; the others are the input.
    let Some((&first, text)) = bytes.split_first() else { return };
    let pattern = ["ready", "^(Tracing|Attaching).*$", "(?i)a+b*[0-9]{1,3}$"][usize::from(first) % 3];
    let Ok(ready) = tool_output::ReadyPattern::new(pattern, None) else { return };
    let mut output = tool_output::Output::new(true, Some(ready));
    for (at, piece) in (1u64..).zip(text.chunks(1 + usize::from(first))) {
        let source = [Source::Output, Source::Error, Source::Endpoint][at as usize % 3];
        output.take(at, source, piece, None);
    }
    let (pieces, _) = output.into_pieces();
    assert!(pieces.len() <= MAX_PIECES);
    // Each byte that is not UTF-8 is replaced by three bytes.
    assert!(pieces.iter().map(|piece| piece.text.len()).sum::<usize>() <= 3 * text.len().min(MAX_CAPTURED));
}

/// Reads the response of a tool's HTTP endpoint. A body is the end of the response.
pub fn http_answer(answer: &[u8]) {
    match endpoint::body(answer) {
        Ok(body) => assert!(answer.ends_with(&body)),
        Err(message) => assert!(message.len() < 1000),
    }
}

/// Reads the arguments of `bpfassay-guest here`, separated by NUL.
pub fn here_arguments(text: &str) {
    let _ = here_agent::parse(text.split('\0').map(str::to_owned));
}

/// Reports a run's outcome, which a tool and a workload fill. The frame is never larger than
/// requested, and holds the same run.
pub fn run_outcome(text: &[u8]) {
    let Ok(outcome) = serde_json::from_slice::<RunOutcome>(text) else { return };
    for largest in [1 << 10, 8 << 10, frame::MAX_PAYLOAD] {
        let Ok((bytes, _)) = run_figures::report("r1", outcome.clone(), largest) else { continue };
        assert!(bytes.len() <= largest);
        let mut decoder = frame::Decoder::default();
        decoder.push(&bytes);
        assert!(matches!(decoder.next(), Ok(Some(GuestMessage::RunEnded { run, .. })) if run == "r1"));
    }
}
