// SPDX-License-Identifier: MIT OR Apache-2.0
//! LOCALIO (6.12 and later, where built): a client that finds its server on the same machine reads
//! and writes the server's files directly, without the protocol.

use std::{
    fs::{self, File},
    io::Write,
    path::PathBuf,
};

use crate::{
    error::{Error, Result},
    link::Link,
    proc::mountstats,
    system,
};

const MODULES: &str = "/sys/module";

/// Size of a test write: less than a page.
const PIECE: &[u8] = b"bpfassay";

/// Test writes until LOCALIO counts as not in use. The client asks the server in the background, so
/// the first ones may still go through the protocol.
const ATTEMPTS: u32 = 16;

/// Switches LOCALIO as `wanted`, where the kernel has it.
pub(crate) fn set(wanted: Option<bool>, link: &Link) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    match parameter(MODULES)? {
        Some(path) => system::write(&path, if wanted { "Y\n" } else { "N\n" }),
        // Such a kernel does without it anyway; where it was requested, the facts then show that it
        // is not in use.
        None if wanted => link.log("the job requests NFS LOCALIO, which this kernel does not have"),
        None => Ok(()),
    }
}

/// Whether writes to the mount at `path` bypass the protocol, determined by a write and the
/// client's own count of WRITE calls; `None` where the kernel has no LOCALIO.
///
/// The write is made in any case: it is the first one of the mount, and what the client and the
/// server set up for it belongs to no measurement. `client` is in the name of its file: several
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

/// Writes a file to stable storage and removes it.
fn write_piece(path: &str, client: &str) -> Result<()> {
    let path = format!("{path}/.bpfassay-first-write-{client}");
    let mut file = File::create(&path).map_err(Error::file("make", &path))?;
    file.write_all(PIECE).and_then(|()| file.sync_all()).map_err(Error::file("write", &path))?;
    drop(file);
    fs::remove_file(&path).map_err(Error::file("remove", &path))
}

/// The switch: `localio_enabled` of whichever NFS module has it.
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
