// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests what merged shards contain, and what is refused.

use std::os::unix::fs::symlink;

use bpfassay_packages::digest::Digest;
use bpfassay_protocol::{
    message::GuestFacts,
    tracer_messages::{Refusal, Step},
};
use bpfassay_results::{
    BlockEnded, BlockStarted, BootVerdict, GuestReady, JOURNAL_VERSION, JournalHeader, Outcome, Provenance, RunRecord,
    file, fingerprint,
    provenance::{Artefact, HostFacts, QemuFacts, TargetArtefacts},
};
use bpfassay_study::{Available, Clock, Narrowing, Shard, Target};
use bpfassay_testbed::manifest::{File, Kernel, MadeBy, Manifest, Segment, Target as Guest};
use tempfile::TempDir;

use super::*;

pub(crate) fn whole_plan() -> Plan {
    let mut study = bpfassay_study::load("quick").unwrap();
    (study.clock, study.clock_of_host) = (Clock::Instructions, false);
    let narrowing = Narrowing { replicates: Some(2), kernels: vec!["7.2".to_owned()], ..Narrowing::default() };
    bpfassay_study::expand(&study, &narrowing, &Available::default()).unwrap()
}

fn plan_of(shard: &str) -> Plan {
    whole_plan().of_shard(shard.parse::<Shard>().unwrap()).unwrap()
}

fn artefact(name: &str, content: &str) -> Artefact {
    let sha256 = Some(Digest::of(content.as_bytes()).to_string());
    Artefact { name: name.to_owned(), version: "1".to_owned(), sha256 }
}

fn manifest(targets: &[&Target]) -> Manifest {
    let file =
        |name: &str| File { path: format!("/cache/{name}").into(), size: 1, sha256: Digest::of(name.as_bytes()) };
    let guest = |target: &&Target| Guest {
        arch: target.arch,
        name: target.kernel.clone(),
        kernel: Kernel {
            release: target.kernel.parse().unwrap(),
            version: None,
            image: file(&target.id()),
            config: None,
            modules: None,
            packages: Vec::new(),
        },
        initramfs: vec![Segment { role: "base".to_owned(), archive: file("base"), contents: Vec::new() }],
    };
    Manifest {
        format: 1,
        provider: MadeBy { name: "debian".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        toolchain: Vec::new(),
        assets: Vec::new(),
        targets: targets.iter().map(guest).collect(),
    }
}

/// The provenance of `plan` on `host`.
pub(crate) fn provenance(plan: &Plan, host: &str) -> Provenance {
    let targets = plan.targets();
    let made = |target: &&Target| TargetArtefacts {
        target: (*target).clone(),
        kernel: artefact("kernel", &target.kernel),
        initramfs: vec![artefact("base", "base")],
        payload: vec![artefact("/init", target.arch.name())],
    };
    let qemu = |target: &&Target| {
        let facts = QemuFacts {
            program: artefact("qemu", target.arch.name()),
            path: format!("/usr/bin/qemu-{}", target.arch),
            accelerator: "tcg".to_owned(),
            accelerator_reason: "asked for".to_owned(),
            machine: "virt".to_owned(),
            cpu: "max".to_owned(),
            plugin_api: None,
            package: None,
        };
        (target.arch, facts)
    };
    Provenance {
        bpfassay: artefact("bpfassay", "program"),
        host: HostFacts { machine: host.to_owned(), jobs: 2, ..HostFacts::default() },
        qemu: targets.iter().map(qemu).collect(),
        targets: targets.iter().map(made).collect(),
        manifest: serde_json::to_value(manifest(&targets)).unwrap(),
    }
}

/// The journal of a complete run of `plan`, or of its shard, on `host`.
pub(crate) fn measured(plan: Plan, host: &str) -> JournalContents {
    let mut entries = Vec::new();
    for block in plan.measured_blocks() {
        let (id, boot) = (block.id.clone(), 1);
        entries.push(JournalEntry::BlockStarted(Box::new(BlockStarted {
            block: id.clone(),
            boot,
            attempt: 1,
            at_unix_ms: 2000,
            qemu: vec!["qemu".to_owned()],
            log: Some(format!("{LOGS}/{id}_boot1.log")),
            runs: block.runs.iter().map(|run| run.spec.id.clone()).collect(),
            confirming: None,
            reused: None,
        })));
        let facts = GuestFacts::default();
        let ready = GuestReady { block: id.clone(), boot, ready_after_ms: 1, facts, nodes: Vec::new() };
        entries.push(JournalEntry::GuestReady(Box::new(ready)));
        for run in &block.runs {
            let message = format!("refused {}", run.spec.id);
            let refusal = Refusal::new(Step::Load, message);
            entries.push(JournalEntry::Run(Box::new(RunRecord::new(
                block,
                run,
                boot,
                3000,
                5,
                Outcome::Refused(refusal),
            ))));
        }
        entries.push(JournalEntry::BlockEnded(Box::new(BlockEnded {
            block: id,
            boot,
            at_unix_ms: 4000,
            failure: None,
            notes: Vec::new(),
            counts: None,
            code_coverage: None,
            verdict: BootVerdict::Complete,
            settled: Vec::new(),
        })));
    }
    let provenance = provenance(&plan, host);
    let header = JournalHeader { journal: JOURNAL_VERSION, started_unix_ms: 1000, plan, provenance };
    JournalContents { header, entries, torn: None, digest: None }
}

/// A results directory with `contents`.
fn put(folder: &TempDir, name: &str, contents: &JournalContents) -> PathBuf {
    let directory = folder.path().join(name);
    let mut journal = Journal::create(&directory, &contents.header).unwrap();
    journal.append_all(&contents.entries).unwrap();
    fs::create_dir(directory.join(LOGS)).unwrap();
    for entry in &contents.entries {
        if let JournalEntry::BlockStarted(started) = entry
            && let BlockStarted { block, log: Some(log), .. } = started.as_ref()
            && is_log(log)
        {
            fs::write(directory.join(log), format!("console of {block}\n")).unwrap();
        }
    }
    work::conclude(&directory).unwrap();
    directory
}

fn shards(folder: &TempDir, hosts: [&str; 2]) -> Vec<PathBuf> {
    let put = |(number, host)| put(folder, &format!("{number}"), &measured(plan_of(&format!("{number}/2")), host));
    (1..).zip(hosts).map(put).collect()
}

fn refused(directories: &[PathBuf]) -> String {
    bpfassay_protocol::with_causes(&Merge::read(directories).unwrap_err())
}

#[test]
fn merged_shards_are_the_run_that_was_not_spread_to_the_byte() {
    let folder = tempfile::tempdir().unwrap();
    let whole = put(&folder, "whole", &measured(whole_plan(), "a"));
    let mut directories = shards(&folder, ["a", "a"]);
    for out in ["merged", "from-the-other-end"] {
        let out = folder.path().join(out);
        let merge = Merge::read(&directories).unwrap().complete().unwrap();
        let (results, fingerprinted) = merge.write(&out).unwrap();
        assert_eq!(fingerprinted, Some(fingerprint(results.runs.iter().map(|run| &run.record))));
        let read = |directory: &Path, name: &str| fs::read(directory.join(name)).unwrap();
        for name in [file::FILE_NAME, bpfassay_results::journal::FILE_NAME] {
            assert!(read(&out, name) == read(&whole, name), "{name}");
        }
        assert!(check(&out).iter().all(|checked| checked.soundness == Soundness::Sound), "{:?}", check(&out));
        let logs = |directory: &Path| fs::read_dir(directory.join(LOGS)).unwrap().count();
        assert_eq!((logs(&out), logs(&whole)), (6, 6));
        directories.reverse();
    }
    // Anything that exists at the place of the results stays as it is.
    for (place, make) in [
        ("file", (|path: &Path| fs::write(path, "mine")) as fn(&Path) -> io::Result<()>),
        ("link", |path| symlink("nowhere", path)),
        ("empty", |path| fs::create_dir(path)),
    ] {
        let out = folder.path().join(place);
        make(&out).unwrap();
        let merge = Merge::read(&directories).unwrap();
        assert!(matches!(merge.write(&out), Err(MergeError::Exists(_))), "{place}");
    }
    let left = fs::read_dir(folder.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".bpfassay"));
    assert_eq!(left.count(), 0);
}

#[test]
fn what_hosts_measured_stays_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let merge = Merge::read(&shards(&folder, ["a", "b"])).unwrap().complete().unwrap();
    let plan = merge.plan().clone();
    let (results, fingerprinted) = merge.write(&folder.path().join("out")).unwrap();
    let [a, b] = results.provenance.as_slice() else { panic!("{:?}", results.provenance) };
    assert_eq!((a.host.machine.as_str(), b.host.machine.as_str()), ("a", "b"));
    // Both have the guests of both shards, so the results can be verified and continued.
    assert_eq!((a.targets.len(), a.qemu.len(), &a.manifest), (plan.targets().len(), 3, &b.manifest));
    let order: Vec<&str> = results.boots.iter().map(|boot| boot.block.as_str()).collect();
    let of = |text: &str| plan_of(text).measured_blocks().iter().map(|block| block.id.clone()).collect::<Vec<_>>();
    assert_eq!(order, [of("1/2"), of("2/2")].concat());
    let whole = measured(whole_plan(), "a");
    assert_eq!(fingerprinted, Some(fingerprint(whole.records().into_values())));
    assert!(crate::sessions::verification::Verification::new(&folder.path().join("out"), None).is_ok());
}

#[test]
fn a_shard_that_another_host_continued_keeps_both() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = measured(plan_of("1/2"), "a");
    let resumed = JournalEntry::Resumed { at_unix_ms: 9000, provenance: Box::new(provenance(&plan_of("1/2"), "b")) };
    let end = first.entries.iter().position(|entry| matches!(entry, JournalEntry::BlockEnded(_))).unwrap();
    first.entries.insert(end + 1, resumed);
    let directories = [put(&folder, "1", &first), put(&folder, "2", &measured(plan_of("2/2"), "a"))];
    let (results, _) =
        Merge::read(&directories).unwrap().complete().unwrap().write(&folder.path().join("out")).unwrap();
    let hosts: Vec<&str> = results.provenance.iter().map(|made| made.host.machine.as_str()).collect();
    assert_eq!(hosts, ["a", "b"]);
    // The first host has one boot of the first shard, and the second host has all others.
    let contents = JournalContents::read(&folder.path().join("out")).unwrap();
    let at = contents.entries.iter().position(|entry| matches!(entry, JournalEntry::Resumed { .. })).unwrap();
    let started = |entries: &[JournalEntry]| {
        entries.iter().filter(|entry| matches!(entry, JournalEntry::BlockStarted(_))).count()
    };
    assert_eq!((started(&contents.entries[..at]), started(&contents.entries[at..])), (4, 2));
}

#[test]
fn boots_are_missing_or_there_once() {
    let folder = tempfile::tempdir().unwrap();
    let directories = shards(&folder, ["a", "a"]);
    let message = refused(&[directories[0].clone(), directories[1].clone(), directories[0].clone()]);
    assert!(message.contains("both have the block x86_64_7.2_quick_nfs4.2_1: name each shard once"), "{message}");
    let merge = Merge::read(&directories[1..]).unwrap();
    assert_eq!(
        merge.missing(),
        ["x86_64_7.2_quick_nfs4.2_1", "aarch64_7.2_quick_nfs4.2_1", "x86_64_7.2_quick_nfs4.2_2"]
    );
    let error = merge.complete().unwrap_err().to_string();
    assert!(error.starts_with("3 of 6 boots are missing: x86_64_7.2_quick_nfs4.2_1, "), "{error}");
    // The existing shards can be merged with the rest later.
    let (part, rest) = (folder.path().join("part"), directories[0].clone());
    let (results, _) = Merge::read(&directories[1..]).unwrap().write(&part).unwrap();
    assert!(
        results.plan.shard.is_none() && results.notes.iter().any(|note| note.contains("planned runs were not done"))
    );
    assert_eq!(JournalContents::read(&part).unwrap().to_do(Again::Nothing).len(), 3);
    assert!(Merge::read(&[part, rest]).unwrap().complete().is_ok());
    assert!(matches!(Merge::read(&[]), Err(MergeError::Nothing)));
}

/// Merges two shards, of which `change` changes the second. Returns the refusal.
fn with_second(change: impl FnOnce(&mut JournalContents)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut second = measured(plan_of("2/2"), "a");
    change(&mut second);
    refused(&[put(&folder, "1", &measured(plan_of("1/2"), "a")), put(&folder, "2", &second)])
}

#[test]
fn another_plan_or_other_guests_are_refused() {
    let message = with_second(|second| {
        let mut plan = whole_plan();
        plan.study.design.seed += 1;
        let plan = plan.with_blocks(plan.blocks.clone()).of_shard("2/2".parse().unwrap()).unwrap();
        *second = measured(plan, "a");
    });
    assert!(message.contains("of different plans at /") && message.contains("same options"), "{message}");
    let message = with_second(|second| second.header.provenance.bpfassay.sha256 = None);
    assert!(message.contains("different programs bpfassay (1 "), "{message}");
    let message = with_second(|second| {
        second.header.provenance.qemu.values_mut().for_each(|facts| facts.cpu = "max,-erms".to_owned());
    });
    assert!(message.contains("different QEMUs for aarch64") && message.contains("-cpu max,-erms"), "{message}");
    // Both shards have aarch64 7.2.
    let message = with_second(|second| {
        second.header.provenance.targets.iter_mut().for_each(|made| made.kernel.sha256 = None);
    });
    assert!(message.contains("different guests for aarch64 7.2"), "{message}");
    let message = with_second(|second| {
        second.header.provenance.targets.retain(|made| made.target.arch.name() == "aarch64");
        for made in &mut second.header.provenance.targets {
            made.target.kernel = "6.1".to_owned();
            made.payload.clear();
        }
    });
    assert!(message.contains("different programs in the guests for aarch64"), "{message}");
    let message = with_second(|second| second.header.provenance.manifest = serde_json::Value::Null);
    assert!(message.contains("`bpfassay here`"), "{message}");
    let message = with_second(|second| second.header.provenance.manifest = serde_json::json!({"format": 1}));
    assert!(message.contains("its testbed manifest"), "{message}");
}

#[test]
fn directories_that_no_run_left_so_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let directories = shards(&folder, ["a", "a"]);
    let second = &directories[1];
    let journal = second.join(bpfassay_results::journal::FILE_NAME);
    let results = second.join(file::FILE_NAME);
    let good = [fs::read(&journal).unwrap(), fs::read(&results).unwrap()];
    let log = fs::read_dir(second.join(LOGS)).unwrap().next().unwrap().unwrap().path();
    let restore = || {
        fs::write(&journal, &good[0]).unwrap();
        fs::write(&results, &good[1]).unwrap();
        let _ = fs::remove_file(&log);
        fs::write(&log, "console\n").unwrap();
    };
    let expect = |what: &str, message: &str| {
        let found = refused(&directories);
        assert!(found.contains(message) && found.contains("/2"), "{what}: {found}");
        restore();
    };
    fs::remove_file(&results).unwrap();
    expect("a shard that was killed", "results.json: it does not exist: the run has not ended; continue with");
    fs::write(&journal, &good[0][..good[0].len() - 40]).unwrap();
    expect("a truncated journal", "results of the journal: the results were made of");
    fs::write(&journal, &good[0][..1000]).unwrap();
    expect("no whole line", "the header is missing");
    fs::write(&results, &good[1][..good[1].len() / 2]).unwrap();
    expect("truncated results", "results.json: ");
    let text = String::from_utf8(good[0].clone()).unwrap();
    fs::write(&journal, text.replacen("\"journal\":4", "\"journal\":3", 1)).unwrap();
    expect("another version", "has version 3");
    fs::write(&journal, text.replacen("refused", "measured", 1)).unwrap();
    expect("a line that was changed", "its sum does not fit");
    fs::File::options().write(true).open(&journal).unwrap().set_len((4 << 30) + 1).unwrap();
    expect("a huge journal", "larger than");
    fs::File::options().write(true).open(&results).unwrap().set_len(64 << 30).unwrap();
    expect("huge results", "results.json: ");
    fs::remove_file(&log).unwrap();
    expect("a log that is gone", "logs: 1 of 3 are missing");
    fs::remove_file(&log).unwrap();
    symlink("/etc/passwd", &log).unwrap();
    expect("a log that is a link", "is no regular file");
    fs::remove_file(&journal).unwrap();
    fs::create_dir(&journal).unwrap();
    let found = refused(&directories);
    assert!(found.contains("regular file"), "{found}");
}

#[test]
fn logs_that_lie_elsewhere_are_refused() {
    for log in [
        "logs",
        "logs/",
        "logs/../results.json",
        "/etc/passwd",
        "../x",
        "logs/a/b",
        "other/x",
        "logs/a\nb",
        "logs/\u{1b}[2J",
        "",
    ] {
        assert!(!is_log(log), "{log:?}");
        let message = with_second(|second| {
            for entry in &mut second.entries {
                if let JournalEntry::BlockStarted(started) = entry {
                    started.log = Some(log.to_owned());
                    break;
                }
            }
        });
        assert!(message.contains("logs: ") || message.contains("cannot take over the log"), "{log:?}: {message}");
        assert!(!message.contains(['\n', '\u{1b}']), "{message:?}");
    }
    assert!(is_log("logs/x86_64_7.2_quick_nfs4.2_1_boot1.log"));
    // A shard must not take the log of another shard.
    let message = with_second(|second| {
        for entry in &mut second.entries {
            if let JournalEntry::BlockStarted(started) = entry {
                started.log = Some(format!("{LOGS}/x86_64_7.2_quick_nfs4.2_1_boot1.log"));
                break;
            }
        }
    });
    assert!(message.contains("cannot take over the log") && message.contains("names the same"), "{message}");
}

#[test]
fn a_log_larger_than_any_guest_writes_is_refused_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let directories = shards(&folder, ["a", "a"]);
    let log = fs::read_dir(directories[0].join(LOGS)).unwrap().next().unwrap().unwrap().path();
    fs::File::options().write(true).open(&log).unwrap().set_len(MAX_LOG + 1).unwrap();
    let out = folder.path().join("out");
    let error = Merge::read(&directories).unwrap().write(&out).unwrap_err();
    assert!(matches!(error, MergeError::Log { .. }), "{error}");
    assert_eq!((out.exists(), fs::read_dir(folder.path()).unwrap().count()), (false, 2));
}
