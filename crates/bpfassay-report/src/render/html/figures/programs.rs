// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plots what the verifier makes of a tool's programs, from kernel to kernel.

use std::collections::BTreeMap;

use bpfassay_protocol::Arch;
use bpfassay_study::by_version;

use super::{
    super::plot::{self, Curves, Mark, Sizes},
    Plot,
    along::place,
};
use bpfassay_results::{CellResult, Results};

/// The largest number of programs in a plot, as many as there are colours.
const PROGRAMS: usize = 8;

/// Plots the verified instructions of each tool's programs along the kernels of an architecture, if
/// there are two kernels or more that report them.
pub(super) fn verified_along_kernels(results: &Results) -> Vec<Plot> {
    let mut of_tools: BTreeMap<(Arch, &str), Vec<&CellResult>> = BTreeMap::new();
    for cell in &results.cells {
        if let Some(tool) = &cell.tool {
            of_tools.entry((cell.target.arch, tool)).or_default().push(cell);
        }
    }
    of_tools.into_iter().filter_map(|((arch, tool), cells)| of_tool(arch, tool, cells)).collect()
}

fn of_tool(arch: Arch, tool: &str, mut cells: Vec<&CellResult>) -> Option<Plot> {
    cells.sort_by(|a, b| by_version(&a.target.kernel, &b.target.kernel));
    // The programs do not depend on workload and file system.
    cells.dedup_by(|a, b| a.target == b.target);
    let mut curves: BTreeMap<&str, Vec<(f64, Mark)>> = BTreeMap::new();
    for (index, cell) in cells.iter().enumerate() {
        let mut most: BTreeMap<&str, u32> = BTreeMap::new();
        for program in cell.loaded().into_iter().flat_map(|loaded| &loaded.programs) {
            if let Some(verified) = program.code.and_then(|code| code.verified) {
                let known = most.entry(&program.name).or_default();
                *known = verified.max(*known);
            }
        }
        for (name, verified) in most {
            curves.entry(name).or_default().push((place(index), Mark { value: verified.into(), interval: None }));
        }
    }
    let mut curves: Vec<_> = curves.into_iter().filter(|(_, points)| points.len() > 1).collect();
    let last = |points: &[(f64, Mark)]| points.last().map_or(0.0, |(_, mark)| mark.value);
    curves.sort_by(|(_, a), (_, b)| last(b).total_cmp(&last(a)));
    let more = curves.len().saturating_sub(PROGRAMS);
    curves.truncate(PROGRAMS);
    let (series, points): (Vec<_>, Vec<_>) = curves.into_iter().map(|(name, points)| (name.to_owned(), points)).unzip();
    let curves = Curves {
        quantity: "instructions verified".to_owned(),
        names: cells.iter().map(|cell| cell.target.kernel.clone()).collect(),
        series: points,
        ..Curves::default()
    };
    let note = match more {
        0 => String::new(),
        _ => format!("The {PROGRAMS} programs with the most; {more} more are in the table."),
    };
    Some(Plot {
        title: format!("{arch}, {tool}: instructions verified along the kernels"),
        svg: Sizes::both(|size| plot::curves(&curves, size))?,
        axis: curves.quantity,
        series,
        note,
        ..Plot::default()
    })
}
