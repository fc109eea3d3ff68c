// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plugin: a library that `build.rs` compiles for each version of QEMU's plugin interface.
//!
//! It counts how often each translated block of kernel code is executed. Translated code adds to
//! the counters itself, so a running guest causes no calls; only markers call back
//! (`bpfassay-guest`, `marker.rs`). A block that is translated again keeps its counter. For user
//! space, only instructions are counted, by page of code, because processes have separate pages.
//!
//! If there is an argument `model`, a model of caches and branches also finds misses and
//! mispredicted branches within windows (`modelling.rs`).

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

/// Number of counters, several times the number of kernel blocks in a boot.
const BLOCKS: usize = 1 << 20;
/// The counter of instructions for user-space pages without a counter.
const USER: usize = 0;
/// Counters that user-space pages leave to kernel blocks. The number of pages is unbounded, because
/// each run has processes at other addresses.
const KERNELS_OWN: usize = BLOCKS / 2;

/// The identity of a block. Other code of as many instructions can replace code that is gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct BlockKey {
    address: u64,
    instructions: u32,
    bytes: u64,
}

/// The counters, and the file for windows.
struct PluginState {
    output: Option<File>,
    counters: Counters,
    /// The counter of each block.
    indices: HashMap<BlockKey, usize>,
    /// The block of each counter.
    blocks: Vec<BlockKey>,
    /// The counters at the start of the window; `None` outside of windows.
    before: Option<Vec<u64>>,
    /// Number of windows that have begun.
    windows: u64,
    /// Number of blocks without a counter.
    uncounted: u64,
    markers: marker::Markers,
}

static STATE: Mutex<Option<PluginState>> = Mutex::new(None);

fn state() -> MutexGuard<'static, Option<PluginState>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PluginState {
    /// Returns the counter of a block; `None` if none is left.
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

    /// Returns the counter of the user-space page with code at `address`.
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
        // After an error, a reader could not find the next window. So the stream ends, and the host
        // finds windows missing.
        if self.output.as_mut().is_some_and(|output| output.write_all(&window).is_err()) {
            self.output = None;
        }
    }
}

extern "C" fn on_translation(_: PluginId, block: *mut TranslationBlock) {
    // SAFETY: QEMU's block is valid during this call.
    let block = unsafe { api::TranslatedBlock::new(block) };
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

/// Entry point: QEMU calls it when it loads the plugin. The arguments are `output=DESCRIPTOR` and,
/// for a model, `model=GEOMETRY`.
///
/// # Safety
/// `info` and the `count` elements of `arguments` are valid during the call.
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
    // SAFETY: the program that started QEMU passes this descriptor for the plugin alone.
    let output = unsafe { File::from_raw_fd(output) };
    let counters = Counters::new(BLOCKS);
    *state() = Some(PluginState {
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
