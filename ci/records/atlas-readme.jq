# SPDX-License-Identifier: MIT OR Apache-2.0
# results/atlas/README.md from atlas.json: sentences, and a table of tool × target.

def cell_text: gsub("\\|"; "\\|") | gsub("`"; "'");
# The reason without the place of a compiler's error, which differs between versions of a header.
def shared_reason: .reason | sub(":[0-9]+:[0-9]+: (?<error>(fatal )?error: )"; ": \(.error)") | cell_text;
def count($one; $many): if . == 1 then "1 \($one)" else "\(.) \($many)" end;
def list: if length < 2 then join("") else (.[:-1] | join(", ")) + " and " + .[-1] end;
def sign: {"loads": "✔", "does not load": "✘ load", "does not attach": "✘ attach", "does not start": "✘ start",
  "failed": "✘ fails", "not measured": "–"}[.];

# Targets in the order of the study.
def in_order($targets): . as $some | $targets | map(select(. as $target | $some | index([$target])));

# All cells, each with its tool: made once, since each sentence reads them.
def with_cells: . + {every: [.tools[] as $tool | $tool.cells[] | . + {tool: $tool.name, package: $tool.package}]};
def cells: .every;

# Cells with a result: loads, or refused with a reason.
def measured: select(.state != "not measured" and .state != "failed");
def median: sort | (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2 | round;
def grouped: tostring | until(test("\\d{4}(,|$)") | not; sub("(?<a>\\d)(?<b>\\d{3})(?<c>,|$)"; "\(.a),\(.b)\(.c)"));
# Names of the tools that load on $one and are refused on $other.
def lost($one; $other):
  ([cells[] | select(.target == $one and .state == "loads") | .tool]) as $loads
  | [cells[] | select(.target == $other) | measured | select(.state != "loads") | .tool | select(. as $tool | $loads | index([$tool]))];
# Pairs of cells of one tool that loads on both targets.
def pairs($one; $other): [.tools[] | {name, package} + {
    one: [.cells[] | select(.target == $one and .state == "loads")][0],
    other: [.cells[] | select(.target == $other and .state == "loads")][0]} | select(.one and .other)];

# Kinds of calls whose cost is measured (vm-tests/atlas.toml).
def calls: ["write", "read", "tcp", "futex"];
def call: {"write": "write of 4 KiB on NFS", "read": "read of 4 KiB on NFS", "tcp": "message of 1 KiB over TCP with its answer",
  "futex": "hand-over of a futex between two threads and back"}[.];

# Names of tools; the table of tools has those that a long list leaves out.
def names: map("`\(.)`") | (if length > 8 then .[:5] + ["\(length - 5) more"] else . end) | list;

# The oldest and the newest target of each architecture, with the tools lost and gained.
def ends: . as $atlas | .targets | map(split(" ")[0]) | unique[] as $arch
  | [$atlas.targets[] | select(startswith($arch + " "))] | select(length > 1) | .[0] as $old | .[-1] as $new
  | $atlas | {$arch, $old, $new, lost: lost($old; $new), gained: lost($new; $old)};
def series: split(" ")[1];

# A sentence about the tools that add instructions to each call of $kind.
def added($kind):
  [cells[] | select(.target == "x86_64 6.12" and (.run.costs[$kind]? | type) == "number")]
  | [.[] | select(.run.costs[$kind] >= 1)] as $some | select($some != []) | ($some | max_by(.run.costs[$kind])) as $most
  | "On x86_64 6.12, \($some | length) of \(length) tools add instructions, on average, to a \($kind | call): the median of these tools adds \([$some[].run.costs[$kind]] | median | grouped), and `\($most.tool)` adds most, \($most.run.costs[$kind] | round | grouped).";

# What a reader can tell others. Each sentence is left out if the data has nothing for it.
def sentences:
  . as $atlas | [cells[] | measured] as $cells | .targets as $targets
  | [.tools[] | select(any(.cells[]; measured | true)) | {name, refused: any(.cells[]; measured | .state != "loads")}] as $tools
  | "\([$tools[] | select(.refused | not)] | length) of \($tools | length) tools load on every target on which they were measured.",
    ([$targets[] as $target | {$target, cells: [$cells[] | select(.target == $target)]} | select(.cells != [])
       | . + {refused: [.cells[] | select(.state != "loads")]}] | max_by(.refused | length) | select(.refused != [])
     | "Most tools are refused on \(.target): \(.refused | length) of \(.cells | length)."),
    ([$cells[] | select(.state != "loads")] | group_by([.state, shared_reason]) | max_by([.[].tool] | unique | length) | select(. != null)
     | "The reason that most tools share is “\(.[0] | shared_reason)”: \([.[].tool] | unique | names)."),
    ([ends] | select(. != []) | .[0] as $first
     | "\($first.lost | length | count("tool loads"; "tools load")) on \($first.old) and not on \($first.new | series), and \($first.gained | length | count("tool"; "tools")) only on the newer kernel"
       + (.[1:] | map("; \(.lost | length) and \(.gained | length) on \(.arch) (\(.old | series) and \(.new | series))") | join("")) + "."),
    ([$targets[] | select(startswith("x86_64 ")) | . as $one | sub("x86_64"; "aarch64") as $other | $atlas | lost($one; $other)[]]
     | unique | select(. != []) | "\(length | count("tool loads"; "tools load")) on x86_64 and not on aarch64 with the same series: \(names)."),
    ([$cells[] | select(.verified_instructions)] | select(. != []) | max_by(.verified_instructions) as $most
     | "The verifier processes most instructions for `\($most.tool)`: \($most.verified_instructions | grouped) on \($most.target); the median of all cells is \(map(.verified_instructions) | median | grouped)."),
    ([$cells[] | select(.target == "x86_64 6.12" and .ready_ms)] | group_by(.package) | select(length > 1)
     | "On x86_64 6.12, the median tool is ready after " + (map("\(map(.ready_ms) | median | grouped) ms (\(.[0].package))") | list) + " of the instruction clock."),
    ($atlas | added("write")),
    ([cells[] | select(.target == "x86_64 6.12" and (.run.mostly.read? // "" | test("^perf_syscall_")))] | select(length > 1)
     | "On x86_64 6.12, \(length) tools add \(map(.run.costs.read) | min | round) to \(map(.run.costs.read) | max | round) instructions to each read mostly in \(map(.run.mostly.read) | unique | map("`\(.)`") | list), the path of all system calls while a tracepoint of one is in use: \(map(.tool) | names)."),
    ([cells[] | {tool, kind: .findings[].kind}] | group_by(.kind) | select(. != [])
     | "Findings: " + (map("\(.[0].kind) (\([.[].tool] | unique | length | count("tool"; "tools")))") | list)
       + ". [Not every cell](#not-looked-for) was searched for each of them.");

# Sentences below the table of how many tools load.
def loading_sentences:
  (ends | "from \(.old) to \(.new | series)" as $ends
   | (select(.lost != []) | "Lost \($ends): \(.lost | names)."), (select(.gained != []) | "Gained \($ends): \(.gained | names).")),
  ([pairs("x86_64 6.1"; "x86_64 7.3-rc")[] | select(.one.verified_instructions and .other.verified_instructions and .one.programs == .other.programs)]
   | select(. != []) | max_by(.other.verified_instructions / .one.verified_instructions) as $up | min_by(.other.verified_instructions / .one.verified_instructions) as $down
   | ([$up, $down] | unique[]) | "`\(.name)` has \(.one.verified_instructions | grouped) verified instructions on x86_64 6.1 and \(.other.verified_instructions | grouped) on 7.3-rc, for as many programs."),
  ([pairs("x86_64 6.12"; "aarch64 6.12")[] | select(.one.jited_bytes and .other.jited_bytes and .one.programs == .other.programs)]
   | select(. != []) | "On 6.12, \(length | count("tool has"; "tools have")) \(map(.one.jited_bytes) | add | grouped) bytes of machine code on x86_64 and \(map(.other.jited_bytes) | add | grouped) on aarch64, for as many programs.");

# Sentences below the costs.
def cost_sentences:
  added(calls[] | select(. != "write")),
  ([.tools[] | .name as $name | ([.cells[] | select(.target == "x86_64 6.12")][0].run) as $x | ([.cells[] | select(.target == "aarch64 6.12")][0].run) as $a
     | calls[] as $call | select(($x.costs[$call]? | type) == "number" and ($a.costs[$call]? | type) == "number")
     | select($a.costs[$call] >= 100 and $x.costs[$call] > 2 * $a.costs[$call]) | {name: $name, mostly: $x.mostly[$call]}] | unique_by(.name)
   | select(. != []) | "On 6.12, \(length | count("tool costs"; "tools cost")) more than twice as many instructions on x86_64 as on aarch64: \(map(.name) | names). On x86_64 most are in \(map(.mostly) | unique | map("`\(.)`") | list).");

# How many measured tools load, of how many.
def loading($package; $target):
  [cells[] | select(.package == $package and .target == $target)] as $known | [$known[] | measured] as $measured
  | if $known == [] then "not checked" else "\([$measured[] | select(.state == "loads")] | length) of \($measured | length)" end;

with_cells
| . as $atlas
| .targets as $targets
| ([.tools[].package] | unique) as $packages
| ([cells[]] | length) as $all
| "# Atlas: eBPF tools on kernels of Debian",
"",
"`bpfassay check` started \(.tools | length | count("tool"; "tools")) of \($packages | map(. + ($atlas.packages[.] | if . then " \(.)" else "" end)) | list)",
"on \($targets | length | count("target"; "targets")): \($all) cells, of which \([cells[] | select(.state == "not measured")] | length) are not measured.",
"`ci/records/atlas` wrote these pages, [atlas.csv](atlas.csv) and [index.html](index.html), which can be",
"sorted and searched. Each file in [tools/](tools) has all figures of a tool.",
"",
"A check starts a tool and shows what the verifier makes of its programs. [Costs](#costs) come from",
"`bpfassay run vm-tests/atlas.toml`.",
"",
"## What was found",
"",
($atlas | sentences | "- " + .),
"",
"Faults that maintainers can mend have [reports](reports/README.md). [Objects of other projects](peers.md)",
"show what `check` makes of objects that were not written for it. [Two versions](versions.md) of",
"libbpf-tools are compared program by program.",
"",
"## Loading",
"",
"Tools that load, of the tools that are measured and do not fail later. [Reasons](#reasons) has the others.",
"",
"| target | kernel | \($packages | join(" | ")) |",
"|---|---|\($packages | map("---:|") | join(""))",
($targets[] as $target | "| \($target) | \($atlas.kernels[$target]) | \([loading($packages[]; $target)] | join(" | ")) |"),
"",
($atlas | loading_sentences | "- " + .),
"",
"## Reasons",
"",
"| tools | target | what happened |",
"|---|---|---|",
([cells[] | select((.state | startswith("does not")) or .state == "failed")]
  | group_by([shared_reason, .state]) | sort_by(-length, (.[0] | shared_reason))[] | .[0] as $first
  | group_by(.tool) | map({tool: .[0].tool, targets: ([.[].target] | in_order($targets))}) | group_by(.targets)[]
  | "| \(map("`\(.tool)`") | join(", ")) | \(.[0].targets | join(", ")) | \($first.state): \($first | shared_reason) |"),
"",
"## Findings",
"",
"| tool | target | finding |",
"|---|---|---|",
([cells[] | . as $cell | .findings[] | {tool: $cell.tool, target: $cell.target, kind, evidence}]
  | group_by([.tool, .kind])[]
  | "| `\(.[0].tool)` | \([.[].target] | in_order($targets) | join(", ")) | \(.[0].kind), on \(.[0].target): \(.[0].evidence | cell_text) |"),
"",
"## Not looked for",
"",
"A check does not look for prototype-differs, and does not compare what a tool reports. The table counts",
"the cells, of \([cells[] | select(.state == "loads")] | length | grouped) that load, in which bpfassay did not look for a finding. \([cells[] | select(.state == "loads" and .not_looked_for == null)] | length) older cells do not record it.",
"",
"| finding | cells | why |",
"|---|---:|---|",
([cells[] | .not_looked_for // {} | to_entries[]] | group_by([.key, .value])[]
  | "| \(.[0].key) | \(length) | \(.[0].value | cell_text) |"),
"",
"## Costs",
"",
"The figures are instructions on the path of the tool, counted one by one, for each call:",
(calls[] | "- *\(.)*: a \(call)."),
"",
"*counts* tells what came of a comparison of the figures of the tool with what happened. *compared in",
"part*: nothing was found, and a figure was not compared. `-`: the tool file has no figures.",
"`bpfassay run vm-tests/atlas.toml --tool TOOL --arch ARCH` repeats a row.",
"",
"| tool | target | counts | \(calls | join(" | ")) |",
"|---|---|---|\(calls | map("---:|") | join(""))",
([cells[] | select((.run.costs // {}) != {})] | map(. + {is_free: (.run.costs | all(.[]; type == "number" and . < 1))})
  | (map(select(.is_free | not)) | sort_by(.tool)[]
      | . as $cell | "| \(.tool) | \(.target) | \(.run.counts // "-") | \([calls[] as $call | $cell.run.costs[$call] | if type == "string" then cell_text else . // "-" | tostring end] | join(" | ")) |"),
    "",
    (map(select(.is_free)) | group_by(.target)[] | "On \(.[0].target), \(length | count("other tool adds"; "other tools add")) less than one instruction to any of these calls, on average.")),
"",
($atlas | cost_sentences | "- " + .),
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
    | if . == null then "not checked" else (.state | sign) + (if .verified_instructions then " \(.verified_instructions)" else "" end) end] | join(" | ")) |"),
"",
"## Fingerprints",
"",
"A fingerprint is a digest of the state, the number of programs and the verified instructions of each",
"cell. Another machine can compare it. *again* counts the cells of which the last two or more checks",
"gave the same. The bytes of machine code and the times differ a little between boots with other tools:",
"the kernel puts maps and programs at other addresses.",
"",
"| package | target | cells | again | fingerprint |",
"|---|---|---:|---:|---|",
($fingerprints | rtrimstr("\n"))
