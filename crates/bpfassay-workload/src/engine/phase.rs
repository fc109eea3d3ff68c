// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transfers of one phase: their offsets, order and end.

use std::time::Duration;

use super::{
    EngineError,
    backend::{Backend, Opened, TransferDirection},
    data_pattern::Pattern,
    io::{AlignedBuffer, Io},
    ior_random::{Rand, Rand64, shuffled},
    ranks::Team,
    timed::{Timed, is_timed},
};
use bpfassay_ior::{AccessOrder, Options};

/// The way in which a phase accesses the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PhaseAccess {
    Write,
    WriteCheck,
    Read,
    ReadCheck,
}

impl PhaseAccess {
    pub(crate) const fn is_check(self) -> bool {
        matches!(self, Self::WriteCheck | Self::ReadCheck)
    }

    /// Returns the name in events on the control channel.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::WriteCheck => "writecheck",
            Self::Read => "read",
            Self::ReadCheck => "readcheck",
        }
    }
}

/// Results of a phase's transfers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counts {
    /// Transfers of this rank, or of the fastest rank if there is wear-out.
    pub(crate) pairs: u64,
    /// Bytes of this rank.
    pub(crate) moved: u64,
    /// Work of all ranks at the deadline, if there is wear-out.
    pub(crate) stonewall: Option<Stonewall>,
    /// Transfers of all ranks with wrong data.
    pub(crate) errors: u64,
}

/// The state of all ranks when each has reached the deadline.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Stonewall {
    pub(crate) seconds: f64,
    pub(crate) min_pairs: u64,
    pub(crate) max_pairs: u64,
    pub(crate) min_bytes: u64,
    pub(crate) total_bytes: u64,
}

/// Everything that one phase needs.
pub(crate) struct EnginePhase<'a, 'o, I> {
    pub(crate) backend: &'a mut Backend<'o, I>,
    pub(crate) team: &'a Team,
    pub(crate) buffer: &'a mut AlignedBuffer,
    pub(crate) timed: &'a mut Timed<'o>,
    pub(crate) pattern: Pattern,
    pub(crate) access: PhaseAccess,
    /// The rank that owns the data: this rank unless tasks are reordered.
    pub(crate) task: u32,
    /// The rank stops after this many transfers; 0 means no such bound.
    pub(crate) wear_out_iterations: u64,
    /// Size of the file to be read, in bytes, for `-z -z`.
    pub(crate) file_size: u64,
    /// Seed of `-z`.
    pub(crate) seed: u32,
}

/// The offsets of a task, segment by segment.
struct Offsets<'o> {
    options: &'o Options,
    tasks: u64,
    task: u64,
    order: Order,
    /// Transfers per segment.
    count: u64,
    /// Start of the current block, for [`Order::Random`].
    base: u64,
}

enum Order {
    Sequential,
    Shuffled(Vec<u64>),
    Random { generator: Rand64, blocks: u64, blocks_when_worn: u64 },
}

impl Offsets<'_> {
    /// Chooses the position of the segment. A worn-out rank that continues at `index` starts at the
    /// block's beginning.
    fn begin_segment(&mut self, worn: bool, index: u64) {
        if let Order::Random { generator, blocks, blocks_when_worn } = &mut self.order {
            let blocks = if worn { *blocks_when_worn } else { *blocks };
            let start = generator.next() % blocks * self.options.block_size;
            self.base = start.wrapping_sub(index * self.options.transfer_size);
        }
    }

    fn at(&self, segment: u64, index: u64) -> u64 {
        let Options { block_size, transfer_size, file_per_process, .. } = *self.options;
        let stride = if file_per_process { block_size } else { self.tasks * block_size };
        match &self.order {
            Order::Random { .. } => self.base.wrapping_add(index * transfer_size),
            Order::Shuffled(offsets) => offsets[index as usize] + segment * stride,
            Order::Sequential => {
                let own = if file_per_process { 0 } else { self.task * block_size };
                segment * stride + own + index * transfer_size
            }
        }
    }
}

impl<'o, I: Io> EnginePhase<'_, 'o, I> {
    fn offsets(&self) -> Result<Offsets<'o>, EngineError> {
        let options = self.backend.options;
        let tasks = u64::from(self.team.tasks());
        let per_block = options.block_size / options.transfer_size;
        let (order, count) = match options.order {
            AccessOrder::Sequential => (Order::Sequential, per_block),
            AccessOrder::Shuffled => {
                let offsets = shuffled(
                    &mut Rand::new(self.seed),
                    self.seed,
                    options.block_size,
                    options.transfer_size,
                    (!options.file_per_process).then_some(tasks),
                    self.task.into(),
                );
                let count = offsets.len() as u64;
                (Order::Shuffled(offsets), count)
            }
            AccessOrder::Random => {
                let worn_size = if options.file_per_process { self.file_size / tasks } else { self.file_size };
                let (blocks, worn) = (self.file_size / options.block_size, worn_size / options.block_size);
                if blocks == 0 || (worn == 0 && options.wear_out) {
                    let what = format!(
                        "a file of {} bytes holds no block of {} bytes to read at random (-z -z): make the file larger or the block smaller",
                        self.file_size, options.block_size
                    );
                    return Err(EngineError::Test { rank: self.backend.rank, what });
                }
                let seed = i64::from(self.seed as i32) as u64;
                let generator = Rand64::new(seed.wrapping_mul(u64::from(self.task) + 1));
                (Order::Random { generator, blocks, blocks_when_worn: worn }, per_block)
            }
        };
        Ok(Offsets { options, tasks, task: self.task.into(), order, count, base: 0 })
    }

    /// Creates the phase's transfers.
    pub(crate) fn run(&mut self, opened: &mut Opened) -> Result<Counts, EngineError> {
        let options = self.backend.options;
        let mut offsets = self.offsets()?;
        let (mut pairs, mut errors) = (0u64, 0u64);
        let deadline = (options.deadline != 0).then(|| Duration::from_secs(options.deadline.into()));
        let start = self.backend.io.now();
        self.timed.begin(start);
        let elapsed = |phase: &Self| phase.backend.io.now().saturating_sub(start);
        let (mut segment, mut index, mut stopped) = (0, 0, false);
        loop {
            segment = if stopped { segment } else { 0 };
            while segment < options.segments && !stopped {
                index = 0;
                offsets.begin_segment(false, index);
                while index < offsets.count && !stopped {
                    errors += self.single(opened, offsets.at(segment, index))?;
                    pairs += 1;
                    stopped = deadline.is_some_and(|deadline| elapsed(self) > deadline)
                        || (self.wear_out_iterations != 0 && pairs == self.wear_out_iterations);
                    if options.collective && deadline.is_some() {
                        stopped = self.team.value_of_first(stopped.into())? != 0;
                    }
                    index += 1;
                }
                segment += 1;
            }
            if options.min_time == 0 || elapsed(self) >= Duration::from_secs(options.min_time.into()) {
                break;
            }
        }
        let mut counts = Counts { pairs, moved: pairs * options.transfer_size, stonewall: None, errors: 0 };
        if options.wear_out {
            let stonewall = self.stonewall(pairs, elapsed(self))?;
            // Waiting for other ranks is not part of a call.
            self.timed.begin(self.backend.io.now());
            // Continue where the deadline struck. An incomplete segment comes first.
            if pairs != stonewall.max_pairs && index != offsets.count {
                segment = segment.saturating_sub(1);
            } else {
                index = 0;
            }
            while pairs < stonewall.max_pairs {
                if offsets.count == 0 {
                    let what = "this rank has no transfers in the shuffled order and cannot wear out: use another seed or fewer ranks".to_owned();
                    return Err(EngineError::Test { rank: self.backend.rank, what });
                }
                if segment >= options.segments {
                    segment = 0;
                }
                offsets.begin_segment(true, index);
                while index < offsets.count && pairs < stonewall.max_pairs {
                    errors += self.single(opened, offsets.at(segment, index))?;
                    pairs += 1;
                    index += 1;
                }
                index = 0;
                segment += 1;
            }
            counts = Counts {
                pairs: stonewall.max_pairs,
                moved: pairs * options.transfer_size,
                stonewall: Some(stonewall),
                errors: 0,
            };
        }
        if options.check_write || options.check_read {
            counts.errors = self.team.exchange([errors])?.iter().flatten().sum();
        }
        if self.access == PhaseAccess::Write && options.fsync {
            self.backend.fsync(opened)?;
        }
        Ok(counts)
    }

    fn stonewall(&self, pairs: u64, elapsed: Duration) -> Result<Stonewall, EngineError> {
        let all = self.team.exchange([pairs])?;
        let of = |fold: fn(u64, u64) -> u64| all.iter().flatten().copied().reduce(fold).unwrap_or_default();
        let transfer = self.backend.options.transfer_size;
        Ok(Stonewall {
            seconds: elapsed.as_secs_f64(),
            min_pairs: of(u64::min),
            max_pairs: of(u64::max),
            min_bytes: of(u64::min) * transfer,
            total_bytes: of(u64::wrapping_add) * transfer,
        })
    }

    /// Makes one timed transfer. Returns 1 if the data are wrong.
    fn single(&mut self, opened: &mut Opened, offset: u64) -> Result<u64, EngineError> {
        let errors = self.transfer(opened, offset)?;
        if is_timed(self.backend.options) {
            self.timed.ended(self.backend.io.now());
        }
        Ok(errors)
    }

    fn transfer(&mut self, opened: &mut Opened, offset: u64) -> Result<u64, EngineError> {
        let buffer = self.buffer.bytes();
        if self.access == PhaseAccess::Write {
            self.pattern.mark(buffer, self.task, offset);
            self.backend.transfer(opened, TransferDirection::Write, buffer, offset)?;
            if self.backend.options.fsync_per_write {
                self.backend.fsync(opened)?;
            }
            return Ok(0);
        }
        if self.access.is_check() {
            // The buffer's old contents must not pass for data that were read.
            buffer[0] = !buffer[0];
        }
        self.backend.transfer(opened, TransferDirection::Read, buffer, offset)?;
        let is_bad = self.access.is_check() && !self.pattern.holds(buffer, self.task, offset);
        Ok(is_bad.into())
    }
}

#[cfg(test)]
mod tests;
