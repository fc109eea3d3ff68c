// SPDX-License-Identifier: MIT OR Apache-2.0
//! `git bisect run` over a series of kernels ends at the one that made a probe slower, even if
//! others cannot be built or booted.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints what it measured")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use crate::common::{bpfassay, guests_wanted, needs, printed, study};

/// The kernel of each commit, oldest first. fexit takes 830 instructions more per call on 7.2 than
/// on 6.12, and kprobe 51 less.
const SERIES: [(&str, &str); 10] = [
    ("first", "6.12"),
    ("does not boot", "./unbootable"),
    ("second", "6.12"),
    ("is not built", "./linux"),
    ("last good one", "6.12"),
    ("the step", "7.2"),
    ("is damaged", "./damaged"),
    ("does not boot either", "./unbootable"),
    ("after it", "7.2"),
    ("last", "7.2"),
];

/// Creates a kernel that resets the machine first of all: a 64-bit bzImage of the boot protocol
/// 2.12, whose setup code writes to the port 0xcf9 of the chip set.
fn unbootable() -> Vec<u8> {
    let mut image = vec![0; 0x2000];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x1f1, &[1]);
    put(0x1fe, &[0x55, 0xaa]);
    // A jump to the code behind the header.
    put(0x200, &[0xeb, 0x7e]);
    put(0x202, b"HdrS");
    put(0x206, &0x020c_u16.to_le_bytes());
    put(0x20e, &0x100_u16.to_le_bytes());
    put(0x211, &[1]);
    put(0x22c, &0x7fff_ffff_u32.to_le_bytes());
    // XLF_KERNEL_64 of xloadflags.
    put(0x236, &[1]);
    // mov dx, 0xcf9; mov al, 6; out dx, al; hlt
    put(0x280, &[0xba, 0xf9, 0x0c, 0xb0, 0x06, 0xee, 0xf4]);
    put(0x300, b"6.99.0-unbootable \0");
    image
}

/// Creates such a kernel with a payload that cannot be unpacked.
fn damaged() -> Vec<u8> {
    let mut image = unbootable();
    image[0x24c] = 8;
    image[0x400..0x408].copy_from_slice(b"\x28\xb5\x2f\xfd\xff\xff\xff\xff");
    image
}

fn git(repository: &Path, arguments: &[&str]) -> Output {
    needs("git", "git");
    let mut git = Command::new("git");
    git.current_dir(repository).args(["-c", "user.name=test", "-c", "user.email=test@example.org"]);
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        git.env_remove(variable);
    }
    git.args(["-c", "commit.gpgsign=false"]).args(arguments).output().unwrap()
}

fn done(repository: &Path, arguments: &[&str]) -> String {
    let output = git(repository, arguments);
    assert!(output.status.success(), "git {arguments:?}: {}", printed(&output));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Creates a repository with a commit for each kernel of the series; returns the commits'
/// identifiers.
fn repository(directory: &Path) -> Vec<String> {
    fs::create_dir(directory).unwrap();
    done(directory, &["init", "--quiet"]);
    fs::write(directory.join("unbootable"), unbootable()).unwrap();
    fs::write(directory.join("damaged"), damaged()).unwrap();
    fs::create_dir(directory.join("linux")).unwrap();
    fs::write(directory.join("linux/.config"), "CONFIG_MODULES=y\n").unwrap();
    let commit = |(index, (message, kernel)): (usize, &(&str, &str))| {
        fs::write(directory.join("kernel"), format!("{kernel}\n")).unwrap();
        // Two commits with one kernel must differ.
        fs::write(directory.join("number"), format!("{index}\n")).unwrap();
        done(directory, &["add", "."]);
        done(directory, &["commit", "--quiet", "--message", message]);
        done(directory, &["rev-parse", "HEAD"])
    };
    SERIES.iter().enumerate().map(commit).collect()
}

/// Creates a script that measures the kernel of the commit, compared with `base`.
fn script(directory: &Path, arguments: &str) -> String {
    let script = directory.join("bisect.sh");
    let (bpfassay, study) = (env!("CARGO_BIN_EXE_bpfassay"), study("bisect.toml"));
    let (out, base) = (directory.join("out"), directory.join("base"));
    let text = format!(
        "#!/bin/sh\nrm -rf '{out}'\n'{bpfassay}' run '{study}' --yes --kernel \"$(cat kernel)\" --output '{out}' --against '{base}' --bisect \
         {arguments}\ncode=$?\necho \"measured $(cat kernel): $code\"\nexit $code\n",
        out = out.display(),
        base = base.display(),
        study = study.display(),
    );
    fs::write(&script, text).unwrap();
    script.display().to_string()
}

/// `git bisect run` takes codes from 1 to 127, except for 125, for a bad kernel.
#[test]
fn what_is_wrong_with_the_question_is_never_taken_for_a_bad_kernel() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("linux")).unwrap();
    fs::write(directory.path().join("linux/.config"), "CONFIG_MODULES=y\n").unwrap();
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/quick");
    let base = base.to_str().unwrap();
    for (arguments, code, part) in [
        (&["quick", "--kernel", "./linux", "--against", base, "--bisect"][..], 125, "run `make bzImage` on x86"),
        (&["quick", "--kernel", "./none", "--against", base, "--bisect"], 128, "does not exist"),
        (&["quick", "--kernel", "linus", "--against", base, "--bisect"], 128, "linus"),
        (
            &["cost", "--against", base, "--bisect"],
            128,
            "has the study quick by the clock instructions, and the study cost",
        ),
        (&["quick", "--against", "nowhere", "--bisect"], 128, "cannot read nowhere"),
        (&["quick", "--bisect"], 128, "--against <DIR>"),
        (&["quick", "--against", base, "--bisec"], 128, "unexpected argument '--bisec'"),
        (&["quick", "--against", base, "--bisect", "--metrics", "read"], 128, "unexpected argument '--metrics'"),
        (&["quick", "--access", "read"], 2, "name the results to compare with: --against DIR"),
        (&["quick", "--kernel", "./linux", "--against", base], 2, "has no kernel image"),
    ] {
        let mut run = bpfassay(directory.path());
        let output = run.arg("run").args(arguments).args(["--offline", "--cache", "cache"]).output().unwrap();
        let text = printed(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
}

#[test]
fn git_bisect_run_ends_at_the_kernel_that_made_the_probe_slower() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let repository_directory = directory.path().join("repository");
    let commits = repository(&repository_directory);
    let mut base = bpfassay(directory.path());
    base.arg("run").arg(study("bisect.toml")).args(["--yes", "--kernel", "6.12", "--output", "base"]);
    let base = base.output().unwrap();
    assert_eq!(base.status.code(), Some(0), "{}", printed(&base));

    let run = script(directory.path(), "--probe fexit");
    done(&repository_directory, &["bisect", "start", &commits[9], &commits[0]]);
    let output = git(&repository_directory, &["bisect", "run", "sh", &run]);
    let text = printed(&output);
    println!("{text}");
    assert!(output.status.success(), "{text}");
    let found = format!("{} is the first bad commit", commits[5]);
    assert!(text.contains(&found), "expected {found}: {text}");
    let measured = |line: &str| text.lines().any(|found| found == line);
    assert!(measured("measured 6.12: 0") && measured("measured 7.2: 1"), "{text}");
    done(&repository_directory, &["bisect", "reset"]);

    // Check each commit separately: an untestable kernel is no bad kernel, whichever commits git
    // chose.
    for (commit, code, part) in [
        (1, 125, "this kernel cannot be tested: x86_64_local_small_tmpfs_"),
        (3, 125, "has no kernel image (arch/*/boot/bzImage, Image or Image.gz)"),
        (6, 125, "cannot be booted: its payload: the zstd stream is damaged"),
    ] {
        done(&repository_directory, &["checkout", "--quiet", &commits[commit]]);
        let output = Command::new("sh").arg(&run).current_dir(&repository_directory).output().unwrap();
        let text = printed(&output);
        assert_eq!(output.status.code(), Some(code), "{:?}: {text}", SERIES[commit]);
        assert_eq!(text.matches(part).count(), 1, "{:?}: {text}", SERIES[commit]);
    }
    // The same kernels are no worse by another probe: kprobe costs less.
    done(&repository_directory, &["checkout", "--quiet", &commits[5]]);
    let run = script(directory.path(), "--probe kprobe");
    let output = Command::new("sh").arg(&run).current_dir(&repository_directory).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
}
