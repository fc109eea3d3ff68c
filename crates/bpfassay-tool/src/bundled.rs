//! The tool files compiled in, and the objects that they name, which are compiled into the bundled tracer.

use bpfassay_protocol::object::SECTION;
use object::{Object as _, ObjectSection as _};

// `TOOLS`: pairs of name and text, and `TOOL_NAMES`, sorted by name, from tools/*.toml.
include!(concat!(env!("OUT_DIR"), "/bundled.rs"));

/// Names of the bundled tools.
pub const NAMES: &[&str] = TOOL_NAMES;

/// The text of the bundled tool file `name`.
#[must_use]
pub fn tool(name: &str) -> Option<&'static str> {
    TOOLS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The object that a bundled tool file names by `path` ([`crate::Object::path`]): `NAME.bpf.o` in `tracer`, the bundled tracer's program
/// for the guest's architecture. `None` where that has none of this name, or is no such program.
#[must_use]
pub fn object<'t>(path: &str, tracer: &'t [u8]) -> Option<&'t [u8]> {
    let name = path.strip_suffix(".bpf.o")?;
    let file = object::File::parse(tracer).ok()?;
    file.section_by_name(&format!("{SECTION}{name}"))?.data().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_found_in_its_section_only() {
        let tracer = include_bytes!("../tests/data/counts.bpf.o");
        assert!(object::File::parse(&tracer[..]).is_ok());
        assert_eq!(object("ceems-layout.bpf.o", tracer), None);
        assert_eq!(object("ceems-layout", tracer), None);
        assert_eq!(object("ceems-layout.bpf.o", b"no program"), None);
    }
}
