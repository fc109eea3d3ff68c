// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two examples for the end of each command's help. A test parses them.

use crate::exit;

/// Returns the exit codes and `examples`, for `--help`.
pub(super) fn with_codes(examples: &str) -> String {
    format!("{}\n\n{examples}", exit::HELP)
}

/// Returns the exit codes and `examples`, for `--help` of a command that has `--bisect`.
pub(super) fn with_bisect(examples: &str) -> String {
    format!("{}\n\n{}\n\n{examples}", exit::HELP, exit::BISECT_HELP)
}

pub(super) const RUN: &str = "\
Examples:
  bpfassay run quick --arch x86_64        # one architecture of a bundled study
  bpfassay run --tool my.toml --deny all  # a tool on all targets of `quick`";

pub(super) const CHECK: &str = "\
Examples:
  bpfassay check vfsstat-libbpf --kernel 6.1,7.2  # a bundled tool
  bpfassay check my.toml --deny all               # fail on any finding";

pub(super) const HERE: &str = "\
Examples:
  bpfassay here --mount /mnt/nfs                              # a study
  bpfassay here quick --mount /mnt/nfs --tool vfsstat-libbpf  # and a tool";

pub(super) const PLAN: &str = "\
Examples:
  bpfassay plan quick                       # cells, boots and runs
  bpfassay plan quick --arch x86_64 --json  # the same for a program";

pub(super) const COMPARE: &str = "\
Examples:
  bpfassay compare before after                       # what changed
  bpfassay compare before after --fail-on regression  # exit with 5 if worse";

pub(super) const TREND: &str = "\
Examples:
  bpfassay trend monday tuesday                   # two results, in order
  bpfassay trend results/quick --format markdown  # along its kernels";

pub(super) const REPORT: &str = "\
Examples:
  bpfassay report results/quick                # report.html in that directory
  bpfassay report results/quick --format text  # all tables on the screen";

pub(super) const VERIFY: &str = "\
Examples:
  bpfassay verify results/quick --sample 2  # measure two of its boots again
  bpfassay verify results/quick --files     # check the files, start nothing";

pub(super) const SHELL: &str = "\
Examples:
  bpfassay shell --arch aarch64 --kernel 6.12  # a guest of one kernel
  bpfassay shell --tool vfsstat-libbpf         # a guest with a bundled tool";

pub(super) const DOCTOR: &str = "\
Examples:
  bpfassay doctor            # check this host
  bpfassay doctor --install  # and install what it lacks";

pub(super) const LIST: &str = "\
Examples:
  bpfassay list studies                 # studies that come with bpfassay
  bpfassay list kernels --arch aarch64  # kernels of one architecture";

pub(super) const TESTBED: &str = "\
Examples:
  bpfassay testbed fetch quick            # make the guests of a study
  bpfassay testbed cache prune --dry-run  # what was not used for long";

pub(super) const CLUSTER: &str = "\
Examples:
  bpfassay cluster submit quick --output out --shards 4  # four nodes
  bpfassay cluster merge quick-merged shard-1 shard-2    # one result";

pub(super) const TOOL: &str = "\
Examples:
  bpfassay tool init my.bpf.o                # print a tool file for an object
  bpfassay tool init my.bt --output my.toml  # write one for a script";

pub(super) const GENERATE: &str = "\
Examples:
  bpfassay generate completions bash             # completions for a shell
  bpfassay generate man ~/.local/share/man/man1  # pages for man(1)";
