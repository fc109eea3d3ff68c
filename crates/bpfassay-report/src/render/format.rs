// SPDX-License-Identifier: MIT OR Apache-2.0
//! The type of a report's format.

use bpfassay_results::Results;

/// A format of a report.
#[derive(Debug)]
pub struct ReportFormat {
    /// The name on the command line.
    pub name: &'static str,
    /// The purpose, in half a line.
    pub about: &'static str,
    /// The file in the results directory that holds the report; `None` if the report goes to
    /// standard output, which only text does.
    pub file: Option<&'static str>,
    /// Renders results in this format.
    pub render: fn(&Results, FormatOptions<'_>) -> Result<Rendered, FormatError>,
}

/// A report.
#[derive(Debug)]
pub enum Rendered {
    /// Text for a terminal or a file.
    Text(String),
    /// Bytes for a file.
    Binary(Vec<u8>),
    /// A page for a browser.
    Page {
        /// The page.
        page: String,
        /// The page of code coverage, to which it links as [`FormatOptions::coverage`].
        coverage: Option<String>,
    },
    /// The output of a job of a CI system.
    Job {
        /// Commands that the CI system reads from standard output.
        annotations: String,
        /// Markdown for the file that the CI system names, or for another file.
        summary: String,
    },
}

impl From<String> for Rendered {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u8>> for Rendered {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Binary(bytes)
    }
}

/// Options of a format.
#[derive(Debug, Clone, Copy, Default)]
pub struct FormatOptions<'a> {
    /// See [`super::Style::width`].
    pub width: Option<u16>,
    /// The title of one plot, for the format that shows one plot.
    pub figure: Option<&'a str>,
    /// The name of the page of code coverage next to the report. `None`: only one page can be
    /// written.
    pub coverage: Option<&'a str>,
}

/// A report could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The page could not be written.
    #[error("cannot render the page")]
    Html(#[from] std::fmt::Error),
    /// JUnit could not be written.
    #[cfg(feature = "junit")]
    #[error("cannot render JUnit")]
    Junit(#[from] quick_junit::SerializeError),
    /// The program was built without JUnit.
    #[error("cannot render JUnit: this program was built without it: build it by cargo with `--features full`")]
    NoJunit,
    /// CSV could not be written.
    #[error("cannot render CSV")]
    Csv(#[from] csv::Error),
    /// JSON could not be written.
    #[error("cannot render JSON")]
    Json(#[from] serde_json::Error),
    /// A profile could not be written.
    #[error("cannot render the profile")]
    Pprof(#[from] std::io::Error),
    /// No plot, or several, have the requested title.
    #[error(transparent)]
    Figure(#[from] NoFigure),
    /// The executions of program lines were not counted.
    #[error(
        "these results have no code coverage: run a study under the instruction clock, with a QEMU that loads the plugin, and with \
         something under test"
    )]
    NoCoverage,
}

/// No figure, or several, have the requested title.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found} figures of the report are called {wanted:?}: give a part of the title of one of these: {}", known.join("; "))]
pub struct NoFigure {
    /// The requested title.
    pub wanted: String,
    /// The number of figures with this title.
    pub found: usize,
    /// The titles of all figures.
    pub known: Vec<String>,
}
