// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conditions in which phases begin: how the kernel's threads are scheduled, and at which instant.
//!
//! A write over loopback NFS is a race between the threads of the server and the kworkers that send the client's requests. Who
//! wins, and so how often the server wakes for a part of a request, decides how many instructions the flush takes. Real-time
//! priorities decide it the same way each time. The rest is the distance to the next tick of the timer, which is the same in every phase
//! that begins at a whole second, and what the kernel has kept of earlier work: free pages of each CPU, which are few here, and statistics that are
//! added up, which wait.

use std::{collections::BTreeSet, fs, io, path::Path, thread, time::Duration};

use bpfassay_protocol::{
    job::{Job, Scheduling},
    message::FixedThreads,
};
use rustix::{
    io::Errno,
    thread::clock_nanosleep_absolute,
    time::{ClockId, Timespec},
};

use crate::{
    error::{Error, Result},
    link::Link,
    proc::stat::{self, Stat},
    steps::monotonic_ns,
    symbols, system, tool,
};

/// Real-time priority of kworkers: above the server's, so that a request is sent whole before the server wakes.
const KWORKERS: i32 = 20;

/// Real-time priority of the threads of the NFS server.
const SERVER: i32 = 10;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// At least so long before a phase nothing is at work, in nanoseconds: what makes it ready has ended by then.
const QUIET: u64 = 100_000_000;

/// For the last of it nobody but the timer is waited for.
const ALONE: u64 = 1_000_000;

/// The share of time that real-time threads may take, -1: all. Otherwise the kernel holds them up after 0.95 s of each second, in the middle of
/// a phase that is long enough.
const SHARE: &str = "/proc/sys/kernel/sched_rt_runtime_us";

/// How often the kernel adds up statistics of memory, in seconds (`vmstat_update`, mm/vmstat.c). At one second, its work falls into a phase or just
/// beside it: 9,000 instructions, 0.1 % of a read of 64 MiB from the page cache.
const STATISTICS: (&str, &str) = ("/proc/sys/vm/stat_interval", "3600\n");

/// The divisor of a zone's pages of which each CPU may keep as many free ones (`percpu_pagelist_high_fraction`, admin-guide/sysctl/vm.rst). So large a one
/// leaves the least, four batches: how many pages lay there when a phase began decided the cost of its writes by up to 0.3 %.
const PAGE_LISTS: (&str, &str) = ("/proc/sys/vm/percpu_pagelist_high_fraction", "65536\n");

/// What is written to it has the kernel gather free pages into large blocks (admin-guide/sysctl/vm.rst): how many were free in small ones decided the cost of
/// reads that follow by up to 0.1 %.
const COMPACT: &str = "/proc/sys/vm/compact_memory";

/// What holds when a phase begins.
#[derive(Debug)]
pub(crate) struct Conditions {
    /// How long to rest before it: see [`bpfassay_protocol::job::Job::settle_ms`].
    settle: Duration,
    scheduling: Scheduling,
    /// Whether the host receives where the machine code of loaded programs is.
    symbols: bool,
    /// Processes that have been looked at: their kind does not change.
    seen: BTreeSet<u32>,
    /// Whether there is an NFS server.
    has_server: bool,
}

impl Conditions {
    /// As `job` asks for them.
    pub(crate) fn of(job: &Job) -> Self {
        let settle = Duration::from_millis(job.settle_ms);
        Self { settle, scheduling: job.scheduling, symbols: job.symbols, seen: BTreeSet::new(), has_server: false }
    }

    /// Sends where the machine code of programs is, where the job asks for it: before the phases of a run whose tracer or tool has loaded some.
    ///
    /// # Errors
    /// As [`symbols::send_programs`].
    pub(crate) fn send_programs(&self, link: &Link) -> Result<()> {
        if self.symbols { symbols::send_programs(link) } else { Ok(()) }
    }

    /// Gathers free memory into large blocks, where conditions are fixed and the kernel can.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub(crate) fn compact(&self) -> Result<()> {
        match self.scheduling == Scheduling::Fixed && Path::new(COMPACT).exists() {
            true => system::write(COMPACT, "1\n"),
            false => Ok(()),
        }
    }

    /// Waits until the kernel has got done with what came before.
    pub(crate) fn rest(&self, tool: Option<&mut tool::Running>) -> Result<()> {
        match tool {
            None => thread::sleep(self.settle),
            Some(tool) => tool.rest(self.settle)?,
        }
        Ok(())
    }

    /// Gives kworkers and the threads of the NFS server their priorities. Returns how many did not have them yet; `None` where nothing
    /// is fixed, or no server is there.
    ///
    /// # Errors
    /// Where /proc cannot be read or the system refuses.
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
            // One that ended meanwhile needs no priority.
            let Ok(text) = fs::read(&path) else { continue };
            let text = String::from_utf8_lossy(&text);
            let stat = stat::parse(&text).ok_or_else(|| Error::unexpected(&path, "fields as in proc(5)", &text))?;
            found.extend(kind(&stat).map(|kind| (pid, kind)));
        }
        if !self.has_server {
            if !found.iter().any(|(_, kind)| *kind == Kind::Server) {
                return Ok(None);
            }
            self.has_server = true;
            for (path, value) in [(SHARE, "-1\n"), STATISTICS, PAGE_LISTS] {
                // Older kernels do not have all of them.
                if Path::new(path).exists() {
                    system::write(path, value)?;
                }
            }
        }
        self.seen = present;
        let mut fixed = FixedThreads::default();
        for (pid, kind) in found {
            let (priority, count) = match kind {
                Kind::Kworker => (KWORKERS, &mut fixed.kworkers),
                Kind::Server => (SERVER, &mut fixed.nfsd),
            };
            if set_fifo(pid, priority).map_err(Error::system(format!("make the kernel thread {pid} real-time")))? {
                *count = count.saturating_add(1);
            }
        }
        Ok(Some(fixed))
    }

    /// Waits for a whole second of `CLOCK_MONOTONIC`, where phases begin at one; a tool is served meanwhile.
    ///
    /// # Errors
    /// Where the clock cannot be read, or the tool fails.
    pub(crate) fn await_second(&self, tool: Option<&mut tool::Running>) -> Result<()> {
        if self.scheduling == Scheduling::Kernel {
            return Ok(());
        }
        let second = next_second(monotonic_ns()?);
        if let Some(tool) = tool {
            let until = second.saturating_sub(ALONE).saturating_sub(monotonic_ns()?);
            tool.rest(Duration::from_nanos(until))?;
        }
        sleep_until(second)
    }
}

/// The whole second at which a phase begins that is ready at `now`; both in nanoseconds.
fn next_second(now: u64) -> u64 {
    now.saturating_add(QUIET).div_ceil(SECOND).saturating_mul(SECOND)
}

/// Kernel threads with a priority of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Kworker,
    Server,
}

/// Which of them a process is, if any. A program may call itself as it likes, but it is no kernel thread.
fn kind(stat: &Stat<'_>) -> Option<Kind> {
    match stat.name {
        _ if !stat.is_kernel_thread() => None,
        "nfsd" => Some(Kind::Server),
        name => name.starts_with("kworker/").then_some(Kind::Kworker),
    }
}

/// Gives the thread `pid` the policy `SCHED_FIFO`; `false` where it has ended. Not by the C library's function, which musl only has as one that
/// fails.
fn set_fifo(pid: u32, priority: i32) -> io::Result<bool> {
    let parameter = libc::c_int::from(priority);
    // SAFETY: the kernel only reads the parameter, `struct sched_param`, which is one `int` (include/uapi/linux/sched/types.h).
    let status = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, pid as libc::pid_t, libc::SCHED_FIFO, &raw const parameter)
    };
    if status == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        error => Err(error),
    }
}

/// Sleeps until `CLOCK_MONOTONIC` shows `instant`, in nanoseconds.
fn sleep_until(instant: u64) -> Result<()> {
    let seconds = i64::try_from(instant / SECOND).unwrap_or(i64::MAX);
    let request = Timespec { tv_sec: seconds, tv_nsec: (instant % SECOND) as _ };
    loop {
        match clock_nanosleep_absolute(ClockId::Monotonic, &request) {
            Err(Errno::INTR) => {}
            done => return done.map_err(Error::system("sleep until a whole second")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bpfassay_protocol::{
        PROTOCOL_VERSION,
        job::{FileSystem, Task},
    };

    use super::*;

    fn job(scheduling: Scheduling, symbols: bool) -> Job {
        Job {
            protocol: PROTOCOL_VERSION,
            modules: Vec::new(),
            file_system: FileSystem::Tmpfs { size_mib: 1 },
            settle_ms: 0,
            scheduling,
            symbols,
            mounts: Vec::new(),
            task: Task::Runs { runs: Vec::new() },
        }
    }

    /// Elsewhere, the programs of a whole machine would be listed for nobody, and a machine that does not permit that would fail the run.
    #[test]
    fn programs_are_sent_only_where_the_job_asks_for_them() {
        for symbols in [false, true] {
            let file = tempfile::NamedTempFile::new().unwrap();
            let link = Link::into_file(file.reopen().unwrap()).unwrap();
            let length = || file.as_file().metadata().unwrap().len();
            let before = length();
            let sent = Conditions::of(&job(Scheduling::Kernel, symbols)).send_programs(&link);
            match symbols {
                false => assert!(sent.is_ok() && length() == before),
                // Whether or not this machine permits it.
                true => assert!(sent.is_err() || length() > before),
            }
        }
    }

    #[test]
    fn a_phase_begins_at_a_whole_second_that_is_not_too_near() {
        assert_eq!(next_second(0), SECOND);
        assert_eq!(next_second(SECOND - QUIET), SECOND);
        assert_eq!(next_second(SECOND - QUIET + 1), 2 * SECOND);
        assert_eq!(next_second(SECOND), 2 * SECOND);
    }

    #[test]
    fn only_kernel_threads_get_priorities() {
        let of = |name: &str, flags: u64| {
            let line = format!("7 ({name}) S 2 0 0 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 57 {}", "0 ".repeat(30));
            kind(&stat::parse(&line).unwrap())
        };
        const KERNEL_THREAD: u64 = 0x0020_0040;
        assert_eq!(of("kworker/u2:1-rpciod", KERNEL_THREAD), Some(Kind::Kworker));
        assert_eq!(of("nfsd", KERNEL_THREAD), Some(Kind::Server));
        assert_eq!(of("kcompactd0", KERNEL_THREAD), None);
        assert_eq!(of("nfsdcltrack", KERNEL_THREAD), None);
        assert_eq!((of("nfsd", 0x0040_0000), of("kworker/0:1", 0x0040_0000)), (None, None));
    }

    #[test]
    fn as_the_kernel_schedules_nothing_is_changed_and_nothing_is_waited_for() {
        let mut conditions = Conditions::of(&job(Scheduling::Kernel, false));
        assert_eq!(conditions.fix().unwrap(), None);
        let begun = Instant::now();
        conditions.await_second(None).unwrap();
        assert!(begun.elapsed() < Duration::from_millis(50));
    }

    #[test]
    fn a_phase_is_released_at_a_whole_second() {
        Conditions::of(&job(Scheduling::Fixed, false)).await_second(None).unwrap();
        assert!(monotonic_ns().unwrap() % SECOND < QUIET);
    }
}
