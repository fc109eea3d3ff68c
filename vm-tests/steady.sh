# SPDX-License-Identifier: MIT OR Apache-2.0
# Reports how the guest is set up while a phase runs, a line `NAME NUMBER` each. What is or is not so is 1 or 2: no metric is 0.

# threads NAME LABEL PRIORITY: how many there are whose name begins so, and how many have SCHED_FIFO with this priority. Fields of proc_pid_stat(5).
threads() {
  cat /proc/[0-9]*/stat 2>/dev/null | awk -v name="$1" -v label="$2" -v priority="$3" '
    {
      own = $0; sub(/^[0-9]+ \(/, "", own)
      rest = $0; sub(/^.*\) /, "", rest); split(rest, field, " ")
      if (index(own, name) == 1) { all++; if (field[38] == priority && field[39] == 1) fixed++ }
    }
    END { print label, all + 0; print label "-fixed", fixed + 1 }'
}

yes() { if "$@"; then echo 1; else echo 2; fi; }
holds() { [ "$(cat "$1")" = "$2" ]; }

threads nfsd nfsd 10
threads kworker/ kworker 20
threads ksoftirqd/ ksoftirqd 30
set -- $(sed 's/^.*) //' /proc/1/stat)
shift 37
echo "agent $(yes [ "$1 $2" = '1 1' ])"
set -- $(sed 's/^.*) //' /proc/self/stat)
shift 37
echo "workload $(yes [ "$1 $2" = '0 0' ])"
echo "share $(yes holds /proc/sys/kernel/sched_rt_runtime_us -1)"
echo "statistics $(yes holds /proc/sys/vm/stat_interval 3600)"
echo "lists $(yes holds /proc/sys/vm/percpu_pagelist_high_fraction 8)"
single() { holds /proc/sys/net/core/high_order_alloc_disable 1 && grep -q slub_max_order=0 /proc/cmdline; }
echo "single-pages $(yes single)"
quiet() { holds /proc/sys/vm/compaction_proactiveness 0 && holds /proc/sys/vm/dirty_writeback_centisecs 0; }
echo "background $(yes quiet)"
echo "huge-pages $(yes holds /sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs 4294967295)"
echo "dirty $(yes [ "$(cat /proc/sys/vm/dirty_bytes)" != 0 ])"
# Of the pages that the CPU's lists may hold, at least a quarter are there.
echo "free-pages $(yes awk '/^ +count:/ { count += $2 } /^ +high:/ { high += $2 } END { exit !(high > 1000 && count * 4 >= high) }' /proc/zoneinfo)"
