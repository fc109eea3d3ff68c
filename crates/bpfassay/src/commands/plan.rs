// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay plan`: shows what a study would do, and starts nothing.

use std::fmt::Write;

use bpfassay_report::render::count;
use bpfassay_results::plain;
use bpfassay_runner::{AcceleratorTrial, Error, HostSetup, ShellUse, Store, StoreOptions, Testbed};
use bpfassay_study::{Plan, PlannedRun};
use bpfassay_vm::AcceleratorWish;

use crate::{
    cli, estimate,
    exit::{CommandOutcome, SUCCESS},
    selection::{Lacks, lacks, offline, selection, store_options},
};

/// Executes the command.
///
/// # Errors
/// - A usage failure for a study, a tool file, an image or a manifest that cannot be used
/// - An infrastructure failure with `--qemu`, if the cache lacks a guest, or QEMU is missing or
///   does not start
pub(crate) async fn plan(arguments: cli::PlanArgs, global: &cli::Global) -> CommandOutcome {
    let selection = selection(&arguments.selection, &arguments.overlays, global)?;
    let plan = selection.expand(&store_options(global))?;
    if arguments.json {
        super::print_json(serde_json::to_string_pretty(&plan))?;
        return Ok(SUCCESS);
    }
    super::print(&(as_text(&plan) + &lacks_as_text(&lacks(&selection, &plan)?)))?;
    // Use the cache alone: planning downloads and builds nothing.
    let estimate = match Store::open(&StoreOptions { qemu: cli::qemu_of_environment()?, ..offline(global) }) {
        Ok(store) => estimate::lines(&store, &selection, &plan),
        Err(error) => vec![format!("what is to be downloaded is not known: {}", plain::line(&error.to_string()))],
    };
    super::print(&format!("\n{}\n", estimate.join("\n")))?;
    if let Some(source) = arguments.qemu {
        let qemu = source.map_or_else(cli::qemu_of_environment, |source| Ok(Some(source)))?;
        // Use the cache alone: planning downloads and builds nothing.
        let store = Store::open(&StoreOptions { qemu, ..offline(global) })?;
        let testbed = Testbed::provide(&store, &selection, &plan, ShellUse::Without)?;
        let host_setup =
            HostSetup::find(&store, testbed.images, &plan, AcceleratorWish::Auto, AcceleratorTrial::Recorded).await?;
        let mut text = String::new();
        for block in plan.measured_blocks() {
            let (qemu, choice) = host_setup.qemu(block.target.arch).map_err(Error::from)?;
            // Writing to a string cannot fail.
            let reason = plain::line(&choice.reason);
            let _ = writeln!(text, "\n# {}\n# accelerator {}: {reason}", plain::line(&block.id), choice.accelerator);
            for (name, machine) in host_setup.machines(&plan.study, block).map_err(Error::from)? {
                if let Some(name) = name {
                    let _ = writeln!(text, "# {name}");
                }
                let _ = writeln!(text, "{}", plain::line(&machine.shell_command(&qemu.command_line())));
            }
        }
        text.push_str(
            "\nQEMU inherits its sockets and files from bpfassay, among them the initramfs (/dev/fd/903) and the kernel.\n",
        );
        super::print(&text)?;
    }
    Ok(SUCCESS)
}

/// Describes what the kernel lacks; empty if it lacks nothing, or if its configuration is not
/// known.
fn lacks_as_text(lacks: &Lacks) -> String {
    let mut text = String::new();
    for (title, lines) in [
        ("the kernel's .config does not set", &lacks.options),
        ("the kernel's packages have no module", &lacks.modules),
    ] {
        if !lines.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\n{title}:");
            for line in lines {
                let _ = writeln!(text, "  {line}");
            }
        }
    }
    if let Some(without) = lacks.without_nfs() {
        let _ = writeln!(text, "{without}");
    }
    text
}

fn as_text(plan: &Plan) -> String {
    let runs: usize = plan.blocks.iter().map(|block| block.runs.len()).sum();
    let mut text = format!(
        "study {}: {}, {}, {}; clock {}{}{}; scheduling {}; digest {}\n",
        plain::line(&plan.study.name),
        count(plan.cells.len(), "cell"),
        count(plan.blocks.len(), "boot"),
        count(runs, "run"),
        plan.study.clock,
        if plan.study.clock_of_host { " (wall where KVM works)" } else { "" },
        plan.study.model.as_ref().map_or_else(String::new, |model| format!("; model {}", plain::line(&model.name))),
        plan.study.scheduling(),
        &plan.digest
    );
    for line in plan.study.description.trim().lines() {
        let _ = writeln!(text, "  {}", plain::line(line));
    }
    if let Some(shard) = plan.shard {
        let part = plan.part();
        let runs: usize = part.blocks.iter().map(|block| block.runs.len()).sum();
        let targets: Vec<String> =
            part.targets().iter().map(|target| plain::line(&target.to_string()).into_owned()).collect();
        let _ = writeln!(
            text,
            "\n{}: {}, {}, {}, on {}; what follows is that part",
            shard.phrase(),
            count(part.cells.len(), "cell"),
            count(part.blocks.len(), "boot"),
            count(runs, "run"),
            targets.join(", ")
        );
    }
    if let Some(until) = plan.until() {
        let _ = writeln!(
            text,
            "\nboots are added until the intervals of all overheads are within {until}, {} of each at most",
            plan.replicates()
        );
    }
    text.push_str("\ncells:\n");
    let part = plan.part();
    for cell in &part.cells {
        let _ = writeln!(text, "  {}", plain::line(&cell.id));
    }
    text.push_str("\nboots and their runs, in order:\n");
    for block in &part.blocks {
        let order: Vec<String> = block.runs.iter().map(run_as_text).collect();
        let _ = writeln!(text, "  {}: {}", plain::line(&block.id), order.join(", "));
    }
    if !plan.left_out.is_empty() {
        text.push_str("\nleft out:\n");
        for left in &plan.left_out {
            let _ = writeln!(text, "  {}: {}", plain::line(&left.what), plain::line(&left.reason));
        }
    }
    text
}

/// Names what a run measures, and what the run is for.
fn run_as_text(run: &PlannedRun) -> String {
    let what = match (run.control, run.warm_up) {
        (true, _) => " (control)",
        (_, true) if run.spec.until_steady.is_some() => " (warm-up until steady)",
        (_, true) => " (warm-up)",
        _ => "",
    };
    match &run.spec.tool {
        Some(tool) if run.has_reference() => format!("{}{what} beside {}", plain::line(&tool.name), run.spec.probe),
        Some(tool) => format!("{}{what}", plain::line(&tool.name)),
        None => format!("{}{what}", run.spec.probe),
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_study::{Available, Narrowing};
    use bpfassay_tool::{ToolFile, UnderTest};

    use super::*;

    #[test]
    fn runs_of_a_tool_have_its_name() {
        let mut study = bpfassay_study::load("quick").unwrap();
        let text = "schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\nguest = { program = '/a' }\n[report]\n\
                    json-lines = {}\ncounting = 'interval'\nfigures = [{ value = 'n', operations = 'read', unit = 'calls' }]\n";
        study.test_tool(UnderTest::of(ToolFile::parse("t.toml", text).unwrap())).unwrap();
        let plan = bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        let text = as_text(&plan);
        let runs = text.lines().find(|line| line.contains(": ") && line.contains(", mine")).unwrap();
        assert!(runs.contains("none") && runs.contains("mine beside "), "{runs}");
    }
}
