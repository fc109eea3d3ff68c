// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose turn it is to download, where a mirror or a line gives all downloads together no more than
//! one of them alone.

use std::sync::{Condvar, Mutex, PoisonError};

/// Lets downloads wait for those that come first.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// How many have to be first now.
    first: Mutex<u32>,
    over: Condvar,
}

/// Others wait until it is dropped.
#[derive(Debug)]
pub(crate) struct First<'a>(&'a Turn);

impl Turn {
    pub(super) fn first(&self) -> First<'_> {
        self.change(|first| first.saturating_add(1));
        First(self)
    }

    /// Returns when nothing comes first, after a call of `report` if something does now.
    pub(super) fn wait(&self, report: impl FnOnce()) {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if *first > 0 {
            report();
        }
        drop(self.over.wait_while(first, |first| *first > 0));
    }

    fn change(&self, change: impl FnOnce(u32) -> u32) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        *first = change(*first);
        self.over.notify_all();
    }
}

impl Drop for First<'_> {
    fn drop(&mut self) {
        self.0.change(|first| first.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use super::*;

    #[test]
    fn others_wait_until_nobody_is_first() {
        let turn = Turn::default();
        turn.wait(|| panic!("nothing is waited for"));
        let (one, two) = (turn.first(), turn.first());
        let (sender, ended) = mpsc::channel();
        let (reporter, reported) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                turn.wait(|| reporter.send(()).unwrap());
                sender.send(()).unwrap();
            });
            reported.recv_timeout(Duration::from_secs(60)).unwrap();
            drop(one);
            assert!(ended.recv_timeout(Duration::from_millis(100)).is_err());
            drop(two);
            ended.recv_timeout(Duration::from_secs(60)).unwrap();
        });
    }
}
