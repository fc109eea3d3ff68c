# results.json without what describes only one execution of the study: the time of day, the machine that it was measured on,
# how long the machine took, and where its files lay. Everything that was measured stays.
def timeless: walk(if type == "object"
  then del(.started_unix_ms, .at_unix_ms, .ready_after_ms, .duration_ms)
  else . end);

timeless
| del(.digest, .journal)
| .provenance |= map(del(.host))
| .boots |= (map(del(.qemu)) | sort_by(.block, .boot))
| .runs |= sort_by(.record.block, .record.run)
