// SPDX-License-Identifier: MIT OR Apache-2.0
//! What known loaders print when a step fails. One more loader is one more entry.

use bpfassay_protocol::tracer_messages::Step;

/// The messages of one loader that show the failure of one step.
pub(super) struct LoaderMessages {
    pub(super) step: Step,
    /// In lower case; `*` stands for any text on the same line.
    pub(super) phrases: &'static [&'static str],
}

/// Texts of the verifier when it refuses a program (kernel/bpf/verifier.c, 5.10 to 6.12).
pub(super) const OF_VERIFIER: &[&str] = &[
    "unknown func *#",
    "program of this type cannot use helper *#",
    "invalid mem access '",
    "invalid bpf_context access off=",
    "invalid access to map value, value_size=",
    "invalid access to packet, off=",
    "invalid indirect read from stack",
    "invalid read from stack",
    "invalid variable-offset * stack ",
    "!read_ok",
    "back-edge from insn * to ",
    "infinite loop detected at insn ",
    "unreachable insn ",
    "the sequence of * jumps is too complex",
    "bpf program is too large. processed ",
    "combined stack size of * calls is ",
    "cannot call gpl-restricted function from non-gpl ",
    "unreleased reference id=",
    "math between * pointer and register",
    "memory, make sure to bounds check",
    "expected pointer to ctx, but got ",
];

/// Messages that a loader prints only when the step failed. `failed to load` alone is not in the
/// list: tools that lack a file print it, too.
pub(super) const LOADER_MESSAGES: &[LoaderMessages] = &[
    // The kernel's verifier (kernel/bpf/verifier.c; newer kernels replace the first text by the
    // second). Most loaders quote it.
    LoaderMessages { step: Step::Load, phrases: OF_VERIFIER },
    // libbpf (src/libbpf.c and src/btf.c, 1.5.0 and 1.7.0).
    LoaderMessages { step: Step::Open, phrases: &["failed to find valid kernel btf", "error loading vmlinux btf: "] },
    LoaderMessages {
        step: Step::Load,
        phrases: &[
            "btf loading error: ",
            "error loading .btf into kernel: *can't proceed",
            "failed to perform co-re relocations: ",
            "extern (* ksym) '*': not found in kernel",
            "map '*': failed to create: ",
            "map '*': failed to create inner map: ",
            "prog '*': failed to find kernel btf type id of ",
            "prog '*': bpf program load failed: ",
            "prog '*': -- begin prog load log --",
            "-- end prog load log --",
            "prog '*': failed to load: ",
            "failed to load bpf skeleton '",
            "failed to load object '",
        ],
    },
    // libbpf, the same files, and src/usdt.c.
    LoaderMessages {
        step: Step::Attach,
        phrases: &[
            "prog '*': failed to create * perf event: ",
            "prog '*': failed to create bpf link for perf_event fd ",
            "prog '*': failed to find a unique match for ",
            "prog '*': failed to attach",
            "prog '*': failed to auto-attach: ",
            "map '*': failed to auto-attach: ",
            "usdt: failed to attach uprobe ",
        ],
    },
    // bpftool (src/prog.c, src/cgroup.c, src/iter.c, src/net.c, src/struct_ops.c, 7.5.0 and 7.7.0).
    LoaderMessages { step: Step::Open, phrases: &["failed to open object file"] },
    LoaderMessages { step: Step::Load, phrases: &["failed to load object file", "can't load objfile "] },
    LoaderMessages {
        step: Step::Attach,
        phrases: &[
            "failed to attach program",
            "failed prog attach to map",
            "attach_iter failed for program ",
            "interface * attach failed: ",
            "can't register struct_ops ",
        ],
    },
    // libbpf-tools (libbpf-tools/ of bcc, 0.37.0), and tools that follow their example.
    LoaderMessages { step: Step::Open, phrases: &["failed to open bpf object", "failed to open bpf skel"] },
    LoaderMessages {
        step: Step::Load,
        phrases: &[
            "failed to load bpf object",
            "failed to load bpf program",
            "failed to load bpf skel",
            "failed to open and/or load bpf object",
            "failed to load and open bpf object",
            "failed to load and verify bpf skeleton",
        ],
    },
    LoaderMessages {
        step: Step::Attach,
        phrases: &[
            "failed to attach bpf ",
            "failed to attach kprobe: ",
            "failed to attach kretprobe: ",
            "failed to attach uprobe: ",
            "failed to attach uretprobe: ",
            "failed to attach perf event on cpu",
            "could not attach kprobe to ",
            "could not attach kretprobe to ",
        ],
    },
    // bcc (src/python/bcc/__init__.py and libbpf.c, bpf_module.cc and api/BPF.cc of src/cc,
    // 0.37.0). It compiles first.
    LoaderMessages { step: Step::Open, phrases: &["failed to compile bpf module "] },
    LoaderMessages { step: Step::Load, phrases: &["bpf: failed to load program: ", "could not open bpf map: "] },
    LoaderMessages {
        step: Step::Attach,
        phrases: &[
            "cannot attach kprobe, ",
            "cannot attach uprobe, ",
            "perf_event_open(*/id): ",
            "bpf_attach_raw_tracepoint (",
            "failed to attach perf event type ",
            "failed to attach lsm",
        ],
    },
    // bpftrace (src/bpfbytecode.cpp, 0.26.1; src/attached_probe.cpp, 0.20.4).
    LoaderMessages {
        step: Step::Load,
        phrases: &[
            "error loading bpf program for ",
            "error loading program: ",
            "unknown bpf object load failure",
            "loading bpf object(s) failed",
            "error: stack size is too large",
            "error: failed to load program, verification log buffer",
        ],
    },
    // bpftrace (src/bpftrace.cpp and src/attached_probe.cpp, 0.26.1; src/attached_probe.cpp, 0.20.4
    // and 0.23.5).
    LoaderMessages {
        step: Step::Attach,
        phrases: &[
            "error: unable to attach probe: ",
            "error attaching probe: ",
            "failed to attach usdt probe: ",
            "failed to create iter probe",
            "failed to attach iter probe",
            "error: could not resolve symbol: ",
        ],
    },
    // aya (aya/src/bpf.rs, aya-obj/src/obj.rs, 0.14.0).
    LoaderMessages { step: Step::Open, phrases: &["error parsing bpf object", "no btf parsed for object"] },
    // aya (aya/src/programs/mod.rs, aya/src/maps/mod.rs, aya-obj/src/btf/btf.rs,
    // aya-obj/src/relocation.rs, 0.14.0; before 0.14.0 the system call `failed`), as `Display` and
    // as `main` print it.
    LoaderMessages {
        step: Step::Load,
        phrases: &[
            "the bpf_prog_load syscall returned ",
            "the bpf_prog_load syscall failed. verifier output: ",
            "the bpf_btf_load syscall returned ",
            "loaderror { io_error",
            "failed to create map `",
            "error relocating function",
            "error relocating section",
            "error relocating `",
        ],
    },
    // aya (calls of aya/src/programs/{probe,perf_attach,perf_event,trace_point,utils,xdp}.rs and
    // aya/src/sys/bpf.rs, 0.14.0), as above.
    LoaderMessages {
        step: Step::Attach,
        phrases: &[
            "`perf_event_open` failed",
            "`perf_event_open_trace_point` failed",
            "`perf_event_ioc_set_bpf` failed",
            "`bpf_link_create` failed",
            "`bpf_prog_attach` failed",
            "`bpf_raw_tracepoint_open` failed",
            "call: \"perf_event_open\"",
            "call: \"perf_event_open_trace_point\"",
            "call: \"perf_event_ioc_set_bpf\"",
            "call: \"bpf_link_create\"",
            "call: \"bpf_prog_attach\"",
            "call: \"bpf_raw_tracepoint_open\"",
        ],
    },
    // cilium/ebpf (elf_reader.go and btf/kernel.go, 0.22.0).
    LoaderMessages {
        step: Step::Open,
        phrases: &["load relocations: ", "load btf maps: ", "no btf found for kernel version "],
    },
    // cilium/ebpf (prog.go, map.go and collection.go, 0.22.0). `attach Tracing/TraceFEntry` is part
    // of loading the program.
    LoaderMessages {
        step: Step::Load,
        phrases: &[
            "field *: program *: ",
            "field *: map *: ",
            "apply co-re relocations: ",
            "load program: ",
            "map create: ",
            "load btf: ",
            "fixing up kfuncs: ",
            "resolve .ksyms: ",
            "resolve .kconfig: ",
            "attach tracing/*: ",
            "attach lsm/*: ",
            "attach extension/*: ",
            "attach structops/*: ",
        ],
    },
    // cilium/ebpf (link/*.go, internal/tracefs/kprobe.go and examples, 0.22.0).
    LoaderMessages {
        step: Step::Attach,
        phrases: &[
            "opening kprobe: ",
            "opening tracepoint: ",
            "creating perf_kprobe pmu ",
            "creating perf_uprobe pmu: ",
            "creating tracefs event ",
            "creating trace event '*' in tracefs: ",
            "reading trace event id of ",
            "opening tracepoint perf event: ",
            "setting perf event bpf program: ",
            "cannot create bpf perf link: ",
            "couldn't find one or more symbols: ",
            "missing kernel symbol or prog's attachtype not ",
            "create tracing link: ",
            "create raw tracepoint: ",
            "attach program: ",
            "failed to attach link: ",
            "can't link iterator: ",
            "can't create iterator: ",
        ],
    },
];
