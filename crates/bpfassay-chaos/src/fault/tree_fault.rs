// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trees of strangers: a kernel in packages, and results that name guests (`--like`).
//!
//! A link out of the tree, a pipe or a hard link to a file of the host is planted at a place that
//! bpfassay joins to a path. The command must not move, change or read anything of the host.

use std::{fs, path::Path};

use bpfassay_packages::digest::Digest;
use serde_json::Value;

use super::FaultKind;
use crate::{
    chaos_random::Random,
    chaos_study::ChaosError,
    stranger::{
        finished_results::copy,
        hostile_package::{EntryNode, PackageEntry, PackageForm, Planted, file, image},
        room::{Room, user, words},
        workshop::Workshop,
    },
    trial::{CommandEnd, TrialResult},
};

pub(super) const FAULTS: &[FaultKind] = &[
    FaultKind::of_strangers(
        "tree/deb",
        |shop, choice| unpacked(shop, PackageForm::Deb, choice),
        |draw| draw.choice(tree, tell),
    ),
    FaultKind::of_strangers(
        "tree/rpm",
        |shop, choice| unpacked(shop, PackageForm::Rpm, choice),
        |draw| draw.choice(tree, tell),
    ),
    FaultKind::of_strangers("tree/like", like, |draw| draw.choice(recorded, |like| format!("{like:?}"))),
];

/// Places in a kernel's packages. `{r}` is replaced by the release.
const PLACES: &[&str] = &[
    "usr",
    "usr/lib",
    "lib",
    "lib/modules",
    "usr/lib/modules",
    "usr/lib/modules/{r}",
    "lib/modules/{r}",
    "usr/lib/modules/{r}/kernel",
    "usr/lib/modules/{r}/kernel/fs",
    "usr/lib/modules/{r}/kernel/fs/victim.ko",
    "usr/lib/modules/{r}/modules.builtin",
    "usr/lib/modules/{r}/modules.builtin.modinfo",
    "usr/lib/modules/{r}/modules.dep",
    "usr/lib/modules/{r}/modules.order",
    "usr/lib/modules/{r}/vmlinuz",
    "usr/lib/modules/{r}/config",
    "usr/lib/modules/{r}/System.map",
    "usr/lib/modules/{r}/build",
    "usr/lib/modules/{r}/source",
    "usr/share",
    "usr/share/doc",
    "usr/src",
    "boot",
    "boot/vmlinuz-{r}",
    "boot/vmlinux-{r}",
    "boot/Image-{r}",
    "boot/config-{r}",
    "boot/System.map-{r}",
    "packages.json",
    "..",
    "../../../file",
    "usr/../../file",
    "/",
];

/// Releases that an untrusted build tree can name.
const RELEASES: &[&str] = &[
    "1.0",
    "6.9.9-host",
    "6.9.9-host/../../..",
    "1..",
    "1/../..",
    "..",
    "1.0 --offline",
    "1\u{1b}[2J",
    "1\n",
    "6666666666666666666666666666666666666666666666666666666666666666666666666666666666666666",
];

/// Plants for such a place, given the path of the room.
const PLANTED: &[Planted] = &[
    ("a link to a directory", |room| link(room, "host/directory")),
    ("a link to the modules of the host", |room| link(room, "host/lib/modules")),
    ("a link to a kernel of the host", |room| link(room, "host/lib/modules/6.9.9-host")),
    ("a link to the images of the host", |room| link(room, "host/boot")),
    ("a link to a file", |room| link(room, "host/file")),
    ("a link to an image of the host", |room| link(room, "host/boot/vmlinuz-6.9.9-host")),
    ("a link to nothing on the host", |room| link(room, "host/new")),
    ("a link by the working directory", |_| EntryNode::Link("/proc/self/cwd/.git".to_owned())),
    ("a link by the working directory to a file", |_| EntryNode::Link("/proc/self/cwd/host/file".to_owned())),
    ("a link by the root of the process", |room| EntryNode::Link(format!("/proc/self/root{}/host", room.display()))),
    ("a link by a descriptor", |_| EntryNode::Link("/proc/self/fd/3".to_owned())),
    ("a link up and down", |room| EntryNode::Link(format!("{}{}/host", "../".repeat(16), room.display()))),
    ("a link to itself", |_| EntryNode::Link("vmlinuz-1.0".to_owned())),
    ("a link to the directory", |_| EntryNode::Link(".".to_owned())),
    ("a link to the parent", |_| EntryNode::Link("..".to_owned())),
    ("a link to a device", |_| EntryNode::Link("/dev/zero".to_owned())),
    ("a name of a file of the host", |room| EntryNode::Same(format!("{}/host/file", room.display()))),
    ("a name of a file above", |_| EntryNode::Same("../../../../host/file".to_owned())),
    ("a name through a link", |_| EntryNode::Same("usr/planted/file".to_owned())),
    ("a pipe", |_| EntryNode::Pipe),
    ("a device", |_| EntryNode::Device),
    ("a directory", |_| EntryNode::Directory),
    ("a file", |_| EntryNode::File(b"of a stranger".to_vec())),
];

/// Commands that use a stranger's kernel.
const COMMANDS: &[&str] = &[
    "plan STUDY --offline --kernel PACKAGE",
    "run STUDY --offline --output OUT --kernel PACKAGE",
    "fetch STUDY --offline --yes --kernel PACKAGE",
    "plan STUDY --offline --kernel DIRECTORY",
];

/// How a command that uses a stranger's file can end.
const ENDS: &[CommandEnd] = &[CommandEnd::Code(0), CommandEnd::Code(2), CommandEnd::Code(3), CommandEnd::Code(4)];

fn link(room: &Path, name: &str) -> EntryNode {
    EntryNode::Link(room.join(name).display().to_string())
}

/// The drawn parameters of a package.
#[derive(Debug)]
struct PackageFault {
    place: &'static str,
    planted: &'static Planted,
    /// A second plant, at another place.
    also: Option<(&'static str, &'static Planted)>,
    release: &'static str,
    /// Whether the trial creates a file below the planted path.
    is_entered: bool,
    /// Whether the kernel's files come before the plant.
    is_last: bool,
    /// Whether the kernel has no files at the place and below it.
    is_alone: bool,
    command: &'static str,
    is_user: bool,
}

fn tree(random: &mut Random) -> PackageFault {
    let mut place = || {
        let planted = random.pick(PLANTED).unwrap_or(&PLANTED[0]);
        (random.pick(PLACES).copied().unwrap_or_default(), planted)
    };
    let ((place, planted), also) = (place(), place());
    PackageFault {
        place,
        planted,
        also: random.percent(30).then_some(also),
        release: if random.percent(60) { RELEASES[1] } else { random.pick(RELEASES).copied().unwrap_or_default() },
        is_entered: random.percent(30),
        is_last: random.percent(50),
        is_alone: random.percent(60),
        command: random.pick(COMMANDS).copied().unwrap_or_default(),
        is_user: random.percent(50),
    }
}

fn tell(tree: &PackageFault) -> String {
    let PackageFault { place, planted: (planted, _), also, release, is_entered, is_last, is_alone, command, is_user } =
        tree;
    let also = also.map(|(place, (planted, _))| format!(", and {planted} at {place}")).unwrap_or_default();
    let order = if *is_last { "after" } else { "before" };
    let entered = if *is_entered { ", and a file through it" } else { "" };
    let files = if *is_alone { "the other files" } else { "the files" };
    let by = if *is_user { ", by another user" } else { "" };
    let command = command.split(' ').next().unwrap_or_default();
    format!("{planted} at {place}{also}{entered}, {order} {files} of {}: {command}{by}", release.escape_debug())
}

/// Returns the entries of the package, for a room at `room`.
fn entries(tree: &PackageFault, room: &Path) -> Vec<PackageEntry> {
    let at = |place: &str| format!("./{}", place.replace("{r}", tree.release));
    let own = |name: &str| at(&format!("usr/lib/modules/{{r}}/{name}"));
    let mut kernel = vec![
        file(at("boot/vmlinuz-{r}"), &image(tree.release)),
        file(at("boot/config-{r}"), b"CONFIG_X86_64=y\n"),
        file(own("modules.builtin"), b"kernel/fs/ext4/ext4.ko\n"),
        file(own("modules.dep"), b""),
        file(own("kernel/fs/victim.ko"), b"a module"),
    ];
    let mut hostile: Vec<PackageEntry> = vec![("./usr/planted".to_owned(), link(room, "host/directory"))];
    for (place, (_, node)) in [(tree.place, tree.planted)].into_iter().chain(tree.also) {
        let place = if place == "/" { format!("{}/host/new", room.display()) } else { at(place) };
        if tree.is_alone {
            kernel.retain(|(path, _)| !Path::new(path).starts_with(&place));
        }
        hostile.push((place.clone(), node(room)));
        if tree.is_entered {
            hostile.push(file(format!("{place}/new"), b"of a stranger"));
        }
    }
    if tree.is_last { [kernel, hostile].concat() } else { [hostile, kernel].concat() }
}

fn unpacked(workshop: &Workshop, form: PackageForm, choice: u64) -> Result<TrialResult, ChaosError> {
    let tree = tree(&mut Random::new(choice));
    let mut room = Room::new(workshop, user(tree.is_user))?;
    let directory = room.path("home");
    let name = format!("kernel.{}", form.ending());
    let package = form.package(&entries(&tree, room.environment.root()));
    let package = room.put(&format!("home/{name}"), &package)?;
    let (study, out) = (room.path("study.toml"), room.environment.output());
    let paths: [(&str, &Path); 4] =
        [("STUDY", &study), ("OUT", &out), ("PACKAGE", &package), ("DIRECTORY", &directory)];
    // The second command finds the unpacked files in the cache.
    for stage in ["first", "again"] {
        room.run(&words(tree.command, &paths), &[])?;
        room.check(stage, ENDS)?;
        if out.exists() {
            fs::remove_dir_all(&out)?;
        }
    }
    Ok(room.into_result())
}

/// Fields of the results that become part of a path or an argument.
const FIELDS: &[&str] = &[
    "/provenance/0/manifest/targets/0/kernel/release",
    "/provenance/0/manifest/targets/0/kernel/version",
    "/provenance/0/manifest/targets/0/kernel/image/path",
    "/provenance/0/manifest/targets/0/kernel/image/sha256",
    "/provenance/0/manifest/targets/0/kernel/packages/0/name",
    "/provenance/0/manifest/targets/0/kernel/packages/0/version",
    "/provenance/0/manifest/targets/0/kernel/packages/0/architecture",
    "/provenance/0/manifest/targets/0/initramfs/0/archive/path",
    "/provenance/0/manifest/targets/0/initramfs/0/role",
    "/provenance/0/manifest/targets/0/name",
    "/provenance/0/manifest/targets/0/arch",
    "/provenance/0/manifest/provider/name",
    "/provenance/0/manifest/provider/version",
];

/// Values of such a field. `ROOM` is replaced by the trial's directory.
const VALUES: &[&str] = &[
    "ROOM/host/lib/modules/6.9.9-host",
    "ROOM/host/file",
    "ROOM/host/new",
    "/proc/self/cwd/.git",
    "/proc/self/cwd/host/file",
    "../../../host",
    "6.9.9-host/../../../..",
    "..",
    ".",
    "",
    "-o Debug::NoLocking=1",
    "1.0\n",
    "1\u{1b}[2J",
    "1\u{202e}0",
    "1\u{0}0",
];

/// The drawn parameters of the results.
#[derive(Debug)]
struct ResultsFault {
    field: &'static str,
    value: &'static str,
    /// Whether the guests seem to come from Debian's packages and no longer exist, so they are
    /// built again.
    is_debian: bool,
    is_user: bool,
}

fn recorded(random: &mut Random) -> ResultsFault {
    ResultsFault {
        field: random.pick(FIELDS).copied().unwrap_or_default(),
        value: random.pick(VALUES).copied().unwrap_or_default(),
        is_debian: random.percent(70),
        is_user: random.percent(50),
    }
}

fn like(workshop: &Workshop, choice: u64) -> Result<TrialResult, ChaosError> {
    let drawn = recorded(&mut Random::new(choice));
    let finished = workshop.finished()?;
    let mut room = Room::new(workshop, user(drawn.is_user))?;
    let results = room.path("home/results");
    copy(&finished, &results)?;
    let text = fs::read(results.join("results.json"))?;
    let root = room.environment.root().display().to_string();
    let altered = altered(&text, &drawn, &root).map_err(std::io::Error::other)?;
    fs::write(results.join("results.json"), altered)?;
    let (study, out) = (room.path("study.toml"), room.environment.output());
    let paths: [(&str, &Path); 3] = [("STUDY", &study), ("OUT", &out), ("LIKE", &results)];
    room.run(&words("run STUDY --offline --accelerator tcg --output OUT --like LIKE", &paths), &[])?;
    room.check("first", ENDS)?;
    Ok(room.into_result())
}

/// Puts what was drawn into the results and updates their digest.
///
/// # Errors
/// An error if `text` is not a JSON object with provenance.
fn altered(text: &[u8], drawn: &ResultsFault, room: &str) -> serde_json::Result<Vec<u8>> {
    let mut results: Value = serde_json::from_slice(text)?;
    if let Some(target) = results.pointer_mut("/provenance/0/manifest/targets/0/kernel") {
        target["packages"] = serde_json::json!([{
            "name": "linux-image-6.12", "version": "6.12.1-1", "architecture": "amd64", "size": 9, "sha256": "0".repeat(64),
        }]);
    }
    if drawn.is_debian {
        let manifest = "/provenance/0/manifest";
        for (place, value) in [("provider/name", "debian"), ("targets/0/kernel/image/path", "/nowhere")] {
            if let Some(field) = results.pointer_mut(&format!("{manifest}/{place}")) {
                *field = value.into();
            }
        }
    }
    if let Some(field) = results.pointer_mut(drawn.field) {
        *field = drawn.value.replace("ROOM", room).into();
    }
    sealed(results)
}

/// Returns the results as a file. The first key is the digest of the whole file, computed with
/// zeros in its place.
///
/// # Errors
/// Errors of writing JSON, which do not occur in practice.
fn sealed(mut results: Value) -> serde_json::Result<Vec<u8>> {
    if let Some(keys) = results.as_object_mut() {
        keys.remove("digest");
    }
    let text = serde_json::to_string_pretty(&results)?;
    let rest = text.strip_prefix('{').unwrap_or(&text);
    let with = |digest: &str| format!("{{\n  \"digest\": \"{digest}\",{rest}\n").into_bytes();
    let digest = Digest::of(&with(&"0".repeat(64)));
    Ok(with(&digest.to_string()))
}

#[cfg(test)]
mod tests {
    use bpfassay_results::ResultsError;

    use super::*;

    /// The package that once moved files of a host has what it needs for that.
    #[test]
    fn a_package_is_a_kernel_but_for_what_is_planted() {
        let folder = tempfile::tempdir().unwrap();
        for form in [PackageForm::Deb, PackageForm::Rpm] {
            for choice in 0..200 {
                let tree = tree(&mut Random::new(choice));
                let entries = entries(&tree, folder.path());
                let is_kernel = entries.iter().any(|(path, _)| path.starts_with("./boot/vmlinuz-"));
                assert!(is_kernel || tree.is_alone, "{}", tell(&tree));
                fs::write(folder.path().join("package"), form.package(&entries)).unwrap();
                assert!(bpfassay_packages::unpack::about(&folder.path().join("package")).is_ok());
            }
        }
    }

    #[test]
    fn every_place_and_everything_planted_is_drawn() {
        let drawn: Vec<_> = (0..2000).map(|choice| tree(&mut Random::new(choice))).collect();
        assert!(PLACES.iter().all(|place| drawn.iter().any(|tree| tree.place == *place)));
        assert!(PLANTED.iter().all(|planted| drawn.iter().any(|tree| tree.planted.0 == planted.0)));
        assert!(RELEASES.iter().all(|release| drawn.iter().any(|tree| tree.release == *release)));
    }

    /// Results without an alteration are accepted, so a refusal is due to the alteration.
    #[test]
    fn sealed_results_have_their_digest() {
        let folder = tempfile::tempdir().unwrap();
        let text = sealed(serde_json::json!({ "digest": "x", "version": 1 })).unwrap();
        let path = folder.path().join("results.json");
        fs::write(&path, &text).unwrap();
        let error = bpfassay_results::file::read(&path).unwrap_err();
        assert!(!matches!(error, ResultsError::NoDigest { .. } | ResultsError::Damaged { .. }), "{error}");
    }
}
