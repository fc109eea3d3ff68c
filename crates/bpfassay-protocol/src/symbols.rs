// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of the guest's kernel with their addresses.

use serde::{Deserialize, Serialize};

/// Functions of the guest's kernel with their addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Symbols {
    /// Functions of the kernel and its modules, a line each: the difference to the address of the line before in hexadecimal (in the first
    /// line from 0, wrapping), a space, and the rest of the line of `/proc/kallsyms`: the name, and `\t[module]` for those of a module.
    pub functions: String,
    /// BPF programs that are loaded.
    pub programs: Vec<ProgramCode>,
    /// With a list of programs: where processes have code in user space.
    #[serde(default)]
    pub user: UserCode,
}

/// Most mappings of [`UserCode`], of each kind: several times as many as a tool with hundreds of libraries has.
pub const MAX_MAPPINGS: usize = 1 << 14;

/// Where processes have code in user space: start and length in bytes of their executable mappings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UserCode {
    /// Of the processes of what is under test.
    pub under_test: Vec<(u64, u64)>,
    /// Of the agent, of a reference tracer, and of the workload when its last phase began.
    pub others: Vec<(u64, u64)>,
}

/// The machine code of a BPF program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgramCode {
    /// Its id.
    pub id: u32,
    /// Its name, truncated to 15 bytes.
    pub name: String,
    /// Address and length in bytes of each of its functions; empty where the kernel interprets it.
    pub functions: Vec<(u64, u32)>,
    /// Whether it belongs to what is under test in the run that follows.
    pub is_under_test: bool,
}

impl Symbols {
    /// Address and name of each of `functions`, `name [module]` for those of a module. Invalid lines are left out.
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
