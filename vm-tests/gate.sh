#!/usr/bin/env bash
# In a full system: runs IOR on a mount while the bundled tracer counts, and demands that it counts every byte.
#
#   gate.sh PROBE MOUNT_POINT OUTPUT_DIRECTORY
#
# Writes gate.json and junit.xml to the directory, whatever comes out. Exit status: 0 the gate holds, 1 it does not, 3 the
# kernel refuses the probe configuration, 2 anything else. IOR and TRACER name other programs than those on PATH; the tracer may
# take PATIENCE seconds to end (60).
set -uo pipefail
probe=${1:?usage: gate.sh PROBE MOUNT_POINT OUTPUT_DIRECTORY} mount=${2:?} out=${3:?}
ior=${IOR:-ior} tracer=${TRACER:-bpfassay-tracer}
mkdir -p "$out"
block=$((4 << 20)) transfer=$((256 << 10))

# finish OUTCOME MESSAGE [WRITTEN READ]: the files, and the end.
finish() {
  local status=2
  case $1 in passed) status=0 ;; failed) status=1 ;; refused) status=3 ;; esac
  jq --null-input --arg probe "$probe" --arg kernel "$(uname -r)" --arg outcome "$1" --arg message "$2" \
    --argjson expected "$block" --argjson written "${3:-null}" --argjson read "${4:-null}" \
    '{probe: $probe, kernel: $kernel, outcome: $outcome, message: $message,
      bytes: {expected: $expected, written: $written, read: $read}}' >"$out/gate.json"
  local inner=''
  local text
  text=$(jq --raw-output '.message | @html' "$out/gate.json")
  case $1 in
    passed) ;;
    failed) inner="<failure message=\"$text\"/>" ;;
    refused) inner="<skipped message=\"$text\"/>" ;;
    *) inner="<error message=\"$text\"/>" ;;
  esac
  cat >"$out/junit.xml" <<X
<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="bpfassay gate" tests="1" failures="$((status == 1))" errors="$((status == 2))" skipped="$((status == 3))">
  <testcase classname="$(uname -r)" name="$probe counts every byte">$inner</testcase>
</testsuite>
X
  echo "$1: $2"
  exit "$status"
}

# Bytes of an operation on this mount in a sample: `bytes SAMPLE read|write`.
bytes() {
  jq --arg operation "$2" '[.rows[] | select(.operation == $operation) | .bytes] | add // 0' <<<"$1"
}

coproc TRACER_PROCESS { exec "$tracer" --probe "$probe" --mount "$mount"; }
writer=${TRACER_PROCESS[1]}
exec {from}<&"${TRACER_PROCESS[0]}" {to}>&"$writer" {writer}>&-
IFS= read -r -t 120 -u "$from" line || finish error "the tracer wrote nothing"
case $(jq --raw-output .type <<<"$line") in
  ready) ;;
  refused) finish refused "$(jq --raw-output .message <<<"$line")" ;;
  *) finish error "the tracer began with: $line" ;;
esac

echo "sample before" >&"$to"
IFS= read -r -t 60 -u "$from" before || finish error "the tracer gave no sample before IOR"
"$ior" -a POSIX -w -r -e -t "$transfer" -b "$block" -o "$mount/gate.dat" >"$out/ior.txt" 2>&1 ||
  finish error "IOR failed: $(tail -n 1 "$out/ior.txt")"
echo "sample after" >&"$to"
IFS= read -r -t 60 -u "$from" after || finish error "the tracer gave no sample after IOR"
# It says what it lost, and ends. A tracer that does not end is an error like any other.
exec {to}>&-
timeout "${PATIENCE:-60}" cat <&"$from" >"$out/end.jsonl" || finish error "the tracer did not end with its input"

written=$(($(bytes "$after" write) - $(bytes "$before" write)))
read=$(($(bytes "$after" read) - $(bytes "$before" read)))
if [ "$written" -eq "$block" ] && [ "$read" -eq "$block" ]; then
  finish passed "$block bytes written and read, all counted" "$written" "$read"
fi
finish failed "of $block bytes each, $written were counted as written and $read as read" "$written" "$read"
