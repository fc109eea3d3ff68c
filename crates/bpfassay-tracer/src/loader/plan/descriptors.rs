// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limit of file descriptors. A tracepoint needs two for each copy of each system call's
//! programs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Twice the need of the largest configuration: `tracepoint` on a preemptible kernel, with both
/// ends of [`SYSCALLS`](crate::loader::plan::probes::SYSCALLS) in
/// [`COPIES`](bpfassay_tracer_common::COPIES).
const WANTED: u64 = 4096;

/// Raises the limit as far as possible. If that is not enough, attaching fails and reports EMFILE.
pub(crate) fn make_room() {
    let now = getrlimit(Resource::Nofile);
    for limit in raised(now) {
        if setrlimit(Resource::Nofile, limit).is_ok() {
            return;
        }
    }
}

/// Returns the limits to try, in order: first with a raised hard limit (`CAP_SYS_RESOURCE`), then
/// with the soft limit raised up to the hard one. `None` means no limit.
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
