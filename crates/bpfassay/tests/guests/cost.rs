// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of probe configurations, in a real guest under the instruction clock.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints what it skips")]

use std::collections::BTreeMap;

use serde_json::Value;

use crate::common::{guests_wanted, run_uncounted};

/// Calls of each metric, and as many of the other one: 8 MiB by 4 KiB.
const CALLS: u64 = 2048;

fn name(cell: &Value) -> &str {
    cell["tool"].as_str().or(cell["probe"].as_str()).unwrap()
}

/// Returns runs and nanoseconds of a program in the statistics of a cell.
fn time(cell: &Value, program: &str) -> (u64, f64) {
    let times = cell["run_times"].as_array().unwrap();
    let found = times.iter().find(|time| time["program"] == program);
    assert!(found.is_some(), "{program}: {cell:#}");
    let found = found.unwrap();
    (found["runs"].as_u64().unwrap(), found["per_run_ns"]["value"].as_f64().unwrap_or(0.0))
}

#[test]
fn the_cheapest_configuration_is_exact_and_cheaper_than_the_layout_of_the_talk() {
    if !guests_wanted() {
        return;
    }
    let (_directory, results) = run_uncounted("cost.toml", 0);
    let cells = results["cells"].as_array().unwrap();
    let cells: BTreeMap<&str, &Value> = cells.iter().map(|cell| (name(cell), cell)).collect();
    let mut read_costs = BTreeMap::new();
    for (name, cell) in &cells {
        assert_eq!(cell["runs"]["measured"], 1, "{name}: {cell:#}");
        if *name == "none" {
            continue;
        }
        let rows = cell["metrics"].as_array().unwrap().iter().zip(cell["accuracy"].as_array().unwrap());
        for (metric, accuracy) in rows {
            assert_eq!(metric["cost"]["value"]["calls"], CALLS, "{name}: {metric:#}");
            if *name != "fexit-as-tool" {
                for figure in ["byte_error", "call_error"] {
                    let errors = &accuracy[figure]["value"];
                    // An entry probe does not know a call's outcome, but here each call moves all
                    // requested bytes.
                    assert_eq!(
                        (&errors["min"], &errors["max"]),
                        (&0.into(), &0.into()),
                        "{name} {figure}: {accuracy:#}"
                    );
                    assert!(
                        errors["intervals"].as_u64().is_some_and(|intervals| intervals > 0),
                        "{name}: {accuracy:#}"
                    );
                }
            }
            if metric["name"] == "read" {
                read_costs.insert(*name, metric["cost"]["value"]["per_call"]["value"].as_f64().unwrap());
            }
        }
    }
    println!("{read_costs:#?}");
    // The probe has no code on the path of a call, so only noise is left.
    assert!(read_costs["task-io"].abs() < 60.0, "{read_costs:?}");
    // The measured costs are 266, 341, 2494 and 3816. One or two more instructions on the path are
    // no failure, but another lookup is.
    assert!(read_costs["fentry"] < 330.0, "{read_costs:?}");
    assert!(read_costs["fexit"] < 420.0, "{read_costs:?}");
    assert!(read_costs["fentry"] < read_costs["fexit"], "{read_costs:?}");
    assert!(4.0 * read_costs["fexit"] < read_costs["fexit+lru-shared"], "{read_costs:?}");
    assert!(read_costs["fexit+lru-shared"] < read_costs["kretprobe+lru-shared"], "{read_costs:?}");
    // The same programs cost the same, whoever starts them, except for one or two samplings.
    assert!((read_costs["fexit-as-tool"] - read_costs["fexit"]).abs() < 60.0, "{read_costs:?}");

    let of = |name: &str| cells[name];
    assert_eq!(of("none")["run_times"].as_array().unwrap().len(), 0);
    for (name, programs) in [
        ("fexit", &["read_exit", "write_exit"][..]),
        ("fexit-as-tool", &["read_exit", "write_exit"]),
        ("kretprobe+lru-shared", &["read_entry", "read_return", "write_entry", "write_return"]),
    ] {
        for program in programs {
            let (runs, per_run) = time(of(name), program);
            assert!(runs >= CALLS, "{name} {program}: {runs} runs");
            // A nanosecond of this clock is an instruction.
            assert!((10.0..20_000.0).contains(&per_run), "{name} {program}: {per_run}");
        }
    }
    assert!(time(of("fexit"), "read_exit").1 < time(of("fexit+lru-shared"), "read_exit").1);
    let event = &of("fexit")["event_time"];
    assert!(event["events"].as_u64().unwrap() >= 2 * CALLS, "{event:#}");
    assert!(event["per_event_ns"]["value"].as_f64().unwrap() > 10.0, "{event:#}");
    assert_eq!(of("fexit-as-tool")["event_time"], Value::Null);
    // No program runs when data are read or written.
    let seldom = &of("task-io")["event_time"]["per_event_ns"]["value"];
    assert!(seldom.as_f64().unwrap() < 0.2 * event["per_event_ns"]["value"].as_f64().unwrap(), "{seldom:#}");
}
