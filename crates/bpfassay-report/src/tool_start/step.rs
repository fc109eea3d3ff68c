// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the step that failed in a tool that did not become ready, by the messages of known
//! loaders.

use bpfassay_protocol::{
    compiler_error::first_compiler_error,
    tracer_messages::{Refusal, Step},
};
use bpfassay_tool::finding::Start;

use super::{
    loader_messages::{LOADER_MESSAGES, LoaderMessages, OF_VERIFIER},
    refused_program::refused_program,
};

/// Determines how a tool started. The failed step is known if the loader or the tool reports a
/// step, an error number or the verifier's log; otherwise the printed text can name it.
pub(crate) fn started(refusal: &Refusal) -> Start {
    let is_reported = refusal.errno.is_some() || refusal.verifier.is_some() || refusal.program.is_some();
    if is_reported || refusal.step != Step::Load {
        return Start::Refused(refusal.clone());
    }
    match step_of(&refusal.message) {
        Some(step) => {
            let printed = refused_program(&refusal.message);
            // An earlier log belongs to a program without which the tool continued.
            let reason = printed.reason.or_else(|| line_of_verifier(&refusal.message));
            let verifier = reason.filter(|_| step == Step::Load);
            let message = match first_compiler_error(&refusal.message).filter(|_| step == Step::Open) {
                Some(line) => format!("{line}; {}", refusal.message),
                None => refusal.message.clone(),
            };
            Start::Refused(Refusal { step, program: printed.program, verifier, message, ..refusal.clone() })
        }
        None => Start::NotReady(refusal.clone()),
    }
}

/// Finds the failed step in `message`. The last phrase counts: a tool that continued after one
/// failure ended by a later one, and the cause comes last in a chain of errors.
fn step_of(message: &str) -> Option<Step> {
    message.lines().rev().find_map(|line| {
        let line = line.to_lowercase();
        let of_loader = |messages: &LoaderMessages| {
            let place = messages.phrases.iter().filter_map(|phrase| place(&line, phrase)).max()?;
            Some((place, messages.step))
        };
        let of_script = script_error(&line).map(|place| (place, Step::Open));
        let of_loaders = LOADER_MESSAGES.iter().filter_map(of_loader);
        of_loaders.chain(of_script).max_by_key(|(place, _)| *place).map(|(_, step)| step)
    })
}

/// Returns the last line of `message` that only the verifier writes.
fn line_of_verifier(message: &str) -> Option<String> {
    let is_of_verifier = |line: &&str| {
        let line = line.to_lowercase();
        OF_VERIFIER.iter().any(|phrase| place(&line, phrase).is_some())
    };
    message.lines().rev().find(is_of_verifier).map(|line| line.trim().to_owned())
}

/// Finds where bpftrace names an error of a script, such as `stdin:1:1-34: error: …` with line and
/// columns: it compiles first (src/log.cpp, 0.26.1).
fn script_error(line: &str) -> Option<usize> {
    let place = line.find(": error: ")?;
    let (rest, columns) = line.get(..place)?.rsplit_once(':')?;
    let (_, number) = rest.rsplit_once(':')?;
    let (from, to) = columns.split_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    [number, from, to].into_iter().all(is_number).then_some(place)
}

/// Finds where the last part of the last occurrence of `phrase` begins in `line`.
fn place(line: &str, phrase: &str) -> Option<usize> {
    let mut parts = phrase.rsplit('*');
    let place = line.rfind(parts.next()?)?;
    parts.try_fold(place, |end, part| line.get(..end)?.rfind(part)).map(|_| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates the refusal that the agent reports for a tool that did not become ready.
    fn reported(message: &str) -> Refusal {
        let message = format!("ended with exit status 1 before it was ready; its last output: {message}");
        Refusal::new(Step::Load, message)
    }

    fn step(message: &str) -> Option<Step> {
        match started(&reported(message)) {
            Start::Refused(refusal) => Some(refusal.step),
            Start::NotReady(Refusal { message: kept, .. }) => {
                assert!(kept.ends_with(message), "{kept}");
                None
            }
            Start::Ready | Start::Running { .. } | Start::Unattached { .. } => panic!("it did not become ready"),
        }
    }

    /// The end of a traceback says nothing about the reason.
    #[test]
    fn the_first_error_of_a_compiler_is_the_reason() {
        let error = "include/linux/fs.h:2442:15: error: static assertion failed";
        let printed =
            format!("cluded from a.h:9:\n{error}\nb.h:1:1: error: x\nException: Failed to compile BPF module <text>");
        let Start::Refused(refusal) = started(&reported(&printed)) else { panic!("it was not refused") };
        assert_eq!(refusal.step, Step::Open);
        assert!(refusal.message.starts_with(&format!("{error}; ended with exit status 1")), "{}", refusal.message);
        // The agent keeps the first error of a long output.
        let long = format!("{error}\n…\nb.h:1:1: error: x\nException: Failed to compile BPF module <text>");
        let Start::Refused(refusal) = started(&reported(&long)) else { panic!("it was not refused") };
        assert!(refusal.message.starts_with(&format!("{error}; ended with exit status 1")), "{}", refusal.message);
        let Start::Refused(refusal) = started(&reported("Failed to compile BPF module x")) else { panic!() };
        assert!(refusal.message.starts_with("ended with"), "{}", refusal.message);
    }

    #[test]
    fn each_loader_has_its_messages_for_each_step() {
        let printed = [
            // libbpf
            ("libbpf: failed to find valid kernel BTF", Step::Open),
            (
                "libbpf: prog 'p': BPF program load failed: Invalid argument\nlibbpf: prog 'p': -- BEGIN PROG LOAD LOG --\n0: (85) call bpf_x#5\n-- END PROG LOAD LOG --",
                Step::Load,
            ),
            ("libbpf: prog 'p': failed to load: -22\nlibbpf: failed to load object 'x'", Step::Load),
            ("libbpf: prog 'e': failed to find kernel BTF type ID of 'vfs_x': -3", Step::Load),
            ("libbpf: map 'm': failed to create: -E2BIG", Step::Load),
            ("libbpf: prog 'p': failed to create kprobe 'vfs_x+0x0' perf event: -ENOENT", Step::Attach),
            ("libbpf: prog 'p': failed to attach to raw tracepoint 'x': -2", Step::Attach),
            ("libbpf: prog 'p': failed to auto-attach: -2", Step::Attach),
            // bpftool
            ("Error: failed to open object file", Step::Open),
            ("Error: failed to load object file", Step::Load),
            ("Error: interface xdp attach failed: Device or resource busy", Step::Attach),
            // libbpf-tools
            ("failed to open BPF object", Step::Open),
            ("failed to load BPF object: -13", Step::Load),
            ("failed to attach BPF programs: No such file or directory", Step::Attach),
            // bcc
            (
                "Unable to find kernel headers. Try rebuilding kernel\nException: Failed to compile BPF module <text>",
                Step::Open,
            ),
            ("bpf: Failed to load program: Permission denied\n; int x\n0: (79) r6 = *(u64 *)(r1 +0)\n", Step::Load),
            ("Exception: Failed to load BPF program b'on_read': Invalid argument", Step::Load),
            ("cannot attach kprobe, probe entry may not exist", Step::Attach),
            ("Exception: Failed to attach BPF program b'p' to kprobe b'vfs_x'", Step::Attach),
            // bpftrace
            (
                "ERROR: Error loading BPF program for kprobe_vfs_x_1. Error code: -22. Use -v for full kernel error log.",
                Step::Load,
            ),
            ("ERROR: Error attaching probe: kprobe:vfs_x", Step::Attach),
            ("ERROR: Unable to attach probe: kprobe:vfs_x. If this is expected, set", Step::Attach),
            ("ERROR: Could not resolve symbol: /proc/self/exe:BEGIN_trigger", Step::Attach),
            ("Kernel error log:\nback-edge from insn 91 to 71\n\nERROR: Loading BPF object(s) failed.", Step::Load),
            (
                "stdin:1:1-34: ERROR: tracepoint not found: syscalls:sys_enter_x\ntracepoint:syscalls:sys_enter_x {}\n~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~",
                Step::Open,
            ),
            // aya
            (
                "Error: the BPF_PROG_LOAD syscall failed. Verifier output: combined stack size of 3 calls is 544. Too large",
                Step::Load,
            ),
            ("Error: error parsing BPF object: error parsing ELF data", Step::Open),
            ("Error: the BPF_PROG_LOAD syscall returned Invalid argument (os error 22). Verifier output: ", Step::Load),
            ("Error: ProgramError(LoadError { io_error: Os { code: 22 }, verifier_log: x })", Step::Load),
            ("Error: `perf_event_open` failed\n\nCaused by:\n    No such file or directory (os error 2)", Step::Attach),
            (
                "Error: SyscallError(SyscallError { call: \"bpf_link_create\", io_error: Os { code: 524 } })",
                Step::Attach,
            ),
            // cilium/ebpf
            ("loading objects: load BTF maps: missing BTF", Step::Open),
            ("load program: on_read: apply CO-RE relocations: no BTF found", Step::Load),
            (
                "program raw_tracepoint__sched_process_exec: apply CO-RE relocations: load BTF for kmod sha1_ssse3: read string section: string table is empty",
                Step::Load,
            ),
            (
                "load program: permission denied: 9: (69) r5 = *(u16 *)(r1 +0): R1 invalid mem access 'scalar' (17 line(s) omitted)",
                Step::Load,
            ),
            (
                "field SkLookup: program sk_lookup: map events: map create: operation not permitted (MEMLOCK may be too low, consider rlimit.RemoveMemlock)",
                Step::Load,
            ),
            ("load: program on_read: apply CO-RE relocations: relocate struct x: bad", Step::Load),
            (
                "loading objects: field P: program p: load program: invalid argument: R1 !read_ok (9 line(s) omitted)",
                Step::Load,
            ),
            (
                "loading objects: field P: program p: attach Tracing/TraceFEntry: find target for fentry vfs_x: not found",
                Step::Load,
            ),
            ("creating the map: map create: operation not permitted (MEMLOCK may be too low)", Step::Load),
            (
                "opening kprobe: creating perf_kprobe PMU (arch-specific fallback for \"x\"): token x: not found: no such file",
                Step::Attach,
            ),
            ("linking: create tracing link: operation not supported", Step::Attach),
        ];
        for (message, expected) in printed {
            assert_eq!(step(message), Some(expected), "{message}");
        }
    }

    #[test]
    fn what_no_loader_prints_names_no_step() {
        let printed = [
            "",
            "failed to load kallsyms",
            "failed to load configuration /etc/tool.toml: no such file or directory",
            "cannot attach to the terminal",
            "Permission denied",
            "tool.c:12: ERROR: no configuration",
            "my-tool:8080:x-y: ERROR: no listener",
            "10:20:30-01: WARNING: a time is no place in a script",
            "WARNING: Unable to attach probe: kprobe:vfs_x. Skipping.",
            "prog 'p'\nfailed to load: it is over two lines",
        ];
        for message in printed {
            assert_eq!(step(message), None, "{message}");
        }
        let waiting = reported("");
        let waiting = Refusal { message: "has loaded 0 programs, not 3, 60 s after its start".to_owned(), ..waiting };
        assert_eq!(started(&waiting), Start::NotReady(waiting.clone()));
    }

    #[test]
    fn the_last_of_several_failures_counts() {
        let optional =
            "libbpf: prog 'fast': failed to load: -22\nfalling back\nlibbpf: prog 'slow': failed to attach: -2";
        assert_eq!(step(optional), Some(Step::Attach));
        let nested = "failed to attach BPF program: field P: program p: load program: invalid argument";
        assert_eq!(step(nested), Some(Step::Load));
        let followed = "libbpf: failed to load object 'x'\nthe tool ends";
        assert_eq!(step(followed), Some(Step::Load));
    }

    #[test]
    fn what_the_loader_prints_of_the_program_is_evidence() {
        let message =
            "loading objects: field X: program on_x: load program: invalid argument: R1 !read_ok (9 line(s) omitted)";
        let Start::Refused(refusal) = started(&reported(message)) else { panic!("it names its step") };
        assert_eq!((refusal.program.as_deref(), refusal.verifier.as_deref()), (Some("on_x"), Some("R1 !read_ok")));
        let message = "libbpf: prog 'fast': -- BEGIN PROG LOAD LOG --\nR1 !read_ok\n-- END PROG LOAD LOG --\nfalling back\nlibbpf: prog 'slow': failed to attach: -2";
        let Start::Refused(refusal) = started(&reported(message)) else { panic!("it names its step") };
        assert_eq!((refusal.step, refusal.program.as_deref(), refusal.verifier), (Step::Attach, Some("slow"), None));
    }

    /// Even an unknown loader passes the kernel's log on.
    #[test]
    fn the_kernels_own_words_are_known_whoever_prints_them() {
        for line in [
            "R2 invalid mem access 'scalar'",
            "invalid bpf_context access off=96 size=8",
            "BPF program is too large. Processed 1000001 insn",
            "R1 !read_ok",
            "cannot call GPL-restricted function from non-GPL compatible program",
        ] {
            let message = format!("ebpf error: -13\n0: R1=ctx()\n  {line}\nprocessed 2 insns (limit 1000000)\nbye");
            let Start::Refused(refusal) = started(&reported(&message)) else { panic!("{line}") };
            assert_eq!((refusal.step, refusal.verifier.as_deref()), (Step::Load, Some(line)));
        }
    }

    #[test]
    fn a_step_that_is_reported_stands() {
        let refusal = Refusal { errno: Some(22), ..reported("failed to attach BPF programs") };
        assert_eq!(started(&refusal), Start::Refused(refusal));
        let refusal = Refusal { step: Step::Attach, ..reported("failed to load BPF object") };
        assert_eq!(started(&refusal), Start::Refused(refusal));
    }

    #[test]
    fn phrases_are_in_small_letters_and_none_is_empty() {
        for phrase in LOADER_MESSAGES.iter().flat_map(|messages| messages.phrases) {
            assert_eq!(phrase.to_lowercase(), *phrase);
            assert!(phrase.split('*').all(|part| part.is_empty() || !part.trim().is_empty()), "{phrase}");
            assert!(!phrase.starts_with('*') && !phrase.ends_with('*') && !phrase.is_empty(), "{phrase}");
        }
    }
}
