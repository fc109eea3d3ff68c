// SPDX-License-Identifier: MIT OR Apache-2.0
//! BTF (Documentation/bpf/btf.rst), the type information of kernels and eBPF objects.
//!
//! This crate reads prototypes of functions and the layout of maps' keys and values. It checks
//! whether an object's programs match the prototypes of a kernel ([`prototype::check`]). It encodes
//! contents that are set in an object before it runs ([`object_contents::encode`]).
//!
//! All input is untrusted bytes: nothing panics, and work is bounded. The crate reads no files. One
//! pass records the offset of each type, and only requested types are decoded, so a kernel's five
//! megabytes cost little.

#![forbid(unsafe_code)]

pub mod instruction;
mod linked;
mod map_types;
pub mod object_contents;
pub mod prototype;
pub mod races;
mod strings;

use std::fmt;

pub use linked::{ObjectError, of_object};
pub use map_types::{MapField, MapTypes, Scalar, TypeLayout};
pub use strings::Strings;

/// The file with the kernel's BTF.
pub const KERNEL: &str = "/sys/kernel/btf/vmlinux";

/// `BTF_MAGIC` (include/uapi/linux/btf.h).
const MAGIC: u16 = 0xeb9f;
/// Deepest chain of modifiers and typedefs that is followed.
const MAX_DEPTH: u32 = 32;
/// Longest list of arguments as text, and longest text of all prototypes, in bytes. Arguments can
/// share a type's name and functions can share arguments, so a small BTF could otherwise produce
/// any amount of text.
const MAX_PROTOTYPE: usize = 64 << 10;
const MAX_PROTOTYPES: usize = 4 << 20;

/// Kinds of types (include/uapi/linux/btf.h).
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const FWD: u32 = 7;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// BTF that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// The bytes do not begin with a BTF header.
    #[error("no BTF header")]
    Header,
    /// A section or reference lies outside of the BTF.
    #[error("the BTF is cut off or points outside itself")]
    Bounds,
    /// A type has a kind that is newer than this program.
    #[error("type {id} is of kind {kind}, which this program does not know")]
    Kind {
        /// The type's id.
        id: usize,
        /// The type's kind.
        kind: u32,
    },
}

/// The kind of a value, as far as it matters for reading the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueShape {
    /// No value.
    Void,
    /// A number, an enumeration or a Boolean, with its size in bytes.
    Integer(u32),
    /// A pointer to a structure or union with this name.
    Pointer(String),
    /// A pointer to anything else: characters, `void`, numbers, functions.
    Address,
    /// Anything else: structures by value, floating point.
    Other,
}

/// A function's prototype.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prototype {
    /// The prototype in C, with the kernel's type names.
    pub text: String,
    /// The return value.
    pub returns: ValueShape,
    /// The arguments, in order.
    pub arguments: Vec<ValueShape>,
}

impl fmt::Display for Prototype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Parsed BTF.
#[derive(Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// The offset of each type in `types`. Element 0 is type 1, because type 0 is `void`.
    starts: Vec<usize>,
}

/// The fixed part of a type.
#[derive(Debug, Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    /// Number of members, arguments or constants.
    length: usize,
    /// Size in bytes, or a type id.
    size_or_type: u32,
    /// The flag of the kind: members can be bit fields.
    flag: bool,
    /// Offset of the variable part.
    rest: usize,
}

impl<'a> Btf<'a> {
    /// Records the offset of each type.
    ///
    /// # Errors
    /// [`BtfError::Header`] if the bytes do not begin with a BTF header, [`BtfError::Bounds`] if a
    /// section or type exceeds them, [`BtfError::Kind`] for an unknown kind of type.
    pub fn new(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let (types, strings) = sections(bytes)?;
        let mut btf = Self { types, strings, starts: Vec::new() };
        let mut at = 0;
        while at < types.len() {
            let found = btf.read(at).ok_or(BtfError::Bounds)?;
            let rest = match found.kind {
                kind::INT | kind::VAR | kind::DECL_TAG => 4,
                kind::ARRAY => 12,
                kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * found.length,
                kind::ENUM | kind::FUNC_PROTO => 8 * found.length,
                kind::PTR
                | kind::FWD
                | kind::TYPEDEF
                | kind::VOLATILE
                | kind::CONST
                | kind::RESTRICT
                | kind::FUNC
                | kind::FLOAT
                | kind::TYPE_TAG => 0,
                other => return Err(BtfError::Kind { id: btf.starts.len() + 1, kind: other }),
            };
            btf.starts.push(at);
            at = found.rest + rest;
        }
        if at == types.len() { Ok(btf) } else { Err(BtfError::Bounds) }
    }

    /// Returns the prototypes of `wanted` functions that exist. A name that several functions have
    /// occurs several times.
    ///
    /// # Errors
    /// [`BtfError::Bounds`] if a reference leaves the sections, or all prototypes are too long.
    pub fn prototypes(&self, wanted: &std::collections::BTreeSet<&str>) -> Result<Vec<(String, Prototype)>, BtfError> {
        let (mut found, mut length) = (Vec::new(), 0usize);
        // A kernel has 60,000 functions, and most begin differently from the wanted ones. So only
        // the first bytes of a name are compared at first.
        let mut beginnings: Vec<u32> = wanted.iter().map(|name| beginning(name.as_bytes())).collect();
        beginnings.sort_unstable();
        beginnings.dedup();
        for &start in &self.starts {
            let info = u32_at(self.types, start + 4).ok_or(BtfError::Bounds)?;
            if info >> 24 & 0x1f != kind::FUNC {
                continue;
            }
            let function = self.read(start).ok_or(BtfError::Bounds)?;
            let name = self.bytes_from(function.name).ok_or(BtfError::Bounds)?;
            if !beginnings.contains(&beginning(name)) {
                continue;
            }
            let Some(name) = self.string(function.name).filter(|name| wanted.contains(name)) else { continue };
            let prototype = self.prototype(name, function.size_or_type).ok_or(BtfError::Bounds)?;
            length = length.saturating_add(prototype.text.len());
            if length > MAX_PROTOTYPES {
                return Err(BtfError::Bounds);
            }
            found.push((name.to_owned(), prototype));
        }
        Ok(found)
    }

    fn prototype(&self, name: &str, id: u32) -> Option<Prototype> {
        let proto = self.get(id)?.filter(|found| found.kind == kind::FUNC_PROTO)?;
        let mut arguments = Vec::new();
        let mut texts = Vec::new();
        let mut length = 0;
        for index in 0..proto.length {
            let argument = u32_at(self.types, proto.rest + 8 * index + 4)?;
            // The last argument of a variadic function is `void`.
            arguments.push(self.shape(argument)?);
            let text = if argument == 0 { "...".to_owned() } else { self.text(argument, 0)? };
            length += text.len();
            if length > MAX_PROTOTYPE {
                return None;
            }
            texts.push(text);
        }
        let returns = self.text(proto.size_or_type, 0)?;
        let space = if returns.ends_with('*') { "" } else { " " };
        let list = if texts.is_empty() { "void".to_owned() } else { texts.join(", ") };
        Some(Prototype {
            text: format!("{returns}{space}{name}({list})"),
            returns: self.shape(proto.size_or_type)?,
            arguments,
        })
    }

    /// Follows modifiers and typedefs from `id`; `Some(None)` for `void`.
    fn resolve(&self, mut id: u32) -> Option<Option<Type>> {
        for _ in 0..MAX_DEPTH {
            match self.get(id)? {
                Some(found)
                    if matches!(
                        found.kind,
                        kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG
                    ) =>
                {
                    id = found.size_or_type;
                }
                other => return Some(other),
            }
        }
        None
    }

    fn shape(&self, id: u32) -> Option<ValueShape> {
        let Some(found) = self.resolve(id)? else { return Some(ValueShape::Void) };
        Some(match found.kind {
            kind::INT | kind::ENUM | kind::ENUM64 => ValueShape::Integer(found.size_or_type),
            kind::PTR => match self.resolve(found.size_or_type)? {
                Some(target) if matches!(target.kind, kind::STRUCT | kind::UNION | kind::FWD) => {
                    ValueShape::Pointer(self.string(target.name)?.to_owned())
                }
                _ => ValueShape::Address,
            },
            _ => ValueShape::Other,
        })
    }

    /// Returns the type in C.
    fn text(&self, id: u32, depth: u32) -> Option<String> {
        let Some(found) = self.get(id)? else { return Some("void".to_owned()) };
        if depth > MAX_DEPTH {
            return None;
        }
        let name = self.string(found.name)?;
        let inner = |prefix: &str| {
            let text = self.text(found.size_or_type, depth + 1)?;
            Some(format!("{prefix}{text}"))
        };
        Some(match found.kind {
            kind::PTR => {
                let target = self.text(found.size_or_type, depth + 1)?;
                if target.ends_with('*') { format!("{target}*") } else { format!("{target} *") }
            }
            kind::CONST => inner("const ")?,
            kind::VOLATILE => inner("volatile ")?,
            // `__user`, `__rcu` and similar tags do not matter to a tracing program.
            kind::RESTRICT | kind::TYPE_TAG => inner("")?,
            kind::STRUCT | kind::FWD => format!("struct {name}"),
            kind::UNION => format!("union {name}"),
            kind::ENUM | kind::ENUM64 => format!("enum {name}"),
            kind::FUNC_PROTO => "function".to_owned(),
            kind::ARRAY => "array".to_owned(),
            _ => name.to_owned(),
        })
    }

    /// Reads type `id`; `Some(None)` for `void`, `None` if it does not exist.
    fn get(&self, id: u32) -> Option<Option<Type>> {
        match usize::try_from(id).ok()?.checked_sub(1) {
            None => Some(None),
            Some(index) => self.read(*self.starts.get(index)?).map(Some),
        }
    }

    fn read(&self, at: usize) -> Option<Type> {
        let word = |index: usize| u32_at(self.types, at + 4 * index);
        let info = word(1)?;
        Some(Type {
            name: word(0)?,
            kind: info >> 24 & 0x1f,
            length: usize::try_from(info & 0xffff).ok()?,
            size_or_type: word(2)?,
            flag: info >> 31 == 1,
            rest: at + 12,
        })
    }

    fn bytes_from(&self, offset: u32) -> Option<&'a [u8]> {
        self.strings.get(usize::try_from(offset).ok()?..)
    }

    fn string(&self, offset: u32) -> Option<&'a str> {
        let rest = self.bytes_from(offset)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        str::from_utf8(&rest[..end]).ok()
    }
}

/// Returns the sections of types and of strings in `bytes`.
fn sections(bytes: &[u8]) -> Result<(&[u8], &[u8]), BtfError> {
    let magic = bytes.get(..2).and_then(|magic| magic.try_into().ok()).map(u16::from_ne_bytes);
    if magic != Some(MAGIC) {
        return Err(BtfError::Header);
    }
    let header = |offset| u32_at(bytes, offset).and_then(|value| usize::try_from(value).ok());
    let section = |offset: usize| {
        let start = header(4)?.checked_add(header(offset)?)?;
        bytes.get(start..start.checked_add(header(offset + 4)?)?)
    };
    section(8).zip(section(16)).ok_or(BtfError::Bounds)
}

/// Returns the first four bytes of a name, padded with zeros after a zero byte or the end.
fn beginning(name: &[u8]) -> u32 {
    let mut begins = [0; 4];
    for (to, &byte) in begins.iter_mut().zip(name.iter().take_while(|byte| **byte != 0)) {
        *to = byte;
    }
    u32::from_ne_bytes(begins)
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let word = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

#[cfg(test)]
pub(crate) mod tests;
