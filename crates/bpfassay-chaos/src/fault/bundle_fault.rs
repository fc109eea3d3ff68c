// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bundles of strangers: they bring a QEMU, have packages that lead out of their tree or are larger
//! than they seem, or have other content than they promise.

use std::{fs, path::Path};

use super::FaultKind;
use crate::{
    chaos_random::Random,
    chaos_study::ChaosError,
    stranger::{
        hostile_bundle::{compressed, packed},
        hostile_package::{EntryNode, PackageEntry, Planted, deb, file, tar},
        room::{Room, user, words},
        workshop::Workshop,
    },
    trial::{CommandEnd, TrialResult},
};

pub(super) const FAULTS: &[FaultKind] = &[
    FaultKind::of_strangers("bundle/own-qemu", own_qemu, |draw| draw.choice(asked, |asked| format!("{asked:?}"))),
    FaultKind::of_strangers("bundle/writes-out", writes_out, |draw| draw.choice(outward, tell)),
    FaultKind::of_strangers("bundle/oversize", oversize, |draw| draw.choice(large, |large| format!("{large:?}"))),
    FaultKind::of_strangers("bundle/altered", altered, |draw| draw.choice(alteration, |drawn| drawn.0.to_owned())),
];

/// The command.
const RUN: &str = "run STUDY --offline --accelerator tcg --output OUT --bundle BUNDLE";
/// How the command ends if the bundle is refused or has no working QEMU.
const REFUSED: &[CommandEnd] = &[CommandEnd::Code(2), CommandEnd::Code(3)];
/// The most that a bundle or package can unpack to: 64 times its size and 64 MiB (SECURITY.md).
const MOST: (u64, u64) = (64, 64 << 20);

/// A script that writes a mark and its environment to a file when it is started.
fn script(room: &Path) -> Vec<u8> {
    let mark = room.join("started").display().to_string();
    format!("#!/bin/sh\necho started >>{mark}\nenv >>{mark}\necho 'QEMU emulator version 7.2.22 (Debian 1)'\n").into()
}

/// The files of a QEMU with `script` as its loader and programs.
fn programs(script: &[u8]) -> Vec<PackageEntry> {
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    let program = |path: String| (path, EntryNode::Program(script.to_vec()));
    vec![
        program(format!("./lib/{triplet}/ld-linux-{triplet}.so.2")),
        program("./usr/bin/qemu-system-x86_64".to_owned()),
        file(format!("./usr/lib/{triplet}/x"), b""),
        file("./usr/share/qemu/x", b""),
    ]
}

/// Runs the study with the bundle `bytes` and the words `more`. `PATH` has no other QEMU.
///
/// # Errors
/// [`ChaosError`] if the room cannot be prepared or the command cannot be run.
fn run(room: &mut Room<'_>, bytes: &[u8], more: &str, is_ci: bool) -> Result<CommandEnd, ChaosError> {
    let (study, out) = (room.path("study.toml"), room.environment.output());
    let bundle = room.put("home/stranger.bundle", bytes)?;
    let paths: [(&str, &Path); 3] = [("STUDY", &study), ("OUT", &out), ("BUNDLE", &bundle)];
    let mut command = room.command("")?;
    if is_ci {
        command.env("CI", "true");
    }
    room.run_command(command, &words(&format!("{RUN} {more}"), &paths), &[])
}

/// The drawn parameters of a bundle with its own QEMU.
#[derive(Debug)]
struct BundleFault {
    yes: bool,
    ci: bool,
    /// The name of QEMU's package: one of Debian's or another.
    name: &'static str,
    /// The number of further packages.
    others: u64,
    is_user: bool,
}

/// Names of packages, one line each.
const NAMES: &[&str] = &["qemu-system-x86", "qemu-system-common", "seabios", "libc6", "a-stranger"];
/// The option that chooses the QEMU.
const QEMU: &str = "--qemu lock";

fn asked(random: &mut Random) -> BundleFault {
    BundleFault {
        yes: random.percent(50),
        ci: random.percent(50),
        name: random.pick(NAMES).copied().unwrap_or_default(),
        others: random.below(3),
        is_user: random.percent(50),
    }
}

fn own_qemu(workshop: &Workshop, choice: u64) -> Result<TrialResult, ChaosError> {
    let drawn = asked(&mut Random::new(choice));
    let mut content = workshop.bundle()?;
    let mut room = Room::new(workshop, user(drawn.is_user))?;
    let script = script(room.environment.root());
    content.add_package(drawn.name, deb(drawn.name, "amd64", tar(&programs(&script))));
    for name in NAMES.iter().cycle().take(usize::try_from(drawn.others).unwrap_or_default()) {
        content.add_package(name, deb(name, "amd64", tar(&[file(format!("./usr/share/{name}/{choice}"), b"")])));
    }
    let more = if drawn.yes { format!("{QEMU} --yes") } else { QEMU.to_owned() };
    run(&mut room, &packed(&content.entries())?, &more, drawn.ci)?;
    // The check would find a mark, because the mark is outside of the command's directories.
    room.check("first", &[CommandEnd::Code(2)])?;
    Ok(room.into_result())
}

/// Places in QEMU's packages. `{t}` is replaced by the host's triplet.
const PLACES: &[&str] = &[
    "usr",
    "usr/bin",
    "usr/bin/loader",
    "usr/bin/qemu-system-x86_64",
    "usr/bin/qemu-system-aarch64",
    "usr/lib",
    "usr/lib/{t}",
    "usr/lib/{t}/x",
    "usr/lib/ipxe/qemu",
    "usr/share",
    "usr/share/qemu",
    "usr/share/seabios",
    "usr/share/doc",
    "lib",
    "lib/{t}",
    "lib/{t}/ld-linux-{t}.so.2",
    "../planted",
    "usr/../../../planted",
];

/// Plants for such a place, given the path of the room.
const PLANTED: &[Planted] = &[
    ("a link to a directory", |room| EntryNode::Link(room.join("host/directory").display().to_string())),
    ("a link to a file", |room| EntryNode::Link(room.join("host/file").display().to_string())),
    ("a link to nothing on the host", |room| EntryNode::Link(room.join("host/new").display().to_string())),
    ("a link by the working directory", |_| EntryNode::Link("/proc/self/cwd/host/directory".to_owned())),
    ("a link up and down", |room| EntryNode::Link(format!("{}{}/host", "../".repeat(16), room.display()))),
    ("a link to itself", |_| EntryNode::Link(".".to_owned())),
    ("a name of a file of the host", |room| EntryNode::Same(format!("{}/host/file", room.display()))),
    ("a pipe", |_| EntryNode::Pipe),
    ("a device", |_| EntryNode::Device),
];

/// The drawn parameters of packages that lead out of their tree.
#[derive(Debug)]
struct Outward {
    place: &'static str,
    planted: &'static Planted,
    /// Whether the plant has a package to itself, before the package with the programs.
    is_apart: bool,
    is_last: bool,
    /// Whether the trial creates a file below the planted path.
    is_entered: bool,
}

fn outward(random: &mut Random) -> Outward {
    Outward {
        place: random.pick(PLACES).copied().unwrap_or_default(),
        planted: random.pick(PLANTED).unwrap_or(&PLANTED[0]),
        is_apart: random.percent(50),
        is_last: random.percent(30),
        is_entered: random.percent(40),
    }
}

fn tell(drawn: &Outward) -> String {
    let order = if drawn.is_last { "after" } else { "before" };
    let apart = if drawn.is_apart { " in a package of its own" } else { "" };
    let entered = if drawn.is_entered { " and a file through it," } else { "" };
    format!("{} at {},{entered}{apart} {order} the programs", drawn.planted.0, drawn.place)
}

/// The user trusts the packages, so they are unpacked, but only into the cache. The programs would
/// run as the user, so the programs of the trial do nothing.
fn writes_out(workshop: &Workshop, choice: u64) -> Result<TrialResult, ChaosError> {
    let drawn = outward(&mut Random::new(choice));
    let mut content = workshop.bundle()?;
    let mut room = Room::new(workshop, None)?;
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    let place = format!("./{}", drawn.place.replace("{t}", &triplet));
    let planted = (drawn.planted.1)(room.environment.root());
    let mut hostile = vec![(place.clone(), planted)];
    if drawn.is_entered {
        hostile.push(file(format!("{place}/new"), b"of a stranger"));
    }
    let mut packages = vec![programs(b"#!/bin/sh\nexit 1\n")];
    match (drawn.is_apart, drawn.is_last) {
        (true, true) => packages.push(hostile),
        (true, false) => packages.insert(0, hostile),
        (false, true) => packages[0].extend(hostile),
        (false, false) => packages[0].splice(0..0, hostile).for_each(drop),
    }
    for (entries, name) in packages.iter().zip(NAMES) {
        content.add_package(name, deb(name, "amd64", tar(entries)));
    }
    run(&mut room, &packed(&content.entries())?, &format!("{QEMU} --trust-emulator"), false)?;
    room.check("first", REFUSED)?;
    Ok(room.into_result())
}

/// The part of a bundle that is larger than it seems.
#[derive(Debug, Clone, Copy)]
enum Large {
    /// The content of a package.
    Package,
    /// A file in the bundle.
    Object,
    /// The manifest.
    Manifest,
    /// The list of QEMU's packages.
    Emulator,
    /// A package of QEMU whose size in `emulator.json` is too small.
    Size,
}

const LARGE: &[Large] = &[Large::Package, Large::Object, Large::Manifest, Large::Emulator, Large::Size];

fn large(random: &mut Random) -> Large {
    random.pick(LARGE).copied().unwrap_or(Large::Package)
}

fn oversize(workshop: &Workshop, choice: u64) -> Result<TrialResult, ChaosError> {
    let drawn = large(&mut Random::new(choice));
    let mut content = workshop.bundle()?;
    let mut room = Room::new(workshop, None)?;
    let zeros = || vec![0; usize::try_from(MOST.1 + (32 << 20)).unwrap_or_default()];
    let mut programs = programs(b"#!/bin/sh\nexit 1\n");
    if matches!(drawn, Large::Package) {
        programs.push(file("./usr/share/qemu/zeros", &zeros()));
    }
    content.add_package(NAMES[0], deb(NAMES[0], "amd64", compressed(&tar(&programs))?));
    if matches!(drawn, Large::Object) {
        content.add_package(NAMES[1], zeros());
    }
    let mut entries = content.entries();
    match drawn {
        Large::Manifest | Large::Emulator => {
            let index = usize::from(matches!(drawn, Large::Manifest));
            if let Some((_, EntryNode::File(bytes))) = entries.get_mut(index) {
                bytes.resize(usize::try_from(MOST.1).unwrap_or_default() * 2, b' ');
            }
        }
        Large::Size => {
            if let Some((_, EntryNode::File(bytes))) = entries.last_mut() {
                bytes.extend(zeros());
            }
        }
        Large::Package | Large::Object => {}
    }
    let bytes = packed(&entries)?;
    let most = MOST.0 * bytes.len() as u64 + MOST.1;
    run(&mut room, &bytes, &format!("{QEMU} --trust-emulator"), false)?;
    room.check("first", REFUSED)?;
    let took = size(&room.cache());
    if took > 2 * most {
        room.wrong("first", vec![format!("the cache has {} MiB of {} bytes", took >> 20, bytes.len())]);
    }
    Ok(room.into_result())
}

/// Returns the size of the files below `directory`, in bytes.
fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let one = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.map(one).sum()
}

/// A change to the entries of a sound bundle, with its description.
type Alteration = (&'static str, fn(&mut Vec<PackageEntry>, &mut Random, &Path));

const ALTERATIONS: &[Alteration] = &[
    ("a bit of a file", |entries, random, _| bit(entries, random, "objects/")),
    ("a bit of the manifest", |entries, random, _| bit(entries, random, "manifest.json")),
    ("a digest in the manifest", |entries, random, _| {
        replace(entries, "manifest.json", "\"sha256\":\"", &format!("\"sha256\":\"{:x}", random.below(16)));
    }),
    ("two digests exchanged", |entries, _, _| {
        if let [.., first, second] = entries.as_mut_slice() {
            std::mem::swap(&mut first.0, &mut second.0);
        }
    }),
    ("a path in the manifest", |entries, _, room| {
        let path = format!("\"path\":\"{}/host/file", room.display());
        replace(entries, "manifest.json", "\"path\":\"objects/", &path);
    }),
    ("a path that leads up", |entries, _, _| {
        replace(entries, "manifest.json", "\"path\":\"objects/", "\"path\":\"../../../host/file");
    }),
    ("a release that leads up", |entries, _, _| {
        replace(entries, "manifest.json", "6.12.0-chaos", "../../../host/directory");
    }),
    ("a file outside", |entries, _, room| entries.push(file(format!("{}/host/new", room.display()), b"new"))),
    ("a file above", |entries, _, _| entries.push(file("objects/../../host/new", b"new"))),
    ("a link in the place of a file", |entries, _, room| {
        if let Some((_, node)) = entries.last_mut() {
            *node = EntryNode::Link(room.join("host/file").display().to_string());
        }
    }),
    ("a link in the place of the directory", |entries, _, room| {
        if let Some((_, node)) = entries.iter_mut().find(|(name, _)| name == "objects") {
            *node = EntryNode::Link(room.join("host/directory").display().to_string());
        }
    }),
    ("a pipe in the place of a file", |entries, _, _| {
        if let Some((_, node)) = entries.last_mut() {
            *node = EntryNode::Pipe;
        }
    }),
    ("a file that is missing", |entries, _, _| drop(entries.pop())),
    ("a file that is too many", |entries, random, _| {
        entries.push(file(format!("objects/{:064x}", random.bits()), b"new"));
    }),
    ("a file twice", |entries, _, _| entries.extend(entries.last().cloned())),
    ("no manifest", |entries, _, _| entries.retain(|(name, _)| name != "manifest.json")),
    ("two manifests", |entries, _, _| entries.splice(0..0, entries.first().cloned()).for_each(drop)),
    ("an emulator without packages", |entries, _, _| entries.insert(0, file("emulator.json", b"[]"))),
    ("an emulator that is no list", |entries, _, _| entries.insert(0, file("emulator.json", b"{\"a\": 1}"))),
    ("a package whose name leads up", |entries, _, _| {
        let text = format!(
            r#"[{{"name": "../../host", "version": "1/..", "architecture": "..", "size": 1, "sha256": "{}"}}]"#,
            "0".repeat(64)
        );
        entries.insert(0, file("emulator.json", text.as_bytes()));
    }),
];

fn alteration(random: &mut Random) -> &'static Alteration {
    random.pick(ALTERATIONS).unwrap_or(&ALTERATIONS[0])
}

/// Flips a bit of a file whose name begins with `name`.
fn bit(entries: &mut [PackageEntry], random: &mut Random, name: &str) {
    let mut files: Vec<_> = entries.iter_mut().filter(|entry| entry.0.starts_with(name)).collect();
    let index = usize::try_from(random.below(files.len() as u64)).unwrap_or_default();
    if let Some((_, EntryNode::File(bytes))) = files.get_mut(index) {
        let at = usize::try_from(random.below(bytes.len() as u64)).unwrap_or_default();
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << random.below(8);
        }
    }
}

fn replace(entries: &mut [PackageEntry], name: &str, from: &str, to: &str) {
    if let Some((_, EntryNode::File(bytes))) = entries.iter_mut().find(|entry| entry.0 == name) {
        *bytes = String::from_utf8_lossy(bytes).replacen(from, to, 1).into_bytes();
    }
}

/// The command refuses the bundle, or its guests are those that the bundle promises: then scripted
/// guests boot. Each object in the cache has the content that its name promises.
fn altered(workshop: &Workshop, choice: u64) -> Result<TrialResult, ChaosError> {
    let mut random = Random::new(choice);
    let (_, alter) = *alteration(&mut random);
    let content = workshop.bundle()?;
    let mut room = Room::new(workshop, None)?;
    let mut entries = content.entries();
    alter(&mut entries, &mut random, room.environment.root());
    run(&mut room, &packed(&entries)?, "", false)?;
    room.check("first", &[CommandEnd::Code(0), CommandEnd::Code(2), CommandEnd::Code(3)])?;
    Ok(room.into_result())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{chaos_study::ArtificialTestbed, stranger::hostile_bundle::BundleContent};

    fn content(folder: &Path) -> BundleContent {
        BundleContent::of(&ArtificialTestbed::make(folder).unwrap().manifest).unwrap()
    }

    #[test]
    fn every_alteration_alters_a_bundle() {
        let folder = tempfile::tempdir().unwrap();
        let content = content(folder.path());
        for (name, alter) in ALTERATIONS {
            let altered = (0..4).any(|seed| {
                let mut entries = content.entries();
                alter(&mut entries, &mut Random::new(seed), folder.path());
                entries != content.entries()
            });
            assert!(altered, "{name}");
        }
    }

    #[test]
    fn sizes_are_counted_below_a_directory() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(folder.path().join("a/b"), "12345").unwrap();
        assert_eq!(size(folder.path()), 5);
    }
}
