// SPDX-License-Identifier: MIT OR Apache-2.0
//! Type information of trial programs and maps.

use std::{
    ffi::CStr,
    io,
    os::fd::{BorrowedFd, OwnedFd},
    ptr::NonNull,
};

use super::trial_calls::{Result, TrialFailure};

/// A builder of types, for a program or a map.
#[derive(Debug)]
pub(super) struct TypeBuilder(NonNull<libbpf_sys::btf>);

impl Drop for TypeBuilder {
    fn drop(&mut self) {
        // SAFETY: owned here, and not used any more.
        unsafe { libbpf_sys::btf__free(self.0.as_ptr()) };
    }
}

impl TypeBuilder {
    /// Creates an empty builder.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(super) fn new() -> Result<Self> {
        // SAFETY: takes nothing.
        let btf = unsafe { libbpf_sys::btf__new_empty() };
        // libbpf sets errno whenever it returns a null pointer. No other call may happen in
        // between.
        let error = io::Error::last_os_error();
        NonNull::new(btf).map(Self).ok_or_else(|| TrialFailure::kernel("types", &error))
    }

    /// Adds an unsigned integer of `size` bytes.
    pub(super) fn integer(&self, name: &CStr, size: u32) -> Result<i32> {
        // SAFETY: a valid object; the name outlives the call.
        id(unsafe { libbpf_sys::btf__add_int(self.raw(), name.as_ptr(), libbpf_sys::size_t::from(size), 0) })
    }

    /// Adds a structure of `size` bytes. [`TypeBuilder::member`] adds its members.
    pub(super) fn structure(&self, name: &CStr, size: u32) -> Result<i32> {
        // SAFETY: a valid object; the name outlives the call.
        id(unsafe { libbpf_sys::btf__add_struct(self.raw(), name.as_ptr(), size) })
    }

    /// Adds a member to the structure that was added last, `offset` bytes from its beginning.
    pub(super) fn member(&self, name: &CStr, kind: i32, offset: u32) -> Result<()> {
        // SAFETY: a valid object; the name outlives the call.
        id(unsafe { libbpf_sys::btf__add_field(self.raw(), name.as_ptr(), kind, offset * 8, 0) }).map(drop)
    }

    /// Adds a pointer to `kind`.
    pub(super) fn pointer(&self, kind: i32) -> Result<i32> {
        // SAFETY: a valid object.
        id(unsafe { libbpf_sys::btf__add_ptr(self.raw(), kind) })
    }

    /// Adds `kind` with a tag (`kptr`).
    pub(super) fn tag(&self, tag: &CStr, kind: i32) -> Result<i32> {
        // SAFETY: a valid object; the tag outlives the call.
        id(unsafe { libbpf_sys::btf__add_type_tag(self.raw(), tag.as_ptr(), kind) })
    }

    /// Adds a function that takes `parameters` and returns `result`. Global functions are verified
    /// separately.
    pub(super) fn function(&self, name: &CStr, global: bool, result: i32, parameters: &[i32]) -> Result<i32> {
        let linkage = if global { libbpf_sys::BTF_FUNC_GLOBAL } else { libbpf_sys::BTF_FUNC_STATIC };
        // SAFETY: a valid object; all names outlive the calls.
        unsafe {
            let prototype = id(libbpf_sys::btf__add_func_proto(self.raw(), result))?;
            for &parameter in parameters {
                id(libbpf_sys::btf__add_func_param(self.raw(), c"p".as_ptr(), parameter))?;
            }
            id(libbpf_sys::btf__add_func(self.raw(), name.as_ptr(), linkage, prototype))
        }
    }

    /// Loads the types into the kernel.
    ///
    /// # Errors
    /// The kernel's error, if it refuses the types.
    pub(super) fn load(self) -> Result<OwnedFd> {
        // SAFETY: a valid object.
        let status = unsafe { libbpf_sys::btf__load_into_kernel(self.raw()) };
        if status < 0 {
            return Err(TrialFailure::kernel("load types", &io::Error::from_raw_os_error(-status)));
        }
        // SAFETY: the object owns an open descriptor now, which is duplicated before the object
        // closes it.
        let fd = unsafe { BorrowedFd::borrow_raw(libbpf_sys::btf__fd(self.raw())) };
        let copy =
            rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(|error| TrialFailure::kernel("types", &error.into()))?;
        Ok(copy)
    }

    fn raw(&self) -> *mut libbpf_sys::btf {
        self.0.as_ptr()
    }
}

fn id(id: i32) -> Result<i32> {
    if id < 0 { Err(TrialFailure::kernel("types", &io::Error::from_raw_os_error(-id))) } else { Ok(id) }
}
