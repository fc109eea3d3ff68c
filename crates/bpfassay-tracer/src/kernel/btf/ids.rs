// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ids of types. Programs use them to name what they attach to or call.

use std::{ffi::CString, io, ptr::NonNull};

/// A kind of type (include/uapi/linux/btf.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BtfKind {
    Struct = 4,
    Typedef = 8,
    Function = 12,
}

/// The types of the running kernel.
#[derive(Debug)]
pub(crate) struct Ids(NonNull<libbpf_sys::btf>);

impl Ids {
    /// Reads the types.
    ///
    /// # Errors
    /// The kernel has no type information, or libbpf does not understand it.
    pub(crate) fn read() -> io::Result<Self> {
        // SAFETY: takes nothing.
        let btf = unsafe { libbpf_sys::btf__load_vmlinux_btf() };
        // libbpf sets errno whenever it returns a null pointer. No other call may happen in
        // between.
        let error = io::Error::last_os_error();
        NonNull::new(btf).map(Self).ok_or(error)
    }

    pub(crate) fn count(&self) -> u32 {
        // SAFETY: a valid object.
        unsafe { libbpf_sys::btf__type_cnt(self.0.as_ptr()) }
    }

    /// Returns the id of a type; `None` if there is no type of this name and kind.
    pub(crate) fn find(&self, name: &str, kind: BtfKind) -> Option<u32> {
        let name = CString::new(name).ok()?;
        // SAFETY: a valid object; the name outlives the call.
        let id = unsafe { libbpf_sys::btf__find_by_name_kind(self.0.as_ptr(), name.as_ptr(), kind as u32) };
        u32::try_from(id).ok()
    }
}

impl Drop for Ids {
    fn drop(&mut self) {
        // SAFETY: owned here, and not used any more.
        unsafe { libbpf_sys::btf__free(self.0.as_ptr()) };
    }
}
