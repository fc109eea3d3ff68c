// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that every option in a message, a help text or a page exists: in the command with which
//! it is named, or in one of the listed programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use clap::{Command, CommandFactory as _};
use proc_macro2::{TokenStream, TokenTree};
use pulldown_cmark::{Event, Options, Parser};

use super::pages;
use crate::cli::Cli;

/// Options of other programs. A text can name them if it, or the name of its file, has the program.
const OTHERS: &[(&str, &[&str])] = &[
    ("apt-get", &["no-install-recommends", "print-uris"]),
    ("bpfassay-guest", &["external-ior", "job", "mount"]),
    ("bpfassay-ior", &["mmap", "node", "posix", "random-offset-seed", "ranks", "record", "version"]),
    // A test of that crate compares its page with its options.
    (
        "bpfassay-spans",
        &[
            "batch",
            "delay",
            "endpoint",
            "flush",
            "help",
            "library",
            "no-system-calls",
            "parsed",
            "patience",
            "protocol",
            "queue",
            "ring-bytes",
            "spans",
            "uprobes",
        ],
    ),
    ("bpfassay-workload", &["node", "ranks", "record", "version"]),
    ("cargo", &["all-targets", "dry-run", "features", "git", "locked", "no-deps", "release", "version", "workspace"]),
    ("chaos", &["faults", "guests", "list", "manifest", "markdown", "once", "only", "parallel", "seed", "verbose"]),
    ("ci/release/make", &["no-cross", "no-image", "no-packages"]),
    ("ci/bare", &["offline", "root", "user"]),
    ("ci/test", &["all"]),
    ("dpkg", &["show", "showformat"]),
    (
        "fio",
        &[
            "bs",
            "create_on_open",
            "directory",
            "end_fsync",
            "fallocate",
            "filename",
            "ioengine",
            "name",
            "output-format",
            "randrepeat",
            "rw",
            "size",
            "stonewall",
            "thread",
        ],
    ),
    ("genhtml", &["branch-coverage"]),
    ("jube", &["error", "outpath", "result"]),
    ("mount", &["bind", "make-rprivate", "rbind"]),
    ("mpirun", &["oversubscribe"]),
    ("nix", &["builders", "max-jobs", "rebuild"]),
    // The option belongs to rustc.
    ("payload", &["remap-path-prefix"]),
    ("salloc", &["no-kill", "time"]),
    ("srun", &["cpus-per-task", "mpi", "partition"]),
    ("systemctl", &["now"]),
    ("xz", &["decompress", "keep"]),
];

/// Crates whose messages users do not read: the tests of the project.
const NOT_SHOWN: [&str; 2] = ["bpfassay-chaos", "bpfassay-fuzz"];

/// The options that are allowed in a text.
struct AllowedOptions {
    bpfassay: Command,
    /// Options of all commands together.
    any: BTreeSet<String>,
    others: BTreeMap<&'static str, BTreeSet<String>>,
}

fn of(command: &Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(|argument| argument.get_long().map(str::to_owned));
    own.chain(["help".to_owned()]).collect()
}

fn of_all(command: &Command) -> BTreeSet<String> {
    command.get_subcommands().fold(of(command), |all, inner| all.union(&of_all(inner)).cloned().collect())
}

impl AllowedOptions {
    fn new() -> Self {
        let mut bpfassay = Cli::command();
        // Adds the common options to every command.
        bpfassay.build();
        let set = |options: &[&str]| options.iter().map(|&option| option.to_owned()).collect();
        let mut others: BTreeMap<_, BTreeSet<String>> =
            OTHERS.iter().map(|(name, options)| (*name, set(options))).collect();
        others.insert("bpfassay-tracer", of_tracer());
        others.insert("tracer", of_tracer());
        Self { any: of_all(&bpfassay), bpfassay, others }
    }

    /// Returns the options in `text` that do not exist.
    fn unknown(&self, text: &str) -> Vec<String> {
        // Text between backquotes is a command by itself. So is the text from the command's name to
        // the end of a sentence.
        text.split('`').flat_map(|part| part.split([';', '\n'])).flat_map(|part| self.unknown_in(part, text)).collect()
    }

    fn unknown_in(&self, part: &str, whole: &str) -> Vec<String> {
        // `cluster submit` passes these arguments on to `run`.
        if let Some((own, for_run)) =
            part.split_once(" -- ").filter(|(own, _)| own.contains("bpfassay cluster submit "))
        {
            let for_run = format!("bpfassay run {for_run}");
            return [self.unknown_in(own, whole), self.unknown_in(&for_run, whole)].concat();
        }
        let mut missing = options(part);
        let arguments: Vec<&str> = part.split_whitespace().collect();
        let start = arguments.iter().position(|argument| *argument == "bpfassay").map_or(0, |at| at + 1);
        let mut command = &self.bpfassay;
        for argument in arguments.iter().skip(start).filter(|argument| !argument.starts_with('-')) {
            match command.find_subcommand(argument) {
                Some(inner) => command = inner,
                None => break,
            }
        }
        let is_command = !std::ptr::eq(command, &self.bpfassay);
        let expected = if is_command { of(command) } else { self.any.clone() };
        missing.retain(|option| !expected.contains(option));
        // Other programs are named somewhere in the same text, which can be long.
        let is_of_other = |option: &str| {
            let mut others = self.others.iter().filter(|(_, of)| of.contains(option));
            others.any(|(name, _)| has_name(whole, name))
        };
        missing.retain(|option| !is_of_other(option));
        missing
    }
}

/// Returns the options that the tracer's parser accepts: the names in its arms `Long("NAME")`.
fn of_tracer() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in sources("bpfassay-tracer") {
        let text = fs::read_to_string(file).unwrap();
        found.extend(text.split("Long(\"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned));
    }
    assert!(found.contains("probe"), "the tracer's parser is written in another way: {found:?}");
    found
}

fn has_name(text: &str, name: &str) -> bool {
    text.split(|c: char| c.is_whitespace() || "`(),;:.'\"".contains(c))
        .any(|found| found.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('/')))
}

/// Returns the names of options in `text`: `--name`, at the beginning of a word.
fn options(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("--") {
        let before = text[..at].chars().next_back();
        let name: String = text[at + 2..]
            .chars()
            .take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(*c))
            .collect();
        // Skip `var(--ink)` of a style sheet, rules of tables, and dashes.
        let is_style = text[..at].ends_with("var(");
        let begins = before.is_none_or(|c| c.is_whitespace() || "`(\"'[|/".contains(c));
        if begins && !is_style && name.starts_with(|c: char| c.is_ascii_lowercase()) {
            found.push(name.trim_end_matches('-').to_owned());
        }
    }
    found
}

fn sources(name: &str) -> Vec<PathBuf> {
    fn below(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let is_test = path
                .file_stem()
                .is_some_and(|stem| ["tests", "test_support", "documented"].iter().any(|name| stem == *name));
            if path.is_dir() && !is_test {
                below(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") && !is_test {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src"), &mut found);
    found
}

/// Collects the texts among the literals of `tokens`, except for tests and comments: a single word
/// is an argument, not a message.
fn texts(tokens: TokenStream, found: &mut Vec<String>) {
    let mut is_test = false;
    let mut is_attribute = false;
    for token in tokens {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => is_attribute = true,
            TokenTree::Group(group) if std::mem::take(&mut is_attribute) => {
                let text = group.stream().to_string();
                is_test |= text.replace(' ', "") == "cfg(test)";
                // Messages of errors are attributes; comments are skipped.
                if text.starts_with("error") {
                    texts(group.stream(), found);
                }
            }
            TokenTree::Group(group) if is_test => is_test = group.delimiter() != proc_macro2::Delimiter::Brace,
            TokenTree::Group(group) => texts(group.stream(), found),
            TokenTree::Punct(punct) if punct.as_char() == ';' => is_test = false,
            TokenTree::Literal(literal) if !is_test => {
                let text = literal.to_string();
                if text.contains('"') && text.contains(' ') {
                    found.push(text.replace("\\n", "\n"));
                }
            }
            _ => {}
        }
    }
}

fn report(unknown: Vec<(String, Vec<String>)>, count: usize, least: usize) {
    let text: String =
        unknown.iter().map(|(place, options)| format!("{place}: --{}\n", options.join(", --"))).collect();
    assert!(unknown.is_empty(), "options that do not exist are named:\n{text}");
    assert!(count >= least, "only {count} options were found");
}

#[test]
fn options_of_messages_exist() {
    let known = AllowedOptions::new();
    let (mut unknown, mut count) = (Vec::new(), 0);
    let crates = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
    for name in crates.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        if NOT_SHOWN.contains(&name.as_str())
            || !Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(&name).join("src").is_dir()
        {
            continue;
        }
        for file in sources(&name) {
            let tokens: TokenStream = fs::read_to_string(&file).unwrap().parse().unwrap();
            let mut found = Vec::new();
            texts(tokens, &mut found);
            for text in found {
                // Messages of the tracer and the guest's programs name their own options.
                let program = if name == "bpfassay" { "" } else { &name };
                let text = format!("{text} ({program} {})", file.file_name().unwrap().display());
                count += options(&text).len();
                let missing = known.unknown(&text);
                if !missing.is_empty() {
                    unknown.push((format!("{}: {text}", file.display()), missing));
                }
            }
        }
    }
    report(unknown, count, 50);
}

#[test]
fn options_of_help_exist() {
    fn of_command(command: &mut Command, known: &AllowedOptions, found: &mut Vec<(String, Vec<String>)>) -> usize {
        let text = command.render_long_help().to_string();
        let unknown = known.unknown(&text);
        if !unknown.is_empty() {
            found.push((command.get_name().to_owned(), unknown));
        }
        let inner: usize = command.get_subcommands_mut().map(|inner| of_command(inner, known, found)).sum();
        inner + options(&text).len()
    }
    let known = AllowedOptions::new();
    let mut unknown = Vec::new();
    let count = of_command(&mut known.bpfassay.clone(), &known, &mut unknown);
    report(unknown, count, 50);
}

#[test]
fn options_of_pages_exist() {
    let Some(pages) = pages() else { return };
    let known = AllowedOptions::new();
    let (mut unknown, mut count) = (Vec::new(), 0);
    for page in pages {
        for event in Parser::new_ext(&page.text, Options::ENABLE_TABLES) {
            let (Event::Code(text) | Event::Text(text)) = event else { continue };
            // The tool's name is in the text around an option.
            for line in text.lines().filter(|line| !options(line).is_empty()) {
                // Skip options of a tool in a tool file, and of the tracer.
                if line.contains("arguments = [") {
                    continue;
                }
                count += options(line).len();
                let paragraph = page.text.split("\n\n").find(|part| part.contains(line)).unwrap_or(line);
                // One page describes another program.
                let about = if page.path.ends_with("docs/how-to/spans.md") { "bpfassay-spans " } else { "" };
                let missing = known.unknown_in(line, &format!("{about}{paragraph}"));
                if !missing.is_empty() {
                    unknown.push((format!("{}: {line}", page.path.display()), missing));
                }
            }
        }
    }
    report(unknown, count, 50);
}

#[test]
fn an_invented_option_is_found() {
    let known = AllowedOptions::new();
    for text in [
        "name another mirror with --debian-mirror URL",
        "run `bpfassay run --testbed nix`",
        "bpfassay testbed fetch --resume DIR",
        "continue with `run --manifest-out FILE`",
        "(--offlin)",
        "apt-get install --yess",
        "testbed pack MANIFEST --spec DIR",
        "install it (--no-install-recommends)",
        "bpfassay cluster submit quick --shards 8 -- --roundz 5",
        "bpfassay cluster submit quick --rounds 8 -- --rounds 5",
    ] {
        assert_eq!(known.unknown(text).len(), 1, "{text}");
    }
    for text in [
        "name another directory with --cache or XDG_CACHE_HOME",
        "`bpfassay --offline run quick --kernel 6.12`",
        "continue with: bpfassay run --resume {}; or begin again with --tool",
        "apt-get install --no-install-recommends {}",
        "| --- | --- |",
        "a -- b",
        "color: var(--ink)",
        "bpfassay testbed check --spec FILE",
        "bpfassay cluster submit quick --shards 8 -- --rounds 5",
    ] {
        assert!(known.unknown(text).is_empty(), "{text}: {:?}", known.unknown(text));
    }
    assert_eq!(options("--a-b=1 x--y --8 [--k|--l] `--m-`"), ["a-b", "k", "l", "m"]);
}

#[test]
fn texts_of_a_source_are_its_messages() {
    let source = r##"
        /// A comment with "--comment one".
        #[error("error --one {}", x)]
        struct E;
        const A: &str = "--argument";
        fn f() { g("message --two", r#"raw --three x"#) }
        #[cfg(test)]
        use a::b;
        fn g() { h("four --four") }
        #[cfg(test)]
        mod tests { const B: &str = "in a test --five"; }
    "##;
    let mut found = Vec::new();
    texts(source.parse().unwrap(), &mut found);
    assert_eq!(found.iter().flat_map(|text| options(text)).collect::<Vec<_>>(), ["one", "two", "three", "four"]);
}
