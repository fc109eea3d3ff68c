// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the virtual CPU executes code of the guest.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A turn of the virtual CPU, which one other thread waits for.
pub(crate) struct Turn {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Clone, Copy)]
struct State {
    is_executing: bool,
    is_awaited: bool,
}

impl Turn {
    pub(crate) const fn new() -> Self {
        Self { state: Mutex::new(State { is_executing: false, is_awaited: false }), ended: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The virtual CPU begins to execute code.
    pub(crate) fn begin(&self) {
        self.state().is_executing = true;
    }

    /// The virtual CPU has stopped, and its clock is up to date.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.is_executing = false;
        if state.is_awaited {
            self.ended.notify_one();
        }
    }

    pub(crate) fn is_executing(&self) -> bool {
        self.state().is_executing
    }

    /// Returns when the virtual CPU has stopped, or after `limit`.
    pub(crate) fn wait(&self, limit: Duration) {
        let mut state = self.state();
        state.is_awaited = true;
        let waited = self.ended.wait_timeout_while(state, limit, |state| state.is_executing);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.is_awaited = false;
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
        let (turn, lock) = (Turn::new(), Mutex::new(()));
        let (is_halted, in_turn, done) = (AtomicBool::new(false), AtomicU32::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let held = lock.lock().unwrap();
                    while turn.is_executing() {
                        turn.wait(Duration::from_secs(60));
                    }
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
}
