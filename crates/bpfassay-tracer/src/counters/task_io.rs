// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readings of `task-io`: the kernel's I/O accounts of all tasks, including those that have exited.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd as _, OwnedFd},
};

use bpfassay_bpf::{BpfMap, iterator};
use bpfassay_protocol::{
    Operation,
    operation::Totals,
    tracer_messages::{CounterRow, Device},
};

use crate::counters::error::ReadError;

/// Name of the map with the sums of tasks that have exited.
pub(crate) const EXITED: &str = "exited";

/// Name of the program that writes an account for every existing task.
pub(crate) const LIVE_TASKS: &str = "live_tasks";

/// Size of `struct task_account`: cgroup, then calls and bytes of both directions.
const ACCOUNT: usize = 40;

/// How often a reading is restarted because a task exited in the meantime.
const ATTEMPTS: usize = 100;

/// Sums of reads and writes, per cgroup.
type TaskIoSums = BTreeMap<u64, [Totals; 2]>;

/// The accounts of all tasks since attaching.
#[derive(Debug)]
pub(crate) struct TaskIo {
    /// The link of the iterator, while programs are attached.
    iterator: Option<OwnedFd>,
    exited: BpfMap,
    /// The only cgroup that is reported; 0 means any.
    cgroup: u64,
    /// The accounts of tasks when counting began.
    base: TaskIoSums,
    /// The last reading. A task that changes its state during a reading is missing from that
    /// reading. A count that was reported once must not decrease.
    reported: TaskIoSums,
}

impl TaskIo {
    /// Makes a reader that counts nothing yet.
    pub(crate) fn new(exited: BpfMap, cgroup: u64) -> Self {
        Self { iterator: None, exited, cgroup, base: TaskIoSums::new(), reported: TaskIoSums::new() }
    }

    /// Begins to count, or begins again, with `exited` empty.
    ///
    /// # Errors
    /// [`ReadError`] if the iterator or the map cannot be read.
    pub(crate) fn begin(&mut self, iterator: OwnedFd) -> Result<(), ReadError> {
        self.iterator = Some(iterator);
        self.reported.clear();
        self.base = self.read()?;
        Ok(())
    }

    /// Drops the iterator. Its program is attached for as long as its link exists.
    pub(crate) fn end(&mut self) {
        self.iterator = None;
    }

    /// Returns the present rows. The mount is unknown: id 0 and device 0:0.
    ///
    /// # Errors
    /// [`ReadError`] if the iterator or the map cannot be read, or tasks exited during each
    /// attempt.
    pub(crate) fn rows(&mut self) -> Result<Vec<CounterRow>, ReadError> {
        let now = self.read()?;
        settle(&mut self.reported, &now, &self.base);
        let row = |cgroup, operation, totals| CounterRow {
            cgroup,
            device: Device { major: 0, minor: 0 },
            mount: 0,
            path: None,
            operation,
            variant: None,
            task: None,
            totals,
            latency: Vec::new(),
        };
        Ok(self
            .reported
            .iter()
            .filter(|(cgroup, _)| self.cgroup == 0 || **cgroup == self.cgroup)
            .flat_map(|(&cgroup, &[read, write])| {
                [row(cgroup, Operation::Read, read), row(cgroup, Operation::Write, write)]
            })
            .filter(|row| row.totals != Totals::default())
            .collect())
    }

    /// Sums the accounts of existing tasks and of those that have exited. A task that exits between
    /// the two readings would be in both or in neither. Therefore the sums of exited tasks must not
    /// change in the meantime.
    fn read(&self) -> Result<TaskIoSums, ReadError> {
        let mut before = self.gone()?;
        for _ in 0..ATTEMPTS {
            let mut sums = before.clone();
            self.add_live(&mut sums)?;
            let after = self.gone()?;
            if after == before {
                return Ok(sums);
            }
            before = after;
        }
        Err(ReadError::Map {
            map: EXITED.to_owned(),
            source: io::Error::other(format!("tasks ended during each of {ATTEMPTS} readings: read less often")),
        })
    }

    fn gone(&self) -> Result<TaskIoSums, ReadError> {
        let failed = |source| ReadError::Map { map: EXITED.to_owned(), source };
        let mut sums = TaskIoSums::new();
        for entry in self.exited.entries().map_err(failed)? {
            let key = entry.key.as_slice().try_into().map_err(|_| failed(wrong_size(entry.key.len())))?;
            let cgroup = u64::from_ne_bytes(key);
            for value in &entry.values {
                let (_, totals) = account(value).map_err(failed)?;
                add(&mut sums, cgroup, totals);
            }
        }
        Ok(sums)
    }

    fn add_live(&self, sums: &mut TaskIoSums) -> Result<(), ReadError> {
        let failed = |source| ReadError::Program { program: LIVE_TASKS.to_owned(), source };
        let link = self.iterator.as_ref().ok_or_else(|| failed(io::ErrorKind::NotConnected.into()))?;
        let mut reading = File::from(iterator(link.as_fd()).map_err(failed)?);
        let mut bytes = Vec::new();
        reading.read_to_end(&mut bytes).map_err(failed)?;
        let accounts = bytes.chunks_exact(ACCOUNT);
        if !accounts.remainder().is_empty() {
            return Err(failed(wrong_size(bytes.len())));
        }
        for bytes in accounts {
            let (cgroup, totals) = account(bytes).map_err(failed)?;
            add(sums, cgroup, totals);
        }
        Ok(())
    }
}

fn wrong_size(length: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{length} bytes are not a whole number of accounts"))
}

/// Decodes one `struct task_account`: the cgroup, reads and writes.
pub(crate) fn account(bytes: &[u8]) -> io::Result<(u64, [Totals; 2])> {
    let bytes: &[u8; ACCOUNT] = bytes.try_into().map_err(|_| wrong_size(bytes.len()))?;
    let [cgroup, read_calls, read_bytes, write_calls, write_bytes] = std::array::from_fn(|index| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[8 * index..8 * index + 8]);
        u64::from_ne_bytes(word)
    });
    let totals = |calls, bytes| Totals { calls, bytes, errors: 0 };
    Ok((cgroup, [totals(read_calls, read_bytes), totals(write_calls, write_bytes)]))
}

fn add(sums: &mut TaskIoSums, cgroup: u64, [read, write]: [Totals; 2]) {
    let sum = sums.entry(cgroup).or_default();
    sum[0] += read;
    sum[1] += write;
}

/// Raises `reported` to `now - base`, and never lowers it. A task that existed at the beginning
/// takes its account along when it moves to another cgroup. The old cgroup then has less than at
/// the beginning, which is not reported.
fn settle(reported: &mut TaskIoSums, now: &TaskIoSums, base: &TaskIoSums) {
    for (cgroup, totals) in now {
        let base = base.get(cgroup).copied().unwrap_or_default();
        let reported = reported.entry(*cgroup).or_default();
        for ((reported, now), base) in reported.iter_mut().zip(totals).zip(base) {
            reported.calls = reported.calls.max(now.calls.saturating_sub(base.calls));
            reported.bytes = reported.bytes.max(now.bytes.saturating_sub(base.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(words: [u64; 5]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn totals(calls: u64, bytes: u64) -> Totals {
        Totals { calls, bytes, errors: 0 }
    }

    #[test]
    fn an_account_is_five_values() {
        assert_eq!(account(&bytes([7, 1, 10, 2, 20])).unwrap(), (7, [totals(1, 10), totals(2, 20)]));
        assert!(account(&[0; 39]).is_err());
    }

    #[test]
    fn earlier_accounts_do_not_count_and_no_count_decreases() {
        let base = TaskIoSums::from([(7, [totals(5, 500), totals(0, 0)])]);
        let mut reported = TaskIoSums::new();
        settle(
            &mut reported,
            &TaskIoSums::from([(7, [totals(6, 600), totals(1, 1)]), (8, [totals(2, 2), totals(0, 0)])]),
            &base,
        );
        assert_eq!(reported[&7], [totals(1, 100), totals(1, 1)]);
        assert_eq!(reported[&8], [totals(2, 2), totals(0, 0)]);
        // A task of cgroup 7 is missing from this reading, and cgroup 8 has no tasks any more.
        settle(&mut reported, &TaskIoSums::from([(7, [totals(0, 0), totals(1, 1)])]), &base);
        assert_eq!(reported[&7], [totals(1, 100), totals(1, 1)]);
        assert_eq!(reported[&8], [totals(2, 2), totals(0, 0)]);
    }

    proptest! {
        #[test]
        fn reported_figures_only_grow(readings in prop::collection::vec((0u64..3, 0u64..100, 0u64..100), 0..20)) {
            let base = TaskIoSums::from([(1, [totals(9, 9), totals(9, 9)])]);
            let mut reported = TaskIoSums::new();
            let mut last = 0;
            for (cgroup, calls, bytes) in readings {
                settle(&mut reported, &TaskIoSums::from([(cgroup, [totals(calls, bytes), totals(0, 0)])]), &base);
                let sum = reported.values().map(|[read, _]| read.calls + read.bytes).sum::<u64>();
                prop_assert!(sum >= last);
                last = sum;
            }
        }
    }
}
