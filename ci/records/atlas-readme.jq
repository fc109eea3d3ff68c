# SPDX-License-Identifier: MIT OR Apache-2.0
# results/atlas/README.md from atlas.json: sentences, and a table of tool × target.

def cell_text: gsub("\\|"; "\\|") | gsub("`"; "'");
def count($one; $many): if . == 1 then "1 \($one)" else "\(.) \($many)" end;
def list: if length < 2 then join("") else (.[:-1] | join(", ")) + " and " + .[-1] end;
def sign: {"loads": "✔", "does not load": "✘ load", "does not attach": "✘ attach", "does not start": "✘ start",
  "failed": "✘ fails", "not measured": "–"}[.];

# Targets in the order of the study.
def in_order($targets): . as $some | $targets | map(select(. as $target | $some | index([$target])));

# All cells, each with its tool.
def cells: [.tools[] as $tool | $tool.cells[] | . + {tool: $tool.name, package: $tool.package}];
# Names of the tools of $package with this state on $target.
def named($package; $target; is): [cells[] | select(.package == $package and .target == $target and is) | .tool];

# One sentence for each package and target: how many load, and which do not. A tool that fails
# later is in the table of reasons only.
def loading($package; $target):
  named($package; $target; .state != "not measured" and .state != "failed") as $measured
  | named($package; $target; .state == "loads") as $loads
  | ($measured - $loads) as $not
  | "On \($target), \($loads | length) of \($measured | length) measured tools of \($package) load"
    + (if $not == [] then "." else "; \($not | map("`\(.)`") | list) \(if ($not | length) == 1 then "does" else "do" end) not." end);

. as $atlas
| .targets as $targets
| ([.tools[].package] | unique) as $packages
| ([cells[]] | length) as $all
| "# Atlas: eBPF tools of Debian on its kernels",
"",
"`bpfassay check` started \(.tools | length | count("tool"; "tools")) of \($packages | map("\(.) \($atlas.packages[.])") | list)",
"on \($targets | length | count("target"; "targets")): \($all) cells, of which \([cells[] | select(.state == "not measured")] | length) are not measured.",
"`ci/records/atlas` wrote these pages, [atlas.csv](atlas.csv) and [index.html](index.html), which can be",
"sorted and searched. Each file in [tools/](tools) has all figures of a tool.",
"",
"A check starts a tool and shows what the verifier makes of its programs. It compares no counts and",
"measures no cost. Kernels: \([$targets[] as $target | "\($target) is \($atlas.kernels[$target])"] | join("; ")).",
"",
"## What was found",
"",
($packages[] as $package | $targets[] as $target
  | select([cells[] | select(.package == $package and .target == $target)] != [])
  | "- " + loading($package; $target)),
"",
"## Reasons",
"",
"| tools | target | what happened |",
"|---|---|---|",
([cells[] | select((.state | startswith("does not")) or .state == "failed")]
  | group_by([.reason, .state]) | sort_by(-length, .[0].reason)[]
  | "| \([.[].tool] | unique | map("`\(.)`") | join(", ")) | \([.[].target] | unique | in_order($targets) | join(", ")) | \(.[0].state): \(.[0].reason | cell_text) |"),
"",
"## Findings",
"",
"| tool | target | finding |",
"|---|---|---|",
([cells[] | . as $cell | .findings[] | {tool: $cell.tool, target: $cell.target, kind, evidence}]
  | group_by([.tool, .kind])[]
  | "| `\(.[0].tool)` | \([.[].target] | in_order($targets) | join(", ")) | \(.[0].kind), on \(.[0].target): \(.[0].evidence | cell_text) |"),
"",
"## Not measured",
"",
"| tools | targets | why |",
"|---|---|---|",
([cells[] | select(.state == "not measured")] | group_by(.reason)[]
  | "| \([.[].tool] | unique | map("`\(.)`") | join(", ")) | \([.[].target] | unique | length) | \(.[0].reason | cell_text) |"),
"",
"## Tools",
"",
"Repeat a cell: `bpfassay check TOOL --arch ARCH --kernel KERNEL`. A cell has the number of verified",
"instructions of all programs of the tool, if the kernel tells it.",
"",
"| tool | \($targets | join(" | ")) |",
"|---|\($targets | map("---|") | join(""))",
(.tools[] | . as $tool
  | "| \(.name) | \([$targets[] as $target | [$tool.cells[] | select(.target == $target)][0]
    | if . == null then "not checked" else (.state | sign) + (if .verified_instructions then " \(.verified_instructions)" else "" end) end] | join(" | ")) |")
