// SPDX-License-Identifier: MIT OR Apache-2.0
//! QEMU's side: a library of its own, which `build.rs` compiles for each version of QEMU's plugin
//! interface.
//!
//! It counts how often each translated block of kernel code is executed. Translated code itself
//! adds to the counters, so that nothing is called while a guest runs; only a marker
//! (`bpfassay-guest`, `marker.rs`) calls back. A block that is translated again keeps its counter.
//! Of user space only the number of instructions is counted, by page of code: processes have pages
//! of their own. With the argument `model`, a model of caches and branches finds out besides what
//! misses and is mispredicted within windows (`modelling.rs`).

use std::{
    collections::HashMap,
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    fs::File,
    io::Write,
    os::fd::{FromRawFd as _, RawFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use self::api::{Counters, Info, PluginId, TranslationBlock};

#[path = "api.rs"]
mod api;
#[path = "format.rs"]
mod format;
#[path = "main_loop.rs"]
mod main_loop;
#[path = "marker.rs"]
mod marker;
#[path = "modelling.rs"]
mod modelling;
#[path = "turn.rs"]
mod turn;

/// Blocks that have a counter of their own: several times as many as kernels of a boot have.
const BLOCKS: usize = 1 << 20;
/// The counter of user space for pages that found no counter of their own. It counts instructions,
/// and so do those of pages.
const USER: usize = 0;
/// Counters that pages of user space leave to the kernel's blocks: each run has processes at other
/// addresses, so that pages never come to an end.
const KERNELS_OWN: usize = BLOCKS / 2;

/// What distinguishes blocks. In the place of code that is gone there may be other code of as many
/// instructions.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct BlockKey {
    address: u64,
    instructions: u32,
    bytes: u64,
}

/// What is counted, and where.
struct State {
    output: Option<File>,
    counters: Counters,
    /// The counter of each block.
    indices: HashMap<BlockKey, usize>,
    /// The block of each counter.
    blocks: Vec<BlockKey>,
    /// The counters when the window began; `None` outside of windows.
    before: Option<Vec<u64>>,
    /// Windows that have begun.
    windows: u64,
    /// Blocks that found no counter left.
    uncounted: u64,
    markers: marker::Markers,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

fn state() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// The counter of a block; `None` where none is left.
    fn index(&mut self, block: BlockKey) -> Option<usize> {
        let next = self.blocks.len();
        if let Some(&known) = self.indices.get(&block) {
            return Some(known);
        }
        if next >= BLOCKS {
            self.uncounted += 1;
            return None;
        }
        self.indices.insert(block, next);
        self.blocks.push(block);
        Some(next)
    }

    /// The counter of the page of user space with code at `address`.
    fn page(&mut self, address: u64) -> usize {
        let page = BlockKey { address: address & !(format::PAGE - 1), instructions: 1, bytes: 0 };
        let known = self.indices.get(&page).copied();
        let has_room = self.blocks.len() < BLOCKS - KERNELS_OWN;
        known.or_else(|| if has_room { self.index(page) } else { None }).unwrap_or(USER)
    }

    fn values(&self) -> Vec<u64> {
        (0..self.blocks.len()).map(|index| self.counters.value(index)).collect()
    }

    fn begin(&mut self) {
        self.windows += 1;
        self.before = Some(self.values());
        modelling::begin();
    }

    fn end(&mut self) {
        let Some(before) = self.before.take() else { return };
        let found = modelling::end();
        let found_of = |index: usize| found.as_ref().map(|found| found.get(index).copied().unwrap_or_default());
        let (mut user, mut records, mut blocks) = (0, Vec::new(), 0_u64);
        for (index, after) in self.values().into_iter().enumerate() {
            let executions = after.wrapping_sub(before.get(index).copied().unwrap_or_default());
            if executions == 0 {
                continue;
            }
            let BlockKey { address, instructions, bytes } = self.blocks[index];
            if index == USER {
                user = executions;
            } else {
                blocks += 1;
                let record = [address, u64::from(instructions), bytes, executions];
                let record = record.into_iter().chain(found_of(index).into_iter().flatten());
                records.extend(record.flat_map(u64::to_le_bytes));
            }
        }
        let magic = if found.is_some() { format::MAGIC_MODEL } else { format::MAGIC };
        let head = [magic, self.windows, user, self.uncounted, blocks].into_iter();
        let head = head.chain(found_of(USER).into_iter().flatten());
        let mut window: Vec<u8> = head.flat_map(u64::to_le_bytes).collect();
        window.append(&mut records);
        // After an error the stream could not be read any more: it ends there, and the host finds
        // windows missing.
        if self.output.as_mut().is_some_and(|output| output.write_all(&window).is_err()) {
            self.output = None;
        }
    }
}

extern "C" fn on_translation(_: PluginId, block: *mut TranslationBlock) {
    // SAFETY: QEMU's block is valid during this call.
    let block = unsafe { api::Block::new(block) };
    let mut state = state();
    let Some(state) = state.as_mut() else { return };
    let (address, count) = (block.address(), block.instructions());
    let mut is_modelled = true;
    if address & format::KERNEL == 0 {
        is_modelled = modelling::translated(&block, USER);
        let page = state.page(address);
        block.count(&state.counters, page, u64::from(count));
        for index in 0..count {
            let instruction = block.instruction(index);
            let (bytes, length) = instruction.bytes();
            if let Some(code) = bytes.get(..length).and_then(|bytes| marker::code(state.markers, bytes)) {
                instruction.call(on_marker, code);
            }
        }
    } else if let Some(index) = state.index(BlockKey { address, instructions: count, bytes: block.bytes() }) {
        is_modelled = modelling::translated(&block, index);
        block.count(&state.counters, index, 1);
    }
    state.uncounted += u64::from(!is_modelled);
}

extern "C" fn on_marker(_: c_uint, code: *mut c_void) {
    if let Some(state) = state().as_mut() {
        match code.addr() as u8 {
            marker::BEGIN => state.begin(),
            _ => state.end(),
        }
    }
}

/// What QEMU calls when it loads the plugin, with the arguments `output=DESCRIPTOR` and, for a
/// model, `model=GEOMETRY`.
///
/// # Safety
/// `info` and `arguments`, of which there are `count`, are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: the caller vouches for both.
    let (target, arguments) = unsafe {
        let arguments: Vec<&CStr> = (0..count as usize).map(|index| CStr::from_ptr(*arguments.add(index))).collect();
        (CStr::from_ptr((*info).target_name), arguments)
    };
    let target = target.to_str().unwrap_or_default();
    let Some(markers) = marker::of_target(target) else { return -1 };
    let argument = |name| arguments.iter().find_map(|argument| argument.to_str().ok()?.strip_prefix(name));
    if argument("model=").is_some_and(|model| modelling::install(model, target).is_none()) {
        return -1;
    }
    let output = argument("output=").and_then(|output| output.parse().ok());
    let Some(output): Option<RawFd> = output else { return -1 };
    // SAFETY: who started QEMU gives it this descriptor for the plugin alone.
    let output = unsafe { File::from_raw_fd(output) };
    let counters = Counters::new(BLOCKS);
    *state() = Some(State {
        output: Some(output),
        counters,
        indices: HashMap::new(),
        blocks: vec![BlockKey { address: 0, instructions: 1, bytes: 0 }],
        before: None,
        windows: 0,
        uncounted: 0,
        markers,
    });
    // SAFETY: both callbacks have the type that QEMU calls.
    unsafe { api::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation) };
    0
}
