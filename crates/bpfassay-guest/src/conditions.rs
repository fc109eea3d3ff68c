// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conditions under which phases begin: how the kernel's threads are scheduled, and at which
//! instant a phase begins.
//!
//! A write over loopback NFS is a race between the server's threads and the kworkers that send the
//! client's requests. The outcome decides how often the server wakes for part of a request, and so
//! the instructions of the flush. Real-time priorities make the outcome the same each time. Every
//! phase begins at a tenth of a second, equally far from the next timer tick, and outside the
//! kernel's periodic work ([`silence`]). Free pages that earlier work has left stay in the CPU's
//! lists ([`free_memory`]), and adding up statistics is delayed.

use std::{collections::BTreeSet, fs, io, path::Path, thread, time::Duration};

use bpfassay_protocol::{
    job::{Job, Scheduling},
    message::FixedThreads,
    symbols::UserCode,
    with_causes,
};
use rustix::{
    io::Errno,
    param::page_size,
    thread::clock_nanosleep_absolute,
    time::{ClockId, Timespec},
};

use crate::{
    agent_link::Link,
    error::{Error, Result},
    free_memory, power_off,
    proc::stat::{self, Stat},
    sent_symbols,
    short_turns::ShortTurns,
    silence::{self, Switches},
    steps::monotonic_ns,
    system, tool,
};

/// Real-time priority of kworkers. It is above the server's, so that a request is sent whole before
/// the server wakes.
const KWORKERS: i32 = 20;

/// Real-time priority of the threads of the NFS server.
const SERVER: i32 = 10;

/// Real-time priority of the threads that finish receiving when an interrupt leaves that to them
/// (`wakeup_softirqd`, kernel/softirq.c). It is above that of kworkers, so that a request that a
/// tick interrupts is received whole, too. Otherwise the server received a few requests in two
/// parts: on Linux 6.1 each cost 0.07 % more instructions of a write of 64 MiB.
const SOFT_INTERRUPTS: i32 = 30;

/// Real-time priority of the agent while a phase runs: the lowest. Some kernels switch to the
/// workload as soon as the agent releases it, and at a tick back to the agent for the rest of its
/// call. The position of that tick in the phase made a difference of up to 0.05 % of a read. This
/// priority makes the agent sleep before the workload runs.
const AGENT: i32 = 1;

const SECOND: u64 = 1_000_000_000;

/// In this last part of the time before a phase, in nanoseconds, the agent only sleeps until the
/// timer fires.
const ALONE: u64 = 1_000_000;

/// How long the CPU is busy before [`ALONE`], in nanoseconds: several ticks, at 100 to 1000 Hz.
/// Deferrable timers, such as that of the memory controller's statistics, only run at a tick of a
/// busy CPU (`TIMER_DEFERRABLE`, include/linux/timer.h). Timers that expired while the guest waited
/// would run in the phase: 8,000 instructions, 0.07 % of a read.
const BUSY: u64 = 40_000_000;

/// The share of time that real-time threads can use; -1 means all. Otherwise the kernel throttles
/// them after 0.95 s of each second, in the middle of a long phase.
const SHARE: &str = "/proc/sys/kernel/sched_rt_runtime_us";

/// How often the kernel adds up statistics of memory, in seconds (`vmstat_update`, mm/vmstat.c). At
/// an interval of one second, this work falls into a phase or just outside it: 9,000 instructions,
/// 0.1 % of a read of 64 MiB from the page cache.
const STATISTICS: (&str, &str) = ("/proc/sys/vm/stat_interval", "3600\n");

/// The divisor of a zone's pages that gives how many free pages each CPU can keep
/// (`percpu_pagelist_high_fraction`, admin-guide/sysctl/vm.rst). 8 allows the most pages. The pages
/// that [`free_memory`] gives to the lists, and those that a run gives back, then stay in the
/// lists.
const PAGE_LISTS: (&str, &str) = ("/proc/sys/vm/percpu_pagelist_high_fraction", "8\n");

/// Restricts network buffers to single pages (`high_order_alloc_disable`,
/// admin-guide/sysctl/net.rst). The kernel gives back whole lists of free pages when it frees
/// certain larger blocks.
const NETWORK_BUFFERS: (&str, &str) = ("/proc/sys/net/core/high_order_alloc_disable", "1\n");

/// How actively the kernel compacts memory in the background (`compaction_proactiveness`,
/// admin-guide/sysctl/vm.rst): not at all, because compaction would empty the lists of free pages.
const COMPACTION: (&str, &str) = ("/proc/sys/vm/compaction_proactiveness", "0\n");

/// How often the kernel searches dirty memory to write back, in hundredths of a second
/// (`dirty_writeback_centisecs`, admin-guide/sysctl/vm.rst): never. The data of a phase is written
/// back when the phase ends, the file is closed, or a limit of dirty memory is exceeded. A flusher
/// thread that the timer wakes in the middle of some phases took 0.1 % of their instructions.
const WRITEBACK: (&str, &str) = ("/proc/sys/vm/dirty_writeback_centisecs", "0\n");

/// How long khugepaged sleeps between two scans of processes, in milliseconds
/// (`scan_sleep_millisecs`, admin-guide/mm/transhuge.rst): the maximum. The default is 10 s, so
/// that the thread ran in some phases.
const HUGE_PAGES: (&str, &str) =
    ("/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "4294967295\n");

/// Whether the kernel watches which memory is in use (`DAMON_STAT`, admin-guide/mm/damon/stat.rst).
/// The thread of DAMON used 0.25 % of the instructions of some reads on Linux 7.2.
const MEMORY_STATISTICS: (&str, &str) = ("/sys/module/damon_stat/parameters/enabled", "N\n");

/// Paths and values that the agent sets if there is an NFS server.
const SETTINGS: [(&str, &str); 8] =
    [(SHARE, "-1\n"), STATISTICS, PAGE_LISTS, NETWORK_BUFFERS, COMPACTION, WRITEBACK, HUGE_PAGES, MEMORY_STATISTICS];

/// The conditions when a phase begins.
#[derive(Debug)]
pub(crate) struct Conditions {
    /// How long to wait before a phase: see [`bpfassay_protocol::job::Job::settle_ms`].
    settle: Duration,
    scheduling: Scheduling,
    /// The period of the timers of [`Self::short_turns`].
    turn_ns: Option<u64>,
    /// Whether the addresses of the machine code of loaded programs are sent to the host.
    symbols: bool,
    /// The addresses that the host has received.
    sent: sent_symbols::SentPrograms,
    /// Processes that have been examined already. The kind of a process does not change.
    seen: BTreeSet<u32>,
    /// Whether the kernel has been set up, which happens at the first phase with an NFS server.
    is_set_up: bool,
}

impl Conditions {
    /// Returns the conditions that `job` requests.
    pub(crate) fn of(job: &Job) -> Self {
        let settle = Duration::from_millis(job.settle_ms);
        Self {
            settle,
            scheduling: job.scheduling,
            turn_ns: job.turn_ns,
            symbols: job.symbols,
            sent: sent_symbols::SentPrograms::default(),
            seen: BTreeSet::new(),
            is_set_up: false,
        }
    }

    /// Starts the timers that make CPUs take short turns, if the job requests them.
    ///
    /// # Errors
    /// The errors of [`ShortTurns::begin`].
    pub(crate) fn short_turns(&self) -> Result<Option<ShortTurns>> {
        self.turn_ns.map(ShortTurns::begin).transpose()
    }

    /// Returns whether addresses of code are sent to the host.
    pub(crate) const fn symbols(&self) -> bool {
        self.symbols
    }

    /// Sends the addresses of the machine code of programs, the source lines of the programs
    /// `under_test`, and where processes have code in user space, if the job requests it. It is
    /// called before and after the phases of a run whose tracer or tool loads programs.
    ///
    /// # Errors
    /// The errors of [`sent_symbols::send_programs`] and of `under_test`.
    pub(crate) fn send_programs(
        &mut self,
        link: &Link,
        under_test: impl FnOnce() -> Result<(BTreeSet<u32>, UserCode)>,
    ) -> Result<()> {
        if !self.symbols {
            return Ok(());
        }
        let (programs, user) = under_test()?;
        sent_symbols::send_programs(link, &programs, user, &mut self.sent)
    }

    /// Waits until the kernel has finished what earlier work left to it.
    pub(crate) fn rest(&self, tool: Option<&mut tool::RunningTool>) -> Result<()> {
        match tool {
            None => thread::sleep(self.settle),
            Some(tool) => tool.rest(self.settle)?,
        }
        Ok(())
    }

    /// Gives kworkers, soft interrupts and the NFS server's threads their priorities, and sets up
    /// the kernel at the first call. Returns how many threads did not have their priorities yet;
    /// `None` if scheduling is not fixed, or there is no server.
    ///
    /// # Errors
    /// /proc cannot be read, or the kernel refuses a priority or a setting.
    pub(crate) fn fix(&mut self) -> Result<Option<FixedThreads>> {
        if self.scheduling == Scheduling::Kernel {
            return Ok(None);
        }
        let mut present = BTreeSet::new();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").map_err(Error::file("list", "/proc"))? {
            let entry = entry.map_err(Error::file("list", "/proc"))?;
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            present.insert(pid);
            if self.seen.contains(&pid) {
                continue;
            }
            let path = format!("/proc/{pid}/stat");
            // A process that has exited in the meantime needs no priority.
            let Ok(text) = fs::read(&path) else { continue };
            let text = String::from_utf8_lossy(&text);
            let stat = stat::parse(&text).ok_or_else(|| Error::unexpected(&path, "fields as in proc(5)", &text))?;
            found.extend(kind(&stat).map(|kind| (pid, kind)));
        }
        if !self.is_set_up {
            if !found.iter().any(|(_, kind)| *kind == PrioritisedThread::Server) {
                return Ok(None);
            }
            for (path, value) in SETTINGS {
                // Older kernels do not have all of them.
                if Path::new(path).exists() {
                    system::write(path, value)?;
                }
            }
            keep_dirty_limits()?;
            self.is_set_up = true;
        }
        self.seen = present;
        let mut fixed = FixedThreads::default();
        for (pid, kind) in found {
            let (priority, count) = match kind {
                PrioritisedThread::Kworker => (KWORKERS, &mut fixed.kworkers),
                PrioritisedThread::Server => (SERVER, &mut fixed.nfsd),
                PrioritisedThread::SoftInterrupts => (SOFT_INTERRUPTS, &mut fixed.ksoftirqd),
            };
            if set_fifo(pid, priority).map_err(Error::system(format!("make the kernel thread {pid} real-time")))? {
                *count = count.saturating_add(1);
            }
        }
        Ok(Some(fixed))
    }

    /// Gives free pages to the CPU's lists before a run, if [`Self::fix`] has set up the kernel.
    ///
    /// # Errors
    /// The errors of [`free_memory::fill_with_pages_of_files`].
    pub(crate) fn begin_run(&self) -> Result<()> {
        if self.is_set_up { free_memory::fill_with_pages_of_files() } else { Ok(()) }
    }

    /// Prepares a phase right before it begins: repeats [`Self::fix`] for threads that have
    /// appeared since, and gives free pages of every kind to the CPU's lists.
    ///
    /// # Errors
    /// The errors of [`Self::fix`] and of [`free_memory::fill_with_other_pages`].
    pub(crate) fn begin_phase(&mut self) -> Result<()> {
        if self.fix()?.is_some() { free_memory::fill_with_other_pages() } else { Ok(()) }
    }

    /// Listens for the kernel's own work, chooses the instant at which the phase begins, and waits
    /// until shortly before it. Returns that instant for [`begin_at`]: a tenth of a second of
    /// `CLOCK_MONOTONIC` around which no such work is expected. The tool's output is read in the
    /// meantime. Returns `None` at once with [`Scheduling::Kernel`].
    ///
    /// # Errors
    /// The clock or `/proc/stat` cannot be read, or the tool fails.
    pub(crate) fn listen(&self, mut tool: Option<&mut tool::RunningTool>) -> Result<Option<u64>> {
        if self.scheduling == Scheduling::Kernel {
            return Ok(None);
        }
        let mut switches = Switches::open()?;
        let begun = monotonic_ns()?;
        let mut looks = Vec::new();
        let mut next = begun;
        while next <= begun.saturating_add(silence::LISTENING) {
            wait_until(next, tool.as_deref_mut())?;
            looks.push((monotonic_ns()?, switches.read()?));
            next = next.saturating_add(silence::STEP);
        }
        drop(switches);
        let earliest = monotonic_ns()?.saturating_add(silence::STEP + BUSY + ALONE);
        let instant = silence::beginning(&looks, earliest);
        drop(looks);
        wait_until(instant.saturating_sub(BUSY + ALONE), tool)?;
        Ok(Some(instant))
    }
}

/// Keeps the agent real-time until this is dropped, however a phase ends.
#[derive(Debug)]
pub(crate) struct RealTime(());

impl RealTime {
    fn begin() -> Result<Self> {
        set_policy(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, AGENT).map_err(of_agent)?;
        Ok(Self(()))
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        if let Err(error) = set_policy(0, libc::SCHED_OTHER, 0) {
            power_off::say(&with_causes(&of_agent(error)));
        }
    }
}

/// Keeps the CPU busy for some ticks, makes the agent real-time and returns at `instant`.
///
/// # Errors
/// The clock cannot be read or waited for, or the kernel refuses the priority.
pub(crate) fn begin_at(instant: u64) -> Result<RealTime> {
    stay_busy_until(instant.saturating_sub(ALONE))?;
    let real_time = RealTime::begin()?;
    sleep_until(instant)?;
    Ok(real_time)
}

fn stay_busy_until(instant: u64) -> Result<()> {
    while monotonic_ns()? < instant {
        std::hint::spin_loop();
    }
    Ok(())
}

fn of_agent(error: io::Error) -> Error {
    Error::system("change the agent's own scheduling")(error)
}

/// Waits until `CLOCK_MONOTONIC` shows `instant`, in nanoseconds, and keeps the tool's output in
/// the meantime.
fn wait_until(instant: u64, tool: Option<&mut tool::RunningTool>) -> Result<()> {
    if let Some(tool) = tool {
        tool.rest(Duration::from_nanos(instant.saturating_sub(monotonic_ns()?)))?;
    }
    sleep_until(instant)
}

/// Statistics of memory by name, one per line.
const VMSTAT: &str = "/proc/vmstat";

/// For each limit of dirty memory: the file that sets it in bytes, and the statistic that shows it
/// in pages (admin-guide/sysctl/vm.rst).
const DIRTY_LIMITS: [(&str, &str); 2] = [
    ("/proc/sys/vm/dirty_background_bytes", "nr_dirty_background_threshold"),
    ("/proc/sys/vm/dirty_bytes", "nr_dirty_threshold"),
];

/// Sets the limits of dirty memory to their present values. By default they are shares of the
/// memory that is free or holds file data, and so depend on what earlier runs have left.
fn keep_dirty_limits() -> Result<()> {
    let text = system::read(VMSTAT)?;
    for (path, name) in DIRTY_LIMITS {
        let pages =
            statistic(&text, name).ok_or_else(|| Error::unexpected(VMSTAT, format!("a line `{name} N`"), &text))?;
        system::write(path, &format!("{}\n", pages.saturating_mul(page_size() as u64)))?;
    }
    Ok(())
}

/// Returns the value of the statistic `name` in `text`, which has the format of `/proc/vmstat`.
fn statistic(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim_end().parse().ok())
}

/// Kernel threads that get a priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PrioritisedThread {
    Kworker,
    Server,
    SoftInterrupts,
}

/// Returns the kind of this process, if it has one. A program can use any name, but is not a kernel
/// thread.
fn kind(stat: &Stat<'_>) -> Option<PrioritisedThread> {
    match stat.name {
        _ if !stat.is_kernel_thread() => None,
        "nfsd" => Some(PrioritisedThread::Server),
        name if name.starts_with("kworker/") => Some(PrioritisedThread::Kworker),
        name if name.starts_with("ksoftirqd/") => Some(PrioritisedThread::SoftInterrupts),
        _ => None,
    }
}

/// Gives the thread `pid` the policy `SCHED_FIFO`. Returns `false` if the thread has exited.
fn set_fifo(pid: u32, priority: i32) -> io::Result<bool> {
    match set_policy(pid, libc::SCHED_FIFO, priority) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives the thread `pid` this policy; 0 is the calling thread. This is a direct system call,
/// because musl's function always fails.
fn set_policy(pid: u32, policy: libc::c_int, priority: i32) -> io::Result<()> {
    let parameter = libc::c_int::from(priority);
    // SAFETY: the kernel only reads the parameter, `struct sched_param`, which is one `int`
    // (include/uapi/linux/sched/types.h).
    let status =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, pid as libc::pid_t, policy, &raw const parameter) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sleeps until `CLOCK_MONOTONIC` shows `instant`, in nanoseconds.
fn sleep_until(instant: u64) -> Result<()> {
    let seconds = i64::try_from(instant / SECOND).unwrap_or(i64::MAX);
    let request = Timespec { tv_sec: seconds, tv_nsec: (instant % SECOND) as _ };
    loop {
        match clock_nanosleep_absolute(ClockId::Monotonic, &request) {
            Err(Errno::INTR) => {}
            done => return done.map_err(Error::system("sleep until a phase begins")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bpfassay_protocol::job::{FileSystem, Task};

    use super::*;

    fn job(scheduling: Scheduling, symbols: bool) -> Job {
        let task = Task::Runs { runs: Vec::new() };
        Job { scheduling, symbols, ..Job::new(FileSystem::Tmpfs { size_mib: 1 }, task) }
    }

    /// Otherwise the programs of a whole machine would be listed for nobody, and the run would fail
    /// on a machine that does not permit listing them.
    #[test]
    fn programs_are_sent_only_where_the_job_asks_for_them() {
        for symbols in [false, true] {
            let file = tempfile::NamedTempFile::new().unwrap();
            let link = Link::into_file(file.reopen().unwrap()).unwrap();
            let length = || file.as_file().metadata().unwrap().len();
            let before = length();
            let mut is_asked = false;
            let sent = Conditions::of(&job(Scheduling::Kernel, symbols)).send_programs(&link, || {
                is_asked = true;
                Ok((BTreeSet::new(), UserCode::default()))
            });
            assert_eq!(is_asked, symbols);
            match symbols {
                false => assert!(sent.is_ok() && length() == before),
                // The list was sent, or this machine does not permit listing.
                true => assert!(sent.is_err() || length() > before),
            }
        }
    }

    #[test]
    fn a_statistic_is_found_by_its_whole_name() {
        let text = "nr_dirty 3\nnr_dirty_threshold 36500\nnr_dirty_background_threshold 18227\nbroken x\n";
        assert_eq!(statistic(text, "nr_dirty_threshold"), Some(36500));
        assert_eq!(statistic(text, "nr_dirty_background_threshold"), Some(18227));
        assert_eq!(
            (statistic(text, "nr_dirty_thresh"), statistic(text, "broken"), statistic(text, "none")),
            (None, None, None)
        );
    }

    #[test]
    fn only_kernel_threads_get_priorities() {
        let of = |name: &str, flags: u64| {
            let line = format!("7 ({name}) S 2 0 0 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 57 {}", "0 ".repeat(30));
            kind(&stat::parse(&line).unwrap())
        };
        const KERNEL_THREAD: u64 = 0x0020_0040;
        assert_eq!(of("kworker/u2:1-rpciod", KERNEL_THREAD), Some(PrioritisedThread::Kworker));
        assert_eq!(of("nfsd", KERNEL_THREAD), Some(PrioritisedThread::Server));
        assert_eq!(of("ksoftirqd/0", KERNEL_THREAD), Some(PrioritisedThread::SoftInterrupts));
        assert_eq!(of("kcompactd0", KERNEL_THREAD), None);
        assert_eq!(of("nfsdcltrack", KERNEL_THREAD), None);
        for name in ["nfsd", "kworker/0:1", "ksoftirqd/0"] {
            assert_eq!(of(name, 0x0040_0000), None, "{name}");
        }
    }

    #[test]
    fn with_the_kernels_own_scheduling_nothing_is_changed_or_waited_for() {
        let mut conditions = Conditions::of(&job(Scheduling::Kernel, false));
        assert_eq!(conditions.fix().unwrap(), None);
        let begun = Instant::now();
        assert_eq!(conditions.listen(None).unwrap(), None);
        assert!(begun.elapsed() < Duration::from_millis(50));
    }

    #[test]
    fn a_phase_is_released_at_a_tenth_of_a_second() {
        let instant = Conditions::of(&job(Scheduling::Fixed, false)).listen(None).unwrap().unwrap();
        let left = instant.saturating_sub(monotonic_ns().unwrap());
        // The time left is enough to read counters. A busy machine ends the wait late.
        assert!(left > ALONE && left <= BUSY + ALONE, "{left}");
        stay_busy_until(instant - ALONE).unwrap();
        sleep_until(instant).unwrap();
        assert!(monotonic_ns().unwrap() % silence::RASTER < silence::RASTER / 2);
    }
}
