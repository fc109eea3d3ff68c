// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs that are compared: every file in `ior-configs/`, and generated combinations of options.

use std::fs;

use bpfassay_ior::{AccessOrder, Api, Options, Packet, ReorderRandom};

use super::{Case, Job, workspace};

/// Number of generated combinations.
pub(crate) const GENERATED: usize = 280;

/// Returns every file in `ior-configs/` that the engine supports, with one rank and, except for the
/// big one, with two.
pub(crate) fn configs() -> Vec<Case> {
    let mut paths: Vec<_> =
        fs::read_dir(workspace().join("ior-configs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "ior"));
    paths.sort();
    assert!(paths.len() >= 8, "script files are missing: {paths:?}");
    let mut cases = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap().to_str().unwrap();
        if name.contains("mpiio") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let most = if name.starts_with("ceems") { 1 } else { 2 };
        for ranks in 1..=most {
            cases.push(Case { name: format!("{name}-{ranks}"), ranks, job: Job::Script(text.clone()) });
        }
    }
    cases
}

/// A small generator of numbers (SplitMix64), so that the set is the same everywhere.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[(self.next() % choices.len() as u64) as usize]
    }

    /// Returns true once in `times` calls, on average.
    fn once_in(&mut self, times: u64) -> bool {
        self.next().is_multiple_of(times)
    }
}

/// Generates combinations that IOR accepts and whose calls do not depend on the time.
pub(crate) fn generated() -> Vec<Case> {
    let mut numbers = Numbers(0x0101_5eed);
    let mut cases = Vec::new();
    while cases.len() < GENERATED {
        let ranks = numbers.one_of(&[1, 1, 2, 2, 3, 4]);
        let options = options(&mut numbers, ranks);
        if options.validate().is_err() {
            continue;
        }
        let is_script = cases.len() % 5 == 4;
        let job = if is_script { Job::Script(script(&mut numbers, &options)) } else { Job::Args(Box::new(options)) };
        cases.push(Case { name: format!("{:03}", cases.len()), ranks, job });
    }
    cases
}

fn options(numbers: &mut Numbers, ranks: u32) -> Options {
    let transfer_size = numbers.one_of(&[4 << 10, 8 << 10, 12 << 10, 64 << 10]);
    let (write, read, check_write, check_read) = numbers.one_of(&[
        (true, true, false, false),
        (true, true, false, false),
        (true, false, false, false),
        (true, false, true, false),
        (true, true, true, false),
        (true, false, false, true),
        (true, true, true, true),
    ]);
    let mut options = Options {
        api: numbers.one_of(&[Api::Posix, Api::Posix, Api::Posix, Api::Mmap]),
        transfer_size,
        block_size: transfer_size * numbers.one_of(&[1, 2, 4, 7]),
        segments: numbers.one_of(&[1, 1, 2, 3]),
        repetitions: numbers.one_of(&[1, 1, 2, 3]),
        write,
        read,
        check_write,
        check_read,
        collective: numbers.once_in(5),
        intra_test_barriers: numbers.once_in(4),
        fsync: numbers.once_in(3),
        fsync_per_write: numbers.once_in(6),
        use_existing: numbers.once_in(5),
        file_per_process: numbers.once_in(2),
        keep: numbers.once_in(3),
        keep_with_error: numbers.once_in(4),
        multi_file: numbers.once_in(4),
        single_attempt: numbers.once_in(5),
        packet: numbers.one_of(Packet::ALL),
        signature: if numbers.once_in(4) { 0 } else { 573 },
        verbose: numbers.one_of(&[0, 0, 1]),
        reference: numbers.one_of(&[0, 7]),
        order: numbers.one_of(&[AccessOrder::Sequential, AccessOrder::Sequential, AccessOrder::Shuffled]),
        ..Options::default()
    };
    options.unique_dir = options.file_per_process && numbers.once_in(3);
    if options.order == AccessOrder::Shuffled {
        options.random_seed = Some(numbers.one_of(&[0, 1, 42, 123_456]));
    }
    match numbers.next() % 5 {
        0 => options.reorder_tasks = true,
        1 => options.reorder_random = ReorderRandom::Draw,
        2 => options.reorder_random = ReorderRandom::Shuffle,
        _ => {}
    }
    options.reorder_random_seed = numbers.one_of(&[0, 3, -11]);
    if numbers.once_in(2) && ranks > 1 {
        options.tasks_on_node0 = Some(1);
        options.task_per_node_offset = numbers.one_of(&[1, 1, 2]);
        options.nodes = numbers.one_of(&[None, Some(2)]);
    }
    if numbers.once_in(4) {
        options.deadline = 1000;
        options.wear_out = numbers.once_in(2);
    }
    if numbers.once_in(5) {
        options.wear_out_iterations = numbers.one_of(&[1, 2, 5]);
    }
    options.max_time = numbers.one_of(&[0, 0, 5]);
    if ranks > 2 && numbers.once_in(4) {
        options.tasks = Some(2);
    }
    if options.api == Api::Mmap {
        options.mmap.pattern = numbers.once_in(2);
        options.mmap.dont_need = numbers.once_in(3);
    } else {
        options.posix.direct = numbers.once_in(5);
        options.posix.range_locks = numbers.once_in(6);
    }
    options
}

/// Generates a script. Its first test has the given options and keeps its files; later tests change
/// something.
fn script(numbers: &mut Numbers, options: &Options) -> String {
    let flag = |value: bool| u8::from(value);
    let mut text = format!(
        "# generated\nIOR START\n  api={}, blockSize={}\n  transferSize = {}\nsegmentCount={}  # blocks\n\
         keepFile=1, readFile={}, writeFile={}, checkWrite={}, checkRead={}\n fileperproc={}, uniqueDir={}\n\
         fsync={}, fsyncPerWrite={}, multiFile={}\n dataPacketType={}, setTimeStampSignature=99\n",
        options.api,
        options.block_size,
        options.transfer_size,
        options.segments,
        flag(options.read),
        flag(options.write),
        flag(options.check_write),
        flag(options.check_read),
        flag(options.file_per_process),
        flag(options.unique_dir),
        flag(options.fsync),
        flag(options.fsync_per_write),
        flag(options.multi_file),
        options.packet.letter(),
    );
    if let (AccessOrder::Shuffled, Some(seed)) = (options.order, options.random_seed) {
        text += &format!("randomOffset=1, --random-offset-seed={seed}\n");
    }
    text += "RUN\n";
    let changes = [
        "useExistingTestFile=1, repetitions=2",
        "randomOffset=0, reorderTasksConstant=1, numTasksOnNode0=1",
        "useO_DIRECT=1",
        "--posix.rangelocks=1",
        "--mmap.madv_pattern=1",
        "api=MMAP",
        "api=POSIX",
        "fsync=1, verbose=1",
        "segmentCount=1",
        "intraTestBarriers=1, collective=1",
        "numTasks=1",
        "reorderTasks=0 , reorderTasksRandom=0",
    ];
    for _ in 0..numbers.one_of(&[1, 2, 3]) {
        for _ in 0..numbers.one_of(&[0, 1, 2]) {
            text += &format!("    {}\n", numbers.one_of(&changes));
        }
        text += "RUN\n";
    }
    text + "  keepFile=0\nrun\nIOR STOP\nrubbish\n"
}
