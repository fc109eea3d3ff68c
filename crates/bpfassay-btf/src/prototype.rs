// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the programs of an object read what the kernel's functions have: a program that reads the wrong argument counts wrongly
//! without an error.
//!
//! From the object's instructions, followed along all branches, and the kernel's BTF. A program of `SEC("fentry/…")` and its kin finds
//! the arguments in 8 bytes each, and behind the last one, on `fexit` and `fmod_ret`, the return value (`btf_ctx_access`,
//! kernel/bpf/btf.c, 6.12); one of `SEC("kprobe/…")` finds the registers of the call (`struct pt_regs`).
//! What cannot be followed (the context handed to a function or reckoned with) is reported as not checked.

mod flow;

use std::collections::BTreeSet;

pub use bpfassay_protocol::prototype::Checked;

use bpfassay_protocol::Arch;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use self::flow::{Accesses, accesses};
use crate::{Btf, Prototype, Shape};

/// Largest program that is checked, in bytes: 100,000 instructions.
const MAX_PROGRAM: usize = 800_000;

/// Why nothing can be checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrototypeError {
    /// The object cannot be read.
    #[error("cannot read the object: {0}")]
    Object(String),
    /// The kernel's BTF cannot be read.
    #[error("cannot read the kernel's BTF: {0}")]
    Btf(String),
}

/// How a program finds arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hook {
    /// In slots of 8 bytes; with the return value behind them, or without.
    Slots { returns: bool },
    /// In registers.
    Registers,
}

/// Checks the programs of `object` whose sections name a kernel function, against the BTF of a kernel of `arch`.
///
/// # Errors
/// Where one of the two cannot be read.
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
    // With an offset it is not the function's entry, and the registers are no arguments.
    let is_name = !function.is_empty() && function.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some((hook, function))
}

/// Compares what a program reads with what there is. `value`: what it does with the value in a slot.
fn compare(
    hook: Hook,
    found: &Accesses,
    value: &dyn Fn(usize) -> Accesses,
    prototype: &Prototype,
    arch: Arch,
) -> (Vec<String>, Option<String>) {
    let escapes = found.escapes.map(str::to_owned);
    // Structures by value take two slots or registers, or none.
    if prototype.arguments.iter().any(|argument| matches!(argument, Shape::Other | Shape::Void)) {
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
    let returns_value = returns && prototype.returns != Shape::Void;
    for &slot in slots.iter().filter(|&&slot| slot > count || (slot == count && !returns_value)) {
        differs.push(format!("reads argument {} of {count}: {prototype}", slot + 1));
    }
    // The return value lies behind the last argument. A program that takes a narrower number there for one of 64 bits, and never reads what is
    // behind it, counts on one argument less.
    if returns_value
        && differs.is_empty()
        && !found.asks_for_return
        && let Some(&last) = slots.last()
        && last + 1 == count
        && let Some(Shape::Integer(size)) = prototype.arguments.get(last)
        && *size < 8
        && value(last).keeps_whole
    {
        differs.push(format!(
            "takes argument {count} for a number of 64 bits, where the return value would be with one argument less: {prototype}"
        ));
    }
    let is_pointer = |shape: &Shape| matches!(shape, Shape::Pointer(_) | Shape::Address);
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

/// Which argument, from 0, the register at `offset` of `struct pt_regs` holds at a function's entry; `None`: another register.
fn argument_register(arch: Arch, offset: usize) -> Option<usize> {
    arch.facts().argument_offsets.iter().position(|&register| register == offset)
}

#[cfg(test)]
mod tests;
