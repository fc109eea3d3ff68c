// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text of `--help`.

pub(crate) const HELP: &str = "\
Counts file operations in the kernel by eBPF and writes the counters as lines of JSON to standard output.

Standard input takes commands: `sample LABEL` writes a sample with that label at once; its end ends the program, as do
SIGINT and SIGTERM. As a service (--listen, --stay) the program continues after the end of standard input.

Usage: bpfassay-tracer [OPTIONS] --probe CONFIGURATION
       bpfassay-tracer --features
       bpfassay-tracer object [OPTIONS] FILE   (loads your own eBPF object; see `object --help`)

Needs root, or CAP_BPF and CAP_PERFMON (for --listen with paths of cgroups CAP_DAC_READ_SEARCH, too).

Exit status: 0 at a requested end, 2 for invalid arguments, 3 when the kernel refuses the probe
configuration, 1 for anything else.

Options:
      --probe CONFIGURATION  Probe configuration: PROBE[+MAP][@LOADER], for example `fexit` or `fexit+percpu@libbpf`; or
                             sets of programs that summarise calls and times of other things than files, by cgroup:
                             programs[+SET]…, of sched, futex, tcp, shared-memory, files; all without any
      --map MAP              Map layout; overrides the one named in --probe
      --loader LOADER        Loader; overrides the one named in --probe
      --interval INTERVAL    Write a sample at this interval: a number and a unit (us, ms, s, min), for example `2s`
      --cgroup PATH          Count only tasks in this cgroup (v2), given as a directory; tasks in cgroups below it
                             are not counted
      --mount PATH           Count only the mount that PATH is on
      --latency              Measure durations, too, where the probe sees both ends of a call
      --map-entries N        Most keys in the counters' map (for `ringbuf`: events, of 64 bytes each), in place
                             of the layout's own number; keys and events beyond are counted as lost, but by the
                             layout `threads` as of no thread
      --maxactive N          Most calls that a kretprobe watches at once, up to 4096; default: 1024
      --uprobe FILE          A program or library whose functions the probe `uprobe` hooks; of a dynamic program also the
                             libraries with the C library's and MPI-IO's functions, as its dynamic linker lists them; may
                             be given several times; default: the C library
      --function NAME=OTHER  Hook the kernel's function OTHER where the programs name NAME, for kernels that have it under
                             another name; may be given for several NAMEs
      --attach-order N       Hook the functions in an order that follows from N, in place of always the same
      --symbol-cache FILE    Keep in FILE what /proc/kallsyms and the kernel's BTF have of the hooked functions, and read
                             it from there at the next start in the same boot: both are long and slow to read
      --bpf-stats            Let the kernel count runs and run time of every program while this one runs, and report them at
                             the end; costs two readings of the clock per event
      --merge                Count `readv` as `read` and `writev` as `write`
      --listen ADDRESS       Serve the counters to Prometheus at http://ADDRESS/metrics, as OpenMetrics or in the text
                             format 0.0.4: IP:PORT (port 0: any free one, which standard error names), or the path of a
                             Unix socket
      --stay                 Continue after the end of standard input until SIGINT or SIGTERM; --listen implies it
      --keep-loaded          Attach and detach by commands on standard input, `attach` and `detach`, as often as wanted, and count
                             from zero each time; the programs are loaded at the first `attach` and stay loaded
      --features             Write one line with what this kernel offers to eBPF tools, found out by trying; attach
                             nothing
  -h, --help                 Print this
  -V, --version              Print the version
";
