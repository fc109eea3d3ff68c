// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracks whether the virtual CPU executes guest code.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How long the main loop waits for the virtual CPU to sleep.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long it lets turns pass after that, before it looks at the end of the next turn.
const RETRY: Duration = Duration::from_millis(1);

/// The state of the virtual CPU. One other thread can wait for the end of execution.
pub(crate) struct CpuTurn {
    state: Mutex<TurnState>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TurnStage {
    Executes,
    /// The virtual CPU does not execute, but can begin again at any time.
    Stopped,
    Sleeps,
}

struct TurnState {
    stage: TurnStage,
    /// The stage that the other thread waits for.
    awaited: Option<TurnStage>,
}

impl CpuTurn {
    pub(crate) const fn new() -> Self {
        Self { state: Mutex::new(TurnState { stage: TurnStage::Stopped, awaited: None }), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, stage: TurnStage) {
        let mut state = self.state();
        state.stage = stage;
        if state.awaited == Some(stage) {
            self.changed.notify_one();
        }
    }

    /// The virtual CPU begins to execute code.
    pub(crate) fn begin(&self) {
        self.enter(TurnStage::Executes);
    }

    /// The virtual CPU has stopped, and its clock is up to date.
    pub(crate) fn end(&self) {
        self.enter(TurnStage::Stopped);
    }

    /// The virtual CPU, which has stopped, goes to sleep.
    pub(crate) fn sleep(&self) {
        self.enter(TurnStage::Sleeps);
    }

    /// Lets the main loop, which has taken QEMU's lock, keep the lock after it has `waited`. Waits
    /// for the end of a turn if need be. `is_work_due` tells whether the main loop would do a
    /// virtual CPU's work.
    ///
    /// # Errors
    /// The main loop has to release the lock, and to wait this long, or until the virtual CPU
    /// sleeps.
    pub(crate) fn admit(&self, waited: Duration, is_work_due: impl FnOnce() -> bool) -> Result<(), Duration> {
        if self.state().stage == TurnStage::Sleeps {
            return Ok(());
        }
        if waited < PATIENCE {
            return Err(PATIENCE);
        }
        self.wait_for_end();
        if is_work_due() { Err(RETRY) } else { Ok(()) }
    }

    /// Returns when the virtual CPU sleeps, or after `limit`.
    pub(crate) fn wait_for_sleep(&self, limit: Duration) {
        let mut state = self.state();
        state.awaited = Some(TurnStage::Sleeps);
        let waited = self.changed.wait_timeout_while(state, limit, |state| state.stage != TurnStage::Sleeps);
        waited.unwrap_or_else(PoisonError::into_inner).0.awaited = None;
    }

    /// Returns when the virtual CPU has stopped.
    fn wait_for_end(&self) {
        let mut state = self.state();
        state.awaited = Some(TurnStage::Stopped);
        let waited = self.changed.wait_while(state, |state| state.stage == TurnStage::Executes);
        waited.unwrap_or_else(PoisonError::into_inner).awaited = None;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicU32, Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn nothing_happens_in_the_middle_of_a_turn() {
        let (turn, lock) = (CpuTurn::new(), Mutex::new(()));
        let (is_halted, in_turn, done) = (AtomicBool::new(false), AtomicU32::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let held = lock.lock().unwrap();
                    turn.wait_for_end();
                    in_turn.fetch_add(is_halted.load(Ordering::SeqCst).into(), Ordering::SeqCst);
                    thread::yield_now();
                    in_turn.fetch_add(is_halted.load(Ordering::SeqCst).into(), Ordering::SeqCst);
                    drop(held);
                }
            });
            let mut held = lock.lock().unwrap();
            for _ in 0..2_000 {
                turn.begin();
                drop(held);
                is_halted.store(true, Ordering::SeqCst);
                thread::yield_now();
                is_halted.store(false, Ordering::SeqCst);
                turn.end();
                held = lock.lock().unwrap();
            }
            done.store(true, Ordering::SeqCst);
            drop(held);
        });
        assert_eq!(in_turn.into_inner(), 0);
    }

    #[test]
    fn a_stop_does_not_wake_who_waits_for_sleep() {
        let turn = CpuTurn::new();
        turn.begin();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| turn.wait_for_sleep(Duration::from_secs(600)));
            while turn.state().awaited.is_none() {
                thread::yield_now();
            }
            for _ in 0..100 {
                turn.end();
                turn.begin();
                thread::yield_now();
            }
            assert!(!waiter.is_finished());
            turn.end();
            turn.sleep();
            waiter.join().unwrap();
        });
        assert_eq!(turn.admit(Duration::ZERO, || true), Ok(()));
    }

    #[test]
    fn the_main_loop_works_while_the_cpu_sleeps_or_when_nothing_is_due() {
        let turn = CpuTurn::new();
        turn.begin();
        assert_eq!(turn.admit(Duration::ZERO, || false), Err(PATIENCE), "a turn");
        turn.end();
        assert_eq!(turn.admit(Duration::ZERO, || false), Err(PATIENCE), "between two turns");
        assert_eq!(turn.admit(PATIENCE, || true), Err(RETRY), "it would cut the next turn");
        assert_eq!(turn.admit(PATIENCE, || false), Ok(()), "it changes nothing");
        turn.sleep();
        assert_eq!(turn.admit(Duration::ZERO, || true), Ok(()), "asleep");
    }
}
