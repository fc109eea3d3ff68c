// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;

fn bundled() -> Catalogue {
    Catalogue::bundled().unwrap()
}

#[test]
fn the_bundled_catalogue_has_the_kernels_of_the_studies() {
    let catalogue = bundled();
    assert_eq!(catalogue.names(Arch::X86_64), ["5.10", "6.1", "6.12", "6.16", "6.17", "6.18", "7.2", "7.3", "7.3-rc"]);
    assert_eq!(catalogue.names(Arch::Aarch64), catalogue.names(Arch::X86_64));
    assert_eq!(catalogue.names(Arch::Riscv64), ["6.12", "7.2"]);
}

#[test]
fn a_series_and_a_build_are_distinguished() {
    let catalogue = bundled();
    let series = catalogue.find(Arch::X86_64, "6.12").unwrap();
    assert_eq!(series.version, None);
    assert_eq!(series.flavour, "amd64");
    assert_eq!(series.entries.iter().map(|e| e.suite.as_str()).collect::<Vec<_>>(), ["trixie", "bookworm-backports"]);
    let build = catalogue.find(Arch::Riscv64, "6.12.94").unwrap();
    assert_eq!(build.version.as_deref(), Some("6.12.94"));
    assert_eq!(build.entries.len(), 1);
    assert_eq!(catalogue.find(Arch::X86_64, "7.3-rc").unwrap().version, None);
    let candidate = catalogue.find(Arch::X86_64, "7.3-rc7").unwrap();
    assert_eq!(candidate.version.as_deref(), Some("7.3-rc7"));
    assert_eq!(candidate.entries.iter().map(|e| e.suite.as_str()).collect::<Vec<_>>(), ["experimental"]);
    for wrong in ["7.3-rcx", "7-rc7", "7.3.1-rc7", "6.12-rc1"] {
        assert!(catalogue.find(Arch::X86_64, wrong).is_err(), "{wrong}");
    }
}

#[test]
fn an_unknown_kernel_names_the_nearest_and_all() {
    let error = bundled().find(Arch::Riscv64, "6.21").unwrap_err();
    assert_eq!(error.to_string(), "unknown kernel `6.21` for riscv64, did you mean `6.12`?; known are 6.12, 7.2");
    let error = bundled().find(Arch::Riscv64, "5.10").unwrap_err();
    assert_eq!(error.to_string(), "unknown kernel `5.10` for riscv64; known are 6.12, 7.2");
    let error = bundled().find(Arch::Aarch64, "6.19").unwrap_err().to_string();
    assert!(error.contains("did you mean `6.18`?; known are 5.10, 6.1, 6.12, 6.16,"), "{error}");
    assert!(bundled().find(Arch::X86_64, "").is_err());
    assert!(bundled().find(Arch::X86_64, "6.12.x").is_err());
    assert!(bundled().find(Arch::X86_64, "6.12.1.2").is_err());
    assert!(bundled().find(Arch::X86_64, "9.9.9").is_err());
}

#[test]
fn names_of_nixpkgs_are_known_and_distinguished() {
    let catalogue = bundled();
    assert_eq!(catalogue.nixpkgs("6.12"), Some("linux_6_12"));
    assert_eq!(catalogue.nixpkgs("6.16"), None);
    let error = catalogue.find(Arch::Riscv64, "6.6").unwrap_err().to_string();
    assert!(error.contains("`6.6` for riscv64 among Debian's packages; the flake makes it from linux_6_6"), "{error}");
    // A kernel that Debian has for another architecture gets no hint at Nix.
    assert!(!catalogue.find(Arch::Riscv64, "5.10").unwrap_err().to_string().contains("nixpkgs"));
    for (line, problem) in [
        ("\"6.1\" = \"linuxPackages_6_1\"", "nixpkgs `6.1`: `linuxPackages_6_1` is no attribute"),
        ("\"6 1\" = \"linux_6_1\"", "nixpkgs `6 1`: a name has"),
        ("\"6.1\" = \"linux_\"", "no attribute"),
        ("\"6.1\" = 6", "expected a string"),
    ] {
        let text = with("").replace("[[kernel]]", &format!("[nixpkgs]\n{line}\n[[kernel]]"));
        let error = Catalogue::parse("x.toml", &text).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

fn with(line: &str) -> String {
    format!(
        "format = 1\n[flavours]\nx86_64 = \"amd64\"\n[[kernel]]\nname = \"6.1\"\nsuite = \"bookworm\"\n\
         release = \"6.1.0-*-@\"\npackages = [\"linux-image-@\"]\narchitectures = [\"x86_64\"]\n{line}\n"
    )
}

#[test]
fn unknown_keys_are_refused_with_their_line() {
    assert!(Catalogue::parse("x.toml", &with("")).is_ok());
    let error = Catalogue::parse("x.toml", &with("suit = \"sid\"")).unwrap_err().to_string();
    assert!(
        error.starts_with("x.toml: ") && error.contains("line 10") && error.contains("unknown field `suit`"),
        "{error}"
    );
}

#[test]
fn bad_values_are_refused_with_the_kernel_they_belong_to() {
    let good = with("");
    for (from, to, problem) in [
        ("linux-image-@", "linux-image", "one `@`"),
        ("linux-image-@", "-o Dir=/@", "one `@`"),
        ("6.1.0-*-@", "6.1.0-*", "must end in `-@`"),
        ("[\"x86_64\"]", "[\"x86\"]", "x86_64"),
        ("[\"x86_64\"]", "[\"riscv64\"]", "no flavour is given for riscv64"),
        ("[\"x86_64\"]", "[]", "architectures is empty"),
        ("\"bookworm\"", "\"book worm\"", "no name of a suite"),
        ("format = 1", "format = 2", "this program reads 1"),
        ("name = \"6.1\"\n", "", "name"),
    ] {
        let text = good.replace(from, to);
        assert_ne!(text, good, "{from}");
        let error = Catalogue::parse("x.toml", &text).unwrap_err().to_string();
        assert!(error.starts_with("x.toml: ") && error.contains(problem), "{error}");
    }
}

#[test]
fn a_users_catalogue_comes_beside_ours_and_changes_nothing_of_it() {
    let ours = Catalogue::bundled().unwrap();
    let text = "format = 1\n[[kernel]]\nname = \"6.12-cloud\"\nsuite = \"trixie\"\nrelease = \"6.12.*+deb13-cloud-@\"\n\
                packages = [\"linux-image-@\"]\narchitectures = [\"x86_64\"]\n";
    let both = ours.clone().with("mine.toml", text).unwrap();
    assert_eq!(both.find(Arch::X86_64, "6.12-cloud").unwrap().entries[0].suite, "trixie");
    assert_eq!(both.names(Arch::X86_64).len(), ours.names(Arch::X86_64).len() + 1);
    assert_eq!(both.find(Arch::X86_64, "6.12").unwrap(), ours.find(Arch::X86_64, "6.12").unwrap());
    assert_eq!((both.names(Arch::Aarch64), both.lock()), (ours.names(Arch::Aarch64), ours.lock()));
    for (wrong, problem) in [
        (text.replace("6.12-cloud\"", "6.12\""), "kernel `6.12` for x86_64 is in kernels/debian.toml already"),
        // This name would hide a build of the bundled series.
        (text.replace("6.12-cloud\"", "6.12.94\""), "kernel `6.12.94` for x86_64 is in kernels/debian.toml already"),
        (text.replace("suite =", "suit ="), "unknown field `suit`"),
        (text.replace("format = 1", "format = 2"), "has format 2, this program reads 1"),
        (
            text.replace("[[kernel]]", "[flavours]\nx86_64 = \"cloud\"\n[[kernel]]"),
            "the flavour of x86_64 is `amd64` in",
        ),
        (
            text.replace("[[kernel]]", "[nixpkgs]\n\"6.5\" = \"linux_6_5\"\n[[kernel]]"),
            "nixpkgs `6.5`: the flake reads only",
        ),
    ] {
        let error = ours.clone().with("mine.toml", &wrong).unwrap_err().to_string();
        assert!(error.starts_with("mine.toml: ") && error.contains(problem), "{error}\n{problem}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(format = 1\n)?(\\[\\[kernel\\]\\]\n)?(\\PC|\n){0,100}") {
        let _ = Catalogue::parse("x.toml", &text);
    }

    #[test]
    fn any_name_is_found_or_refused(name in "([5-7]\\.[0-9]{1,2}(\\.[0-9]{1,3})?|\\PC{0,20})") {
        let catalogue = bundled();
        match catalogue.find(Arch::Aarch64, &name) {
            Ok(selection) => prop_assert!(name.starts_with(&selection.entries[0].name)),
            Err(error) => prop_assert!(error.to_string().contains("known are 5.10, 6.1,"), "{}", error),
        }
    }
}
