// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzing: the table of all entry points for bytes from outside, and mutated inputs for each.
//!
//! This crate has [`TARGETS`], their corpora, and a generator of mutations. The generator gives the
//! same input for the same seed and number on every machine. `tests/mutated.rs` runs each target on
//! stable Rust, and `fuzz/` runs the same functions with libFuzzer. Private readers are reached
//! through the module `fuzz` of their crate.
//!
//! A target's function accepts any bytes. It panics if a property does not hold that must hold for
//! every input. A reader can refuse an input or read it.

pub mod corpus;
pub mod mutate;
mod targets;

use std::{borrow::Cow, io};

pub use targets::TARGETS;

/// Maximum input length in bytes. Longer seeds are truncated, and mutations do not grow beyond it.
pub const MAX_INPUT: usize = 64 << 10;

/// An entry point for bytes from outside.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of the target and of its corpus in `fuzz/corpus`.
    pub name: &'static str,
    /// The function that reads the input.
    entry: TargetEntry,
    /// Files and directories of existing test data with more inputs, relative to the workspace.
    pub more: &'static [&'static str],
    /// Creates inputs that would soon be outdated as files.
    made: fn() -> io::Result<Vec<Vec<u8>>>,
    /// Number of inputs in a test, chosen so that the test takes at most a second.
    pub inputs: u64,
}

#[derive(Debug, Clone, Copy)]
enum TargetEntry {
    Bytes(fn(&[u8])),
    /// Invalid UTF-8 is replaced before the reader gets the text, as the reader's callers do.
    Text(fn(&str)),
}

impl Target {
    const fn bytes(name: &'static str, inputs: u64, more: &'static [&'static str], run: fn(&[u8])) -> Self {
        Self { name, entry: TargetEntry::Bytes(run), more, made: none, inputs }
    }

    const fn text(name: &'static str, inputs: u64, more: &'static [&'static str], run: fn(&str)) -> Self {
        Self { name, entry: TargetEntry::Text(run), more, made: none, inputs }
    }

    const fn with(self, made: fn() -> io::Result<Vec<Vec<u8>>>) -> Self {
        Self { made, ..self }
    }

    /// Passes `input` to the entry point.
    ///
    /// # Panics
    /// If a property does not hold. Fuzzing searches for such inputs.
    pub fn run(&self, input: &[u8]) {
        match self.entry {
            TargetEntry::Bytes(run) => run(input),
            TargetEntry::Text(run) => run(&lossy(input)),
        }
    }
}

fn none() -> io::Result<Vec<Vec<u8>>> {
    Ok(Vec::new())
}

fn lossy(input: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(input)
}

/// Returns the target called `name`.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Passes `input` to the target called `name`. The program in `fuzz/src/bin` uses it.
///
/// # Panics
/// If [`Target::run`] panics or no target has this name.
pub fn run(name: &str, input: &[u8]) {
    let target = target(name);
    assert!(target.is_some(), "no target is called {name}");
    target.into_iter().for_each(|target| target.run(input));
}
