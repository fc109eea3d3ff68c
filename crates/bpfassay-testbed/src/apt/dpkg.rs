// SPDX-License-Identifier: MIT OR Apache-2.0
//! Package files unpacked, and which packages this host has installed.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use super::{cannot_start, mirror::is_full, tail};
use crate::{
    Error, Result,
    cache::free_space,
    unpack::{self, GROWTH},
};

/// Unpacks the files of a Debian package, a part of `what`, into `directory`, owned by the user that runs this, without `left_out` (paths that
/// begin with `./`). Nothing in the package is run. The host's dpkg and tar do it where it has both, which is faster, and this program itself elsewhere:
/// the same files come out.
///
/// # Errors
/// [`Error::Command`] and [`Error::Package`] for what is no package, [`Error::DiskFull`] where the disk fills up, [`Error::Io`] where the programs' output cannot be
/// read, or the files cannot be written.
pub fn unpack(package: &Path, directory: &Path, left_out: &[&str], what: &str) -> Result<()> {
    match unpack_by_dpkg(package, directory, left_out, what) {
        Err(Error::Program { .. }) => unpack::unpack(package, directory, left_out, what).map(drop),
        unpacked => unpacked,
    }
}

fn unpack_by_dpkg(package: &Path, directory: &Path, left_out: &[&str], what: &str) -> Result<()> {
    let mut reader = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| cannot_start("dpkg-deb", source))?;
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--directory").arg(directory);
    tar.args(["--no-same-owner", "--no-same-permissions", "--keep-directory-symlink", "--delay-directory-restore"]);
    tar.args(left_out.iter().map(|path| format!("--exclude={path}")));
    if let Some(stream) = reader.stdout.take() {
        tar.stdin(stream);
    }
    let unpacked = tar.env("LC_ALL", "C.UTF-8").output().map_err(|source| cannot_start("tar", source));
    // `tar` has ended, and with it the pipe: the reader ends by itself, with or without an error.
    let read = reader.wait_with_output().map_err(Error::io("read", package))?;
    let unpacked = unpacked?;
    for (command, output) in [("tar", &unpacked), ("dpkg-deb", &read)] {
        if output.status.success() {
            continue;
        }
        if is_full(&String::from_utf8_lossy(&output.stderr)) {
            let size = package.metadata().map_or(0, |metadata| metadata.len());
            let (path, free) = (directory.to_owned(), free_space(directory)?);
            return Err(Error::DiskFull { what: what.to_owned(), path, needed: size.saturating_mul(GROWTH), free });
        }
        return Err(Error::Command {
            command: format!("{command} ({})", package.display()),
            purpose: format!("unpacking {what}"),
            status: output.status,
            stderr: tail(&output.stderr),
        });
    }
    Ok(())
}

/// Those of `packages` (Debian package names) that are not installed on this host, in the order given.
///
/// # Errors
/// [`Error::Program`] where there is no `dpkg-query`: this is no Debian then.
pub fn missing_host_packages(packages: &[&str]) -> Result<Vec<String>> {
    let output = Command::new("dpkg-query")
        .args(["--show", "--showformat=${Package} ${db:Status-Status}\n", "--"])
        .args(packages)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .map_err(|source| cannot_start("dpkg-query", source))?;
    // It fails as soon as one package is unknown, and lists the others all the same.
    Ok(missing_among(packages, &String::from_utf8_lossy(&output.stdout)))
}

pub(crate) fn missing_among(packages: &[&str], listing: &str) -> Vec<String> {
    let installed: Vec<&str> = listing.lines().filter_map(|line| line.strip_suffix(" installed")).collect();
    packages.iter().filter(|name| !installed.contains(name)).map(|&name| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::test_support::lacks;

    #[test]
    fn packages_that_are_not_fully_installed_are_missing() {
        let listing = "tar installed\nzstd config-files\nxz-utils not-installed\nmount installed\n";
        assert_eq!(
            missing_among(&["tar", "xz-utils", "zstd", "unknown", "mount"], listing),
            ["xz-utils", "zstd", "unknown"]
        );
    }

    #[test]
    fn dpkg_is_asked_even_where_it_has_no_entry_of_a_package() {
        if lacks("dpkg-query", "dpkg") || !Path::new("/var/lib/dpkg/status").exists() {
            println!("skipped: dpkg has no database here");
            return;
        }
        match missing_host_packages(&["dpkg", "no-such-package-bpfassay"]) {
            Ok(missing) => assert_eq!(missing, ["no-such-package-bpfassay"]),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn what_is_no_package_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let package = directory.path().join("damaged.deb");
        fs::write(&package, "no package").unwrap();
        let error = unpack(&package, directory.path(), &[], "x").unwrap_err();
        assert!(matches!(error, Error::Command { .. } | Error::Package(_)), "{error}");
        assert!(error.to_string().contains("damaged.deb"), "{error}");
    }

    #[test]
    fn packages_are_unpacked_by_whoever_runs_this() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        fs::create_dir_all(source.join("DEBIAN")).unwrap();
        fs::create_dir_all(source.join("lib/x")).unwrap();
        fs::create_dir_all(source.join("usr/share/doc/x")).unwrap();
        fs::write(source.join("lib/x/file"), "content").unwrap();
        fs::write(source.join("usr/share/doc/x/copyright"), "").unwrap();
        fs::write(
            source.join("DEBIAN/control"),
            "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n",
        )
        .unwrap();
        let package = directory.path().join("x.deb");
        let built =
            Command::new("dpkg-deb").args(["--build", "--root-owner-group"]).arg(&source).arg(&package).output();
        if lacks("dpkg-deb", "dpkg") {
            return;
        }
        let built = built.unwrap();
        assert!(built.status.success(), "{built:?}");
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        std::os::unix::fs::symlink("usr/lib", root.join("lib")).unwrap();
        unpack(&package, &root, &["./usr/share/doc"], "x").unwrap();
        assert_eq!(fs::read_to_string(root.join("usr/lib/x/file")).unwrap(), "content");
        assert!(root.join("lib").is_symlink());
        assert!(!root.join("usr/share/doc").exists());
    }
}
