//! Results as tables: pure functions of [`crate::Results`].

mod capabilities;
mod compare;
mod cost;
mod coverage;
mod findings;
mod gates;
mod markdown;
mod rows;
mod text;

pub use compare::{comparison_markdown, comparison_text};
pub use markdown::markdown;
pub use text::{Style, text};

use crate::words;
