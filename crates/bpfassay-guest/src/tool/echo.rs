// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects a tool that reports what its own output causes. Printing a line, or the agent's reading
//! of it, is an event that the tool reports, so the tool prints the next line. Such a tool never
//! pauses, and under the instruction clock no phase ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::{Duration, Instant},
};

use super::{RunningTool, WITHIN_REPORT};
use crate::error::{Error, Result};

/// How long a tool can print without a pause, while no workload acts, before its output is
/// examined.
const ENDLESS: Duration = Duration::from_secs(2);

/// The smallest number of whole lines for a verdict.
const LEAST: usize = 10;

impl RunningTool {
    /// Waits for `time` while no workload acts, and keeps the tool's output in the meantime.
    ///
    /// # Errors
    /// The output cannot be read, or the tool reports without end what its own output causes.
    pub(crate) fn rest(&mut self, time: Duration) -> Result<()> {
        let begun = Instant::now();
        let (mut paused, mut printed) = (begun, begun);
        loop {
            let left = (begun + time).saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.wait(left)?;
            if !self.take()? {
                continue;
            }
            let now = Instant::now();
            if now.duration_since(printed) >= WITHIN_REPORT {
                paused = now;
            }
            printed = now;
            if now.duration_since(paused) >= ENDLESS {
                paused = now;
                self.check_echo()?;
            }
        }
    }

    /// Examines the last output.
    ///
    /// # Errors
    /// The last output shows that the tool reports what its own output causes, or its processes
    /// cannot be listed.
    fn check_echo(&self) -> Result<()> {
        // The agent's id is not included: it is 1, like many other numbers.
        let own: Vec<String> = self.processes()?.iter().map(|pid| pid.as_raw_nonzero().to_string()).collect();
        let comm =
            |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned());
        let names = own.iter().map(String::as_str).chain(["self"]).filter_map(comm).map(|name| (name.clone(), name));
        let ids = own.iter().map(|id| {
            let shown = comm(id).map_or_else(|| format!("process {id}"), |name| format!("process {id} ({name})"));
            (id.clone(), shown)
        });
        let names = names.chain(ids).collect();
        let output = String::from_utf8_lossy(self.output.tail().end()).into_owned();
        match of(&output, &names) {
            Some(problem) => Err(Error::Program { program: self.tool.name.clone(), problem, output }),
            None => Ok(()),
        }
    }
}

/// Describes the last lines as a predicate, if at least half of them contain one of `names` as a
/// word: names and ids of the tool's processes, and the name of the agent, each with the text that
/// stands for it.
fn of(last_output: &str, names: &BTreeMap<String, String>) -> Option<String> {
    // The first line may be cut, and the last one has not ended.
    let (whole, _) = last_output.rsplit_once('\n')?;
    let lines: Vec<&str> = whole.split('\n').skip(1).collect();
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/');
    let name_of = |line: &&str| line.split(|c| !is_part(c)).find_map(|word| names.get(word));
    let found: Vec<&String> = lines.iter().filter_map(name_of).collect();
    if lines.len() < LEAST || found.len() * 2 < lines.len() {
        return None;
    }
    let named: BTreeSet<&str> = found.iter().map(|name| name.as_str()).collect();
    let named = named.into_iter().collect::<Vec<_>>().join(", ");
    let (count, all) = (found.len(), lines.len());
    Some(format!(
        "reports without end what its own output causes: while no workload ran it printed without a pause, and {count} of its last {all} lines name {named}, which print \
         and read them"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> BTreeMap<String, String> {
        [("87", "process 87 (opensnoop-libbp)"), ("opensnoop-libbp", "opensnoop-libbp"), ("init", "init")]
            .map(|(word, shown)| (word.to_owned(), shown.to_owned()))
            .into()
    }

    #[test]
    fn lines_about_the_tool_or_the_agent_are_recognised() {
        let line = "87     opensnoop-libbp  -1   2 /etc/localtime\n";
        let said = of(&format!("cut {}8", line.repeat(12)), &names()).unwrap();
        assert!(said.contains("11 of its last 11 lines name process 87 (opensnoop-libbp),"), "{said}");
        let json = "{\"comm\":\"init\",\"pid\":1}\n".repeat(20);
        assert!(of(&json, &names()).unwrap().contains("19 of its last 19 lines name init,"));
        let both = format!("{}{}", line.repeat(6), "12 ior 3 0 /mnt\n".repeat(5));
        assert!(of(&both, &names()).is_some());
    }

    #[test]
    fn other_lines_are_no_echo_and_neither_are_few() {
        let line = "87 opensnoop-libbp -1 2 /etc/localtime\n";
        assert_eq!(of(&line.repeat(10), &names()), None, "nine whole lines");
        assert_eq!(of("", &names()), None);
        assert_eq!(of(&"870 ior 3 0 /opensnoop-libbp/init.d\n".repeat(50), &names()), None);
        let mixed = format!("{}{}", "12 ior 3 0 /mnt\n".repeat(12), line.repeat(5));
        assert_eq!(of(&mixed, &names()), None);
    }
}
