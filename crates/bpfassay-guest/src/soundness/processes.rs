// SPDX-License-Identifier: MIT OR Apache-2.0
//! User-space processes. Between runs, the only one in a guest is the agent.

use std::{collections::BTreeMap, fmt::Display, fs};

use super::state_comparison::Facts;
use crate::proc::stat;

/// Returns all processes that are not kernel threads, by process id, with their names.
pub(super) fn user() -> Facts {
    let mut processes = BTreeMap::new();
    for entry in fs::read_dir("/proc").map_err(|error| error.to_string())? {
        let entry = entry.map_err(|error| error.to_string())?;
        let name = entry.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) else { continue };
        // A process that has exited in the meantime does not count.
        let Ok(text) = fs::read(entry.path().join("stat")) else { continue };
        let text = String::from_utf8_lossy(&text);
        let Some(stat) = stat::parse(&text) else { return Err(format!("/proc/{pid}/stat is not readable")) };
        if !stat.is_kernel_thread() {
            processes.extend(fact(pid, &stat));
        }
    }
    Ok(processes)
}

/// Returns the facts of the process with this id.
pub(super) fn of(pid: i32) -> Facts {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read(&path).map_err(|error| format!("{path}: {error}"))?;
    let text = String::from_utf8_lossy(&text);
    let stat = stat::parse(&text).ok_or_else(|| format!("{path} is not readable"))?;
    Ok(fact(pid, &stat).into())
}

fn fact(pid: impl Display, stat: &stat::Stat<'_>) -> [(String, String); 1] {
    [(format!("process {pid}"), stat.name.to_owned())]
}

/// Returns what programs inherit from this process: scheduling, CPUs and cgroup.
pub(super) fn inherited() -> Facts {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let stat = read("/proc/self/stat")?;
    let stat = stat::parse(&stat).ok_or_else(|| "/proc/self/stat is not readable".to_owned())?;
    let mut facts = BTreeMap::from([
        ("nice value".to_owned(), stat.nice.to_owned()),
        ("real-time priority".to_owned(), stat.priority.to_owned()),
        ("scheduling policy".to_owned(), stat.policy.to_owned()),
        ("cgroup".to_owned(), read("/proc/self/cgroup")?.trim_end().replace('\n', " ")),
        ("oom_score_adj".to_owned(), read("/proc/self/oom_score_adj")?.trim_end().to_owned()),
    ]);
    let status = read("/proc/self/status")?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    facts.insert("CPUs".to_owned(), allowed.unwrap_or_default().trim().to_owned());
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_one() {
        let pid = format!("process {}", std::process::id());
        assert!(user().unwrap().contains_key(&pid));
        assert!(inherited().unwrap().contains_key("nice value"));
    }
}
