// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order in which guests are built. Some workers download and unpack kernels while one thread
//! builds programs. A guest is handed out as soon as its kernel and the programs of its
//! architecture are available.
//!
//! This module decides only the order and the priority; callers provide the kernels and programs.
//! Work for later guests yields the CPU to work for the first guest, and to runs that are measured
//! in the meantime.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::ControlFlow,
    panic::resume_unwind,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use bpfassay_packages::stages::yield_from_now;
use bpfassay_protocol::Arch;

use crate::error::Result;

/// Receives programs as soon as they are available. It can ask to stop.
pub(super) type ProgramSink<'a, P> = &'a mut dyn FnMut(Arch, Result<P>) -> ControlFlow<()>;

/// The work to do in parallel.
pub(super) struct OverlappingWork<K, P> {
    /// The architecture of each kernel, in this order. The guest with the first kernel is needed
    /// most.
    pub(super) kernels: Vec<Arch>,
    /// Provides the kernel with this index.
    pub(super) kernel: K,
    /// Builds the programs for all architectures, one after the other. An error applies to all
    /// architectures that have none yet.
    pub(super) programs: P,
}

/// The parts of one architecture's guests that are available.
struct Gathered<K, P> {
    /// The indexes of the kernels whose guests were not handed out.
    open: BTreeSet<usize>,
    /// Available kernels among `open`, by index.
    kernels: BTreeMap<usize, K>,
    programs: Option<P>,
}

/// Receives kernels (by their indexes) and the programs of their architecture, or the indexes of
/// kernels and the error that affects them.
pub(super) type ReadyReceiver<'a, K, P> =
    dyn Fn(Vec<usize>, Result<(BTreeMap<usize, K>, P)>) -> ControlFlow<()> + Sync + 'a;

/// Does `work`. Calls `ready` from several threads, once for each kernel: with the kernel and its
/// programs when both are available, or with the first error. When `ready` asks to stop, nothing
/// new is started.
pub(super) fn overlap<K: Send, P: Clone + Send>(
    workers: usize,
    work: OverlappingWork<impl Fn(usize) -> Result<K> + Sync, impl FnOnce(ProgramSink<'_, P>) -> Result<()> + Send>,
    ready: &ReadyReceiver<'_, K, P>,
) {
    let OverlappingWork { kernels, kernel, programs } = work;
    let first = kernels.first().copied();
    let mut all = BTreeMap::<Arch, Gathered<K, P>>::new();
    for (index, &arch) in kernels.iter().enumerate() {
        let empty = || Gathered { open: BTreeSet::new(), kernels: BTreeMap::new(), programs: None };
        all.entry(arch).or_insert_with(empty).open.insert(index);
    }
    let all = Mutex::new(all);
    let is_stopped = AtomicBool::new(false);
    // Stores a part, and hands out the guests that it completes.
    let gather = |arch: Arch, part: Gathering<K, P>| {
        let Some((indexes, made)) = locked(&all).get_mut(&arch).and_then(|of_arch| of_arch.take(part)) else { return };
        if ready(indexes, made).is_break() {
            is_stopped.store(true, Ordering::Relaxed);
        }
    };
    let waiting = Mutex::new(kernels.iter().copied().enumerate().collect::<VecDeque<_>>());
    let make_kernels = || {
        loop {
            let next = locked(&waiting).pop_front();
            let Some((index, arch)) = next.filter(|_| !is_stopped.load(Ordering::Relaxed)) else { return };
            if locked(&all).get(&arch).is_some_and(|of_arch| of_arch.open.contains(&index)) {
                if index > 0 {
                    yield_from_now();
                }
                gather(arch, Gathering::Kernel(index, kernel(index)));
            }
        }
    };
    let make_programs = || {
        let mut sink = |arch, built: Result<P>| {
            gather(arch, Gathering::Programs(built));
            if Some(arch) == first {
                yield_from_now();
            }
            if is_stopped.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        if let Err(error) = programs(&mut sink) {
            let mut left = Vec::new();
            for of_arch in locked(&all).values_mut().filter(|of_arch| of_arch.programs.is_none()) {
                left.extend(std::mem::take(&mut of_arch.open));
            }
            if !left.is_empty() && ready(left, Err(error)).is_break() {
                is_stopped.store(true, Ordering::Relaxed);
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

/// A kernel, by its index, or the programs of one architecture.
enum Gathering<K, P> {
    Kernel(usize, Result<K>),
    Programs(Result<P>),
}

/// The indexes of kernels, and the result for them.
type Handed<K, P> = (Vec<usize>, Result<(BTreeMap<usize, K>, P)>);

impl<K, P: Clone> Gathered<K, P> {
    /// Stores `part`. Returns the guests that are ready to be passed on.
    fn take(&mut self, part: Gathering<K, P>) -> Option<Handed<K, P>> {
        match part {
            Gathering::Kernel(index, _) if !self.open.contains(&index) => return None,
            Gathering::Kernel(index, Err(error)) => {
                self.open.remove(&index);
                return Some((vec![index], Err(error)));
            }
            Gathering::Programs(Err(error)) => {
                self.kernels.clear();
                let left: Vec<usize> = std::mem::take(&mut self.open).into_iter().collect();
                return (!left.is_empty()).then_some((left, Err(error)));
            }
            Gathering::Kernel(index, Ok(kernel)) => drop(self.kernels.insert(index, kernel)),
            Gathering::Programs(Ok(programs)) => self.programs = Some(programs),
        }
        let programs = self.programs.clone().filter(|_| !self.kernels.is_empty())?;
        let kernels = std::mem::take(&mut self.kernels);
        self.open.retain(|index| !kernels.contains_key(index));
        Some((kernels.keys().copied().collect(), Ok((kernels, programs))))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of kernels that are downloaded and unpacked in parallel. It is at least two, because a
/// download leaves the CPU idle, and at most four, which mirrors accept from one client.
pub(super) fn workers() -> usize {
    thread::available_parallelism().map_or(1, usize::from).clamp(2, 4)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use bpfassay_packages::stages::YIELDING;

    use super::*;
    use crate::error::Error;

    const ARCHS: [Arch; 3] = [Arch::X86_64, Arch::Aarch64, Arch::Riscv64];

    fn failed(what: &str) -> Error {
        Error::Build { what: what.to_owned() }
    }

    /// The calls of `ready`, in order: indexes of kernels, and the result or error.
    type Handed = Vec<(Vec<usize>, Result<(Vec<usize>, String), String>)>;

    fn run(
        workers: usize,
        kernels: &[Arch],
        kernel: impl Fn(usize) -> Result<usize> + Sync,
        programs: impl FnOnce(ProgramSink<'_, String>) -> Result<()> + Send,
        ready: impl Fn(&[usize], bool) -> ControlFlow<()> + Sync,
    ) -> Handed {
        let handed = Mutex::new(Vec::new());
        overlap(workers, OverlappingWork { kernels: kernels.to_vec(), kernel, programs }, &|indexes, made| {
            let is_made = made.is_ok();
            let made = made.map(|(kernels, programs)| (kernels.into_values().collect(), programs));
            // Recorded first: in some tests `ready` lets other threads continue, and their results
            // come after this one.
            locked(&handed).push((indexes.clone(), made.map_err(|error| error.to_string())));
            ready(&indexes, is_made)
        });
        handed.into_inner().unwrap()
    }

    fn go_on(_: &[usize], _: bool) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    #[test]
    fn an_architecture_is_handed_out_while_programs_of_the_next_are_built() {
        let (first_is_out, wait) = mpsc::channel();
        let programs = move |sink: ProgramSink<'_, String>| {
            let _ = sink(ARCHS[0], Ok("p0".to_owned()));
            // This would wait for ever if the first guest were handed out at the end.
            wait.recv().unwrap();
            let _ = sink(ARCHS[1], Ok("p1".to_owned()));
            Ok(())
        };
        let first_is_out = Mutex::new(first_is_out);
        let mut handed = run(2, &[ARCHS[0], ARCHS[0], ARCHS[1]], Ok, programs, |indexes, is_made| {
            assert!(is_made);
            if indexes.contains(&0) {
                locked(&first_is_out).send(()).unwrap();
            }
            ControlFlow::Continue(())
        });
        handed.sort();
        let of_first: Vec<usize> = handed[..handed.len() - 1].iter().flat_map(|(indexes, _)| indexes.clone()).collect();
        assert_eq!(of_first, [0, 1]);
        assert_eq!(handed.last(), Some(&(vec![2], Ok((vec![2], "p1".to_owned())))));
    }

    #[test]
    fn a_guest_is_handed_out_while_kernels_of_its_architecture_are_made() {
        let (first_is_out, wait) = mpsc::channel();
        let (programs_are_there, wait_for_programs) = mpsc::channel();
        let (first_is_out, wait) = (Mutex::new(first_is_out), Mutex::new(wait));
        let wait_for_programs = Mutex::new(wait_for_programs);
        let kernel = |index| {
            if index == 0 {
                locked(&wait_for_programs).recv().unwrap();
            } else {
                // This would wait for ever if all kernels of the architecture were handed out at
                // once.
                locked(&wait).recv().unwrap();
            }
            Ok(index)
        };
        let programs = move |sink: ProgramSink<'_, String>| {
            let _ = sink(ARCHS[0], Ok("p0".to_owned()));
            programs_are_there.send(()).unwrap();
            Ok(())
        };
        let handed = run(2, &[ARCHS[0]; 2], kernel, programs, |indexes, _| {
            if indexes == [0] {
                locked(&first_is_out).send(()).unwrap();
            }
            ControlFlow::Continue(())
        });
        let made = |index| (vec![index], Ok((vec![index], "p0".to_owned())));
        assert_eq!(handed, [made(0), made(1)]);
    }

    #[test]
    fn kernels_are_made_while_programs_are_built_and_beside_each_other() {
        // Programs wait for both kernels, and each kernel waits for the other.
        let both = std::sync::Barrier::new(3);
        let kernel = |index| {
            both.wait();
            Ok(index)
        };
        let programs = |sink: ProgramSink<'_, String>| {
            both.wait();
            let _ = sink(ARCHS[0], Ok("p".to_owned()));
            Ok(())
        };
        let handed = run(2, &[ARCHS[0]; 2], kernel, programs, go_on);
        let mut indexes: Vec<usize> = handed.iter().flat_map(|(indexes, _)| indexes.clone()).collect();
        indexes.sort_unstable();
        assert_eq!(indexes, [0, 1]);
    }

    #[test]
    fn what_fails_for_one_guest_costs_only_that_one() {
        let kernel = |index| if index == 1 { Err(failed("no kernel")) } else { Ok(index) };
        let programs = |sink: ProgramSink<'_, String>| {
            let _ = sink(ARCHS[0], Ok("p0".to_owned()));
            let _ = sink(ARCHS[1], Ok("p1".to_owned()));
            let _ = sink(ARCHS[2], Err(failed("no programs")));
            Ok(())
        };
        let mut handed = run(1, &[ARCHS[0], ARCHS[0], ARCHS[1], ARCHS[2], ARCHS[2]], kernel, programs, go_on);
        handed.sort();
        let expected = [
            (vec![0], Ok((vec![0], "p0".to_owned()))),
            (vec![1], Err("no kernel".to_owned())),
            (vec![2], Ok((vec![2], "p1".to_owned()))),
            (vec![3, 4], Err("no programs".to_owned())),
        ];
        assert_eq!(handed, expected);
    }

    #[test]
    fn an_error_of_all_programs_is_reported_once_for_those_that_have_none() {
        let programs = |sink: ProgramSink<'_, String>| {
            let _ = sink(ARCHS[0], Ok("p0".to_owned()));
            Err(failed("no toolchain"))
        };
        let mut handed = run(1, &ARCHS, Ok, programs, go_on);
        handed.sort();
        let expected = [(vec![0], Ok((vec![0], "p0".to_owned()))), (vec![1, 2], Err("no toolchain".to_owned()))];
        assert_eq!(handed, expected);
    }

    #[test]
    fn what_other_guests_need_yields_to_the_first() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let usual = priority();
        let seen = Mutex::new(Vec::new());
        let kernel = |index| {
            locked(&seen).push((index == 0, "kernel", priority() - usual));
            Ok(index)
        };
        let programs = |sink: ProgramSink<'_, String>| {
            for arch in ARCHS {
                locked(&seen).push((arch == ARCHS[0], "programs", priority() - usual));
                let _ = sink(arch, Ok("p".to_owned()));
            }
            Ok(())
        };
        run(1, &[ARCHS[0], ARCHS[0], ARCHS[1]], kernel, programs, go_on);
        let seen = seen.into_inner().unwrap();
        assert_eq!(seen.len(), 6);
        for (is_for_first, what, added) in seen {
            // Nice values end at 19, whatever value this test was started with.
            let expected = if is_for_first { 0 } else { YIELDING.min(19 - usual) };
            assert_eq!(added, expected, "{is_for_first} {what}");
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
        let programs = move |sink: ProgramSink<'_, String>| {
            wait.recv().unwrap();
            // After a request to stop, the sink still accepts calls but hands nothing out.
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
