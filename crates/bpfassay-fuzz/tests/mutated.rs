// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs each target with its corpus and mutations. A panic, an overflow, or an input that takes too
//! much time or memory is a failure.
//!
//! `BPFASSAY_FUZZ_SEED` chooses other inputs, `BPFASSAY_FUZZ_SECONDS` runs more of them, and
//! `BPFASSAY_FUZZ_INPUT=NUMBER` runs only one. A failure prints how to repeat it and leaves the
//! input in `target/fuzz-failures`. If an input ends the whole program (a stack overflow), its
//! number is in `TARGET.running` there.

mod memory;

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::FileExt as _,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use bpfassay_fuzz::{TARGETS, Target, corpus, mutate};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::time::{ClockId, clock_gettime};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

const SEED: &str = "BPFASSAY_FUZZ_SEED";
const SECONDS: &str = "BPFASSAY_FUZZ_SECONDS";
const INPUT: &str = "BPFASSAY_FUZZ_INPUT";

/// Maximum processor time of an input, in a program without optimisation.
const MOST_TIME: Duration = Duration::from_secs(1);

/// An input that takes this much elapsed time counts as one that never ends.
const MOST_WAITED: Duration = Duration::from_secs(60);

/// Maximum memory of an input: a constant, plus an amount for each input byte.
const MOST_MEMORY: usize = 64 << 20;
const MOST_MEMORY_PER_BYTE: usize = 1000;

fn main() {
    let each = TARGETS.iter().map(|target| Trial::test(format!("target::{}", target.name), || fuzz(target)));
    let others =
        [Trial::test("each_name_stands_for_one_target", names), Trial::test("what_is_looked_for_is_found", findings)];
    libtest_mimic::run(&Arguments::from_args(), each.chain(others).collect()).exit();
}

/// Selects the inputs of a target to run.
struct Order {
    seed: u64,
    /// Only this input.
    only: Option<u64>,
    /// Continue for at least this time.
    at_least: Duration,
}

impl Order {
    fn from_environment() -> Result<Self, Failed> {
        let number = |name: &str| match env::var(name) {
            Ok(text) => text.parse().map(Some).map_err(|_| format!("{name} is no number: {text}")),
            Err(_) => Ok(None),
        };
        Ok(Self {
            seed: number(SEED)?.unwrap_or(1),
            only: number(INPUT)?,
            at_least: Duration::from_secs(number(SECONDS)?.unwrap_or(0)),
        })
    }
}

fn fuzz(target: &'static Target) -> Result<(), Failed> {
    let order = Order::from_environment()?;
    let corpus = corpus::read(target)?;
    if corpus.is_empty() {
        return Err(format!("fuzz/corpus/{} holds nothing to begin with", target.name).into());
    }
    let directory = corpus::workspace().join("target/fuzz-failures");
    fs::create_dir_all(&directory)?;
    let running = directory.join(format!("{}.running", target.name));
    let file = fs::File::create(&running)?;
    let note = move |number: u64| {
        // Without the note, only the end of the program is known; nothing else depends on it.
        let _ = file.write_all_at(format!("{number:20}\n").as_bytes(), 0);
    };
    let outcome = run(order, corpus, target.inputs, note, |input| target.run(input));
    fs::remove_file(&running)?;
    let inputs = outcome.map_err(|failure| {
        let path = directory.join(format!("{}-{}", target.name, failure.number));
        let kept = match fs::write(&path, &failure.input) {
            Ok(()) => format!("the input is in {}", path.display()),
            Err(error) => format!("the input cannot be kept in {}: {error}", path.display()),
        };
        format!(
            "{}\n{kept}; repeat it: {SEED}={} {INPUT}={} cargo test -p bpfassay-fuzz --test mutated target::{}",
            failure.what, failure.seed, failure.number, target.name
        )
    })?;
    match inputs {
        0 => Err("no input was run".into()),
        _ => Ok(()),
    }
}

/// An input for which a property does not hold.
#[derive(Debug)]
struct Failure {
    what: String,
    seed: u64,
    number: u64,
    input: Vec<u8>,
}

/// Runs inputs in another thread, to notice one that never ends. Returns the number of inputs.
fn run(
    order: Order,
    corpus: Vec<Vec<u8>>,
    inputs: u64,
    note: impl Fn(u64) + Send + 'static,
    target: impl Fn(&[u8]) + Send + 'static,
) -> Result<u64, Box<Failure>> {
    let Order { seed, only, at_least } = order;
    let current = Arc::new(Mutex::new((0, Vec::new())));
    let failure = |what: String, (number, input): (u64, Vec<u8>)| Box::new(Failure { what, seed, number, input });
    let (ended, ends) = mpsc::channel();
    let known = Arc::clone(&current);
    // This is the stack size of main threads. An input can kill a reader that needs more.
    let runner = thread::Builder::new().stack_size(8 << 20).spawn(move || {
        let began = Instant::now();
        let last = only.map_or(inputs, |only| only + 1);
        let mut number = only.unwrap_or(0);
        while number < last || (only.is_none() && began.elapsed() < at_least) {
            let input = mutate::input(&corpus, seed, number);
            *known.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = (number, input.clone());
            note(number);
            let found = one(&target, &input, number, seed);
            let _ = ended.send(found.map_err(|what| (what, number, input)));
            number += 1;
        }
        number
    });
    let runner = match runner {
        Ok(runner) => runner,
        Err(error) => return Err(failure(format!("no thread can be made: {error}"), (0, Vec::new()))),
    };
    let begun = || current.lock().map_or_else(|poisoned| poisoned.into_inner().clone(), |current| current.clone());
    loop {
        match ends.recv_timeout(MOST_WAITED) {
            Ok(Ok(())) => {}
            Ok(Err((what, number, input))) => return Err(failure(what, (number, input))),
            Err(RecvTimeoutError::Timeout) => {
                return Err(failure(format!("the input has not ended after {} s", MOST_WAITED.as_secs()), begun()));
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    runner.join().map_err(|_| failure("the thread died".to_owned(), begun()))
}

/// Passes one input to the target. The error says what does not hold.
fn one(target: &impl Fn(&[u8]), input: &[u8], number: u64, seed: u64) -> Result<(), String> {
    let most = MOST_MEMORY + MOST_MEMORY_PER_BYTE * input.len();
    memory::begin(seed, number);
    let before = processor_time();
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| target(input)));
    let taken = processor_time().saturating_sub(before);
    let memory = memory::most();
    if let Err(payload) = outcome {
        let message = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
        return Err(format!("panic: {}", message.unwrap_or("without a message")));
    }
    if memory > most {
        return Err(format!("{memory} bytes of memory for an input of {} bytes: {most} are allowed", input.len()));
    }
    if taken > MOST_TIME {
        return Err(format!("{} ms for an input of {} bytes", taken.as_millis(), input.len()));
    }
    Ok(())
}

/// Returns the time of this thread, which other programs on the machine do not affect.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or_default(), time.tv_nsec.try_into().unwrap_or_default())
}

/// Fails if two targets have the same name.
fn names() -> Result<(), Failed> {
    let names: BTreeSet<&str> = TARGETS.iter().map(|target| target.name).collect();
    if names.len() != TARGETS.len() {
        return Err("a name stands for two targets".into());
    }
    Ok(())
}

/// Tests the test: it must notice a panic, an overflow, memory and time, and name the input.
fn findings() -> Result<(), Failed> {
    let order = || Order { seed: 1, only: None, at_least: Duration::ZERO };
    let corpus = || vec![b"first".to_vec(), b"second".to_vec()];
    let noticed = |message: &str, target: fn(&[u8])| match run(order(), corpus(), 2, |_| (), target) {
        Err(failure) if failure.what.contains(message) && failure.number == 1 && failure.input == b"second" => Ok(()),
        other => Err(Failed::from(format!("{message}: {other:?}"))),
    };
    noticed("panic: not second", |input| assert!(input != b"second", "not second"))?;
    noticed("overflow", |input| {
        let least = u8::try_from(input.len()).unwrap_or(u8::MAX);
        std::hint::black_box(least * if input == b"second" { 100 } else { 1 });
    })?;
    noticed("bytes of memory for an input of 6 bytes", |input| {
        let size = if input == b"second" { MOST_MEMORY + 10_000 } else { 10 };
        std::hint::black_box(vec![0u8; size]);
    })?;
    noticed(" ms for an input of 6 bytes", |input| {
        let before = processor_time();
        while input == b"second" && processor_time() - before < MOST_TIME + Duration::from_millis(50) {}
    })?;
    match run(order(), corpus(), 200, |_| (), |_| ()) {
        Ok(200) => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}
