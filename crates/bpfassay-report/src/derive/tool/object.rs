// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the loader of bare objects reported.

use bpfassay_protocol::{
    object::ObjectLine,
    tool::{Source, ToolFigures},
};

/// What it printed on standard output, line by line; what is no line of its own is left out.
fn lines(seen: &ToolFigures) -> Vec<ObjectLine> {
    let output = seen.output.iter().filter(|piece| piece.source == Source::Output);
    let text: String = output.map(|piece| piece.text.as_str()).collect();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The types of a bundled object.
pub(super) fn types(seen: &ToolFigures) -> Option<Vec<u8>> {
    lines(seen).into_iter().find_map(|line| match line {
        ObjectLine::Types { btf } => Some(btf.0),
        _ => None,
    })
}

/// Where the object's programs do not fit to the kernel's prototypes; `None` where that was not reported.
pub(super) fn prototypes(seen: &ToolFigures) -> Option<Vec<String>> {
    let checked = lines(seen).into_iter().find_map(|line| match line {
        ObjectLine::Prototypes { checked } => Some(checked),
        _ => None,
    })?;
    let is_whole = checked.iter().all(|one| one.unchecked.is_none());
    let of_one = |one: bpfassay_protocol::object::Checked| {
        one.differs.into_iter().map(move |line| format!("{} ({}): {line}", one.program, one.section))
    };
    let lines: Vec<String> = checked.into_iter().flat_map(of_one).collect();
    // What is found is found; that there is nothing, only a look at everything can show.
    (is_whole || !lines.is_empty()).then_some(lines)
}
