// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers of the command that need no guest: plans, schemas, and answers to wrong input.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints what it skips")]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use crate::common::{bpfassay, exits, exits_in, printed};

#[test]
fn unknown_studies_kernels_and_options_are_usage_errors_that_help() {
    let printed = exits(&["plan", "quick", "--gate", "overhed = '5%'"], 2);
    assert!(printed.contains("did you mean `overhead`?"), "{printed}");
    let asked = exits(&["plan", "quick", "--json", "--rounds", "3", "--gate", "direct_cost = 400"], 0);
    let asked: serde_json::Value = serde_json::from_str(&asked).unwrap();
    assert_eq!(
        (&asked["study"]["design"]["rounds"], &asked["study"]["gates"][0]["direct_cost"]),
        (&3.into(), &400.into())
    );
    let printed = exits(&["plan", "quik"], 2);
    assert!(printed.contains("did you mean `quick`?"), "{printed}");
    let printed = exits(&["plan", "quick", "--kernel", "6.13"], 2);
    assert!(printed.contains("6.12") && printed.contains("`bpfassay list kernels` lists"), "{printed}");
    let printed = exits(&["plan", "quick", "--arch", "sparc"], 2);
    assert!(printed.contains("riscv64"), "{printed}");
    let printed = exits(&["run", "--resume", "nowhere"], 2);
    assert!(printed.contains("nowhere"), "{printed}");
}

#[test]
fn a_kernel_that_does_not_exist_is_reported_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let study = fs::read_to_string(crate::common::study("file-systems.toml")).unwrap().replace("\"6.12\"", "\"6.13\"");
    fs::write(directory.path().join("wrong.toml"), study).unwrap();
    let cache = directory.path().join("cache");
    // Host packages do not matter: `shell` and `run` would ask for them, but planning with --qemu
    // does not.
    let output =
        bpfassay(directory.path()).args(["plan", "./wrong.toml", "--qemu", "--cache"]).arg(&cache).output().unwrap();
    let printed = printed(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("6.13") && printed.contains("6.12"), "{printed}");
}

#[test]
fn misspelt_keys_of_studies_are_refused_with_the_nearest_known_one() {
    let directory = tempfile::tempdir().unwrap();
    let study = fs::read_to_string(crate::common::study("panic.toml")).unwrap().replace("replicates", "replicate");
    fs::write(directory.path().join("wrong.toml"), study).unwrap();
    let output = bpfassay(directory.path()).args(["plan", "./wrong.toml"]).output().unwrap();
    let printed = printed(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("replicates"), "{printed}");
}

#[test]
fn kernel_parameters_that_a_kernel_would_cut_are_refused_with_both_lengths() {
    let directory = tempfile::tempdir().unwrap();
    let study = fs::read_to_string(crate::common::study("panic.toml")).unwrap();
    let parameter = |number| format!("\"x{number}={}\"", "y".repeat(100));
    let parameters = (0..21).map(parameter).collect::<Vec<_>>().join(", ");
    let long = study.replace("\"rdinit=/nowhere\"", &parameters);
    assert_ne!(long, study);
    fs::write(directory.path().join("long.toml"), long).unwrap();
    let output = bpfassay(directory.path()).args(["plan", "./long.toml"]).output().unwrap();
    let printed = printed(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("has 2") && printed.contains("take 2047"), "{printed}");
}

#[test]
fn offline_with_an_empty_cache_is_refused_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let output = bpfassay(directory.path())
        .args(["plan", "quick", "--qemu", "--cache"])
        .arg(directory.path().join("cache"))
        .output()
        .unwrap();
    let printed = printed(&output);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert!(printed.contains("bpfassay testbed fetch"), "{printed}");
}

#[test]
fn published_schemas_are_json() {
    for file in ["results", "manifest"] {
        let text = exits(&["generate", "schema", file], 0);
        let schema: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(schema["$schema"].is_string(), "{file}");
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_no_success() {
    let directory = tempfile::tempdir().unwrap();
    for arguments in [&["plan"][..], &["plan", "--json"], &["generate", "schema", "results"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = bpfassay(directory.path()).args(arguments).stdout(full).output().unwrap();
        let printed = printed(&output);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {printed}");
        assert!(printed.contains("cannot write to standard output"), "{printed}");
    }
}

/// The text of `plan` and `run` for a kernel that lacks something for NFS.
const NEED_NO_NFS: &str = "studies on tmpfs need nothing of NFS: `cost`";

#[test]
fn the_image_of_a_kernel_is_given_by_its_path_and_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let mut image = vec![0; 0x38];
    image.extend(b"ARM\x64");
    image.extend([0; 100]);
    image.extend(b"\0Linux version 6.99.0-mine (me@host) (gcc)\n\0");
    fs::write(directory.path().join("bzImage"), &image).unwrap();
    for (path, content) in [
        ("linux/.config", &b"CONFIG_VIRTIO_PCI=y\n"[..]),
        ("linux/include/config/kernel.release", b"6.99.0-mine\n"),
        ("linux/arch/arm64/boot/Image", &image),
        ("fresh/Makefile", b""),
        ("fresh/arch/Kconfig", b""),
    ] {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    for (arguments, code, part) in [
        (&["--kernel", "./bzImage"][..], 0, "aarch64_local_quick"),
        (&["--kernel", "bzImage", "--arch", "aarch64"], 0, "aarch64_local_quick"),
        (&["--kernel", "bzImage", "--arch", "riscv64"], 2, "is a kernel for aarch64, not for riscv64"),
        (&["--kernel", "bzImage,6.12"], 2, "one image or build tree by itself"),
        (&["--kernel", "6.12", "--modules", "."], 2, "give the path of the image or of the build tree"),
        (&["--kernel", "./none"], 2, "does not exist"),
        (&["--kernel", "/dev/zero"], 2, "no regular file"),
        (&["--kernel", "."], 2, "neither a kernel image nor the tree of a kernel's build"),
        (&["--kernel", "linux"], 0, "aarch64_local_quick"),
        (&["--kernel", "linux"], 0, "CONFIG_NFSD, which the NFS mount needs"),
        (&["--kernel", "linux"], 0, NEED_NO_NFS),
        (&["--kernel", "./linux", "--arch", "riscv64"], 2, "is the build of a kernel for aarch64, not for riscv64"),
        (&["--kernel", "fresh"], 2, "has no .config: run `make defconfig` and `make`"),
    ] {
        let output = bpfassay(directory.path()).arg("plan").args(arguments).output().unwrap();
        let printed = printed(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
        assert!(printed.contains(part), "{arguments:?}: {printed}");
    }
    // A study on tmpfs lacks nothing.
    let output = bpfassay(directory.path()).args(["plan", "cost", "--kernel", "linux"]).output().unwrap();
    let printed = printed(&output);
    assert!(output.status.success() && printed.contains("aarch64_local_small_tmpfs_none"), "{printed}");
    assert!(!printed.contains("NFS"), "{printed}");
}

#[test]
fn results_that_cannot_go_where_they_shall_are_reported_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("used")).unwrap();
    fs::write(directory.path().join("used/journal.jsonl"), "").unwrap();
    for (output, part) in [("used", "--resume"), ("used/journal.jsonl", "is no directory")] {
        let output = bpfassay(directory.path())
            .args(["run", "--cache", "cache", "--offline", "--output", output])
            .output()
            .unwrap();
        let printed = printed(&output);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(printed.contains(part), "{printed}");
        assert!(!directory.path().join("cache").exists());
    }
}

#[test]
fn doctor_reports_the_rest_where_the_cache_cannot_be_used() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    let output = bpfassay(directory.path()).args(["doctor", "--offline", "--cache", "file"]).output().unwrap();
    let printed = printed(&output);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    for part in ["cannot be the cache", "--cache", "memory: ", "QEMU for riscv64"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
}

#[test]
fn a_configuration_file_has_the_options_of_packages() {
    let directory = tempfile::tempdir().unwrap();
    let below = directory.path().join("a/b");
    fs::create_dir_all(&below).unwrap();
    let file = directory.path().join("bpfassay.toml");
    fs::write(&file, "mirror = \"http://mirror.example/debian\"\narchive = \"snapshots\"\n").unwrap();
    let doctor = |options: &[&str]| {
        printed(&bpfassay(&below).args(["doctor", "--offline", "--cache", "cache"]).args(options).output().unwrap())
    };
    let archive = format!("archive of snapshots: {} (", directory.path().join("snapshots").display());
    let by_file = doctor(&[]);
    for part in [&format!("ok   configuration file: {}", file.display()), "http://mirror.example/debian (", &archive] {
        assert!(by_file.contains(part), "{part}: {by_file}");
    }
    let by_option = doctor(&["--mirror", "http://option.example/debian"]);
    assert!(by_option.contains("http://option.example/debian (") && by_option.contains(&archive), "{by_option}");
    fs::write(&file, "miror = \"http://mirror.example/debian\"\n").unwrap();
    let refused = bpfassay(&below).args(["list", "kernels", "--offline", "--cache", "cache"]).output().unwrap();
    let printed = printed(&refused);
    assert_eq!(refused.status.code(), Some(2), "{printed}");
    assert!(printed.contains("unknown key `miror`") && printed.contains("did you mean `mirror`"), "{printed}");
    // A command without options of packages reads no configuration.
    let studies = bpfassay(&below).args(["list", "studies"]).output().unwrap();
    assert_eq!(studies.status.code(), Some(0));
}

#[test]
fn offline_lists_without_package_lists_are_no_good_news() {
    let directory = tempfile::tempdir().unwrap();
    let places = ["--mirror", "http://mirror.example/debian", "--archive", "http://archive.example"];
    let arguments = ["doctor", "--offline", "--cache", "cache"];
    let output = bpfassay(directory.path()).args(arguments).args(places).output().unwrap();
    let printed = printed(&output);
    for line in [
        "ok   mirror of Debian: http://mirror.example/debian (--mirror or bpfassay.toml)",
        "ok   archive of snapshots: http://archive.example (--archive or bpfassay.toml)",
    ] {
        assert!(printed.lines().any(|found| found == line), "{line}: {printed}");
    }
    assert!(printed.contains("note kernels for riscv64: no package lists in the cache"), "{printed}");
    let output =
        bpfassay(directory.path()).args(["list", "kernels", "--offline", "--cache", "cache"]).output().unwrap();
    assert!(crate::common::printed(&output).contains("not known (no list yet)"));
}

#[test]
fn inputs_that_are_not_there_are_usage_errors() {
    let printed = exits(&["plan", "--qemu", "--manifest", "nowhere.json", "--cache", "cache"], 2);
    assert!(printed.contains("nowhere.json"), "{printed}");
    let printed = exits(&["shell", "--arch", "riscv64"], 2);
    assert!(printed.contains("a shell needs a terminal"), "{printed}");
    let printed = exits(&["run", "--resume", "nowhere"], 2);
    assert!(printed.contains("name the results directory of a run"), "{printed}");
}

#[test]
fn results_that_are_none_are_reported_as_what_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("results.json");
    let ours = bpfassay_results::RESULTS_VERSION;
    for (text, reason) in [
        ("", "EOF while parsing"),
        (&*format!("{{\"version\": {ours}, \"plan\": {{\"study\""), "EOF while parsing"),
        (&*format!("{{\"version\": {ours}, \"photo\": true}}"), "does not begin with its digest"),
        ("\u{0}\u{1}\u{2}", "expected value"),
        ("{\"version\": 99}", &*format!("results of version 99, this program reads version {ours}")),
    ] {
        fs::write(&file, text).unwrap();
        for arguments in [&["report"][..], &["report", "--format", "junit"], &["trend"]] {
            let printed = exits(&[arguments, &[directory.path().to_str().unwrap()]].concat(), 2);
            assert!(
                printed.contains("results.json") && printed.replace("\n", " ").contains(reason),
                "{text:?}: {printed}"
            );
        }
        assert!(!directory.path().join("report.html").exists(), "a report of nothing");
    }
    fs::remove_file(&file).unwrap();
    let printed = exits(&["report", directory.path().to_str().unwrap()], 2);
    assert!(printed.contains("cannot read"), "{printed}");
}

#[test]
fn in_ci_the_clock_is_the_one_whose_figures_are_the_same_everywhere() {
    let directory = tempfile::tempdir().unwrap();
    let planned = |ci: Option<&str>, arguments: &[&str]| {
        let mut command = bpfassay(directory.path());
        match ci {
            Some(value) => command.env("CI", value),
            None => command.env_remove("CI"),
        };
        printed(&command.args(["plan", "quick"]).args(arguments).output().unwrap())
    };
    for ci in [None, Some("false")] {
        assert!(planned(ci, &[]).contains("; clock instructions (wall where KVM works); "), "{ci:?}");
    }
    for ci in ["true", "1"] {
        assert!(planned(Some(ci), &[]).contains("; clock instructions; "), "{ci}");
        // An explicit clock is used.
        assert!(planned(Some(ci), &["--clock", "wall"]).contains("; clock wall; "), "{ci}");
    }
}

#[test]
fn missing_packages_are_named_with_the_command_that_installs_them() {
    let directory = tempfile::tempdir().unwrap();
    // This host has no package and no other program.
    let program = directory.path().join("dpkg-query");
    fs::write(&program, "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let output = bpfassay(directory.path())
        .args(["run", "--arch", "riscv64", "--qemu", "host", "--cache", "cache"])
        .env("PATH", directory.path())
        .env_remove("CI")
        .output()
        .unwrap();
    let printed = printed(&output);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert!(printed.contains("apt-get update && apt-get install --no-install-recommends "), "{printed}");
    assert!(printed.contains("opensbi"), "{printed}");
    assert!(!directory.path().join("cache").exists());
    // A user's own QEMU needs no firmware of Debian's packages.
    let qemu = directory.path().join("qemu-system-riscv64");
    fs::copy(&program, &qemu).unwrap();
    let output = bpfassay(directory.path())
        .args(["run", "--arch", "riscv64", "--qemu", "host", "--cache", "cache"])
        .env("PATH", directory.path())
        .env_remove("CI")
        .output()
        .unwrap();
    let printed = crate::common::printed(&output);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert!(printed.contains("--no-install-recommends apt "), "{printed}");
    assert!(!printed.contains("opensbi") && !printed.contains("qemu-system-misc"), "{printed}");
}

#[test]
fn a_testbed_from_elsewhere_is_composed_checked_and_keeps_a_study_to_what_it_has() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name).display().to_string();
    fs::create_dir(at("programs")).unwrap();
    for program in ["bpfassay-guest", "bpfassay-tracer", "bpfassay-ior"] {
        fs::write(work.path().join("programs").join(program), program).unwrap();
    }
    // The header of an arm64 Image, and its banner.
    let mut image = vec![0; 0x38];
    image.extend(b"ARM\x64\0\0\0\0Linux version 6.12.1 (nobody)\0");
    fs::write(at("Image"), image).unwrap();
    let spec = r#"{"format": 1, "provider": "nix", "programs": {"aarch64": "programs"},
        "targets": [{"arch": "aarch64", "name": "6.12", "version": "6.12.1", "image": "Image"}]}"#;
    fs::write(at("spec.json"), spec).unwrap();
    assert!(exits(&["testbed", "check", "--spec", &at("spec.json")], 0).contains("6.12.1"));
    exits(&["testbed", "compose", &at("spec.json"), "--output", &at("made")], 0);
    exits(&["testbed", "pack", &at("made/manifest.json"), "--output", &at("packed")], 0);
    assert_eq!(fs::read(at("made/manifest.json")).unwrap(), fs::read(at("packed/manifest.json")).unwrap());
    fs::remove_dir_all(at("made")).unwrap();
    let manifest = at("packed/manifest.json");
    assert!(exits(&["testbed", "check", &manifest], 0).contains("Linux 6.12.1"));

    let printed = exits(&["plan", "quick", "--manifest", &manifest, "--available"], 0);
    assert!(printed.starts_with("study quick: 3 cells, 1 boot, "), "{printed}");
    assert!(printed.contains("the testbed has no guest for them"), "{printed}");
    let printed = exits(&["plan", "quick", "--available"], 2);
    assert!(printed.contains("--manifest"), "{printed}");

    fs::write(at("spec.json"), spec.replace("\"image\"", "\"picture\"")).unwrap();
    assert!(exits(&["testbed", "check", "--spec", &at("spec.json")], 2).contains("picture"));
    let image = fs::read_dir(at("packed/files")).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(&image).unwrap();
    exits(&["testbed", "check", &manifest], 3);
}

#[test]
fn the_manual_has_a_page_for_every_command_and_shells_complete_them() {
    let directory = tempfile::tempdir().unwrap();
    let output = bpfassay(directory.path()).args(["generate", "man", "man1"]).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let page = |name: &str| fs::read_to_string(directory.path().join("man1").join(name)).unwrap();
    let all = page("bpfassay.1");
    assert!(all.contains(".TH bpfassay 1"), "{all}");
    for command in
        ["run", "plan", "list-kernels", "testbed-fetch", "doctor", "shell", "verify", "compare", "trend", "report"]
    {
        let (first, command) = command.split_once('-').unwrap_or((command, command));
        assert!(all.contains(&format!("bpfassay\\-{first}(1)")), "{first} is not in {all}");
        let name = if first == command { first.to_owned() } else { format!("{first}-{command}") };
        assert!(page(&format!("bpfassay-{name}.1")).contains(".SH OPTIONS"), "{name}");
        for shell in ["bash", "zsh", "fish"] {
            assert!(exits(&["generate", "completions", shell], 0).contains(command), "{shell}, {command}");
        }
    }
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(
        exits(&["generate", "man", &file.display().to_string()], 3).contains("name a directory"),
        "a file is no directory"
    );
}

#[test]
fn programs_for_here_must_be_executable_and_what_it_began_goes_on_in_no_guest() {
    let directory = tempfile::tempdir().unwrap();
    // The programs end at once: nothing is measured, but the journal exists.
    for program in ["bpfassay-guest", "bpfassay-tracer", "bpfassay-ior"] {
        let path = directory.path().join(program);
        fs::write(&path, "#!/bin/sh\nexit 1\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let here = || {
        let mut command = bpfassay(directory.path());
        command
            .env("PATH", directory.path())
            .args(["here", "quick", "--mount", "/proc", "--output", "out"])
            .output()
            .unwrap()
    };
    let agent = directory.path().join("bpfassay-guest");
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o644)).unwrap();
    let output = here();
    assert_eq!(output.status.code(), Some(3), "{}", printed(&output));
    assert!(printed(&output).contains("there is no executable bpfassay-guest in PATH"), "{}", printed(&output));
    assert!(!directory.path().join("out").exists());

    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    let output = here();
    assert_eq!(output.status.code(), Some(4), "{}", printed(&output));
    let journal = fs::read(directory.path().join("out/journal.jsonl")).unwrap();
    let found = exits_in(directory.path(), &["verify", "--files", "out"], 0);
    assert_eq!(found.matches(": sound: ").count(), 4, "{found}");
    let listed = exits_in(directory.path(), &["list", "results", "."], 0);
    assert!(listed.contains("./out\n  quick, ") && listed.contains("fingerprint "), "{listed}");
    // A bundle has no file systems of this machine.
    let refused = exits_in(directory.path(), &["testbed", "bundle", "out", "--output", "b"], 2);
    assert!(refused.contains("without guests") && !directory.path().join("b").exists(), "{refused}");
    let mut changed = journal.clone();
    changed[journal.len() / 2] ^= 1;
    fs::write(directory.path().join("out/journal.jsonl"), &changed).unwrap();
    let found = exits_in(directory.path(), &["verify", "--files", "out"], 2);
    assert!(found.contains("journal.jsonl: WRONG: ") && found.contains("the file was changed or damaged"), "{found}");
    assert!(
        exits_in(directory.path(), &["list", "results", "out"], 0).contains("out\n  "),
        "a damaged journal is listed as such"
    );
    exits_in(directory.path(), &["run", "--resume", "out", "--cache", "cache"], 2);
    fs::write(directory.path().join("out/journal.jsonl"), &journal).unwrap();
    exits_in(directory.path(), &["verify", "--files", "."], 2);
    // The directory can belong to another user: nothing is written through a link in it.
    fs::write(directory.path().join("precious"), "kept").unwrap();
    symlink(directory.path().join("precious"), directory.path().join("out/report.html")).unwrap();
    exits_in(directory.path(), &["report", "out"], 3);
    assert_eq!(fs::read_to_string(directory.path().join("precious")).unwrap(), "kept");
    fs::remove_file(directory.path().join("out/report.html")).unwrap();
    exits_in(directory.path(), &["report", "out"], 0);
    let output = bpfassay(directory.path()).args(["run", "--resume", "out", "--cache", "cache"]).output().unwrap();
    let stderr = printed(&output);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("it was begun by `bpfassay here`") && stderr.contains("begin again"), "{stderr}");
    assert_eq!(fs::read(directory.path().join("out/journal.jsonl")).unwrap(), journal, "nothing was added");
    assert!(!directory.path().join("cache").exists());
}

#[test]
fn what_there_is_to_measure_with_is_listed() {
    let directory = tempfile::tempdir().unwrap();
    for (command, name) in [("studies", "quick"), ("probes", "fexit"), ("tools", "tracer")] {
        let output = bpfassay(directory.path()).args(["list", command]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().any(|line| line.starts_with(&format!("{name} "))), "{text}");
        let output = bpfassay(directory.path()).args(["list", command, "--json"]).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let names: Vec<_> = json.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        let listed: Vec<&str> = text.split_whitespace().map(|word| word.trim_end_matches(',')).collect();
        assert!(names.contains(&name) && names.iter().all(|name| listed.contains(name)), "{names:?}");
        // Tools of packages share a line.
        assert!(command == "tools" || names.len() == text.lines().count(), "{names:?}");
    }
    assert!(exits_in(directory.path(), &["list", "results"], 0).contains("no results"));
    assert!(exits_in(directory.path(), &["list", "results", "nowhere"], 2).contains("cannot read nowhere"));
}

/// The page shortens digests and breaks a line.
#[test]
fn the_page_on_verify_shows_what_verify_prints() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/how-to/verify.md")).unwrap();
    let shown = page.split("```console\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let output = bpfassay(&root).args(["verify", "results/quick", "--files"]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let is_digest = |word: &&str| word.len() == 64;
    let digests: Vec<&str> = printed.split_whitespace().filter(is_digest).collect();
    assert_eq!(digests.len(), 2, "{printed}");
    let short =
        digests.iter().fold(printed.clone(), |text, digest| text.replace(digest, &format!("{}…", &digest[..8])));
    assert_eq!(shown.replace("\n  ", " "), short);
}
