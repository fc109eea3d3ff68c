// SPDX-License-Identifier: MIT OR Apache-2.0
use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::PathBuf,
    thread,
};

use bpfassay_packages::{
    apt::{Downloader, FetchOptions, NotAnAssetSource},
    cache::Cache,
};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::payload::{Payload, ProgramSources, offered as taken, pack, payload_sources::WantedSources, recorded};

const ARCH: Arch = Arch::Riscv64;

fn source() -> Digest {
    Digest::of(b"sources")
}

/// Contents of the three programs, in the order of [`PROGRAMS`].
const PROGRAM_TEXTS: [&[u8]; 3] = [b"the agent", &[7; 5000], b"ior"];

/// Adds programs to a new cache, as a build does.
fn built(root: &Path) -> Built {
    let cache = Cache::open(root).unwrap();
    let [agent, tracer, ior] = PROGRAM_TEXTS.map(|text| cache.add_bytes("a program", text).unwrap());
    let toolchain = vec![Component { name: "rustc".into(), version: "1.95".into(), sha256: Digest::of(b"deb") }];
    let payload = Payload { arch: ARCH, agent, tracer, ior, source: source() };
    Built { payload, toolchain, toolchain_key: Digest::of(b"toolchain"), asset: None }
}

/// Creates a directory with an asset.
fn offered() -> (TempDir, PathBuf, AssetIndex) {
    let work = tempfile::tempdir().unwrap();
    let built = built(&work.path().join("builder"));
    let place = work.path().join("place");
    let index = pack(&[built], &place).unwrap().pop().unwrap();
    (work, place, index)
}

/// Takes the programs from `place` into an empty cache in `work`.
fn take_from(work: &Path, place: &str, toolchain: Option<Digest>) -> Result<Option<Built>> {
    take_by(Downloader::OfHost, work, place, toolchain)
}

fn take_by(client: Downloader, work: &Path, place: &str, toolchain: Option<Digest>) -> Result<Option<Built>> {
    let root = work.join("user");
    let _ = fs::remove_dir_all(&root);
    let cache = Cache::open(root).unwrap();
    let apt = Apt::new(&cache, FetchOptions { client, ..FetchOptions::default() });
    let sources =
        ProgramSources { from: vec![place.parse().unwrap()], built_with: Some(source()), ..ProgramSources::default() };
    let found = taken(&apt, &sources, source(), ARCH, toolchain)?;
    assert_eq!(recorded(&cache, source(), ARCH, None)?.is_some(), found.is_some());
    Ok(found)
}

fn take_from_directory(work: &Path, place: &Path) -> Result<Option<Built>> {
    take_from(work, place.to_str().unwrap(), None)
}

fn is_taken(found: Option<Built>, index: &AssetIndex, from: &str) {
    let Built { payload, toolchain, asset: taken, .. } = found.unwrap();
    let objects = [&payload.agent, &payload.tracer, &payload.ior];
    for (object, text) in objects.into_iter().zip(PROGRAM_TEXTS) {
        assert_eq!(fs::read(&object.path).unwrap(), text);
    }
    let asset = ProgramAsset { arch: ARCH, source: source(), sha256: index.archive.sha256, from: from.to_owned() };
    assert_eq!(taken, Some(asset));
    assert_eq!(toolchain[0].name, "rustc");
}

#[test]
fn programs_of_an_asset_are_those_that_were_packed() {
    let (work, place, index) = offered();
    is_taken(take_from_directory(work.path(), &place).unwrap(), &index, place.to_str().unwrap());
    let files: Vec<_> = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    // The same programs give the same files, and can be packed again.
    let (again, other, _) = offered();
    for file in files {
        assert_eq!(fs::read(place.join(&file)).unwrap(), fs::read(other.join(&file)).unwrap(), "{}", file.display());
    }
    drop(again);
}

#[test]
fn other_sources_architectures_and_toolchains_are_not_offered() {
    let (work, place, index) = offered();
    let cache = Cache::open(work.path().join("user")).unwrap();
    let apt = Apt::new(&cache, FetchOptions::default());
    let of = AssetSource::Directory(place.clone());
    assert!(find(&apt, &of, Digest::of(b"others"), ARCH).unwrap().is_none());
    assert!(find(&apt, &of, source(), Arch::X86_64).unwrap().is_none());
    assert_eq!(find(&apt, &of, source(), ARCH).unwrap(), Some(index));
    assert!(take_from(work.path(), place.to_str().unwrap(), Some(Digest::of(b"another"))).unwrap().is_none());
    assert!(take_from(work.path(), place.to_str().unwrap(), Some(Digest::of(b"toolchain"))).unwrap().is_some());
    let missing = take_from(work.path(), "/nonexistent/place", None).unwrap_err();
    assert!(missing.to_string().contains("/nonexistent/place"), "{missing}");
}

#[test]
fn an_index_in_the_place_of_another_is_refused() {
    let (work, place, mut index) = offered();
    let path = place.join(index_name(ARCH, source()));
    let mut put = |change: &dyn Fn(&mut AssetIndex)| {
        change(&mut index);
        fs::write(&path, serde_json::to_string(&index).unwrap()).unwrap();
        take_from_directory(work.path(), &place)
    };
    let error = put(&|index| index.arch = Arch::X86_64).unwrap_err().to_string();
    assert!(error.contains("is for x86_64") && error.contains(path.to_str().unwrap()), "{error}");
    assert!(put(&|index| (index.arch, index.key) = (ARCH, Digest::of(b"key"))).is_err());
    assert!(put(&|index| index.key = asset_key(source())).unwrap().is_some());
}

#[test]
fn what_is_damaged_is_an_error_that_names_file_and_hash() {
    let (work, place, index) = offered();
    let archive = place.join(archive_name(ARCH, source()));
    let whole = fs::read(&archive).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&archive, &damaged).unwrap();
    let error = take_from_directory(work.path(), &place).unwrap_err();
    assert!(
        matches!(error, Error::Packages(PackagesError::Mismatch { expected, .. }) if expected == index.archive.sha256),
        "{error}"
    );
    assert!(error.to_string().contains(archive.to_str().unwrap()), "{error}");
    fs::write(&archive, [&whole[..], b"more"].concat()).unwrap();
    assert!(take_from_directory(work.path(), &place).is_err());
    fs::remove_file(&archive).unwrap();
    let error = take_from_directory(work.path(), &place).unwrap_err().to_string();
    assert!(error.contains("is not there") && error.contains(archive.to_str().unwrap()), "{error}");
    fs::write(place.join(index_name(ARCH, source())), "{}").unwrap();
    assert!(matches!(take_from_directory(work.path(), &place), Err(Error::Asset(AssetError::Form { .. }))));
}

#[test]
fn a_program_that_is_not_the_one_promised_is_refused() {
    let (_work, place, mut index) = offered();
    let archive = fs::read(place.join(archive_name(ARCH, source()))).unwrap();
    let unpacked = unpack(&index, archive.clone(), "a").unwrap();
    assert_eq!(unpacked, PROGRAM_TEXTS.map(<[u8]>::to_vec));
    let agent = index.programs.get_mut("bpfassay-guest").unwrap();
    agent.sha256 = Digest::of(b"another agent");
    let error = unpack(&index, archive.clone(), "a.cpio.xz").unwrap_err().to_string();
    assert!(error.contains("bpfassay-guest in a.cpio.xz"), "{error}");
    index.programs.get_mut("bpfassay-tracer").unwrap().size = 4999;
    assert!(unpack(&index, archive, "a").is_err());
    // An archive must not be larger than its programs.
    let bomb = compress(&vec![0; 4 << 20]).unwrap();
    index.archive = FileHash::of(&bomb);
    let error = unpack(&index, bomb, "a").unwrap_err().to_string();
    assert!(error.contains("cannot be unpacked"), "{error}");
}

#[test]
fn an_index_has_one_form() {
    let (_work, _, index) = offered();
    let text = serde_json::to_string(&index).unwrap();
    assert_eq!(AssetIndex::parse("i", text.as_bytes()).unwrap(), index);
    for (from, to, why) in [
        (r#""format":1"#, r#""format":2"#, "has format 2, this program reads 1"),
        (r#""format":1"#, r#""format":1,"path":"/etc/shadow""#, "no index"),
        ("bpfassay-guest", "../bpfassay-guest", "must name the programs"),
        (r#""size":5000"#, r#""size":0"#, "empty or too large"),
        (r#""size":5000"#, r#""size":99999999999"#, "empty or too large"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = AssetIndex::parse("i", text.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn without_sources_the_error_names_what_helps() {
    let sources = ProgramSources {
        from: vec!["/some/place".parse().unwrap()],
        built_with: Some(source()),
        ..ProgramSources::default()
    };
    let error = WantedSources::without_checkout(&sources).unwrap().into_checkout(&[ARCH]).unwrap_err().to_string();
    for words in ["riscv64", "/some/place", "--from", "BPFASSAY_FROM", "BPFASSAY_SOURCE", "--manifest"] {
        assert!(error.contains(words), "{words}: {error}");
    }
    let error = WantedSources::without_checkout(&ProgramSources::default()).unwrap_err().to_string();
    for words in ["--from", "BPFASSAY_SOURCE", "--manifest"] {
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn places_are_directories_and_plain_urls() {
    let of = |text: &str| text.parse::<AssetSource>();
    assert_eq!(of("assets"), Ok(AssetSource::Directory("assets".into())));
    assert_eq!(of("https://a.example/x//"), Ok(AssetSource::Url("https://a.example/x".into())));
    assert_eq!(of("http://[::1]:80"), Ok(AssetSource::Url("http://[::1]:80".into())));
    for text in [
        "",
        "file:///x",
        "ftp://a/x",
        "https://",
        "https://me:secret@a.example/",
        "https://a/ x",
        "https://a/?x",
        "https://-o/x",
    ] {
        assert_eq!(of(text), Err(NotAnAssetSource), "{text}");
    }
}

/// Serves the files of `directory` to every connection until the test ends.
fn serve(directory: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let name =
                head.first().and_then(|line| line.split(' ').nth(1)).unwrap_or("/").trim_start_matches('/').to_owned();
            let (status, body) = match fs::read(directory.join(name)) {
                Ok(body) => ("200 OK", body),
                Err(_) => ("404 Not Found", Vec::new()),
            };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    format!("http://{address}")
}

#[test]
fn a_url_offers_what_its_directory_holds() {
    // Hosts without apt use the same client.
    for client in [Downloader::OfHost, Downloader::Own] {
        let (work, place, index) = offered();
        let take = |url: &str| take_by(client, work.path(), url, None);
        let url = serve(place.clone());
        is_taken(take(&url).unwrap(), &index, &url);
        let archive = place.join(archive_name(ARCH, source()));
        fs::write(&archive, fs::read(&archive).unwrap().repeat(2)).unwrap();
        let error = take(&url).unwrap_err().to_string();
        assert!(error.contains("it is larger than") && error.contains(&url), "{error}");
        fs::remove_file(place.join(index_name(ARCH, source()))).unwrap();
        assert!(take(&url).unwrap().is_none());
        let error = take("http://127.0.0.1:1").unwrap_err().to_string();
        assert!(error.contains("cannot download http://127.0.0.1:1/payload-riscv64-"), "{error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_an_index_or_refused(text in "\\PC{0,200}|\\{\"format\": ?1[^}]{0,100}\\}") {
        let _ = AssetIndex::parse("i", text.as_bytes());
    }

    #[test]
    fn any_change_of_an_archive_is_found(at: prop::sample::Index, bit in 0..8u8) {
        let mut archive = Archive::default();
        for (program, text) in PROGRAMS.iter().zip(PROGRAM_TEXTS) {
            archive.add(program.binary, NewcNode::File { executable: true, content: text.to_vec().into() }).unwrap();
        }
        let mut bytes = compress(&archive.to_bytes().unwrap()).unwrap();
        let programs = PROGRAMS.iter().zip(PROGRAM_TEXTS).map(|(program, text)| (program.binary.to_owned(), FileHash::of(text)));
        let index = AssetIndex {
            format: ASSET_FORMAT,
            arch: ARCH,
            source: source(),
            key: source(),
            archive: FileHash::of(&bytes),
            programs: programs.collect(),
            toolchain_key: source(),
            toolchain: Vec::new(),
        };
        prop_assert!(unpack(&index, bytes.clone(), "a").is_ok());
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(unpack(&index, bytes.clone(), "a").is_err());
        // A forged index that matches the archive must not give other programs.
        let lied = AssetIndex { archive: FileHash::of(&bytes), ..index };
        if let Ok(programs) = unpack(&lied, bytes, "a") {
            prop_assert_eq!(programs, PROGRAM_TEXTS.map(<[u8]>::to_vec));
        }
    }
}
