use super::*;

#[test]
fn packages_that_are_not_fully_installed_are_missing() {
    let listing = "tar installed\nzstd config-files\nxz-utils not-installed\nmount installed\n";
    assert_eq!(
        missing_among(&["tar", "xz-utils", "zstd", "unknown", "mount"], listing),
        ["xz-utils", "zstd", "unknown"]
    );
}

#[test]
fn dpkg_is_asked_even_where_it_knows_nothing_of_a_package() {
    if !Path::new("/var/lib/dpkg/status").exists() {
        println!("skipped: dpkg has no database here");
        return;
    }
    match missing_host_packages(&["dpkg", "no-such-package-bpfassay"]) {
        Ok(missing) => assert_eq!(missing, ["no-such-package-bpfassay"]),
        Err(Error::Program { .. }) => println!("skipped: no dpkg-query"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_is_no_package_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let package = directory.path().join("damaged.deb");
    fs::write(&package, "no package").unwrap();
    let error = unpack(&package, directory.path(), &[]).unwrap_err();
    assert!(matches!(error, Error::Command { .. } | Error::Program { .. }), "{error}");
    assert!(error.to_string().contains("damaged.deb") || matches!(error, Error::Program { .. }), "{error}");
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
    let built = Command::new("dpkg-deb").args(["--build", "--root-owner-group"]).arg(&source).arg(&package).output();
    if !built.is_ok_and(|output| output.status.success()) {
        println!("skipped: no dpkg-deb");
        return;
    }
    let root = directory.path().join("root");
    fs::create_dir_all(root.join("usr/lib")).unwrap();
    symlink("usr/lib", root.join("lib")).unwrap();
    unpack(&package, &root, LEFT_OUT).unwrap();
    assert_eq!(fs::read_to_string(root.join("usr/lib/x/file")).unwrap(), "content");
    assert!(root.join("lib").is_symlink());
    assert!(!root.join("usr/share/doc").exists());
}

#[test]
fn the_host_comes_first_among_the_architectures() {
    for &host in Arch::ALL {
        let all = architectures(host);
        assert_eq!(all[0], host);
        assert_eq!(all.len(), Arch::ALL.len());
    }
}
