// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of downloads. They wait for urgent downloads, because parallel downloads share the
//! bandwidth of the mirror or the line.

use std::sync::{Condvar, Mutex, PoisonError};

/// Makes downloads wait for those that come first.
#[derive(Debug, Default)]
pub(super) struct DownloadTurn {
    /// The number of [`First`] values.
    first: Mutex<u32>,
    over: Condvar,
}

/// Makes other downloads wait until it is dropped.
#[derive(Debug)]
pub struct First<'a>(&'a DownloadTurn);

impl DownloadTurn {
    pub(super) fn first(&self) -> First<'_> {
        self.change(|first| first.saturating_add(1));
        First(self)
    }

    /// Waits until no download comes first. Calls `report` before, if it has to wait.
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
        let turn = DownloadTurn::default();
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
