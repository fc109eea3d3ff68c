// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel objects that tools create: BPF objects and probes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use bpfassay_protocol::with_causes;

use super::state_comparison::Facts;
use crate::bpf::{self, ObjectKind};

/// Files of tracefs that list, one per line, what was created, enabled or chosen, and the name for
/// one entry. An event with a trigger counts as enabled (`__ftrace_event_enable_disable`,
/// kernel/trace/trace_events.c).
const LISTS: [(&str, &str); 9] = [
    ("dynamic_events", "event"),
    ("kprobe_events", "event"),
    ("uprobe_events", "event"),
    ("set_event", "enabled event"),
    ("set_ftrace_filter", "function filter"),
    ("set_ftrace_notrace", "function exclusion"),
    ("set_graph_function", "graph function"),
    ("set_graph_notrace", "graph exclusion"),
    ("trace_options", "option"),
];

/// The event that the kernel enables for good when the first program that can call
/// `bpf_trace_printk` is loaded (`__set_printk_clr_event`, kernel/trace/bpf_trace.c, since 5.9). It
/// is not a tool's leftover.
const OF_KERNEL: &str = "bpf_trace:bpf_trace_printk";

/// Files of tracefs with one value.
const VALUES: [&str; 10] = [
    "current_tracer",
    "max_graph_depth",
    "set_event_notrace_pid",
    "set_event_pid",
    "set_ftrace_notrace_pid",
    "set_ftrace_pid",
    "trace_clock",
    "tracing_cpumask",
    "tracing_on",
    "tracing_thresh",
];

/// Kinds of BPF objects that have names, and the beginnings of their facts.
const NAMED: [(ObjectKind, &str); 2] = [(ObjectKind::Program, "program "), (ObjectKind::Map, "map ")];

/// Returns the ids of programs, maps and links. It opens no object: to close the last descriptor of
/// a map of the type `prog_array` makes the kernel clear the map in the background with a reference
/// to it. If the map already waits for that, the kernel never gives the reference back, and the map
/// stays for ever (`bpf_map_put_uref`, kernel/bpf/syscall.c, and `prog_array_map_clear`,
/// kernel/bpf/arraymap.c, since Linux 5.5).
pub(super) fn bpf() -> Facts {
    let ids = |kind| bpf::ids(kind).map_err(|error| with_causes(&error));
    let mut facts = programs_and_maps(&ids(ObjectKind::Program)?, &ids(ObjectKind::Map)?);
    let links = bpf::links().map_err(|error| with_causes(&error))?.unwrap_or_default();
    facts.extend(links.into_iter().map(|id| (format!("link {id}"), String::new())));
    Ok(facts)
}

/// Returns the facts of the programs and maps with these ids, without names.
pub(super) fn programs_and_maps(programs: &BTreeSet<u32>, maps: &BTreeSet<u32>) -> BTreeMap<String, String> {
    let facts = NAMED.into_iter().zip([programs, maps]);
    facts.flat_map(|((_, what), ids)| ids.iter().map(move |id| (format!("{what}{id}"), String::new()))).collect()
}

/// Sets the names of the programs and maps in `now` that are not in `before`. It opens these. An
/// object that is gone by now keeps its empty name.
pub(super) fn name_new(before: &Facts, now: &mut Facts) {
    let name = |kind, id| {
        let object = bpf::objects(kind, [id]).ok()?.pop()?;
        Some(object.name)
    };
    name_by(name, before, now);
}

fn name_by(mut name: impl FnMut(ObjectKind, u32) -> Option<String>, before: &Facts, now: &mut Facts) {
    let (Ok(before), Ok(now)) = (before, now) else { return };
    for (fact, value) in now.iter_mut().filter(|(fact, _)| !before.contains_key(*fact)) {
        let object = NAMED.into_iter().find_map(|(kind, what)| Some((kind, fact.strip_prefix(what)?.parse().ok()?)));
        *value = object.and_then(|(kind, id)| name(kind, id)).unwrap_or_default();
    }
}

/// Returns probe events, enabled events, filters, options, tracers and instances.
pub(super) fn tracefs() -> Facts {
    const TRACEFS: &str = "/sys/kernel/tracing";
    let mut facts = BTreeMap::new();
    // Which files exist depends on the kernel.
    let read = |name: &str| fs::read_to_string(format!("{TRACEFS}/{name}")).ok();
    for (name, what) in LISTS {
        let text = read(name).unwrap_or_default();
        facts.extend(listed(what, &text).map(|fact| (fact, String::new())));
    }
    for name in VALUES {
        facts.extend(read(name).map(|value| (name.to_owned(), value.trim_end().to_owned())));
    }
    let instances = fs::read_dir(format!("{TRACEFS}/instances")).map_err(|error| error.to_string())?;
    for instance in instances {
        let instance = instance.map_err(|error| error.to_string())?;
        facts.insert(format!("instance {}", instance.file_name().to_string_lossy()), String::new());
    }
    Ok(facts)
}

/// Returns the lines of `text`, the contents of one of [`LISTS`], that a tool can have left.
fn listed<'a>(what: &'a str, text: &'a str) -> impl Iterator<Item = String> + 'a {
    text.lines().map(str::trim_end).filter(|line| *line != OF_KERNEL).map(move |line| format!("{what} {line}"))
}

/// Returns the functions with a kprobe, from `/sys/kernel/debug/kprobes/list`.
pub(super) fn kprobes() -> Facts {
    let text = fs::read_to_string("/sys/kernel/debug/kprobes/list").map_err(|error| error.to_string())?;
    Ok(text.lines().filter_map(probe).map(|probe| (probe, String::new())).collect())
}

/// Returns kind and address in a line such as `ffffffff8122e4b0  k  vfs_read+0x0    [FTRACE]`. The
/// flags in brackets vary.
fn probe(line: &str) -> Option<String> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    Some(format!("{} {}", fields.next()?, fields.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_the_kernel_enables_itself_is_not_left_by_a_tool() {
        let text = "bpf_trace:bpf_trace_printk\nsched:sched_switch \n";
        assert_eq!(listed("enabled event", text).collect::<Vec<_>>(), ["enabled event sched:sched_switch"]);
    }

    #[test]
    fn only_new_programs_and_maps_are_opened_for_their_names() {
        let facts = |programs: &[u32], maps: &[u32]| {
            Ok(programs_and_maps(&programs.iter().copied().collect(), &maps.iter().copied().collect()))
        };
        let (before, mut now) = (facts(&[1, 2], &[1]), facts(&[2, 5], &[1, 2, 3]));
        now.as_mut().unwrap().insert("link 9".to_owned(), String::new());
        let mut opened = Vec::new();
        let name = |kind, id| {
            opened.push((kind, id));
            (id != 2).then(|| format!("the {id}th"))
        };
        name_by(name, &before, &mut now);
        opened.sort_unstable_by_key(|&(_, id)| id);
        assert_eq!(opened, [(ObjectKind::Map, 2), (ObjectKind::Map, 3), (ObjectKind::Program, 5)]);
        let now = now.unwrap();
        let values = ["program 2", "program 5", "map 1", "map 2", "map 3", "link 9"].map(|fact| &*now[fact]);
        assert_eq!(values, ["", "the 5th", "", "", "the 3th", ""]);
    }

    #[test]
    fn a_probe_is_named_by_its_kind_and_address() {
        assert_eq!(probe("ffffffff8122e4b0  k  vfs_read+0x0    [FTRACE]").as_deref(), Some("k vfs_read+0x0"));
        assert_eq!(probe("ffffffff8122e4b0  r  vfs_read+0x0  [DISABLED]").as_deref(), Some("r vfs_read+0x0"));
        assert_eq!(probe(""), None);
    }
}
