// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limit of file descriptors: a tracepoint takes two for each copy of each system call's
//! programs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Twice the need of the largest configuration: `tracepoint` on a preemptible kernel, with both
/// ends of
/// [`SYSCALLS`](crate::loader::plan::probes::SYSCALLS) in [`COPIES`](bpfassay_tracer_common::COPIES).
const WANTED: u64 = 4096;

/// Raises the limit as far as possible. Where that is not enough, attaching fails and reports why
/// (EMFILE).
pub(crate) fn make_room() {
    let now = getrlimit(Resource::Nofile);
    for limit in raised(now) {
        if setrlimit(Resource::Nofile, limit).is_ok() {
            return;
        }
    }
}

/// The limits to try, in order: the hard limit as well (`CAP_SYS_RESOURCE`), and the soft one up to
/// the hard one. No limit is `None`.
fn raised(now: Rlimit) -> Vec<Rlimit> {
    let Some(current) = now.current.filter(|current| *current < WANTED) else { return Vec::new() };
    let maximum = now.maximum.map(|maximum| maximum.max(WANTED));
    let within = now.maximum.map_or(WANTED, |maximum| maximum.min(WANTED)).max(current);
    vec![Rlimit { current: Some(WANTED), maximum }, Rlimit { current: Some(within), maximum: now.maximum }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_raised_and_never_lowered() {
        let limit = |current, maximum| Rlimit { current, maximum };
        assert_eq!(raised(limit(None, None)), []);
        assert_eq!(raised(limit(Some(8192), Some(8192))), []);
        assert_eq!(
            raised(limit(Some(1024), Some(524_288))),
            [limit(Some(WANTED), Some(524_288)), limit(Some(WANTED), Some(524_288))]
        );
        assert_eq!(
            raised(limit(Some(1024), Some(2048))),
            [limit(Some(WANTED), Some(WANTED)), limit(Some(2048), Some(2048))]
        );
        assert_eq!(raised(limit(Some(1024), None))[1], limit(Some(WANTED), None));
    }

    #[test]
    fn the_largest_configuration_has_room() {
        let attached =
            crate::loader::plan::probes::SYSCALLS.len() as u64 * 2 * u64::from(bpfassay_tracer_common::COPIES);
        assert!(2 * attached + 256 < WANTED);
    }
}
