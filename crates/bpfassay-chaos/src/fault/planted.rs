// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plants a stranger's files in a results directory: a link, a pipe or a hard link in the place of
//! each file and directory that a run creates. The plants exist before a command starts, appear
//! while the command measures, or are in results that commands read. The command must not read or
//! write what a link points to, and must not wait for ever.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::FaultKind;
use crate::{
    chaos_random::Random,
    chaos_study::{ChaosError, TrialStudy},
    script::{Action, BootPoint, Moment, Rule, RunStep},
    stranger::{
        finished_results::copy,
        plant::Plant,
        room::{Room, words},
        victims::give,
        workshop::Workshop,
    },
    trial::{CommandEnd, HostAction, TrialResult},
};

pub(super) const FAULTS: &[FaultKind] = &[
    FaultKind::of_strangers("planted/before", before, |draw| draw.choice(planting, tell)),
    FaultKind::of_strangers("planted/resumed", resumed, |draw| draw.choice(planting, tell)),
    FaultKind::of_strangers("planted/meanwhile", meanwhile, |draw| draw.choice(planting, tell)),
    FaultKind::of_strangers("planted/read", read, |draw| draw.choice(planting, tell_read)),
];

/// Files and directories that a run creates in its results directory. `*` stands for one of the
/// names in that directory of a finished study. If a run creates something else, the trial reports
/// a violation: add a line here.
const PLACES: &[&str] = &[
    "journal.jsonl",
    "results.json",
    "logs",
    "logs/*",
    // Temporary names, used where the file system has no `O_TMPFILE`.
    ".results.json.new",
    ".journal.jsonl.new",
    // Files of other commands and versions.
    "results.json.xz",
    "report.html",
    "code-coverage.html",
    "junit.xml",
    "job.json",
    "shards",
];

/// Commands that read results, one line each.
const READERS: &[&str] = &[
    "report OUT",
    "report OUT --format markdown",
    "report OUT --format html",
    "report OUT --format ktap",
    "verify --files OUT",
    "compare OUT OTHER",
    "compare OTHER OUT",
    "trend OTHER OUT",
    "merge OUT --output NEW",
    "run STUDY --offline --accelerator tcg --output NEW --like OUT",
    "run STUDY --offline --accelerator tcg --manifest MANIFEST --output NEW --against OUT",
];

/// How a command with a stranger's results directory can end.
const ENDS: &[CommandEnd] =
    &[CommandEnd::Code(0), CommandEnd::Code(2), CommandEnd::Code(3), CommandEnd::Code(4), CommandEnd::Code(6)];

/// The drawn parameters.
#[derive(Debug)]
struct Planting {
    place: &'static str,
    plant: Plant,
    /// Whether the plant is put at every place.
    is_everywhere: bool,
    /// Whether the directory belongs to another user, which only root can arrange.
    is_of_another: bool,
    reader: &'static str,
    /// A random number: how many lines of the journal stay, or which log, block and moment.
    number: u64,
}

fn planting(random: &mut Random) -> Planting {
    Planting {
        place: random.pick(PLACES).copied().unwrap_or_default(),
        plant: random.pick(Plant::ALL).copied().unwrap_or(Plant::LinkToFile),
        is_everywhere: random.percent(10),
        is_of_another: random.percent(50),
        reader: random.pick(READERS).copied().unwrap_or_default(),
        number: random.bits() >> 32,
    }
}

fn tell(planting: &Planting) -> String {
    let at = if planting.is_everywhere { "every place" } else { planting.place };
    let of = if planting.is_of_another { ", of another user" } else { "" };
    format!("{:?} at {at}{of}, number {}", planting.plant, planting.number)
}

fn tell_read(planting: &Planting) -> String {
    format!("{}: {}", tell(planting), planting.reader)
}

impl Planting {
    /// Returns the drawn paths. Names for `*` come from `finished`.
    ///
    /// # Errors
    /// The system's error if `finished` cannot be read.
    fn places(&self, finished: &Path) -> io::Result<Vec<String>> {
        let drawn: Vec<_> = if self.is_everywhere { PLACES.to_vec() } else { vec![self.place] };
        let mut places = Vec::new();
        for place in drawn {
            let Some(directory) = place.strip_suffix("/*") else {
                places.push(place.to_owned());
                continue;
            };
            let all = names(&finished.join(directory))?;
            let one = usize::try_from(self.number).ok().and_then(|number| all.get(number % all.len().max(1)));
            places.extend(one.map(|name| format!("{directory}/{name}")));
        }
        // Entries of a directory come first, because the directory itself may be moved.
        places.sort_by_key(|place| std::cmp::Reverse(place.matches('/').count()));
        Ok(places)
    }

    /// Puts the plant at the drawn places of `out`.
    ///
    /// # Errors
    /// The system's error if the plant cannot be created.
    fn put(&self, room: &mut Room<'_>, out: &Path, finished: &Path) -> Result<(), ChaosError> {
        for (number, place) in self.places(finished)?.iter().enumerate() {
            let host = room.host().join(format!("for-{number}"));
            fs::create_dir(&host)?;
            for (name, from) in [("file", "file"), ("directory/file", "directory/file")] {
                fs::create_dir_all(host.join(name).parent().unwrap_or(&host))?;
                fs::copy(room.host().join(from), host.join(name))?;
            }
            if let Some(parent) = out.join(place).parent() {
                fs::create_dir_all(parent)?;
            }
            self.plant.put(&out.join(place), &host)?;
        }
        if self.is_of_another && rustix::process::geteuid().is_root() {
            for place in [out.to_owned(), out.join("logs")].iter().filter(|place| place.is_dir() && !place.is_symlink())
            {
                give(place, Some(crate::stranger::room::USER))?;
            }
        }
        room.remember()?;
        Ok(())
    }
}

/// Returns the names in a directory, sorted.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = entries.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// Returns what a finished study has and [`PLACES`] does not name.
///
/// # Errors
/// The system's error if `finished` cannot be read.
fn unnamed(finished: &Path) -> io::Result<Vec<String>> {
    let mut unnamed = Vec::new();
    for name in names(finished)? {
        if !PLACES.contains(&name.as_str()) {
            unnamed.push(format!("a run makes {name}, for which there is no line in `PLACES`"));
        } else if finished.join(&name).is_dir() && !PLACES.contains(&format!("{name}/*").as_str()) {
            unnamed.push(format!("a run makes files in {name}, for which there is no line in `PLACES`"));
        }
    }
    Ok(unnamed)
}

/// Starts a run in a planted directory.
fn before(workshop: &Workshop, choice: u64) -> Result<TrialResult, ChaosError> {
    let drawn = planting(&mut Random::new(choice));
    let finished = workshop.finished()?;
    let mut room = Room::new(workshop, None)?;
    room.wrong("without a stranger", unnamed(&finished)?);
    let out = room.environment.output();
    drawn.put(&mut room, &out, &finished)?;
    let args = room.environment.begin(1);
    room.run(&args, &[])?;
    room.check("first", ENDS)?;
    Ok(room.into_result())
}

/// Resumes an interrupted study in a planted directory.
fn resumed(workshop: &Workshop, choice: u64) -> Result<TrialResult, ChaosError> {
    let drawn = planting(&mut Random::new(choice));
    let finished = workshop.finished()?;
    let mut room = Room::new(workshop, None)?;
    let out = room.environment.output();
    copy(&finished, &out)?;
    let journal = fs::read_to_string(out.join("journal.jsonl"))?;
    let lines: Vec<_> = journal.split_inclusive('\n').collect();
    let kept = 1 + usize::try_from(drawn.number).unwrap_or_default() % lines.len().max(1);
    fs::write(out.join("journal.jsonl"), lines[..kept.min(lines.len())].concat())?;
    if drawn.number.is_multiple_of(2) {
        fs::remove_file(out.join("results.json"))?;
    }
    drawn.put(&mut room, &out, &finished)?;
    let args = room.environment.resume(1, false);
    let end = room.run(&args, &[])?;
    room.check("resumed", ENDS)?;
    if end == CommandEnd::Code(0) {
        let own = |path: &Path| fs::read(path.join("results.json")).ok().and_then(|text| runs(&text));
        if own(&out) != own(&finished) {
            room.wrong("resumed", vec!["not the fingerprint of the study without a stranger".to_owned()]);
        }
    }
    Ok(room.into_result())
}

/// Returns the fingerprint in the results.
fn runs(results: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(results).ok()?;
    Some(value.get("fingerprint")?.to_string())
}

/// Draws a moment of the study.
fn moment(study: &TrialStudy, random: &mut Random) -> Moment {
    let blocks = &study.plan.blocks;
    let block = &blocks[usize::try_from(random.below(blocks.len() as u64)).unwrap_or_default()];
    let run = random.pick(&block.runs).map(|run| run.spec.id.clone()).unwrap_or_default();
    let points = [
        BootPoint::Launch,
        BootPoint::Boot,
        BootPoint::Hello,
        BootPoint::SetUp,
        BootPoint::Ready,
        BootPoint::Run(run.clone(), RunStep::Workload),
        BootPoint::Run(run.clone(), RunStep::End),
        BootPoint::After(run),
        BootPoint::Done,
    ];
    Moment::once(&block.id, random.pick(&points).cloned().unwrap_or(BootPoint::Launch))
}

/// Replaces a file while guests are measured.
fn meanwhile(workshop: &Workshop, choice: u64) -> Result<TrialResult, ChaosError> {
    let drawn = planting(&mut Random::new(choice));
    let finished = workshop.finished()?;
    let mut room = Room::new(workshop, None)?;
    let when = moment(workshop.study(), &mut Random::new(drawn.number));
    room.environment.script(&[Rule { when, action: Action::Host(0) }])?;
    let place = drawn.places(&finished)?.into_iter().next().unwrap_or_default();
    // A file that was moved becomes part of the host, and its hard link may be written to.
    let plant = match drawn.plant {
        Plant::MovedAndLinked => Plant::LinkToFile,
        Plant::MovedAndNamed => Plant::Name,
        // A link to a pipe would create the pipe in the host.
        Plant::LinkToPipe => Plant::Pipe,
        other => other,
    };
    let args = room.environment.begin(1);
    room.run(&args, &[HostAction::Plant(place, plant)])?;
    room.check("first", ENDS)?;
    Ok(room.into_result())
}

/// Reads planted results. A file that is not regular counts as absent or is refused.
fn read(workshop: &Workshop, choice: u64) -> Result<TrialResult, ChaosError> {
    let drawn = planting(&mut Random::new(choice));
    let finished = workshop.finished()?;
    let mut room = Room::new(workshop, None)?;
    let (out, other, absent) = (room.path("results/a"), room.path("results/b"), room.path("results/absent"));
    for directory in [&out, &other, &absent] {
        copy(&finished, directory)?;
    }
    for place in drawn.places(&finished)? {
        let path = absent.join(place);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    drawn.put(&mut room, &out, &finished)?;
    let manifest = room.path("testbed/manifest.json");
    let mut end_with = |out: &Path, new: PathBuf| {
        let (study, new) = (room.path("study.toml"), new);
        let paths: [(&str, &Path); 5] =
            [("STUDY", &study), ("OUT", out), ("OTHER", &other), ("NEW", &new), ("MANIFEST", &manifest)];
        room.run(&words(drawn.reader, &paths), &[])
    };
    let without = end_with(&absent, out.with_file_name("new-without"))?;
    let end = end_with(&out, out.with_file_name("new"))?;
    room.check("first", ENDS)?;
    room.wrong("first", followed(drawn.plant, without, end));
    Ok(room.into_result())
}

/// Reports a command that read more than it reads if the plant is absent.
fn followed(plant: Plant, without: CommandEnd, end: CommandEnd) -> Vec<String> {
    let is_refused = matches!(end, CommandEnd::Code(2 | 3));
    if !plant.is_link() || is_refused || end == without {
        return Vec::new();
    }
    vec![format!("a link was followed: it ended with {end:?}, where it ends with {without:?} without what is there")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_and_every_plant_is_drawn() {
        let drawn: Vec<_> = (0..1000).map(|choice| planting(&mut Random::new(choice))).collect();
        assert!(PLACES.iter().all(|place| drawn.iter().any(|drawn| drawn.place == *place)));
        assert!(Plant::ALL.iter().all(|plant| drawn.iter().any(|drawn| drawn.plant == *plant)));
        assert!(READERS.iter().all(|reader| drawn.iter().any(|drawn| drawn.reader == *reader)));
    }

    #[test]
    fn a_followed_link_is_found() {
        let (ok, refused) = (CommandEnd::Code(0), CommandEnd::Code(2));
        assert_eq!(followed(Plant::MovedAndLinked, refused, ok).len(), 1);
        assert_eq!(followed(Plant::MovedAndLinked, refused, refused), Vec::<String>::new());
        assert_eq!(followed(Plant::MovedAndLinked, ok, ok), Vec::<String>::new());
        assert_eq!(followed(Plant::MovedAndNamed, refused, ok), Vec::<String>::new());
    }

    #[test]
    fn a_file_without_a_line_is_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("logs")).unwrap();
        fs::write(folder.path().join("journal.jsonl"), "").unwrap();
        assert_eq!(unnamed(folder.path()).unwrap(), Vec::<String>::new());
        fs::write(folder.path().join("new"), "").unwrap();
        fs::create_dir(folder.path().join("shards")).unwrap();
        assert_eq!(unnamed(folder.path()).unwrap().len(), 2);
    }

    #[test]
    fn places_have_the_names_of_a_finished_study() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("logs")).unwrap();
        fs::write(folder.path().join("logs/a.log"), "").unwrap();
        let mut drawn = planting(&mut Random::new(1));
        (drawn.place, drawn.is_everywhere) = ("logs/*", false);
        assert_eq!(drawn.places(folder.path()).unwrap(), ["logs/a.log"]);
        drawn.is_everywhere = true;
        assert_eq!(drawn.places(folder.path()).unwrap().len(), PLACES.len());
    }
}
