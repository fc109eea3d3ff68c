// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the documentation: its commands and options exist, its studies expand, its links have
//! targets.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints what it skips"
)]

mod help_pages;
mod options;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use bpfassay_study::{Available, Narrowing, Study, bundled_studies, expand};
use clap::{CommandFactory as _, Parser as _};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::{Cli, CliCommand, TestbedArgs, TestbedCommand};

/// A page and its path.
struct DocsPage {
    path: PathBuf,
    text: String,
}

impl DocsPage {
    /// Returns the blocks of code in `language`.
    fn code(&self, language: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut wanted = false;
        for event in Parser::new_ext(&self.text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(of))) => {
                    wanted = of.as_ref() == language;
                    if wanted {
                        found.push(String::new());
                    }
                }
                Event::End(TagEnd::CodeBlock) => wanted = false,
                Event::Text(text) if wanted => found.last_mut().unwrap().push_str(&text),
                _ => {}
            }
        }
        found
    }

    fn links(&self) -> Vec<String> {
        let link = |event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.into_string()),
            _ => None,
        };
        Parser::new_ext(&self.text, Options::ENABLE_TABLES).filter_map(link).collect()
    }
}

/// Returns the pages at the top, in docs/ and next to the results; `None`, with a message, if the
/// sources are built without them (Nix).
fn pages() -> Option<Vec<DocsPage>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if !root.join("README.md").exists() {
        println!("SKIPPED: there is no README.md beside these sources");
        return None;
    }
    let mut paths: Vec<_> =
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"].iter().map(|name| root.join(name)).collect();
    let parts = ["tutorial", "how-to", "reference", "explanation"].map(|part| format!("docs/{part}"));
    let folders = ["ci", "docs", "results", "results/quick"].map(str::to_owned);
    for folder in folders.into_iter().chain(parts) {
        let entries = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        paths.extend(entries.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
    }
    Some(paths.into_iter().map(|path| DocsPage { text: fs::read_to_string(&path).unwrap(), path }).collect())
}

/// Returns the arguments of each of our commands in a line of shell.
fn commands(line: &str) -> Vec<Vec<String>> {
    let line = line.split(" #").next().unwrap_or(line);
    let parts = line.split("&&").flat_map(|part| part.split(['|', '>', '<']).next());
    let ours = parts.filter_map(|part| {
        let part = part.trim();
        // In a checkout, cargo calls the command.
        let part = part.replacen("cargo run -- ", "bpfassay ", 1);
        part.starts_with("bpfassay ").then(|| part.split_whitespace().map(str::to_owned).collect())
    });
    ours.collect()
}

/// Checks that the commands in a `line` of shell parse, and that their studies exist. Returns the
/// number of commands that have a study.
fn check(place: &str, line: &str) -> usize {
    let mut count = 0;
    for arguments in commands(line) {
        let cli = Cli::try_parse_from(&arguments).unwrap_or_else(|error| panic!("{place}: {line}: {error}"));
        let study = match &cli.command {
            CliCommand::Run(run) => &run.selection.study,
            CliCommand::Plan(plan) => &plan.selection.study,
            CliCommand::Testbed(TestbedArgs { command: TestbedCommand::Fetch(fetch) }) => &fetch.selection.study,
            _ => continue,
        };
        let is_file = study.ends_with(".toml");
        assert!(is_file || bundled_studies::NAMES.contains(&study.as_str()), "{place}: {line}");
        count += 1;
    }
    count
}

#[test]
fn commands_are_understood() {
    let Some(pages) = pages() else { return };
    let mut count = 0;
    for page in pages {
        for block in page.code("sh") {
            // A command can continue on the next line.
            for line in block.replace("\\\n", " ").lines() {
                count += check(&page.path.display().to_string(), line);
            }
        }
    }
    assert!(count > 20, "only {count} commands were found");
}

/// Returns the lines after the last heading of `help`, which is that of the examples.
fn examples(help: &str) -> Vec<&str> {
    help.rsplit_once("\nExamples:\n").map_or("", |(_, after)| after).lines().collect()
}

#[test]
fn each_help_ends_with_two_examples_that_are_understood() {
    let mut all = Cli::command().term_width(80);
    all.build();
    let ours: Vec<_> = all.get_subcommands().filter(|ours| !ours.is_hide_set() && ours.get_name() != "help").collect();
    assert_eq!(ours.len(), 15);
    for command in ours {
        let name = command.get_name();
        let [mut short, mut long] = [command.clone(), command.clone()];
        let [short, long] = [short.render_help().to_string(), long.render_long_help().to_string()];
        for help in [&short, &long] {
            let examples = examples(help);
            assert_eq!(examples.len(), 2, "{name}: {help}");
            for line in examples {
                assert_eq!(commands(line).len(), 1, "{line}");
                assert_eq!(commands(line)[0][1], name, "{line}");
                check(name, line);
            }
        }
        let bisects = command.get_arguments().any(|argument| argument.get_id() == "bisect");
        assert_eq!(long.contains("With --bisect"), bisects, "{name}: {long}");
        assert_eq!(
            long.contains("\nExit codes:\n    0  "),
            ["run", "check", "compare", "verify"].contains(&name),
            "{name}: {long}"
        );
        // clap does not indent lines that it wraps, so nothing in the lists at the end is wrapped.
        let end = long.split_once("\nExit codes:").map_or("", |(_, end)| end);
        let is_laid_out = |line: &str| line.is_empty() || line.starts_with(' ') || line.ends_with(':');
        assert!(end.lines().skip(1).all(is_laid_out), "{name}: {end}");
    }
}

#[test]
fn studies_expand() {
    let Some(pages) = pages() else { return };
    let mut count = 0;
    for page in pages {
        for text in page.code("toml").iter().filter(|text| text.starts_with("schema = ")) {
            let name = page.path.display().to_string();
            let study = Study::parse(&name, text, &|script| Ok(bundled_studies::script(script).map(str::to_owned)))
                .unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
            let plan = expand(&study, &Narrowing::default(), &Available::default()).unwrap();
            assert!(!plan.cells.is_empty() && plan.left_out.is_empty(), "{name}: {text}");
            count += 1;
        }
    }
    assert!(count >= 3, "only {count} studies were found");
}

#[test]
fn links_lead_somewhere() {
    let Some(pages) = pages() else { return };
    let mut count = 0;
    for page in pages {
        for link in page.links().iter().filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let file = page.path.parent().unwrap().join(link.split('#').next().unwrap());
            assert!(file.exists(), "{}: {link}", page.path.display());
            count += 1;
        }
    }
    assert!(count > 20, "only {count} links were found");
}

/// Returns the crates on which the manifest of a crate depends at build time, without their common
/// prefix.
fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(manifest).unwrap();
    let section = text.split("\n[dependencies]\n").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.strip_prefix("bpfassay-"))
        .map(|rest| rest.split(['.', ' ', '=']).next().unwrap().to_owned())
        .collect()
}

#[test]
fn the_crates_are_those_of_the_architecture() {
    let Some(pages) = pages() else { return };
    let page = pages.iter().find(|page| page.path.ends_with("docs/explanation/architecture.md")).unwrap();
    let rows = page.text.lines().filter_map(|line| line.strip_prefix("| `bpfassay"));
    let table: BTreeMap<String, BTreeSet<String>> = rows
        .map(|row| {
            let (name, rest) = row.split_once('`').unwrap();
            let depends = rest.split('|').nth(2).unwrap();
            let depends =
                depends.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
            (format!("bpfassay{name}"), depends)
        })
        .collect();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let directories = fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path());
    let found: BTreeMap<String, BTreeSet<String>> = directories
        .filter(|path| path.join("Cargo.toml").is_file())
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), dependencies(&path.join("Cargo.toml"))))
        .collect();
    assert_eq!(table, found);
}

#[test]
fn the_readme_is_short() {
    let Some(pages) = pages() else { return };
    let lines = pages[0].text.lines().count();
    assert!(pages[0].path.ends_with("README.md") && lines <= 100, "README.md has {lines} lines, more than 100");
}

/// Every page of docs/ is in the table of contents, and a screen or a few long. Reports link to
/// each finding on one page, which is longer.
#[test]
fn pages_are_short_and_in_the_table_of_contents() {
    let Some(pages) = pages() else { return };
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let contents = pages.iter().find(|page| page.path.ends_with("docs/SUMMARY.md")).unwrap().links();
    let mut count = 0;
    for page in &pages {
        let Ok(name) = page.path.strip_prefix(&docs) else { continue };
        let name = name.to_str().unwrap();
        if !name.contains('/') {
            continue;
        }
        assert_eq!(contents.iter().filter(|link| *link == name).count(), 1, "docs/SUMMARY.md has not {name} once");
        let lines = page.text.lines().count();
        assert!(lines <= 150, "{name} has {lines} lines, more than 150");
        count += 1;
    }
    assert!(count > 40, "only {count} pages were found");
}

#[test]
fn lines_of_shell_are_taken_apart() {
    assert_eq!(
        commands("bpfassay testbed fetch quick && bpfassay --offline run # go"),
        [vec!["bpfassay", "testbed", "fetch", "quick"], vec!["bpfassay", "--offline", "run"]]
    );
    assert_eq!(commands("cargo run -- run | head"), [["bpfassay", "run"]]);
    assert!(commands("ci/test && cargo build").is_empty());
}
