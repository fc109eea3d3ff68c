// SPDX-License-Identifier: MIT OR Apache-2.0
//! libbpf's messages, and the refusal that follows from them.

use std::sync::{Mutex, PoisonError};

use bpfassay_protocol::tracer_messages::Refusal;
use libbpf_rs::{PrintLevel, set_print};

use crate::{
    kernel::verifier::{reason, shorten},
    loader::plan::refusal::Failure,
};

/// The most bytes that are kept. The beginning of a longer verifier log is dropped: the line with
/// the reason is at the end.
const MAX_LOG: usize = 4 << 20;

static PRINTED: Mutex<String> = Mutex::new(String::new());

/// The exclusive right to libbpf's messages from now on.
#[derive(Debug)]
pub(super) struct LibbpfLog(());

/// Collects libbpf's warnings instead of printing them.
pub(super) fn capture() -> LibbpfLog {
    forget();
    set_print(Some((PrintLevel::Warn, |_, text| {
        let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
        printed.push_str(&text);
        if printed.len() > MAX_LOG {
            let cut = printed.ceil_char_boundary(printed.len() - MAX_LOG);
            printed.drain(..cut);
        }
    })));
    LibbpfLog(())
}

/// Drops the messages so far: what failed was attempted later, so they do not contain the reason.
pub(super) fn forget() {
    PRINTED.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

impl LibbpfLog {
    /// Creates a refusal from `failure`, with the messages of libbpf and the verifier.
    pub(super) fn refusal(self, failure: Failure) -> Refusal {
        let printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
        refusal(failure, &printed)
    }
}

pub(crate) fn refusal(failure: Failure, printed: &str) -> Refusal {
    let (library, verifier) = split(printed);
    let cause = cause(&library);
    Refusal {
        program: failure.program.or_else(|| cause.and_then(|line| name_of("prog", line)).map(str::to_owned)),
        errno: failure.error.raw_os_error(),
        verifier: reason(&verifier).map(shorten),
        ..Refusal::new(failure.step, cause.map_or_else(|| failure.error.to_string(), shorten))
    }
}

/// Returns the line of libbpf that states what failed: the first of the last lines about one
/// program or map, or the first line if no line names one. Lines that describe how libbpf continues
/// do not count. That of a skeleton contains no more than the error, so it counts if it is alone.
fn cause<'a>(library: &[&'a str]) -> Option<&'a str> {
    let named = |line: &'a str| name_of("prog", line).or_else(|| name_of("map", line));
    let goes_on = |line: &str| ["Retrying", "ignoring", "skipping"].iter().any(|word| line.contains(word));
    let (of_skeleton, mut stated): (Vec<&str>, Vec<&str>) =
        library.iter().filter(|line| !goes_on(line)).partition(|line| line.contains("': failed to auto-attach: "));
    if stated.is_empty() {
        stated = of_skeleton;
    }
    let Some(last) = stated.iter().rposition(|line| named(line).is_some()) else {
        return stated.first().copied();
    };
    let name = named(stated[last]);
    stated[..=last].iter().rev().take_while(|line| named(line) == name).last().copied()
}

/// Returns the lines of libbpf itself, and those of the last verifier log among them.
fn split(printed: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut library, mut verifier, mut inside) = (Vec::new(), Vec::new(), false);
    for line in printed.lines() {
        if line.contains("-- BEGIN ") && line.contains(" LOAD LOG --") {
            verifier.clear();
            inside = true;
        } else if line.starts_with("-- END ") && line.contains(" LOAD LOG --") {
            inside = false;
        } else if inside {
            verifier.push(line);
        } else {
            let line = line.strip_prefix("libbpf: ").unwrap_or(line).trim();
            if !line.is_empty() {
                library.push(line);
            }
        }
    }
    (library, verifier)
}

/// Returns the name of the program (`kind` is `prog`) or map (`map`) that a line of libbpf
/// describes.
pub(super) fn name_of<'a>(kind: &str, line: &'a str) -> Option<&'a str> {
    line.strip_prefix(kind)?.strip_prefix(" '")?.split_once('\'').map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use std::io;

    use bpfassay_protocol::tracer_messages::Step;
    use proptest::prelude::*;

    use super::*;

    fn failure(step: Step, program: Option<&str>, errno: i32) -> Failure {
        Failure { step, program: program.map(str::to_owned), error: io::Error::from_raw_os_error(errno) }
    }

    #[test]
    fn a_refusal_of_the_verifier_names_program_error_and_reason() {
        let printed = "libbpf: prog 'read_exit': BPF program load failed: -EACCES
libbpf: prog 'read_exit': -- BEGIN PROG LOAD LOG --
0: R1=ctx() R10=fp0
0: (79) r6 = *(u64 *)(r1 +40)
func 'vfs_read' doesn't have 6-th argument
invalid bpf_context access off=40 size=8
processed 1 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0
-- END PROG LOAD LOG --
libbpf: prog 'read_exit': failed to load: -EACCES
libbpf: failed to load object 'bpfassay'
";
        assert_eq!(
            refusal(failure(Step::Load, None, libc::EACCES), printed),
            Refusal {
                program: Some("read_exit".into()),
                errno: Some(libc::EACCES),
                verifier: Some("invalid bpf_context access off=40 size=8".into()),
                ..Refusal::new(Step::Load, "prog 'read_exit': BPF program load failed: -EACCES".into())
            }
        );
    }

    #[test]
    fn what_libbpf_goes_on_without_is_no_reason() {
        let printed = "libbpf: Error in bpf_create_map_xattr(per_cpu_state): -EINVAL. Retrying without BTF.
libbpf: map 'per_cpu_state': failed to create: -EINVAL
libbpf: failed to load object 'object'
";
        let of_a_map = refusal(failure(Step::Load, None, libc::EINVAL), printed);
        assert_eq!(of_a_map.message, "map 'per_cpu_state': failed to create: -EINVAL");
        assert_eq!(of_a_map.program, None);
        let printed = "libbpf: Error loading .BTF into kernel: -EINVAL. BTF is optional, ignoring.
libbpf: failed to find valid kernel BTF
libbpf: Error loading vmlinux BTF: -ESRCH
";
        assert_eq!(refusal(failure(Step::Load, None, libc::ESRCH), printed).message, "failed to find valid kernel BTF");
        let printed = "libbpf: prog 'first': relo #1: kernel has no such kfunc, skipping
libbpf: prog 'second': BPF program load failed: -EACCES
libbpf: prog 'second': failed to load: -EACCES
";
        let of_a_program = refusal(failure(Step::Load, None, libc::EACCES), printed);
        assert_eq!(of_a_program.message, "prog 'second': BPF program load failed: -EACCES");
        assert_eq!(of_a_program.program.as_deref(), Some("second"));
    }

    /// As libbpf printed for two objects of cilium/ebpf.
    #[test]
    fn a_warning_before_libbpf_goes_on_is_no_reason_for_its_program_either() {
        let warning = "libbpf: prog 'freeze_rodata': missing .BTF.ext function info for the main program, skipping \
                       all of .BTF.ext func info.\n";
        let of_attaching = refusal(failure(Step::Attach, Some("other"), libc::EOPNOTSUPP), warning);
        assert_eq!(of_attaching.message, "Operation not supported (os error 95)");
        let printed = format!("{warning}libbpf: prog 'freeze_rodata': BPF program load failed: -EINVAL\n");
        let of_loading = refusal(failure(Step::Load, None, libc::EINVAL), &printed);
        assert_eq!(of_loading.message, "prog 'freeze_rodata': BPF program load failed: -EINVAL");
        let printed = format!("libbpf: failed to find valid kernel BTF\n{warning}");
        let of_no_program = refusal(failure(Step::Load, None, libc::ESRCH), &printed);
        assert_eq!((of_no_program.program, &*of_no_program.message), (None, "failed to find valid kernel BTF"));
    }

    #[test]
    fn the_line_of_a_skeleton_is_the_reason_only_if_it_is_alone() {
        let of_skeleton = "libbpf: prog 'on_sub': failed to auto-attach: -ENOENT\n";
        let of = |printed: &str| refusal(failure(Step::Attach, Some("on_sub"), libc::ENOENT), printed).message;
        assert_eq!(of(of_skeleton), "prog 'on_sub': failed to auto-attach: -ENOENT");
        let of_symbol = "libbpf: elf: failed to find symbol 'sub' in '/proc/self/exe'\n";
        assert_eq!(of(&format!("{of_symbol}{of_skeleton}")), "elf: failed to find symbol 'sub' in '/proc/self/exe'");
    }

    #[test]
    fn an_attach_refusal_keeps_the_number_that_has_no_name() {
        let printed = "libbpf: prog 'read_exit': failed to attach: -ENOTSUPP\n";
        let refusal = refusal(failure(Step::Attach, Some("read_exit"), 524), printed);
        assert_eq!(refusal.errno, Some(524));
        assert_eq!(refusal.message, "prog 'read_exit': failed to attach: -ENOTSUPP");
        assert_eq!(refusal.verifier, None);
    }

    #[test]
    fn without_output_of_the_library_the_message_is_the_systems() {
        let refusal = refusal(failure(Step::Load, None, libc::EPERM), "\n");
        assert_eq!(refusal.message, "Operation not permitted (os error 1)");
        assert_eq!(refusal.program, None);
    }

    #[test]
    fn a_failure_of_the_library_alone_has_no_number() {
        let failure = Failure { step: Step::Open, program: None, error: io::Error::other("not an ELF file") };
        let refusal = refusal(failure, "libbpf: elf: failed to get section names\n");
        assert_eq!(refusal.errno, None);
        assert_eq!(refusal.message, "elf: failed to get section names");
    }

    #[test]
    fn a_log_of_statistics_only_is_no_message() {
        let (_, log) = split("prog 'a': -- BEGIN PROG LOAD LOG --\nverification time 3 usec\nprocessed 3 insns\n\n");
        assert_eq!(reason(&log), None);
    }

    proptest! {
        #[test]
        fn anything_printed_makes_a_bounded_refusal(printed in "(libbpf: |prog '|-- BEGIN PROG LOAD LOG --|\n|'|é|\\PC){0,60}") {
            let refusal = refusal(failure(Step::Load, None, 1), &printed);
            prop_assert!(refusal.message.len() <= crate::kernel::verifier::MAX_LINE && !refusal.message.ends_with('\n'));
        }
    }
}
