#!/usr/bin/env bash
# Tests gate.sh with stand-ins for the tracer and IOR: every outcome, its exit status and its files. Needs bash and jq.
set -euo pipefail
cd "$(dirname "$0")"
command -v jq >/dev/null || { echo "left out: the test of gate.sh, which needs jq"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A tracer that counts what WRITTEN and READ say from one sample to the next, or says FIRST_LINE.
cat >"$work/tracer" <<'X'
#!/usr/bin/env bash
echo "${FIRST_LINE-{\"type\":\"ready\"\}}"
n=0
while read -r _ label; do
  echo "{\"type\":\"sample\",\"label\":\"$label\",\"rows\":[
    {\"operation\":\"write\",\"bytes\":$((7 + n * ${WRITTEN:-4194304}))},{\"operation\":\"read\",\"bytes\":$((n * ${READ:-4194304}))},
    {\"operation\":\"open\",\"bytes\":0}]}" | tr -d '\n'
  echo
  n=$((n + 1))
done
echo '{"type":"end"}'
[ -z "${STAYS-}" ] || exec sleep 5
X
cat >"$work/ior" <<'X'
#!/usr/bin/env bash
echo "IOR was told: $*"
exit "${IOR_STATUS:-0}"
X
chmod +x "$work/tracer" "$work/ior"

# expect STATUS OUTCOME JUNIT_ELEMENT [VARIABLE=VALUE …]
expect() {
  local status=$1 outcome=$2 element=$3 found=0
  shift 3
  env "$@" TRACER="$work/tracer" IOR="$work/ior" bash ./gate.sh fexit "$work" "$work/out" >"$work/said" || found=$?
  [ "$found" -eq "$status" ] || { echo "$outcome: exit status $found, not $status: $(cat "$work/said")" >&2; exit 1; }
  [ "$(jq --raw-output .outcome "$work/out/gate.json")" = "$outcome" ]
  [ -z "$element" ] || grep -q "<$element message=" "$work/out/junit.xml"
  [ -n "$element" ] || ! grep -qE '<(failure|error|skipped) ' "$work/out/junit.xml"
  cat "$work/said"
}

expect 0 passed ''
grep -q -- "-b 4194304 -o $work/gate.dat" "$work/out/ior.txt"
[ "$(cat "$work/out/end.jsonl")" = '{"type":"end"}' ]
expect 1 failed failure WRITTEN=4194303
expect 1 failed failure READ=4194305
[ "$(jq .bytes.read "$work/out/gate.json")" = 4194305 ]
expect 3 refused skipped 'FIRST_LINE={"type":"refused","message":"errno 524 <&>"}'
grep -q 'message="errno 524 &lt;&amp;&gt;"' "$work/out/junit.xml"
expect 2 error error 'FIRST_LINE={"type":"sample"}'
expect 2 error error IOR_STATUS=1
expect 2 error error STAYS=yes PATIENCE=1
