// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading and running programs, and their statistics.

use std::{
    fmt, io,
    os::fd::{BorrowedFd, OwnedFd},
};

use crate::{
    object::ObjectInfo,
    syscall::{BpfCommand, call, name, number, open},
};

/// Information on a program (`struct bpf_prog_info`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramInfo {
    /// The program's type.
    pub kind: u32,
    /// The program's id.
    pub id: u32,
    /// The program's name, truncated to 15 bytes.
    pub name: String,
    /// Size of the machine code in bytes; 0 if the kernel interprets the program.
    pub jited_bytes: u32,
    /// Instructions after the verifier's rewriting.
    pub instructions: u32,
    /// Instructions that the verifier processed (Linux 5.16 and later).
    pub verified_instructions: Option<u32>,
    /// Runs skipped because a program or an operation on a map ran on the CPU (since 5.12).
    pub recursion_misses: Option<u64>,
    /// Runs while statistics were on (Linux 5.1 and later).
    pub run_time: Option<RunTime>,
}

/// Statistics of a program's runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunTime {
    /// Number of runs.
    pub runs: u64,
    /// Total duration of the runs in nanoseconds.
    pub nanoseconds: u64,
}

/// Asks the kernel about a program.
///
/// # Errors
/// The kernel's error if `program` is not a descriptor of a program, or the command fails.
pub fn program_info(program: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    ObjectInfo::of(program).map(|info| parse(&info))
}

fn parse(info: &ObjectInfo) -> ProgramInfo {
    let has = |end| info.length >= end;
    ProgramInfo {
        kind: info.half(0),
        id: info.half(4),
        jited_bytes: info.half(16),
        instructions: info.half(20) / 8,
        name: info.text(64),
        run_time: has(208).then(|| RunTime { nanoseconds: info.whole(192), runs: info.whole(200) }),
        recursion_misses: has(216).then(|| info.whole(208)),
        verified_instructions: has(220).then(|| info.half(216)),
    }
}

/// Returns a program's name, and address and length in bytes of the machine code of each function.
/// There are no functions if the kernel interprets the program.
///
/// # Errors
/// The errors of [`program_info`]. The kernel hides addresses because of `kernel.kptr_restrict` or
/// a missing `CAP_SYS_ADMIN`; then the list is empty.
pub fn program_code(program: BorrowedFd<'_>) -> io::Result<(String, Vec<(u64, u32)>)> {
    /// The most functions of a program (`BPF_MAX_SUBPROGS`).
    const MOST: u32 = 256;
    let asked = ObjectInfo::of(program)?;
    let count = asked.half(104).min(asked.half(108)).min(MOST);
    let mut addresses = vec![0_u64; count as usize];
    let mut lengths = vec![0_u32; count as usize];
    let mut words = [0_u64; 16];
    let [a, b, c, d] = count.to_ne_bytes();
    words[13] = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    words[14] = addresses.as_mut_ptr() as u64;
    words[15] = lengths.as_mut_ptr() as u64;
    // SAFETY: both addresses are of lists that outlive the call, with their lengths.
    unsafe { ObjectInfo::fill(program, &mut words)? };
    let code = addresses.into_iter().zip(lengths).filter(|(address, length)| *address != 0 && *length != 0);
    Ok((asked.text(64), code.collect()))
}

/// Enables statistics of every program while the descriptor is open (Linux 5.8 and later).
///
/// # Errors
/// The kernel's error if it is older than Linux 5.8, or `CAP_SYS_ADMIN` is missing.
pub fn enable_statistics() -> io::Result<OwnedFd> {
    /// `BPF_STATS_RUN_TIME`.
    const RUN_TIME: u32 = 0;
    // SAFETY: there are no addresses, and the command returns a new descriptor.
    unsafe { open(BpfCommand::EnableStats, &mut [RUN_TIME]) }
}

/// A program to load, with the licence GPL.
#[derive(Debug, Clone, Copy)]
pub struct ProgramSpec<'a> {
    /// The program's type.
    pub kind: u32,
    /// The attach type (`enum bpf_attach_type`); 0 for nothing in particular.
    pub attach: u32,
    /// BTF id of the target; 0 for none.
    pub target: u32,
    /// Flags (`BPF_F_…`).
    pub flags: u32,
    /// The BTF and the functions with their types, in the order of their instructions.
    pub types: Option<(BorrowedFd<'a>, &'a [FunctionInfo])>,
}

impl ProgramSpec<'_> {
    /// A program of this type without a particular target.
    #[must_use]
    pub const fn new(kind: u32) -> Self {
        Self { kind, attach: 0, target: 0, flags: 0, types: None }
    }
}

/// A function of a program (`struct bpf_func_info`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionInfo {
    /// The function's first instruction.
    pub instruction: u32,
    /// The function's type id.
    pub type_id: u32,
}

/// A program that the kernel refused.
#[derive(Debug)]
pub struct LoadError {
    /// The kernel's error.
    pub source: io::Error,
    /// The verifier's log; empty if the verifier did not see the program.
    pub log: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot load a BPF program")
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Loads a program. `instructions` are in the kernel's memory format.
///
/// # Errors
/// [`LoadError`]. The kernel truncates a log of more than 64 KiB and then returns `ENOSPC`.
pub fn load(program: ProgramSpec<'_>, instructions: &[u64]) -> Result<OwnedFd, LoadError> {
    const LOG: usize = 64 << 10;
    /// How often loading may be interrupted, as in libbpf.
    const ATTEMPTS: usize = 5;
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        kind: u32,
        instruction_count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attach: u32,
        btf: u32,
        function_size: u32,
        functions: u64,
        function_count: u32,
        line_size: u32,
        lines: u64,
        line_count: u32,
        target: u32,
        target_object: u32,
        relocations: u32,
    }
    let mut log = vec![0u8; LOG];
    let (types, functions) = program.types.map_or((0, &[][..]), |(types, functions)| (number(types), functions));
    let mut attributes = Attributes {
        kind: program.kind,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log_level: 1,
        log_size: LOG as u32,
        log: log.as_mut_ptr() as u64,
        flags: program.flags,
        name: name("bpfassay"),
        attach: program.attach,
        btf: types,
        function_size: if functions.is_empty() { 0 } else { size_of::<FunctionInfo>() as u32 },
        functions: if functions.is_empty() { 0 } else { functions.as_ptr() as u64 },
        function_count: functions.len() as u32,
        target: program.target,
        ..Attributes::default()
    };
    let mut attempts = 1;
    loop {
        // SAFETY: instructions, licence, log and functions outlive the call, with their lengths.
        // The command returns a new descriptor.
        match unsafe { open(BpfCommand::ProgLoad, &mut attributes) } {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && attempts < ATTEMPTS => attempts += 1,
            Err(source) => {
                let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
                return Err(LoadError { source, log: String::from_utf8_lossy(&log[..end]).into_owned() });
            }
            Ok(fd) => return Ok(fd),
        }
    }
}

/// Runs `program` once without data or context. Returns the program's result.
///
/// # Errors
/// The kernel's error if it cannot run this type of program, or not without data or a context.
pub fn test_run(program: BorrowedFd<'_>) -> io::Result<u32> {
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        program: u32,
        returned: u32,
        data_sizes: [u32; 2],
        data: [u64; 2],
        repeat: u32,
        duration: u32,
        context_sizes: [u32; 2],
        contexts: [u64; 2],
        flags: u32,
        cpu: u32,
    }
    let mut attributes = Attributes { program: number(program), ..Attributes::default() };
    // SAFETY: there are no addresses.
    unsafe { call(BpfCommand::ProgTestRun, &mut attributes)? };
    Ok(attributes.returned)
}

/// Creates a token from the root directory of a bpffs (Linux 6.9 and later).
///
/// # Errors
/// The kernel's error if it is older than Linux 6.9, `root` is not the root of a bpffs, or the
/// bpffs was mounted without delegation.
pub fn token(root: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // The attributes are flags and directory.
    // SAFETY: there are no addresses, and the command returns a new descriptor.
    unsafe { open(BpfCommand::TokenCreate, &mut [0, number(root)]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_and_names_are_read_where_the_kernel_writes_them() {
        let parts: [(usize, &[u8]); 5] = [
            (0, &5u32.to_ne_bytes()),
            (4, &77u32.to_ne_bytes()),
            (64, b"read_exit\0"),
            (192, &1234u64.to_ne_bytes()),
            (200, &7u64.to_ne_bytes()),
        ];
        let found = parse(&ObjectInfo::from_parts(&parts, 208));
        assert_eq!((found.kind, found.id, found.name.as_str()), (5, 77, "read_exit"));
        assert_eq!(found.run_time, Some(RunTime { runs: 7, nanoseconds: 1234 }));
        assert_eq!((found.recursion_misses, found.verified_instructions), (None, None));
        assert_eq!(parse(&ObjectInfo::from_parts(&parts, 192)).run_time, None);
    }
}
