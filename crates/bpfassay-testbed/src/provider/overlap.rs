// SPDX-License-Identifier: MIT OR Apache-2.0
//! What overlaps while guests are made: kernels are downloaded and unpacked by some workers while one thread builds programs, and the
//! guests of an architecture are handed out as soon as its kernels and programs are there.
//!
//! What is made is up to the caller: here is only the order, and the priority: what the first architecture's guests do not need yields the
//! CPU to what they need, and to the runs that are measured in them meanwhile.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, VecDeque},
    ops::ControlFlow,
    panic::resume_unwind,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use bpfassay_protocol::Arch;

use crate::Result;

/// Added to the nice value of what works for another architecture than the first: a weight of a tenth (`sched_prio_to_weight`,
/// kernel/sched/core.c).
const YIELDING: i32 = 10;

/// What programs are given to, as soon as they are there; it may ask to stop.
pub(super) type Sink<'a, P> = &'a mut dyn FnMut(Arch, Result<P>) -> ControlFlow<()>;

/// What is made side by side.
pub(super) struct Work<K, P> {
    /// A kernel for each of these architectures, in this order; the guests of the first architecture are wanted most.
    pub(super) kernels: Vec<Arch>,
    /// Makes the kernel with this index.
    pub(super) kernel: K,
    /// Makes the programs for all architectures, one after the other. An error is about all those that have none yet.
    pub(super) programs: P,
}

/// What is there of the guests of an architecture.
struct Gathered<K, P> {
    /// Kernels by their index; those that are missing are to come.
    kernels: BTreeMap<usize, K>,
    of: usize,
    programs: Option<P>,
    /// Something of it failed, or it was handed out: nothing more is made for it.
    is_done: bool,
}

/// Takes the kernels (by their indexes) and the programs of an architecture, or an error and the architectures that it is about.
pub(super) type Ready<'a, K, P> = dyn Fn(Vec<Arch>, Result<(BTreeMap<usize, K>, P)>) -> ControlFlow<()> + Sync + 'a;

/// Does `work`. Kernels (by their indexes) and programs of an architecture are given to `ready` when they all are there, or the first
/// error, with the architectures that it leaves without guests. `ready` is called from several threads, for each architecture once; when it
/// asks to stop, nothing more is begun.
pub(super) fn overlap<K: Send, P: Send>(
    workers: usize,
    work: Work<impl Fn(usize) -> Result<K> + Sync, impl FnOnce(Sink<'_, P>) -> Result<()> + Send>,
    ready: &Ready<'_, K, P>,
) {
    let Work { kernels, kernel, programs } = work;
    let first = kernels.first().copied();
    let mut all = BTreeMap::<Arch, Gathered<K, P>>::new();
    for &arch in &kernels {
        let empty = || Gathered { kernels: BTreeMap::new(), of: 0, programs: None, is_done: false };
        all.entry(arch).or_insert_with(empty).of += 1;
    }
    let all = Mutex::new(all);
    let is_stopped = AtomicBool::new(false);
    let stop_if = |flow: ControlFlow<()>| {
        if flow.is_break() {
            is_stopped.store(true, Ordering::Relaxed);
        }
    };
    // Puts something in its place, and hands out what is complete by that.
    let gather = |arch: Arch, part: Result<Gathering<K, P>>| {
        let mut gathered = locked(&all);
        let Some(of_arch) = gathered.get_mut(&arch).filter(|of_arch| !of_arch.is_done) else { return };
        let outcome = match part {
            Ok(part) => match of_arch.take(part) {
                Some(whole) => Ok(whole),
                None => return,
            },
            Err(error) => Err(error),
        };
        of_arch.is_done = true;
        drop(gathered);
        stop_if(ready(vec![arch], outcome));
    };
    let waiting = Mutex::new(kernels.iter().copied().enumerate().collect::<VecDeque<_>>());
    let make_kernels = || {
        let yielding = Yielding::default();
        loop {
            let next = locked(&waiting).pop_front();
            let Some((index, arch)) = next.filter(|_| !is_stopped.load(Ordering::Relaxed)) else { return };
            if locked(&all).get(&arch).is_some_and(|of_arch| !of_arch.is_done) {
                if Some(arch) != first {
                    yielding.begin();
                }
                gather(arch, kernel(index).map(|kernel| Gathering::Kernel(index, kernel)));
            }
        }
    };
    let make_programs = || {
        let yielding = Yielding::default();
        let mut sink = |arch, built: Result<P>| {
            gather(arch, built.map(Gathering::Programs));
            if Some(arch) == first {
                yielding.begin();
            }
            if is_stopped.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        if let Err(error) = programs(&mut sink) {
            let mut left = Vec::new();
            for (&arch, of_arch) in locked(&all).iter_mut() {
                if !of_arch.is_done && of_arch.programs.is_none() {
                    of_arch.is_done = true;
                    left.push(arch);
                }
            }
            if !left.is_empty() {
                stop_if(ready(left, Err(error)));
            }
        }
    };
    thread::scope(|scope| {
        let programs = scope.spawn(make_programs);
        let workers: Vec<_> = (0..workers.min(kernels.len())).map(|_| scope.spawn(make_kernels)).collect();
        for thread in workers.into_iter().chain([programs]) {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}

/// The priority of a thread, and of the processes that it starts. It can be lowered only: to raise it again takes a privilege.
#[derive(Default)]
struct Yielding(OnceCell<()>);

impl Yielding {
    /// Lowers it, unless that was done.
    fn begin(&self) {
        // Of the calling thread alone (nice(2), "C library/kernel differences"). Without it, everything is made all the same.
        self.0.get_or_init(|| {
            let _ = rustix::process::nice(YIELDING);
        });
    }
}

/// A part of the guests of an architecture.
enum Gathering<K, P> {
    Kernel(usize, K),
    Programs(P),
}

impl<K, P> Gathered<K, P> {
    /// Everything, where `part` was the last that was missing.
    fn take(&mut self, part: Gathering<K, P>) -> Option<(BTreeMap<usize, K>, P)> {
        match part {
            Gathering::Kernel(index, kernel) => drop(self.kernels.insert(index, kernel)),
            Gathering::Programs(programs) => self.programs = Some(programs),
        }
        if self.kernels.len() < self.of {
            return None;
        }
        self.programs.take().map(|programs| (std::mem::take(&mut self.kernels), programs))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many kernels are downloaded and unpacked side by side: two at least, because a download leaves the CPU idle, and no more than a
/// mirror takes from one client without complaint.
pub(super) fn workers() -> usize {
    thread::available_parallelism().map_or(1, usize::from).clamp(2, 4)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::Error;

    const ARCHS: [Arch; 3] = [Arch::X86_64, Arch::Aarch64, Arch::Riscv64];

    fn failed(what: &str) -> Error {
        Error::Build { what: what.to_owned() }
    }

    /// What was handed out, in order: architectures, kernels, and programs or the error.
    type Handed = Vec<(Vec<Arch>, Result<(Vec<usize>, String), String>)>;

    fn run(
        workers: usize,
        kernels: &[Arch],
        kernel: impl Fn(usize) -> Result<usize> + Sync,
        programs: impl FnOnce(Sink<'_, String>) -> Result<()> + Send,
        ready: impl Fn(&[Arch], bool) -> ControlFlow<()> + Sync,
    ) -> Handed {
        let handed = Mutex::new(Vec::new());
        overlap(workers, Work { kernels: kernels.to_vec(), kernel, programs }, &|archs, made| {
            let flow = ready(&archs, made.is_ok());
            let made = made.map(|(kernels, programs)| (kernels.into_values().collect(), programs));
            locked(&handed).push((archs, made.map_err(|error| error.to_string())));
            flow
        });
        handed.into_inner().unwrap()
    }

    fn go_on(_: &[Arch], _: bool) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    #[test]
    fn an_architecture_is_handed_out_while_programs_of_the_next_are_built() {
        let (first_is_out, wait) = mpsc::channel();
        let programs = move |sink: Sink<'_, String>| {
            let _ = sink(ARCHS[0], Ok("p0".to_owned()));
            // Would wait for ever if the first were handed out at the end.
            wait.recv().unwrap();
            let _ = sink(ARCHS[1], Ok("p1".to_owned()));
            Ok(())
        };
        let first_is_out = Mutex::new(first_is_out);
        let handed = run(2, &[ARCHS[0], ARCHS[0], ARCHS[1]], Ok, programs, |archs, is_made| {
            assert!(is_made);
            if archs == [ARCHS[0]] {
                locked(&first_is_out).send(()).unwrap();
            }
            ControlFlow::Continue(())
        });
        let expected =
            [(vec![ARCHS[0]], Ok((vec![0, 1], "p0".to_owned()))), (vec![ARCHS[1]], Ok((vec![2], "p1".to_owned())))];
        assert_eq!(handed, expected);
    }

    #[test]
    fn kernels_are_made_while_programs_are_built_and_beside_each_other() {
        // Programs wait for both kernels, and each kernel for the other.
        let both = std::sync::Barrier::new(3);
        let kernel = |index| {
            both.wait();
            Ok(index)
        };
        let programs = |sink: Sink<'_, String>| {
            both.wait();
            let _ = sink(ARCHS[0], Ok("p".to_owned()));
            Ok(())
        };
        let handed = run(2, &[ARCHS[0]; 2], kernel, programs, go_on);
        assert_eq!(handed, [(vec![ARCHS[0]], Ok((vec![0, 1], "p".to_owned())))]);
    }

    #[test]
    fn what_fails_for_one_architecture_costs_only_that_one() {
        let kernel = |index| if index == 1 { Err(failed("no kernel")) } else { Ok(index) };
        let programs = |sink: Sink<'_, String>| {
            let _ = sink(ARCHS[0], Ok("p0".to_owned()));
            let _ = sink(ARCHS[1], Ok("p1".to_owned()));
            let _ = sink(ARCHS[2], Err(failed("no programs")));
            Ok(())
        };
        let mut handed = run(1, &ARCHS, kernel, programs, go_on);
        handed.sort_by_key(|(archs, _)| ARCHS.iter().position(|arch| *arch == archs[0]));
        let is_made: Vec<bool> = handed.iter().map(|(_, made)| made.is_ok()).collect();
        assert_eq!(is_made, [true, false, false]);
        assert_eq!(handed[1].1, Err("no kernel".to_owned()));
        assert_eq!(handed[2].1, Err("no programs".to_owned()));
    }

    #[test]
    fn an_error_of_all_programs_is_reported_once_for_those_that_have_none() {
        let programs = |sink: Sink<'_, String>| {
            let _ = sink(ARCHS[0], Ok("p0".to_owned()));
            Err(failed("no toolchain"))
        };
        let mut handed = run(1, &ARCHS, Ok, programs, go_on);
        handed.sort_by_key(|(archs, _)| archs.len());
        let mut rest = ARCHS[1..].to_vec();
        rest.sort();
        assert_eq!(handed.len(), 2);
        assert_eq!(handed[0], (vec![ARCHS[0]], Ok((vec![0], "p0".to_owned()))));
        assert_eq!(handed[1], (rest, Err("no toolchain".to_owned())));
    }

    #[test]
    fn what_other_architectures_need_yields_to_the_first() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let usual = priority();
        let seen = Mutex::new(Vec::new());
        let kernel = |index| {
            locked(&seen).push((ARCHS[index], "kernel", priority() - usual));
            Ok(index)
        };
        let programs = |sink: Sink<'_, String>| {
            for arch in ARCHS {
                locked(&seen).push((arch, "programs", priority() - usual));
                let _ = sink(arch, Ok("p".to_owned()));
            }
            Ok(())
        };
        run(1, &ARCHS, kernel, programs, go_on);
        let seen = seen.into_inner().unwrap();
        assert_eq!(seen.len(), 6);
        for (arch, what, added) in seen {
            // No value is above 19, whatever this test itself was started with.
            let expected = if arch == ARCHS[0] { 0 } else { YIELDING.min(19 - usual) };
            assert_eq!(added, expected, "{arch} {what}");
        }
        assert_eq!(priority(), usual);
    }

    #[test]
    fn nothing_is_begun_after_a_stop() {
        let begun = Mutex::new(Vec::new());
        let kernel = |index| {
            locked(&begun).push(index);
            Err(failed("no mirror"))
        };
        let (stopped, wait) = mpsc::channel();
        let programs = move |sink: Sink<'_, String>| {
            wait.recv().unwrap();
            // What asked to stop is given nothing more of this architecture.
            while sink(ARCHS[0], Ok("p".to_owned())).is_continue() {
                thread::yield_now();
            }
            Ok(())
        };
        let stopped = Mutex::new(stopped);
        let handed = run(1, &ARCHS, kernel, programs, |_, _| {
            locked(&stopped).send(()).unwrap();
            ControlFlow::Break(())
        });
        assert_eq!(handed.len(), 1);
        assert_eq!(*locked(&begun), [0]);
    }
}
