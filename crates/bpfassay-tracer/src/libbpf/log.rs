//! What libbpf prints while it works, and the refusal that is made of it.

use std::sync::{Mutex, PoisonError};

use bpfassay_protocol::tracer::Refusal;
use libbpf_rs::{PrintLevel, set_print};

use super::Failure;

/// Most bytes kept. A verifier log is cut at its beginning then: its telling line is the last.
const MAX_LOG: usize = 4 << 20;
/// Longest telling line or message in a refusal, in bytes.
const MAX_LINE: usize = 4096;

static PRINTED: Mutex<String> = Mutex::new(String::new());

/// The right to what libbpf prints from now on.
#[derive(Debug)]
pub(super) struct Log(());

/// Collects libbpf's warnings instead of printing them.
pub(super) fn capture() -> Log {
    PRINTED.lock().unwrap_or_else(PoisonError::into_inner).clear();
    set_print(Some((PrintLevel::Warn, |_, text| {
        let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
        printed.push_str(&text);
        if printed.len() > MAX_LOG {
            let cut = printed.ceil_char_boundary(printed.len() - MAX_LOG);
            printed.drain(..cut);
        }
    })));
    Log(())
}

impl Log {
    /// `failure` in libbpf's and the verifier's own words.
    pub(super) fn refusal(self, failure: Failure) -> Refusal {
        let printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
        refusal(failure, &printed)
    }
}

pub(crate) fn refusal(failure: Failure, printed: &str) -> Refusal {
    let (library, verifier) = split(printed);
    let about_a_program = library.iter().find(|line| program_of(line).is_some()).or(library.first());
    Refusal {
        step: failure.step,
        program: failure.program.or_else(|| about_a_program.and_then(|line| program_of(line)).map(str::to_owned)),
        errno: failure.error.raw_os_error(),
        message: about_a_program.map_or_else(|| failure.error.to_string(), |line| shorten(line)),
        verifier: telling_line(&verifier).map(shorten),
        findings: Vec::new(),
    }
}

/// Lines of libbpf itself, and those of the last verifier log among them.
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

/// The program that a line of libbpf is about.
fn program_of(line: &str) -> Option<&str> {
    line.strip_prefix("prog '")?.split_once('\'').map(|(name, _)| name)
}

/// The verifier says why in the last line before its statistics. Linux 7.3 goes on after that line: a heading, reason,
/// place, causes and a suggestion in many lines (kernel/bpf/diagnostics.c); where it has nothing but those, the heading
/// says why.
pub(crate) fn telling_line<'a>(log: &[&'a str]) -> Option<&'a str> {
    const STATISTICS: [&str; 4] = ["processed ", "verification time ", "stack depth ", "insns processed "];
    const HEADING: &str = "Verification failed: ";
    let last = |log: &[&'a str]| {
        let mut lines = log.iter().rev().map(|line| line.trim());
        lines.find(|line| !line.is_empty() && !STATISTICS.iter().any(|statistics| line.starts_with(statistics)))
    };
    let Some(heading) = log.iter().rposition(|line| line.starts_with(HEADING)) else { return last(log) };
    // An instruction (`0: (79) r0 = …`) or the state at one (`0: R1=ctx()`) tells nothing.
    let is_trace = |line: &str| line.split_once(':').is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    last(&log[..heading]).filter(|line| !is_trace(line)).or(log.get(heading).copied())
}

pub(crate) fn shorten(line: &str) -> String {
    line[..line.floor_char_boundary(MAX_LINE)].to_owned()
}

#[cfg(test)]
mod tests {
    use std::io;

    use bpfassay_protocol::tracer::Step;
    use proptest::prelude::*;

    use super::*;

    fn failure(step: Step, program: Option<&str>, errno: i32) -> Failure {
        Failure { step, program: program.map(str::to_owned), error: io::Error::from_raw_os_error(errno) }
    }

    #[test]
    fn a_refusal_of_the_verifier_names_program_error_and_telling_line() {
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
                step: Step::Load,
                program: Some("read_exit".into()),
                errno: Some(libc::EACCES),
                message: "prog 'read_exit': BPF program load failed: -EACCES".into(),
                verifier: Some("invalid bpf_context access off=40 size=8".into()),
                findings: Vec::new(),
            }
        );
    }

    #[test]
    fn diagnostics_do_not_hide_what_the_verifier_says() {
        // Debian's 7.3~rc7, shortened.
        let log = "0: R1=ctx() R10=fp0
0: (bf) r0 = r5
R5 !read_ok

Verification failed: Register Type Safety: Unreadable register

Reason:
  R5 has never been initialized on this path, so the verifier cannot use it as an input.

Suggestion:
  Initialize R5 on every path before this instruction.

processed 1 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0";
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(telling_line(&lines), Some("R5 !read_ok"));
        let alone: Vec<&str> = lines.iter().copied().filter(|line| *line != "R5 !read_ok").collect();
        assert_eq!(telling_line(&alone), Some("Verification failed: Register Type Safety: Unreadable register"));
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
    fn a_silent_library_leaves_the_systems_words() {
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
    fn a_log_of_statistics_only_tells_nothing() {
        let (_, log) = split("prog 'a': -- BEGIN PROG LOAD LOG --\nverification time 3 usec\nprocessed 3 insns\n\n");
        assert_eq!(telling_line(&log), None);
    }

    proptest! {
        #[test]
        fn anything_printed_makes_a_bounded_refusal(printed in "(libbpf: |prog '|-- BEGIN PROG LOAD LOG --|\n|'|é|\\PC){0,60}") {
            let refusal = refusal(failure(Step::Load, None, 1), &printed);
            prop_assert!(refusal.message.len() <= MAX_LINE && !refusal.message.ends_with('\n'));
        }
    }
}
