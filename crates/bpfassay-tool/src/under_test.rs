// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tool as a study carries it: with all that is needed to read its reports, so that results stand by themselves.

use std::{collections::BTreeMap, io};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bpfassay_btf::contents;
use bpfassay_protocol::Arch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Loaded, ToolError, ToolFile, readings::check_maps};

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
    /// Those that are for some kernels, by their paths.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub objects_of_kernels: BTreeMap<String, String>,
}

impl UnderTest {
    /// A tool without objects.
    #[must_use]
    pub fn of(file: ToolFile) -> Self {
        Self { file, objects: BTreeMap::new(), objects_of_kernels: BTreeMap::new() }
    }

    /// The bare object for `kernel` on `arch`, where its maps are read.
    #[must_use]
    pub fn object(&self, arch: Arch, kernel: &str) -> Option<Vec<u8>> {
        let (_, object) = self.file.source.object(arch, kernel)?;
        let text = match object.kernels.is_empty() {
            true => self.objects.get(&arch)?,
            false => self.objects_of_kernels.get(&object.path)?,
        };
        BASE64_STANDARD.decode(text).ok()
    }
}

impl Loaded {
    /// The tool with the objects whose maps are read.
    ///
    /// # Errors
    /// [`ToolError::Part`] where an object cannot be read or is not an ELF file, [`ToolError::Figures`] where it has no map or no field that the tool file
    /// reads, [`ToolError::Contents`] where it has none that the tool file sets.
    pub fn under_test(&self) -> Result<UnderTest, ToolError> {
        let mut tool = UnderTest::of(self.file.clone());
        let report = self.file.report.as_ref().filter(|report| !report.form.maps().is_empty());
        let of_arch = |&arch: &Arch| self.file.source.objects(arch).map(move |(_, object)| (arch, object));
        for (arch, object) in Arch::ALL.iter().flat_map(of_arch) {
            // A bundled one reports its types in the guest.
            if object.bundled || (report.is_none() && object.contents.is_empty()) {
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
            let Some(report) = report else { continue };
            check_maps(report, &bytes).map_err(|source| ToolError::Figures { name, path, source: Box::new(source) })?;
            let text = BASE64_STANDARD.encode(bytes);
            match object.kernels.is_empty() {
                true => tool.objects.insert(arch, text),
                false => tool.objects_of_kernels.insert(object.path.clone(), text),
            };
        }
        Ok(tool)
    }
}
