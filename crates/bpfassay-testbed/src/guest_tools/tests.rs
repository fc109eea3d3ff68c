// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs;

use bpfassay_tool::LoadedFile;

use super::*;
use crate::provider::local::LocalKernel;

fn loaded(folder: &Path, source: &str) -> LoadedFile {
    let text = format!("schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\n{source}\n");
    LoadedFile { file: bpfassay_tool::ToolFile::parse("t.toml", &text).unwrap(), folder: Some(folder.to_owned()) }
}

fn laid_out(folder: &Path, source: &str) -> Result<Archive> {
    let (loaded, mut supplies) = (loaded(folder, source), Vec::new());
    supplies.push(loaded.supply());
    let needs = Needs::of(Arch::X86_64, &supplies)?;
    let mut archive = Archive::default();
    for (path, file) in &needs.files {
        file.add(Arch::X86_64, path, &mut archive)?;
    }
    Ok(archive)
}

#[test]
fn files_lie_where_the_guest_looks_for_them() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("s.bt"), "BEGIN { }").unwrap();
    let archive = laid_out(folder.path(), "script = { path = 's.bt', interpreter = '/usr/bin/bpftrace' }").unwrap();
    assert!(matches!(archive.get("/tools/mine/script"), Some(NewcNode::File { executable: true, .. })));
    // A file in the directory of the tool file.
    fs::create_dir(folder.path().join("data")).unwrap();
    fs::write(folder.path().join("data/conf.yml"), "x").unwrap();
    let script = "script = { path = 's.bt', interpreter = '/usr/bin/bpftrace' }";
    let archive = laid_out(folder.path(), &format!("{script}\nfiles = ['data/conf.yml']")).unwrap();
    assert!(archive.get("/tools/mine/data/conf.yml").is_some() && archive.get("/tools/mine/script").is_some());
    // A directory includes everything below it, but nothing outside that a link leads to.
    fs::create_dir(folder.path().join("data/more")).unwrap();
    fs::write(folder.path().join("data/more/module.py"), "y").unwrap();
    let archive = laid_out(folder.path(), &format!("{script}\nfiles = ['data']")).unwrap();
    let paths: Vec<&str> = archive.entries().map(|(path, _)| path).filter(|path| path.contains('.')).collect();
    assert_eq!(paths, ["tools/mine/data/conf.yml", "tools/mine/data/more/module.py"]);
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("data/out")).unwrap();
    for files in ["data/out", "data"] {
        let error = laid_out(folder.path(), &format!("{script}\nfiles = ['{files}']")).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("leads out of the directory"), "{files}: {error}");
    }
    let many = folder.path().join("many");
    fs::create_dir(&many).unwrap();
    (0..4097).for_each(|number| fs::write(many.join(number.to_string()), "").unwrap());
    let error = laid_out(folder.path(), &format!("{script}\nfiles = ['many']")).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("hold more than 4096 entries"), "{error}");
    // This test's program is dynamically linked.
    fs::copy(std::env::current_exe().unwrap(), folder.path().join("dynamic")).unwrap();
    if cfg!(target_arch = "x86_64") {
        let error = laid_out(folder.path(), "binary = { arch = 'x86_64', path = 'dynamic' }").unwrap_err();
        assert!(error.to_string().contains("give their directory as `libraries`"), "{error}");
        fs::create_dir(folder.path().join("lib")).unwrap();
        fs::write(folder.path().join("lib/libc.so.6"), "x").unwrap();
        let with = "binary = { arch = 'x86_64', path = 'dynamic', libraries = 'lib' }";
        let archive = laid_out(folder.path(), with).unwrap();
        let target = "lib/ld-linux-x86-64.so.2".to_owned();
        assert_eq!(archive.get("/tools/mine/loader"), Some(&NewcNode::Symlink { target }));
        assert!(archive.get("/tools/mine/lib/libc.so.6").is_some());
        std::os::unix::fs::symlink("../../etc/passwd", folder.path().join("lib/out")).unwrap();
        let error = laid_out(folder.path(), with).unwrap_err();
        assert!(error.to_string().contains("leads out of it"), "{error}");
    }
}

/// No guest starts services, whatever its root directory contains.
#[test]
fn a_service_that_no_guest_has_is_named() {
    let work = tempfile::tempdir().unwrap();
    let checked = |start: &str, besides| {
        let tool = loaded(work.path(), &format!("guest = {{ program = '/bin/x' }}\n[start]\n{start}"));
        check(Arch::X86_64, &[tool.supply()], besides).map_err(|error| error.to_string())
    };
    for besides in [Besides::Nothing, Besides::Others] {
        let error = checked("needs = ['systemd', 'dbus']", besides).unwrap_err();
        let begins = "cannot put the tool mine into guests: it needs systemd, D-Bus, which no guest has: process 1";
        assert!(error.starts_with(begins), "{error}");
    }
    assert_eq!(checked("ready = { programs = 1 }", Besides::Others), Ok(()));
}

#[test]
fn finished_guests_cannot_get_what_a_tool_requires_of_the_kernel() {
    let work = tempfile::tempdir().unwrap();
    let checked = |start: &str, sources: &Sources| {
        let tool = loaded(work.path(), &format!("guest = {{ program = '/bin/x' }}\n[start]\n{start}"));
        check_kernel(&[tool.supply()], sources).map_err(|error| error.to_string())
    };
    let (headers, modules) = ("kernel_headers = true", "modules = ['xfs', 'md-mod']");
    let finished = Sources { manifest: Some("m.json".into()), ..Sources::default() };
    assert!(checked(headers, &finished).unwrap_err().contains("it needs headers of the kernel, and the guests of"));
    assert!(checked(modules, &finished).unwrap_err().contains("it needs kernel modules (xfs, md_mod), and the guests"));
    let image = LocalKernel::find(work.path().join("bzImage").as_path(), None, &[]).unwrap();
    let local = Sources { local: Some(image), ..Sources::default() };
    assert!(checked(headers, &local).unwrap_err().contains("known for kernels of `bpfassay list kernels` only"));
    assert_eq!(checked(modules, &local), Ok(()));
    for start in [headers, modules] {
        assert_eq!(checked(start, &Sources::default()), Ok(()));
    }
}

#[test]
fn what_is_not_what_it_should_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "no program").unwrap();
    let refused = |source: &str| laid_out(folder.path(), source).unwrap_err().to_string();
    assert!(refused("binary = { arch = 'x86_64', path = 'a' }").contains("is no program for x86_64"));
    assert!(refused("object = { path = 'a' }").contains("is no eBPF object"));
    assert!(refused("object = { path = 'b' }").contains("cannot read"));
}

#[test]
fn links_lead_nowhere_but_below_the_directory_of_the_tool_file() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path().join("tool");
    fs::create_dir_all(folder.join("real")).unwrap();
    fs::create_dir(work.path().join("elsewhere")).unwrap();
    for file in ["secret", "elsewhere/script", "elsewhere/libsecret.so", "tool/real/script"] {
        fs::write(work.path().join(file), "#!/bin/sh\n").unwrap();
    }
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, folder.join(name)).unwrap();
    link("../secret", "l1");
    link("/etc/passwd", "l2");
    link("../elsewhere", "out");
    link("real", "inside");
    link("/dev/zero", "zero");
    let script =
        |path: &str| laid_out(&folder, &format!("script = {{ path = '{path}', interpreter = '/usr/bin/bpftrace' }}"));
    for path in ["real/script", "inside/script"] {
        assert!(script(path).unwrap().get("/tools/mine/script").is_some(), "{path}");
    }
    for path in ["l1", "l2", "out/script", "zero"] {
        let error = script(path).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("leads out of the directory"), "{path}: {error}: {cause}");
        assert!(laid_out(&folder, &format!("object = {{ path = '{path}' }}")).is_err());
        assert!(laid_out(&folder, &format!("binary = {{ arch = 'x86_64', path = '{path}' }}")).is_err());
    }
    let libraries = |path: &str| {
        let exe = std::env::current_exe().unwrap();
        fs::copy(exe, folder.join("program")).unwrap();
        laid_out(&folder, &format!("binary = {{ arch = 'x86_64', path = 'program', libraries = '{path}' }}"))
    };
    let error = libraries("out").unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("leads out of the directory"), "{error}: {cause}");
    if cfg!(target_arch = "x86_64") {
        assert!(libraries("inside").unwrap().get("/tools/mine/lib/script").is_some());
    }
    let pipe = folder.join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let error = script("pipe").unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("a named pipe"), "{error}");
}

#[test]
fn what_was_found_in_a_directory_is_not_exchanged_for_a_link() {
    let work = tempfile::tempdir().unwrap();
    let (lib, secret) = (work.path().join("lib"), work.path().join("secret"));
    fs::create_dir(&lib).unwrap();
    fs::write(lib.join("a"), "library").unwrap();
    fs::write(&secret, "secrets").unwrap();
    let mut archive = Archive::default();
    initramfs_tree::add_directory(&mut archive, &lib, "").unwrap();
    fs::remove_file(lib.join("a")).unwrap();
    std::os::unix::fs::symlink(&secret, lib.join("a")).unwrap();
    assert!(archive.to_bytes().is_err());
}

#[test]
fn a_program_that_is_in_no_package_is_refused_once_they_are_unpacked() {
    let mut unpacked = Archive::default();
    let content = || FileContent::Bytes(Vec::new());
    unpacked.add("usr/sbin/vfsstat-libbpf", NewcNode::File { executable: true, content: content() }).unwrap();
    unpacked.add("sbin", NewcNode::Symlink { target: "usr/sbin".to_owned() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let said = |program: &str| {
        let source = format!("debian = {{ suite = 'trixie', package = 'libbpf-tools', program = '{program}' }}");
        let tool = loaded(folder.path(), &source);
        let supplies = [tool.supply()];
        let started = started_from_packages(Arch::X86_64, &supplies);
        check_packages(&started, &unpacked).map_or_else(|error| error.to_string(), |()| String::new())
    };
    assert_eq!((said("/usr/sbin/vfsstat-libbpf"), said("/sbin/vfsstat-libbpf")), (String::new(), String::new()));
    let error = said("/usr/sbin/vfsstat");
    assert!(error.contains("neither the package libbpf-tools nor what it depends on has /usr/sbin/vfsstat"), "{error}");
    assert!(error.ends_with("did you mean `/usr/sbin/vfsstat-libbpf`?"), "{error}");
}

#[test]
fn the_shell_of_packages_has_its_usual_name() {
    for directory in ["usr/bin", "bin"] {
        let work = tempfile::tempdir().unwrap();
        fs::create_dir_all(work.path().join(directory)).unwrap();
        fs::write(work.path().join(directory).join("dash"), "x").unwrap();
        let mut archive = Archive::default();
        lay_out(&UntrustedTree::open(work.path()).unwrap(), &mut archive).unwrap();
        assert!(start::is_there(&archive, "/bin/sh"), "{directory}");
    }
}

#[test]
fn packages_come_with_a_shell_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let needed = |source: &str| {
        let tool = loaded(folder.path(), source);
        let supplies = [tool.supply()];
        Needs::of(Arch::X86_64, &supplies).unwrap().packages.into_values().flatten().collect::<Vec<_>>().join(" ")
    };
    let debian = "debian = { suite = 's', package = 'p', with = ['q'], program = '/usr/bin/p' }";
    assert_eq!(needed(debian), "dash p q");
    let script = "script = { path = 'a', interpreter = '/b', debian = { suite = 's', package = 'p' } }";
    assert_eq!(needed(script), "dash p");
    for other in ["guest = { program = '/bin/x' }", "script = { path = 'a', interpreter = '/b' }"] {
        assert_eq!(needed(other), "", "{other}");
    }
}

#[test]
fn two_suites_do_not_go_together() {
    let folder = tempfile::tempdir().unwrap();
    let debian = |suite: &str| {
        loaded(folder.path(), &format!("debian = {{ suite = '{suite}', package = 'p', program = '/usr/bin/p' }}"))
    };
    let (trixie, sid) = (debian("trixie"), debian("sid"));
    let supplies = [trixie.supply(), sid.supply()];
    let needs = Needs::of(Arch::X86_64, &supplies).unwrap();
    assert_eq!(needs.packages.len(), 2);
}
