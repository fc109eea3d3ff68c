// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths that move no data: calls on names, and calls that fail.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
};

use bpfassay_protocol::Operation;

use super::{
    path_calls,
    stage::{Moved, PathFailure, PathStage, refused},
};

/// Number of calls of each path.
pub(crate) const COUNT: usize = 8;

impl PathStage<'_> {
    fn numbered(&self, prefix: &str) -> Vec<PathBuf> {
        (0..COUNT).map(|number| self.file(&format!("{prefix}{number}"))).collect()
    }

    fn made(&self, prefix: &str, make: fn(&PathBuf) -> io::Result<()>) -> Result<Vec<PathBuf>, PathFailure> {
        let names = self.numbered(prefix);
        for name in &names {
            make(name).map_err(self.failed("make", name))?;
        }
        Ok(names)
    }

    /// Calls `work` once for each of `names`, and counts each call under each of `operations`.
    fn on_each(
        &mut self,
        call: &'static str,
        operations: &[Operation],
        names: &[PathBuf],
        work: impl Fn(&PathBuf) -> io::Result<()>,
    ) -> Result<(), PathFailure> {
        self.phase(|_, moved| {
            for name in names {
                let result = work(name).map(|()| 0);
                for &operation in operations {
                    moved.count(operation, &result);
                }
                result.map_err(refused(call))?;
            }
            Ok(())
        })
    }
}

fn make_file(name: &PathBuf) -> io::Result<()> {
    File::create(name).map(drop)
}

fn make_directory(name: &PathBuf) -> io::Result<()> {
    fs::create_dir(name)
}

pub(crate) fn open(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let names = stage.made("file", make_file)?;
    stage.on_each("openat", &[Operation::Open], &names, |name| File::open(name).map(drop))
}

pub(crate) fn create(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let names = stage.numbered("new");
    stage.on_each("openat", &[Operation::Open, Operation::Create], &names, create_new)
}

fn create_new(name: &PathBuf) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(name).map(drop)
}

pub(crate) fn mknod(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let names = stage.numbered("new");
    stage.on_each("mknodat", &[Operation::Create], &names, |name| path_calls::make_file(name))
}

pub(crate) fn mkdir(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let names = stage.numbered("directory");
    stage.on_each("mkdirat", &[Operation::Mkdir], &names, make_directory)
}

pub(crate) fn rename(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let names = stage.made("old", make_file)?;
    stage.on_each("renameat", &[Operation::Rename], &names, |name| fs::rename(name, name.with_extension("new")))
}

pub(crate) fn unlink(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let names = stage.made("file", make_file)?;
    stage.on_each("unlinkat", &[Operation::Unlink], &names, |name| fs::remove_file(name))
}

pub(crate) fn rmdir(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let names = stage.made("directory", make_directory)?;
    stage.on_each("unlinkat", &[Operation::Rmdir], &names, |name| fs::remove_dir(name))
}

pub(crate) fn fsync(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let file = stage.target(0)?;
    stage.put(&file, &stage.file("target"))?;
    stage.phase(|_, moved| {
        for number in 0..COUNT {
            let (call, result) = match number % 2 {
                0 => ("fsync", file.sync_all()),
                _ => ("fdatasync", file.sync_data()),
            };
            let result = result.map(|()| 0);
            moved.count(Operation::Fsync, &result);
            result.map_err(refused(call))?;
        }
        Ok(())
    })
}

/// Makes calls on names that do not exist.
fn on_missing(
    stage: &mut PathStage<'_>,
    call: &'static str,
    operation: Operation,
    work: fn(&PathBuf) -> io::Result<()>,
) -> Result<(), PathFailure> {
    let name = stage.file("missing");
    failing(stage, call, operation, libc::ENOENT, || work(&name).map(|()| 0))
}

/// Makes calls on names that exist.
fn on_existing(
    stage: &mut PathStage<'_>,
    call: &'static str,
    operation: Operation,
    work: fn(&PathBuf) -> io::Result<()>,
) -> Result<(), PathFailure> {
    let name = stage.file("there");
    make_file(&name).map_err(stage.failed("make", &name))?;
    failing(stage, call, operation, libc::EEXIST, || work(&name).map(|()| 0))
}

pub(crate) fn failed_open(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    on_missing(stage, "openat", Operation::Open, |name| File::open(name).map(drop))
}

pub(crate) fn failed_create(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    on_existing(stage, "openat", Operation::Open, create_new)
}

pub(crate) fn failed_mkdir(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    on_existing(stage, "mkdirat", Operation::Mkdir, make_directory)
}

pub(crate) fn failed_rename(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    on_missing(stage, "renameat", Operation::Rename, |name| fs::rename(name, name.with_extension("new")))
}

pub(crate) fn failed_unlink(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    on_missing(stage, "unlinkat", Operation::Unlink, |name| fs::remove_file(name))
}

pub(crate) fn failed_rmdir(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let full = stage.file("full");
    fs::create_dir_all(full.join("inside")).map_err(stage.failed("make", &full))?;
    failing(stage, "unlinkat", Operation::Rmdir, libc::ENOTEMPTY, || fs::remove_dir(&full).map(|()| 0))
}

pub(crate) fn failed_fsync(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let name = stage.file("place");
    make_file(&name).map_err(stage.failed("make", &name))?;
    let place =
        OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&name).map_err(stage.failed("open", &name))?;
    let mut number = 0;
    failing(stage, "fsync", Operation::Fsync, libc::EBADF, || {
        number += 1;
        if number % 2 == 0 { place.sync_all() } else { place.sync_data() }.map(|()| 0)
    })
}

/// Calls `work` [`COUNT`] times. It must fail with `errno`.
pub(crate) fn failing(
    stage: &mut PathStage<'_>,
    call: &'static str,
    operation: Operation,
    errno: i32,
    mut work: impl FnMut() -> io::Result<usize>,
) -> Result<(), PathFailure> {
    stage.phase(|stage, moved: &mut Moved| {
        for _ in 0..COUNT {
            let result = work();
            moved.count(operation, &result);
            match result {
                Err(error) if error.raw_os_error() == Some(errno) => {}
                Err(error) => return Err(stage.wrong(call, format!("failed with {error}, not errno {errno}"))),
                Ok(length) => return Err(stage.wrong(call, format!("returned {length}, not errno {errno}"))),
            }
        }
        Ok(())
    })
}
