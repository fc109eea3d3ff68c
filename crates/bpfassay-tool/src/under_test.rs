// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tool as a study carries it: with all that is needed to read its reports, so that results stand by themselves.

use std::{collections::BTreeMap, io};

use base64::{Engine as _, prelude::BASE64_STANDARD};
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
    /// speaks of.
    pub fn under_test(&self) -> Result<UnderTest, ToolError> {
        let mut objects = BTreeMap::new();
        let report = self.file.report.as_ref();
        let map = report.and_then(|report| match &report.form {
            Form::Map { map } => Some((map, &report.figures)),
            _ => None,
        });
        if let Some((map, figures)) = map {
            for &arch in Arch::ALL {
                // A bundled one reports its types in the guest.
                let Some(object) = self.file.source.object(arch).filter(|object| !object.bundled) else { continue };
                let supply = self.supply();
                let bytes = supply.read(&object.path, MAX_OBJECT)?;
                if !bytes.starts_with(b"\x7fELF") {
                    let source = io::Error::new(io::ErrorKind::InvalidData, "is no ELF file");
                    return Err(ToolError::Part {
                        name: supply.name.clone(),
                        path: supply.place(&object.path)?,
                        source,
                    });
                }
                let place = supply.place(&object.path)?;
                check_map(figures, map, &bytes).map_err(|source| ToolError::Figures {
                    name: self.file.name.clone(),
                    path: place,
                    source: Box::new(source),
                })?;
                objects.insert(arch, BASE64_STANDARD.encode(bytes));
            }
        }
        Ok(UnderTest { file: self.file.clone(), objects })
    }
}
