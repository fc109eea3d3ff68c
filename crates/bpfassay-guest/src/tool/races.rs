// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds updates of shared maps in a tool's programs that lose what other CPUs add.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    os::fd::{AsFd as _, OwnedFd},
    sync::{Mutex, PoisonError},
};

use bpfassay_bpf::{ProgramSource, by_id, map_info, program_info, program_source};
use bpfassay_btf::{
    instruction::{CALL, Instruction, LOAD_WIDE},
    races::{self, Kernel, SharedMap, racy_updates},
};
use bpfassay_protocol::{
    source::MAX_TEXT,
    tool_job::{Races, RacyUpdate},
};

use crate::{
    bpf::ObjectKind,
    program_lines::{self, BtfById},
    sent_symbols,
};

/// `BPF_MAP_TYPE_HASH`, `_ARRAY` and `_LRU_HASH` of include/uapi/linux/bpf.h: all CPUs see the same
/// values.
const SHARED: [u32; 3] = [1, 2, 9];

/// The most updates that are kept.
const MAX_UPDATES: usize = 64;

/// The function from which the kernel counts the addresses of functions that programs call.
const CALL_BASE: &str = "__bpf_call_base";

/// Looks for racy updates in the programs with these ids. A program that no longer exists is left
/// out.
pub(super) fn find(programs: &BTreeSet<u32>) -> Races {
    let mut races = Races::default();
    let opened: Vec<_> = programs.iter().filter_map(|&id| OpenedProgram::open(id)).collect();
    let kernel = RunningKernel { functions: functions(&called(&opened)), maps: maps(&opened) };
    let mut types = BtfById::default();
    for OpenedProgram { name: program, source } in opened {
        let found = source.and_then(|(source, instructions)| Ok((racy_updates(&instructions, &kernel)?, source)));
        match found {
            Ok((mut updates, source)) => {
                // An update with a source line says more.
                updates.sort_by_key(|update| update.is_merged);
                let mut known = BTreeSet::new();
                let new = updates.into_iter().filter(|update| known.insert(update.map)).map(|update| RacyUpdate {
                    program: program.clone(),
                    map: update.map,
                    line: line_of(&source, update, &mut types),
                });
                races.updates.extend(new);
            }
            Err(reason) => races.unknown.push(format!("{program}: {reason}")),
        }
    }
    races.updates.truncate(MAX_UPDATES);
    races.unknown.truncate(MAX_UPDATES);
    races
}

/// A program of the tool with its instructions, or why the kernel does not show them.
struct OpenedProgram {
    name: String,
    source: Result<(ProgramSource, Vec<Instruction>), String>,
}

impl OpenedProgram {
    fn open(id: u32) -> Option<Self> {
        let program: OwnedFd = by_id(ObjectKind::Program, id).ok()??;
        let name = program_info(program.as_fd()).map_or_else(|_| id.to_string(), |info| info.name);
        let source = program_source(program.as_fd()).map_err(|error| format!("the kernel does not show it: {error}"));
        let with_instructions = |source: ProgramSource| {
            let instructions = program_lines::instructions(&source.instructions);
            (source, instructions)
        };
        Some(Self { name, source: source.map(with_instructions) })
    }
}

/// Returns the instructions of all programs.
fn instructions(programs: &[OpenedProgram]) -> impl Iterator<Item = &Instruction> {
    programs.iter().flat_map(|program| program.source.iter().flat_map(|(_, instructions)| instructions))
}

/// Returns the immediate values of calls of kernel functions.
fn called(programs: &[OpenedProgram]) -> BTreeSet<i32> {
    let calls = instructions(programs).filter(|one| one.code == CALL && one.immediate != 0);
    calls.map(|one| one.immediate).collect()
}

/// The functions that calls with these immediate values call; `None` if the kernel does not show
/// the name. The core of the kernel keeps the addresses of its functions.
static KNOWN: Mutex<BTreeMap<i32, Option<String>>> = Mutex::new(BTreeMap::new());

/// Returns the names of the functions that calls with these immediate values call, as far as the
/// kernel shows addresses.
fn functions(calls: &BTreeSet<i32>) -> HashMap<i32, String> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if calls.iter().any(|call| !known.contains_key(call)) {
        let (mut base, mut symbols) = (None, BTreeMap::new());
        let listed = sent_symbols::each_function(|address, name| {
            if name == CALL_BASE {
                base = Some(address);
            }
            symbols.insert(address, name.to_owned());
            Ok(())
        });
        for &call in calls {
            let address = base.map(|base: u64| base.wrapping_add_signed(call.into()));
            let name = address.filter(|_| listed.is_ok()).and_then(|address| symbols.remove(&address));
            known.entry(call).or_insert(name);
        }
    }
    calls.iter().filter_map(|call| Some((*call, known.get(call)?.clone()?))).collect()
}

/// Returns the maps whose ids the programs hold.
fn maps(programs: &[OpenedProgram]) -> HashMap<u32, SharedMap> {
    /// `BPF_PSEUDO_MAP_FD` and `BPF_PSEUDO_MAP_VALUE`.
    const OF_MAP: [u8; 2] = [1, 2];
    let loads = instructions(programs).filter(|one| one.code == LOAD_WIDE && OF_MAP.contains(&one.source));
    let ids: BTreeSet<u32> = loads.map(|one| one.immediate.cast_unsigned()).collect();
    let of = |id: u32| {
        let map = by_id(ObjectKind::Map, id).ok()??;
        let info = map_info(map.as_fd()).ok()?;
        let is_shared = SHARED.contains(&info.kind);
        Some((id, SharedMap { key_size: info.key_size, value_size: info.value_size, is_shared }))
    };
    ids.into_iter().filter_map(of).collect()
}

/// The kernel's answers about the tool's programs.
struct RunningKernel {
    functions: HashMap<i32, String>,
    maps: HashMap<u32, SharedMap>,
}

impl Kernel for RunningKernel {
    fn map(&self, id: u32) -> Option<SharedMap> {
        self.maps.get(&id).copied()
    }

    fn function(&self, immediate: i32) -> Option<&str> {
        self.functions.get(&immediate).map(String::as_str)
    }
}

/// Returns the source line of an update, if the program has line records: the file's name, the
/// number of the line and the text. The number 0 means that the compiler knew no line.
fn line_of(source: &ProgramSource, update: races::RacyUpdate, types: &mut BtfById) -> Option<String> {
    let record = source.lines.iter().rfind(|line| line.instruction <= update.instruction)?;
    if record.line() == 0 || update.is_merged {
        return None;
    }
    let strings = types.strings(source.btf)?;
    let file = strings.at(record.file)?;
    let name = file.rsplit('/').next().unwrap_or_default();
    let text = strings.at(record.text).unwrap_or_default();
    let text = text.trim();
    Some(format!("{name}:{}: {}", record.line(), &text[..text.floor_char_boundary(MAX_TEXT)]))
}
