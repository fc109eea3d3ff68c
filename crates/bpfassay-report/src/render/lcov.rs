// SPDX-License-Identifier: MIT OR Apache-2.0
//! The code coverage of programs as a tracefile of lcov (geninfo(1), section FILES).

use std::fmt::Write as _;

use super::{
    finished,
    format::{FormatError, ReportFormat},
    plain,
};
use bpfassay_results::{CellResult, CoveredLine, CoveredLines, Figure, Results};

pub(super) const FORMAT: ReportFormat = ReportFormat {
    name: "lcov",
    about: "Which lines and branches of eBPF programs ran, for lcov, genhtml and services that read it",
    file: None,
    render: |results, _| Ok(lcov(results)?.into()),
};

/// Renders the code coverage of `results`: a section per cell, program and source file, named by
/// cell and program. Coverage that was not measured is a comment.
///
/// # Errors
/// [`FormatError::NoCoverage`], if nothing counted which lines ran.
pub fn lcov(results: &Results) -> Result<String, FormatError> {
    let covered = || results.cells.iter().filter_map(|cell| Some((cell, cell.code_coverage.as_ref()?)));
    if covered().next().is_none() {
        return Err(FormatError::NoCoverage);
    }
    let mut text = String::new();
    for (cell, coverage) in covered() {
        let coverage = match coverage {
            Figure::Value(coverage) => coverage,
            Figure::NotMeasured(reason) => {
                comment(&mut text, &cell.cell, reason);
                continue;
            }
        };
        for program in &coverage.programs {
            match &program.lines {
                Figure::Value(lines) => sections(&mut text, &test_name(cell, &program.program), lines),
                Figure::NotMeasured(reason) => {
                    comment(&mut text, &format!("{}, program {}", cell.cell, program.program), reason);
                }
            }
        }
    }
    Ok(finished(text))
}

/// Adds a line that readers skip.
fn comment(text: &mut String, what: &str, reason: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# not measured: {}: {}", plain::line(what), plain::line(reason));
}

/// Creates a test name, which has only letters, digits and underscores.
fn test_name(cell: &CellResult, program: &str) -> String {
    let name = format!("{}_{program}", cell.cell);
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

fn sections(text: &mut String, test: &str, covered: &CoveredLines) {
    for (index, file) in (0_u32..).zip(&covered.files) {
        let lines: Vec<&CoveredLine> = covered.lines.iter().filter(|line| line.file == index).collect();
        let _ = writeln!(text, "TN:{test}\nSF:{}", plain::line(file));
        let (mut found, mut hit) = (0, 0);
        for line in &lines {
            let known = line.branches.iter().filter_map(|branch| branch.outcomes);
            for (block, outcomes) in known.enumerate() {
                for (branch, count) in outcomes.iter().enumerate() {
                    found += 1;
                    hit += usize::from(*count > 0);
                    let _ = match outcomes {
                        // The jump was never reached.
                        [0, 0] => writeln!(text, "BRDA:{},{block},{branch},-", line.line),
                        _ => writeln!(text, "BRDA:{},{block},{branch},{count}", line.line),
                    };
                }
            }
        }
        if found > 0 {
            let _ = writeln!(text, "BRF:{found}\nBRH:{hit}");
        }
        for line in &lines {
            let _ = writeln!(text, "DA:{},{}", line.line, line.executions);
        }
        let hit = lines.iter().filter(|line| line.executions > 0).count();
        let _ = writeln!(text, "LF:{}\nLH:{hit}\nend_of_record", lines.len());
    }
}
