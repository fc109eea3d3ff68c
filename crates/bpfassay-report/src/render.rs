//! Results as tables: pure functions of [`crate::Results`].

mod capabilities;
mod cost;
mod coverage;
mod findings;
mod markdown;
mod rows;
mod text;
mod words;

pub use markdown::markdown;
pub use text::{Style, text};
