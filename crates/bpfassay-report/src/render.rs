//! Results as people and other programs read them: text, Markdown, HTML, JUnit, OpenMetrics, CSV. Pure functions of
//! [`crate::Results`].

mod capabilities;
mod compare;
mod cost;
mod coverage;
mod events;
mod experiment;
mod findings;
mod gates;
mod html;
mod junit;
mod markdown;
mod openmetrics;
mod program_count;
mod raw_runs;
mod rows;
mod text;
mod tools;
mod trend;

pub use compare::{comparison_markdown, comparison_text};
pub use html::{NoFigure, comparison_html, figure_svg, html};
pub use junit::{comparison_junit, junit};
pub use markdown::markdown;
pub use openmetrics::openmetrics;
pub use raw_runs::csv;
pub use text::{Style, text};
pub use trend::{trend_markdown, trend_text};

use crate::words;
