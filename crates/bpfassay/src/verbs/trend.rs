//! `bpfassay trend`: figures along a series of kernels or results.

use bpfassay_report::{
    render::{Style, trend_markdown, trend_text},
    results,
    trend::trend as trend_of,
};

use crate::{
    cli::{self, Format},
    exit::{Failure, INTERNAL, Outcome, SUCCESS},
};

pub(crate) fn trend(arguments: &cli::Trend) -> Outcome {
    let read = |directory: &std::path::PathBuf| {
        let name = directory.file_name().unwrap_or(directory.as_os_str()).to_string_lossy().into_owned();
        results::read(directory).map(|results| (name, results)).map_err(Failure::usage)
    };
    let results = arguments.directories.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let trend = trend_of(&results).map_err(Failure::usage)?;
    let text = match arguments.format {
        Format::Text => {
            let width = super::terminal_width();
            trend_text(&trend, Style { width })
        }
        Format::Markdown => trend_markdown(&trend),
        Format::Json => serde_json::to_string_pretty(&trend).map_err(|error| Failure::new(INTERNAL, error))? + "\n",
    };
    super::print(&text)?;
    Ok(SUCCESS)
}
