//! One CPU of the host for each guest that counts instructions.
//!
//! Such a guest must not notice how fast the host's threads get on, and QEMU has one place where it does: a virtual CPU
//! that goes to sleep says so (`halted`, set by the instruction itself) before the instructions of its slice are added to the
//! clock (`icount_process_data`), and only afterwards takes the lock under which the main loop works. If the main loop comes round in
//! between and finds the CPU asleep, it moves the clock on to the next timer from where it was before the slice
//! (`icount_start_warp_timer`), and the slice is added on top: the timer is late by as many instructions (QEMU 7.2:
//! accel/tcg/tcg-accel-ops-rr.c, softmmu/icount.c). Where both threads share one CPU, the main loop runs while the other
//! waits, and could only come between if the scheduler took the CPU away within these few dozen instructions.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::thread::{CpuSet, sched_getaffinity};

/// How many guests have each CPU.
static TAKEN: Mutex<BTreeMap<usize, u32>> = Mutex::new(BTreeMap::new());

fn taken() -> MutexGuard<'static, BTreeMap<usize, u32>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A CPU that a guest has until this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    cpu: usize,
}

impl Seat {
    /// The CPU that fewest guests have among those that this program may use; `None` where the system does not tell them.
    pub(crate) fn take() -> Option<Self> {
        let allowed = sched_getaffinity(None).ok()?;
        Self::among((0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)))
    }

    fn among(cpus: impl Iterator<Item = usize>) -> Option<Self> {
        let mut taken = taken();
        let cpu = cpus.min_by_key(|cpu| taken.get(cpu).copied().unwrap_or(0))?;
        *taken.entry(cpu).or_default() += 1;
        Some(Self { cpu })
    }

    /// That CPU and no other.
    pub(crate) fn cpus(&self) -> CpuSet {
        let mut set = CpuSet::new();
        set.set(self.cpu);
        set
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(guests) = taken().get_mut(&self.cpu) {
            *guests = guests.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_share_a_cpu_only_where_there_are_more_of_them() {
        // Numbers that no test of real guests has.
        let take = || Seat::among([901, 902].into_iter()).unwrap();
        let (first, second) = (take(), take());
        assert_eq!((first.cpu, second.cpu), (901, 902));
        let third = take();
        assert_eq!(third.cpu, 901);
        drop((first, third));
        assert_eq!(take().cpu, 901);
        assert!(Seat::among(std::iter::empty()).is_none());
        assert!(second.cpus().is_set(902) && second.cpus().count() == 1);
    }

    #[test]
    fn the_cpu_is_one_that_this_program_may_use() {
        let seat = Seat::take().unwrap();
        assert!(sched_getaffinity(None).unwrap().is_set(seat.cpu));
    }
}
