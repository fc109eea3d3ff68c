//! Paths that move no data: calls on names, and calls that fail.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::PathBuf,
};

use bpfassay_protocol::Operation;

use super::stage::{Ledger, Stage, Trouble, refused};

/// Calls of each path.
pub(crate) const COUNT: usize = 8;

impl Stage<'_> {
    fn numbered(&self, prefix: &str) -> Vec<PathBuf> {
        (0..COUNT).map(|number| self.file(&format!("{prefix}{number}"))).collect()
    }

    fn made(&self, prefix: &str, make: fn(&PathBuf) -> io::Result<()>) -> Result<Vec<PathBuf>, Trouble> {
        let names = self.numbered(prefix);
        for name in &names {
            make(name).map_err(self.failed("make", name))?;
        }
        Ok(names)
    }

    /// One call of `work` for each of `names`, each counted once under each of `operations`.
    fn on_each(
        &mut self,
        call: &'static str,
        operations: &[Operation],
        names: &[PathBuf],
        work: impl Fn(&PathBuf) -> io::Result<()>,
    ) -> Result<(), Trouble> {
        self.phase(|_, ledger| {
            for name in names {
                let result = work(name).map(|()| 0);
                for &operation in operations {
                    ledger.count(operation, &result);
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

pub(crate) fn open(stage: &mut Stage<'_>) -> Result<(), Trouble> {
    let names = stage.made("file", make_file)?;
    stage.on_each("openat", &[Operation::Open], &names, |name| File::open(name).map(drop))
}

pub(crate) fn create(stage: &mut Stage<'_>) -> Result<(), Trouble> {
    let names = stage.numbered("new");
    let options = || OpenOptions::new().write(true).create_new(true).clone();
    stage.on_each("openat", &[Operation::Open, Operation::Create], &names, |name| options().open(name).map(drop))
}

pub(crate) fn mkdir(stage: &mut Stage<'_>) -> Result<(), Trouble> {
    let names = stage.numbered("directory");
    stage.on_each("mkdirat", &[Operation::Mkdir], &names, make_directory)
}

pub(crate) fn rename(stage: &mut Stage<'_>) -> Result<(), Trouble> {
    let names = stage.made("old", make_file)?;
    stage.on_each("renameat", &[Operation::Rename], &names, |name| fs::rename(name, name.with_extension("new")))
}

pub(crate) fn unlink(stage: &mut Stage<'_>) -> Result<(), Trouble> {
    let names = stage.made("file", make_file)?;
    stage.on_each("unlinkat", &[Operation::Unlink], &names, |name| fs::remove_file(name))
}

pub(crate) fn rmdir(stage: &mut Stage<'_>) -> Result<(), Trouble> {
    let names = stage.made("directory", make_directory)?;
    stage.on_each("unlinkat", &[Operation::Rmdir], &names, |name| fs::remove_dir(name))
}

pub(crate) fn fsync(stage: &mut Stage<'_>) -> Result<(), Trouble> {
    let file = stage.target(0)?;
    stage.put(&file, &stage.file("target"))?;
    stage.phase(|_, ledger| {
        for number in 0..COUNT {
            let (call, result) = match number % 2 {
                0 => ("fsync", file.sync_all()),
                _ => ("fdatasync", file.sync_data()),
            };
            let result = result.map(|()| 0);
            ledger.count(Operation::Fsync, &result);
            result.map_err(refused(call))?;
        }
        Ok(())
    })
}

/// Opens what does not exist.
pub(crate) fn failed_open(stage: &mut Stage<'_>) -> Result<(), Trouble> {
    let names = stage.numbered("missing");
    let mut names = names.iter();
    failing(stage, "openat", Operation::Open, libc::ENOENT, || {
        names.next().map_or(Ok(0), |name| File::open(name).map(|_| 0))
    })
}

/// [`COUNT`] times `work`, which must fail with `errno`.
pub(crate) fn failing(
    stage: &mut Stage<'_>,
    call: &'static str,
    operation: Operation,
    errno: i32,
    mut work: impl FnMut() -> io::Result<usize>,
) -> Result<(), Trouble> {
    stage.phase(|stage, ledger: &mut Ledger| {
        for _ in 0..COUNT {
            let result = work();
            ledger.count(operation, &result);
            match result {
                Err(error) if error.raw_os_error() == Some(errno) => {}
                Err(error) => return Err(stage.wrong(call, format!("failed with {error}, not errno {errno}"))),
                Ok(moved) => return Err(stage.wrong(call, format!("returned {moved}, not errno {errno}"))),
            }
        }
        Ok(())
    })
}
