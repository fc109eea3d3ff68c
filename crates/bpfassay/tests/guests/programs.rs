// SPDX-License-Identifier: MIT OR Apache-2.0
//! Program sets count what workloads without files report, and any program can be a workload, in
//! real guests.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;

use crate::common::{guests_wanted, run, run_uncounted, run_with, wrong_tools};

/// The workload, its main event, and the smallest number of such events.
const OWN: [(&str, &str, u64); 7] = [
    ("ior", "file-write", 64),
    ("ior", "file-read", 64),
    ("futex", "futex-wake", 600),
    ("tcp", "tcp-send", 400),
    ("tcp", "tcp-receive", 400),
    ("shared-memory", "shmat", 100),
    ("shared-memory", "map-shared", 100),
];

fn events<'a>(results: &'a Value, cell: &str) -> Vec<&'a Value> {
    let runs = results["runs"].as_array().unwrap().iter().filter(|run| run["record"]["cell"] == cell);
    runs.flat_map(|run| run["derived"]["events"].as_array().unwrap()).collect()
}

#[test]
fn program_sets_count_what_the_workload_did() {
    if !guests_wanted() {
        return;
    }
    let tools = tempfile::tempdir().unwrap();
    let names = wrong_tools::build("network-tools", tools.path());
    assert_eq!(names, ["tcp", "tcp-lossy"]);
    let files: Vec<String> =
        names.iter().map(|name| tools.path().join(format!("{name}.toml")).display().to_string()).collect();
    let (_directory, results) = run_with("program-count.toml", &["--tool", &files[0], "--tool", &files[1]], 0);
    let cell = |workload: &str, probe: &str| format!("x86_64_6.12_{workload}_tmpfs_{probe}");
    for (workload, event, least) in OWN {
        let found = events(&results, &cell(workload, "programs"));
        let of_event = || found.iter().filter(|row| row["event"] == event);
        let calls: u64 = of_event().map(|row| row["counted"]["value"]["calls"].as_u64().unwrap()).sum();
        assert!(calls >= least, "{workload} {event}: {calls} calls: {found:#?}");
        for row in of_event() {
            let difference = &row["difference"]["value"];
            for figure in ["calls", "bytes", "errors"] {
                assert_eq!(difference[figure], 0, "{workload}: {row:#}");
            }
        }
        // A task that waits at the barrier leaves its CPU.
        let switches = found.iter().find(|row| row["event"] == "switch").unwrap();
        assert!(switches["counted"]["value"]["calls"].as_u64().unwrap() > 0, "{switches:#}");
    }
    // A single set counts only its own events.
    let alone = events(&results, &cell("futex", "programs+futex"));
    assert!(!alone.is_empty() && alone.iter().all(|row| row["event"].as_str().unwrap().starts_with("futex-")));
    let cells = results["cells"].as_array().unwrap();
    for workload in ["futex", "tcp", "shared-memory"] {
        for probe in ["programs", "programs+futex"] {
            let found = cells.iter().find(|one| one["cell"] == cell(workload, probe).as_str()).unwrap();
            let metric = &found["metrics"][0];
            assert_eq!((&metric["name"], &metric["unit"]), (&"work".into(), &"operations/s".into()));
            assert!(metric["overhead"]["value"].is_object(), "{metric:#}");
        }
    }
    // Figures of TCP are compared with what the workload sent and received.
    let of_tool =
        |tool: &str| &cells.iter().find(|one| one["cell"] == cell("tcp", tool).as_str()).unwrap()["tool_result"];
    let found = |tool: &str| -> Vec<&Value> {
        of_tool(tool)["findings"].as_array().unwrap().iter().filter(|one| one["status"] == "found").collect()
    };
    assert!(found("tcp").is_empty(), "{:#?}", found("tcp"));
    let figures = of_tool("tcp")["figures"].as_array().unwrap();
    let figure = |operation: &str, unit: &str| {
        let is_of = |one: &&Value| one["operations"][0] == operation && one["unit"] == unit;
        let one = figures.iter().find(is_of).unwrap();
        (one["reported"].as_u64().unwrap(), one["really"].as_u64().unwrap())
    };
    for operation in ["send", "receive"] {
        // One program has both ends, and sends 200 messages of 4096 bytes each way.
        assert_eq!(figure(operation, "bytes-returned"), (2 * 200 * 4096, 2 * 200 * 4096), "{operation}");
        let (reported, really) = figure(operation, "calls");
        assert!(reported == really && really >= 400, "{operation}: {reported}, really {really}");
    }
    let [lost] = found("tcp-lossy")[..] else { panic!("{:#?}", found("tcp-lossy")) };
    assert_eq!((&lost["kind"], &lost["certainty"]), (&"counts-too-low".into(), &"bounded".into()), "{lost:#}");
    assert_eq!(lost["evidence"].as_array().unwrap().len(), 4, "{lost:#}");
}

#[test]
fn any_program_is_a_workload() {
    if !guests_wanted() {
        return;
    }
    let (_directory, fio_results) = run_uncounted("fio.toml", 0);
    // One of the commands never ends, on purpose.
    let (_directory, results) = run("commands.toml", 4);
    let of_case = |case: &str| if case == "fio" { &fio_results } else { &results };
    let runs = |case: &str, probe: &str| {
        let cell = format!("x86_64_6.12_{case}_nfs4.2_{probe}");
        let of_cell = move |run: &&Value| run["record"]["cell"] == cell.as_str();
        of_case(case)["runs"].as_array().unwrap().iter().filter(of_cell).collect::<Vec<_>>()
    };
    let fio = runs("fio", "fexit");
    let bytes = fio[0]["derived"]["bytes"].as_array().unwrap();
    assert_eq!(bytes.iter().map(|row| &row["operation"]).collect::<Vec<_>>(), ["read", "write"], "{bytes:#?}");
    for row in bytes {
        // fio's report, the tracer's count and the NFS client's count agree.
        assert_eq!(row["workload"]["value"], 1 << 20, "{row:#}");
        assert_eq!((&row["error"]["value"], &row["mountstats_error"]["value"]), (&0.into(), &0.into()), "{row:#}");
    }
    let of = |case: &str, what: &str| {
        let cells = of_case(case)["cells"].as_array().unwrap();
        let cell = cells.iter().find(|cell| cell["case"] == case && cell["probe"] == "fexit").unwrap();
        cell[what].as_array().unwrap()
    };
    let (of_fio, accuracy) = (of("fio", "metrics"), of("fio", "accuracy"));
    assert_eq!((&of_fio[0]["name"], &of_fio[0]["unit"]), (&"work".into(), &"instructions".into()));
    assert_eq!((accuracy.len(), &accuracy[0]["byte_error"]["value"]["exact"]), (1, &2.into()), "{accuracy:#?}");
    let names = of_fio[1..].iter().map(|metric| metric["name"].as_str().unwrap());
    assert_eq!(
        names.collect::<Vec<_>>(),
        ["write-bandwidth", "write-iops", "write-latency", "read-bandwidth", "read-iops", "read-latency"]
    );
    for metric in of_fio.iter().chain(of("ior", "metrics")) {
        assert!(metric["value"]["value"]["mean"].as_f64() > Some(0.0), "{metric:#}");
        assert!(metric["overhead"]["value"].is_object(), "{metric:#}");
    }
    for probe in ["none", "fexit"] {
        let outcome = &runs("hangs", probe)[0]["record"]["outcome"];
        assert_eq!(outcome["type"], "failed", "{outcome:#}");
        let excerpt = outcome["excerpt"][0].as_str().unwrap();
        assert!(excerpt.contains("/bpfassay/ior passed its deadline and was killed with its cgroup"), "{excerpt}");
    }
}
