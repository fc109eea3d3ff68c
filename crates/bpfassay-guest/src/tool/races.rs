// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds updates of shared maps in a tool's programs that lose what other CPUs add.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    io::{BufRead as _, BufReader},
    os::fd::{AsFd as _, OwnedFd},
};

use bpfassay_bpf::{ProgramSource, by_id, map_info, program_info, program_source};
use bpfassay_btf::races::{Kernel, SharedMap, racy_updates};
use bpfassay_protocol::{
    source::MAX_TEXT,
    tool_job::{Races, RacyUpdate},
};

use crate::{bpf::ObjectKind, program_lines::BtfById};

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
    let opened: Vec<(String, Result<ProgramSource, String>)> = programs.iter().filter_map(|&id| opened(id)).collect();
    let calls: BTreeSet<i32> = opened.iter().flat_map(|(_, source)| source.iter().flat_map(called)).collect();
    let kernel = RunningKernel { functions: functions(&calls), maps: maps(&opened) };
    let mut types = BtfById::default();
    for (program, source) in opened {
        let found = source.and_then(|source| {
            let code: Vec<u8> = source.instructions.iter().flat_map(|word| word.to_ne_bytes()).collect();
            Ok((racy_updates(&code, &kernel)?, source))
        });
        match found {
            Ok((updates, source)) => {
                let mut known = BTreeSet::new();
                let new = updates.into_iter().filter(|update| known.insert(update.map)).map(|update| RacyUpdate {
                    program: program.clone(),
                    map: update.map,
                    line: line_of(&source, update.instruction, &mut types),
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

fn opened(id: u32) -> Option<(String, Result<ProgramSource, String>)> {
    let program: OwnedFd = by_id(ObjectKind::Program, id).ok()??;
    let name = program_info(program.as_fd()).map_or_else(|_| id.to_string(), |info| info.name);
    let source = program_source(program.as_fd()).map_err(|error| format!("the kernel does not show it: {error}"));
    Some((name, source))
}

/// Returns the immediate values of calls of kernel functions in a program.
fn called(source: &ProgramSource) -> impl Iterator<Item = i32> {
    /// `BPF_JMP | BPF_CALL` in the lowest byte.
    const CALL: u64 = 0x85;
    let calls = source.instructions.iter().filter(|word| **word & 0xff == CALL);
    calls.map(|word| (word >> 32) as i32).filter(|&immediate| immediate != 0)
}

/// Returns the names of the functions that calls with these immediate values call, as far as the
/// kernel shows addresses.
fn functions(calls: &BTreeSet<i32>) -> HashMap<i32, String> {
    let mut named = HashMap::new();
    let Ok(file) = File::open("/proc/kallsyms") else { return named };
    let (mut base, mut symbols) = (None, BTreeMap::new());
    for line in BufReader::with_capacity(1 << 16, file).lines().map_while(Result::ok) {
        let mut fields = line.split_ascii_whitespace();
        let Some(address) = fields.next().and_then(|address| u64::from_str_radix(address, 16).ok()) else { continue };
        let (Some("t" | "T"), Some(name)) = (fields.next(), fields.next()) else { continue };
        if name == CALL_BASE {
            base = Some(address);
        }
        symbols.insert(address, name.to_owned());
    }
    for &call in calls {
        let address = base.map(|base: u64| base.wrapping_add_signed(call.into()));
        named.extend(address.and_then(|address| symbols.remove(&address)).map(|name| (call, name)));
    }
    named
}

/// Returns the maps whose ids the programs hold.
fn maps(programs: &[(String, Result<ProgramSource, String>)]) -> HashMap<u32, SharedMap> {
    /// `BPF_LD | BPF_IMM | BPF_DW` with a map or with a value of one.
    const LOAD_WIDE: u64 = 0x18;
    let words = programs.iter().flat_map(|(_, source)| source.iter().flat_map(|source| &source.instructions));
    let ids = words.filter(|word| **word & 0xff == LOAD_WIDE && matches!(**word >> 12 & 0xf, 1 | 2));
    let ids: BTreeSet<u32> = ids.map(|word| (word >> 32) as u32).collect();
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

/// Returns the source line of an instruction, if the program has line records: the file's name, the
/// number of the line and the text.
fn line_of(source: &ProgramSource, instruction: u32, types: &mut BtfById) -> Option<String> {
    let record = source.lines.iter().rfind(|line| line.instruction <= instruction)?;
    let strings = types.strings(source.btf)?;
    let file = strings.at(record.file)?;
    let name = file.rsplit('/').next().unwrap_or_default();
    let text = strings.at(record.text).unwrap_or_default();
    let text = text.trim();
    Some(format!("{name}:{}: {}", record.line(), &text[..text.floor_char_boundary(MAX_TEXT)]))
}
