//! Real guests: probes tell the workload from its neighbour.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{guests_wanted, run};
use serde_json::Value;

#[test]
fn a_neighbour_is_never_counted_for_the_workload() {
    if !guests_wanted() {
        return;
    }
    let (_directory, results) = run("neighbour.toml", 0);
    let cells = results["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 9);
    for cell in cells.iter().filter(|cell| cell["probe"] != "none") {
        for access in cell["accesses"].as_array().unwrap() {
            for figure in ["byte_error", "call_error"] {
                let errors = &access[figure]["value"];
                assert!(errors["intervals"].as_u64().is_some_and(|n| n > 0), "{cell:#}");
                assert_eq!(errors["exact"], errors["intervals"], "{figure} of {cell:#}");
                assert_eq!(errors["not_measured"], 0, "{figure} of {cell:#}");
            }
        }
    }
    // It was really there: the tracer counted calls of another cgroup on the same device. Not in every phase: the shortest
    // last a few milliseconds, in which the neighbour need not get its turn.
    for one in results["runs"].as_array().unwrap().iter().filter(|one| one["record"]["outcome"]["probe"] != "none") {
        let figures = &one["record"]["outcome"];
        let others = |edge: &str| -> u64 {
            let rows = figures["whole"][edge]["tracer"]["rows"].as_array().unwrap();
            let foreign =
                |row: &&Value| row["cgroup"] != figures["cgroup"] && row["device"] == figures["mount"]["device"];
            rows.iter().filter(foreign).map(|row| row["calls"].as_u64().unwrap()).sum()
        };
        assert!(others("after") > others("before"), "{}: {:#}", one["record"]["run"], figures["whole"]);
    }
}
