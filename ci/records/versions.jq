# SPDX-License-Identifier: MIT OR Apache-2.0
# results/atlas/versions.md from $base and $new, the contents of atlas.json of two suites.

def count($one; $many): if . == 1 then "1 \($one)" else "\(.) \($many)" end;
def of($atlas): $atlas[0] | .packages["libbpf-tools"] as $version | .tools[] | .name as $name
  | .cells[] | {key: "\($name) \(.target)", value: (. + {tool: $name, version: $version})};
def change($what; $one; $two):
  if $one == $two or $one == null or $two == null then empty else "\($one) → \($two) \($what)" end;

($base[0].packages["libbpf-tools"]) as $old | ($new[0].packages["libbpf-tools"]) as $young
| ([of($base)] | from_entries) as $before | ([of($new)] | from_entries) as $after
| [$after | keys[] | select($before[.]) | {name: ., one: $before[.], two: $after[.]}] as $pairs
| [$pairs[] | select(.one.state != .two.state and .one.state != "not measured" and .two.state != "not measured")] as $moved
| [$pairs[] | select(.one.state == "loads" and .two.state == "loads")
    | . + {changes: [change("programs"; .one.programs; .two.programs),
        change("verified instructions"; .one.verified_instructions; .two.verified_instructions),
        change("bytes of machine code"; .one.jited_bytes; .two.jited_bytes)]}] as $both
| "# Two versions of libbpf-tools",
"",
"`ci/records/versions` checked the \($pairs | length) programs that libbpf-tools \($old) and \($young) have",
"on \([$pairs[].two.target] | unique | join(", ")). `bpfassay compare` shows each program of a tool.",
"",
"## What loads in one version only",
"",
($moved[] | "- `\(.two.tool)` \(.one.state) in \($old)\(if .one.state == "loads" then "" else " (\(.one.reason | gsub("`"; "'")))" end), and \(.two.state) in \($young)\(if .two.state == "loads" then "" else " (\(.two.reason | gsub("`"; "'")))" end)."),
"",
"## What changed in tools that load in both",
"",
($both[] | select(.changes != []) | "- `\(.two.tool)`: \(.changes | join(", "))."),
"",
"\([$both[] | select(.changes == [])] | length | count("other tool has"; "other tools have")) as many programs, verified instructions and bytes in both versions.",
"\([$pairs[] | select(.one.state == "not measured" or .two.state == "not measured")] | length | count("tool is"; "tools are")) not measured in one version or the other."
