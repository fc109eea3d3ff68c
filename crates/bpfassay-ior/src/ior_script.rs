// SPDX-License-Identifier: MIT OR Apache-2.0
//! IOR's script files: several tests, each of which inherits the options of the previous one.
//!
//! ```text
//! IOR START
//!   api=POSIX, blockSize=1m      # comma or newline between directives
//!   transferSize=64k
//! RUN                            # the first test
//!   transferSize=256k
//! RUN                            # the second, with the same block size
//! IOR STOP
//! ```
//!
//! Two properties of the real IOR are kept, because they change what a script does:
//!
//! - Directives after the last `RUN` make another test.
//! - A test shares the options of an interface (`useO_DIRECT`, `--posix.…`, `--mmap.…`) with the
//!   next test of that interface's settings. IOR copies them only when the following test ends, so
//!   such a directive also affects one test too early.

use crate::{
    OptionsError,
    directive::{self, Target},
    ior_options::{Api, MmapOptions, Options, PosixOptions},
    ior_output::Output,
};

/// Longest script in bytes.
pub const MAX_SCRIPT: usize = 1 << 20;

/// Longest line that IOR reads in one piece, in bytes.
const MAX_LINE: usize = 1022;

/// Maximum number of tests in a script.
const MAX_TESTS: usize = 4096;

/// The settings of one interface, with the copies that tests use.
struct Copies<T>(Vec<T>);

impl<T: Copy> Copies<T> {
    fn current(&mut self) -> &mut T {
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    /// Creates a test's copy of the settings when the test ends. Later directives still change the
    /// copy. Returns its index.
    fn seal(&mut self) -> usize {
        let copy = *self.current();
        self.0.push(copy);
        self.0.len() - 1
    }
}

struct ScriptReader<'a> {
    tests: Vec<(Options, usize)>,
    posix: Copies<PosixOptions>,
    mmap: Copies<MmapOptions>,
    output: &'a mut Output,
}

impl ScriptReader<'_> {
    fn last(&mut self) -> &mut (Options, usize) {
        let last = self.tests.len() - 1;
        &mut self.tests[last]
    }

    /// Ends the last test and copies its interface settings.
    fn seal(&mut self) {
        let copy = match self.last().0.api {
            Api::Posix => self.posix.seal(),
            Api::Mmap => self.mmap.seal(),
            Api::MpiIo => 0,
        };
        self.last().1 = copy;
    }

    fn begin_next(&mut self) -> Result<(), OptionsError> {
        if self.tests.len() == MAX_TESTS {
            return Err(OptionsError::TooLong { limit: MAX_TESTS, what: "tests" });
        }
        self.seal();
        let next = self.last().clone();
        self.tests.push(next);
        Ok(())
    }

    fn directives(&mut self, text: &str) -> Result<(), OptionsError> {
        let last = self.tests.len() - 1;
        let mut target = Target {
            options: &mut self.tests[last].0,
            output: self.output,
            posix: self.posix.current(),
            mmap: self.mmap.current(),
        };
        directive::line(text, &mut target)
    }

    fn finish(mut self) -> Vec<Options> {
        self.seal();
        let Self { tests, posix, mmap, .. } = self;
        tests
            .into_iter()
            .map(|(mut options, copy)| {
                match options.api {
                    Api::Posix => options.posix = posix.0[copy],
                    Api::Mmap => options.mmap = mmap.0[copy],
                    Api::MpiIo => {}
                }
                options
            })
            .collect()
    }
}

/// Parses the script `text` into tests, which start from `defaults`. Directives about output go to
/// `output`.
pub(crate) fn parse(text: &str, defaults: &Options, output: &mut Output) -> Result<Vec<Options>, OptionsError> {
    if text.len() > MAX_SCRIPT {
        return Err(OptionsError::TooLong { limit: MAX_SCRIPT, what: "bytes" });
    }
    let mut reader = ScriptReader {
        tests: vec![(defaults.clone(), 0)],
        posix: Copies(vec![defaults.posix]),
        mmap: Copies(vec![defaults.mmap]),
        output,
    };
    let mut lines = text.lines().enumerate();
    lines.find(|(_, line)| is_only(line, "ior start")).ok_or(OptionsError::NoStart)?;
    let mut after_run = false;
    for (number, line) in lines {
        let located = |source| OptionsError::Line { line: number + 1, source: Box::new(source) };
        if line.len() > MAX_LINE {
            return Err(located(OptionsError::TooLong { limit: MAX_LINE, what: "bytes" }));
        }
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if is_only(line, "ior stop") {
            break;
        }
        if is_only(line, "run") {
            if after_run {
                reader.begin_next().map_err(located)?;
            }
            after_run = true;
            continue;
        }
        if after_run {
            reader.begin_next().map_err(located)?;
            after_run = false;
        }
        reader.directives(line).map_err(located)?;
    }
    Ok(reader.finish())
}

/// Whether `line` contains only `keyword`, in upper or lower case, and blanks.
fn is_only(line: &str, keyword: &str) -> bool {
    line.trim().eq_ignore_ascii_case(keyword)
}

#[cfg(test)]
mod tests;
