// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the refused program in the output of a loader: its name, and the line of the verifier's
//! log that has the reason.

/// The refused program in a loader's output.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RefusedProgram {
    pub(super) program: Option<String>,
    /// The verifier's reason, one line.
    pub(super) reason: Option<String>,
}

/// How a loader prints the verifier's log, if it prints it in separate lines.
struct VerifierLog {
    /// Text in the line before the log, or before the log in the same line.
    begin: &'static str,
    /// Whether the log begins in the line that has `begin`.
    is_same_line: bool,
    /// How the first line after the log can begin.
    ends: &'static [&'static str],
}

/// The line after the log that libbpf prints.
const END_OF_LIBBPF: &str = "-- END PROG LOAD LOG --";

const LOGS: &[VerifierLog] = &[
    // libbpf (src/libbpf.c, 1.5.0).
    VerifierLog { begin: "-- BEGIN PROG LOAD LOG --", is_same_line: false, ends: &[END_OF_LIBBPF, "libbpf: "] },
    // bcc (src/cc/libbpf.c, 0.37.0).
    VerifierLog {
        begin: "bpf: Failed to load program: ",
        is_same_line: false,
        ends: &["HINT: ", "Traceback ", "Exception: "],
    },
    // bpftrace -v (src/bpfbytecode.cpp, 0.26.1).
    VerifierLog { begin: "Kernel error log:", is_same_line: false, ends: &["ERROR: ", "WARNING: "] },
    // aya (aya/src/programs/mod.rs, 0.11.0 to 0.14.0); the chain of causes that `main` prints
    // follows.
    VerifierLog { begin: "Verifier output: ", is_same_line: true, ends: &["Caused by:", "Error: "] },
];

pub(super) fn refused_program(message: &str) -> RefusedProgram {
    let of_go = || message.lines().rev().find_map(reason_of_cilium);
    RefusedProgram { program: message.lines().rev().find_map(program), reason: last_log(message).or_else(of_go) }
}

/// Finds the reason in the last log of `message`.
fn last_log(message: &str) -> Option<String> {
    let lines: Vec<&str> = message.lines().collect();
    let begun = lines.iter().enumerate().rev().find_map(|(at, line)| {
        let log = LOGS.iter().find(|log| line.contains(log.begin))?;
        Some((at, log))
    });
    let Some((at, log)) = begun else {
        // Loaders keep only the end of a long log.
        return reason(lines.get(..lines.iter().rposition(|line| line.starts_with(END_OF_LIBBPF))?)?);
    };
    let rest = lines.get(at)?.split_once(log.begin).map(|(_, rest)| rest).filter(|_| log.is_same_line);
    let is_end = |line: &&str| log.ends.iter().any(|end| line.starts_with(end));
    let following = lines.get(at + 1..).unwrap_or_default().iter().copied().take_while(|line| !is_end(line));
    let log: Vec<&str> = rest.into_iter().chain(following).collect();
    reason(&log)
}

/// Returns the last line of a verifier's log before the statistics. An instruction or the state at
/// one is no reason: such a log was cut.
fn reason(log: &[&str]) -> Option<String> {
    const STATISTICS: [&str; 3] = ["processed ", "verification time ", "stack depth "];
    let is_said = |line: &&str| !line.is_empty() && !STATISTICS.iter().any(|begin| line.starts_with(begin));
    let line = log.iter().rev().map(|line| line.trim()).find(is_said)?;
    let is_trace = line.split_once(':').is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    let is_source = line.starts_with(';');
    (!is_trace && !is_source).then(|| line.to_owned())
}

/// Finds the reason in a line of cilium/ebpf (internal/errors.go, 0.22.0), which sums the log up:
/// `load program: permission denied: R1 invalid mem access 'scalar' (17 line(s) omitted)`.
fn reason_of_cilium(line: &str) -> Option<String> {
    let (_, rest) = line.rsplit_once("load program: ")?;
    // The cause comes first and has no colon.
    let (_, log) = rest.split_once(": ")?;
    let log = match log.rsplit_once(" (") {
        Some((log, omitted)) if omitted.ends_with(" line(s) omitted)") => log,
        _ => log,
    };
    (!log.trim().is_empty()).then(|| log.trim().to_owned())
}

/// How the failure of a program begins (cilium/ebpf, prog.go and collection.go, 0.22.0).
const OF_CILIUM: [&str; 8] = [
    "load program: ",
    "apply CO-RE relocations: ",
    "map ",
    "load BTF: ",
    "attach ",
    "fixing up kfuncs: ",
    "resolve .ksyms: ",
    "resolve .kconfig: ",
];

/// Finds the name of the program in a line of a loader.
fn program(line: &str) -> Option<String> {
    let quoted = |begin: &str, end: &str| {
        line.rsplit_once(begin).and_then(|(_, rest)| rest.split_once(end)).map(|(name, _)| name)
    };
    // The texts are:
    // - libbpf: `libbpf: prog 'p': failed to load: -22`
    // - cilium/ebpf: `field P: program p: load program: …`
    // - bcc: `Failed to load BPF program b'p': Invalid argument`, and `Failed to attach BPF program
    //   b'p' to kprobe`
    // - bpftrace: `Error loading BPF program for kprobe_x_1.`
    let name = quoted("libbpf: prog '", "': ")
        .or_else(|| quoted("BPF program b'", "'"))
        .or_else(|| quoted("Error loading BPF program for ", "."))
        .or_else(|| {
            let (_, rest) = line.rsplit_once("program ").filter(|(head, _)| head.is_empty() || head.ends_with(": "))?;
            let (name, failed) = rest.split_once(": ")?;
            OF_CILIUM.iter().any(|begin| failed.starts_with(begin)).then_some(name)
        })?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
    (!name.is_empty() && name.len() <= 128 && name.chars().all(is_name)).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are from issues of the loaders' projects, or follow their sources.
    #[test]
    fn the_reason_and_the_program_are_those_that_the_loader_prints() {
        let printed = [
            (
                "load program: permission denied: 9: (69) r5 = *(u16 *)(r1 +0): R1 invalid mem access 'scalar' (17 line(s) omitted)",
                None,
                Some("9: (69) r5 = *(u16 *)(r1 +0): R1 invalid mem access 'scalar'"),
            ),
            (
                "loading objects: field KprobeX: program kprobe_x: load program: permission denied: invalid indirect read from stack R3 off -56+16 size 48 (67 line(s) omitted)",
                Some("kprobe_x"),
                Some("invalid indirect read from stack R3 off -56+16 size 48"),
            ),
            (
                "program raw_tracepoint__sched_process_exec: apply CO-RE relocations: load BTF for kmod sha1_ssse3: read string section: string table is empty",
                Some("raw_tracepoint__sched_process_exec"),
                None,
            ),
            (
                "field SkLookup: program sk_lookup: map events: map create: operation not permitted (MEMLOCK may be too low, consider rlimit.RemoveMemlock)",
                Some("sk_lookup"),
                None,
            ),
            (
                "load program: operation not permitted (MEMLOCK may be too low, consider rlimit.RemoveMemlock)",
                None,
                None,
            ),
            (
                "Error: the BPF_PROG_LOAD syscall failed. Verifier output: last insn is not an exit or jmp\nverification time 9 usec\nprocessed 0 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0\n\nCaused by:\n    Invalid argument (os error 22)",
                None,
                Some("last insn is not an exit or jmp"),
            ),
            (
                "Error: the BPF_PROG_LOAD syscall returned Invalid argument (os error 22). Verifier output: \nCaused by:\n    Invalid argument (os error 22)",
                None,
                None,
            ),
            (
                "Attaching 1 probe...\nERROR: Error loading BPF program for fentry_vmlinux_release_pages_1.\nKernel error log:\nThe function release_pages arg0 type UNION is unsupported.\nprocessed 0 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0\n\nERROR: Loading BPF object(s) failed.",
                Some("fentry_vmlinux_release_pages_1"),
                Some("The function release_pages arg0 type UNION is unsupported."),
            ),
            (
                "bpf: Failed to load program: Permission denied\n0: (bf) r6 = r1\n13: (50) r0 = *(u8 *)skb[r7 + 0]\nR2 min value is negative\nprocessed 15 insns (limit 1000000)\n\nTraceback (most recent call last):\n  File \"x.py\", line 1\nException: Failed to load BPF program b'syscall__execve': Permission denied",
                Some("syscall__execve"),
                Some("R2 min value is negative"),
            ),
            (
                "cannot attach kprobe, probe entry may not exist\nException: Failed to attach BPF program b'kprobe__ipt_do_table' to kprobe b'ipt_do_table', it's not traceable",
                Some("kprobe__ipt_do_table"),
                None,
            ),
            (
                "libbpf: prog 'kprobe_connect': BPF program load failed: Permission denied\nlibbpf: prog 'kprobe_connect': -- BEGIN PROG LOAD LOG --\n1: (79) r6 = *(u64 *)(r1 +104)\nR1 invalid mem access 'inv'\nprocessed 2 insns (limit 1000000)\n-- END PROG LOAD LOG --\nlibbpf: prog 'kprobe_connect': failed to load: -13\nlibbpf: failed to load object 'x'",
                Some("kprobe_connect"),
                Some("R1 invalid mem access 'inv'"),
            ),
            (
                "(limit of the tail) R10=fp0\nR1 invalid mem access 'inv'\nprocessed 2 insns (limit 1000000)\n-- END PROG LOAD LOG --\nlibbpf: prog 'p': failed to load: -13",
                Some("p"),
                Some("R1 invalid mem access 'inv'"),
            ),
        ];
        for (message, program, reason) in printed {
            let expected = RefusedProgram { program: program.map(str::to_owned), reason: reason.map(str::to_owned) };
            assert_eq!(refused_program(message), expected, "{message}");
        }
    }

    #[test]
    fn what_is_no_reason_and_no_program_is_left_out() {
        for message in [
            "",
            "the program failed: it has no configuration",
            "tool: program failed: it has no configuration",
            // The log was cut in the middle of its trace.
            "libbpf: prog 'p q': -- BEGIN PROG LOAD LOG --\n0: R1=ctx() R10=fp0\n1: (79) r6 = *(u64 *)(r1 +104)",
            "Kernel error log:\n; int x = 3\n",
            "Verifier output: ",
            "load program: invalid argument",
        ] {
            assert_eq!(refused_program(message), RefusedProgram::default(), "{message}");
        }
    }
}
