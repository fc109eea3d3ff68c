// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plugin's side of the model ([`CpuModel`]). Blocks and accesses within windows go through the
//! model, and its findings are counted by block.
//!
//! Unlike counting, this needs a callback at every block and every access. Outside of windows, the
//! callback returns at once.

use std::{
    collections::HashMap,
    ffi::{c_uint, c_void},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use self::model::{BlockEnding, CpuModel, Found, Step, ending};
use super::api::{Instruction, TranslatedBlock, access_bytes};

#[path = "model.rs"]
mod model;

/// Largest number of blocks that are distinguished, including those of user space.
const STEPS: usize = 1 << 22;

/// The model and its findings in the current window.
struct Modelling {
    model: CpuModel,
    /// QEMU's name of the architecture.
    target: String,
    /// All translated blocks. A callback gets an index into them.
    steps: Vec<Step>,
    indices: HashMap<Step, usize>,
    /// The findings, by the blocks' counter indices.
    found: Vec<Found>,
}

static MODELLING: Mutex<Option<Modelling>> = Mutex::new(None);
/// Whether a window has begun and not ended.
static IN_WINDOW: AtomicBool = AtomicBool::new(false);

fn modelling() -> MutexGuard<'static, Option<Modelling>> {
    MODELLING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Installs the model that `argument` describes; `None` if it does not describe one.
pub(crate) fn install(argument: &str, target: &str) -> Option<()> {
    let model = CpuModel::new(argument)?;
    let (target, steps, indices, found) = (target.to_owned(), Vec::new(), HashMap::new(), Vec::new());
    *modelling() = Some(Modelling { model, target, steps, indices, found });
    Some(())
}

/// Begins a window.
pub(crate) fn begin() {
    if let Some(modelling) = modelling().as_mut() {
        modelling.model.forget();
        modelling.found.fill(Found::default());
        IN_WINDOW.store(true, Ordering::Relaxed);
    }
}

/// Ends the window. Returns the findings by the blocks' counter indices; `None` without a model.
pub(crate) fn end() -> Option<Vec<Found>> {
    IN_WINDOW.store(false, Ordering::Relaxed);
    modelling().as_mut().map(|modelling| modelling.found.clone())
}

/// Registers `block`, which is being translated. Its findings are counted with `index`. Returns
/// whether there was room.
pub(crate) fn translated(block: &TranslatedBlock<'_>, index: usize) -> bool {
    let mut modelling = modelling();
    let Some(modelling) = modelling.as_mut() else { return true };
    let Some(step) = modelling.step(block, index) else { return false };
    block.call(on_block, step);
    for instruction in (0..block.instructions()).map(|at| block.instruction(at)) {
        instruction.call_at_accesses(on_access, index);
    }
    true
}

impl Modelling {
    /// Returns the index of `block` among the steps; `None` if there is no room.
    fn step(&mut self, block: &TranslatedBlock<'_>, index: usize) -> Option<usize> {
        let (address, bytes) = (block.address(), block.bytes());
        let last = block.instructions().checked_sub(1).map(|last| block.instruction(last));
        let ending = |last: &Instruction<'_>| {
            let (code, length) = last.bytes();
            ending(&self.target, last.address(), code.get(..length).unwrap_or_default())
        };
        let step = Step {
            index,
            address,
            bytes,
            last: last.as_ref().map_or(address, Instruction::address),
            ending: last.as_ref().map_or(BlockEnding::Other, ending),
        };
        if let Some(&known) = self.indices.get(&step) {
            return Some(known);
        }
        let next = self.steps.len();
        (next < STEPS).then(|| {
            self.indices.insert(step, next);
            self.steps.push(step);
            next
        })
    }

    fn count(&mut self, index: usize, more: Found) {
        if self.found.len() <= index {
            self.found.resize(index + 1, Found::default());
        }
        for (sum, more) in self.found[index].iter_mut().zip(more) {
            *sum += more;
        }
    }
}

extern "C" fn on_block(_: c_uint, step: *mut c_void) {
    if !IN_WINDOW.load(Ordering::Relaxed) {
        return;
    }
    if let Some(modelling) = modelling().as_mut()
        && let Some(&step) = modelling.steps.get(step.addr())
    {
        let (found, mispredicted) = modelling.model.execute(step);
        modelling.count(step.index, found);
        if let Some(before) = mispredicted {
            modelling.count(before, CpuModel::mispredicted());
        }
    }
}

extern "C" fn on_access(_: c_uint, info: u32, address: u64, index: *mut c_void) {
    if !IN_WINDOW.load(Ordering::Relaxed) {
        return;
    }
    if let Some(modelling) = modelling().as_mut() {
        let found = modelling.model.access(address, access_bytes(info));
        modelling.count(index.addr(), found);
    }
}
