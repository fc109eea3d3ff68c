// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts strace's output into lines like those of the engine's own record.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// Options of strace: all calls on files and descriptors, and the calls of MMAP.
pub(crate) const OPTIONS: &[&str] = &["-f", "-s", "0", "-e", "trace=%file,%desc,%process,msync,madvise,munmap"];

/// One traced call: process, name, arguments, and result.
struct Call {
    pid: u64,
    name: String,
    arguments: Vec<String>,
    result: String,
}

/// Splits a trace into calls, and joins the parts of interrupted calls.
fn calls(text: &str) -> Vec<Call> {
    let mut unfinished: BTreeMap<u64, String> = BTreeMap::new();
    let mut calls = Vec::new();
    for line in text.lines() {
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        let Ok(pid) = pid.parse() else { continue };
        let rest = rest.trim_start();
        if let Some(begun) = rest.strip_suffix(" <unfinished ...>") {
            unfinished.insert(pid, begun.to_owned());
            continue;
        }
        let whole = match rest.strip_prefix("<... ") {
            Some(resumed) => {
                let begun = unfinished.remove(&pid).unwrap_or_default();
                format!("{begun}{}", resumed.split_once(" resumed>").map_or("", |(_, end)| end))
            }
            None => rest.to_owned(),
        };
        calls.extend(parse(pid, &whole));
    }
    calls
}

fn parse(pid: u64, text: &str) -> Option<Call> {
    let (name, rest) = text.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let arguments = arguments.trim_end().strip_suffix(')')?;
    Some(Call { pid, name: name.to_owned(), arguments: split(arguments), result: result.to_owned() })
}

/// Splits arguments at commas outside strings and brackets.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut part, mut depth, mut quoted) = (Vec::new(), String::new(), 0, false);
    for letter in text.chars() {
        match letter {
            '"' => quoted = !quoted,
            '{' | '[' | '(' if !quoted => depth += 1,
            '}' | ']' | ')' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                parts.push(std::mem::take(&mut part).trim().to_owned());
                continue;
            }
            _ => {}
        }
        part.push(letter);
    }
    parts.push(part.trim().to_owned());
    parts
}

/// Returns processes in the order in which they were made.
pub(crate) fn children(text: &str) -> Vec<u64> {
    calls(text)
        .into_iter()
        .filter(|call| matches!(call.name.as_str(), "clone" | "clone3" | "fork" | "vfork"))
        .filter_map(|call| call.result.split_whitespace().next()?.parse().ok())
        .collect()
}

/// Returns the lines about files below `data`, of process `pid` or of all processes.
pub(crate) fn lines(text: &str, data: &Path, pid: Option<u64>) -> Vec<String> {
    let mut reader = Reader { data: data.to_str().unwrap().to_owned(), files: BTreeSet::new(), maps: BTreeMap::new() };
    calls(text)
        .into_iter()
        .filter(|call| pid.is_none_or(|pid| call.pid == pid))
        .filter_map(|call| reader.line(&call))
        .collect()
}

struct Reader {
    data: String,
    /// Descriptors of test files.
    files: BTreeSet<i64>,
    /// Addresses and lengths of mapped test files.
    maps: BTreeMap<u64, u64>,
}

const ERRORS: &[(&str, i32)] = &[
    ("ENOENT", libc::ENOENT),
    ("EEXIST", libc::EEXIST),
    ("EBADF", libc::EBADF),
    ("EINVAL", libc::EINVAL),
    ("EACCES", libc::EACCES),
    ("EAGAIN", libc::EAGAIN),
];

impl Reader {
    fn line(&mut self, call: &Call) -> Option<String> {
        let failure = call.result.strip_prefix("-1 ").map(|error| {
            let name = error.split_whitespace().next().unwrap_or_default();
            let code = ERRORS.iter().find(|(other, _)| *other == name).map_or(-1, |(_, code)| -code);
            format!(" = {code}")
        });
        let path = call.arguments.iter().take(2).find_map(|text| {
            let path = text.strip_prefix('"')?.strip_suffix('"')?;
            (path == self.data || path.starts_with(&format!("{}/", self.data))).then(|| path.to_owned())
        });
        let line = match (path, call.name.as_str()) {
            (Some(_), "execve") => return None,
            (Some(path), _) => self.about_path(call, &path, failure.is_some()),
            (None, "msync" | "madvise" | "munmap") => self.about_map(call)?,
            (None, "mmap") => self.map(call, failure.is_some())?,
            (None, _) => self.about_file(call, failure.is_some())?,
        };
        let line = line
            .unwrap_or_else(|| format!("unexpected {}({}) = {}", call.name, call.arguments.join(", "), call.result));
        Some(line + &failure.unwrap_or_default())
    }

    /// Returns an inner `None` for a call that neither IOR nor the engine should make.
    fn about_path(&mut self, call: &Call, path: &str, failed: bool) -> Option<String> {
        Some(match call.name.as_str() {
            "openat" => {
                let flags: Vec<&str> = call.argument(2).split('|').collect();
                let known = ["O_RDWR", "O_RDONLY", "O_CREAT", "O_DIRECT", "O_LARGEFILE"];
                if flags.iter().any(|flag| !known.contains(flag)) {
                    return None;
                }
                let mut opened = vec![if flags.contains(&"O_RDWR") { "rw" } else { "r" }];
                opened.extend(flags.contains(&"O_CREAT").then_some("create"));
                opened.extend(flags.contains(&"O_DIRECT").then_some("direct"));
                if !failed {
                    self.files.insert(call.result.parse().ok()?);
                }
                let mode = call.argument(3).trim_start_matches('0');
                let space = if mode.is_empty() { "" } else { " " };
                format!("open {path} {}{space}{mode}", opened.join(","))
            }
            "access" | "faccessat" => {
                let mode = call.arguments.iter().rev().find(|text| text.ends_with("_OK"))?;
                let bits = [("F_OK", 0), ("R_OK", 4), ("W_OK", 2), ("X_OK", 1)];
                format!("access {path} {}", bits.iter().find(|(name, _)| name == mode)?.1)
            }
            "newfstatat" | "stat" => format!("stat {path}"),
            "mkdir" => format!("mkdir {path} {}", call.argument(1).trim_start_matches('0')),
            "mkdirat" => format!("mkdir {path} {}", call.argument(2).trim_start_matches('0')),
            "unlink" | "unlinkat" => format!("unlink {path}"),
            "statfs" => format!("statfs {path}"),
            _ => return None,
        })
    }

    /// Returns an outer `None` for a call that does not concern a test file.
    fn about_map(&mut self, call: &Call) -> Option<Option<String>> {
        let (address, length) = (call.number(0)? as u64, call.number(1)? as u64);
        let (&start, &whole) = self.maps.range(..=address).next_back()?;
        let offset = address - start;
        if offset >= whole {
            return None;
        }
        Some(match (call.name.as_str(), call.argument(2)) {
            ("msync", "MS_SYNC") => Some(format!("msync {offset} {length}")),
            ("madvise", "MADV_SEQUENTIAL") => Some(format!("madvise {offset} {length} sequential")),
            ("madvise", "MADV_RANDOM") => Some(format!("madvise {offset} {length} random")),
            ("munmap", _) if offset == 0 && length == whole => {
                self.maps.remove(&start);
                Some(format!("unmap {length}"))
            }
            _ => None,
        })
    }

    fn map(&mut self, call: &Call, failed: bool) -> Option<Option<String>> {
        call.number(4).filter(|file| self.files.contains(file))?;
        if call.argument(3) != "MAP_SHARED" || call.number(5) != Some(0) {
            return Some(None);
        }
        let length = call.number(1)?;
        if !failed {
            self.maps.insert(number(&call.result)? as u64, length as u64);
        }
        let protection = if call.argument(2).contains("PROT_WRITE") { "rw" } else { "r" };
        Some(Some(format!("map {length} {protection}")))
    }

    fn about_file(&mut self, call: &Call, failed: bool) -> Option<Option<String>> {
        let file = call.number(0).filter(|file| self.files.contains(file))?;
        let moved = |kind: &str| {
            let asked = call.argument(2);
            let is_whole = call.result == asked || failed;
            let end = if is_whole { String::new() } else { format!(" = {}", call.result) };
            format!("{kind} {asked}{end}")
        };
        Some(Some(match call.name.as_str() {
            "lseek" if call.argument(2) == "SEEK_SET" => format!("seek {}", call.argument(1)),
            name @ ("read" | "write") => moved(name),
            "fsync" => "fsync".to_owned(),
            "ftruncate" => format!("truncate {}", call.argument(1)),
            "close" => {
                self.files.remove(&file);
                "close".to_owned()
            }
            "fcntl" => {
                let field = |key: &str| {
                    let (_, rest) = call.argument(2).split_once(&format!("{key}="))?;
                    rest.split([',', '}']).next()
                };
                let kind = match (call.argument(1), field("l_type")?) {
                    ("F_SETLKW", "F_RDLCK") => "read",
                    ("F_SETLKW", "F_WRLCK") => "write",
                    ("F_SETLK", "F_UNLCK") => "unlock",
                    _ => return Some(None),
                };
                format!("lock {kind} {} {}", field("l_start")?, field("l_len")?)
            }
            _ => return Some(None),
        }))
    }
}

impl Call {
    fn argument(&self, index: usize) -> &str {
        self.arguments.get(index).map_or("", String::as_str)
    }

    fn number(&self, index: usize) -> Option<i64> {
        number(self.argument(index))
    }
}

fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
