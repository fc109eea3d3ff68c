// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests what `bpfassay-ior` prints, and how it ends when something is wrong.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests, to which clippy does not extend what it allows in tests"
)]

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, Output},
};

use bpfassay_ior::{Access, IorSummary, PhaseBytes};

fn engine(directory: &Path, args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bpfassay-ior"))
        .current_dir(directory)
        .args(args.split_whitespace())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn fails(directory: &Path, args: &str, status: i32, message: &str) {
    let output = engine(directory, args);
    assert_eq!(output.status.code(), Some(status), "{args}: {output:?}");
    let said = text(&output.stderr);
    assert!(said.contains(message), "{args}: {said}");
}

#[test]
fn the_summary_on_standard_output_is_one_that_this_crate_reads() {
    let directory = tempfile::tempdir().unwrap();
    let args = "--ranks 3 -o t -b 256k -t 64k -s 2 -i 2 -F -O summaryFormat=JSON";
    let output = engine(directory.path(), args);
    assert!(output.status.success(), "{output:?}");
    let summary = IorSummary::parse(&output.stdout).unwrap();
    assert_eq!(summary.command_line, format!("bpfassay-ior {}", args.replacen("--ranks 3 ", "", 1)));
    let test = &summary.tests[0];
    assert_eq!((test.tasks, test.segments, test.repetitions), (3, 2, 2));
    let accesses: Vec<_> = test.results.iter().map(|result| (result.repetition, result.access)).collect();
    assert_eq!(accesses, [(0, Access::Write), (0, Access::Read), (1, Access::Write), (1, Access::Read)]);
    for result in &test.results {
        assert_eq!(result.moved.unwrap().bytes, 3 * 2 * (256 << 10));
    }
    assert_eq!(test.results[0].moved, Some(PhaseBytes { bytes: 3 * 2 * (256 << 10), exact: true }));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "no file is left");
}

#[test]
fn people_get_tables() {
    let directory = tempfile::tempdir().unwrap();
    let output = text(&engine(directory.path(), "-o t -b 256k -t 64k -v").stdout);
    for line in [
        "access    bw(MiB/s)  IOPS",
        "write     ",
        "read      ",
        "remove    -",
        "Max Write: ",
        "Summary of all tests:",
        "Finished            : ",
    ] {
        assert!(output.contains(line), "{line} in {output}");
    }
}

#[test]
fn tables_can_be_comma_separated() {
    let directory = tempfile::tempdir().unwrap();
    let output = text(&engine(directory.path(), "-o t -b 256k -t 64k -i 2 -O summaryFormat=CSV").stdout);
    let lines: Vec<Vec<&str>> = output.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 5, "{output}");
    assert!(lines.iter().all(|line| line.len() == 12), "{output}");
    assert_eq!(
        lines[1..].iter().map(|line| (line[0], line[11])).collect::<Vec<_>>(),
        [("write", "0"), ("read", "0"), ("write", "1"), ("read", "1")]
    );
}

#[test]
fn wrong_options_end_with_status_2() {
    let directory = tempfile::tempdir().unwrap();
    fails(directory.path(), "-q", 2, "unknown IOR option `-q`");
    fails(directory.path(), "-b 1m -t 3m", 2, "the block size (-b) must be a multiple of the transfer size (-t)");
    fails(directory.path(), "--ranks 0", 2, "the number of ranks must be from 1 to 1024, found `0`");
    fails(directory.path(), "--ranks", 2, "--ranks needs a value");
    fails(directory.path(), "-a MMAP -Y -b 4104 -t 8", 2, "multiple of the page size");
    fs::write(directory.path().join("script"), "IOR START\nfsync=yes\n").unwrap();
    fails(directory.path(), "-f script", 2, "line 2 of the script: IOR option `fsync`: `yes` is not 0 or 1");
    fails(directory.path(), "-f nowhere", 5, "cannot read `nowhere`: No such file");
}

#[test]
fn mpiio_ends_with_status_4() {
    fails(
        Path::new("/"),
        "-a MPIIO",
        4,
        "the embedded engine has no MPIIO interface, only POSIX and MMAP: use a real IOR for it",
    );
}

#[test]
fn test_files_that_cannot_be_used_end_with_status_3() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fails(path, "-r -o nowhere -b 1m", 3, "rank 0: open on test file `nowhere` failed: No such file");
    fs::write(path.join("short"), vec![0; 96 << 10]).unwrap();
    let message = "rank 0: read moved 32768 of 65536 bytes at offset 65536 of test file `short`";
    fails(path, "-r -x -o short -b 128k -t 64k", 3, message);
    assert!(path.join("short").exists());
    fails(path, "-r -o short -b 128k -t 64k", 3, "of 65536 bytes at offset 65536 of test file `short`");
    fs::write(path.join("own.00000000"), vec![0; 128 << 10]).unwrap();
    // Rank 0 waits for rank 1, whose file is missing.
    fails(path, "--ranks 2 -r -F -o own -b 128k -t 64k", 3, "rank 1: open on test file `own.00000001` failed");
    fails(path, "-r -z -z -o short -b 128k -t 64k", 3, "holds no block of 131072 bytes to read at random");
}

#[test]
fn a_mapping_without_a_file_behind_it_kills_the_rank_and_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("short"), [0]).unwrap();
    let args = "-r -a MMAP -k -o short -b 128k -t 64k";
    fails(
        directory.path(),
        &format!("--ranks 2 {args}"),
        5,
        "was killed by signal 7: a mapped test file is shorter than its mapping",
    );
    assert_eq!(engine(directory.path(), args).status.signal(), Some(libc::SIGBUS));
}

#[test]
fn wrong_data_ends_with_status_1() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let sizes = "-o t -b 256k -t 64k -k";
    assert!(engine(path, &format!("--ranks 2 -w -G 5 {sizes}")).status.success());
    assert!(engine(path, &format!("--ranks 2 -r -R -G 5 {sizes}")).status.success());
    let mut data = fs::read(path.join("t")).unwrap();
    data[300 << 10] ^= 1;
    fs::write(path.join("t"), data).unwrap();
    let args = format!("--ranks 2 -r -R -G 5 {sizes}");
    fails(path, &args, 1, "incorrect data on read: 1 transfers (time stamp 5 in the data)");
}

#[test]
fn a_summary_that_cannot_be_written_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    fails(directory.path(), "-b 1m -O summaryFile=/proc/nowhere", 5, "cannot write `/proc/nowhere`");
    fails(directory.path(), "-w -b 64k -t 64k -O summaryFile=/dev/full", 5, "cannot write `/dev/full`");
}

#[test]
fn ranks_come_from_the_environment_too() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bpfassay-ior"))
        .current_dir(directory.path())
        .env("BPFASSAY_IOR_RANKS", "2")
        .args(["-w", "-F", "-k", "-o", "t", "-b", "64k", "-t", "64k"])
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn a_deadline_cuts_a_write_short_and_a_later_read_can_follow_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let common = "--ranks 2 -F -k -o t -b 1g -t 8 -O stoneWallingStatusFile=status,summaryFormat=JSON";
    let output = engine(path, &format!("{common} -w -D 1 -O stoneWallingWearOut=1"));
    assert!(output.status.success(), "{output:?}");
    let transfers: u64 = fs::read_to_string(path.join("status")).unwrap().parse().unwrap();
    let sizes = [0, 1].map(|rank| fs::metadata(path.join(format!("t.0000000{rank}"))).unwrap().len());
    assert_eq!(sizes, [8 * transfers; 2], "the slower rank has worn out");
    assert!(transfers > 0 && sizes[0] < 1 << 30);
    let summary = text(&output.stdout);
    assert!(summary.contains("\"StoneWallTime\": ") && summary.contains("\"StoneWallbwMeanMIB\": "), "{summary}");
    let result = &IorSummary::parse(&output.stdout).unwrap().tests[0].results[0];
    assert!(result.total_s.unwrap() >= 1.0, "{result:?}");

    // Read a part of the file, so that the record stays small.
    fs::write(path.join("status"), "1000").unwrap();
    fs::create_dir(path.join("calls")).unwrap();
    assert!(engine(path, &format!("{common} -r --record calls")).status.success());
    for rank in 0..2 {
        let calls = fs::read_to_string(path.join(format!("calls/rank.{rank}"))).unwrap();
        assert_eq!(calls.lines().filter(|call| *call == "read 8").count(), 1000);
    }
}
