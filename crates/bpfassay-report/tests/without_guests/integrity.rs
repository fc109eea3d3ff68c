// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damaged journals and results, edits by hand, and invalid files: all are refused with a message
//! that names the file, and they never yield other figures.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use std::{
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use bpfassay_report::{
    check_results::{Soundness, check},
    derive,
};
use bpfassay_results::{
    Journal, JournalContents, JournalEntry, JournalError, ResultsError, file,
    journal::{FILE_NAME, TORN_FILE_NAME},
};
use lzma_rust2::{XzOptions, XzWriter};
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::common::{contents, outcome, study};

/// Creates a small journal: one target, four runs in one boot.
fn small(seed: u64) -> JournalContents {
    let mut study = study(None, 1, 1);
    study.targets.truncate(1);
    study.design.seed = seed;
    contents(&study, outcome)
}

/// Creates an intact results directory.
fn whole(directory: &Path) -> JournalContents {
    let contents = small(1);
    written(directory, &contents);
    for entry in &contents.entries {
        if let JournalEntry::BlockStarted(started) = entry {
            let log = directory.join(started.log.as_ref().unwrap());
            fs::create_dir_all(log.parent().unwrap()).unwrap();
            fs::write(log, "boots").unwrap();
        }
    }
    file::write(directory, &derive(&JournalContents::read(directory).unwrap())).unwrap();
    contents
}

fn written(directory: &Path, contents: &JournalContents) {
    let mut journal = Journal::create(directory, &contents.header).unwrap();
    contents.entries.iter().for_each(|entry| journal.append(entry).unwrap());
}

/// SplitMix64, as in bpfassay-study.
struct Generator(u64);

impl Generator {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap()
    }
}

/// There are 1,500 flips in a journal and 1,500 in results. A flip of the last line feed loses only
/// the last line of a journal, like a crash.
#[test]
fn of_three_thousand_bit_flips_none_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let written = whole(folder.path());
    let mut generator = Generator(20_261_122);
    let mut flipped = |path: &Path, refused: &mut dyn FnMut(usize, usize)| {
        let good = fs::read(path).unwrap();
        for _ in 0..1_500 {
            let bit = generator.below(good.len() * 8);
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            fs::write(path, &bad).unwrap();
            refused(bit, good.len());
        }
        fs::write(path, good).unwrap();
    };
    let journal = folder.path().join(FILE_NAME);
    flipped(&journal, &mut |bit, length| match JournalContents::read(folder.path()) {
        Err(error) => assert!(error.to_string().contains(FILE_NAME), "bit {bit}: {error}"),
        Ok(read) => {
            assert_eq!(bit / 8, length - 1, "bit {bit} was accepted");
            assert!(read.torn.is_some());
            assert_eq!(read.entries, written.entries[..written.entries.len() - 1]);
        }
    });
    let results = folder.path().join(file::FILE_NAME);
    flipped(&results, &mut |bit, _| match file::read(&results) {
        Err(error) => assert!(error.to_string().contains(file::FILE_NAME), "bit {bit}: {error}"),
        Ok(_) => panic!("bit {bit} was accepted"),
    });
    // The files are intact after the flips are undone.
    assert!(check(folder.path()).iter().all(|one| one.soundness == Soundness::Sound));
}

fn lines(directory: &Path) -> Vec<String> {
    fs::read_to_string(directory.join(FILE_NAME)).unwrap().lines().map(str::to_owned).collect()
}

/// Writes `lines` unchanged, and returns the line at which reading stops.
fn refused_at(directory: &Path, lines: &[String]) -> (usize, String) {
    fs::write(directory.join(FILE_NAME), lines.join("\n") + "\n").unwrap();
    match JournalContents::read(directory) {
        Err(JournalError::Corrupt { line, message, .. }) => (line, message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn lines_are_neither_exchanged_nor_dropped_nor_repeated_nor_taken_from_another_journal() {
    let folder = tempfile::tempdir().unwrap();
    whole(folder.path());
    let good = lines(folder.path());
    // Header, start, ready, four runs, end.
    assert_eq!(good.len(), 8);
    let mut exchanged = good.clone();
    exchanged.swap(4, 5);
    assert_eq!(refused_at(folder.path(), &exchanged).0, 5);
    let mut dropped = good.clone();
    dropped.remove(5);
    assert_eq!(refused_at(folder.path(), &dropped).0, 6);
    let mut repeated = good.clone();
    repeated.insert(5, good[4].clone());
    assert_eq!(refused_at(folder.path(), &repeated).0, 6);
    // The journal is that of the same study with another seed; every line is valid in its own
    // journal.
    let other = tempfile::tempdir().unwrap();
    written(other.path(), &small(2));
    let spliced: Vec<String> = good[..4].iter().chain(&lines(other.path())[4..]).cloned().collect();
    assert_eq!(refused_at(folder.path(), &spliced).0, 5);
}

/// Creates lines with other objects and matching sums, as anyone can who computes sums.
fn forged(objects: &[String]) -> Vec<String> {
    let mut sum = String::new();
    let seal = |object: &String| {
        let digest = Sha256::digest(format!("{sum}{object}").as_bytes());
        sum = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{{\"sum\":\"{sum}\",{}", &object[1..])
    };
    objects.iter().map(seal).collect()
}

/// Returns the contents of the lines without their sums.
fn objects(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| format!("{{{}", &line["{\"sum\":\"\",".len() + 64..])).collect()
}

#[test]
fn sums_are_made_as_described() {
    let folder = tempfile::tempdir().unwrap();
    whole(folder.path());
    let good = lines(folder.path());
    assert_eq!(forged(&objects(&good)), good);
}

#[test]
fn what_cannot_be_under_the_plan_is_refused_whatever_its_sums() {
    let folder = tempfile::tempdir().unwrap();
    whole(folder.path());
    let good = objects(&lines(folder.path()));
    let changed = |line: usize, change: &dyn Fn(&mut Value)| {
        let mut objects = good.clone();
        let mut value: Value = serde_json::from_str(&objects[line - 1]).unwrap();
        change(&mut value);
        objects[line - 1] = value.to_string();
        forged(&objects)
    };
    let set = |pointer: &'static str, to: Value| {
        move |value: &mut Value| *value.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = to.clone()
    };
    let other_run: Value = serde_json::from_str(&good[4]).unwrap();
    for (line, change, part) in [
        (1, set("/plan/study/design/seed", 99.into()), "the plan is not the one that its digest names"),
        (1, set("/plan/digest", "0".repeat(64).into()), "the plan is not the one that its digest names"),
        (1, set("/plan/blocks/0/runs/0/round", 2.into()), "the plan is not the one that its digest names"),
        (2, set("/block", "x86_64_6.1_w_nfs4.2_2".into()), "the plan has no block x86_64_6.1_w_nfs4.2_2"),
        (2, set("/boot", 0.into()), "boot 0 of block"),
        (3, set("/boot", 2.into()), "a guest is ready in boot 2 of block"),
        (4, set("/run", "nobody".into()), "the plan has no run nobody"),
        (4, set("/run", other_run["run"].clone()), "than the plan gives it"),
        (4, set("/cell", "nowhere".into()), "another cell than the plan gives it"),
        (4, set("/target/kernel", "7.2".into()), "another target"),
        (4, set("/replicate", 2.into()), "another replicate"),
        (4, set("/round", 9.into()), "another round"),
        (4, set("/statistics", true.into()), "another mark as run for statistics"),
        (4, set("/boot", 2.into()), "boot 2 of block"),
        (8, set("/boot", 2.into()), "an end is recorded of boot 2"),
    ] {
        let (at, message) = refused_at(folder.path(), &changed(line, &change));
        assert!(at == line && message.contains(part), "{line} {part}: {at} {message}");
    }
    // A duplicate key is refused.
    for (object, key) in [(3, "\"run\":\"x\","), (3, "\"sum\":\"x\","), (0, "\"sum\":\"x\","), (0, "\"journal\":4,")] {
        let mut objects = good.clone();
        objects[object] = format!("{{{key}{}", &good[object][1..]);
        let (_, message) = refused_at(folder.path(), &forged(&objects));
        let parts = ["duplicate field", "unknown field", "not the header of a journal"];
        assert!(parts.iter().any(|part| message.contains(part)), "{key}: {message}");
    }
    // A block ends once, and a boot number starts once.
    let mut objects = good.clone();
    objects.push(good[7].clone());
    assert_eq!(refused_at(folder.path(), &forged(&objects)).0, 9);
    *objects.last_mut().unwrap() = good[1].clone();
    assert_eq!(refused_at(folder.path(), &forged(&objects)).0, 9);
    // The helper makes valid journals.
    fs::write(folder.path().join(FILE_NAME), forged(&good).join("\n") + "\n").unwrap();
    JournalContents::read(folder.path()).unwrap();
}

#[test]
fn a_line_without_its_end_is_never_used() {
    let folder = tempfile::tempdir().unwrap();
    let written = whole(folder.path());
    let path = folder.path().join(FILE_NAME);
    let good = fs::read_to_string(&path).unwrap();
    // Add one more record with a matching sum.
    let mut all = objects(&lines(folder.path()));
    let again = all[4].clone();
    all.insert(7, again);
    let longer = forged(&all);
    let text = longer[..8].join("\n");
    fs::write(&path, &text).unwrap();
    let read = JournalContents::read(folder.path()).unwrap();
    assert_eq!(read.entries, written.entries[..6]);
    assert_eq!(read.torn.as_ref().map(|torn| torn.line), Some(8));
    let (_, resumed) = Journal::resume(folder.path()).unwrap();
    assert_eq!(resumed.entries, read.entries);
    let kept = fs::read_to_string(&path).unwrap();
    assert!(good.starts_with(&kept) && JournalContents::read(folder.path()).unwrap().torn.is_none());
}

#[test]
fn a_journal_before_sums_is_recognised_by_its_version() {
    let folder = tempfile::tempdir().unwrap();
    whole(folder.path());
    let first = objects(&lines(folder.path()))[0].replacen("\"journal\":4", "\"journal\":1", 1);
    fs::write(folder.path().join(FILE_NAME), first + "\n").unwrap();
    assert!(matches!(JournalContents::read(folder.path()), Err(JournalError::Version { found: 1, .. })));
}

fn pipe(at: &Path) {
    mkfifoat(CWD, at, Mode::RUSR | Mode::WUSR).unwrap();
}

#[test]
fn pipes_and_devices_are_refused_and_nothing_waits_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    pipe(&at(FILE_NAME));
    assert!(matches!(JournalContents::read(folder.path()), Err(JournalError::NotAFile { .. })));
    assert!(matches!(Journal::resume(folder.path()), Err(JournalError::NotAFile { .. })));
    pipe(&at(file::FILE_NAME));
    for path in [folder.path().to_owned(), at(file::FILE_NAME), PathBuf::from("/dev/zero")] {
        assert!(matches!(file::read(&path), Err(ResultsError::NotAFile { .. })), "{}", path.display());
    }
    // Results replace a pipe instead of writing into it.
    pipe(&at(".results.json.new"));
    file::write(folder.path(), &derive(&small(1))).unwrap();
    file::read(folder.path()).unwrap();
}

#[test]
fn nothing_is_written_through_symbolic_links() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("results");
    let precious = folder.path().join("precious");
    let kept = || assert_eq!(fs::read_to_string(&precious).unwrap(), "kept");
    fs::write(&precious, "kept").unwrap();
    let contents = whole(&directory);
    let at = |name: &str| directory.join(name);

    for name in [".results.json.new", file::FILE_NAME] {
        let _ = fs::remove_file(at(name));
        symlink(&precious, at(name)).unwrap();
    }
    file::write(&directory, &derive(&contents)).unwrap();
    kept();
    assert!(at(file::FILE_NAME).symlink_metadata().unwrap().is_file());

    let good = fs::read(at(FILE_NAME)).unwrap();
    fs::write(at(FILE_NAME), &good[..good.len() - 5]).unwrap();
    symlink(&precious, at(TORN_FILE_NAME)).unwrap();
    assert!(matches!(Journal::resume(&directory), Err(JournalError::NotAFile { .. })));
    kept();

    fs::rename(at(FILE_NAME), folder.path().join("elsewhere")).unwrap();
    symlink(folder.path().join("elsewhere"), at(FILE_NAME)).unwrap();
    assert!(matches!(Journal::resume(&directory), Err(JournalError::NotAFile { .. })));
    assert!(matches!(Journal::create(&directory, &contents.header), Err(JournalError::Exists { .. })));
    // Links in the directory are not followed when reading, unless the user names the file itself.
    assert!(matches!(JournalContents::read(&directory), Err(JournalError::NotAFile { .. })));
    fs::rename(at(file::FILE_NAME), folder.path().join("results of somebody")).unwrap();
    symlink(folder.path().join("results of somebody"), at(file::FILE_NAME)).unwrap();
    assert!(matches!(file::read(&directory), Err(ResultsError::NotAFile { .. })));
    file::read(&at(file::FILE_NAME)).unwrap();
    // The user can name a link to the whole directory.
    symlink(&directory, folder.path().join("latest")).unwrap();
    assert!(matches!(file::read(&folder.path().join("latest")), Err(ResultsError::NotAFile { .. })));
    fs::remove_file(at(file::FILE_NAME)).unwrap();
    fs::rename(folder.path().join("results of somebody"), at(file::FILE_NAME)).unwrap();
    file::read(&folder.path().join("latest")).unwrap();
    fs::remove_file(at(FILE_NAME)).unwrap();
    fs::rename(folder.path().join("elsewhere"), at(FILE_NAME)).unwrap();
    let kept_logs = folder.path().join("logs of somebody");
    fs::rename(at("logs"), &kept_logs).unwrap();
    symlink(&kept_logs, at("logs")).unwrap();
    assert!(wrong(&directory, "logs").contains("is no regular file"));
}

/// Returns the verdicts of `check`, by part.
fn found(directory: &Path) -> Vec<(&'static str, Soundness, String)> {
    check(directory).into_iter().map(|one| (one.what, one.soundness, one.message)).collect()
}

fn wrong(directory: &Path, what: &str) -> String {
    let found = found(directory);
    let (_, soundness, message) =
        found.iter().find(|(name, _, _)| *name == what).unwrap_or_else(|| panic!("{found:?}"));
    assert_eq!(*soundness, Soundness::Wrong, "{message}");
    message.clone()
}

#[test]
fn a_directory_is_checked_whole() {
    let folder = tempfile::tempdir().unwrap();
    whole(folder.path());
    let sound = found(folder.path());
    assert!(sound.iter().all(|(_, soundness, _)| *soundness == Soundness::Sound), "{sound:?}");
    assert_eq!(
        sound.iter().map(|(what, _, _)| *what).collect::<Vec<_>>(),
        [FILE_NAME, file::FILE_NAME, "results of the journal", "logs"]
    );
    let path = folder.path().join(FILE_NAME);
    let journal = fs::read_to_string(&path).unwrap();

    // The last line is missing, which no sum shows.
    let cut = journal.trim_end().rfind('\n').unwrap() + 1;
    fs::write(&path, &journal[..cut]).unwrap();
    assert!(wrong(folder.path(), "results of the journal").contains("the results were made of 8 lines"));
    // Somebody truncated the line.
    fs::write(&path, journal.trim_end()).unwrap();
    assert!(wrong(folder.path(), "results of the journal").contains("the journal has 7 lines"));
    fs::write(&path, journal.replacen("\"duration_ms\":2500", "\"duration_ms\":2501", 1)).unwrap();
    assert!(wrong(folder.path(), FILE_NAME).contains("journal.jsonl:4: its sum does not fit"));
    fs::write(&path, &journal).unwrap();

    // Another figure has a matching digest.
    let mut results = file::read(folder.path()).unwrap();
    results.runs[1].record.duration_ms += 1;
    file::write(folder.path(), &results).unwrap();
    let message = wrong(folder.path(), "results of the journal");
    assert!(
        message.contains(&results.runs[1].record.run) && message.contains("at /record/duration_ms: 2501"),
        "{message}"
    );
    results.runs[1].record.duration_ms -= 1;
    results.cells[0].runs.measured += 1;
    file::write(folder.path(), &results).unwrap();
    let message = wrong(folder.path(), "results of the journal");
    assert!(
        message.starts_with(&format!("cells, {}", results.cells[0].cell)) && message.contains("/runs/measured"),
        "{message}"
    );

    fs::remove_file(folder.path().join(file::FILE_NAME)).unwrap();
    assert!(wrong(folder.path(), file::FILE_NAME).contains("--resume"));
    fs::remove_dir_all(folder.path().join("logs")).unwrap();
    assert!(wrong(folder.path(), "logs").contains("1 of 1 are missing"));
    fs::remove_file(&path).unwrap();
    assert!(wrong(folder.path(), FILE_NAME).contains("name the results directory"));
}

#[test]
fn results_without_a_digest_are_refused_with_the_version_that_wrote_them() {
    let folder = tempfile::tempdir().unwrap();
    whole(folder.path());
    let path = folder.path().join(file::FILE_NAME);
    let text = fs::read_to_string(&path).unwrap();
    let without: String =
        text.lines().filter(|line| !line.starts_with("  \"digest\": \"")).map(|line| format!("{line}\n")).collect();
    assert_eq!(without.len() + "  \"digest\": \"\",\n".len() + 64, text.len());
    fs::write(&path, &without).unwrap();
    let error = file::read(&path).unwrap_err();
    assert!(matches!(error, ResultsError::NoDigest { .. }), "{error}");
    assert!(error.to_string().contains("written by bpfassay 0.1.0"), "{error}");
    // Digits in another form, and white space that another program added.
    fs::write(&path, text.replacen("\"digest\": \"", "\"digest\":  \"", 1)).unwrap();
    assert!(matches!(file::read(&path), Err(ResultsError::NoDigest { .. })));
    fs::write(&path, text.replacen("\"notes\": ", "\"notes\":  ", 1)).unwrap();
    assert!(matches!(file::read(&path), Err(ResultsError::Damaged { .. })));
}

#[test]
fn results_that_were_compressed_are_read_and_damage_to_them_is_found() {
    let folder = tempfile::tempdir().unwrap();
    whole(folder.path());
    let (plain, packed) = (folder.path().join(file::FILE_NAME), folder.path().join(file::PACKED_NAME));
    let bytes = fs::read(&plain).unwrap();
    let pack = |bytes: &[u8]| {
        let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).unwrap();
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    };
    let good = pack(&bytes);
    fs::write(&packed, &good).unwrap();
    let read = file::sealed(&plain).unwrap();
    // Results that are not compressed take precedence.
    fs::write(&packed, "garbage").unwrap();
    assert_eq!(file::sealed(folder.path()).unwrap().digest, read.digest);
    fs::remove_file(&plain).unwrap();
    assert!(matches!(file::sealed(folder.path()), Err(ResultsError::Damaged { path }) if path == packed));
    fs::write(&packed, &good).unwrap();
    for path in [folder.path(), &packed] {
        let found = file::sealed(path).unwrap();
        assert_eq!((&found.digest, &found.results), (&read.digest, &read.results));
    }
    let checked = found(folder.path());
    assert!(checked.iter().all(|(_, soundness, _)| *soundness == Soundness::Sound), "{checked:#?}");

    let mut generator = Generator(7);
    for _ in 0..500 {
        let mut bad = good.clone();
        let place = generator.below(bad.len());
        bad[place] ^= 1 << generator.below(8);
        fs::write(&packed, &bad).unwrap();
        match file::sealed(&packed) {
            Err(ResultsError::Damaged { .. }) => {}
            // Some bytes of the format have no meaning.
            Ok(found) => assert_eq!(found.results, read.results),
            Err(error) => panic!("byte {place}: {error}"),
        }
    }
    for length in [0, 1, 20, good.len() / 2, good.len() - 1] {
        fs::write(&packed, &good[..length]).unwrap();
        assert!(matches!(file::sealed(&packed), Err(ResultsError::Damaged { .. })), "{length} bytes");
    }
    // The compressed file is intact, but was edited before the compression.
    let text = String::from_utf8(bytes).unwrap();
    let edited = text.replacen("\"rounds\":1", "\"rounds\":2", 1).replacen("\"rounds\": 1", "\"rounds\": 2", 1);
    assert_ne!(edited, text);
    fs::write(&packed, pack(edited.as_bytes())).unwrap();
    assert!(matches!(file::sealed(&packed), Err(ResultsError::Damaged { .. })));
}
