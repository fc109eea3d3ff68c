//! Results as people and other programs read them: text, Markdown, HTML, JUnit, OpenMetrics, CSV. Pure functions of
//! [`crate::Results`].

mod compare;
mod cost;
mod coverage;
mod events;
mod experiment;
mod findings;
mod gates;
mod html;
mod junit;
mod kernel_features;
mod markdown;
mod openmetrics;
mod program_count;
mod raw_runs;
mod rows;
mod text;
mod tools;
mod trend;

use std::borrow::Cow;

pub use compare::{comparison_markdown, comparison_text};
pub use html::{NoFigure, comparison_html, figure_svg, html};
pub use junit::{comparison_junit, junit};
pub use markdown::markdown;
pub use openmetrics::openmetrics;
pub use raw_runs::csv;
pub use text::{Style, text};
pub use trend::{trend_markdown, trend_text};

use crate::{plain, words};

/// `form` as it leaves this module. Every field of others' text is escaped where it is put in, as the form has it; whatever may
/// have been forgotten there is caught here.
fn finished(form: String) -> String {
    match plain::text(&form) {
        Cow::Borrowed(_) => form,
        Cow::Owned(escaped) => escaped,
    }
}
