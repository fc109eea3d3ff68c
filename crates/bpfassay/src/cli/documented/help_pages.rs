// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages docs/reference/help-*.md, which have the short help of each command.

use std::{env, fs, path::Path};

use clap::{Command, CommandFactory as _};

use crate::cli::Cli;

/// A page, with its title, its commands, and the next page.
struct HelpPage {
    file: &'static str,
    title: &'static str,
    commands: &'static [&'static [&'static str]],
    next: (&'static str, &'static str),
}

const PAGES: &[HelpPage] = &[
    HelpPage {
        file: "help-measure.md",
        title: "Options of `run`, `check` and `here`",
        commands: &[&["run"], &["check"], &["here"]],
        next: ("options that look at results", "help-results.md"),
    },
    HelpPage {
        file: "help-results.md",
        title: "Options of `report`, `compare`, `trend` and `verify`",
        commands: &[&["report"], &["compare"], &["trend"], &["verify"]],
        next: ("options that plan and prepare", "help-prepare.md"),
    },
    HelpPage {
        file: "help-prepare.md",
        title: "Options of `plan`, `shell`, `doctor` and `list`",
        commands: &[&["plan"], &["shell"], &["doctor"], &["list"]],
        next: ("options of `testbed`", "help-testbed.md"),
    },
    HelpPage {
        file: "help-testbed.md",
        title: "Options of `testbed`",
        commands: &[
            &["testbed", "fetch"],
            &["testbed", "lock"],
            &["testbed", "bundle"],
            &["testbed", "payload"],
            &["testbed", "compose"],
            &["testbed", "pack"],
            &["testbed", "check"],
        ],
        next: ("options of the other commands", "help-others.md"),
    },
    HelpPage {
        file: "help-others.md",
        title: "Options of `tool`, `cluster`, `generate` and `testbed cache`",
        commands: &[
            &["tool", "init"],
            &["cluster", "submit"],
            &["cluster", "merge"],
            &["generate"],
            &["testbed", "cache"],
        ],
        next: ("exit codes", "exit-codes.md"),
    },
];

/// The heading of options that every command has.
const COMMON: &str = "\n\nOptions of every command:\n";

/// Returns the short help of the command at `path`, at 80 columns, without the options of every
/// command.
fn help(path: &[&str]) -> String {
    let mut all = Cli::command().term_width(80);
    all.build();
    let command = path.iter().fold(&mut all, |command: &mut Command, name| command.find_subcommand_mut(name).unwrap());
    let text = command.render_help().to_string();
    let Some((before, rest)) = text.split_once(COMMON) else { return text };
    let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
    format!("{before}\n\n{after}")
}

fn page(page: &HelpPage) -> String {
    let mut text = format!(
        "# {}\n\nThis page has the output of `bpfassay COMMAND -h`, which a test compares. `bpfassay help COMMAND`\nexplains \
         each option, and lists more. Every command has `-h`, `-y`, `--offline` and `-v`, too.\n",
        page.title
    );
    for command in page.commands {
        text.push_str(&format!("\n## `{}`\n\n```text\n{}\n```\n", command.join(" "), help(command).trim_end()));
    }
    text + &format!("\nNext: [{}]({}).\n", page.next.0, page.next.1)
}

#[test]
fn pages_have_the_help_of_each_command() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    for of in PAGES {
        let (path, text) = (directory.join(of.file), page(of));
        if env::var_os("BPFASSAY_UPDATE_HELP").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == text, "BPFASSAY_UPDATE_HELP=1 cargo test -p bpfassay pages_have_the_help writes {}", of.file);
    }
    // Each command is on one page.
    let on_pages: Vec<&[&str]> = PAGES.iter().flat_map(|page| page.commands).copied().collect();
    let is_shown = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    let mut missing = Vec::new();
    for command in Cli::command().get_subcommands().filter(is_shown) {
        let name = command.get_name();
        let parts: Vec<&str> = command.get_subcommands().filter(is_shown).map(Command::get_name).collect();
        let paths =
            if parts.is_empty() { vec![vec![name]] } else { parts.iter().map(|part| vec![name, *part]).collect() };
        let is_there = |path: &Vec<&str>| on_pages.iter().any(|known| path.starts_with(known));
        missing.extend(paths.into_iter().filter(|path| !is_there(path)).map(|path| path.join(" ")));
    }
    assert_eq!(missing, Vec::<String>::new(), "commands without a page");
}
