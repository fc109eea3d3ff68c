// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the rank of a process in the variables that MPI launchers set.

use std::{fs::File, io::Read as _};

/// Variables, the more specific ones first: PMI (MPICH and its relatives, Slurm), PMIx, Open MPI,
/// MVAPICH, Cray, Slurm.
const VARIABLES: [&str; 6] =
    ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "ALPS_APP_PE", "SLURM_PROCID"];

/// Longest part of an environment that is read, in bytes.
const MAX_ENVIRONMENT: u64 = 1 << 20;

/// Returns a process's rank in `MPI_COMM_WORLD`; `None` if its environment is unreadable or has
/// none.
#[must_use]
pub(crate) fn rank(process: u32) -> Option<u32> {
    let mut environment = Vec::new();
    let file = File::open(format!("/proc/{process}/environ")).ok()?;
    file.take(MAX_ENVIRONMENT).read_to_end(&mut environment).ok()?;
    rank_in(&environment)
}

pub(crate) fn rank_in(environment: &[u8]) -> Option<u32> {
    let value = |name: &str| {
        environment
            .split(|&byte| byte == 0)
            .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
            .and_then(|value| std::str::from_utf8(value).ok()?.parse().ok())
    };
    VARIABLES.iter().find_map(|name| value(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_rank_is_that_of_the_launcher() {
        assert_eq!(rank_in(b"HOME=/root\0PMI_RANK=3\0SLURM_PROCID=0\0"), Some(3));
        assert_eq!(rank_in(b"SLURM_PROCID=5\0OMPI_COMM_WORLD_RANK=7"), Some(7));
        assert_eq!(rank_in(b"XPMI_RANK=3\0PMI_RANKS=4\0PMI_RANK\0"), None);
        assert_eq!(rank_in(b"PMI_RANK=-1\0PMIX_RANK=12x\0"), None);
        assert_eq!(rank_in(b""), None);
    }

    #[test]
    fn a_process_without_one_has_none() {
        assert_eq!(rank(std::process::id()), rank_in(&std::fs::read("/proc/self/environ").unwrap()));
        assert_eq!(rank(u32::MAX), None);
    }

    proptest! {
        #[test]
        fn no_environment_makes_it_panic(bytes: Vec<u8>) {
            let _ = rank_in(&bytes);
        }
    }
}
