// SPDX-License-Identifier: MIT OR Apache-2.0
use bpfassay_protocol::with_causes;
use proptest::prelude::*;

use super::*;
use crate::{Api, MmapOptions, Packet, PosixOptions, SummaryFormat};

fn parse(text: &str) -> Result<Invocation, OptionsError> {
    Invocation::parse(text.split_whitespace())
}

#[test]
fn arguments_are_read_as_ior_reads_them() {
    let invocation = parse(
        "-a MMAP -wr -b 4m -t=64K -s 3 -i5 -zzFk -O summaryFormat=JSON,summaryFile=/x,fsync=1 --random-offset-seed=7 -vv --posix.odirect -o /a=b",
    )
    .unwrap();
    let expected = Options {
        api: Api::Mmap,
        write: true,
        read: true,
        block_size: 4 << 20,
        transfer_size: 64 << 10,
        segments: 3,
        repetitions: 5,
        order: AccessOrder::Random,
        file_per_process: true,
        keep: true,
        fsync: true,
        random_seed: Some(7),
        verbose: 2,
        posix: PosixOptions { direct: true, range_locks: false },
        test_file: "/a=b".to_owned(),
        ..Options::default()
    };
    assert_eq!(invocation.defaults, expected);
    assert_eq!(invocation.output, Output { format: SummaryFormat::Json, file: Some("/x".to_owned()) });
}

#[test]
fn errors_name_the_cause_and_what_to_do() {
    for (text, expected) in [
        ("-q", "unknown IOR option `-q`"),
        ("file", "unknown IOR option `file`"),
        ("--frobnicate=1", "unknown IOR option `--frobnicate`"),
        ("-b", "IOR option `-b` needs a value"),
        ("-b 1x", "IOR option `-b`: `1x` is not a number of bytes such as 8, 4k, 2m, 1g"),
        ("-b 9999999999g", "IOR option `-b`: `9999999999g` is not a number of bytes such as 8, 4k, 2m, 1g"),
        ("-b1m", "IOR option `-b1m`: put a space before the value, IOR reads its letters as flags too"),
        ("-wb 1m", "IOR option `-wb`: put a space before the value, IOR reads its letters as flags too"),
        ("-e -e", "IOR flag `-e` is given twice: once is enough, and IOR takes two for something else"),
        ("-z -z -z", "IOR flag `-z` is given twice: once is enough, and IOR takes two for something else"),
        ("-y", "IOR option `-y` is not supported: remove it"),
        ("-M 80%", "IOR option `-M` is not supported: remove it"),
        ("-a HDF5", "IOR option `-a`: `HDF5` is not one of POSIX, MMAP, MPIIO"),
        ("-O summaryFormat=XML", "IOR option `summaryFormat`: `XML` is not one of default, JSON, CSV"),
    ] {
        assert_eq!(with_causes(&parse(text).unwrap_err()), expected, "{text}");
    }
}

#[test]
fn rules_are_checked_for_each_test() {
    for (text, expected) in [
        ("-b 1m -t 3k", "test 0: the block size (-b) must be a multiple of the transfer size (-t)"),
        ("-z -C", "test 0: -z with -C or -Z needs a file per process (-F)"),
        ("-z -z -w", "test 0: -z -z reads an existing file: IOR crashes when it has to write in that order"),
        (
            "-r -R",
            "test 0: checking a read without writing (-R without -w) needs the time stamp of the data: give it with -G",
        ),
        ("-O stoneWallingWearOut=1", "test 0: stoneWallingWearOut needs a deadline: give one with -D"),
        ("-b 8e -N 2000000000", "IOR option `-b`: `8e` is not a number of bytes such as 8, 4k, 2m, 1g"),
        ("-b 4096p -N 2000000000", "test 0: block size, segments and tasks multiply to more than a file can hold"),
    ] {
        let error = parse(text).and_then(|invocation| invocation.plan(None)).unwrap_err();
        assert_eq!(with_causes(&error), expected, "{text}");
    }
}

#[test]
fn without_a_phase_there_are_two() {
    let plan = parse("-b 1m").unwrap().plan(None).unwrap();
    assert!(plan.tests[0].write && plan.tests[0].read);
    let plan = parse("-W").unwrap().plan(None).unwrap();
    assert!(!plan.tests[0].write && !plan.tests[0].read);
}

#[test]
fn a_script_must_be_at_hand() {
    let error = parse("-f quick.ior").unwrap().plan(None).unwrap_err();
    assert_eq!(error.to_string(), "the options name a script (`-f quick.ior`), whose text was not given");
}

prop_compose! {
    fn numbers()(
        reference: i32, blocks in 1u64..9, transfer in 1u64..1 << 30, segments in 1u64..9,
        offset in 0i32..9, seed: i32, times in prop::array::uniform6(0u32..9), iterations in 0u64..9,
        signature: i32, random_seed in prop::option::of(0i32..), tasks in prop::array::uniform3(prop::option::of(1u32..9)),
        verbose in 0u8..4,
    ) -> Options {
        let [inter_test_delay, deadline, min_time, max_time, repetitions, _] = times;
        let [tasks, nodes, tasks_on_node0] = tasks;
        Options {
            reference, block_size: blocks * transfer, transfer_size: transfer, segments,
            task_per_node_offset: offset, reorder_random_seed: seed, inter_test_delay, deadline, min_time, max_time,
            repetitions, wear_out_iterations: iterations, signature, random_seed, tasks, nodes, tasks_on_node0, verbose,
            ..Options::default()
        }
    }
}

prop_compose! {
    fn any_options()(
        numbers in numbers(), flags in prop::array::uniform24(any::<bool>()), levels in prop::array::uniform4(0i64..3),
        test_file in "[a-z/@=]{1,12}", status_file in prop::option::of("[a-z/.]{1,12}"),
    ) -> Options {
        let [write, read, check_write, check_read, keep, keep_with_error, fsync, fsync_per_write, use_existing,
            file_per_process, intra_test_barriers, multi_file, unique_dir, single_attempt, collective, reorder_tasks,
            wear_out, direct, range_locks, dont_need, pattern, ..] = flags;
        Options {
            write, read, check_write, check_read, keep, keep_with_error, fsync, fsync_per_write, use_existing,
            file_per_process, intra_test_barriers, multi_file, unique_dir, single_attempt, collective, reorder_tasks,
            wear_out, posix: PosixOptions { direct, range_locks }, mmap: MmapOptions { dont_need, pattern },
            api: Api::ALL[levels[0] as usize],
            packet: Packet::ALL[levels[1] as usize],
            order: AccessOrder::from_level(levels[2]).unwrap(),
            reorder_random: ReorderRandom::from_level(levels[3]).unwrap(),
            test_file, status_file,
            ..numbers
        }
    }
}

proptest! {
    #[test]
    fn options_survive_the_way_through_arguments(options in any_options()) {
        let args = options.to_args();
        let invocation = Invocation::parse(args.iter().map(String::as_str)).unwrap();
        prop_assert_eq!(invocation.defaults, options);
    }

    #[test]
    fn any_arguments_are_read_or_refused(args in prop::collection::vec("(-[a-zA-Z]{1,3}|--[a-z.]{0,8}|[a-zA-Z0-9=,#]{0,6})", 0..8)) {
        let _ = Invocation::parse(args.iter().map(String::as_str)).and_then(|invocation| invocation.plan(Some("IOR START")));
    }
}
