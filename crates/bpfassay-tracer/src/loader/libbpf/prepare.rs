// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prepares an open object: settings, prototypes, and the selection of programs and maps that this
//! kernel and these options need.

use std::{collections::BTreeSet, ffi::OsStr};

use bpfassay_protocol::finding_name::Finding;
use bpfassay_tracer_common::{Settings, map};
use libbpf_rs::OpenObject;

use crate::loader::plan::{
    probes::{self, Attachment, REQUIRED},
    prototypes::{self, failure},
    refusal::Failure,
    settings::{copies, fsync_without_mount, is_task_known, not_counted},
    tracer_options::TracerOptions,
};

/// Sections of [`Settings`] and of prototypes ([`prototypes::table`]), which are separate maps.
const SETTINGS: &str = ".rodata.settings";
const PROTOTYPES: &str = ".rodata.prototypes";
/// Section of the page size, in objects that count pages.
const PAGE_SIZE: &str = ".rodata.page_size";
/// Section of the setting whether programs can get the calling task ([`is_task_known`]).
const TASK_KNOWN: &str = ".rodata.task_known";

/// Functions that later kernels replace by another one, which is hooked as well if it exists.
const INSTEAD: [(&str, &str); 1] = [("do_set_pte", "set_pte_range")];

/// Prepares `open` for this kernel.
///
/// # Errors
/// [`Failure`] if the kernel has no type information, or an object does not have the expected form.
pub(super) fn prepare(
    open: &mut OpenObject,
    options: &TracerOptions,
    absent: &BTreeSet<&str>,
) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    let sections: Vec<String> = open.progs().map(|program| program.section().to_string_lossy().into_owned()).collect();
    let hooks: Vec<(Attachment, &str)> = sections.iter().filter_map(|section| probes::attachment(section)).collect();
    let found = prototypes::find(&hooks, options)?;

    let has_copies = open.progs().any(|program| probes::copy_of(&program.name().to_string_lossy()).is_some());
    let copies = if has_copies { copies() } else { 1 };
    let settings = Settings::new(options.cgroup, options.mount, options.latency, copies);
    write(open, SETTINGS, &settings.to_bytes())?;
    if open.maps().any(|map| map.name() == OsStr::new(PAGE_SIZE)) {
        write(open, PAGE_SIZE, &(rustix::param::page_size() as u64).to_ne_bytes())?;
    }
    if open.maps().any(|map| map.name() == OsStr::new(TASK_KNOWN)) {
        write(open, TASK_KNOWN, &u64::from(is_task_known()).to_ne_bytes())?;
        if !is_task_known() && hooks.iter().any(|(_, function)| *function == "sys_fsync") {
            findings.push(fsync_without_mount());
        }
    }
    if open.maps().any(|map| map.name() == OsStr::new(PROTOTYPES)) {
        write(open, PROTOTYPES, &prototypes::table(&found, options))?;
    }

    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let section = program.section().to_string_lossy().into_owned();
        let Some((attachment, function)) = probes::attachment(&section) else { continue };
        let function = options.function(function);
        let unwanted = probes::copy_of(&name).is_some_and(|(_, copy)| copy > settings.copies)
            || name.ends_with("_begin") && !options.latency
            || name.ends_with("_mark") && settings.copies == 1;
        let unknown = !found.contains_key(function);
        let missing = attachment == Attachment::Trampoline && (unknown || absent.contains(function));
        let stands_in = INSTEAD.iter().any(|&(older, newer)| older == function && found.contains_key(newer));
        if missing && !unwanted && !stands_in && !REQUIRED.contains(&function) {
            let why =
                if unknown { "the kernel has no type information on it" } else { "it has no address of that name" };
            findings.push(not_counted(function, why));
        }
        if unwanted || missing && !REQUIRED.contains(&function) {
            program.set_autoload(false);
        }
    }
    for mut one in open.maps_mut() {
        let name = one.name().to_string_lossy().into_owned();
        let wanted = match name.as_str() {
            map::COUNTERS_2 => settings.copies > 1,
            "turns" => settings.copies > 1,
            "starts" | map::LATENCIES => options.latency,
            _ => true,
        };
        let failed = |error: libbpf_rs::Error| failure(format!("the map `{name}` cannot be set up: {error:#}"));
        if name == map::SLOTS {
            one.set_max_entries(settings.copies * bpfassay_tracer_common::Operation::DATA).map_err(failed)?;
        }
        if !wanted {
            one.set_autocreate(false).map_err(failed)?;
        } else if let Some(entries) = options.map_entries {
            match name.as_str() {
                map::COUNTERS | map::COUNTERS_2 => one.set_max_entries(entries).map_err(failed)?,
                // The size is a power of two and whole pages. Each event has a header of eight
                // bytes.
                map::EVENTS => {
                    let page = u32::try_from(rustix::param::page_size()).unwrap_or(1 << 16);
                    let bytes = entries.saturating_mul(64).clamp(page, 1 << 30);
                    one.set_max_entries(bytes.next_power_of_two()).map_err(failed)?;
                }
                _ => {}
            }
        }
    }
    Ok(findings)
}

/// Writes the beginning of a read-only section.
fn write(open: &mut OpenObject, section: &str, bytes: &[u8]) -> Result<(), Failure> {
    let written = open.maps_mut().find(|map| map.name() == OsStr::new(section)).is_some_and(|mut map| {
        map.initial_value_mut().is_some_and(|value| {
            // If the section is padded, the padding is at its end.
            value.get_mut(..bytes.len()).map(|value| value.copy_from_slice(bytes)).is_some()
        })
    });
    if written { Ok(()) } else { Err(failure(format!("the object has no `{section}` of {} bytes", bytes.len()))) }
}
