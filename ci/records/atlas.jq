# SPDX-License-Identifier: MIT OR Apache-2.0
# The contents of results/atlas/atlas.json, from the results.json of all groups (jq --slurp): of
# `check`, and of `run vm-tests/atlas.toml`. The latest check of a cell counts. $old has the atlas
# to which they are added, or nothing.
include "results";

# What a guest lacks, if that is why the tool did not become ready; else nothing.
def lacking:
  if test("uprobe target file '/") then "the guest has no file " + (capture("uprobe target file '(?<file>/[^']+)'").file) + " that a uprobe of the tool needs"
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
  | [$lines[] | select(test("^\\S+:[0-9]+:[0-9]+: (fatal )?error: "))][0]
    // ([$lines[] | select(test("^\\w*(Exception|Error): "))] | last)
    // [$lines[] | select(test("fail|error|cannot|no such|not found|not supported|only support|invalid|unknown"; "i"))][0]
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

# The kinds of findings that a check looks for after the tool loaded.
def behaviour: ["does-not-attach", "idle-cpu", "left-behind", "map-full", "memory-held", "missed-probes", "racy-update", "slow-attach", "slow-detach"];

# Why a check could not look for a kind of finding, by kind.
def not_looked_for:
  [(.tool_result.findings // [])[] | select(.status == "not-evaluated" and (.kind | IN(behaviour[]))) | {(.kind): must("reason")}] | add // {};

def cell:
  (.tool_result.loaded // {programs: []}) as $loaded
  | not_looked_for as $not_looked_for
  | {target: target} + state
  | if .state == "loads" then . + {
      programs: ($loaded.programs | length),
      verified_instructions: ([$loaded.programs[].code.verified // empty] | if length == 0 then null else add end),
      jited_bytes: ([$loaded.programs[].code.jited_bytes // empty] | if length == 0 then null else add end),
      ready_ms: (($loaded.ready_ns // 0) / 1000000 | floor),
      not_looked_for: $not_looked_for
    } else . end;

# What was found, except whether the tool loads.
def findings_of: [(.findings // [])[]
  | select(.status == "found" and (.kind | IN("does-not-load", "does-not-attach", "does-not-start") | not))
  | {kind, evidence: (.evidence[0] | line)}];

# Instructions per call on the path of the tool, or why they are not known, and the function with
# most of them.
def costs:
  if must("attach").outcome != "attached" then {costs: {}, mostly: {}} else
    .case as $case | [must("metrics")[] | select(.direct) | {call: (if must("name") == "work" then $case else .name end), direct: .direct}]
    | {costs: (map({(.call): (.direct | figure(must("per_call") | must("mean") | . * 10 | round / 10))}) | add // {}),
       mostly: (map(select(.direct.value.per_call.mean >= 1) | {(.call): (.direct.value.functions | max_by(.per_call) | .function)}) | add // {})} end;

# What the comparison of the figures of the tool with what happened came to, over all workloads.
def counts:
  [.[].tool_result | select(.)] as $results
  | ([$results[] | findings_of[].kind] | unique - (["prototype-differs"] + behaviour)) as $kinds
  | [$results[] | (.figures // [])[]] as $compared
  | [$results[] | (.not_compared // [])[].figure
     | select(. as $text | any($compared[]; . as $one | $text | startswith("`\($one.figure)` (") and endswith(", \($one.unit))")) | not)] as $left
  | if $kinds != [] then $kinds | join(" ")
    elif $compared == [] then null
    elif $left != [] then "compared in part"
    else "nothing found" end;

# What `run` found: costs, counts, and findings, each with the workload of the first.
def of_runs:
  [.[] | must("cells")[] | select(.tool) | {key: "\(.tool) \(target)", cell: .}] | group_by(.key)
  | map({key: .[0].key, value: (map(.cell) | group_by(.case) | map(last)
      | {costs: (map(costs.costs) | add), mostly: (map(costs.mostly) | add), counts: counts,
         findings: (map(.case as $case | (.tool_result // {} | findings_of)[] + {during: $case}) | group_by(.kind) | map(.[0]))})})
  | from_entries;

# The latest of the checks of a cell, and how many of the last checks gave the same (figures). A
# check that is in $old already counts once.
def latest:
  def figures: [.state, .programs, .verified_instructions];
  reduce sort_by(.started_unix_ms)[] as $next (null;
    $next + {runs: (if . == null then $next.runs // 1
      elif .started_unix_ms == $next.started_unix_ms then .runs
      elif figures == ($next | figures) then .runs + 1
      else 1 end)});

map(known) as $all
| [$all[] | select(must("plan").study.name != "atlas")] as $checks
| ([$all[] | select(must("plan").study.name == "atlas")] | of_runs) as $of_runs
| ($old[0] // {targets: [], packages: {}, kernels: {}, tools: []}) as $before
# A tool that no program list has is a seed system.
| ([$checks[] | must("plan").study.tool_files[].file | {(.name): ([.description | capture(" of the package (?<name>\\S+) in ").name][0] // "seed systems")}]
    | add // {}) as $package
| {
    targets: (reduce ($checks[].cells[] | target) as $target ($before.targets; if index([$target]) then . else . + [$target] end)),
    packages: ($before.packages + ([$checks[].provenance[].targets[].payload[] | select([.name] | inside([$package[]])) | {(.name): .version}] | add // {})),
    kernels: ($before.kernels + ([$checks[].provenance[].targets[] | {(.target | "\(.arch) \(.kernel)"): .kernel.name}] | add // {})),
    tools: ([$before.tools[] | {name, package, cell: .cells[]}]
      + [$checks[] | must("started_unix_ms") as $started_unix_ms | .cells[] | select(.tool)
        | {name: .tool, package: $package[.tool], cell: (cell + {$started_unix_ms, findings: (.tool_result // {} | findings_of)})}]
      | group_by(.name) | map(.[-1].name as $name | {name: $name, package: .[-1].package,
          cells: (map(.cell) | group_by(.target) | map(latest + {run: ($of_runs["\($name) \(.[-1].target)"] // (map(.run // empty) | last))}))}))
  }
