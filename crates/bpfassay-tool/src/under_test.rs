// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tool as a study carries it: with all that is needed to read its reports, so that results stand by themselves.

use std::{collections::BTreeMap, io};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bpfassay_btf::contents;
use bpfassay_protocol::Arch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Form, Loaded, ToolError, ToolFile, readings::check_map};

/// Largest bare object, in bytes.
pub const MAX_OBJECT: u64 = 1 << 20;

/// A tool under test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnderTest {
    /// The contents of its file.
    pub file: ToolFile,
    /// The bare objects whose maps are read, in Base64: their BTF describes what the maps hold.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub objects: BTreeMap<Arch, String>,
}

impl UnderTest {
    /// The bare object for `arch`, where its maps are read.
    #[must_use]
    pub fn object(&self, arch: Arch) -> Option<Vec<u8>> {
        BASE64_STANDARD.decode(self.objects.get(&arch)?).ok()
    }
}

impl Loaded {
    /// The tool with the objects whose maps are read.
    ///
    /// # Errors
    /// [`ToolError::Part`] where an object cannot be read or is not an ELF file, [`ToolError::Figures`] where it has no map or no field that the tool file
    /// reads, [`ToolError::Contents`] where it has none that the tool file sets.
    pub fn under_test(&self) -> Result<UnderTest, ToolError> {
        let mut objects = BTreeMap::new();
        let report = self.file.report.as_ref();
        let map = report.and_then(|report| match &report.form {
            Form::Map { map } => Some((map, &report.figures)),
            _ => None,
        });
        for &arch in Arch::ALL {
            // A bundled one reports its types in the guest.
            let Some(object) = self.file.source.object(arch).filter(|object| !object.bundled) else { continue };
            if map.is_none() && object.contents.is_empty() {
                continue;
            }
            let supply = self.supply();
            let bytes = supply.read(&object.path, MAX_OBJECT)?;
            let (name, path) = (self.file.name.clone(), supply.place(&object.path)?);
            if !bytes.starts_with(b"\x7fELF") {
                let source = io::Error::new(io::ErrorKind::InvalidData, "is no ELF file");
                return Err(supply.unread(path)(source));
            }
            if let Err(source) = contents::encode(&bytes, &object.contents) {
                return Err(ToolError::Contents { name, path, source: Box::new(source) });
            }
            if let Some((map, figures)) = map {
                check_map(figures, map, &bytes).map_err(|source| ToolError::Figures {
                    name,
                    path,
                    source: Box::new(source),
                })?;
                objects.insert(arch, BASE64_STANDARD.encode(bytes));
            }
        }
        Ok(UnderTest { file: self.file.clone(), objects })
    }
}
