// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of one IOR test, and the rules that IOR checks before it starts.

use std::fmt;

use crate::OptionsError;

/// Number of bytes in a MiB.
pub(crate) const MIB: u64 = 1 << 20;

/// IOR's interface to storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Api {
    /// `lseek` with `read` and `write`.
    Posix,
    /// Loads and stores in a shared mapping.
    Mmap,
    /// MPI-IO, which only the real IOR supports.
    MpiIo,
}

impl Api {
    /// Every interface, in display order.
    pub const ALL: &'static [Self] = &[Self::Posix, Self::Mmap, Self::MpiIo];

    /// Returns IOR's name of the interface, as in `-a` and in its JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Posix => "POSIX",
            Self::Mmap => "MMAP",
            Self::MpiIo => "MPIIO",
        }
    }

    /// Returns the interface called `name`, in upper or lower case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|api| api.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The pattern of the bytes that IOR writes (`-l`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Packet {
    /// Rank and time stamp, the same in every transfer of a rank. This is IOR's default.
    #[default]
    Timestamp,
    /// Like [`Packet::Timestamp`], with the file offset at every 4 KiB.
    Offset,
    /// One pseudo-random word for the whole rank, with the file offset at every 4 KiB.
    Incompressible,
    /// Pseudo-random words that differ between transfers.
    Random,
}

impl Packet {
    /// Every pattern, in the order of IOR's numbers.
    pub const ALL: &'static [Self] = &[Self::Timestamp, Self::Offset, Self::Incompressible, Self::Random];

    /// Returns the letter for `-l`.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Timestamp => 't',
            Self::Offset => 'o',
            Self::Incompressible => 'i',
            Self::Random => 'r',
        }
    }

    /// Returns IOR's number, as in its JSON.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the pattern called `name`. IOR looks only at the first letter; this accepts the four
    /// names and their letters.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "t" | "timestamp" => Some(Self::Timestamp),
            "o" | "offset" => Some(Self::Offset),
            "i" | "incompressible" => Some(Self::Incompressible),
            "r" | "random" => Some(Self::Random),
            _ => None,
        }
    }
}

/// The permutation of tasks before they read back (`-Z`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReorderRandom {
    /// No permutation.
    #[default]
    Off,
    /// Each rank draws its own offset (`-Z`). Several can read the same file.
    Draw,
    /// One shuffle for all ranks (`-Z -Z`).
    Shuffle,
}

/// The order of accesses within a file (`-z`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessOrder {
    /// Ascending offsets.
    #[default]
    Sequential,
    /// Every transfer once, shuffled (`-z`).
    Shuffled,
    /// Random blocks of an existing file, maybe repeated (`-z -z`); only for reading.
    Random,
}

macro_rules! levels {
    ($name:ident: $($variant:ident = $level:literal),+) => {
        impl $name {
            /// Returns how often the flag must be given: IOR's number in scripts and JSON.
            #[must_use]
            pub const fn level(self) -> u8 {
                match self { $(Self::$variant => $level),+ }
            }

            pub(crate) const fn from_level(level: i64) -> Option<Self> {
                match level { $($level => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}
levels!(ReorderRandom: Off = 0, Draw = 1, Shuffle = 2);
levels!(AccessOrder: Sequential = 0, Shuffled = 1, Random = 2);

/// Options of the POSIX interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PosixOptions {
    /// Open with `O_DIRECT` (`--posix.odirect`, `useO_DIRECT`).
    pub direct: bool,
    /// Lock every transfer's range (`--posix.rangelocks`).
    pub range_locks: bool,
}

/// Options of the MMAP interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct MmapOptions {
    /// Advise that the pages are not needed (`--mmap.madv_dont_need`).
    pub dont_need: bool,
    /// Advise sequential or random access (`--mmap.madv_pattern`).
    pub pattern: bool,
}

/// One IOR test.
///
/// Fields have the names of IOR's directives if these are words. Comments have short options.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Options {
    /// `-a`: the interface.
    pub api: Api,
    /// `-A`: a number for the summary.
    pub reference: i32,
    /// `-b`: contiguous bytes per task and segment.
    pub block_size: u64,
    /// `-t`: bytes per transfer.
    pub transfer_size: u64,
    /// `-s`: number of segments.
    pub segments: u64,
    /// `-c`: collective calls; for POSIX and MMAP this only affects stonewalling.
    pub collective: bool,
    /// `-C`: read back the data of a task at a constant distance.
    pub reorder_tasks: bool,
    /// `-Q`: the distance in nodes.
    pub task_per_node_offset: i32,
    /// `-Z`: permutation of tasks before they read back.
    pub reorder_random: ReorderRandom,
    /// `-X`: seed of `-Z`; a negative seed changes with the repetition.
    pub reorder_random_seed: i32,
    /// `-d`: seconds that rank 0 waits before each phase.
    pub inter_test_delay: u32,
    /// `-D`: seconds after which a phase stops (stonewalling); 0 is never.
    pub deadline: u32,
    /// `-O stoneWallingWearOut=1`: after the deadline, every rank continues until it has made as
    /// many transfers as the fastest one.
    pub wear_out: bool,
    /// `-O stoneWallingWearOutIterations=N`: stop after so many transfers per rank; 0 is no limit.
    pub wear_out_iterations: u64,
    /// `-O stoneWallingStatusFile=FILE`: passes a stonewalled write's transfers to a later read.
    pub status_file: Option<String>,
    /// `-O minTimeDuration=N`: least seconds of a phase, which restarts at the file's beginning.
    pub min_time: u32,
    /// `-T`: minutes after which no further phase begins; 0 is no limit.
    pub max_time: u32,
    /// `-e`: `fsync` after the last write of a phase.
    pub fsync: bool,
    /// `-Y`: `fsync` after each write.
    pub fsync_per_write: bool,
    /// `-E`: do not remove an existing file before writing.
    pub use_existing: bool,
    /// `-F`: a file for each task instead of one for all.
    pub file_per_process: bool,
    /// `-g`: barriers between open, transfers and close.
    pub intra_test_barriers: bool,
    /// `-G`: the time stamp in the data; 0 is the time of the repetition.
    pub signature: i32,
    /// `-i`: number of repetitions.
    pub repetitions: u32,
    /// `-k`: keep the files.
    pub keep: bool,
    /// `-K`: keep files with wrong data.
    pub keep_with_error: bool,
    /// `-l`: pattern of the data.
    pub packet: Packet,
    /// `-m`: a file for each repetition.
    pub multi_file: bool,
    /// `-N`: number of tasks that take part; `None` is all.
    pub tasks: Option<u32>,
    /// `-O numNodes=N`: claim so many nodes; `None` is the actual number.
    pub nodes: Option<u32>,
    /// `-O numTasksOnNode0=N`: claim so many tasks on the first node; `None` is the actual number.
    pub tasks_on_node0: Option<u32>,
    /// `-o`: the file to use, or several separated by `@`.
    pub test_file: String,
    /// `-w`: write.
    pub write: bool,
    /// `-r`: read.
    pub read: bool,
    /// `-W`: read back and compare after writing.
    pub check_write: bool,
    /// `-R`: compare the data of the read phase.
    pub check_read: bool,
    /// `-u`: a directory for each task's file.
    pub unique_dir: bool,
    /// `-x`: give up if a transfer moves fewer bytes than requested.
    pub single_attempt: bool,
    /// `-z`: order of accesses.
    pub order: AccessOrder,
    /// `--random-offset-seed`: seed of `-z`; `None` is the time.
    pub random_seed: Option<i32>,
    /// `-v`: verbosity.
    pub verbose: u8,
    /// `--posix.…`: options of the POSIX interface.
    pub posix: PosixOptions,
    /// `--mmap.…`: options of the MMAP interface.
    pub mmap: MmapOptions,
}

impl Default for Options {
    /// IOR's defaults: POSIX, one block of 1 MiB in transfers of 256 KiB, written and read once.
    fn default() -> Self {
        Self {
            api: Api::Posix,
            reference: 0,
            block_size: MIB,
            transfer_size: MIB / 4,
            segments: 1,
            collective: false,
            reorder_tasks: false,
            task_per_node_offset: 1,
            reorder_random: ReorderRandom::Off,
            reorder_random_seed: 0,
            inter_test_delay: 0,
            deadline: 0,
            wear_out: false,
            wear_out_iterations: 0,
            status_file: None,
            min_time: 0,
            max_time: 0,
            fsync: false,
            fsync_per_write: false,
            use_existing: false,
            file_per_process: false,
            intra_test_barriers: false,
            signature: 0,
            repetitions: 1,
            keep: false,
            keep_with_error: false,
            packet: Packet::Timestamp,
            multi_file: false,
            tasks: None,
            nodes: None,
            tasks_on_node0: None,
            test_file: "testFile".to_owned(),
            write: false,
            read: false,
            check_write: false,
            check_read: false,
            unique_dir: false,
            single_attempt: false,
            order: AccessOrder::Sequential,
            random_seed: None,
            verbose: 0,
            posix: PosixOptions::default(),
            mmap: MmapOptions::default(),
        }
    }
}

impl Options {
    /// Checks additional rules for ranks on several nodes, `tasks` in total. The embedded engine
    /// lets nodes meet only at barriers, and exchanges no numbers between nodes.
    ///
    /// # Errors
    /// [`OptionsError::Rule`] for the first broken rule.
    pub fn fits_nodes(&self, tasks: u32) -> Result<(), OptionsError> {
        let broken = [
            (self.tasks.is_some_and(|asked| asked != tasks), "with several nodes, all tasks take part: leave out -N"),
            (self.nodes.is_some(), "the number of nodes is the study's: leave out numNodes"),
            (self.tasks_on_node0.is_some(), "every node has as many ranks: leave out numTasksOnNode0"),
            (
                self.deadline != 0,
                "a deadline (-D) would end the phases of each node by its own clock: leave it out with several nodes",
            ),
            (
                self.max_time != 0,
                "a time limit (-T) would end the test by each node's own clock: leave it out with several nodes",
            ),
            (self.status_file.is_some(), "stoneWallingStatusFile needs a deadline, which several nodes do not have"),
            (
                (self.check_write || self.check_read) && self.signature == 0,
                "checking data that another node wrote (-W, -R) needs its time stamp: give it with -G",
            ),
            (
                self.order != AccessOrder::Sequential && self.random_seed.is_none(),
                "random offsets (-z) of several nodes need one seed: give it with --random-offset-seed",
            ),
        ];
        match broken.into_iter().find(|(is_broken, _)| *is_broken) {
            Some((_, rule)) => Err(OptionsError::Rule { rule }),
            None => Ok(()),
        }
    }

    /// Returns the bytes that `tasks` tasks move in one phase without a deadline.
    ///
    /// The result is `None` if it does not fit into 63 bits, which [`Options::validate`] refuses.
    #[must_use]
    pub fn aggregate_size(&self, tasks: u32) -> Option<u64> {
        self.block_size
            .checked_mul(self.segments)?
            .checked_mul(u64::from(tasks))
            .filter(|&size| i64::try_from(size).is_ok())
    }

    /// Requests writing and reading if no phase was requested, as IOR does after all options.
    pub(crate) fn settle(&mut self) {
        if !(self.write || self.read || self.check_write || self.check_read) {
            self.write = true;
            self.read = true;
        }
    }

    /// Checks the rules that IOR checks before a test, and rules that prevent crashes of IOR.
    ///
    /// # Errors
    /// [`OptionsError::Rule`] for the first broken rule.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let tasks = self.tasks.unwrap_or(1);
        let broken = [
            (self.test_file.is_empty(), "the test file has no name: give one with -o"),
            (self.segments == 0, "the number of segments (-s) must be at least 1"),
            (self.repetitions == 0, "the number of repetitions (-i) must be at least 1"),
            (self.tasks == Some(0), "the number of tasks (-N) must be at least 1"),
            (self.nodes == Some(0), "numNodes must be at least 1"),
            (self.tasks_on_node0 == Some(0), "numTasksOnNode0 must be at least 1"),
            (
                !(self.write || self.read || self.check_write || self.check_read),
                "nothing to do: give at least one of -w, -r, -W, -R",
            ),
            (
                self.status_file.is_some() && !self.keep,
                "stoneWallingStatusFile only makes sense when a later test reads the file: keep it with -k",
            ),
            (
                self.status_file.is_some() && !self.wear_out && self.write,
                "stoneWallingStatusFile with a write test needs stoneWallingWearOut=1",
            ),
            (self.deadline == 0 && self.wear_out, "stoneWallingWearOut needs a deadline: give one with -D"),
            (
                self.signature == 0 && !self.write && self.check_read,
                "checking a read without writing (-R without -w) needs the time stamp of the data: give it with -G",
            ),
            (!self.block_size.is_multiple_of(8), "the block size (-b) must be a multiple of 8 bytes"),
            (!self.transfer_size.is_multiple_of(8), "the transfer size (-t) must be a multiple of 8 bytes"),
            (self.transfer_size == 0, "the transfer size (-t) must not be zero"),
            (
                self.transfer_size != 0 && !self.block_size.is_multiple_of(self.transfer_size),
                "the block size (-b) must be a multiple of the transfer size (-t)",
            ),
            (
                self.block_size < self.transfer_size,
                "the block size (-b) must not be smaller than the transfer size (-t)",
            ),
            (
                self.aggregate_size(tasks).is_none(),
                "block size, segments and tasks multiply to more than a file can hold",
            ),
            (
                self.order == AccessOrder::Shuffled && self.block_size == self.transfer_size,
                "-z shuffles the transfers of a block: the block size must be larger than the transfer size",
            ),
            (
                self.order == AccessOrder::Random && (self.write || self.check_write),
                "-z -z reads an existing file: IOR crashes when it has to write in that order",
            ),
            (self.reorder_tasks && self.reorder_random == ReorderRandom::Draw, "-C and -Z exclude each other"),
            (
                self.order != AccessOrder::Sequential
                    && (self.reorder_tasks || self.reorder_random != ReorderRandom::Off)
                    && !self.file_per_process,
                "-z with -C or -Z needs a file per process (-F)",
            ),
            (
                self.order != AccessOrder::Sequential && self.check_read && self.random_seed.is_none(),
                "-z with -R needs the seed: give it with --random-offset-seed",
            ),
            (
                self.collective && self.deadline != 0 && (self.min_time != 0 || (self.order == AccessOrder::Shuffled && !self.file_per_process)),
                "-c with -D makes all ranks stop together, which needs as many transfers on each: remove -c, or -z without -F and minTimeDuration",
            ),
            (
                self.unique_dir && self.test_file.contains('@'),
                "several test files (@) and a directory per task (-u) exclude each other",
            ),
        ]
        .into_iter()
        .find(|&(broken, _)| broken);
        match broken {
            Some((_, rule)) => Err(OptionsError::Rule { rule }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_nodes_cannot_agree_on_is_refused() {
        let refused = |options: Options| options.fits_nodes(16).map_err(|error| error.to_string());
        assert_eq!(
            refused(Options { tasks: Some(16), reorder_tasks: true, intra_test_barriers: true, ..Options::default() }),
            Ok(())
        );
        let seeded = Options { order: AccessOrder::Shuffled, random_seed: Some(1), ..Options::default() };
        assert_eq!(refused(seeded.clone()), Ok(()));
        assert_eq!(refused(Options { check_read: true, signature: 7, ..Options::default() }), Ok(()));
        for (options, hint) in [
            (Options { tasks: Some(8), ..Options::default() }, "-N"),
            (Options { nodes: Some(4), ..Options::default() }, "numNodes"),
            (Options { tasks_on_node0: Some(4), ..Options::default() }, "numTasksOnNode0"),
            (Options { deadline: 1, ..Options::default() }, "-D"),
            (Options { max_time: 1, ..Options::default() }, "-T"),
            (Options { check_write: true, ..Options::default() }, "-G"),
            (Options { random_seed: None, ..seeded }, "--random-offset-seed"),
        ] {
            let error = refused(options).unwrap_err();
            assert!(error.contains(hint), "{error}");
        }
    }
}
