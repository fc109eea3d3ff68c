// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tracer's readers of untrusted bytes, for fuzz targets only (`crates/bpfassay-fuzz`). Each
//! function passes its input to one reader and asserts what always holds of the result.

use std::{collections::BTreeSet, ffi::OsString, io, os::unix::ffi::OsStringExt as _};

use bpfassay_protocol::{probe::Probe, tracer_messages::Step};

use crate::{
    cli::{object_args, tracer_args::TracerRequest},
    counters::{decode, ring, sets, task_io},
    diagnostics::before,
    features,
    kernel::{
        kept_facts, mountinfo, preemption,
        symbols::symbol_table::{self, Symbol},
        tracefs::{profile, tracefs_lists},
    },
    loader::{
        aya,
        libbpf::libbpf_log,
        plan::{probes, refusal::Failure, uprobes},
    },
    service::{
        endpoint::{ListenAddress, http_request},
        object_service as service_object,
        service_command::{Commands, ServiceCommand},
    },
};

/// Functions that are searched in lists of the kernel.
const WANTED: [&str; 4] = ["vfs_read", "vfs_write", "lookup", "nfs_file_read"];

/// Reads `/proc/self/mountinfo`.
pub fn mountinfo(text: &[u8]) {
    let table = mountinfo::MountTable::parse(text);
    let at = table.at("/mnt");
    assert!(at.is_none_or(|(id, device)| table.path(id, device) == Some("/mnt")));
}

/// Reads commands on standard input, in pieces of any size.
pub fn commands(bytes: &[u8]) {
    let mut commands = Commands::new(true);
    for piece in bytes.chunks(97) {
        commands.push(piece);
        loop {
            match commands.next() {
                Ok(Some(ServiceCommand::Sample(label))) => {
                    assert!(!label.is_empty() && !label.contains('\n') && label.len() <= 1024);
                }
                Ok(Some(ServiceCommand::Attach | ServiceCommand::Detach)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    let _ = commands.finish();
}

/// Reads `/proc/kallsyms` and the lists of functions in tracefs and debugfs. No unwanted function
/// is found.
pub fn kernel_lists(text: &[u8]) {
    let wanted = BTreeSet::from(WANTED);
    assert!(
        symbol_table::read(text, WANTED).is_ok_and(|found| found.keys().all(|name| wanted.contains(name.as_str())))
    );
    assert!(tracefs_lists::traceable(text, &wanted).is_ok_and(|found| found.is_subset(&wanted)));
    let text = String::from_utf8_lossy(text);
    let _ = tracefs_lists::blacklist(&text);
    let _ = tracefs_lists::enabled(&text).values().map(ToString::to_string).count();
    let _ = tracefs_lists::kprobes(&text);
    for function in WANTED {
        let _ = profile::missed_in_profile(&text, "libbpf", 1, function);
    }
    for line in text.lines() {
        let _ = features::attach_trials::offset_in_file(line, 0x5000);
    }
    let _ = preemption::decide(Some(&text), "") | preemption::decide(None, &text);
}

/// Reads the file of `--symbol-cache`. The facts are written in a form that reads back equal.
pub fn symbol_cache(text: &str) {
    const STATE: &str = "4fc5d7f0-0000-0000-0000-000000000000 nfs,nfsd";
    let text = format!("{STATE}\n{text}");
    let Some(symbols) = kept_facts::parse::<Symbol>(&text, STATE) else { return };
    assert_eq!(kept_facts::parse(&kept_facts::write(&symbols, STATE, &text), STATE), Some(symbols));
}

/// Reads a request to the tracer's endpoint. Whether the request is complete does not depend on
/// what follows its head.
pub fn http_request(bytes: &[u8]) {
    let wanted = http_request::read(bytes, "/metrics");
    if wanted.is_none() {
        assert!(bytes.len() < http_request::MAX_HEAD, "{} bytes are waited behind", bytes.len());
    }
    if bytes.len() < http_request::MAX_HEAD && wanted.is_some() {
        assert_eq!(http_request::read(&[bytes, b"body"].concat(), "/metrics"), wanted);
    }
}

/// Reads output of libbpf and the verifier. The refusal has a bounded length.
pub fn verifier_log(text: &str) {
    let failure = Failure { step: Step::Load, program: None, error: io::ErrorKind::PermissionDenied.into() };
    let refusal = libbpf_log::refusal(failure, text);
    assert!(refusal.message.len() <= 4096 && refusal.verifier.is_none_or(|line| line.len() <= 4096));
}

/// Reads command lines, with arguments separated by NUL.
pub fn arguments(bytes: &[u8]) {
    let args = || bytes.split(|&byte| byte == 0).map(|arg| OsString::from_vec(arg.to_vec()));
    let _ = TracerRequest::parse(args());
    let _ = object_args::ObjectRequest::parse(args());
    if let Ok(text) = str::from_utf8(bytes) {
        let _ = text.parse::<ListenAddress>();
    }
}

/// Reads contents of maps and of the ring buffer.
pub fn maps(bytes: &[u8]) {
    let (first, rest) = bytes.split_at(bytes.len().min(24));
    if let (Ok(key), Ok(value)) = (decode::key(first), decode::sum(rest.chunks(24))) {
        let _ = decode::row_of(key, value, &[value.calls, 0]);
    }
    let _ = decode::row_key(&bytes[..bytes.len().min(56)]);
    let _ = decode::sum([bytes]);
    let _ = decode::slots(1, &[bytes.to_vec()]);
    let _ = decode::histogram([bytes]);
    let _ = decode::total(bytes.chunks(8));
    let _ = task_io::account(bytes);
    let mut sums = ring::RingSums::default();
    bytes.chunks(48).for_each(|record| sums.add(record));
    let (key, values) = bytes.split_at(bytes.len().min(16));
    let mut sums = sets::Sums::default();
    if sums.add(key, values.chunks(32)).is_ok() {
        let _ = sums.rows();
    }
}

/// Reads a program, a library or an object. Each hooked function is inside the file.
pub fn object(elf: &[u8]) {
    let _ = uprobes::offsets(elf);
    let _ = uprobes::interpreter(elf);
    let _ = service_object::types(elf);
    for &probe in [Probe::Kprobe, Probe::Fexit].iter() {
        let _ = aya::aya_attach::sections_of(elf, probe);
    }
}

/// Reads names of sections and programs, and the list of a dynamic linker.
pub fn names(text: &str) {
    let _ = uprobes::listed(text);
    for line in text.lines() {
        if let Some((function, _)) = before::hook(line) {
            assert!(!function.is_empty() && line.contains(function));
        }
        let _ = probes::copy_of(line);
        let _ = probes::attachment(line);
        let _ = aya::aya_attach::function_of(line, Probe::Fexit);
    }
}
