// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the reports of the loader of bare objects.

use bpfassay_protocol::{
    checked_prototype::Checked,
    loaded_object::{LoadedObject, ObjectLine, UnattachedProgram},
    tool_job::{MapKeys, ProcessorTime, Source, ToolFigures},
};
use bpfassay_results::{Loaded, MapFill, ToolProcessor};

/// Parses the loader's lines on standard output; other lines are skipped.
fn lines(seen: &ToolFigures) -> Vec<ObjectLine> {
    let output = seen.output.iter().filter(|piece| piece.source == Source::Output);
    let text: String = output.map(|piece| piece.text.as_str()).collect();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns the types of a bundled object.
pub(super) fn types(seen: &ToolFigures) -> Option<Vec<u8>> {
    lines(seen).into_iter().find_map(|line| match line {
        ObjectLine::Types { btf } => Some(btf.0),
        _ => None,
    })
}

fn reported(seen: &ToolFigures) -> Option<LoadedObject> {
    lines(seen).into_iter().find_map(|line| match line {
        ObjectLine::Loaded(loaded) => Some(loaded),
        _ => None,
    })
}

/// Returns the object's programs that only a loader of its own can attach.
pub(super) fn unattached(seen: &ToolFigures) -> Vec<UnattachedProgram> {
    reported(seen).map(|loaded| loaded.unattached).unwrap_or_default()
}

/// Returns how the kernel loaded the tool, with the loader's part of the verifier's log.
pub(super) fn loaded(seen: &ToolFigures) -> Loaded {
    let reported = reported(seen);
    let mut programs = seen.programs.clone();
    for verified in reported.iter().flat_map(|loaded| &loaded.programs) {
        let of_program = programs.iter_mut().find(|program| program.id == verified.id);
        if let Some(code) = of_program.and_then(|program| program.code.as_mut()) {
            code.log = verified.log;
            // Kernels before 5.16 report the number of instructions in the log alone.
            code.verified = code.verified.or(verified.log.map(|log| log.instructions));
        }
    }
    Loaded {
        ready_ns: seen.ready_ns,
        load_ns: reported.map(|loaded| loaded.load_ns),
        stop_ns: seen.stop_ns,
        map_bytes: seen.maps.iter().map(|map| map.memory_bytes).sum(),
        resident_bytes: seen.resident_bytes.into_iter().max().filter(|&bytes| bytes > 0),
        processor: processor(&seen.processor_us),
        events: None,
        maps: seen.map_keys.iter().filter_map(|keys| fill(seen, keys)).collect(),
        programs,
    }
}

fn processor(time: &ProcessorTime) -> Option<ToolProcessor> {
    let (idle_us, working_us) = (time.idle.checked_sub(time.ready)?, time.stopped.checked_sub(time.idle)?);
    (time.idle_ns > 0).then_some(ToolProcessor { idle_us, idle_ns: time.idle_ns, working_us })
}

fn fill(seen: &ToolFigures, keys: &MapKeys) -> Option<MapFill> {
    let name = seen.maps.iter().find(|map| map.id == keys.id)?.name.clone();
    let most_keys = keys.counts.iter().map(|count| count.keys).max()?;
    Some(MapFill { name, most_keys, max_entries: keys.max_entries })
}

/// Returns how the object's programs compare with the kernel's prototypes; `None` if the loader did
/// not report it.
pub(super) fn prototypes(seen: &ToolFigures) -> Option<Vec<Checked>> {
    lines(seen).into_iter().find_map(|line| match line {
        ObjectLine::Prototypes { checked } => Some(checked),
        _ => None,
    })
}
