// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools that name mounts by the last path component. The figures are from guests of
//! vm-tests/mounts.toml.

use super::*;

const LONG: &str = "/mnt/a-directory-with-a-long-name/and-another-one-below-it/and-the-mount";

fn read(mount: &str, bytes: u64) -> CallShare {
    share("a", mount, Operation::Read, 7, bytes, bytes)
}

/// The truth of these guests. Two mounts have the same last component, and a third has the sum
/// of both by chance. Only the agent read from /sys/fs/cgroup.
fn mounts() -> Truth {
    let shares = vec![
        read("/proc", 179_114),
        read("/sys/fs/cgroup", 21),
        read("/mnt/nfs", 20_480),
        read("/mnt/a/data", 40_960),
        read("/mnt/b/data", 61_440),
        read("/mnt/again", 81_920),
        read(LONG, 102_400),
    ];
    Truth { optional: vec![read("/sys/fs/cgroup", 21), read("/proc", 150_000)], ..truth(shares) }
}

fn by_mount(truth: &Truth, samples: &[(&str, u64)]) -> (Vec<FindingResult>, Vec<Compared>) {
    let tool = report(vec![figure(&[Operation::Read], MOVED, Whose::Mount)]);
    let samples: Vec<_> = samples.iter().map(|&(name, value)| (100, 0, Some(name), value)).collect();
    (counts(&tool, &readings(&samples), truth), compared(&tool, &readings(&samples), truth))
}

const OTHERS: [(&str, u64); 5] =
    [("again", 81_920), ("and-the-mount", 102_400), ("cgroup", 21), ("nfs", 20_480), ("proc", 179_114)];

#[test]
fn two_mounts_of_one_last_component_are_merged_where_a_third_has_as_much() {
    let (results, shown) = by_mount(&mounts(), &[&OTHERS[..], &[("data", 102_400)]].concat());
    assert_eq!(found(&results), [Kind::MountsMerged, Kind::SubjectUnknown], "{results:?}");
    assert_eq!(
        evidence_of(&results, Kind::MountsMerged),
        "`v` of mount data: 102400, which is 0 of its own and 102400 of /mnt/a/data, /mnt/b/data"
    );
    // The other names are unknown, and each is matched to its mount.
    let unknown = evidence_of(&results, Kind::SubjectUnknown);
    for (name, path) in
        OTHERS.iter().zip(["/mnt/again", LONG, "/sys/fs/cgroup", "/mnt/nfs", "/proc"]).map(|(one, path)| (one.0, path))
    {
        let line = unknown.lines().find(|line| line.contains(&format!("of mount {name}: "))).unwrap();
        assert!(line.ends_with(&format!("; the same as really of mount {path}")), "{line}");
        let one = shown.iter().find(|one| one.subject.as_deref() == Some(path)).unwrap();
        assert_eq!((one.reported, one.reported_as.as_deref()), (one.really, Some(name)));
    }
    assert_eq!(unknown.lines().count(), OTHERS.len(), "{unknown}");
}

#[test]
fn each_name_of_several_mounts_is_found() {
    let mut truth = mounts();
    truth.shares.extend([read("/srv/c/log", 300), read("/srv/d/log", 45), read("/srv/e/log", 7)]);
    let (results, _) = by_mount(&truth, &[&OTHERS[..], &[("data", 102_400), ("log", 352)]].concat());
    assert_eq!(found(&results), [Kind::MountsMerged, Kind::SubjectUnknown], "{results:?}");
    let merged = evidence_of(&results, Kind::MountsMerged);
    assert_eq!(merged.lines().count(), 2, "{merged}");
    assert!(
        merged.contains("`v` of mount log: 352, which is 0 of its own and 352 of /srv/c/log, /srv/d/log, /srv/e/log")
    );
    // A mount that is merely not reported is not merged.
    let (results, _) = by_mount(&truth, &[&OTHERS[1..], &[("data", 102_400), ("log", 352)]].concat());
    assert_eq!(found(&results), [Kind::MountsMerged, Kind::SubjectUnknown, Kind::CountsTooLow], "{results:?}");
    assert_eq!(
        evidence_of(&results, Kind::CountsTooLow),
        "`v` (read, bytes-returned) of mount /mnt/again: 0, really 81920: nothing of this mount, though read of others is reported"
    );
}

/// The last component distinguishes equal amounts.
#[test]
fn of_equal_mounts_each_is_called_by_its_last_component() {
    let truth = truth(vec![read("/mnt/x", 400), read("/mnt/y", 400), read("/mnt/z", 90)]);
    let (results, shown) = by_mount(&truth, &[("y", 400), ("x", 400), ("z", 90)]);
    assert_eq!(found(&results), [Kind::SubjectUnknown], "{results:?}");
    let shown: Vec<_> = shown.iter().map(|one| (one.subject.as_deref().unwrap(), one.reported_as.as_deref())).collect();
    assert_eq!(shown, [("/mnt/x", Some("x")), ("/mnt/y", Some("y")), ("/mnt/z", Some("z"))]);
}

/// A name with another amount proves nothing.
#[test]
fn less_than_all_of_one_name_is_not_merged() {
    let truth = truth(vec![read("/a/data", 400), read("/b/data", 30)]);
    let (results, _) = by_mount(&truth, &[("data", 429)]);
    assert_eq!(found(&results), [Kind::SubjectUnknown, Kind::CountsTooLow], "{results:?}");
    let (results, _) = by_mount(&truth, &[("data", 400)]);
    assert_eq!(found(&results), [Kind::SubjectUnknown, Kind::CountsTooLow], "{results:?}");
    assert!(evidence_of(&results, Kind::SubjectUnknown).ends_with("the same as really of mount /a/data"));
}

/// One of the mounts appears alone in another figure.
#[test]
fn a_name_of_one_is_that_of_several_where_they_did_something() {
    let written = |mount, bytes| share("a", mount, Operation::Write, 3, bytes, bytes);
    let truth = truth(vec![read("/a/data", 400), written("/a/data", 300), written("/b/data", 55), written("/c", 9)]);
    let figures = [Operation::Read, Operation::Write].map(|operation| figure(&[operation], MOVED, Whose::Mount));
    let samples = [(100, 0, Some("data"), 400), (100, 1, Some("data"), 355), (100, 1, Some("c"), 9)];
    let results = counts(&report(figures.to_vec()), &readings(&samples), &truth);
    assert_eq!(found(&results), [Kind::MountsMerged, Kind::SubjectUnknown], "{results:?}");
    assert!(
        evidence_of(&results, Kind::MountsMerged).ends_with("355, which is 0 of its own and 355 of /a/data, /b/data")
    );
}
