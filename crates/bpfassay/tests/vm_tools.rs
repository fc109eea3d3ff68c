//! Other tools under test, as a guest starts, watches and ends them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{bpfassay, guests_wanted, results, said, study};
use serde_json::Value;

#[test]
fn a_tool_is_measured_or_told_why_not() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = study("tools.toml");
    let output = bpfassay(directory.path()).args(["run", "--yes", "--output", "out"]).arg(file).output().unwrap();
    // One of the tools is not in the guest at all, which is the study's fault.
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    let results = results(&directory.path().join("out"));
    let outcome = |name: &str| {
        let runs = results["runs"].as_array().unwrap();
        let run = runs.iter().find(|run| run["record"]["run"].as_str().unwrap().ends_with(name)).unwrap();
        run["record"]["outcome"].clone()
    };

    let works = outcome("_works");
    assert_eq!(works["type"], "measured", "{works:#}");
    let tool = &works["tool"];
    let names = |objects: &Value| -> Vec<String> {
        objects.as_array().unwrap().iter().map(|object| object["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(names(&tool["programs"]).contains(&"read_exit".to_owned()), "{tool:#}");
    assert!(names(&tool["maps"]).contains(&"counters".to_owned()), "{tool:#}");
    // Every program of ours has a link of its own (fexit).
    assert_eq!(tool["links"].as_u64(), Some(tool["programs"].as_array().unwrap().len() as u64));
    assert!(tool["programs"].as_array().unwrap().iter().all(|program| program["memory_bytes"].as_u64() > Some(0)));
    let left = &tool["left_behind"];
    assert_eq!(
        (&left["programs"], &left["maps"], &left["links"]),
        (&Value::Array(vec![]), &Value::Array(vec![]), &0.into())
    );
    assert_eq!(tool["ended"], "ended with exit status 0");
    assert!(tool["ready_ns"].as_u64() > Some(0) && tool["stop_ns"].as_u64() > Some(0), "{tool:#}");
    assert!(tool["resident_bytes"][0].as_u64() > Some(1 << 20), "{tool:#}");
    // It sleeps while nothing happens.
    let time = &tool["processor_us"];
    assert!(time["idle_ns"].as_u64() >= Some(1_000_000_000), "{tool:#}");
    assert!(time["idle"].as_u64().unwrap() - time["ready"].as_u64().unwrap() < 10_000, "{tool:#}");

    let ends = outcome("_ends");
    assert_eq!(ends["type"], "refused", "{ends:#}");
    let message = ends["message"].as_str().unwrap();
    assert!(message.starts_with("ended with exit status 2 before it was ready"), "{message}");
    assert!(message.contains("unknown probe `nonsense`"), "{message}");
    let cell = results["cells"].as_array().unwrap().iter().find(|cell| cell["tool"] == "ends").unwrap();
    assert_eq!(cell["attach"]["outcome"], "refused", "{:#}", cell["attach"]);

    let missing = outcome("_missing");
    assert_eq!(missing["type"], "failed", "{missing:#}");
    assert!(missing["telling"][0].as_str().unwrap().contains("cannot start /bpfassay/no-such-tool"), "{missing:#}");
}
