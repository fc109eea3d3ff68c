// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian and Ubuntu packages (deb(5)): an `ar` archive with `debian-binary`, `control.tar.*` and
//! `data.tar.*`.

use std::io::Read;

use super::{About, EntryKind, Taker, UnpackFault, ar::Members, stream::decompressed, tar, wrong};

/// Largest control file that is read, in bytes.
const MOST_CONTROL: u64 = 1 << 20;

/// Passes every entry of the package in `reader` to `take`, and returns the package's description.
pub(super) fn read(reader: &mut dyn Read, limit: u64, take: &mut Taker<'_>) -> Result<About, UnpackFault> {
    let mut members = Members::new(reader)?;
    let mut about = None;
    while let Some(name) = members.next()? {
        if is_tar(&name, "control.tar") && about.is_none() {
            about = Some(control(&mut decompressed(&mut members, limit)?)?);
        } else if is_tar(&name, "data.tar") {
            let about =
                about.ok_or_else(|| UnpackFault::Package("its data come before its control file".to_owned()))?;
            tar::read(&mut decompressed(&mut members, limit)?, take)?;
            return Ok(about);
        }
    }
    wrong("it has no data.tar")
}

/// Reads the description of the package in `reader`.
pub(super) fn about(reader: &mut dyn Read, limit: u64) -> Result<About, UnpackFault> {
    let mut members = Members::new(reader)?;
    while let Some(name) = members.next()? {
        if is_tar(&name, "control.tar") {
            return control(&mut decompressed(&mut members, limit)?);
        }
    }
    wrong("it has no control.tar")
}

/// Returns whether a member is `archive`, with any compression.
fn is_tar(name: &str, archive: &str) -> bool {
    name.strip_prefix(archive).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn control(reader: &mut dyn Read) -> Result<About, UnpackFault> {
    let mut text = None;
    tar::read(reader, &mut |path, kind, content| {
        if let (b"./control" | b"control", EntryKind::File { size: ..=MOST_CONTROL, .. }) = (path, kind) {
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes)?;
            text = Some(String::from_utf8_lossy(&bytes).into_owned());
        }
        Ok(())
    })?;
    let text = text.ok_or_else(|| UnpackFault::Package("it has no control file".to_owned()))?;
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let value = value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        value.ok_or_else(|| UnpackFault::Package(format!("its control file has no {name}")))
    };
    Ok(About {
        name: field("Package")?.parse()?,
        version: field("Version")?.parse()?,
        architecture: field("Architecture")?.parse()?,
    })
}
