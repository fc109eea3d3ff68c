// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mounts in addition to the file system under test: mounts of the whole guest, and mounts in a
//! mount namespace of the workload.

use std::{
    ffi::{CStr, CString},
    fs, io,
};

use bpfassay_protocol::job::{ExtraMount, MountOf};
use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change},
    thread::{UnshareFlags, unshare_unsafe},
};

use crate::error::{Error, Result};

/// A mount whose directory exists. It can be mounted without allocating memory.
#[derive(Debug)]
struct PreparedMount {
    path: CString,
    of: PreparedOf,
}

#[derive(Debug)]
enum PreparedOf {
    /// A tmpfs with these options.
    Tmpfs(CString),
    /// A bind mount of this path.
    Bind(CString),
}

impl PreparedMount {
    fn make(&self) -> rustix::io::Result<()> {
        match &self.of {
            PreparedOf::Tmpfs(options) => {
                mount(c"tmpfs", &*self.path, c"tmpfs", MountFlags::empty(), Some(options.as_c_str()))
            }
            PreparedOf::Bind(source) => mount_bind(&**source, &*self.path),
        }
    }
}

/// Makes `mounts` in order. The file system under test is mounted at `under_test`.
pub(crate) fn make(mounts: &[ExtraMount], under_test: &str) -> Result<()> {
    for prepared in prepare(mounts, under_test)? {
        let path = &prepared.path;
        prepared.make().map_err(|error| Error::system(format!("mount at {}", path.to_string_lossy()))(error))?;
    }
    Ok(())
}

fn prepare(mounts: &[ExtraMount], under_test: &str) -> Result<Vec<PreparedMount>> {
    let text = |text: &str| {
        CString::new(text).map_err(|error| Error::system(format!("mount at {text:?}"))(io::Error::from(error)))
    };
    let one = |extra: &ExtraMount| {
        fs::create_dir_all(&extra.path).map_err(Error::file("make directory", &extra.path))?;
        let of = match &extra.of {
            MountOf::Tmpfs(size_mib) => PreparedOf::Tmpfs(text(&format!("size={size_mib}m,mode=0777"))?),
            MountOf::Bind(source) => PreparedOf::Bind(text(source.as_deref().unwrap_or(under_test))?),
        };
        Ok(PreparedMount { path: text(&extra.path)?, of })
    };
    mounts.iter().map(one).collect()
}

/// A mount namespace that a process can enter.
#[derive(Debug, Default)]
pub(crate) struct Namespace(Vec<PreparedMount>);

impl Namespace {
    /// Adds `mounts` to the mounts of the guest. An empty `mounts` stands for the guest's own
    /// namespace.
    pub(crate) fn with(mounts: &[ExtraMount], under_test: &str) -> Result<Self> {
        prepare(mounts, under_test).map(Self)
    }

    /// Enters the namespace. Allocates nothing, because it is called between fork and exec.
    pub(crate) fn enter(&self) -> rustix::io::Result<()> {
        const ROOT: &CStr = c"/";
        if self.0.is_empty() {
            return Ok(());
        }
        // SAFETY: nothing but mounts is unshared, no descriptors.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        // Nothing that is mounted here may appear in the guest's namespace.
        mount_change(ROOT, MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        self.0.iter().try_for_each(PreparedMount::make)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_of_a_size_or_of_another_path_and_their_directories_are_made() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let extra = |path: String, of| ExtraMount { path, of, private: true };
        let mounts = [
            extra(at("a/data"), MountOf::Tmpfs(8)),
            extra(at("b/data"), MountOf::Bind(None)),
            extra(at("c"), MountOf::Bind(Some(at("a/data")))),
        ];
        let prepared = prepare(&mounts, "/mnt/nfs").unwrap();
        let shown = |one: &PreparedMount| match &one.of {
            PreparedOf::Tmpfs(options) => options.clone(),
            PreparedOf::Bind(source) => source.clone(),
        };
        assert_eq!(
            prepared.iter().map(shown).map(|text| text.into_string().unwrap()).collect::<Vec<_>>(),
            ["size=8m,mode=0777", "/mnt/nfs", &at("a/data")]
        );
        assert!(["a/data", "b/data", "c"].iter().all(|name| directory.path().join(name).is_dir()));
        assert!(prepare(&[extra("/x\0y".to_owned(), MountOf::Tmpfs(1))], "/mnt/nfs").is_err());
    }

    #[test]
    fn without_mounts_of_its_own_a_process_stays_in_its_namespace() {
        let own = || fs::read_link("/proc/self/ns/mnt").unwrap();
        let before = own();
        Namespace::default().enter().unwrap();
        assert_eq!(own(), before);
    }
}
