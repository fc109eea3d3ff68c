// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs;

use super::*;
use crate::{
    apt::{Defaults, Downloader, FetchOptions, PackageOrigin},
    cache::Cache,
    digest::Digest,
    test_support::{left_in_tmp, server::TestServer},
};

const TIME: &str = "20251101T000000Z";

/// Lists the clients that can download on this host: this program, and apt if it has no proxy.
fn clients() -> Vec<Downloader> {
    let by_apt = Path::new(APT_HELPER).exists() && apt_can_download();
    [(by_apt, Downloader::OfHost), (true, Downloader::Own)]
        .iter()
        .filter(|(can, _)| *can)
        .map(|(_, client)| *client)
        .collect()
}

fn apt_can_download() -> bool {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path().join("cache")).unwrap();
    match Apt::new(&cache, FetchOptions::default()).host() {
        Ok(host) if host.settings.iter().all(|line| !line.contains("Proxy")) => true,
        Ok(_) => {
            eprintln!("skipped: this host's apt goes through a proxy");
            false
        }
        Err(error) => {
            eprintln!("skipped: {error}");
            false
        }
    }
}

/// The package `name` as in a lock file.
fn located(name: &str, content: &[u8]) -> Located {
    let package = Package {
        name: name.parse().unwrap(),
        version: "1:2~3".parse().unwrap(),
        architecture: "amd64".parse().unwrap(),
        size: content.len() as u64,
        sha256: Digest::of(content),
    };
    Located { path: format!("pool/main/x/{name}_2~3_amd64.deb"), package, snapshot: TIME.parse().ok() }
}

/// The path of the package in an archive of snapshots.
fn in_archive(located: &Located) -> String {
    format!("/archive/debian/{TIME}/{}", located.path)
}

fn fetch(apt: &Apt<'_>, packages: &[Located]) -> Result<Vec<CachedFile>> {
    let wanted: Vec<_> = packages.iter().map(|located| located.package.clone()).collect();
    apt.fetch_from(PackageOrigin::Pool { suite: "x", packages }, &wanted)
}

fn url(text: String) -> AssetSource {
    text.parse().unwrap()
}

#[test]
fn what_the_mirror_dropped_comes_from_the_archive_by_its_time_stamp() {
    for client in clients() {
        let contents = ["one", "two", "three"].map(|text| text.as_bytes().to_vec());
        let packages = [("a", 0), ("b", 1), ("c", 2)].map(|(name, index)| located(name, &contents[index]));
        let mirror = TestServer::start([(format!("/{}", packages[1].path), contents[1].clone())]);
        let archive = TestServer::start(packages.iter().map(in_archive).zip(contents.clone()));
        let directory = tempfile::tempdir().unwrap();
        let (cache, place) = (Cache::open(directory.path().join("cache")).unwrap(), directory.path().join("place"));
        fs::create_dir_all(place.join("pool/main/x")).unwrap();
        fs::write(place.join(&packages[2].path), &contents[2]).unwrap();
        let options = FetchOptions {
            mirror: Some(mirror.url().to_owned()),
            from: vec![AssetSource::Directory(place)],
            archive: Some(url(format!("{}/archive", archive.url()))),
            client,
            ..FetchOptions::default()
        };
        let objects = fetch(&Apt::new(&cache, options), &packages).unwrap();
        for (object, content) in objects.iter().zip(&contents) {
            assert_eq!(&fs::read(&object.path).unwrap(), content);
        }
        let paths = |server: &TestServer| server.requests().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        // The other places are not asked for files of --from. The archive is asked only for files
        // that the mirror lacks.
        let mut asked = paths(&mirror);
        asked.sort();
        asked.dedup();
        assert_eq!(asked, [0, 1].map(|index| format!("/{}", packages[index].path)));
        assert_eq!(paths(&archive), [in_archive(&packages[0])]);
        assert!(left_in_tmp(cache.root()).is_empty());
    }
}

#[test]
fn wrong_content_is_refused_everywhere_and_nothing_of_it_is_kept() {
    for client in clients() {
        let content = b"what a package holds".to_vec();
        let package = located("a", &content);
        let (other, longer, shorter) =
            (content.to_ascii_uppercase(), content.to_ascii_uppercase().repeat(3), content[..5].to_vec());
        for wrong in [other, longer, shorter] {
            let mirror = TestServer::start([(format!("/{}", package.path), wrong.clone())]);
            let archive = TestServer::start([(in_archive(&package), wrong.clone())]);
            let directory = tempfile::tempdir().unwrap();
            let cache = Cache::open(directory.path().join("cache")).unwrap();
            let place = directory.path().join("place");
            fs::create_dir_all(place.join("pool/main/x")).unwrap();
            fs::write(place.join(&package.path), &wrong).unwrap();
            let options = FetchOptions {
                mirror: Some(mirror.url().to_owned()),
                from: vec![AssetSource::Directory(place.clone())],
                archive: Some(url(format!("{}/archive", archive.url()))),
                client,
                ..FetchOptions::default()
            };
            let error = fetch(&Apt::new(&cache, options), std::slice::from_ref(&package)).unwrap_err();
            let PackagesError::Nowhere { replaceable: false, .. } = error else { panic!("{error:?}") };
            let message = error.to_string();
            let places = [
                format!("{} (--from): ", place.display()),
                format!("{} (--mirror or bpfassay.toml): ", mirror.url()),
                format!("the archive {}/archive: ", archive.url()),
            ];
            for words in places.iter().map(String::as_str).chain(["a:amd64=1:2~3", "--archive", "--from", "--newest"]) {
                assert!(message.contains(words), "{words}: {message}");
            }
            assert!(cache.object(&package.package.sha256).unwrap().is_none());
            assert!(cache.object(&Digest::of(&wrong)).unwrap().is_none(), "the wrong file was kept");
            assert!(left_in_tmp(cache.root()).is_empty());
        }
    }
}

#[test]
fn a_mirror_that_sends_something_else_is_no_obstacle_where_the_archive_has_it() {
    for client in clients() {
        let content = b"what a package holds".to_vec();
        let package = located("a", &content);
        let mirror = TestServer::start([(format!("/{}", package.path), content.to_ascii_uppercase())]);
        let directory = tempfile::tempdir().unwrap();
        let (cache, archive) = (Cache::open(directory.path().join("cache")).unwrap(), directory.path().join("archive"));
        let file = archive.join(format!("debian/{TIME}")).join(&package.path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, &content).unwrap();
        let options = FetchOptions {
            mirror: Some(mirror.url().to_owned()),
            archive: Some(AssetSource::Directory(archive)),
            client,
            ..FetchOptions::default()
        };
        let object = fetch(&Apt::new(&cache, options), std::slice::from_ref(&package)).unwrap().remove(0);
        assert_eq!(fs::read(object.path).unwrap(), content);
    }
}

#[test]
fn places_that_are_no_help_are_named() {
    let package = Located { snapshot: None, ..located("a", b"x") };
    let directory = tempfile::tempdir().unwrap();
    let (cache, empty) = (Cache::open(directory.path().join("cache")).unwrap(), directory.path().join("empty"));
    fs::create_dir(&empty).unwrap();
    let of = |options| fetch(&Apt::new(&cache, options), std::slice::from_ref(&package)).unwrap_err();
    // Directories are read even when offline.
    let from = vec![AssetSource::Directory(empty.clone())];
    let error = of(FetchOptions { offline: true, from: from.clone(), ..FetchOptions::default() });
    assert!(matches!(error, PackagesError::Offline { .. }), "{error}");
    let mirror = TestServer::start([]);
    for client in clients() {
        let options = |archive| FetchOptions {
            mirror: Some(mirror.url().to_owned()),
            from: from.clone(),
            archive,
            client,
            ..FetchOptions::default()
        };
        let error = of(options(None));
        assert!(
            error.dropped().is_some_and(|asked| asked.contains("(--from): has no pool/main/x/a_2~3_amd64.deb; ")),
            "{error}"
        );
        // A user who names an archive wants exactly the locked package.
        let error = of(options(Some(AssetSource::Directory(empty.clone()))));
        assert!(error.dropped().is_none(), "{error}");
        assert!(error.to_string().contains("testbed.lock has no time stamp of a:amd64=1:2~3"), "{error}");
    }
    // There is no mirror if the host has no apt and nobody names one.
    let error = of(FetchOptions { from: from.clone(), client: Downloader::Own, ..FetchOptions::default() });
    let PackagesError::Nowhere { replaceable: false, .. } = error else { panic!("{error:?}") };
    assert!(
        error.to_string().contains("configuration names one, and none was compiled in: --mirror URL names one"),
        "{error}"
    );
}

#[test]
fn what_was_compiled_in_is_asked_last_and_named_as_such() {
    let contents = [b"one".to_vec(), b"two".to_vec()];
    let packages = [("a", 0), ("b", 1)].map(|(name, index)| located(name, &contents[index]));
    let place = |index: usize| (format!("/{}", packages[index].path), contents[index].clone());
    let (named, default) = (TestServer::start([place(0)]), TestServer::start([place(0)]));
    let archive = TestServer::start([(in_archive(&packages[1]), contents[1].clone())]);
    let defaults =
        Defaults { mirror: Some(default.url().to_owned()), archive: Some(url(format!("{}/archive", archive.url()))) };
    let paths = |server: &TestServer| server.requests().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    let directory = tempfile::tempdir().unwrap();
    // On this host there is no apt, and nobody names a place.
    let options = FetchOptions { client: Downloader::Own, defaults, ..FetchOptions::default() };
    let cache = Cache::open(directory.path().join("first")).unwrap();
    let apt = Apt::new(&cache, options.clone());
    let objects = fetch(&apt, &packages).unwrap();
    assert_eq!(fs::read(&objects[1].path).unwrap(), contents[1]);
    assert_eq!(paths(&default), packages.each_ref().map(|package| format!("/{}", package.path)));
    assert_eq!(paths(&archive), [in_archive(&packages[1])]);
    assert_eq!(apt.mirror().unwrap().unwrap().name(), format!("{} (the mirror that was compiled in)", default.url()));
    // The places that the user names are asked instead. A missing package may be replaced by the
    // newest one only if no archive was named.
    let cache = Cache::open(directory.path().join("second")).unwrap();
    let named_archive = TestServer::start([]);
    let own = FetchOptions { mirror: Some(named.url().to_owned()), ..options.clone() };
    let error =
        fetch(&Apt::new(&cache, FetchOptions { archive: Some(url(named_archive.url().to_owned())), ..own }), &packages)
            .unwrap_err();
    assert!(matches!(&error, PackagesError::Nowhere { replaceable: false, .. }), "{error:?}");
    assert!(paths(&default).is_empty() && paths(&archive).is_empty() && !paths(&named).is_empty());
    // The same happens with a compiled-in archive that lacks the package.
    let empty = Defaults { archive: Some(url(named_archive.url().to_owned())), ..options.defaults.clone() };
    let error = fetch(&Apt::new(&cache, FetchOptions { defaults: empty, ..options.clone() }), &packages).unwrap_err();
    assert!(error.dropped().is_some_and(|asked| asked.contains("(compiled in): ")), "{error:?}");
    // No place is asked when offline.
    let _ = (paths(&default), paths(&archive));
    let cache = Cache::open(directory.path().join("third")).unwrap();
    let error = fetch(&Apt::new(&cache, FetchOptions { offline: true, ..options }), &packages).unwrap_err();
    assert!(matches!(error, PackagesError::Offline { .. }), "{error:?}");
    assert!(paths(&default).is_empty() && paths(&archive).is_empty());
}

#[test]
fn a_server_that_does_not_answer_is_asked_for_one_file_only() {
    let packages = [located("a", b"x"), located("b", b"y")];
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path().join("cache")).unwrap();
    let refused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options =
        FetchOptions { mirror: Some(format!("http://{refused}")), client: Downloader::Own, ..FetchOptions::default() };
    let begun = std::time::Instant::now();
    let error = fetch(&Apt::new(&cache, options), &packages).unwrap_err();
    assert!(matches!(&error, PackagesError::Apt(AptError::Unreachable { .. })), "{error:?}");
    // Attempts are one and two seconds apart. The second file is not tried.
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// Creates a package that is large enough to be broken off, and a mirror that has it.
fn large() -> (Vec<u8>, Located, TestServer) {
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    let package = located("a", &content);
    let mirror = TestServer::start([(format!("/{}", package.path), content.clone())]);
    (content, package, mirror)
}

fn of_mirror(mirror: &TestServer, client: Downloader) -> FetchOptions {
    FetchOptions { mirror: Some(mirror.url().to_owned()), client, ..FetchOptions::default() }
}

/// Breaks off every attempt to download `package`. Returns the offset for continuing.
fn break_off(cache: &Cache, package: &Located, mirror: &TestServer, client: Downloader) -> u64 {
    mirror.break_after(100_000);
    let error = fetch(&Apt::new(cache, of_mirror(mirror, client)), std::slice::from_ref(package)).unwrap_err();
    assert!(matches!(error, PackagesError::Apt(_)), "{error}");
    mirror.break_after(usize::MAX);
    mirror.requests();
    let kept = cache.root().join("tmp/partial").join(package.package.sha256.to_string());
    fs::metadata(kept).unwrap().len()
}

#[test]
fn a_download_that_was_broken_off_goes_on_in_another_process() {
    for client in clients() {
        let (content, package, mirror) = large();
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("cache")).unwrap();
        let kept = break_off(&cache, &package, &mirror, client);
        assert!(kept >= 100_000, "{kept}");
        drop(cache);
        let cache = Cache::open(directory.path().join("cache")).unwrap();
        let object =
            fetch(&Apt::new(&cache, of_mirror(&mirror, client)), std::slice::from_ref(&package)).unwrap().remove(0);
        assert_eq!(fs::read(object.path).unwrap(), content);
        assert_eq!(mirror.requests(), [(format!("/{}", package.path), kept)]);
        assert_eq!(fs::read_dir(cache.root().join("tmp/partial")).unwrap().count(), 0);
    }
}

#[test]
fn a_server_without_ranges_and_a_damaged_part_begin_again() {
    for client in clients() {
        let (content, package, mirror) = large();
        let path = format!("/{}", package.path);
        for damaged in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let cache = Cache::open(directory.path().join("cache")).unwrap();
            let kept = break_off(&cache, &package, &mirror, client);
            let part = cache.root().join("tmp/partial").join(package.package.sha256.to_string());
            if damaged {
                let modified = fs::metadata(&part).unwrap().modified().unwrap();
                let mut bytes = fs::read(&part).unwrap();
                bytes[0] ^= 1;
                fs::write(&part, bytes).unwrap();
                // The server recognizes the file by its modification time.
                fs::File::options().write(true).open(&part).unwrap().set_modified(modified).unwrap();
            } else {
                mirror.without_ranges();
            }
            let object =
                fetch(&Apt::new(&cache, of_mirror(&mirror, client)), std::slice::from_ref(&package)).unwrap().remove(0);
            assert_eq!(fs::read(object.path).unwrap(), content);
            let begins: Vec<_> = mirror.requests().into_iter().map(|(asked, begin)| (asked == path, begin)).collect();
            let expected = if damaged { vec![(true, kept), (true, 0)] } else { vec![(true, 0)] };
            assert_eq!(begins, expected, "damaged: {damaged}");
            assert!(!part.exists());
        }
    }
}
