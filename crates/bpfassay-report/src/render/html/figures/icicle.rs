// SPDX-License-Identifier: MIT OR Apache-2.0
//! The direct cost of one call as an icicle: the total, its roles below it, and their functions
//! below these. Each box is as wide as its instructions.

use std::fmt::Write as _;

use super::{
    super::{escape::escape, plot::Sizes},
    Plot,
};
use crate::render::plain;
use bpfassay_results::{CellResult, Direct, Figure, Results, Role};

/// Heights of a row and of its letters.
const ROW: f64 = 28.0;
const LETTERS: f64 = 12.0;
/// Width of a letter, estimated rather too large.
const LETTER: f64 = 7.5;
/// The width below which boxes are left out of the picture, but not of the list.
const NARROWEST: f64 = 1.0;

/// Creates one plot for each counted direct cost.
pub(super) fn icicles(results: &Results) -> Vec<Plot> {
    let of_cell = |cell: &CellResult| {
        let counted = cell.metrics.iter().filter_map(|metric| match metric.direct.as_ref()? {
            Figure::Value(direct) if direct.per_call.mean > 0.0 => Some((metric.name, direct)),
            _ => None,
        });
        let place = format!("{}, {}, {}: {}", cell.target, cell.case, cell.file_system, cell.under_test());
        counted
            .map(|(name, direct)| of(format!("{place}, {name}: direct cost by function"), direct))
            .collect::<Vec<_>>()
    };
    results.cells.iter().flat_map(of_cell).collect()
}

fn of(title: String, direct: &Direct) -> Plot {
    // Results list the largest functions first.
    let of_role = |role: Role| direct.functions.iter().filter(move |of| of.role == role);
    let total: f64 = direct.functions.iter().map(|function| function.per_call).sum();
    let parts = Role::ALL.into_iter().flat_map(|role| {
        of_role(role).map(move |of| [role.to_string(), of.function.clone(), format!("{:.1}", of.per_call)])
    });
    let svg = Sizes::of(|size| drawn(direct, total, f64::from(size.width())));
    Plot {
        title,
        svg,
        series: Role::ALL.iter().map(ToString::to_string).collect(),
        note: "Instructions on the probe's path per call, each box as wide as its share; the list has all functions, those too narrow for a name or a \
               box, too."
            .to_owned(),
        parts: parts.collect(),
        ..Plot::default()
    }
}

/// Draws the picture with the width `whole`.
fn drawn(direct: &Direct, total: f64, whole: f64) -> String {
    let of_role = |role: Role| direct.functions.iter().filter(move |of| of.role == role);
    let mut boxes = String::new();
    let per_instruction = whole / total;
    write_box(&mut boxes, (0.0, 0.0, whole), 4, &format!("{total:.1} instructions per call"));
    let mut x = 0.0;
    for (series, role) in (0..).zip(Role::ALL) {
        let width = direct.of(role) * per_instruction;
        write_box(&mut boxes, (x, ROW, width), series, &format!("{role} {:.1}", direct.of(role)));
        let mut start = x;
        for function in of_role(role) {
            let width = function.per_call * per_instruction;
            let label = format!("{} {:.1}", function.function, function.per_call);
            write_box(&mut boxes, (start, 2.0 * ROW, width), series, &label);
            start += width;
        }
        x += width;
    }
    format!("<svg viewBox=\"0 0 {whole} {}\" xmlns=\"http://www.w3.org/2000/svg\">\n{boxes}</svg>\n", 3.0 * ROW)
}

/// Draws a box at `x`, `y` with as much of its name as fits.
fn write_box(svg: &mut String, (x, y, width): (f64, f64, f64), series: u8, label: &str) {
    if !(NARROWEST..=f64::from(u16::MAX)).contains(&width) {
        return;
    }
    let (right, bottom) = (x + width, y + ROW - 2.0);
    let label = plain::line(label);
    let colour = format!("fill=\"var(--series-{series})\" fill-opacity=\"0.25\" stroke=\"var(--paper)\"");
    let _ = write!(
        svg,
        "<g><title>{}</title><path d=\"M{x:.1} {y:.1}H{right:.1}V{bottom:.1}H{x:.1}Z\" {colour}/>",
        escape(&label)
    );
    let room = ((width - 6.0) / LETTER).max(0.0) as usize;
    let letters = label.chars().count();
    let shown: String = match letters <= room {
        true => label.into_owned(),
        false if room >= 4 => label.chars().take(room - 1).chain(['…']).collect(),
        false => String::new(),
    };
    if !shown.is_empty() {
        let (left, base) = (x + 3.0, y + ROW / 2.0 + 3.0);
        let _ = write!(
            svg,
            "<text x=\"{left:.1}\" y=\"{base:.1}\" font-size=\"{LETTERS}\" fill=\"var(--ink)\">{}</text>",
            escape(&shown)
        );
    }
    svg.push_str("</g>\n");
}
