// SPDX-License-Identifier: MIT OR Apache-2.0
use std::{cell::Cell, ffi::CStr, io, rc::Rc, sync::Mutex, thread};

use bpfassay_ior::Packet;

use super::*;
use crate::engine::{
    control_channel::RankResults,
    io::{Advice, Lock, MappedFile, Space, TestFile},
};

/// An empty file, and a clock that every transfer advances.
struct Slow {
    clock: Rc<Cell<Duration>>,
    per_transfer: Duration,
    at: i64,
    offsets: Vec<i64>,
}

impl Slow {
    fn new(millis: u64) -> Self {
        let clock = Rc::new(Cell::new(Duration::ZERO));
        Self { clock, per_transfer: Duration::from_millis(millis), at: 0, offsets: Vec::new() }
    }

    fn transferred(&mut self, bytes: usize) -> io::Result<usize> {
        self.clock.set(self.clock.get() + self.per_transfer);
        self.offsets.push(self.at);
        Ok(bytes)
    }
}

fn unused<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Io for Slow {
    fn now(&self) -> Duration {
        self.clock.get()
    }
    fn open(&mut self, _: &CStr, _: libc::c_int, _: libc::mode_t) -> io::Result<TestFile> {
        Ok(TestFile(-1))
    }
    fn seek(&mut self, _: TestFile, offset: i64) -> io::Result<()> {
        self.at = offset;
        Ok(())
    }
    fn read(&mut self, _: TestFile, buffer: &mut [u8]) -> io::Result<usize> {
        self.transferred(buffer.len())
    }
    fn write(&mut self, _: TestFile, buffer: &[u8]) -> io::Result<usize> {
        self.transferred(buffer.len())
    }
    fn fsync(&mut self, _: TestFile) -> io::Result<()> {
        unused()
    }
    fn truncate(&mut self, _: TestFile, _: i64) -> io::Result<()> {
        unused()
    }
    fn lock(&mut self, _: TestFile, _: Lock, _: i64, _: i64) -> io::Result<()> {
        unused()
    }
    fn close(&mut self, _: TestFile) -> io::Result<()> {
        Ok(())
    }
    fn map(&mut self, _: TestFile, _: usize, _: bool) -> io::Result<MappedFile> {
        unused()
    }
    fn sync_map(&mut self, _: &MappedFile, _: usize, _: usize) -> io::Result<()> {
        unused()
    }
    fn advise(&mut self, _: &MappedFile, _: usize, _: usize, _: Advice) -> io::Result<()> {
        unused()
    }
    fn unmap(&mut self, _: MappedFile) -> io::Result<()> {
        unused()
    }
    fn unlink(&mut self, _: &CStr) -> io::Result<()> {
        unused()
    }
    fn access(&mut self, _: &CStr, _: libc::c_int) -> io::Result<()> {
        unused()
    }
    fn size(&mut self, _: &CStr) -> io::Result<u64> {
        unused()
    }
    fn mkdir(&mut self, _: &CStr, _: libc::mode_t) -> io::Result<()> {
        unused()
    }
    fn space(&mut self, _: &CStr) -> io::Result<Space> {
        unused()
    }
}

/// Writes with one rank per entry of `millis`, the duration of each of the rank's transfers.
fn write(options: &Options, millis: &[u64]) -> Vec<(Counts, Vec<i64>)> {
    let results = Mutex::new(vec![None; millis.len()]);
    thread::scope(|scope| {
        let (all, slowest) = (millis.len(), millis.iter().copied().max().unwrap());
        for (team, &millis) in Team::world(millis.len() as u32, 8).unwrap().into_iter().zip(millis) {
            let results = &results;
            scope.spawn(move || {
                let (rank, io) = (team.rank(), Slow::new(millis));
                let mut backend = Backend { io, options, rank, aggregate: 0, moved: RankResults::default() };
                let mut buffer = AlignedBuffer::new(options.transfer_size as usize).unwrap();
                let mut opened = backend.open(c"file").unwrap();
                let mut timed = Timed::new(&team);
                let counts = EnginePhase {
                    backend: &mut backend,
                    team: &team,
                    buffer: &mut buffer,
                    timed: &mut timed,
                    pattern: Pattern { packet: Packet::Timestamp, stamp: 1, signature: 1 },
                    access: PhaseAccess::Write,
                    task: rank,
                    wear_out_iterations: options.wear_out_iterations,
                    file_size: 0,
                    seed: 0,
                }
                .run(&mut opened)
                .unwrap();
                // Each call takes as long as a transfer, and waiting for other ranks is not part of
                // a call.
                let times = timed.of_all(Duration::from_secs(60)).unwrap().unwrap();
                assert_eq!((times.ranks as usize, times.max_ns), (all, slowest * 1_000_000));
                assert_eq!(times.sum_ns + times.tail_ns, 60_000_000_000 * all as u64);
                assert_eq!(backend.moved.write.calls, backend.io.offsets.len() as u64);
                results.lock().unwrap()[rank as usize] = Some((counts, backend.io.offsets));
            });
        }
    });
    results.into_inner().unwrap().into_iter().map(Option::unwrap).collect()
}

fn options() -> Options {
    Options { block_size: 32, transfer_size: 8, segments: 5, write: true, ..Options::default() }
}

/// Returns the first `count` offsets of `rank` of `ranks`, with four transfers in each segment.
fn in_order(rank: i64, ranks: i64, count: i64) -> Vec<i64> {
    (0..count).map(|index| (index / 4 * ranks + rank) * 32 + index % 4 * 8).collect()
}

#[test]
fn without_a_deadline_everything_is_moved() {
    let results = write(&options(), &[100, 300]);
    for (rank, (counts, offsets)) in results.into_iter().enumerate() {
        assert_eq!(counts, Counts { pairs: 20, moved: 160, stonewall: None, errors: 0 });
        assert_eq!(offsets, in_order(rank as i64, 2, 20));
    }
}

#[test]
fn a_deadline_stops_each_rank_by_itself() {
    let results = write(&Options { deadline: 1, ..options() }, &[100, 300]);
    let pairs: Vec<u64> = results.iter().map(|(counts, _)| counts.pairs).collect();
    // The first transfer that ends after the deadline is the last one.
    assert_eq!(pairs, [11, 4]);
    assert_eq!(results[1].1, in_order(1, 2, 4));
}

#[test]
fn wear_out_brings_every_rank_to_the_fastest_ones_number() {
    let results = write(&Options { deadline: 1, wear_out: true, ..options() }, &[100, 300, 170]);
    for (rank, (counts, offsets)) in results.into_iter().enumerate() {
        assert_eq!((counts.pairs, counts.moved), (11, 88));
        assert_eq!(offsets, in_order(rank as i64, 3, 11), "rank {rank}");
        let stonewall = counts.stonewall.unwrap();
        // The ranks make 11, 4 and 6 transfers of 8 bytes before the deadline.
        assert_eq!((stonewall.min_pairs, stonewall.max_pairs), (4, 11));
        assert_eq!((stonewall.min_bytes, stonewall.total_bytes), (32, 168));
    }
}

#[test]
fn collective_ranks_stop_together() {
    let results = write(&Options { deadline: 1, collective: true, ..options() }, &[300, 100]);
    assert_eq!(results.iter().map(|(counts, _)| counts.pairs).collect::<Vec<_>>(), [4, 4]);
}

#[test]
fn a_least_time_makes_the_file_be_written_again() {
    let results = write(&Options { min_time: 3, ..options() }, &[100]);
    let (counts, offsets) = &results[0];
    assert_eq!(counts.pairs, 40);
    assert_eq!(offsets[..20], offsets[20..]);
}

#[test]
fn a_number_of_transfers_ends_the_phase() {
    let results = write(&Options { wear_out_iterations: 7, ..options() }, &[100, 100]);
    assert_eq!(results.iter().map(|(counts, _)| counts.pairs).collect::<Vec<_>>(), [7, 7]);
}
