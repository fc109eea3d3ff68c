// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads of processes, as the kernel has them now.

use std::{fs, path::Path};

use bpfassay_protocol::{message::MAX_TASKS, tracer_messages::Task};
use rustix::process::Pid;

/// Returns the threads of `processes`, sorted; `None` if there are more than [`MAX_TASKS`]. A
/// thread that exits in the meantime can be missing.
pub(crate) fn of_processes(processes: impl IntoIterator<Item = Pid>) -> Option<Vec<Task>> {
    let mut tasks = Vec::new();
    for process in processes {
        let process = process.as_raw_nonzero().get().unsigned_abs();
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let id = thread.file_name().to_string_lossy().parse().ok();
            tasks.extend(id.zip(name(&thread.path())).map(|(id, name)| Task::new(process, id, name)));
            if tasks.len() > MAX_TASKS {
                return None;
            }
        }
    }
    tasks.sort_unstable();
    Some(tasks)
}

/// Returns the name of the calling thread; empty if the kernel does not tell it.
pub(crate) fn own_name() -> String {
    name(Path::new("/proc/thread-self")).unwrap_or_default()
}

/// Returns the name of the thread with this directory in `/proc`; `None` if it has exited.
fn name(thread: &Path) -> Option<String> {
    let name = fs::read(thread.join("comm")).ok()?;
    Some(String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned())
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use rustix::{
        process::getpid,
        thread::{gettid, set_name},
    };

    use super::*;

    #[test]
    fn threads_are_those_of_the_kernel_with_their_names() {
        let (begun, has_begun) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let other = thread::spawn(move || {
            set_name(c"a \xff\nb").unwrap();
            begun.send((gettid().as_raw_nonzero().get().unsigned_abs(), own_name())).unwrap();
            ended.recv().unwrap_err();
        });
        let (thread, own) = has_begun.recv().unwrap();
        let process = getpid();
        // No process has the other id, which is above the kernel's largest.
        let tasks = of_processes([process, Pid::from_raw(i32::MAX).unwrap()]).unwrap();
        let process = process.as_raw_nonzero().get().unsigned_abs();
        assert_eq!(own, "a \u{fffd}\nb");
        assert!(tasks.contains(&Task::new(process, thread, own)), "{tasks:?}");
        assert!(tasks.iter().any(|task| task.thread.is_none()) && tasks.iter().all(|task| task.process == process));
        assert!(tasks.is_sorted());
        drop(end);
        other.join().unwrap();
    }

    #[test]
    fn more_threads_than_the_bound_are_none() {
        let once = of_processes([getpid()]).unwrap();
        assert!(!once.is_empty());
        assert_eq!(of_processes(std::iter::repeat_n(getpid(), MAX_TASKS + 1)), None);
    }
}
