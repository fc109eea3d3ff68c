// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prototypes of hooked functions, and where programs find the superblock in their arguments.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use bpfassay_btf::{self as btf, ValueShape};
use bpfassay_protocol::tracer_messages::Step;
use bpfassay_tracer_common::Prototype;

use super::{probes::Attachment, refusal::Failure, tracer_options::TracerOptions, usual};
use crate::kernel;

/// Functions whose arguments differ between kernels, with the operation under which they are
/// counted.
const NAME_FUNCTIONS: [(&str, bpfassay_tracer_common::Operation); 5] = [
    ("vfs_create", bpfassay_tracer_common::Operation::Create),
    ("vfs_mkdir", bpfassay_tracer_common::Operation::Mkdir),
    ("vfs_unlink", bpfassay_tracer_common::Operation::Unlink),
    ("vfs_rmdir", bpfassay_tracer_common::Operation::Rmdir),
    ("vfs_rename", bpfassay_tracer_common::Operation::Rename),
];

/// Returns what the programs need to know about the functions that change names: a [`Prototype`]
/// for each operation, by number.
pub(crate) fn name_prototypes(options: &TracerOptions) -> Result<Vec<u8>, Failure> {
    let hooks = NAME_FUNCTIONS.map(|(function, _)| (Attachment::Kprobe, function));
    Ok(table(&find(&hooks, options)?, options))
}

/// Creates that table from the prototypes that [`find`] returned.
pub(crate) fn table(found: &BTreeMap<String, btf::Prototype>, options: &TracerOptions) -> Vec<u8> {
    let mut bytes = vec![0; bpfassay_tracer_common::Operation::ALL.len() * size_of::<Prototype>()];
    for &(function, operation) in &NAME_FUNCTIONS {
        let prototype = found.get(options.function(function)).and_then(superblock).unwrap_or_default();
        bytes[operation as usize * size_of::<Prototype>()..][..size_of::<Prototype>()]
            .copy_from_slice(&prototype.to_bytes());
    }
    bytes
}

/// Creates a failure of this program or of an object, not of the kernel.
pub(crate) fn failure(message: String) -> Failure {
    Failure { step: Step::Open, program: None, error: io::Error::other(message) }
}

/// Returns the prototypes of hooked functions, from the kernel's BTF. If several functions have the
/// same name, it is left out: the hooked one cannot be determined.
pub(crate) fn find(
    hooks: &[(Attachment, &str)],
    options: &TracerOptions,
) -> Result<BTreeMap<String, btf::Prototype>, Failure> {
    let wanted: BTreeSet<&str> = hooks
        .iter()
        .filter(|(attachment, _)| {
            !matches!(
                attachment,
                Attachment::Syscalls(_)
                    | Attachment::Tracepoint
                    | Attachment::RawTracepoint
                    | Attachment::Iterator
                    | Attachment::Uprobe
                    | Attachment::Uretprobe
            )
        })
        .map(|(_, function)| options.function(function))
        .collect();
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    let all = kernel::btf::prototypes(options.symbol_cache.as_deref(), &wanted, &usual::functions())
        .map_err(|error| failure(kernel::btf::cannot(&error)))?;
    let mut found = BTreeMap::new();
    let mut ambiguous = BTreeSet::new();
    for (name, prototype) in all {
        if found.get(&name).is_some_and(|known| *known != prototype) {
            ambiguous.insert(name.clone());
        }
        found.insert(name, prototype);
    }
    found.retain(|name, _| !ambiguous.contains(name));
    Ok(found)
}

/// Returns where the superblock is found in the arguments of a function that changes a name. The
/// caller holds a reference to a directory throughout the call. The function can release the
/// reference to a name (`vfs_mkdir` of 7.x).
fn superblock(prototype: &btf::Prototype) -> Option<Prototype> {
    let at = |name: &str| prototype.arguments.iter().position(|shape| *shape == ValueShape::Pointer(name.to_owned()));
    let (source, argument) = at("inode")
        .map(|at| (Prototype::INODE, at))
        .or_else(|| at("renamedata").map(|at| (Prototype::RENAME, at)))
        .or_else(|| at("dentry").map(|at| (Prototype::DENTRY, at)))?;
    // The programs read at most three arguments.
    let argument = u8::try_from(argument).ok().filter(|argument| *argument <= 2)?;
    Some(Prototype { source, argument })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prototype(arguments: &[&str]) -> btf::Prototype {
        let shape =
            |name: &&str| if name.is_empty() { ValueShape::Address } else { ValueShape::Pointer((*name).to_owned()) };
        let arguments = arguments.iter().map(shape).collect();
        btf::Prototype { text: String::new(), returns: ValueShape::Integer(4), arguments }
    }

    #[test]
    fn the_superblock_is_found_in_every_known_prototype() {
        let bytes = |arguments: &[&str]| superblock(&prototype(arguments)).map(Prototype::to_bytes);
        // 5.10
        assert_eq!(bytes(&["inode", "dentry", ""]), Some([1, 0]));
        // 5.12 to 6.2, and with mnt_idmap from 6.3
        assert_eq!(bytes(&["mnt_idmap", "inode", "dentry"]), Some([1, 1]));
        // vfs_rename before and from 5.12
        assert_eq!(bytes(&["inode", "dentry", "inode", "dentry", "", ""]), Some([1, 0]));
        assert_eq!(bytes(&["renamedata"]), Some([3, 0]));
        // vfs_create and vfs_mkdir of 7.x
        assert_eq!(bytes(&["mnt_idmap", "dentry", "", ""]), Some([2, 1]));
        assert_eq!(bytes(&["mnt_idmap", "inode", "dentry", "", ""]), Some([1, 1]));
        assert_eq!(bytes(&["", "file"]), None);
        assert_eq!(bytes(&["", "", "", "inode"]), None, "beyond the arguments that the programs read");
    }
}
