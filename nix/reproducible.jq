# results.json without what describes only one execution of the study: the time of day, the machine that it was measured on,
# how long the machine took, where its files lay, and whether a boot was measured apart (nix/parts.nix). Everything that was measured stays.
def timeless: walk(if type == "object"
  then del(.started_unix_ms, .at_unix_ms, .ready_after_ms, .duration_ms)
  else . end);

timeless
| del(.digest, .journal)
| .provenance |= map(del(.host))
| .boots |= (map(del(.qemu, .reused) | .log = null) | sort_by(.block, .boot))
| .notes |= map(select(contains(" are reused from the store ") | not))
| .runs |= sort_by(.record.block, .record.run)
