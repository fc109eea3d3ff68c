// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads program lists: the programs of a Debian package, each as a tool of that name.
//!
//! A program list has what all programs have in common (`[package]`, `[start]`) and one line for
//! each program (`[programs]`). A line has the keys of `[start]` in a tool file, which replace
//! those of the package, and further packages (`with`). Arguments of a line follow those of the
//! package.

use bpfassay_input::document::{self, Field, Invalid, Reported, Section};
use bpfassay_protocol::Arch;

use super::{
    places::{in_the_guest, package},
    report_keys,
    start_keys::{START_KEYS, StartPart, start, start_part},
};
use crate::{
    Stop, TOOL_SCHEMA,
    file::{Debian, DebianPackage, Source, ToolFile},
};

/// Stands for the name of a program in paths and arguments of all programs.
const NAME: &str = "{name}";

/// The keys that apply to all programs of a package.
struct CommonPart {
    suite: String,
    package: String,
    archs: Vec<Arch>,
    program: String,
    start: StartPart,
}

/// Parses a program list from `text`. `origin` names it in messages. The tools are sorted by name.
///
/// # Errors
/// [`Invalid`] with all errors in the text and their places.
pub(crate) fn parse(origin: &str, text: &str) -> Result<Vec<ToolFile>, Invalid> {
    document::read(origin, text, read)
}

fn read(root: &Section<'_, '_>) -> Result<Vec<ToolFile>, Reported> {
    root.only(&["schema", "package", "start", "programs"]);
    root.need("schema", |schema| schema.number(TOOL_SCHEMA..=TOOL_SCHEMA))?;
    let default = StartPart::of_programs();
    let start = root.or("start", default.clone(), |field| start(field, default, false))?;
    let common = root.need("package", |field| {
        let section = field.table()?;
        section.only(&["suite", "name", "arch", "program"]);
        let suite = section.need("suite", package);
        let name = section.need("name", package);
        let archs = section.or("arch", Vec::new(), |field| field.distinct("architecture", Field::name::<Arch>));
        let program = section.need("program", in_the_guest);
        Ok(CommonPart { suite: suite?, package: name?, archs: archs?, program: program?, start })
    })?;
    root.need("programs", |field| {
        let programs = field.table()?;
        let mut tools =
            programs.entries().map(|(name, field)| tool(&common, name, &field)).collect::<Result<Vec<_>, _>>()?;
        tools.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(tools)
    })
}

/// Reads the line of a program.
fn tool(common: &CommonPart, name: &str, field: &Field<'_, '_>) -> Result<ToolFile, Reported> {
    let section = field.table()?;
    field.check_short_name(name)?;
    section.only(&[START_KEYS, &["with", "report"]].concat());
    let with = section.or("with", Vec::new(), |field| field.distinct("package", package));
    let report = section.optional("report", |field| report_keys::read(field, false));
    let defaults = StartPart { arguments: Vec::new(), ..common.start.clone() };
    let StartPart { arguments, environment, privileges, needs, kernel, ready, deadline_ms } =
        start_part(&section, defaults, false)?;
    let from = DebianPackage { suite: common.suite.clone(), package: common.package.clone(), with: with? };
    let program = common.program.replace(NAME, name);
    let of_package = common.start.arguments.iter().map(|argument| argument.replace(NAME, name));
    Ok(ToolFile {
        schema: TOOL_SCHEMA,
        name: name.to_owned(),
        description: format!("{name} of the package {} in {}", common.package, common.suite),
        source: Source::Debian(vec![Debian { archs: common.archs.clone(), kernels: Vec::new(), from, program }]),
        files: Vec::new(),
        arguments: of_package.chain(arguments).collect(),
        environment,
        privileges,
        needs,
        kernel,
        ready,
        deadline_ms,
        stop: Stop::default(),
        report: report?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundled;

    const GOOD: &str = r#"
schema = 1
[package]
suite = "trixie"
name = "scripts"
arch = ["x86_64"]
program = "/usr/bin/{name}"
[start]
arguments = ["/usr/share/{name}"]
deadline = "3min"
[programs]
two = { arguments = ["{name}"], deadline = "9s", with = ["kmod"] }
one = {}
"#;

    fn refusal(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from), "{from}");
        parse("p.toml", &GOOD.replace(from, to)).unwrap_err().to_string()
    }

    #[test]
    fn a_line_completes_what_all_programs_have_in_common() {
        let tools = parse("p.toml", GOOD).unwrap();
        let [one, two] = &tools[..] else { panic!("{tools:?}") };
        assert_eq!(
            (&*one.name, &one.arguments[..], one.deadline_ms),
            ("one", &["/usr/share/one".to_owned()][..], 180_000)
        );
        // `{name}` stands for the name in what all programs have in common only.
        assert_eq!(
            (&two.arguments[..], two.deadline_ms),
            (&["/usr/share/two".to_owned(), "{name}".to_owned()][..], 9_000)
        );
        let Source::Debian(list) = &two.source else { panic!("{two:?}") };
        let [Debian { archs, from, program, .. }] = &list[..] else { panic!("{list:?}") };
        assert_eq!((&archs[..], &**program), (&[Arch::X86_64][..], "/usr/bin/two"));
        assert_eq!((&*from.package, &from.with[..]), ("scripts", &["kmod".to_owned()][..]));
    }

    #[test]
    fn unknown_keys_and_programs_outside_of_the_root_directory_are_refused() {
        assert!(refusal("with =", "wiht =").contains("did you mean `with`?"));
        assert!(refusal("suite = \"trixie\"\n", "").contains("suite"));
        assert!(refusal("schema = 1", "schema = 2").contains("schema"));
        assert!(refusal("\"/usr/bin/{name}\"", "\"../{name}\"").contains("absolute path"));
        assert!(refusal("one = {}", "One = {}").contains("lower-case"));
    }

    #[test]
    fn bundled_program_lists_are_valid_and_no_tool_has_two_descriptions() {
        let tools = bundled::of_packages().unwrap();
        assert!(tools.len() > 100, "{}", tools.len());
        let mut names: Vec<_> = bundled::names().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
