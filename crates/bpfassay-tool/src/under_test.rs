// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tool as part of a study, with everything needed to read its reports. Results therefore need no
//! other files.

use std::{collections::BTreeMap, io};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bpfassay_btf::object_contents;
use bpfassay_protocol::Arch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bpftrace_script,
    error::ToolError,
    file::{Report, ReportForm, Script, Source, ToolFile},
    read::LoadedFile,
    readings::check_maps,
    supply::Supply,
};

/// Size limit of scripts that are checked, in bytes.
const MAX_SCRIPT: u64 = 1 << 20;

/// Size limit of bare objects, in bytes.
pub const MAX_OBJECT: u64 = 1 << 20;

/// A tool under test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnderTest {
    /// The contents of the tool file.
    pub file: ToolFile,
    /// Bare objects for all kernels whose maps are read, in Base64. Their BTF describes the maps.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub objects: BTreeMap<Arch, String>,
    /// Bare objects for some kernels, by path, in Base64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub objects_of_kernels: BTreeMap<String, String>,
}

impl UnderTest {
    /// Creates a tool without objects.
    #[must_use]
    pub fn of(file: ToolFile) -> Self {
        Self { file, objects: BTreeMap::new(), objects_of_kernels: BTreeMap::new() }
    }

    /// The bare object for `kernel` on `arch`, if its maps are read.
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

/// Whether bpftrace runs the script.
fn is_bpftrace(script: &Script) -> bool {
    script.interpreter.rsplit('/').next() == Some("bpftrace")
}

impl ToolFile {
    /// Whether the names in figures were checked against the bpftrace scripts. A map that no report
    /// has is then known to be empty.
    #[must_use]
    pub fn names_maps_of_scripts(&self) -> bool {
        let is_json = self.report.as_ref().is_some_and(|report| matches!(report.form, ReportForm::BpftraceJson { .. }));
        is_json && matches!(&self.source, Source::Script(scripts) if scripts.iter().all(is_bpftrace))
    }
}

/// Checks the maps in `report` against the maps of `scripts`.
///
/// # Errors
/// [`ToolError::Part`] if a script cannot be read or is not text; [`ToolError::Figures`] if it
/// lacks a map or a key.
fn check_scripts(supply: &Supply<'_>, scripts: &[Script], report: &Report) -> Result<(), ToolError> {
    for script in scripts {
        let bytes = supply.read(&script.path, MAX_SCRIPT)?;
        let path = supply.place(&script.path)?;
        let text = String::from_utf8(bytes).map_err(|_| {
            supply.unread(path.clone())(io::Error::new(io::ErrorKind::InvalidData, "is no text in UTF-8"))
        })?;
        let refuse = |source| ToolError::Figures { name: supply.name.clone(), path, source: Box::new(source) };
        bpftrace_script::check(report, &text).map_err(refuse)?;
    }
    Ok(())
}

impl LoadedFile {
    /// Returns the tool with the objects whose maps are read.
    ///
    /// # Errors
    /// - [`ToolError::Part`]: an object or bpftrace script cannot be read, or an object is not an
    ///   ELF file.
    /// - [`ToolError::Figures`]: a map, field or key of the tool file is missing in it.
    /// - [`ToolError::Contents`]: an object lacks something that the tool file sets.
    pub fn under_test(&self) -> Result<UnderTest, ToolError> {
        let mut tool = UnderTest::of(self.file.clone());
        if let (true, Source::Script(scripts), Some(report)) =
            (self.file.names_maps_of_scripts(), &self.file.source, &self.file.report)
        {
            check_scripts(&self.supply(), scripts, report)?;
        }
        let report = self.file.report.as_ref().filter(|report| !report.form.maps().is_empty());
        let of_arch = |&arch: &Arch| self.file.source.objects(arch).map(move |(_, object)| (arch, object));
        for (arch, object) in Arch::ALL.iter().flat_map(of_arch) {
            // A bundled object reports its types in the guest.
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
            if let Err(source) = object_contents::encode(&bytes, &object.contents) {
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
