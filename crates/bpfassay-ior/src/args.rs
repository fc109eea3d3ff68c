// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses IOR's command line into options, and formats options as arguments.

use std::{fmt, slice};

use crate::{
    OptionsError,
    directive::{self, SIZE, Target, bytes},
    error::shown,
    ior_options::{AccessOrder, Options, ReorderRandom},
    ior_output::Output,
    ior_script,
};

/// One command line of IOR.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Invocation {
    /// The given options, from which the tests of a script start.
    pub defaults: Options,
    /// The name of the script (`-f`).
    pub script: Option<String>,
    /// The destination of results, as far as the command line sets it.
    pub output: Output,
}

/// The work of one command line of IOR: its tests, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IorPlan {
    /// The tests. There is at least one, and all are valid.
    pub tests: Vec<Options>,
    /// The destination of results.
    pub output: Output,
}

impl Invocation {
    /// Parses the arguments of a command line, without the program's name.
    ///
    /// # Errors
    /// [`OptionsError`] for the first wrong argument. [`Invocation::plan`] checks combinations.
    pub fn parse<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<Self, OptionsError> {
        let args: Vec<&str> = args.into_iter().collect();
        let mut invocation = Self::default();
        let mut flags = Vec::new();
        let mut rest = args.iter();
        while let Some(argument) = rest.next() {
            invocation.argument(argument, &mut rest, &mut flags)?;
        }
        Ok(invocation)
    }

    /// Returns the tests. `script` is the text of the file that [`Invocation::script`] names.
    ///
    /// # Errors
    /// [`OptionsError`] if the script cannot be parsed, or a test breaks a rule
    /// ([`Options::validate`]).
    pub fn plan(&self, script: Option<&str>) -> Result<IorPlan, OptionsError> {
        let mut output = self.output.clone();
        let mut tests = match (&self.script, script) {
            (None, _) => vec![self.defaults.clone()],
            (Some(_), Some(text)) => ior_script::parse(text, &self.defaults, &mut output)?,
            (Some(name), None) => return Err(OptionsError::ScriptMissing { script: shown(name) }),
        };
        for (index, test) in tests.iter_mut().enumerate() {
            test.settle();
            test.validate().map_err(|source| OptionsError::Test { test: index, source: Box::new(source) })?;
        }
        Ok(IorPlan { tests, output })
    }

    fn argument(
        &mut self,
        argument: &str,
        rest: &mut slice::Iter<'_, &str>,
        flags: &mut Vec<String>,
    ) -> Result<(), OptionsError> {
        let unknown = || OptionsError::UnknownOption { option: shown(argument) };
        let (name, mut value) = match argument.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (argument, None),
        };
        if name.starts_with("--") {
            if value.is_none() && flags.iter().any(|flag| flag == name) {
                return Err(OptionsError::FlagTwice { flag: shown(name) });
            }
            flags.push(name.to_owned());
            return self.long(name, value, rest);
        }
        let letters = name.strip_prefix('-').ok_or_else(unknown)?;
        let first = letters.chars().next().ok_or_else(unknown)?;
        if takes_value(first) {
            let attached = &letters[first.len_utf8()..];
            if !attached.is_empty() {
                if value.is_some() || !attached.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(OptionsError::Attached { argument: shown(argument) });
                }
                value = Some(attached);
            }
            let option = format!("-{first}");
            let value = match value.or_else(|| rest.next().copied()) {
                Some(value) if !value.is_empty() => value,
                _ => return Err(OptionsError::MissingValue { option }),
            };
            return self.short(first, &option, value);
        }
        if let Some(value) = value {
            return Err(OptionsError::bad(name, value, "expected here: the flag takes no value"));
        }
        for letter in letters.chars() {
            if takes_value(letter) {
                return Err(OptionsError::Attached { argument: shown(argument) });
            }
            let repeatable = matches!(letter, 'v' | 'z' | 'Z');
            let flag = format!("-{letter}");
            if !repeatable && flags.contains(&flag) {
                return Err(OptionsError::FlagTwice { flag });
            }
            flags.push(flag);
            self.flag(letter).ok_or_else(unknown)??;
        }
        Ok(())
    }

    fn long(&mut self, name: &str, value: Option<&str>, rest: &mut slice::Iter<'_, &str>) -> Result<(), OptionsError> {
        const VALUED: &[&str] = &["--dataPacketType", "--random-offset-seed", "--randomPrefill"];
        const FLAGS: &[&str] = &[
            "--collective",
            "--dryRun",
            "--warningAsErrors",
            "--posix.odirect",
            "--posix.rangelocks",
            "--mmap.madv_dont_need",
            "--mmap.madv_pattern",
        ];
        let value = if VALUED.contains(&name) {
            value
                .or_else(|| rest.next().copied())
                .ok_or_else(|| OptionsError::MissingValue { option: name.to_owned() })?
        } else if FLAGS.contains(&name) {
            value.unwrap_or("1")
        } else {
            return Err(OptionsError::UnknownOption { option: shown(name) });
        };
        self.directives(&format!("{name}={value}"))
    }

    fn directives(&mut self, text: &str) -> Result<(), OptionsError> {
        let (mut posix, mut mmap) = (self.defaults.posix, self.defaults.mmap);
        let mut target =
            Target { options: &mut self.defaults, output: &mut self.output, posix: &mut posix, mmap: &mut mmap };
        directive::line(text, &mut target)?;
        self.defaults.posix = posix;
        self.defaults.mmap = mmap;
        Ok(())
    }

    fn short(&mut self, letter: char, option: &str, value: &str) -> Result<(), OptionsError> {
        let size = || bytes(value).ok_or_else(|| OptionsError::bad(option, value, SIZE));
        let unsigned = || {
            bytes(value)
                .and_then(|value| u32::try_from(value).ok())
                .filter(|&value| i32::try_from(value).is_ok())
                .ok_or_else(|| OptionsError::bad(option, value, "a number from 0 to 2147483647"))
        };
        let signed = || value.parse::<i32>().map_err(|_| OptionsError::bad(option, value, "a 32-bit number"));
        let options = &mut self.defaults;
        match letter {
            'a' => options.api = directive::api(option, value)?,
            'A' => options.reference = signed()?,
            'b' => options.block_size = size()?,
            'd' => options.inter_test_delay = unsigned()?,
            'D' => options.deadline = unsigned()?,
            'f' => self.script = Some(value.to_owned()),
            'G' => options.signature = signed()?,
            'i' => options.repetitions = unsigned()?,
            'l' => options.packet = directive::packet(option, value)?,
            'N' => options.tasks = Some(unsigned()?),
            'o' => options.test_file = value.to_owned(),
            'O' => self.directives(value)?,
            'Q' => options.task_per_node_offset = unsigned()?.try_into().unwrap_or(i32::MAX),
            's' => options.segments = size()?,
            't' => options.transfer_size = size()?,
            'T' => options.max_time = unsigned()?,
            'X' => options.reorder_random_seed = signed()?,
            _ => return Err(OptionsError::Unsupported { option: option.to_owned() }),
        }
        Ok(())
    }

    /// Applies a flag; `None` if it does not exist.
    fn flag(&mut self, letter: char) -> Option<Result<(), OptionsError>> {
        let options = &mut self.defaults;
        let too_often = |flag: &str| OptionsError::FlagTwice { flag: flag.to_owned() };
        match letter {
            'c' => options.collective = true,
            'C' => options.reorder_tasks = true,
            'e' => options.fsync = true,
            'E' => options.use_existing = true,
            'F' => options.file_per_process = true,
            'g' => options.intra_test_barriers = true,
            'k' => options.keep = true,
            'K' => options.keep_with_error = true,
            'm' => options.multi_file = true,
            'r' => options.read = true,
            'R' => options.check_read = true,
            'u' => options.unique_dir = true,
            'v' => options.verbose = options.verbose.saturating_add(1),
            'w' => options.write = true,
            'W' => options.check_write = true,
            'x' => options.single_attempt = true,
            'Y' => options.fsync_per_write = true,
            'z' => match AccessOrder::from_level(i64::from(options.order.level()) + 1) {
                Some(order) => options.order = order,
                None => return Some(Err(too_often("-z"))),
            },
            'Z' => match ReorderRandom::from_level(i64::from(options.reorder_random.level()) + 1) {
                Some(order) => options.reorder_random = order,
                None => return Some(Err(too_often("-Z"))),
            },
            'y' => return Some(Err(OptionsError::Unsupported { option: "-y".to_owned() })),
            _ => return None,
        }
        Some(Ok(()))
    }
}

const fn takes_value(letter: char) -> bool {
    matches!(
        letter,
        'a' | 'A' | 'b' | 'd' | 'D' | 'f' | 'G' | 'i' | 'j' | 'l' | 'M' | 'N' | 'o' | 'O' | 'Q' | 's' | 't' | 'T' | 'X'
    )
}

impl IorPlan {
    /// Creates the plan of a command line with [`Invocation::parse`] and [`Invocation::plan`].
    /// `read` reads the script.
    ///
    /// # Errors
    /// [`OptionsError`] if an option is unknown, lacks its value or contradicts another one; the
    /// error of `read` if the script cannot be read.
    pub fn from_args<'a, E: From<OptionsError>>(
        args: impl IntoIterator<Item = &'a str>,
        read: impl FnOnce(&str) -> Result<String, E>,
    ) -> Result<Self, E> {
        let invocation = Invocation::parse(args)?;
        let text = invocation.script.as_deref().map(read).transpose()?;
        Ok(invocation.plan(text.as_deref())?)
    }
}

impl Options {
    /// Returns the options as arguments, which [`Invocation::parse`] reads as the same options.
    ///
    /// Options with default values are omitted, except for the interface, the sizes and the phases.
    #[must_use]
    pub fn to_args(&self) -> Vec<String> {
        let default = Self::default();
        let mut args = Args(Vec::new());
        args.value("-a", self.api);
        args.value("-b", size(self.block_size));
        args.value("-t", size(self.transfer_size));
        args.value_unless(self.segments == default.segments, "-s", self.segments);
        args.value_unless(self.repetitions == default.repetitions, "-i", self.repetitions);
        for (flag, given) in [
            ("-w", self.write),
            ("-r", self.read),
            ("-W", self.check_write),
            ("-R", self.check_read),
            ("-k", self.keep),
            ("-K", self.keep_with_error),
            ("-e", self.fsync),
            ("-Y", self.fsync_per_write),
            ("-E", self.use_existing),
            ("-F", self.file_per_process),
            ("-g", self.intra_test_barriers),
            ("-m", self.multi_file),
            ("-u", self.unique_dir),
            ("-x", self.single_attempt),
            ("-c", self.collective),
            ("-C", self.reorder_tasks),
            ("--posix.odirect", self.posix.direct),
            ("--posix.rangelocks", self.posix.range_locks),
            ("--mmap.madv_dont_need", self.mmap.dont_need),
            ("--mmap.madv_pattern", self.mmap.pattern),
        ] {
            args.times(flag, given.into());
        }
        args.times("-z", self.order.level());
        args.times("-Z", self.reorder_random.level());
        args.times("-v", self.verbose);
        args.value_unless(self.reference == 0, "-A", self.reference);
        args.value_unless(self.task_per_node_offset == default.task_per_node_offset, "-Q", self.task_per_node_offset);
        args.value_unless(self.reorder_random_seed == 0, "-X", self.reorder_random_seed);
        args.value_unless(self.inter_test_delay == 0, "-d", self.inter_test_delay);
        args.value_unless(self.deadline == 0, "-D", self.deadline);
        args.value_unless(self.max_time == 0, "-T", self.max_time);
        args.value_unless(self.signature == 0, "-G", self.signature);
        args.value_unless(self.packet == default.packet, "-l", self.packet.letter());
        if let Some(tasks) = self.tasks {
            args.value("-N", tasks);
        }
        if let Some(seed) = self.random_seed {
            args.0.push(format!("--random-offset-seed={seed}"));
        }
        args.value_unless(self.test_file == default.test_file, "-o", &self.test_file);
        args.directive_unless(!self.wear_out, "stoneWallingWearOut", 1);
        args.directive_unless(self.wear_out_iterations == 0, "stoneWallingWearOutIterations", self.wear_out_iterations);
        args.directive_unless(self.min_time == 0, "minTimeDuration", self.min_time);
        for (key, value) in [("numNodes", self.nodes), ("numTasksOnNode0", self.tasks_on_node0)] {
            args.directive_unless(value.is_none(), key, value.unwrap_or_default());
        }
        if let Some(file) = &self.status_file {
            args.directive_unless(false, "stoneWallingStatusFile", file);
        }
        args.0
    }
}

struct Args(Vec<String>);

impl Args {
    fn value(&mut self, option: &str, value: impl fmt::Display) {
        self.0.extend([option.to_owned(), value.to_string()]);
    }

    fn value_unless(&mut self, default: bool, option: &str, value: impl fmt::Display) {
        if !default {
            self.value(option, value);
        }
    }

    fn directive_unless(&mut self, default: bool, key: &str, value: impl fmt::Display) {
        if !default {
            self.value("-O", format!("{key}={value}"));
        }
    }

    fn times(&mut self, flag: &str, times: u8) {
        self.0.extend((0..times).map(|_| flag.to_owned()));
    }
}

/// Formats a size with the largest of IOR's suffixes up to `g` that leaves an integer.
fn size(bytes: u64) -> String {
    [("g", 30), ("m", 20), ("k", 10)]
        .into_iter()
        .find(|(_, shift)| bytes != 0 && bytes.is_multiple_of(1 << shift))
        .map_or_else(|| bytes.to_string(), |(suffix, shift)| format!("{}{suffix}", bytes >> shift))
}

#[cfg(test)]
mod tests;
