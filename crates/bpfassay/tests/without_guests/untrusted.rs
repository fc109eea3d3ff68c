// SPDX-License-Identifier: MIT OR Apache-2.0
//! Foreign files: a package and a bundle do nothing to the machine that reads them, whoever runs
//! the command.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints what it skips")]

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use bpfassay_packages::{apt::Package, cache::Cache, digest::Digest, test_support::package::tar_entry};
use bpfassay_testbed::{
    guest_bundle,
    manifest::{Check, Manifest},
};

use crate::common::{printed, spec};

/// A user who is not root.
const USER: u32 = 1000;

fn file(path: &str, content: &[u8]) -> Vec<u8> {
    tar_entry(b'0', path, 0o644, "", content)
}

fn link(path: &str, target: &str) -> Vec<u8> {
    tar_entry(b'2', path, 0o777, target, b"")
}

/// Creates a Debian package with these entries.
fn deb(entries: &[Vec<u8>]) -> Vec<u8> {
    let control = "Package: a-stranger\nVersion: 1.0-1\nArchitecture: all\nMaintainer: x\nDescription: x\n";
    let archive = |entries: Vec<u8>| [entries, vec![0; 1024]].concat();
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, member) in [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar", archive(file("./control", control.as_bytes()))),
        ("data.tar", archive(entries.concat())),
    ] {
        bytes.extend(format!("{name:<16}0           0     0     100644  {:<10}`\n", member.len()).bytes());
        bytes.extend(&member);
        bytes.resize(bytes.len().next_multiple_of(2), b'\n');
    }
    bytes
}

/// Returns the users as whom this test can run the command: the current one, and another one if
/// that is root.
fn users() -> Vec<Option<u32>> {
    if rustix::process::geteuid().is_root() {
        return vec![None, Some(USER)];
    }
    println!("skipped: only root can act as another user as well");
    vec![None]
}

/// Creates a directory that belongs to `user` and that every user can enter, with a copy of the
/// command.
fn place(user: Option<u32>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_bpfassay"), directory.path().join("bpfassay")).unwrap();
    give(directory.path(), user);
    directory
}

fn give(path: &Path, user: Option<u32>) {
    if let Some(user) = user {
        chown(path, Some(user), Some(user)).unwrap();
    }
}

/// Returns the command in `directory`, run by `user`, with a secret in its environment.
fn command(directory: &Path, user: Option<u32>) -> Command {
    let program = directory.join("bpfassay");
    let mut command = match user {
        Some(user) => {
            let mut command = Command::new("setpriv");
            command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.current_dir(directory).stdin(Stdio::null()).env("HOME", directory).env("MY_SECRET_TOKEN", "secret");
    for name in ["RUST_LOG", "BPFASSAY_STORE", "BPFASSAY_QEMU", "CI"] {
        command.env_remove(name);
    }
    command
}

/// Writes a file of `user` at `path`, and makes its parent directories.
fn put(path: &Path, content: &str, user: Option<u32>) {
    let parent = path.parent().unwrap();
    fs::create_dir_all(parent).unwrap();
    fs::write(path, content).unwrap();
    give(parent, user);
    give(path, user);
}

#[test]
fn a_kernel_package_moves_no_file_of_this_machine() {
    for user in users() {
        let place = place(user);
        let work = place.path();
        let host = work.join("host/lib/modules");
        let own = [work.join(".git/config"), host.join("6.9.9-host/modules.builtin"), host.join("6.9.9-host/vmlinuz")];
        own.iter().for_each(|path| put(path, "of this machine", user));
        put(&host.join("6.9.9-host/kernel/fs/a.ko"), "of this machine", user);
        let through_itself =
            deb(&[file("./boot/vmlinuz-1.0", b"image"), link("./usr/lib/modules/1.0", "/proc/self/cwd/.git")]);
        let to_the_modules = deb(&[link("./usr/lib/modules", host.to_str().unwrap())]);
        let below_the_modules = deb(&[
            file("./boot/vmlinuz-6.9.9-host", b"image"),
            file("./usr/lib/modules/6.9.9-host/modules.builtin", b""),
            link("./usr/lib/modules/6.9.9-host/kernel", &format!("{}/6.9.9-host/kernel", host.display())),
        ]);
        for (name, bytes) in [("itself", through_itself), ("modules", to_the_modules), ("below", below_the_modules)] {
            let package = work.join(format!("{name}.deb"));
            fs::write(&package, bytes).unwrap();
            let output = command(work, user)
                .args(["plan", "quick", "--offline", "--cache"])
                .arg(work.join(format!("cache-{name}")))
                .arg("--kernel")
                .arg(&package)
                .output()
                .unwrap();
            let printed = printed(&output);
            for path in own.iter().chain([&host.join("6.9.9-host/kernel/fs/a.ko")]) {
                assert_eq!(fs::read_to_string(path).ok().as_deref(), Some("of this machine"), "{name}: {printed}");
            }
            assert!(!printed.contains("a.ko"), "{name}: {printed}");
        }
    }
}

/// Creates a bundle in `directory` with a dummy guest, and with a QEMU that leaves a mark when it
/// is started.
fn bundle_with_its_own_qemu(directory: &Path) -> (PathBuf, PathBuf, Package) {
    spec(directory);
    let mut compose = command(directory, None);
    let output = compose.args(["testbed", "compose", "spec.json", "--output", "testbed"]).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let manifest = Manifest::load(&directory.join("testbed/manifest.json"), Check::Size).unwrap();
    let marks = directory.join("marks");
    fs::create_dir(&marks).unwrap();
    fs::set_permissions(&marks, fs::Permissions::from_mode(0o1777)).unwrap();
    let mark = marks.join("started");
    let script = format!(
        "#!/bin/sh\necho \"$(id -u) ${{MY_SECRET_TOKEN-no secret}} $*\" >>{}\necho 'QEMU emulator version 7.2.22 (Debian 1)'\n",
        mark.display()
    );
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    let bytes = deb(&[
        tar_entry(b'0', &format!("./lib/{triplet}/ld-linux-{triplet}.so.2"), 0o755, "", script.as_bytes()),
        tar_entry(b'0', "./usr/bin/qemu-system-aarch64", 0o755, "", script.as_bytes()),
        file(&format!("./usr/lib/{triplet}/x"), b""),
        file("./usr/share/qemu/x", b""),
    ]);
    let cache = Cache::open(directory.join("cache-of-bundle")).unwrap();
    let object = cache.add_bytes("a package", &bytes).unwrap();
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let package = Package {
        name: "qemu-system-arm".parse().unwrap(),
        version: "1:7.2+dfsg-7".parse().unwrap(),
        architecture: architecture.parse().unwrap(),
        size: bytes.len() as u64,
        sha256: Digest::of(&bytes),
    };
    let path = directory.join("stranger.bundle");
    guest_bundle::write(&manifest, &[(package.clone(), object)], &path).unwrap();
    (path, mark, package)
}

/// Returns a run in `own` with the guests of `bundle`.
fn run(work: &Path, own: &Path, user: Option<u32>, bundle: &Path) -> Command {
    let mut run = command(work, user);
    run.current_dir(own).args(["run", "quick", "--arch", "aarch64", "--kernel", "6.12", "--offline"]);
    run.args(["--cache", "cache", "--output", "out", "--bundle"]).arg(bundle);
    run
}

/// Returns the mark of the bundle's QEMU, once `child` has started it, and ends `child`.
fn started(child: &mut Child, mark: &Path) -> String {
    let since = Instant::now();
    let is_there = || fs::metadata(mark).is_ok_and(|found| found.len() > 0);
    while !is_there() && since.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    fs::read_to_string(mark).unwrap()
}

#[test]
fn the_qemu_of_a_bundle_is_started_for_who_trusts_it_and_confined() {
    for user in users() {
        let place = place(None);
        let work = place.path();
        let (bundle, mark, _) = bundle_with_its_own_qemu(work);
        let own = work.join("own");
        fs::create_dir(&own).unwrap();
        give(&own, user);
        let mut child = run(work, &own, user, &bundle)
            .arg("--trust-emulator")
            .stdout(Stdio::null())
            .stderr(fs::File::create(work.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let started = started(&mut child, &mark);
        let printed = fs::read_to_string(work.join("stderr")).unwrap();
        assert!(printed.contains("qemu-system-arm 1:7.2+dfsg-7 (SHA-256 "), "{printed}");
        // QEMU leaves the mark from its first call on, with `--version`.
        let first = started.lines().next().unwrap();
        assert!(first.contains("no secret") && first.ends_with("--version"), "{started}");
        let id = user.unwrap_or(0).to_string();
        let is_of_caller = first.split(' ').next() == Some(id.as_str());
        assert_eq!(is_of_caller, user.is_some() || !rustix::process::geteuid().is_root(), "{started}");
    }
}

#[test]
fn on_a_terminal_only_yes_starts_the_qemu_of_a_bundle() {
    let place = place(None);
    let work = place.path();
    let (bundle, mark, _) = bundle_with_its_own_qemu(work);
    let run = run(work, work, None, &bundle);
    let arguments: Vec<_> = run.get_args().map(|argument| argument.to_str().unwrap()).collect();
    let line = format!("{} {}", run.get_program().to_str().unwrap(), arguments.join(" "));
    for answer in ["no", "y", "", "yes"] {
        let mut terminal = Command::new("script");
        terminal.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]).current_dir(work);
        terminal.env_remove("CI").env("HOME", work).stdin(Stdio::piped());
        let mut child = terminal.stdout(fs::File::create(work.join("screen")).unwrap()).spawn().unwrap();
        // The pipe stays open: a closed terminal is no answer.
        let mut keyboard = child.stdin.take().unwrap();
        keyboard.write_all(format!("{answer}\n").as_bytes()).unwrap();
        if answer == "yes" {
            assert!(started(&mut child, &mark).contains("--version"));
            continue;
        }
        let status = child.wait().unwrap();
        let screen = fs::read_to_string(work.join("screen")).unwrap();
        assert_eq!(status.code(), Some(2), "{answer}: {screen}");
        assert!(!mark.exists() && screen.contains("[yes/No]"), "{answer}: {screen}");
        assert!(screen.contains("qemu-system-arm 1:7.2+dfsg-7 (SHA-256 "), "{screen}");
    }
}

#[test]
fn the_qemu_of_a_bundle_is_not_started_unasked() {
    for user in users() {
        let place = place(None);
        let work = place.path();
        let (bundle, mark, _) = bundle_with_its_own_qemu(work);
        let own = work.join("own");
        fs::create_dir(&own).unwrap();
        give(&own, user);
        for (yes, ci) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut run = run(work, &own, user, &bundle);
            if yes {
                run.arg("--yes");
            }
            if ci {
                run.env("CI", "true");
            }
            let output = run.output().unwrap();
            let printed = printed(&output);
            assert!(!mark.exists(), "{}\n{printed}", fs::read_to_string(&mark).unwrap());
            assert!(!output.status.success(), "{printed}");
            let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
            for part in ["qemu-system-arm", "1:7.2+dfsg-7", "--trust-emulator", "testbed.lock"] {
                assert!(printed.contains(part), "{part}: {printed}");
            }
        }
    }
}

/// Whether process `id` has ended, or is a zombie.
fn is_gone(id: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('Z'))
}

#[test]
fn programs_of_the_host_get_no_secret_and_end_with_the_command() {
    if !Path::new("/usr/lib/apt/apt-helper").exists() {
        println!("skipped: this host has no apt");
        return;
    }
    for user in users() {
        let place = place(user);
        let work = place.path();
        let program = work.join("programs/apt-config");
        put(&program, "#!/bin/sh\nenv >$0.env\necho $$ >$0.new\nmv $0.new $0.id\nexec sleep 60\n", user);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", work.join("programs").display(), std::env::var("PATH").unwrap());
        let mut doctor = command(work, user);
        doctor.arg("doctor").env("PATH", path).env("http_proxy", "http://proxy.example:3128");
        let mut child = doctor.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let since = Instant::now();
        let id = loop {
            if let Ok(id) = fs::read_to_string(program.with_extension("id")) {
                break id.trim().to_owned();
            }
            assert!(since.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none(), "not asked");
            thread::sleep(Duration::from_millis(20));
        };
        assert!(!is_gone(&id));
        child.kill().unwrap();
        child.wait().unwrap();
        let since = Instant::now();
        while !is_gone(&id) && since.elapsed() < Duration::from_secs(3) {
            thread::sleep(Duration::from_millis(20));
        }
        let has_ended = is_gone(&id);
        if !has_ended {
            let id = rustix::process::Pid::from_raw(id.parse().unwrap()).unwrap();
            rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
        }
        let environment = fs::read_to_string(program.with_extension("env")).unwrap();
        assert!(!environment.contains("secret") && environment.contains("http_proxy=http://proxy"), "{environment}");
        assert!(has_ended, "it went on for 3 s");
    }
}

/// Sources of libraries and of the command that start programs in another way than
/// `bpfassay_child`.
const OTHER_WAYS: &[(&str, &str)] = &[
    ("bpfassay/src/commands/here.rs", "replaces this process"),
    ("bpfassay/src/commands/slurm.rs", "is a command of clap"),
    ("bpfassay-runner/src/slurm.rs", "sbatch gives its environment to the job, whose command is ours"),
    ("bpfassay-here/src/", "starts programs of the user's, on the machine that is measured"),
    ("bpfassay-vm/src/own_root.rs", "QEMU, whose limits have an environment of their own"),
];

#[test]
fn programs_of_the_host_are_started_in_one_way() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut seen = vec![false; OTHER_WAYS.len()];
    for name in [
        "bpfassay",
        "bpfassay-here",
        "bpfassay-packages",
        "bpfassay-results",
        "bpfassay-runner",
        "bpfassay-testbed",
        "bpfassay-vm",
    ] {
        let mut left = vec![crates.join(name).join("src")];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    left.push(path);
                    continue;
                }
                let shown = path.strip_prefix(&crates).unwrap().display().to_string();
                if !shown.ends_with(".rs")
                    || ["tests.rs", "test_support.rs"].iter().any(|name| shown.ends_with(name))
                    || shown.contains("/tests/")
                {
                    continue;
                }
                let text = fs::read_to_string(&path).unwrap();
                let (text, _) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
                if text.contains("Command::new(") {
                    let at = OTHER_WAYS.iter().position(|(place, _)| shown.starts_with(place));
                    let at = at.unwrap_or_else(|| panic!("{shown}: start programs by bpfassay_child"));
                    seen[at] = true;
                }
            }
        }
    }
    assert!(seen.iter().all(|&seen| seen), "{seen:?}: take away what is not needed any more");
}
