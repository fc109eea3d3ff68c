// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::{fs::symlink, net::UnixListener};

use super::*;

fn pipe(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

fn problem<T: std::fmt::Debug>(outcome: io::Result<T>) -> NoInput {
    let error = outcome.unwrap_err();
    error.get_ref().and_then(|source| source.downcast_ref()).cloned().unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn only_regular_files_are_opened_and_a_pipe_does_not_block() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    pipe(&at("pipe"));
    let _listener = UnixListener::bind(at("socket")).unwrap();
    fs::create_dir(at("directory")).unwrap();
    symlink("/dev/zero", at("zero")).unwrap();
    assert_eq!(problem(read(&at("pipe"), 10)), NoInput::NotRegular("a named pipe"));
    assert_eq!(problem(read_beneath(directory.path(), Path::new("pipe"), 10)), NoInput::NotRegular("a named pipe"));
    assert_eq!(problem(open_unlinked(&at("pipe"))), NoInput::NotRegular("a named pipe"));
    assert_eq!(problem(read(&at("directory"), 10)), NoInput::NotRegular("a directory"));
    assert_eq!(problem(read(&at("zero"), 10)), NoInput::NotRegular("a device"));
    // The system itself refuses to open a socket.
    assert_eq!(read(&at("socket"), 10).unwrap_err().raw_os_error(), Some(Errno::NXIO.raw_os_error()));
    assert_eq!(read(&at("none"), 10).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_file_has_a_limit_whatever_its_size_is_reported_as() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "0123456789").unwrap();
    assert_eq!(read(&path, 10).unwrap(), b"0123456789");
    assert_eq!(problem(read(&path, 9)), NoInput::TooLarge { limit: 9 });
    // A sparse file is refused before it is read.
    File::create(&path).unwrap().set_len(1 << 42).unwrap();
    assert_eq!(problem(read(&path, 9)), NoInput::TooLarge { limit: 9 });
    // This file has a size of 0 bytes.
    assert_eq!(fs::metadata("/proc/self/maps").unwrap().len(), 0);
    assert_eq!(problem(read(Path::new("/proc/self/maps"), 9)), NoInput::TooLarge { limit: 9 });
    fs::write(&path, [0xff]).unwrap();
    assert_eq!(read_text(&path, 9).unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn links_may_lead_anywhere_below_the_directory_and_nowhere_else() {
    let work = tempfile::tempdir().unwrap();
    let directory = work.path().join("directory");
    fs::create_dir_all(directory.join("below")).unwrap();
    fs::write(work.path().join("secret"), "secret").unwrap();
    fs::create_dir(work.path().join("elsewhere")).unwrap();
    fs::write(work.path().join("elsewhere/file"), "secret").unwrap();
    fs::write(directory.join("below/file"), "text").unwrap();
    symlink("below/file", directory.join("good")).unwrap();
    symlink("below", directory.join("good-directory")).unwrap();
    symlink("../good", directory.join("below/back")).unwrap();
    for (link, target) in [
        ("up", "../secret".to_owned()),
        ("absolute", "/etc/passwd".to_owned()),
        ("absolute-back", directory.join("below/file").display().to_string()),
        ("through", "below/../../secret".to_owned()),
        ("directory", "../elsewhere".to_owned()),
        ("chain", "up".to_owned()),
        ("magic", "/proc/self/root/etc/passwd".to_owned()),
    ] {
        symlink(target, directory.join(link)).unwrap();
    }
    for name in ["good", "below/file", "good-directory/file", "below/back"] {
        assert_eq!(read_text_beneath(&directory, Path::new(name), 10).unwrap(), "text", "{name}");
    }
    let outside = NoInput::Outside(directory.clone());
    for name in ["up", "absolute", "absolute-back", "through", "directory/file", "chain", "magic", "../secret"] {
        assert_eq!(problem(read_beneath(&directory, Path::new(name), 10)), outside, "{name}");
    }
    assert_eq!(problem(read_beneath(&directory, Path::new("/etc/passwd"), 10)), outside);

    let real = directory.join("below").canonicalize().unwrap();
    assert_eq!(directory_beneath(&directory, Path::new("good-directory")).unwrap(), real);
    assert_eq!(problem(directory_beneath(&directory, Path::new("directory"))), outside);
    assert!(directory_beneath(&directory, Path::new("good")).is_err());

    assert!(open_unlinked(&real.join("file")).is_ok());
    for name in ["good", "good-directory/file"] {
        let error = open_unlinked(&directory.canonicalize().unwrap().join(name)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()), "{name}");
    }
}
