//! Results as tables: pure functions of [`crate::Results`].

mod capabilities;
mod compare;
mod cost;
mod coverage;
mod experiment;
mod findings;
mod gates;
mod markdown;
mod rows;
mod text;
mod trend;

pub use compare::{comparison_markdown, comparison_text};
pub use markdown::markdown;
pub use text::{Style, text};
pub use trend::{trend_markdown, trend_text};

use crate::words;
