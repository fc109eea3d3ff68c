// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks: processes that share memory, with barriers and an exchange of numbers.

use std::{
    io,
    os::raw::c_int,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

pub use bpfassay_protocol::call_list::MAX_RANKS;
use rustix::thread::futex;

use super::EngineError;

/// The most numbers that a rank can contribute to an exchange.
const SLOTS: usize = 8;

#[derive(Default)]
#[repr(C)]
struct Barrier {
    arrived: AtomicU32,
    generation: AtomicU32,
}

#[repr(C)]
struct Header {
    aborted: AtomicU32,
    world: Barrier,
    test: Barrier,
}

/// The shared memory: a header, then [`SLOTS`] numbers for every rank, then every rank's call
/// times.
struct Region {
    address: *mut libc::c_void,
    ranks: u32,
    /// Number of call times per rank.
    times: u32,
}

// SAFETY: everything in the memory is atomic.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

const HEADER: usize = size_of::<Header>().next_multiple_of(64);
const RANK: usize = SLOTS * size_of::<AtomicU64>();

const fn length(ranks: u32, times: u32) -> usize {
    HEADER + (RANK + times as usize * size_of::<AtomicU64>()) * ranks as usize
}

impl Region {
    fn new(ranks: u32, times: u32) -> io::Result<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses an address that nothing else uses.
        let address = unsafe { libc::mmap(ptr::null_mut(), length(ranks, times), protection, flags, -1, 0) };
        match address {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            address => Ok(Self { address, ranks, times }),
        }
    }

    const fn header(&self) -> &Header {
        // SAFETY: the memory begins with a header, whose all-zero state is valid, and lives as long
        // as `self`.
        unsafe { &*self.address.cast::<Header>() }
    }

    fn slots(&self, rank: u32) -> &[AtomicU64; SLOTS] {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        // SAFETY: within the memory, aligned (header and slots are multiples of 8 bytes), and
        // all-zero is valid.
        unsafe { &*self.address.byte_add(HEADER + RANK * rank as usize).cast::<[AtomicU64; SLOTS]>() }
    }

    fn times(&self, rank: u32) -> &[AtomicU64] {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        let times = self.times as usize;
        let offset = HEADER + RANK * self.ranks as usize + times * size_of::<AtomicU64>() * rank as usize;
        // SAFETY: within the memory, behind the slots of all ranks, aligned as these are, and
        // all-zero is valid.
        unsafe { std::slice::from_raw_parts(self.address.byte_add(offset).cast::<AtomicU64>(), times) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped with this length; borrows of it end with `self`.
        unsafe { libc::munmap(self.address, length(self.ranks, self.times)) };
    }
}

/// One rank's view of all ranks of this node, or of the first ranks, which take part in a test.
#[derive(Clone)]
pub(crate) struct Team {
    region: Arc<Region>,
    rank: u32,
    size: u32,
    is_world: bool,
    node: NodeOf,
}

/// The node of the ranks of this process tree. Each node has the same number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeOf {
    /// Index of the node, from 0.
    pub index: u32,
    /// Number of nodes.
    pub count: u32,
}

impl NodeOf {
    /// A single node.
    pub const ALONE: Self = Self { index: 0, count: 1 };

    /// Parses `K/N` with K from 1; `None` if `text` does not name a node.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (number, count) = text.split_once('/')?;
        let (number, count) = (number.parse::<u32>().ok()?, count.parse::<u32>().ok()?);
        (1..=count).contains(&number).then_some(Self { index: number.checked_sub(1)?, count })
    }
}

impl Team {
    /// Makes the ranks of a run, each to be given to its process or thread. Each has space for
    /// `times` call times.
    pub(crate) fn world(size: u32, times: u32) -> io::Result<Vec<Self>> {
        let region = Arc::new(Region::new(size, times)?);
        Ok((0..size)
            .map(|rank| Self { region: Arc::clone(&region), rank, size, is_world: true, node: NodeOf::ALONE })
            .collect())
    }

    /// Returns the same ranks as the ranks of one of several nodes.
    pub(crate) const fn on(mut self, node: NodeOf) -> Self {
        self.node = node;
        self
    }

    /// Returns the team of the first `size` ranks. Other ranks must not use it.
    pub(crate) fn first(&self, size: u32) -> Self {
        Self { region: Arc::clone(&self.region), rank: self.rank, size, is_world: false, node: self.node }
    }

    /// Returns the number of this rank on its node.
    pub(crate) const fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks on this node.
    pub(crate) const fn size(&self) -> u32 {
        self.size
    }

    /// Returns the number of this rank among the ranks of all nodes.
    pub(crate) const fn task(&self) -> u32 {
        self.node.index * self.size + self.rank
    }

    /// Returns the number of ranks on all nodes.
    pub(crate) const fn tasks(&self) -> u32 {
        self.node.count * self.size
    }

    pub(crate) const fn nodes(&self) -> u32 {
        self.node.count
    }

    /// Returns the number of all ranks of the run on this node, whether or not they take part.
    pub(crate) fn world_size(&self) -> u32 {
        self.region.ranks
    }

    fn check(&self) -> Result<(), EngineError> {
        match self.region.header().aborted.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(EngineError::Aborted),
        }
    }

    /// Waits until every rank of the team has arrived.
    pub(crate) fn barrier(&self) -> Result<(), EngineError> {
        self.check()?;
        if self.size == 1 {
            return Ok(());
        }
        let header = self.region.header();
        let barrier = if self.is_world { &header.world } else { &header.test };
        let generation = barrier.generation.load(Ordering::Acquire);
        if barrier.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.size {
            barrier.arrived.store(0, Ordering::Release);
            barrier.generation.fetch_add(1, Ordering::AcqRel);
            wake(&barrier.generation);
        } else {
            while barrier.generation.load(Ordering::Acquire) == generation {
                // However the wait ends, the loop checks again.
                let _ = futex::wait(&barrier.generation, futex::Flags::empty(), generation, None);
            }
        }
        self.check()
    }

    /// Contributes `values`, and returns the values of all ranks, by rank.
    pub(crate) fn exchange<const N: usize>(&self, values: [u64; N]) -> Result<Vec<[u64; N]>, EngineError> {
        const { assert!(N <= SLOTS) };
        for (slot, value) in self.region.slots(self.rank).iter().zip(values) {
            slot.store(value, Ordering::Relaxed);
        }
        self.barrier()?;
        let all = (0..self.size)
            .map(|rank| {
                let slots = self.region.slots(rank);
                std::array::from_fn(|index| slots[index].load(Ordering::Relaxed))
            })
            .collect();
        // No rank may write again before all ranks have read.
        self.barrier()?;
        Ok(all)
    }

    /// Returns the call times of `rank`. Other ranks can read them after a barrier.
    pub(crate) fn times(&self, rank: u32) -> &[AtomicU64] {
        self.region.times(rank)
    }

    /// Returns the value that rank 0 contributes.
    pub(crate) fn value_of_first(&self, value: u64) -> Result<u64, EngineError> {
        Ok(self.exchange([value])?[0][0])
    }

    /// Makes every rank give up that waits now or later.
    pub(crate) fn abort(&self) {
        let header = self.region.header();
        header.aborted.store(1, Ordering::Release);
        for barrier in [&header.world, &header.test] {
            // The generation changes first, so that a rank that is about to sleep does not.
            barrier.generation.fetch_add(1, Ordering::AcqRel);
            wake(&barrier.generation);
        }
    }
}

fn wake(generation: &AtomicU32) {
    // This does not fail for a valid address.
    let _ = futex::wake(generation, futex::Flags::empty(), c_int::MAX as u32);
}

/// Runs `work` as every rank, each in its own process (a single rank in this process). Returns the
/// exit status: 0, or the status of the first rank that failed. Each rank has space for `times`
/// call times.
///
/// # Errors
/// [`EngineError::Ranks`] if processes cannot be made, [`EngineError::Killed`] if one was killed.
pub(crate) fn launch(ranks: u32, times: u32, work: impl Fn(Team) -> u8) -> Result<u8, EngineError> {
    let failed = |action, source| EngineError::Ranks { action, ranks, source };
    let mut teams = Team::world(ranks, times).map_err(|source| failed("share memory", source))?;
    let Some(first) = teams.first().cloned() else {
        return Err(failed("start", io::ErrorKind::InvalidInput.into()));
    };
    if ranks == 1 {
        return Ok(work(first));
    }
    let parent = rustix::process::getpid();
    let mut children = Vec::new();
    for team in teams.drain(..) {
        // SAFETY: the program has one thread (see `bpfassay-ior`), so the child can do anything.
        match unsafe { libc::fork() } {
            -1 => {
                let source = io::Error::last_os_error();
                first.abort();
                while wait_any().is_ok() {}
                return Err(failed("make processes", source));
            }
            0 => {
                // A rank must not outlive the process that the user or the agent kills.
                let tied = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
                let status =
                    if tied.is_err() || rustix::process::getppid() != Some(parent) { 5 } else { work(team.clone()) };
                if !matches!(status, 0 | super::DATA_ERRORS) {
                    team.abort();
                }
                std::process::exit(status.into());
            }
            child => children.push(child),
        }
    }
    let (mut outcome, mut killed) = (0, None);
    for _ in 0..ranks {
        let (child, status) = wait_any().map_err(|source| failed("wait", source))?;
        if libc::WIFSIGNALED(status) {
            first.abort();
            let rank = children.iter().position(|&other| other == child).unwrap_or_default();
            killed.get_or_insert(EngineError::Killed { rank: rank as u32, signal: libc::WTERMSIG(status) });
        } else if outcome == 0 || outcome == super::ABORTED {
            outcome = match libc::WEXITSTATUS(status) as u8 {
                0 => outcome,
                status => status,
            };
        }
    }
    killed.map_or(Ok(outcome), Err)
}

fn wait_any() -> io::Result<(libc::pid_t, c_int)> {
    let mut status = 0;
    loop {
        // SAFETY: the pointer is to a live local variable.
        let child = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if child >= 0 {
            return Ok((child, status));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Runs `work` as every rank, each in a thread.
    fn together<T: Send>(size: u32, work: impl Fn(Team) -> T + Sync) -> Vec<T> {
        thread::scope(|scope| {
            let handles: Vec<_> =
                Team::world(size, 0).unwrap().into_iter().map(|team| scope.spawn(|| work(team))).collect();
            handles.into_iter().map(|handle| handle.join().unwrap()).collect()
        })
    }

    #[test]
    fn an_exchange_gives_every_rank_the_numbers_of_all() {
        let results = together(5, |team| {
            (0..2000u64)
                .map(|round| team.exchange([u64::from(team.rank()), round]).unwrap())
                .enumerate()
                .all(|(round, all)| all == (0..5).map(|rank| [rank, round as u64]).collect::<Vec<_>>())
        });
        assert_eq!(results, [true; 5]);
    }

    #[test]
    fn a_part_of_the_ranks_can_meet_without_the_others() {
        let results = together(4, |team| {
            let sum = (team.rank() < 3)
                .then(|| team.first(3).exchange([u64::from(team.rank())]).unwrap().iter().flatten().sum::<u64>());
            team.barrier().unwrap();
            sum
        });
        assert_eq!(results, [Some(3), Some(3), Some(3), None]);
    }

    #[test]
    fn ranks_are_numbered_over_all_nodes() {
        let second = NodeOf::parse("2/4").unwrap();
        assert_eq!(second, NodeOf { index: 1, count: 4 });
        let numbers = Team::world(3, 0).unwrap().into_iter().map(|team| team.on(second));
        let numbers: Vec<_> = numbers.map(|team| (team.rank(), team.task(), team.size(), team.tasks())).collect();
        assert_eq!(numbers, [(0, 3, 3, 12), (1, 4, 3, 12), (2, 5, 3, 12)]);
        for wrong in ["", "1", "0/4", "5/4", "-1/4", "1/0", "1/x", "1/4/2"] {
            assert_eq!(NodeOf::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_rank_that_gives_up_frees_those_that_wait() {
        let results = together(3, |team| {
            if team.rank() == 1 {
                team.abort();
                return true;
            }
            matches!(team.barrier(), Err(EngineError::Aborted))
        });
        assert_eq!(results, [true; 3]);
    }
}
