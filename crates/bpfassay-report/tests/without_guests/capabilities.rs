// SPDX-License-Identifier: MIT OR Apache-2.0
//! The capabilities with which tools start, in every format; and two tools, compared in words.

use bpfassay_protocol::{
    privileges::{Capability, CapabilitySearch, NeededCapability, Needs},
    tool_job::ToolFigures,
};
use bpfassay_report::{
    derive::derive,
    render::{Screen, Style, markdown, screen, text},
};
use bpfassay_results::{Outcome, Results};
use bpfassay_study::{Available, Narrowing};
use bpfassay_tool::{ToolFile, UnderTest};

use crate::common::{contents_of, figures, not_supported};

fn search(user: u32, had: &[Capability], needs: Needs) -> CapabilitySearch {
    CapabilitySearch { user, had: had.to_vec(), needs, starts: 9 }
}

fn needed(capabilities: &[Capability]) -> Needs {
    let one = |&capability| NeededCapability { capability, without: format!("ended without {capability}") };
    Needs::Capabilities(capabilities.iter().map(one).collect())
}

/// Creates results of the study `capabilities` on x86_64 for the tools `names`. `outcome` returns
/// the search in a run with a tool on a kernel, and whether the tool was refused.
fn results(names: &[&str], outcome: impl Fn(&str, &str) -> (Option<CapabilitySearch>, bool)) -> Results {
    let mut study = bpfassay_study::load("capabilities").unwrap();
    for name in names {
        let file = format!(
            "schema = 1\n[tool]\nname = '{name}'\ndescription = 'x'\n[source]\nbinary = {{ arch = 'x86_64', path = 'a' }}\n"
        );
        study.test_tool(UnderTest::of(ToolFile::parse("t.toml", &file).unwrap())).unwrap();
    }
    let kernels = ["6.1", "6.12", "7.2"].map(str::to_owned).to_vec();
    let plan = bpfassay_study::expand(&study, &Narrowing { kernels, ..Narrowing::default() }, &Available::default());
    derive(&contents_of(plan.unwrap(), |block, run| {
        assert!(run.spec.workload.capabilities);
        let tool = &run.spec.tool.as_ref().unwrap().name;
        let (search, is_refused) = outcome(tool, &block.target.kernel);
        if is_refused {
            let mut refusal = not_supported();
            refusal.capabilities = search.map(Box::new);
            return Outcome::Refused(refusal);
        }
        let mut figures = figures(run.spec.probe, 1.0, 1.0);
        figures.tool = Some(Box::new(ToolFigures { capabilities: search, stop_ns: Some(1), ..ToolFigures::default() }));
        Outcome::Measured(Box::new(figures))
    }))
}

#[test]
fn targets_with_the_same_needs_are_one_line_and_each_capability_has_its_reason() {
    use Capability::{Bpf, Perfmon, SysAdmin};
    let results = results(&["mine"], |_, kernel| match kernel {
        "6.1" => (Some(search(0, &[], Needs::Unknown("with all capabilities, it ended".to_owned()))), true),
        "6.12" => (Some(search(1000, &[Bpf], needed(&[SysAdmin]))), true),
        _ => (Some(search(0, &[], needed(&[Perfmon, Bpf]))), false),
    });
    let front = screen(&results, Screen::default());
    for line in [
        "mine needs: not known: with all capabilities, it ended (x86_64 6.1)\n",
        "mine needs as user 1000 in addition: CAP_SYS_ADMIN (x86_64 6.12)\n",
        "mine needs: CAP_PERFMON, CAP_BPF (x86_64 7.2)\n",
        "it starts as user 1000 with CAP_SYS_ADMIN in addition, and with nothing less; ",
        "the capabilities that it lacks are not known: with all capabilities, it ended; ",
    ] {
        assert!(front.contains(line), "{line}: {front}");
    }
    let text = text(&results, Style::default());
    let table = text.split("capabilities with which tools start").nth(1).unwrap();
    for cell in ["[1] ended without CAP_SYS_ADMIN", "CAP_PERFMON [2], CAP_BPF [3]", "Whether it counts the same"] {
        assert!(table.contains(cell), "{cell}: {table}");
    }
    assert!(markdown(&results).contains("- mine needs: CAP\\_PERFMON, CAP\\_BPF (x86\\_64 7.2)"));
}

#[test]
fn nothing_is_said_where_capabilities_were_not_looked_for() {
    let results = results(&["mine"], |_, _| (None, false));
    assert!(!screen(&results, Screen::default()).contains("needs"));
    assert!(!text(&results, Style::default()).contains("capabilities with which"));
}

#[test]
fn two_tools_are_compared_in_a_sentence_for_each_target_and_three_are_not() {
    let outcome = |tool: &str, kernel: &str| (None, (tool, kernel) == ("new", "6.1"));
    let front = screen(&results(&["old", "new"], outcome), Screen::default());
    for line in [
        "x86_64 6.1, load: `new` does not load, unlike `old`: ",
        "x86_64 7.2, load: `new` has no costs and no other findings to compare\n",
    ] {
        assert!(front.contains(line), "{line}: {front}");
    }
    let of_three = screen(&results(&["old", "new", "third"], outcome), Screen::default());
    assert!(!of_three.contains("unlike"), "{of_three}");
}
