// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attributes blocks to functions.

use std::collections::BTreeMap;

use bpfassay_protocol::symbols::{MAX_MAPPINGS, Symbols, UserCode};
use bpfassay_results::Misses;

use crate::{Window, format::PAGE};

/// Largest number of kernel functions that are kept, several times the number that kernels have.
const MAX_FUNCTIONS: usize = 1 << 20;
/// Length of the longest name: a kernel symbol (`KSYM_NAME_LEN`) with a module's name.
const MAX_NAME: usize = 600;

/// The owner of executed instructions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Executed {
    /// A function of a BPF program, by the program's name.
    Program(String),
    /// Code that the kernel generated without a name: trampolines of BPF, ftrace and kprobes.
    Generated,
    /// A function of the kernel or of a module, `NAME [MODULE]`.
    Function(String),
    /// User space of processes that are not under test.
    User,
    /// User space of the processes of the tool under test.
    Tool,
    /// User space where both the tool under test and another process have code.
    Shared,
}

/// Instructions and entries in a window, by owner.
pub type Profile = BTreeMap<Executed, Count>;

/// The executed amount of one owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Instructions.
    pub instructions: u64,
    /// Executions of blocks at the beginning of the function or program. For generated code,
    /// executions of all blocks.
    pub entries: u64,
    /// Misses that a model of caches and branches found; `None` without a model.
    pub misses: Option<Misses>,
}

/// The functions of a guest's kernel by their addresses.
#[derive(Debug, Clone, Default)]
pub struct Functions {
    /// Functions of the kernel and of modules, by address.
    kernel: Vec<(u64, String)>,
    is_sorted: bool,
    /// Loaded programs in the guest's last list, which comes after the phases of a run.
    programs: ProgramFunctions,
    /// Loaded programs in the guest's list from before the phases of a run.
    before: ProgramFunctions,
    /// User-space code of processes, in the last list and the one before.
    user: [Processes; 2],
}

/// Addresses of processes' user-space code.
#[derive(Debug, Clone, Default)]
struct Processes {
    under_test: Mappings,
    others: Mappings,
}

/// Start and end of mappings, in order. No two touch each other.
#[derive(Debug, Clone, Default)]
struct Mappings(Vec<(u64, u64)>);

impl Mappings {
    /// Merges mappings, given by start and length.
    fn of(mappings: &[(u64, u64)]) -> Self {
        let mut sorted: Vec<_> =
            mappings.iter().take(MAX_MAPPINGS).map(|&(start, length)| (start, start.saturating_add(length))).collect();
        sorted.sort_unstable();
        sorted.dedup_by(|next, merged| {
            let touches = next.0 <= merged.1;
            if touches {
                merged.1 = merged.1.max(next.1);
            }
            touches
        });
        Self(sorted)
    }

    fn has(&self, address: u64) -> bool {
        let next = self.0.partition_point(|(start, _)| *start <= address);
        next.checked_sub(1).and_then(|at| self.0.get(at)).is_some_and(|(_, end)| address < *end)
    }
}

/// Functions of programs by address: end, whether it is the program's first, and its name.
type ProgramFunctions = BTreeMap<u64, (u64, bool, String)>;

impl Functions {
    /// Adds the symbols that the guest sent.
    pub fn add(&mut self, symbols: &Symbols) {
        let room = MAX_FUNCTIONS.saturating_sub(self.kernel.len());
        let named = symbols.functions().filter(|(_, name)| name.len() <= MAX_NAME);
        self.kernel.extend(named.take(room));
        self.is_sorted = false;
        // A list of programs contains all that are loaded. If a program is missing in both lists,
        // trampolines without names may have replaced it.
        if symbols.functions.is_empty() {
            self.before = std::mem::take(&mut self.programs);
            let UserCode { under_test, others } = &symbols.user;
            let last = Processes { under_test: Mappings::of(under_test), others: Mappings::of(others) };
            self.user = [last, std::mem::take(&mut self.user[0])];
        }
        for program in symbols.programs.iter().filter(|program| program.name.len() <= MAX_NAME) {
            for (index, &(start, length)) in program.functions.iter().enumerate() {
                if self.programs.len() < MAX_FUNCTIONS {
                    let end = start.saturating_add(u64::from(length));
                    self.programs.insert(start, (end, index == 0, program.name.clone()));
                }
            }
        }
    }

    /// Whether the kernel's functions are known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !self.kernel.is_empty()
    }

    /// Attributes everything executed in `window`.
    pub fn profile(&mut self, window: &Window) -> Profile {
        if !self.is_sorted {
            // If an address has several names, the first one is kept.
            self.kernel.sort_by_key(|(address, _)| *address);
            self.kernel.dedup_by_key(|(address, _)| *address);
            self.is_sorted = true;
        }
        let mut profile = Profile::new();
        let mut add = |executed, instructions: u64, entries, misses: Option<Misses>| {
            let count = profile.entry(executed).or_default();
            if let Some(misses) = misses {
                count.misses = Some(count.misses.unwrap_or_default().saturating_add(misses));
            }
            count.instructions = count.instructions.saturating_add(instructions);
            count.entries = count.entries.saturating_add(entries);
        };
        for block in &window.blocks {
            let (executed, is_entry) = self.of(block.address);
            let instructions = block.instructions.saturating_mul(block.executions);
            add(executed, instructions, if is_entry { block.executions } else { 0 }, block.misses);
        }
        for &(page, instructions) in &window.user {
            add(self.of_user(page), instructions, 0, None);
        }
        // The model has one sum of misses for all of user space.
        add(Executed::User, 0, 0, window.user_misses);
        profile
    }

    /// Returns the owner of the code on this page of user space. Mappings begin and end at pages.
    fn of_user(&self, page: u64) -> Executed {
        let is_tool = self.user.iter().any(|code| code.under_test.has(page));
        match is_tool && self.user.iter().any(|code| code.others.has(page)) {
            true => Executed::Shared,
            false if is_tool => Executed::Tool,
            false => Executed::User,
        }
    }

    /// Returns the owner of the code at `address`, and whether the function begins there.
    fn of(&self, address: u64) -> (Executed, bool) {
        for programs in [&self.programs, &self.before] {
            if let Some((start, (end, is_first, name))) = programs.range(..=address).next_back()
                && address < *end
            {
                return (Executed::Program(name.clone()), *is_first && *start == address);
            }
        }
        let next = self.kernel.partition_point(|(start, _)| *start <= address);
        let Some((start, name)) = next.checked_sub(1).and_then(|before| self.kernel.get(before)) else {
            return (Executed::Generated, true);
        };
        // The pages after the last function of the kernel or a module can hold generated code.
        let is_last = self.kernel.get(next).is_none_or(|(_, after)| module(after) != module(name));
        let end = start.saturating_add(1).next_multiple_of(PAGE);
        match is_last && address >= end {
            true => (Executed::Generated, true),
            false => (Executed::Function(name.clone()), *start == address),
        }
    }
}

/// Returns `[nfs]` for `nfs_open [nfs]`.
fn module(name: &str) -> Option<&str> {
    name.split_once(' ').map(|(_, module)| module)
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::symbols::ProgramCode;

    use super::*;
    use crate::BlockExecutions;

    const KERNEL: u64 = 0xffff_ffff_8100_0000;
    const MODULE: u64 = 0xffff_ffff_c000_0000;

    fn functions() -> Functions {
        let mut functions = Functions::default();
        let text = format!("{KERNEL:x} vfs_read\n40 vfs_write\n{:x} nfs_read\t[nfs]\n", MODULE - KERNEL - 0x40);
        let code = |name: &str, start| ProgramCode {
            id: 1,
            name: name.to_owned(),
            functions: vec![(start, 100)],
            ..ProgramCode::default()
        };
        functions.add(&Symbols {
            functions: text,
            programs: vec![code("on_read", MODULE + 0x2000)],
            ..Symbols::default()
        });
        functions
    }

    #[test]
    fn code_belongs_to_the_function_before_it_and_generated_code_to_none() {
        let mut functions = functions();
        let block =
            |address, executions| BlockExecutions { address, instructions: 2, bytes: 8, executions, misses: None };
        let blocks = vec![
            block(KERNEL, 5),
            block(KERNEL + 0x20, 3),
            block(KERNEL + 0x44, 1),
            block(MODULE + 8, 7),
            block(MODULE + 0x1000, 11),
            block(MODULE + 0x2000, 13),
            block(MODULE + 0x2000 + 99, 13),
            block(MODULE + 0x2000 + 100, 17),
        ];
        let user = vec![(0, 9)];
        let profile = functions.profile(&Window { number: 1, user, user_misses: None, uncounted: 0, blocks });
        let count = |executed| {
            let Count { instructions, entries, .. } = profile[&executed];
            (instructions, entries)
        };
        let function = |name: &str| count(Executed::Function(name.to_owned()));
        assert_eq!(function("vfs_read"), (16, 5));
        assert_eq!(function("vfs_write"), (2, 0));
        assert_eq!(function("nfs_read [nfs]"), (14, 0));
        assert_eq!(count(Executed::Program("on_read".to_owned())), (52, 13));
        assert_eq!(count(Executed::Generated), (56, 28));
        assert_eq!(count(Executed::User), (9, 0));
    }

    #[test]
    fn programs_that_are_gone_leave_their_place_to_programs_and_trampolines() {
        let mut functions = functions();
        assert_eq!(functions.of(MODULE + 0x2000).0, Executed::Program("on_read".to_owned()));
        let code = ProgramCode {
            id: 2,
            name: "later".to_owned(),
            functions: vec![(MODULE + 0x2010, 8)],
            ..ProgramCode::default()
        };
        functions.add(&Symbols { programs: vec![code], ..Symbols::default() });
        assert_eq!(functions.of(MODULE + 0x2010), (Executed::Program("later".to_owned()), true));
        functions.add(&Symbols::default());
        assert_eq!(functions.of(MODULE + 0x2010).0, Executed::Program("later".to_owned()));
        assert_eq!(functions.of(MODULE + 0x2000).0, Executed::Generated);
        assert_eq!(functions.of(MODULE + 0x2018).0, Executed::Generated);
        functions.add(&Symbols::default());
        assert_eq!(functions.of(MODULE + 0x2010).0, Executed::Generated);
    }

    #[test]
    fn programs_that_are_loaded_or_gone_during_a_run_are_known() {
        let mut functions = functions();
        let code = |id, name: &str, start| {
            let (name, functions) = (name.to_owned(), vec![(start, 64)]);
            ProgramCode { id, name, functions, is_under_test: false }
        };
        let list = |programs| Symbols { programs, ..Symbols::default() };
        functions.add(&list(vec![code(2, "stays", MODULE + 0x3000), code(3, "goes", MODULE + 0x4000)]));
        functions.add(&list(vec![code(2, "stays", MODULE + 0x3000), code(4, "comes", MODULE + 0x5000)]));
        for (name, start) in [("stays", 0x3000), ("goes", 0x4000), ("comes", 0x5000)] {
            assert_eq!(functions.of(MODULE + start), (Executed::Program(name.to_owned()), true));
        }
    }

    #[test]
    fn user_space_is_the_tools_where_it_alone_has_code() {
        let mut functions = functions();
        let mut list = |under_test: &[(u64, u64)], others: &[(u64, u64)]| {
            let user = UserCode { under_test: under_test.to_vec(), others: others.to_vec() };
            functions.add(&Symbols { user, ..Symbols::default() });
        };
        // A library was loaded in between, in two overlapping mappings. The workload is known
        // later.
        list(&[(0x40_0000, 0x2000)], &[(0x9000, 0x1000)]);
        list(&[(0x7000, 0x1000), (0x40_0000, 0x2000), (0x7800, 0x1000)], &[(0x9000, 0x1000), (0x40_1000, 0x5000)]);
        let user = [(0, 1), (0x7000, 2), (0x8000, 4), (0x9000, 8), (0x40_0000, 16), (0x40_1000, 32), (0x40_2000, 64)];
        let window = Window { number: 1, user: user.to_vec(), user_misses: None, uncounted: 0, blocks: Vec::new() };
        let profile = functions.profile(&window);
        let of = |executed| profile[&executed].instructions;
        assert_eq!([Executed::User, Executed::Tool, Executed::Shared].map(of), [1 + 8 + 64, 2 + 4 + 16, 32]);
        // Two lists later, the tool has ended.
        functions.add(&Symbols::default());
        functions.add(&Symbols::default());
        assert_eq!(functions.profile(&window)[&Executed::User].instructions, 127);
    }
}
