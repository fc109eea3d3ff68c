// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks whether the programs of an object match the prototypes of kernel functions. A program
//! that reads the wrong argument counts wrongly without an error.
//!
//! The check follows the object's instructions along all branches and compares with the kernel's
//! BTF. Programs in `SEC("fentry/…")` and similar sections find each argument in 8 bytes. `fexit`
//! and `fmod_ret` have the return value after the last one (`btf_ctx_access`, kernel/bpf/btf.c,
//! 6.12). Programs in `SEC("kprobe/…")` find the registers of the call (`struct pt_regs`).
//!
//! If a program passes its context to a function or calculates with the address, the check is
//! reported as incomplete.

mod value_flow;

use std::collections::BTreeSet;

pub use bpfassay_protocol::checked_prototype::Checked;

use bpfassay_protocol::Arch;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use self::value_flow::{Accesses, accesses};
use crate::{Btf, Prototype, ValueShape};

/// Largest program that is checked, in bytes: 100,000 instructions.
const MAX_PROGRAM: usize = 800_000;

/// The check is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrototypeError {
    /// The object cannot be read.
    #[error("cannot read the object: {0}")]
    Object(String),
    /// The kernel's BTF cannot be read.
    #[error("cannot read the kernel's BTF: {0}")]
    Btf(String),
}

/// The place where a program finds arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hook {
    /// Slots of 8 bytes, with or without the return value at the end.
    Slots { returns: bool },
    /// Registers.
    Registers,
}

/// Checks programs of `object` whose section names a kernel function against the BTF of a kernel of
/// `arch`.
///
/// # Errors
/// [`PrototypeError`] if the object or the BTF cannot be read.
pub fn check(object: &[u8], kernel: &[u8], arch: Arch) -> Result<Vec<Checked>, PrototypeError> {
    let unread = |error: object::Error| PrototypeError::Object(error.to_string());
    let file = object::File::parse(object).map_err(unread)?;
    let mut programs = Vec::new();
    for section in file.sections() {
        let name = section.name().map_err(unread)?;
        let Some((hook, function)) = hooked(name) else { continue };
        let data = section.data().map_err(unread)?;
        let symbols = file.symbols().filter(|symbol| {
            symbol.section_index() == Some(section.index()) && symbol.kind() == SymbolKind::Text && symbol.size() > 0
        });
        for symbol in symbols {
            let start = usize::try_from(symbol.address()).ok();
            let code = start.zip(usize::try_from(symbol.size()).ok()).and_then(|(start, size)| {
                data.get(start..start.checked_add(size)?).filter(|code| code.len() <= MAX_PROGRAM)
            });
            programs.push((name, hook, function, symbol.name().map_err(unread)?, code));
        }
    }
    let wanted: BTreeSet<&str> = programs.iter().map(|program| program.2).collect();
    let btf = Btf::new(kernel).map_err(|error| PrototypeError::Btf(error.to_string()))?;
    let prototypes = btf.prototypes(&wanted).map_err(|error| PrototypeError::Btf(error.to_string()))?;
    let checked = programs.into_iter().map(|(section, hook, function, program, code)| {
        let mut of_name = prototypes.iter().filter(|(name, _)| name == function).map(|(_, prototype)| prototype);
        let of_name = (of_name.next(), of_name.next());
        let (differs, unchecked) = match (code.and_then(|code| accesses(code, None)), of_name.0, of_name.1) {
            (None, ..) => (Vec::new(), Some("its instructions cannot be followed".to_owned())),
            (_, None, _) => (Vec::new(), Some(format!("the kernel's BTF has no function {function}"))),
            (_, _, Some(_)) => (Vec::new(), Some(format!("the kernel's BTF has several functions {function}"))),
            (Some(found), Some(prototype), None) => {
                let value = |slot| code.and_then(|code| accesses(code, Some(8 * slot))).unwrap_or_default();
                compare(hook, &found, &value, prototype, arch)
            }
        };
        Checked { program: program.to_owned(), section: section.to_owned(), differs, unchecked }
    });
    Ok(checked.collect())
}

fn hooked(section: &str) -> Option<(Hook, &str)> {
    let (kind, function) = section.split_once('/')?;
    let hook = match kind {
        "fentry" | "fentry.s" => Hook::Slots { returns: false },
        "fexit" | "fexit.s" | "fmod_ret" | "fmod_ret.s" => Hook::Slots { returns: true },
        "kprobe" => Hook::Registers,
        _ => return None,
    };
    // An offset is not the function's entry, so the registers do not hold the arguments.
    let is_name = !function.is_empty() && function.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some((hook, function))
}

/// Compares a program's accesses with the prototype. `value` returns the use of a slot's value.
fn compare(
    hook: Hook,
    found: &Accesses,
    value: &dyn Fn(usize) -> Accesses,
    prototype: &Prototype,
    arch: Arch,
) -> (Vec<String>, Option<String>) {
    let escapes = found.escapes.map(str::to_owned);
    // A structure by value takes two slots or registers, or none.
    if prototype.arguments.iter().any(|argument| matches!(argument, ValueShape::Other | ValueShape::Void)) {
        return (Vec::new(), Some(format!("{prototype} has arguments that do not fit into one register")));
    }
    let count = prototype.arguments.len();
    let mut differs = Vec::new();
    let Hook::Slots { returns } = hook else {
        for register in found.offsets.iter().filter_map(|&offset| argument_register(arch, offset)) {
            if register >= count {
                differs.push(format!("reads argument {} of {count}: {prototype}", register + 1));
            }
        }
        return (differs, escapes);
    };
    let slots: BTreeSet<usize> = found.offsets.iter().map(|offset| offset / 8).collect();
    let returns_value = returns && prototype.returns != ValueShape::Void;
    for &slot in slots.iter().filter(|&&slot| slot > count || (slot == count && !returns_value)) {
        differs.push(format!("reads argument {} of {count}: {prototype}", slot + 1));
    }
    // The return value comes after the last argument. A program can use a narrower last argument as
    // a 64-bit number and read nothing after it. Then it assumes one argument less.
    if returns_value
        && differs.is_empty()
        && !found.asks_for_return
        && let Some(&last) = slots.last()
        && last + 1 == count
        && let Some(ValueShape::Integer(size)) = prototype.arguments.get(last)
        && *size < 8
        && value(last).keeps_whole
    {
        differs.push(format!(
            "takes argument {count} for a number of 64 bits, where the return value would be with one argument less: {prototype}"
        ));
    }
    let is_pointer = |shape: &ValueShape| matches!(shape, ValueShape::Pointer(_) | ValueShape::Address);
    for &slot in slots.iter().filter(|&&slot| slot < count || (slot == count && returns_value)) {
        let (shape, what) = match prototype.arguments.get(slot) {
            Some(shape) => (shape, format!("argument {} of {count}", slot + 1)),
            None => (&prototype.returns, "what is returned".to_owned()),
        };
        if is_pointer(shape) && value(slot).narrows {
            differs.push(format!("takes {what}, a pointer, for a number of 32 bits: {prototype}"));
        }
    }
    (differs, escapes)
}

/// Returns which argument, from 0, the register at `offset` of `struct pt_regs` holds at a
/// function's entry; `None` for other registers.
fn argument_register(arch: Arch, offset: usize) -> Option<usize> {
    arch.facts().argument_offsets.iter().position(|&register| register == offset)
}

#[cfg(test)]
mod tests;
