// SPDX-License-Identifier: MIT OR Apache-2.0
//! Offsets of members in the running kernel's structures, from its BTF.

use bpfassay_protocol::Arch;
use bpfassay_tracer_common::Offsets;
use libbpf_rs::{
    Btf,
    btf::{
        BtfType,
        types::{Composite, MemberAttr, Struct},
    },
};

/// Why an offset is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OffsetError {
    #[error("cannot read the kernel's type information: {message}")]
    Btf { message: String },
    #[error("this kernel's type information has no `{member}`, whose offset the programs need")]
    Missing { member: &'static str },
    #[error("`{member}` is at bit {bits} of its structure, which programs cannot load")]
    Unreachable { member: &'static str, bits: u64 },
}

/// Returns every offset that the programs can use, as the bytes of [`Offsets`].
///
/// # Errors
/// [`OffsetError`] for the first required member that this kernel does not have.
pub(crate) fn of_kernel() -> Result<[u8; size_of::<Offsets>()], OffsetError> {
    let btf = Btf::from_vmlinux().map_err(|error| OffsetError::Btf { message: format!("{error:#}") })?;
    all(&btf)
}

/// The offset of a member that this kernel does not have: see [`Offsets::UNKNOWN`].
const UNKNOWN: u32 = u32::MAX;

fn all(btf: &Btf<'_>) -> Result<[u8; size_of::<Offsets>()], OffsetError> {
    let mut values = [0; Offsets::MEMBERS.len()];
    for (value, &member) in values.iter_mut().zip(Offsets::MEMBERS) {
        *value = match member.strip_prefix('?') {
            None => first(btf, of_architecture(member))?,
            Some(optional) => first(btf, of_architecture(optional)).unwrap_or(UNKNOWN),
        };
    }
    Ok(Offsets::to_bytes(values))
}

/// Returns the member for which `$N` stands on this architecture. Other members are returned
/// unchanged.
fn of_architecture(members: &'static str) -> &'static str {
    let argument = members.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
    argument.and_then(|number| Arch::BUILT_FOR.facts().syscall_arguments.get(number).copied()).unwrap_or(members)
}

/// Returns the offset of the first of several members that the kernel has: `a|b+8`.
fn first(btf: &Btf<'_>, members: &'static str) -> Result<u32, OffsetError> {
    let mut outcome = Err(OffsetError::Missing { member: members });
    for alternative in members.split('|') {
        let (member, behind) = alternative.split_once('+').unwrap_or((alternative, "0"));
        let behind: u32 = behind.parse().map_err(|_| OffsetError::Missing { member: alternative })?;
        outcome = find(btf, member).map(|offset| offset + behind);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Returns the offset in bytes of `member`, which is written `structure.member.member`.
fn find(btf: &Btf<'_>, member: &'static str) -> Result<u32, OffsetError> {
    let missing = || OffsetError::Missing { member };
    let mut names = member.split('.');
    let structure: Struct<'_> = names.next().and_then(|name| btf.type_by_name(name)).ok_or_else(missing)?;
    let mut place = Composite::from(structure);
    let mut bits = 0;
    let mut names = names.peekable();
    while let Some(name) = names.next() {
        let found = step(btf, place, name).ok_or_else(missing)?;
        bits += found.bits;
        if names.peek().is_some() {
            place = found.ty.skip_mods_and_typedefs().try_into().map_err(|_| missing())?;
        }
    }
    let bytes = u32::try_from(bits / 8).ok().filter(|_| bits.is_multiple_of(8));
    bytes.ok_or(OffsetError::Unreachable { member, bits })
}

/// A member that was found.
struct FoundMember<'btf> {
    /// Distance from the beginning of the structure.
    bits: u64,
    ty: BtfType<'btf>,
}

/// Finds the member `name` of a structure or union, also inside anonymous structures and unions.
fn step<'btf>(btf: &'btf Btf<'btf>, place: Composite<'btf>, name: &str) -> Option<FoundMember<'btf>> {
    for index in 0..place.len() {
        let member = place.get(index)?;
        let (MemberAttr::Normal { offset } | MemberAttr::BitField { offset, .. }) = member.attr;
        let ty = btf.type_by_id::<BtfType<'btf>>(member.ty)?;
        match member.name {
            Some(found) if found == name => return Some(FoundMember { bits: u64::from(offset), ty }),
            Some(found) if !found.is_empty() => {}
            _ => {
                let inside = ty.skip_mods_and_typedefs().try_into().ok().and_then(|inside| step(btf, inside, name));
                if let Some(FoundMember { bits, ty }) = inside {
                    return Some(FoundMember { bits: u64::from(offset) + bits, ty });
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::probe::{MapLayout, Probe};

    use super::*;
    use crate::loader::plan::object_files;

    /// Calls `test` with the type information of a C program. The program declares only the members
    /// that it uses, in its own order.
    fn with_btf(test: impl FnOnce(&Btf<'_>)) {
        let elf = object_files::find(Probe::Fexit, MapLayout::Percpu).unwrap().elf;
        test(&Btf::from_raw("object", elf).unwrap().unwrap());
    }

    #[test]
    fn members_are_found_by_their_path_through_structures() {
        with_btf(|btf| {
            // `struct file` of kernel.h: the mode, followed by a `struct path` that begins with the
            // mount.
            assert_eq!(find(btf, "file.f_mode").unwrap(), 0);
            assert_eq!(find(btf, "file.f_path.mnt").unwrap(), find(btf, "file.f_path").unwrap());
            assert!(find(btf, "file.f_path.mnt").unwrap() > 0);
        });
    }

    #[test]
    fn every_member_names_its_structure_on_this_architecture() {
        let members = Offsets::MEMBERS.iter().map(|member| of_architecture(member.trim_start_matches('?')));
        let wrong: Vec<_> = members.flat_map(|members| members.split('|')).filter(|one| !one.contains('.')).collect();
        assert_eq!(wrong, [""; 0]);
        assert_eq!(of_architecture("$1"), Arch::BUILT_FOR.facts().syscall_arguments[1]);
    }

    #[test]
    fn a_missing_member_is_named() {
        with_btf(|btf| {
            for member in ["file.f_none", "none.f_path", "file.f_mode.mnt"] {
                let error = find(btf, member).unwrap_err().to_string();
                assert!(error.contains(&format!("`{member}`")), "{error}");
            }
        });
    }

    #[test]
    fn of_alternatives_the_first_that_exists_is_used() {
        with_btf(|btf| {
            let mode = find(btf, "file.f_mode").unwrap();
            assert_eq!(first(btf, "file.f_none|file.f_mode+8").unwrap(), mode + 8);
            assert_eq!(first(btf, "file.f_mode|file.f_path").unwrap(), mode);
            assert!(matches!(first(btf, "file.f_none|none.x"), Err(OffsetError::Missing { .. })));
        });
    }
}
