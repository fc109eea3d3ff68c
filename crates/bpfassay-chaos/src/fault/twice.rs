// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs two commands at once in each step of set-up, with one cache and with results that begin in
//! the same second. Both must succeed, or one is refused. The cache must be whole, and a third
//! command must succeed.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::process::Signal;

use super::FaultKind;
use crate::{
    chaos_random::Random,
    chaos_study::ChaosError,
    command_process::signal,
    stranger::{
        hostile_bundle::packed,
        hostile_package::{PackageForm, file, image},
        room::{Room, words},
        workshop::Workshop,
    },
    trial::{CommandEnd, TrialResult},
};

/// One line per fault.
pub(super) const FAULTS: &[FaultKind] = &[
    FaultKind::of_strangers("twice/at-once", |shop, choice| twice(shop, Disturbance::None, choice), draw),
    FaultKind::of_strangers("twice/one-paused", |shop, choice| twice(shop, Disturbance::Pause, choice), draw),
    FaultKind::of_strangers("twice/one-killed", |shop, choice| twice(shop, Disturbance::Kill, choice), draw),
];

/// Steps of set-up: commands that do each step, and what their cache may have to hold.
const STEPS: &[&str] = &[
    // Creates the cache.
    "cache",
    "kernels --offline",
    // Hashes the guests of a manifest, and boots scripted ones.
    "run STUDY --offline --accelerator tcg --manifest MANIFEST",
    // Unpacks a bundle into the cache.
    "run STUDY --offline --accelerator tcg --bundle BUNDLE",
    // Unpacks packages into the cache.
    "plan STUDY --offline --kernel PACKAGE",
    // Creates a store of blocks and fills it.
    "run STUDY --offline --accelerator tcg --manifest MANIFEST --store STORE",
];

/// Longest time between the two starts, and before one command is disturbed, in milliseconds.
const LATEST: u64 = 900;
/// Exit codes of a command that is refused while another does the same.
const REFUSED: [CommandEnd; 2] = [CommandEnd::Code(2), CommandEnd::Code(3)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disturbance {
    None,
    /// The first command is stopped while the second runs.
    Pause,
    /// The first command is killed.
    Kill,
}

/// The drawn parameters.
#[derive(Debug)]
struct Twice {
    step: &'static str,
    /// Whether both share one `--output`; otherwise each chooses a directory.
    is_one_output: bool,
    /// Milliseconds between the starts.
    apart: u64,
    /// Milliseconds until the first command is disturbed.
    after: u64,
    pause: u64,
}

fn draw(draw: &mut super::Draw<'_>) -> crate::trial::FaultTrial {
    draw.choice(twice_of, |twice| format!("{twice:?}"))
}

fn twice_of(random: &mut Random) -> Twice {
    Twice {
        step: random.pick(STEPS).copied().unwrap_or_default(),
        is_one_output: random.percent(40),
        apart: if random.percent(60) { 0 } else { random.below(LATEST / 3) },
        // The steps of short commands take some 10 ms.
        after: if random.percent(50) { random.below(LATEST / 6) } else { random.below(LATEST) },
        pause: random.between(50, 1500),
    }
}

fn twice(workshop: &Workshop, disturbance: Disturbance, choice: u64) -> Result<TrialResult, ChaosError> {
    let drawn = twice_of(&mut Random::new(choice));
    let mut room = Room::new(workshop, None)?;
    let bundle = packed(&workshop.bundle()?.entries())?;
    let bundle = room.put("home/bundle", &bundle)?;
    let package = PackageForm::Deb.package(&[
        file("./boot/vmlinuz-1.0", &image("1.0")),
        file("./lib/modules/1.0/modules.builtin", b"kernel/fs/ext4/ext4.ko\n"),
        file("./lib/modules/1.0/kernel/fs/x.ko", &vec![b'x'; 1 << 20]),
    ]);
    let package = room.put("home/kernel.deb", &package)?;
    let (study, manifest) = (room.path("study.toml"), room.path("testbed/manifest.json"));
    let store = room.path("state/store");
    let paths: [(&str, &Path); 5] =
        [("STUDY", &study), ("MANIFEST", &manifest), ("BUNDLE", &bundle), ("PACKAGE", &package), ("STORE", &store)];
    let mut args = words(drawn.step, &paths);
    let is_run = drawn.step.starts_with("run");
    if is_run && drawn.is_one_output {
        args.extend(["--output".into(), room.environment.output()]);
    }

    let (first, second) = (room.command("")?, room.command("-2")?);
    let first = room.start(first, &args)?;
    thread::sleep(Duration::from_millis(drawn.apart));
    let second = room.start(second, &args)?;
    let (victim, mut both) = (first.id(), [first, second]);
    disturb(victim, disturbance, &drawn)?;
    let ends = room.wait(&mut both)?;
    let is_shared = is_run && drawn.is_one_output;
    let mut wrong = wrong_ends(&ends, is_shared, disturbance == Disturbance::Kill);
    if is_run && !is_shared {
        let made = results(&room.path("bpfassay-results"));
        let ended = ends.iter().filter(|end| **end == CommandEnd::Code(0)).count();
        if made.len() < ended {
            wrong.push(format!("{ended} runs ended well, and there are {} results", made.len()));
        }
        wrong.extend(differing(&made, &workshop.finished()?));
    } else if is_shared && ends.contains(&CommandEnd::Code(0)) {
        wrong.extend(differing(&[room.environment.output()], &workshop.finished()?));
    }
    room.wrong("both", wrong);
    let last = ends.last().copied().unwrap_or(CommandEnd::Never);
    room.check("both", &[last])?;

    // The third command finds what the two left.
    let mut args = words(drawn.step, &paths);
    if is_run {
        args.extend(["--output".into(), room.path("results/third")]);
    }
    room.run(&args, &[])?;
    room.check("third", &[CommandEnd::Code(0)])?;
    Ok(room.into_result())
}

/// Disturbs `victim`. An ended child is a zombie until it is waited for, so no other process gets
/// the signal.
fn disturb(victim: u32, disturbance: Disturbance, drawn: &Twice) -> Result<(), ChaosError> {
    match disturbance {
        Disturbance::None => {}
        Disturbance::Pause => {
            thread::sleep(Duration::from_millis(drawn.after));
            signal(victim, Signal::STOP.as_raw())?;
            thread::sleep(Duration::from_millis(drawn.pause));
            signal(victim, Signal::CONT.as_raw())?;
        }
        Disturbance::Kill => {
            thread::sleep(Duration::from_millis(drawn.after));
            signal(victim, Signal::KILL.as_raw())?;
        }
    }
    Ok(())
}

/// Returns what is wrong with the ends of two commands. The first one may have been killed. If both
/// share a results directory, one is refused.
fn wrong_ends(ends: &[CommandEnd], is_shared: bool, is_killed: bool) -> Vec<String> {
    let well = ends.iter().filter(|end| **end == CommandEnd::Code(0)).count();
    let killed = ends.iter().take(usize::from(is_killed)).filter(|end| **end == CommandEnd::Signal(9)).count();
    let refused = ends.iter().filter(|end| REFUSED.contains(end)).count();
    let is_right = match (is_shared, killed) {
        (false, killed) => well + killed == ends.len(),
        (true, 0) => (well, refused) == (1, ends.len() - 1),
        // A command that was killed may or may not have left results.
        (true, killed) => well + refused + killed == ends.len(),
    };
    if is_right { Vec::new() } else { vec![format!("the two commands ended with {ends:?}")] }
}

/// Returns the directories below `directory` that have results.
fn results(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.join("results.json").is_file()).collect()
}

/// Returns a sentence for each of `made` whose fingerprint differs from that of `finished`.
fn differing(made: &[PathBuf], finished: &Path) -> Vec<String> {
    let fingerprint = |path: &Path| {
        let text = fs::read(path.join("results.json")).ok()?;
        let value: serde_json::Value = serde_json::from_slice(&text).ok()?;
        Some(value.get("fingerprint")?.to_string())
    };
    let expected = fingerprint(finished);
    let others = made.iter().filter(|path| fingerprint(path) != expected);
    others.map(|path| format!("{} has another fingerprint than the study alone", path.display())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: CommandEnd = CommandEnd::Code(0);

    #[test]
    fn two_commands_that_end_otherwise_are_found() {
        let right = |ends: [CommandEnd; 2], is_shared, is_killed| wrong_ends(&ends, is_shared, is_killed).is_empty();
        assert!(right([OK, OK], false, false) && right([OK, CommandEnd::Code(2)], true, false));
        assert!(
            right([CommandEnd::Signal(9), OK], false, true)
                && right([CommandEnd::Signal(9), CommandEnd::Code(2)], true, true)
        );
        assert!(!right([OK, CommandEnd::Code(3)], false, false), "one of two caches");
        assert!(!right([OK, OK], true, false), "both wrote into one directory");
        assert!(!right([CommandEnd::Code(2), CommandEnd::Code(2)], true, false), "nobody got it");
        assert!(!right([OK, CommandEnd::Never], false, false), "one waits for the other");
        assert!(!right([OK, CommandEnd::Code(1)], true, false));
        assert!(!right([OK, CommandEnd::Signal(9)], false, true), "the second was not killed");
    }

    #[test]
    fn other_results_are_found() {
        let folder = tempfile::tempdir().unwrap();
        for (name, fingerprint) in [("finished", "1"), ("same", "1"), ("other", "2")] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("results.json"), format!("{{\"fingerprint\": {fingerprint}}}"))
                .unwrap();
        }
        fs::create_dir(folder.path().join("none")).unwrap();
        assert_eq!(results(folder.path()).len(), 3);
        let made = ["same", "other", "none"].map(|name| folder.path().join(name));
        assert_eq!(differing(&made, &folder.path().join("finished")).len(), 2);
    }

    #[test]
    fn every_step_is_drawn() {
        let drawn: Vec<_> = (0..200).map(|choice| twice_of(&mut Random::new(choice)).step).collect();
        assert!(STEPS.iter().all(|step| drawn.contains(step)));
    }
}
