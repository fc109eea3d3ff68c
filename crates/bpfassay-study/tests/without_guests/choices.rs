// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans of studies that leave a choice open, or make it for one part only.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy.toml spares only the test functions themselves")]

use bpfassay_protocol::job::Scheduling;
use bpfassay_study::{Available, Narrowing, Plan, Study, StudyError, expand, plan::file_system_id};

fn parse(clock: &str, file_system: &str, design: &str) -> Result<Study, StudyError> {
    let text = format!(
        r#"schema = 1
name = "choices"
description = "A study for tests."
clock = "{clock}"
probes = ["none", "fexit"]

[[targets]]
arch = "x86_64"
kernels = "6.12"

[[file_systems]]
type = "nfs"

{file_system}

[[workloads]]
name = "w"
options = "-a POSIX -w -r -t 256k -b 4m"

[design]
replicates = 2
seed = 1
{design}
"#
    );
    Study::parse("s.toml", &text, &|_| Ok(None))
}

fn plan(study: &Study) -> Plan {
    expand(study, &Narrowing::default(), &Available::default()).unwrap()
}

/// A study can compare servers with different scheduling. Each is a file system with its own boots.
#[test]
fn a_server_has_its_own_scheduling_where_its_file_system_names_one() {
    let other = |scheduling: &str| {
        parse("instructions", &format!("[[file_systems]]\ntype = \"nfs\"\nscheduling = \"{scheduling}\""), "")
    };
    let plan = plan(&other("kernel").unwrap());
    let servers: std::collections::BTreeMap<_, _> =
        plan.blocks.iter().map(|block| (file_system_id(&block.file_system), block.file_system.scheduling())).collect();
    assert_eq!(servers, [("nfs4.2".to_owned(), None), ("nfs4.2-kernel".to_owned(), Some(Scheduling::Kernel))].into());
    assert_eq!(plan.blocks.len(), 4, "two boots of each");
    let error = other("kernal").unwrap_err().to_string();
    assert!(error.contains("did you mean `kernel`?"), "{error}");
}

#[test]
fn overheads_are_negligible_within_what_the_study_names_or_the_clock_can_show() {
    let margin =
        |clock, design| plan(&parse(clock, "", design).unwrap()).study.design.margin.map(|margin| margin.ppm());
    assert_eq!(margin("instructions", ""), Some(200));
    assert_eq!(margin("wall", ""), None);
    assert_eq!(margin("instructions", "margin = \"1%\""), Some(10_000));
    assert_eq!(margin("wall", "margin = \"1%\""), Some(10_000));
}
