// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of results directories, and the link to the latest one.

#![allow(
    clippy::disallowed_methods,
    reason = "makes the results directory that the user names, and the link `latest` next to it"
)]

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process,
};

use bpfassay_results::{Journal, JournalError, JournalHeader};
use bpfassay_study::Shard;

/// Name of the link to the latest run. The link is next to the results directories.
const LATEST: &str = "latest";

/// How many runs of one study that begin in the same second can find a name.
const MOST_IN_A_SECOND: u32 = 1000;

/// Returns the directory name of a run of `study` that began at this time, in milliseconds since
/// 1970-01-01 UTC. It has the date and time in UTC, so names sort by age. It also has the shard,
/// because shards can begin at the same time.
pub(crate) fn name(study: &str, started_unix_ms: u64, shard: Option<Shard>) -> String {
    let started = i64::try_from(started_unix_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let started = match started {
        Some(started) => started.strftime("%Y-%m-%d-%H%M%S").to_string(),
        // The clock is beyond the year 9999.
        None => (started_unix_ms / 1000).to_string(),
    };
    let shard = shard.map(|shard| format!("-shard-{}-of-{}", shard.number(), shard.of()));
    format!("{study}-{started}{}", shard.unwrap_or_default())
}

/// Begins a journal with `header` in a new directory of `parent`. The name follows from the study
/// and the time of the header. It gets a number if another run of that second has the name.
///
/// # Errors
/// The errors of [`Journal::create`].
pub(crate) fn begin(parent: &Path, header: &JournalHeader) -> Result<(PathBuf, Journal), JournalError> {
    let name = name(&header.plan.study.name, header.started_unix_ms, header.plan.shard);
    let numbered = |number: u32| match number {
        1 => parent.join(&name),
        _ => parent.join(format!("{name}-{number}")),
    };
    for number in 1..MOST_IN_A_SECOND {
        let directory = numbered(number);
        match Journal::create(&directory, header) {
            Err(JournalError::Exists { .. }) => {}
            begun => return Ok((directory, begun?)),
        }
    }
    let directory = numbered(MOST_IN_A_SECOND);
    let journal = Journal::create(&directory, header)?;
    Ok((directory, journal))
}

/// Points the link `latest` in the parent of `directory` to it. Anything that is not a link is left
/// alone. A failure is only a warning, because nothing depends on the link.
pub(crate) fn link_latest(directory: &Path) {
    if let Err(error) = replace_link(directory) {
        tracing::warn!("no link to the latest results: {error}");
    }
}

fn replace_link(directory: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else { return Ok(()) };
    let link = parent.join(LATEST);
    match fs::symlink_metadata(&link) {
        Ok(found) if !found.is_symlink() => {
            return Err(io::Error::other(format!("{} is no link, and is left alone", link.display())));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(_) | Err(_) => {}
    }
    // The rename makes sure that the link is never missing.
    let new = parent.join(format!(".{LATEST}.{}", process::id()));
    symlink(name, &new)?;
    fs::rename(&new, &link).inspect_err(|_| drop(fs::remove_file(&new)))
}

#[cfg(test)]
mod tests {
    use bpfassay_results::{JOURNAL_VERSION, Provenance};
    use bpfassay_study::{Available, Narrowing};

    use super::*;

    #[test]
    fn names_have_date_and_time_and_sort_by_age() {
        assert_eq!(name("quick", 1_795_460_852_999, None), "quick-2026-11-23-190732");
        assert_eq!(name("quick", 0, Shard::new(2, 3)), "quick-1970-01-01-000000-shard-2-of-3");
        assert_eq!(name("quick", 0, None), "quick-1970-01-01-000000");
        assert!(name("quick", 1_795_460_852_000, None) < name("quick", 1_795_460_853_000, None));
        assert_eq!(name("quick", u64::MAX, None), "quick-18446744073709551");
    }

    #[test]
    fn runs_that_begin_in_one_second_have_a_directory_each() {
        let work = tempfile::tempdir().unwrap();
        let study = bpfassay_study::load("quick").unwrap();
        let plan = bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        let provenance = Provenance::default();
        let header = JournalHeader { journal: JOURNAL_VERSION, started_unix_ms: 1_795_460_852_999, plan, provenance };
        let parent = work.path().join("results");
        let begun: Vec<_> = std::thread::scope(|scope| {
            let begin = || begin(&parent, &header).unwrap();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(begin)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut names: Vec<_> = begun.iter().map(|(path, _)| path.file_name().unwrap().to_str().unwrap()).collect();
        names.sort_unstable();
        let name = "quick-2026-11-23-190732";
        assert_eq!(names, [name, &format!("{name}-2"), &format!("{name}-3"), &format!("{name}-4")]);
    }

    #[test]
    fn the_link_leads_to_the_latest_and_replaces_nothing_else() {
        let work = tempfile::tempdir().unwrap();
        let link = work.path().join(LATEST);
        for name in ["one", "two"] {
            replace_link(&work.path().join(name)).unwrap();
            assert_eq!(fs::read_link(&link).unwrap(), Path::new(name));
        }
        fs::remove_file(&link).unwrap();
        fs::write(&link, "mine").unwrap();
        assert!(replace_link(&work.path().join("three")).unwrap_err().to_string().contains("left alone"));
        assert_eq!(fs::read_to_string(&link).unwrap(), "mine");
        assert_eq!(fs::read_dir(work.path()).unwrap().count(), 1);
    }
}
