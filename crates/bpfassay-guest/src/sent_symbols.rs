// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's functions with their addresses. Symbols are sent once per boot, and symbols of BPF
//! programs while they are loaded.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs::File,
    io::{self, BufRead as _, BufReader},
    os::fd::AsFd as _,
};

use bpfassay_bpf::{ObjectKind, by_id, ids, program_code};
use bpfassay_protocol::{
    message::GuestMessage,
    source::ProgramSource,
    symbols::{ProgramCode, Symbols, UserCode},
};

use crate::{
    agent_link::Link,
    error::{Error, Result},
    program_lines::{self, BtfById},
};

const KALLSYMS: &str = "/proc/kallsyms";

/// Size of one message in bytes, far below the largest frame.
const MAX_TEXT: usize = 2 << 20;

/// Sends the functions of the kernel and its modules.
///
/// # Errors
/// The kernel does not list functions, or nothing can be sent.
pub(crate) fn send_functions(link: &Link) -> Result<()> {
    let (mut text, mut last) = (String::new(), 0);
    let send = |text: &mut String| {
        let functions = std::mem::take(text);
        link.send(&GuestMessage::Symbols(Box::new(Symbols { functions, ..Symbols::default() })))
    };
    each_function(|address, name| {
        if text.len() >= MAX_TEXT {
            send(&mut text)?;
            last = 0;
        }
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:x} {name}", address.wrapping_sub(last));
        last = address;
        Ok(())
    })?;
    send(&mut text)
}

/// Calls `each` with the address and the name of each function of the kernel and its modules. The
/// name includes the module, if the function belongs to one.
///
/// # Errors
/// The kernel does not list functions, or the errors of `each`.
pub(crate) fn each_function(mut each: impl FnMut(u64, &str) -> Result<()>) -> Result<()> {
    let file = File::open(KALLSYMS).map_err(Error::file("read", KALLSYMS))?;
    let mut lines = BufReader::with_capacity(1 << 16, file);
    let mut line = String::new();
    while lines.read_line(&mut line).map_err(Error::file("read", KALLSYMS))? > 0 {
        if let Some((address, name)) = function(&line) {
            each(address, name)?;
        }
        line.clear();
    }
    Ok(())
}

/// Returns address and name of a function in a line such as `ffffffff81000000 T _text`.
fn function(line: &str) -> Option<(u64, &str)> {
    let (address, rest) = line.trim_end().split_once(' ')?;
    let (kind, name) = rest.split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    (address != 0 && matches!(kind, "t" | "T" | "w" | "W")).then_some((address, name))
}

/// The programs whose source lines have been sent. No other program of the same boot gets the same
/// id.
#[derive(Debug, Default)]
pub(crate) struct SentPrograms(BTreeSet<u32>);

/// Sends the addresses of the machine code of every program that the kernel has loaded, and where
/// processes have code in user space. Source lines are sent for the programs `under_test` that are
/// not in `sent`.
///
/// # Errors
/// The kernel's error, or nothing can be sent.
pub(crate) fn send_programs(
    link: &Link,
    under_test: &BTreeSet<u32>,
    user: UserCode,
    sent: &mut SentPrograms,
) -> Result<()> {
    let asked = Error::system("ask for the machine code of BPF programs");
    let (mut programs, mut types) = (Vec::new(), BtfById::default());
    let ids = ids(ObjectKind::Program).map_err(Error::system("list BPF programs"))?;
    let found = ids.into_iter().map(|id| {
        let Some(program) = by_id(ObjectKind::Program, id)? else { return Ok(None) };
        let (name, functions) = program_code(program.as_fd())?;
        Ok(Some((program, ProgramCode { id, name, functions, is_under_test: under_test.contains(&id) })))
    });
    let found: Vec<_> = found.collect::<io::Result<_>>().map_err(asked)?;
    for (program, code) in found.into_iter().flatten() {
        if code.is_under_test && sent.0.insert(code.id) {
            let lines = program_lines::lines_of(program.as_fd(), !code.functions.is_empty(), &mut types);
            link.send(&GuestMessage::Source(Box::new(ProgramSource { id: code.id, lines })))?;
        }
        programs.push(code);
    }
    link.send(&GuestMessage::Symbols(Box::new(Symbols { functions: String::new(), programs, user })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_read_from_lines_of_the_kernel() {
        assert_eq!(function("ffffffff81000000 T _text\n"), Some((0xffff_ffff_8100_0000, "_text")));
        let of_module = function("ffffffffc0001000 t nfs_open\t[nfs]\n");
        assert_eq!(of_module, Some((0xffff_ffff_c000_1000, "nfs_open\t[nfs]")));
        assert_eq!(function("ffffffff82000000 D data\n"), None);
        assert_eq!(function("0000000000000000 T hidden\n"), None);
        assert_eq!(function("garbage\n"), None);
    }
}
