// SPDX-License-Identifier: MIT OR Apache-2.0
//! Safe bindings to the part of QEMU's plugin interface that the plugin uses
//! (include/qemu/qemu-plugin.h of QEMU). Distributions do not ship the header.
//!
//! QEMU 7.2 to 8.2 have version 1. QEMU 9.0 and later accept version 2 (`QEMU_PLUGIN_MIN_VERSION`).

use std::{
    ffi::{c_char, c_int, c_uint, c_void},
    marker::PhantomData,
    ptr,
};

/// The version of the interface, which QEMU reads.
#[cfg(bpfassay_plugin_api = "1")]
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;
#[cfg(not(bpfassay_plugin_api = "1"))]
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 2;

pub type PluginId = u64;

/// The first field of `qemu_info_t`; the plugin reads no other.
#[repr(C)]
pub struct Info {
    pub target_name: *const c_char,
}

/// `struct qemu_plugin_tb`.
#[repr(C)]
pub struct TranslationBlock([u8; 0]);
/// `struct qemu_plugin_insn`.
#[repr(C)]
pub struct RawInstruction([u8; 0]);

type OnTranslation = extern "C" fn(PluginId, *mut TranslationBlock);
type OnInstruction = extern "C" fn(c_uint, *mut c_void);
type OnAccess = extern "C" fn(c_uint, u32, u64, *mut c_void);

/// `QEMU_PLUGIN_CB_NO_REGS`.
const NO_REGISTERS: c_int = 0;
/// `QEMU_PLUGIN_INLINE_ADD_U64`.
const ADD: c_int = 0;
/// `QEMU_PLUGIN_MEM_RW`.
const READS_AND_WRITES: c_int = 3;
/// Length of the longest supported instruction, in bytes.
const LONGEST: usize = 16;

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, callback: OnTranslation);
    fn qemu_plugin_tb_n_insns(block: *const TranslationBlock) -> usize;
    fn qemu_plugin_tb_vaddr(block: *const TranslationBlock) -> u64;
    fn qemu_plugin_tb_get_insn(block: *const TranslationBlock, index: usize) -> *mut RawInstruction;
    fn qemu_plugin_insn_size(instruction: *const RawInstruction) -> usize;
    fn qemu_plugin_insn_vaddr(instruction: *const RawInstruction) -> u64;
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut RawInstruction,
        callback: OnInstruction,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut TranslationBlock,
        callback: OnInstruction,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut RawInstruction,
        callback: OnAccess,
        flags: c_int,
        kinds: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_mem_size_shift(access: u32) -> c_uint;
}

/// Returns the size of an access in bytes, from QEMU's description (`qemu_plugin_meminfo_t`).
pub fn access_bytes(access: u32) -> u64 {
    // SAFETY: takes a number only.
    let shift = unsafe { qemu_plugin_mem_size_shift(access) };
    1_u64.checked_shl(shift).unwrap_or(1)
}

#[cfg(bpfassay_plugin_api = "1")]
mod version {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    unsafe extern "C" {
        fn qemu_plugin_insn_data(instruction: *const RawInstruction) -> *const c_void;
        fn qemu_plugin_register_vcpu_tb_exec_inline(
            block: *mut TranslationBlock,
            operation: c_int,
            counter: *const AtomicU64,
            immediate: u64,
        );
    }

    /// Counters that translated code adds to. A single thread executes it.
    pub struct Counters(&'static [AtomicU64]);

    impl Counters {
        pub fn new(count: usize) -> Self {
            // Translated code keeps the addresses of the counters as long as QEMU lives.
            Self(Vec::leak((0..count).map(|_| AtomicU64::new(0)).collect()))
        }

        pub fn value(&self, index: usize) -> u64 {
            self.0[index].load(Ordering::Relaxed)
        }

        /// # Safety
        /// `block` is being translated.
        pub unsafe fn add(&self, block: *mut TranslationBlock, index: usize, amount: u64) {
            // SAFETY: the caller vouches for the block; the counter lives as long as QEMU.
            unsafe { qemu_plugin_register_vcpu_tb_exec_inline(block, ADD, &raw const self.0[index], amount) };
        }
    }

    /// # Safety
    /// `instruction` is being translated, and has `length` bytes.
    pub unsafe fn copy(instruction: *const RawInstruction, bytes: &mut [u8], length: usize) {
        // SAFETY: the caller vouches for the instruction; its bytes are valid while it is
        // translated.
        unsafe { ptr::copy_nonoverlapping(qemu_plugin_insn_data(instruction).cast(), bytes.as_mut_ptr(), length) };
    }
}

#[cfg(not(bpfassay_plugin_api = "1"))]
mod version {
    use super::*;

    /// `struct qemu_plugin_scoreboard`.
    #[repr(C)]
    pub struct Scoreboard([u8; 0]);

    /// `qemu_plugin_u64`.
    #[repr(C)]
    struct Entry {
        scoreboard: *mut Scoreboard,
        offset: usize,
    }

    unsafe extern "C" {
        fn qemu_plugin_scoreboard_new(element: usize) -> *mut Scoreboard;
        fn qemu_plugin_u64_sum(entry: Entry) -> u64;
        fn qemu_plugin_insn_data(instruction: *const RawInstruction, to: *mut c_void, length: usize) -> usize;
        fn qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
            block: *mut TranslationBlock,
            operation: c_int,
            entry: Entry,
            immediate: u64,
        );
    }

    /// Counters that translated code adds to, one set per virtual CPU.
    pub struct Counters(*mut Scoreboard);

    // SAFETY: QEMU locks scoreboards itself.
    unsafe impl Send for Counters {}

    impl Counters {
        pub fn new(count: usize) -> Self {
            // SAFETY: takes a size only.
            Self(unsafe { qemu_plugin_scoreboard_new(count * size_of::<u64>()) })
        }

        fn entry(&self, index: usize) -> Entry {
            Entry { scoreboard: self.0, offset: index * size_of::<u64>() }
        }

        pub fn value(&self, index: usize) -> u64 {
            // SAFETY: the entry lies within the element that the scoreboard was made with.
            unsafe { qemu_plugin_u64_sum(self.entry(index)) }
        }

        /// # Safety
        /// `block` is being translated.
        pub unsafe fn add(&self, block: *mut TranslationBlock, index: usize, amount: u64) {
            // SAFETY: the caller vouches for the block; the entry lies within the scoreboard, which
            // is never freed.
            unsafe { qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block, ADD, self.entry(index), amount) };
        }
    }

    /// # Safety
    /// `instruction` is being translated, and has `length` bytes.
    pub unsafe fn copy(instruction: *const RawInstruction, bytes: &mut [u8], length: usize) {
        // SAFETY: the caller vouches for the instruction; QEMU writes at most `length` bytes, which
        // the slice has.
        unsafe { qemu_plugin_insn_data(instruction, bytes.as_mut_ptr().cast(), length.min(bytes.len())) };
    }
}

pub use self::version::Counters;

/// A block while QEMU translates it.
pub struct TranslatedBlock<'a> {
    raw: *mut TranslationBlock,
    during: PhantomData<&'a ()>,
}

impl<'a> TranslatedBlock<'a> {
    /// # Safety
    /// `raw` is a block that is being translated for the whole of `'a`.
    pub unsafe fn new(raw: *mut TranslationBlock) -> Self {
        Self { raw, during: PhantomData }
    }

    pub fn address(&self) -> u64 {
        // SAFETY: the block is valid (`new`).
        unsafe { qemu_plugin_tb_vaddr(self.raw) }
    }

    pub fn instructions(&self) -> u32 {
        // SAFETY: the block is valid (`new`).
        let count = unsafe { qemu_plugin_tb_n_insns(self.raw) };
        // QEMU translates at most 512 at a time.
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Returns the size of the block's code in bytes. The instructions are contiguous.
    pub fn bytes(&self) -> u64 {
        let Some(last) = self.instructions().checked_sub(1) else { return 0 };
        let last = self.instruction(last).raw;
        // SAFETY: the instruction is being translated.
        let end = unsafe { qemu_plugin_insn_vaddr(last).wrapping_add(qemu_plugin_insn_size(last) as u64) };
        end.wrapping_sub(self.address())
    }

    /// Returns the instruction at `index`, which must be below [`Self::instructions`].
    pub fn instruction(&self, index: u32) -> Instruction<'a> {
        // SAFETY: the block is valid (`new`), and QEMU gives an instruction of it.
        Instruction { raw: unsafe { qemu_plugin_tb_get_insn(self.raw, index as usize) }, during: PhantomData }
    }

    /// Makes every execution of the block add `amount` to a counter.
    pub fn count(&self, counters: &Counters, index: usize, amount: u64) {
        // SAFETY: the block is being translated (`new`).
        unsafe { counters.add(self.raw, index, amount) };
    }

    /// Makes every execution of the block call `callback` with `number` first.
    pub fn call(&self, callback: OnInstruction, number: usize) {
        // SAFETY: the block is being translated (`new`); the number goes to the callback as it is.
        unsafe {
            let data = ptr::without_provenance_mut(number);
            qemu_plugin_register_vcpu_tb_exec_cb(self.raw, callback, NO_REGISTERS, data);
        }
    }
}

/// An instruction while QEMU translates it.
pub struct Instruction<'a> {
    raw: *mut RawInstruction,
    during: PhantomData<&'a ()>,
}

impl Instruction<'_> {
    pub fn address(&self) -> u64 {
        // SAFETY: the instruction is being translated.
        unsafe { qemu_plugin_insn_vaddr(self.raw) }
    }

    /// Returns the bytes of the instruction and their number.
    pub fn bytes(&self) -> ([u8; LONGEST], usize) {
        let mut bytes = [0; LONGEST];
        // SAFETY: the instruction is being translated, and has as many bytes as QEMU gives.
        let length = unsafe {
            let length = qemu_plugin_insn_size(self.raw).min(LONGEST);
            version::copy(self.raw, &mut bytes, length);
            length
        };
        (bytes, length)
    }

    /// Makes every execution of the instruction call `callback` with `code`.
    pub fn call(&self, callback: OnInstruction, code: u8) {
        // SAFETY: the instruction is being translated; the number goes to the callback as it is.
        unsafe {
            let data = ptr::without_provenance_mut(usize::from(code));
            qemu_plugin_register_vcpu_insn_exec_cb(self.raw, callback, NO_REGISTERS, data);
        }
    }
    /// Makes every read and write of the instruction call `callback` with `number`.
    pub fn call_at_accesses(&self, callback: OnAccess, number: usize) {
        // SAFETY: the instruction is being translated; the number goes to the callback as it is.
        unsafe {
            let data = ptr::without_provenance_mut(number);
            qemu_plugin_register_vcpu_mem_cb(self.raw, callback, NO_REGISTERS, READS_AND_WRITES, data);
        }
    }
}
