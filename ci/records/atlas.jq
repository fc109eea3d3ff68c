# SPDX-License-Identifier: MIT OR Apache-2.0
# The contents of results/atlas/atlas.json, from the results.json of all groups (jq --slurp). The
# last result of a cell counts.
include "results";

# What a guest lacks, if that is why the tool did not become ready; else nothing.
def lacking:
  if test("uprobe target file") then "the guest has no file " + (capture("uprobe target file '(?<file>[^']+)'").file) + " that a uprobe of the tool needs"
  elif test("ldd: not found") then "the guest has no bash and no ldd"
  elif test("has not printed a line that matches") then "it printed nothing that shows that it is ready"
  elif test("failed to init perf sampling|Failed to attach to a hardware event") then "QEMU without KVM has no hardware counters"
  elif test("/cpufreq/") then "guests have no frequency driver"
  elif test("kprobe b'zpl_") then "the kernel has no ZFS"
  elif test("Failed to do precondition check") then "guests run no guests"
  elif test("'ppc64_|hcall_entry") then "the kernel has no hypervisor calls of PowerPC"
  elif test("required tracing events are not available") then
    "the kernel has no CONFIG_PREEMPTIRQ_TRACEPOINTS"
  elif test("directory: '/bin/bash'") then "the guest has no file /bin/bash that a uprobe of the tool needs"
  elif test("could not determine address of symbol \\w+ in (c|ssl|pthread)\\b") then
    "the guest has no /etc/ld.so.cache, in which bcc looks for libraries"
  else empty end;

# The line that tells why, of what the agent saw: of a compiler, or the last one of Python.
def reason:
  (split("its last output: ") | last | split("\n")) as $lines
  | [$lines[] | select(test("^/virtual/\\S+: error: "))][0]
    // ([$lines[] | select(test("^\\w*(Exception|Error): "))] | last)
    // [$lines[] | select(test("fail|error|cannot|no such|not found|not supported|invalid|unknown"; "i"))][0]
    // $lines[-1]
  | sub("^libbpf: "; "") | .[:200];

# The reason of a finding: the line of the verifier, or else that of the tool.
def reason_of:
  if (.evidence | length) > 1 then (.evidence[1] | .[:200]) else (.evidence[0] | reason) end;

def status($kind): [(.tool_result.findings // [])[] | select(.kind == $kind)][0] // {status: "not-evaluated"};

def state:
  must("attach") as $attach
  | if (must("failures") | length) > 0 then
      (.failures[0].failure | must("excerpt") | join("\n")) as $text
      | [$text | lacking][0] as $lacks
      | if $lacks then {state: "not measured", reason: $lacks}
        elif .failures[0].failure.kind == "host" then {state: "not measured", reason: ($text | reason)}
        else {state: "failed", reason: (.failures[0].failure.excerpt[0] | line | .[:200])} end
    elif $attach.outcome == "attached" then
      status("does-not-load") as $load
      | if $load.status == "not-evaluated" then {state: "not measured", reason: ("nothing shows that it loaded: " + $load.reason)}
        else {state: "loads"} end
    elif $attach.outcome == "refused" then
      $attach.refusal.message as $message
      | [$message | lacking][0] as $lacks
      | if $lacks then {state: "not measured", reason: $lacks}
        elif status("does-not-load").status == "found" then {state: "does not load", reason: (status("does-not-load") | reason_of)}
        elif status("does-not-attach").status == "found" then
          {state: "does not attach", reason: (status("does-not-attach") | reason_of)}
        else {state: "does not start", reason: ($message | reason)} end
    else {state: "not measured", reason: ($attach.reason // "unsteady")} end;

def cell:
  (.tool_result.loaded // {programs: []}) as $loaded
  | {target: target} + state
  | if .state == "loads" then . + {
      programs: ($loaded.programs | length),
      verified_instructions: ([$loaded.programs[].code.verified // empty] | if length == 0 then null else add end),
      jited_bytes: ([$loaded.programs[].code.jited_bytes // empty] | if length == 0 then null else add end),
      ready_ms: (($loaded.ready_ns // 0) / 1000000 | floor)
    } else . end;

map(known) as $runs
| ([$runs[] | must("plan").study.tool_files[] | {(.file.name): .file.source.debian[0].package}] | add) as $package
| {
    targets: (reduce ($runs[] | .cells[] | target) as $target ([]; if index([$target]) then . else . + [$target] end)),
    packages: ([$runs[] | .provenance[] | .targets[] | .payload[] | select([.name] | inside([$package[]])) | {(.name): .version}] | add),
    kernels: ([$runs[] | .provenance[] | .targets[] | {(.target | "\(.arch) \(.kernel)"): .kernel.name}] | add),
    tools: ([$runs[] | .cells[] | select(.tool) | . as $cell
      | {name: .tool, cell: (($cell | cell) + {findings: [(.tool_result.findings // [])[]
          | select(.status == "found" and (.kind | IN("does-not-load", "does-not-attach", "does-not-start") | not))
          | {kind, evidence: (.evidence[0] | line)}]})}]
      | group_by(.name) | map({name: .[0].name, package: $package[.[0].name], cells: (map(.cell) | group_by(.target) | map(last))}))
  }
