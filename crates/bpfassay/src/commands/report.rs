//! `bpfassay report`: results as people and other programs read them.

use std::path::Path;

use bpfassay_report::{
    render::{Style, csv, figure_svg, html, junit, markdown, openmetrics, text},
    results,
};

use crate::{
    cli::{self, ReportFormat},
    exit::{Failure, INTERNAL, Outcome, SUCCESS},
    output,
};

/// The file name of the page.
const FILE_NAME: &str = "report.html";

pub(crate) fn report(arguments: &cli::Report) -> Outcome {
    let results = results::read(&arguments.results)?;
    let written = match arguments.format {
        ReportFormat::Html => html(&results).map_err(|error| Failure::new(INTERNAL, error))?,
        ReportFormat::Text => {
            let width = super::terminal_width().filter(|_| arguments.output.is_none());
            text(&results, Style { width })
        }
        ReportFormat::Markdown => markdown(&results),
        ReportFormat::Junit => junit(&results).map_err(|error| Failure::new(INTERNAL, error))?,
        ReportFormat::Openmetrics => openmetrics(&results),
        ReportFormat::Svg => {
            figure_svg(&results, arguments.figure.as_deref().unwrap_or_default()).map_err(Failure::usage)?
        }
        ReportFormat::Csv => csv(&results).map_err(|error| Failure::new(INTERNAL, error))?,
    };
    let beside = || {
        let directory =
            if arguments.results.is_dir() { Some(arguments.results.as_path()) } else { arguments.results.parent() };
        directory.unwrap_or(Path::new("")).join(FILE_NAME)
    };
    let file = match (&arguments.output, arguments.format) {
        (Some(file), _) if file.as_os_str() == "-" => None,
        (Some(file), _) => Some(file.clone()),
        (None, ReportFormat::Html) => Some(beside()),
        (None, _) => None,
    };
    let Some(file) = file else {
        super::print(&written)?;
        return Ok(SUCCESS);
    };
    match arguments.output {
        Some(_) => super::write(&file, &written)?,
        // A results directory may be a stranger's: nothing is written through what lies there.
        None => super::write_beside(&file, &written)?,
    }
    super::print(&format!("{}\n", output::path(&file)))?;
    Ok(SUCCESS)
}
