// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `.modinfo` section of a kernel module.

use object::{Object, ObjectSection};

/// The reason why a file is not a kernel module.
#[derive(Debug, thiserror::Error)]
pub enum ModInfoError {
    /// The file is not an object file.
    #[error("it is not an ELF object")]
    NotElf(#[source] object::Error),
    /// The section is missing or outside the file.
    #[error("it has no readable section .modinfo")]
    NoSection(#[source] Option<object::Error>),
    /// A name in the section cannot be a module's name.
    #[error("it names a module `{}`, which cannot be one", name.escape_debug())]
    Name {
        /// The name found.
        name: String,
    },
}

/// The parts of a module's information that matter for its insertion. Names are [`canonical`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModInfo {
    /// Name of the module, if the section has it.
    pub name: Option<String>,
    /// Modules whose symbols this module uses.
    pub depends: Vec<String>,
    /// Modules to insert before this one, if they exist (`softdep=pre:`).
    pub soft_before: Vec<String>,
    /// Modules to insert after this one, if they exist (`softdep=post:`).
    pub soft_after: Vec<String>,
}

impl ModInfo {
    /// Parses a module (ELF, decompressed).
    ///
    /// # Errors
    /// [`ModInfoError`] if `module` is not an ELF object, has no section `.modinfo`, or contains an
    /// invalid module name.
    pub fn parse(module: &[u8]) -> Result<Self, ModInfoError> {
        let file = object::File::parse(module).map_err(ModInfoError::NotElf)?;
        let section = file.section_by_name(".modinfo").ok_or(ModInfoError::NoSection(None))?;
        Self::parse_section(section.data().map_err(|error| ModInfoError::NoSection(Some(error)))?)
    }

    /// Parses the content of a `.modinfo` section: `key=value`, each ended by a zero byte.
    ///
    /// # Errors
    /// [`ModInfoError::Name`] for an invalid module name.
    pub fn parse_section(section: &[u8]) -> Result<Self, ModInfoError> {
        let mut info = Self::default();
        for line in section.split(|&byte| byte == 0) {
            let line = String::from_utf8_lossy(line);
            match line.split_once('=') {
                Some(("name", name)) => info.name = Some(checked(name)?),
                Some(("depends", names)) => {
                    for name in names.split(',').filter(|name| !name.is_empty()) {
                        info.depends.push(checked(name)?);
                    }
                }
                Some(("softdep", text)) => info.soft_dependencies(text),
                _ => {}
            }
        }
        Ok(info)
    }

    /// Parses `pre: a b post: c`. Skips aliases (`crypto-crc32c`, `usb:v1234*`) that cannot be file
    /// names. They only help modprobe, and a soft dependency may be missing.
    fn soft_dependencies(&mut self, text: &str) {
        let mut before = None;
        for token in text.split_ascii_whitespace() {
            match (token, before) {
                ("pre:", _) => before = Some(true),
                ("post:", _) => before = Some(false),
                (name, Some(true)) => self.soft_before.extend(checked(name)),
                (name, Some(false)) => self.soft_after.extend(checked(name)),
                (_, None) => {}
            }
        }
    }
}

/// Returns the kernel's spelling of `name`: `_` for `-`.
#[must_use]
pub fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

fn checked(name: &str) -> Result<String, ModInfoError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    // The kernel's limit (MODULE_NAME_LEN) is 56 to 64, depending on the architecture.
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        return Err(ModInfoError::Name { name: name.chars().take(80).collect() });
    }
    Ok(canonical(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_that_matter_are_read_and_others_passed_over() {
        let section =
            b"license=GPL\0alias=fs-nfs4\0depends=nfs,sunrpc,dns-resolver\0softdep=pre: a-b post: c d pre: e\0\
            name=nfsv4\0description=x=y\0broken\0\0";
        let info = ModInfo::parse_section(section).unwrap();
        assert_eq!(info.name.as_deref(), Some("nfsv4"));
        assert_eq!(info.depends, ["nfs", "sunrpc", "dns_resolver"]);
        assert_eq!(info.soft_before, ["a_b", "e"]);
        assert_eq!(info.soft_after, ["c", "d"]);
    }

    #[test]
    fn no_dependencies_are_an_empty_list() {
        assert!(ModInfo::parse_section(b"depends=\0").unwrap().depends.is_empty());
    }

    #[test]
    fn names_that_could_leave_their_directory_are_refused() {
        for section in [&b"depends=../../init\0"[..], b"depends=a,b/c\0", b"name=\0"] {
            assert!(matches!(ModInfo::parse_section(section), Err(ModInfoError::Name { .. })));
        }
        assert!(ModInfo::parse_section(b"softdep=pre: ../x\0").unwrap().soft_before.is_empty());
    }

    #[test]
    fn what_is_no_module_is_refused() {
        assert!(matches!(ModInfo::parse(b"not an object"), Err(ModInfoError::NotElf(_))));
        assert!(matches!(ModInfo::parse(&super::super::tests::module(None)), Err(ModInfoError::NoSection(None))));
    }

    proptest! {
        #[test]
        fn any_section_is_read_or_refused(section: Vec<u8>) {
            let _ = ModInfo::parse_section(&section);
        }

        #[test]
        fn any_damage_to_a_module_is_an_error_and_no_panic(at in 0usize..400, value: u8, length in 0usize..600) {
            let mut module = super::super::tests::module(Some(b"name=x\0depends=y\0"));
            if let Some(byte) = module.get_mut(at) {
                *byte = value;
            }
            module.truncate(length);
            let _ = ModInfo::parse(&module);
        }
    }
}
