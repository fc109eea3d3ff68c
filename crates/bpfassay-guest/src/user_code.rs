// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executable mappings of processes. The host uses them to divide instructions of user space.

use std::fs;

use bpfassay_protocol::symbols::MAX_MAPPINGS;
use rustix::process::Pid;

/// Start and length in bytes of a mapping.
pub(crate) type Mapping = (u64, u64);

/// Returns the executable mappings of `processes`, each once, up to [`MAX_MAPPINGS`]. A process
/// that has exited has none.
pub(crate) fn of_processes(processes: impl IntoIterator<Item = Pid>) -> Vec<Mapping> {
    let maps = processes.into_iter().map(|pid| format!("/proc/{}/maps", pid.as_raw_nonzero()));
    let texts = maps.filter_map(|path| fs::read_to_string(path).ok());
    let mut found: Vec<Mapping> = texts.flat_map(|text| executable(&text).collect::<Vec<_>>()).collect();
    found.sort_unstable();
    found.dedup();
    found.truncate(MAX_MAPPINGS);
    found
}

/// Returns the executable mappings in the text of `/proc/PID/maps` (proc(5)). The kernel's page
/// that every process has on x86_64 (`[vsyscall]`) does not have an address of user space.
fn executable(maps: &str) -> impl Iterator<Item = Mapping> {
    maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).ok());
        let (start, end) = (start?, end?);
        let is_code = rest.as_bytes().get(2) == Some(&b'x');
        (is_code && start < end && end < 1 << 63).then(|| (start, end - start))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_mappings_are_read_as_the_kernel_writes_them() {
        let maps = "55d0c6a00000-55d0c6a02000 r--p 00000000 fe:00 1042 /usr/bin/cat\n\
                    55d0c6a02000-55d0c6a07000 r-xp 00002000 fe:00 1042 /usr/bin/cat\n\
                    7f0000000000-7f0000001000 rwxp 00000000 00:00 0 \n\
                    7ffd1c5f2000-7ffd1c5f4000 r-xp 00000000 00:00 0 [vdso]\n\
                    ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n\
                    garbage\n9000-8000 r-xp 0\nzz-8000 r-xp 0\n";
        let found: Vec<_> = executable(maps).collect();
        assert_eq!(found, [(0x55d0_c6a0_2000, 0x5000), (0x7f00_0000_0000, 0x1000), (0x7ffd_1c5f_2000, 0x2000)]);
    }

    #[test]
    fn this_process_has_the_code_that_it_executes() {
        let here = this_process_has_the_code_that_it_executes as fn() as usize as u64;
        let is_here = |&(start, length): &Mapping| (start..start + length).contains(&here);
        assert!(of_processes([rustix::process::getpid()]).iter().any(is_here));
        // No process has this id, which is above the kernel's largest.
        assert!(of_processes(Pid::from_raw(i32::MAX)).is_empty());
    }
}
