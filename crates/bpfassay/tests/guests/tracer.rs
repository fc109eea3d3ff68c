// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tracer as a separate program in real guests, with its filters, durations, merging and
//! metrics endpoint.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;

use crate::common::{guests_wanted, terminal};

/// The input of the guest's shell. One of three parallel tracers counts everything, and the others
/// one cgroup on one mount. Two workloads run in that cgroup: one has known figures, and the other
/// moves data by every path. Further workloads must be left out by the filters: another cgroup on
/// the same mount, and the same cgroup on another mount.
const SESSION: &str = r"
dmesg -n 1; ip link set lo up 2>/dev/null; ifconfig lo up 2>/dev/null
mkdir -p /sys/fs/cgroup/job /run/t; cd /run/t; mkfifo all some pair
/bpfassay/tracer --probe fexit --latency --listen 127.0.0.1:9435 <all >all.json 2>all.err &
/bpfassay/tracer --probe fexit --cgroup /sys/fs/cgroup/job --mount /mnt/nfs --merge <some >some.json 2>some.err &
/bpfassay/tracer --probe kretprobe --latency --cgroup /sys/fs/cgroup/job --mount /mnt/nfs <pair >pair.json 2>pair.err &
exec 3>all 4>some 5>pair
for t in all some pair; do n=0; until grep -q attached $t.json || test $n = 60; do sleep 1; n=$((n+1)); done; done
sample() { echo sample $1 >&3; echo sample $1 >&4; echo sample $1 >&5; for t in all some pair; do n=0; until grep -q '\x22label\x22:\x22'$1'\x22' $t.json || test $n = 60; do sleep 1; n=$((n+1)); done; done; }
job() { sh -c 'echo $$ >/sys/fs/cgroup/job/cgroup.procs; exec \x22$@\x22' job \x22$@\x22; }
sample begin
job /bpfassay/ior -a POSIX -w -r -t 64k -b 1m -o /mnt/nfs/known >ior.log 2>&1
sample known
dd if=/dev/zero of=/mnt/nfs/other bs=64k count=4 2>dd.err
job dd if=/dev/zero of=/run/t/elsewhere bs=64k count=4 2>>dd.err
mkdir /mnt/nfs/paths; job /bpfassay/ior io-paths /mnt/nfs/paths 16384 summary.json >paths.log 2>&1
sample end
wget -q -O metrics http://127.0.0.1:9435/metrics; echo wget $? >>all.err
echo; for f in all.json some.json pair.json metrics all.err some.err pair.err ior.log paths.log; do echo; echo FILE $f; cat $f; done; echo; echo CGROUP $(stat -c %i /sys/fs/cgroup/job)";

/// The files of the session.
struct Guest {
    files: BTreeMap<String, String>,
    cgroup: u64,
}

fn sort(lines: &[String]) -> Guest {
    let mut guest = Guest { files: BTreeMap::new(), cgroup: 0 };
    let mut name = String::new();
    for line in lines {
        if let Some(file) = line.strip_prefix("FILE ") {
            file.clone_into(&mut name);
        } else if let Some(id) = line.strip_prefix("CGROUP ") {
            guest.cgroup = id.parse().unwrap();
        } else {
            let text = guest.files.entry(name.clone()).or_default();
            text.push_str(line);
            text.push('\n');
        }
    }
    guest
}

impl Guest {
    fn sample(&self, file: &str, label: &str) -> Vec<Value> {
        let lines = self.files[file].lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let sample = lines.into_iter().find(|line| line["label"] == label);
        let sample = sample.unwrap_or_else(|| panic!("no sample {label} in {file}: {:#?}", self.files));
        sample["rows"].as_array().unwrap().clone()
    }

    /// Returns calls, bytes and errors of an operation of the job on the NFS mount.
    fn of_job(&self, file: &str, label: &str, operation: &str) -> [u64; 3] {
        let rows = self.sample(file, label);
        let mut rows = rows.iter().filter(|row| self.is_job(row) && row["operation"] == operation);
        let row = rows.next();
        assert!(rows.next().is_none(), "{operation} twice in {label} of {file}");
        ["calls", "bytes", "errors"].map(|figure| row.map_or(0, |row| row[figure].as_u64().unwrap()))
    }

    fn is_job(&self, row: &Value) -> bool {
        row["cgroup"] == self.cgroup && row["path"] == "/mnt/nfs"
    }
}

fn less(after: [u64; 3], before: [u64; 3]) -> [u64; 3] {
    std::array::from_fn(|figure| after[figure] - before[figure])
}

fn sum(one: [u64; 3], other: [u64; 3]) -> [u64; 3] {
    std::array::from_fn(|figure| one[figure] + other[figure])
}

/// Returns the value of a series whose labels contain all of `labels`.
fn metric(text: &str, name: &str, labels: &[String]) -> u64 {
    let mut found = text.lines().filter(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')) && labels.iter().all(|l| line.contains(l))
    });
    let line = found.next().unwrap_or_else(|| panic!("no {name} with {labels:?}: {text}"));
    assert!(found.next().is_none(), "{name} with {labels:?} twice: {text}");
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn filters_durations_merging_and_metrics_agree(arch: &str, kernel: &str) {
    if !guests_wanted() {
        return;
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let shell = format!("--arch {arch} --kernel {kernel}");
    let (_, lines) = terminal::session(directory, &shell, &SESSION.replace(r"\x22", "\""));
    let guest = sort(&lines);
    // 16 writes and 16 reads of 64 KiB, and nothing else.
    for file in ["all.json", "some.json", "pair.json"] {
        for operation in ["read", "write"] {
            let of = |label| guest.of_job(file, label, operation);
            assert_eq!(less(of("known"), of("begin")), [16, 1 << 20, 0], "{operation} in {file}: {:#?}", guest.files);
        }
    }
    // Other calls exist, and the filters leave them out.
    let all = guest.sample("all.json", "end");
    let foreign = |path: &str| all.iter().any(|row| row["cgroup"] != guest.cgroup && row["path"] == path);
    let elsewhere = all.iter().any(|row| row["cgroup"] == guest.cgroup && row["path"] != "/mnt/nfs");
    assert!(foreign("/mnt/nfs") && elsewhere, "{all:#?}");
    for file in ["some.json", "pair.json"] {
        let rows = guest.sample(file, "end");
        assert!(rows.len() > 5 && rows.iter().all(|row| guest.is_job(row)), "{file}: {rows:#?}");
    }
    // Check the merging.
    for (plain, vectored) in [("read", "readv"), ("write", "writev")] {
        let apart = guest.of_job("all.json", "end", vectored);
        assert!(apart[0] > 0 && apart[1] > 0, "{vectored}: {apart:?}");
        assert_eq!(guest.of_job("pair.json", "end", vectored), apart, "{vectored}");
        let together = sum(guest.of_job("all.json", "end", plain), apart);
        assert_eq!(guest.of_job("some.json", "end", plain), together, "{plain}");
        assert_eq!(guest.of_job("some.json", "end", vectored), [0; 3], "{vectored}");
    }
    // Each call of the job has a duration, except for files that an open created: the open itself
    // is timed.
    for file in ["all.json", "pair.json"] {
        let rows = guest.sample(file, "end");
        for row in rows.iter().filter(|row| guest.is_job(row) && row["operation"] != "create") {
            let histogram = row["latency"].as_array().unwrap().iter().map(|calls| calls.as_u64().unwrap());
            assert_eq!(histogram.sum::<u64>(), row["calls"].as_u64().unwrap(), "{file}: {row:#}");
        }
    }
    // The endpoint and the sample agree.
    let metrics = &guest.files["metrics"];
    let labels = |operation: &str| {
        [("operation", operation), ("mount", "/mnt/nfs"), ("cgroup", "/job")]
            .map(|(key, value)| format!("{key}=\"{value}\""))
    };
    for operation in ["read", "write", "readv", "writev", "open", "fsync", "mkdir", "unlink", "rename", "rmdir"] {
        let [calls, bytes, errors] = guest.of_job("all.json", "end", operation);
        let of = |name: &str| metric(metrics, name, &labels(operation));
        assert!(calls > 0, "{operation}");
        assert_eq!((of("bpfassay_calls_total"), of("bpfassay_errors_total")), (calls, errors), "{operation}");
        assert_eq!(of("bpfassay_latency_seconds_count"), calls, "{operation}");
        if bytes > 0 {
            assert_eq!(of("bpfassay_bytes_total"), bytes, "{operation}");
        }
    }
}

/// The input of the shell for programs that stay loaded: each tracer attaches, counts a workload in
/// a new cgroup and detaches, three times.
const KEPT: &str = r#"
dmesg -n 1; mkdir -p /run/t; cd /run/t; n=0
until_there() { m=0; until test $(grep -c $1 $n.json) -ge $2 || test $m = 60; do sleep 1; m=$((m+1)); done; }
job() { mkdir /sys/fs/cgroup/$1; echo CGROUP_$1 $(stat -c %i /sys/fs/cgroup/$1) >>cgroups; sh -c 'echo $$ >/sys/fs/cgroup/'$1'/cgroup.procs; exec /bpfassay/ior -a POSIX -w -r -t 64k -b 1m -o /mnt/nfs/'$1 >>ior.log 2>&1; }
round() { echo attach >&3; until_there '"type":"ready' $1; echo sample begin$1 >&3; until_there '"begin'$1'"' 1; job job$n-$1; echo sample end$1 >&3; until_there '"end'$1'"' 1; echo detach >&3; until_there '"type":"ended' $1; }
kept() { rm -f in; mkfifo in; /bpfassay/tracer --keep-loaded --symbol-cache /run/t/symbols --probe $@ <in >$n.json 2>$n.err & exec 3>in; for k in 1 2 3; do round $k; done; exec 3>&-; wait $!; echo $? >$n.status; n=$((n+1)); }
ARGUMENTS
for f in cgroups *.json *.status *.err ior.log; do echo; echo FILE $f; cat $f; done"#;

/// Checks that nothing from earlier attachments shows: no counts, states or losses.
fn programs_that_stay_loaded_count_from_zero(arch: &str, kernel: &str, configurations: &[&str]) {
    if !guests_wanted() {
        return;
    }
    let typed: Vec<String> = configurations.iter().map(|arguments| format!("kept {arguments}")).collect();
    let session = KEPT.replace("ARGUMENTS", &typed.join("\n"));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (_, lines) = terminal::session(directory, &format!("--arch {arch} --kernel {kernel}"), &session);
    let mut guest = sort(&lines);
    let cgroups: BTreeMap<String, u64> = guest.files["cgroups"]
        .lines()
        .filter_map(|line| line.strip_prefix("CGROUP_")?.split_once(' '))
        .map(|(job, id)| (job.to_owned(), id.parse().unwrap()))
        .collect();
    for (number, configuration) in configurations.iter().enumerate() {
        let file = format!("{number}.json");
        let lines = || guest.files[&file].lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let ready: Vec<_> = lines().filter(|line| line["type"] == "ready").collect();
        assert_eq!(ready.len(), 3, "{configuration}: {:#?}", guest.files);
        assert!(ready[0]["load_ns"].as_u64().unwrap() > 0, "{configuration}");
        assert!(ready[1..].iter().all(|again| again.get("load_ns").is_none()), "{configuration}: loaded again");
        assert!(ready[1..].iter().all(|again| again["programs"] == ready[0]["programs"]), "{configuration}");
        assert_eq!(lines().filter(|line| line["type"] == "ended").count(), 3, "{configuration}");
        assert_eq!(guest.files[&format!("{number}.status")].trim(), "0", "{configuration}: {:#?}", guest.files);
        let ids: Vec<u64> = (1..=3).map(|round| cgroups[&format!("job{number}-{round}")]).collect();
        for round in 1..=3 {
            guest.cgroup = ids[round - 1];
            for label in [format!("begin{round}"), format!("end{round}")] {
                let rows = guest.sample(&file, &label);
                let of_others = rows.iter().filter(|row| row["cgroup"] != guest.cgroup);
                let earlier: Vec<_> = of_others.filter(|row| cgroups.values().any(|id| row["cgroup"] == *id)).collect();
                assert!(earlier.is_empty(), "{configuration}, {label}: {earlier:#?}");
            }
            for operation in ["read", "write"] {
                let [before, after] =
                    ["begin", "end"].map(|label| guest.of_job(&file, &format!("{label}{round}"), operation));
                assert_eq!(
                    (before, after),
                    ([0; 3], [16, 1 << 20, 0]),
                    "{configuration}, {operation} of round {round}"
                );
            }
        }
        // A program's misses depend on the kernel, but its maps must lose nothing.
        let of_maps = ["map_insert_failures", "lru_evictions", "ring_buffer_drops"];
        let lost = |losses: &Value| of_maps.iter().any(|count| losses[*count].as_u64().unwrap_or(0) > 0);
        let losses: Vec<_> = lines().filter(|line| line["type"] == "sample" && lost(&line["losses"])).collect();
        assert!(losses.is_empty(), "{configuration}: {losses:#?}");
    }
}

/// vm-tests/kept.toml has the other ways of attaching.
#[test]
fn programs_stay_loaded_on_a_kernel_that_preempts_itself() {
    programs_that_stay_loaded_count_from_zero("x86_64", "7.2", &["kprobe", "fexit+hash-shared"]);
}

#[test]
fn a_service_on_x86_64() {
    filters_durations_merging_and_metrics_agree("x86_64", "6.12");
}

#[test]
fn a_service_on_a_foreign_architecture() {
    filters_durations_merging_and_metrics_agree("aarch64", "7.2");
}
