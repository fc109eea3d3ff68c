// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzing: the table of all entry points for bytes from outside, and mutated inputs for each.
//!
//! Here: [`TARGETS`], their corpora, and a generator of mutations that gives the same input for the
//! same seed and number on every machine. `tests/mutated.rs` runs each target on stable, `fuzz/`
//! runs the same functions with libFuzzer. Not here: the readers themselves. Those that are private
//! are reached by the module `fuzz` of their crate.
//!
//! A function of a target takes any bytes and panics where something does not hold that must hold
//! of every input; an input that is refused is as good as one that is read.

pub mod corpus;
pub mod mutate;
mod targets;

use std::{borrow::Cow, io};

pub use targets::TARGETS;

/// Longest input, in bytes: longer seeds are cut, and no mutation grows beyond.
pub const MAX_INPUT: usize = 64 << 10;

/// An entry point for bytes from outside.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of its corpus in `fuzz/corpus`.
    pub name: &'static str,
    /// What takes the input.
    entry: Entry,
    /// Files and directories with more inputs, relative to the workspace: test data that is there
    /// anyway.
    pub more: &'static [&'static str],
    /// Makes more inputs, of what no file can hold for long.
    made: fn() -> io::Result<Vec<Vec<u8>>>,
    /// How many inputs a test gives to it, so that it takes a second or less.
    pub inputs: u64,
}

#[derive(Debug, Clone, Copy)]
enum Entry {
    Bytes(fn(&[u8])),
    /// Readers of text get what is not UTF-8 replaced, as their callers replace it.
    Text(fn(&str)),
}

impl Target {
    const fn bytes(name: &'static str, inputs: u64, more: &'static [&'static str], run: fn(&[u8])) -> Self {
        Self { name, entry: Entry::Bytes(run), more, made: none, inputs }
    }

    const fn text(name: &'static str, inputs: u64, more: &'static [&'static str], run: fn(&str)) -> Self {
        Self { name, entry: Entry::Text(run), more, made: none, inputs }
    }

    const fn with(self, made: fn() -> io::Result<Vec<Vec<u8>>>) -> Self {
        Self { made, ..self }
    }

    /// Gives `input` to the entry point.
    ///
    /// # Panics
    /// Where something does not hold that must: that is what is looked for.
    pub fn run(&self, input: &[u8]) {
        match self.entry {
            Entry::Bytes(run) => run(input),
            Entry::Text(run) => run(&lossy(input)),
        }
    }
}

fn none() -> io::Result<Vec<Vec<u8>>> {
    Ok(Vec::new())
}

fn lossy(input: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(input)
}

/// The target called `name`.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Gives `input` to the target called `name`; for the program in `fuzz/src/bin`.
///
/// # Panics
/// As [`Target::run`], and where there is no such target.
pub fn run(name: &str, input: &[u8]) {
    let target = target(name);
    assert!(target.is_some(), "no target is called {name}");
    target.into_iter().for_each(|target| target.run(input));
}
