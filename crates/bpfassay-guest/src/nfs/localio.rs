// SPDX-License-Identifier: MIT OR Apache-2.0
//! NFS LOCALIO (Linux 6.12 and later, if built). A client that finds its server on the same machine
//! reads and writes the server's files directly, without the protocol.

use std::{
    fs::{self, File},
    io::Write,
    path::PathBuf,
};

use crate::{
    agent_link::Link,
    error::{Error, Result},
    proc::mountstats,
    system,
};

const MODULES: &str = "/sys/module";

/// Data of a test write: less than a page.
const PIECE: &[u8] = b"bpfassay";

/// Number of test writes until LOCALIO counts as not in use. The client asks the server in the
/// background, so the first writes can still go through the protocol.
const ATTEMPTS: u32 = 16;

/// Switches LOCALIO as `wanted`, if the kernel has it.
pub(crate) fn set(wanted: Option<bool>, link: &Link) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    match parameter(MODULES)? {
        Some(path) => system::write(&path, if wanted { "Y\n" } else { "N\n" }),
        // Such a kernel does not use LOCALIO anyway. If the job requested it, the facts show that
        // it is not in use.
        None if wanted => link.log("the job requests NFS LOCALIO, which this kernel does not have"),
        None => Ok(()),
    }
}

/// Returns whether writes to the mount at `path` bypass the NFS protocol; `None` if the kernel has
/// no LOCALIO. A test write and the client's own count of WRITE calls decide.
///
/// The write is made in any case: as the first write of the mount it makes client and server set up
/// state, which belongs to no measurement. `client` is a part of the file's name, because several
/// nodes do this at the same time.
pub(crate) fn in_use(path: &str, client: &str) -> Result<Option<bool>> {
    let enabled = match parameter(MODULES)? {
        Some(parameter) => Some(system::read(&parameter)? == "Y"),
        None => None,
    };
    let attempts = if enabled == Some(true) { ATTEMPTS } else { 1 };
    let mut bypassed = false;
    for _ in 0..attempts {
        let before = write_calls(path)?;
        write_piece(path, client)?;
        bypassed = write_calls(path)? == before;
        if bypassed {
            break;
        }
    }
    Ok(enabled.map(|_| bypassed))
}

fn write_calls(path: &str) -> Result<u64> {
    let counters = mountstats::read(path)?
        .ok_or_else(|| Error::unexpected("/proc/self/mountstats", format!("an NFS mount at {path}"), ""))?;
    counters
        .calls
        .get("WRITE")
        .copied()
        .ok_or_else(|| Error::unexpected("/proc/self/mountstats", "a count of WRITE calls", ""))
}

/// Writes a file to stable storage and removes the file.
fn write_piece(path: &str, client: &str) -> Result<()> {
    let path = format!("{path}/.bpfassay-first-write-{client}");
    let mut file = File::create(&path).map_err(Error::file("make", &path))?;
    file.write_all(PIECE).and_then(|()| file.sync_all()).map_err(Error::file("write", &path))?;
    drop(file);
    fs::remove_file(&path).map_err(Error::file("remove", &path))
}

/// Returns the path of `localio_enabled`, a parameter of one of the NFS modules.
fn parameter(modules: &str) -> Result<Option<String>> {
    let mut found = Vec::<PathBuf>::new();
    for entry in fs::read_dir(modules).map_err(Error::file("list", modules))? {
        let entry = entry.map_err(Error::file("list", modules))?;
        let parameter = entry.path().join("parameters/localio_enabled");
        if entry.file_name().to_string_lossy().starts_with("nfs") && parameter.exists() {
            found.push(parameter);
        }
    }
    Ok(found.into_iter().min().map(|path| path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_is_found_in_whichever_module_has_it() {
        let modules = tempfile::tempdir().unwrap();
        let path = modules.path().to_str().unwrap();
        fs::create_dir_all(modules.path().join("nfsd/parameters")).unwrap();
        assert_eq!(parameter(path).unwrap(), None);
        fs::create_dir_all(modules.path().join("nfs/parameters")).unwrap();
        fs::write(modules.path().join("nfs/parameters/localio_enabled"), "Y\n").unwrap();
        assert_eq!(parameter(path).unwrap(), Some(format!("{path}/nfs/parameters/localio_enabled")));
    }
}
