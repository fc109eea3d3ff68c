// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events that programs receive while a study runs, and the commands that are reported with a
//! failed run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use serde_json::Value;

use crate::common::{bpfassay, guests_wanted, printed, results, study};

/// Returns the events of one `run`, each of which must conform to the published schema.
fn events(directory: &Path, arguments: &[&str], code: i32) -> Vec<Value> {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/schema/events-v3.json");
    let schema = serde_json::from_str(&fs::read_to_string(schema).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let output =
        bpfassay(directory).args(["run", "--yes", "--message-format", "json"]).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{}", printed(&output));
    let lines: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        let errors: Vec<String> = validator.iter_errors(line).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{line:#}: {errors:?}");
    }
    lines
}

fn named<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == name).collect()
}

#[test]
fn a_panic_is_named_its_log_kept_and_its_cell_can_be_done_again_alone() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = study("panic.toml");
    let received = events(directory.path(), &[file.to_str().unwrap(), "--output", "out"], 4);
    let runs = results(&directory.path().join("out"))["runs"].take();
    let kinds: Vec<&Value> = runs.as_array().unwrap().iter().map(|run| &run["record"]["outcome"]["kind"]).collect();
    assert_eq!(kinds, ["panic"; 3]);
    let ended = named(&received, "run_ended");
    assert_eq!(ended.iter().map(|event| event["done"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    for event in &ended {
        assert_eq!((&event["outcome"], &event["is_expected"]), (&"failed".into(), &false.into()), "{event:#}");
        let log = fs::read_to_string(directory.path().join(event["log"].as_str().unwrap())).unwrap();
        assert!(log.contains("Kernel panic - not syncing"), "{log}");
    }
    let last = received.last().unwrap();
    assert_eq!((&last["event"], &last["exit_code"]), (&"concluded".into(), &4.into()));

    let command: Vec<&str> = ended[0]["repeat"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    assert_eq!(command[..2], ["bpfassay", "run"]);
    events(directory.path(), &[&command[2..], &["--output", "again"]].concat(), 4);
    let again = results(&directory.path().join("again"));
    let cells: Vec<&Value> = again["cells"].as_array().unwrap().iter().map(|cell| &cell["cell"]).collect();
    assert_eq!(cells, [&ended[0]["cell"]]);
}

#[test]
fn events_report_guests_phases_and_what_was_counted() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = study("smoke.toml");
    let arguments = [file.to_str().unwrap(), "--arch", "x86_64", "--probe", "fexit", "--output", "out"];
    let received = events(directory.path(), &arguments, 0);
    // Stages can come before, between and after the other events.
    let (stages, received): (Vec<Value>, Vec<Value>) =
        received.into_iter().partition(|event| event["event"] == "stage");
    for stage in ["kernel", "guests", "qemu", "measuring", "reporting"] {
        let states: Vec<&Value> =
            stages.iter().filter(|event| event["stage"] == stage).map(|event| &event["state"]).collect();
        assert_eq!((states.first(), states.last()), (Some(&&"begun".into()), Some(&&"ended".into())), "{stage}");
    }
    let names: Vec<&str> = received.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["started", "booting", "ready"]);
    assert_eq!(
        (&received[0]["version"], &received[0]["study"]),
        (&bpfassay_results::event::EVENTS_VERSION.into(), &"smoke".into())
    );
    assert!(received[2]["kernel_release"].as_str().unwrap().starts_with("6.1."), "{}", received[2]);
    let phases: Vec<&Value> = named(&received, "phase").iter().map(|event| &event["phase"]).collect();
    for phase in ["attach", "workload", "tear-down"] {
        assert!(phases.contains(&&phase.into()), "{phases:?}");
    }
    let ended = named(&received, "run_ended");
    assert_eq!(ended.len() as u64, received[0]["runs"].as_u64().unwrap());
    let traced = ended.iter().find(|event| event["cell"].as_str().unwrap().ends_with("_fexit")).unwrap();
    let bytes = traced["bytes"].as_array().unwrap();
    assert!(bytes.iter().any(|figure| figure["workload"]["value"] == 1 << 20), "{traced:#}");
    assert!(bytes.iter().all(|figure| figure["error"]["value"] == 0), "{traced:#}");
    assert_eq!(ended.last().unwrap()["seconds_left"], 0.0);
    let last = received.last().unwrap();
    assert_eq!((&last["event"], &last["exit_code"]), (&"concluded".into(), &0.into()));
}
