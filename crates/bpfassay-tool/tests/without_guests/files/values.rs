// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of figures and of `[start]` with a special syntax.

use bpfassay_protocol::operation::Variant;

use super::*;

#[test]
fn variants_are_those_of_the_figures_own_operations() {
    let figure = |text: &str| {
        let (head, _) = GOOD.split_once("[report]").unwrap();
        let figure = format!("value = 'n', unit = 'calls', {text}");
        ToolFile::parse(
            "t.toml",
            &format!("{head}[report]\njson-lines = {{}}\ncounting = 'interval'\nfigures = [{{ {figure} }}]\n"),
        )
    };
    let variants = |text: &str| figure(text).unwrap().figures()[0].variants.clone();
    assert_eq!(variants("operations = ['read', 'fsync']"), []);
    assert_eq!(variants("operations = ['read', 'fsync'], variants = 'fdatasync'"), [Variant::Fdatasync]);
    assert_eq!(variants("operations = 'open', variants = ['open', 'exec']"), [Variant::Open, Variant::Exec]);
    let refused = |text: &str| figure(text).unwrap_err().to_string();
    let foreign = refused("operations = ['read', 'fsync'], variants = ['fsync', 'exec']");
    assert!(
        foreign.contains("variant `exec` is one of the operation `open`, which this figure does not count"),
        "{foreign}"
    );
    let unknown = refused("operations = 'fsync', variants = 'msync'");
    assert!(unknown.contains("known are open, exec, fsync, fdatasync"), "{unknown}");
    let twice = refused("operations = 'fsync', variants = ['fsync', 'fsync']");
    assert!(twice.contains("this variant is listed twice"), "{twice}");
}

#[test]
fn environment_variables_have_names() {
    let with = |variables: &str| GOOD.replacen("[start]", &format!("[start]\nenvironment = {variables}"), 1);
    let tool = parse(&with("{ PYTHONPATH = '/tools/counter/lib.zip', _X1 = '' }"));
    let expected = [("PYTHONPATH", "/tools/counter/lib.zip"), ("_X1", "")];
    assert_eq!(tool.environment, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert_eq!(tool.for_target(Arch::X86_64, "6.12").unwrap().environment, tool.environment);
    for wrong in ["{ 'A=B' = 'x' }", "{ '1A' = 'x' }", "{ '' = 'x' }", "{ \"A\\u0000\" = 'x' }"] {
        let error = ToolFile::parse("t.toml", &with(wrong)).unwrap_err().to_string();
        assert!(error.contains("with names of letters, digits and `_`"), "{wrong}: {error}");
    }
    let error = ToolFile::parse("t.toml", &with("{ A = \"x\\u0000\" }")).unwrap_err().to_string();
    assert!(error.contains("without NUL"), "{error}");
    let many: Vec<String> = (0..65).map(|number| format!("A{number} = ''")).collect();
    let error = ToolFile::parse("t.toml", &with(&format!("{{ {} }}", many.join(", ")))).unwrap_err().to_string();
    assert!(error.contains("at most 64 variables"), "{error}");
    let of_object = refused_in(OBJECT, "[report]", "[start]\nenvironment = { A = 'x' }\n[report]");
    assert!(of_object.contains("a bare object has no program that would read variables"), "{of_object}");
}

#[test]
fn a_figure_names_types_of_file_system() {
    let figure = "{ value = \"read\", unit = \"bytes-returned\" }";
    let with = |types: &str| GOOD.replacen(figure, &figure.replace(" }", &format!(", file_systems = {types} }}")), 1);
    assert!(parse(GOOD).figures()[0].file_systems.is_empty());
    assert_eq!(parse(&with("['nfs', 'nfs4']")).figures()[0].file_systems, ["nfs", "nfs4"]);
    for wrong in ["['']", "['nfs 4']", "['/mnt']"] {
        let error = ToolFile::parse("t.toml", &with(wrong)).unwrap_err().to_string();
        assert!(error.contains("give the type of a file system, such as \"nfs4\""), "{wrong}: {error}");
    }
}
