// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;
use crate::{catalogue::Catalogue, locked_qemu, toolchain};

const PACKAGE: &str = "{ name = \"linux-image-a\", version = \"6.12.1-1\", architecture = \"amd64\", size = 3, \
     sha256 = \"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\", path = \"pool/main/l/linux/a.deb\" }";

fn text() -> String {
    format!(
        "format = 1\n[[kernel]]\nname = \"6.12\"\narchitecture = \"x86_64\"\nsuite = \"trixie\"\nrelease = \"6.12.1+x-amd64\"\n\
         version = \"6.12.1-1\"\npackages = [\n  {PACKAGE},\n]\nheaders = [\n  {PACKAGE},\n]\n[[toolchain]]\narchitecture = \"x86_64\"\nsuite = \"forky\"\n\
         packages = [\n  {PACKAGE},\n]\n[[qemu]]\narchitecture = \"x86_64\"\nsuite = \"bookworm\"\npackages = [\n  {PACKAGE},\n]\n\
         [[guest]]\nsuite = \"sid\"\nname = \"bpftrace\"\narchitecture = \"riscv64\"\npackages = [\n  {PACKAGE},\n]\n"
    )
}

#[test]
fn a_series_and_its_build_have_one_meaning() {
    let lock = TestbedLock::parse("x", &text()).unwrap();
    let kernel = lock.kernel(Arch::X86_64, "6.12").unwrap();
    assert_eq!((kernel.release.as_str(), kernel.packages.len()), ("6.12.1+x-amd64", 1));
    assert_eq!(kernel.headers, kernel.packages);
    assert_eq!(lock.kernel(Arch::X86_64, "6.12.1"), Some(kernel));
    for (arch, name) in [(Arch::X86_64, "6.12.2"), (Arch::X86_64, "6.1"), (Arch::Aarch64, "6.12")] {
        assert_eq!(lock.kernel(arch, name), None, "{arch} {name}");
    }
    assert_eq!(lock.toolchain(Arch::X86_64).unwrap().packages, kernel.packages);
    assert_eq!(lock.qemu(Arch::X86_64).unwrap().packages, kernel.packages);
    assert_eq!((lock.qemu(Arch::Aarch64), lock.qemu(Arch::X86_64).unwrap().suite.as_str()), (None, "bookworm"));
    let of_guests = lock.of_guests(Arch::Riscv64, "sid", "bpftrace").unwrap();
    assert_eq!(lock.closure(Arch::Riscv64, "sid", ["bpftrace"]).unwrap(), of_guests.packages);
    for (arch, suite, names) in [
        (Arch::X86_64, "sid", ["bpftrace"].as_slice()),
        (Arch::Riscv64, "trixie", &["bpftrace"]),
        (Arch::Riscv64, "sid", &["bpftrace", "other"]),
    ] {
        assert_eq!(lock.closure(arch, suite, names.iter().copied()), None);
    }
    assert_eq!(TestbedLock::parse("x", &lock.text()).unwrap(), lock);
}

#[test]
fn what_is_no_lock_is_refused_with_what_is_wrong() {
    let good = text();
    let second = good.split_once("[[kernel]]").unwrap().1.split_once("[[toolchain]]").unwrap();
    let (toolchain, emulator) = second.1.split_once("[[qemu]]").unwrap();
    let (emulator, of_guests) = emulator.split_once("[[guest]]").unwrap();
    for (wrong, problem) in [
        (good.replace("format = 1", "format = 2"), "has format 2, this program reads 1"),
        (good.replace("suite = \"trixie\"", "suit = \"trixie\""), "unknown field `suit`"),
        (good.replace("size = 3,", "size = 3, sze = 3,"), "unknown field `sze`"),
        (good.replace("a.deb\" }", "a.deb\", snapshot = \"2025\" }"), "`2025`: expected the time stamp of a snapshot"),
        (good.replace("size = 3", "size = 0"), "package `linux-image-a`: it has no bytes"),
        (good.replace("2d711642", "zz711642"), "is not a SHA-256 digest"),
        (good.replace("pool/main", "pool/../main"), "`pool/../main/l/linux/a.deb` is no path in an archive's pool"),
        (good.replace("pool/main", "main"), "`main/l/linux/a.deb` is no path"),
        (good.replace("pool/main", "http://m/pool/main"), "is no path"),
        (good.replace("\"linux-image-a\"", "\"-oDir=x\""), "`-oDir=x` is no name of a package"),
        (good.replace("release = \"6.12.1+x-amd64\"", "release = \"../x\""), "`../x` is no kernel release"),
        (good.replace(&format!("  {PACKAGE},\n"), ""), "packages is empty"),
        (good.replace(PACKAGE, &format!("{PACKAGE}, {PACKAGE}")), "package `linux-image-a`: it is there twice"),
        (format!("{good}[[kernel]]{}", second.0), "kernel `6.12` for x86_64 is there twice"),
        (format!("{good}[[toolchain]]{toolchain}"), "the toolchain for x86_64 is there twice"),
        (format!("{good}[[qemu]]{emulator}"), "QEMU for x86_64 is there twice"),
        (format!("{good}[[guest]]{of_guests}"), "package `bpftrace` of `sid` for guests of riscv64 is there twice"),
        (good.replace("\"sid\"", "\"../x\""), "package `bpftrace` of `../x` for guests of riscv64: `../x` is no name"),
        (good.replace("\"bookworm\"", "\"../x\""), "QEMU for x86_64: `../x` is no name"),
    ] {
        assert_ne!(wrong, good);
        let error = TestbedLock::parse("x.lock", &wrong).unwrap_err().to_string();
        assert!(error.starts_with("x.lock: ") && error.contains(problem), "{error}\n{problem}");
    }
}

#[test]
fn the_bundled_lock_has_what_the_study_quick_needs() {
    let (lock, catalogue) = (TestbedLock::bundled().unwrap(), Catalogue::bundled().unwrap());
    assert_eq!(lock.text(), BUNDLED.1, "it is as `bpfassay testbed lock --update` writes it");
    for (arch, kernels) in [
        (Arch::X86_64, ["6.1", "6.12", "7.2"].as_slice()),
        (Arch::Aarch64, &["6.1", "6.12", "7.2"]),
        (Arch::Riscv64, &["6.12", "7.2"]),
    ] {
        for name in kernels {
            assert!(lock.kernel(arch, name).is_some(), "{arch} {name}");
        }
    }
    for kernel in lock.kernels() {
        let selection = catalogue.find(kernel.architecture, &kernel.name).unwrap();
        let is_of = |entry: &&&crate::catalogue::CatalogueEntry| {
            entry.suite == kernel.suite && entry.release.matches(&kernel.release, selection.flavour)
        };
        assert!(selection.entries.iter().find(is_of).is_some(), "{kernel:?} is in no table of the catalogue");
    }
}

#[test]
fn the_bundled_lock_has_every_package_that_builds_ask_for() {
    let lock = TestbedLock::bundled().unwrap();
    for host in toolchain::HOSTS {
        let packages = &lock.toolchain(host).unwrap().packages;
        let has = |name: &str, arch: Arch| {
            packages.iter().any(|located| {
                let of = &located.package.architecture;
                located.package.name == name && (of == arch.facts().debian_name || of == "all")
            })
        };
        for name in toolchain::native() {
            assert!(has(name, host), "{name} for {host}");
        }
        for &arch in Arch::ALL {
            for name in toolchain::FOREIGN {
                assert!(has(name, arch), "{name} of {arch} for {host}");
            }
        }
    }
}

#[test]
fn the_bundled_lock_has_qemu_for_every_host_that_builds_guests() {
    let lock = TestbedLock::bundled().unwrap();
    for host in locked_qemu::HOSTS {
        let locked = lock.qemu(host).unwrap();
        assert_eq!(locked.suite, locked_qemu::SUITE);
        for name in locked_qemu::names() {
            assert!(locked.packages.iter().any(|located| located.package.name == name), "{name} for {host}");
        }
        for Located { package, snapshot, .. } in &locked.packages {
            assert!([host.facts().debian_name, "all"].contains(&package.architecture.as_str()), "{package:?}");
            assert!(snapshot.is_some(), "{package:?} has no time stamp");
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(format = 1\n)?(\\[\\[kernel\\]\\]\n)?(\\PC|\n){0,100}") {
        let _ = TestbedLock::parse("x", &text);
    }

    #[test]
    fn what_was_read_is_written_as_it_was(sizes in prop::collection::vec(1_u64..1 << 62, 1..4), stamped in any::<bool>()) {
        let lines: Vec<_> = sizes.iter().enumerate().map(|(n, size)| {
            let end = if stamped { "a.deb\", snapshot = \"20251101T000000Z\"" } else { "a.deb\"" };
            PACKAGE.replace("size = 3", &format!("size = {size}")).replace("linux-image-a", &format!("linux-image-{n}")).replace("a.deb\"", end)
        }).collect();
        let lock = TestbedLock::parse("x", &text().replace(PACKAGE, &lines.join(", "))).unwrap();
        prop_assert_eq!(TestbedLock::parse("x", &lock.text()).unwrap(), lock);
    }
}
