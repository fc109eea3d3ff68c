// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of the guest's kernel with their addresses.

use serde::{Deserialize, Serialize};

/// Functions of the guest's kernel with their addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Symbols {
    /// Functions of the kernel and its modules, one per line. A line has the address minus that of
    /// the previous line in hexadecimal (wrapping; the first line starts from 0) and a space. The
    /// rest is that of the line in `/proc/kallsyms`: the name, and `\t[module]` for a module's
    /// function.
    pub functions: String,
    /// Loaded BPF programs.
    pub programs: Vec<ProgramCode>,
    /// User-space code of processes, if the message lists programs.
    #[serde(default)]
    pub user: UserCode,
}

/// Most mappings of each kind in [`UserCode`]. A tool with hundreds of libraries has far fewer.
pub const MAX_MAPPINGS: usize = 1 << 14;

/// User-space code of processes: start and length in bytes of executable mappings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UserCode {
    /// Code of the processes under test.
    pub under_test: Vec<(u64, u64)>,
    /// Code of the agent, of a reference tracer, and of the workload when its last phase began.
    pub others: Vec<(u64, u64)>,
}

/// The machine code of a BPF program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgramCode {
    /// The program's id.
    pub id: u32,
    /// The program's name, truncated to 15 bytes.
    pub name: String,
    /// Address and length in bytes of each function; empty if the kernel interprets the program.
    pub functions: Vec<(u64, u32)>,
    /// Whether the program is under test in the run that follows.
    pub is_under_test: bool,
}

impl Symbols {
    /// Returns address and name of each of `functions`; a module's function is `name [module]`.
    /// Invalid lines are skipped.
    pub fn functions(&self) -> impl Iterator<Item = (u64, String)> {
        let mut last = 0_u64;
        self.functions.lines().filter_map(move |line| {
            let (distance, name) = line.split_once(' ')?;
            last = last.wrapping_add(u64::from_str_radix(distance, 16).ok()?);
            Some((last, name.replace('\t', " ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sums_of_differences() {
        let functions = "ffffffff81000000 a\n10 b\t[nfs]\nnone\nfffffffffffffff8 c\n".to_owned();
        let found: Vec<_> = Symbols { functions, ..Symbols::default() }.functions().collect();
        let base = 0xffff_ffff_8100_0000;
        assert_eq!(found, [(base, "a".to_owned()), (base + 16, "b [nfs]".to_owned()), (base + 8, "c".to_owned())]);
    }
}
