// SPDX-License-Identifier: MIT OR Apache-2.0
use bpfassay_packages::digest::Digest;
use bpfassay_results::file;
use bpfassay_study::{Available, Narrowing};

use super::*;

/// The results of the study `quick` in this repository.
fn like() -> Like {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/quick");
    Like::new(&path, &file::read(&path).unwrap()).unwrap()
}

fn plan(kernel: Option<&str>) -> Plan {
    let mut study = bpfassay_study::load("quick").unwrap();
    if let Some(kernel) = kernel {
        for target in &mut study.targets {
            kernel.clone_into(&mut target.kernel);
        }
    }
    bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap()
}

#[test]
fn kernels_are_made_of_the_packages_that_results_have_whatever_the_lock_has() {
    let like = like();
    let bundled = Catalogue::bundled().unwrap();
    let mut others = bundled.lock().kernels().to_vec();
    for kernel in &mut others {
        for located in &mut kernel.packages {
            located.package.sha256 = Digest::of(b"another build");
        }
    }
    let other = bundled.clone().with_lock(bundled.lock().with_kernels(others));
    for (lock, is_located) in [(bundled, true), (other, false)] {
        let catalogue = like.catalogue(lock);
        for target in &like.manifest.targets {
            let locked = catalogue.lock().kernel(target.arch, &target.name).unwrap();
            let packages: Vec<_> = locked.packages.iter().map(|located| located.package.clone()).collect();
            assert_eq!(packages, target.kernel.packages);
            assert!(locked.packages.iter().all(|located| located.path.is_empty() != is_located), "{locked:?}");
        }
    }
}

#[test]
fn what_results_do_not_have_is_refused_by_name() {
    let like = like();
    let problem = |error: Error| match error {
        Error::Unlike { problem, .. } => problem,
        other => panic!("{other}"),
    };
    let refused = problem(like.guests(&plan(Some("6.17"))).unwrap_err());
    assert!(refused.starts_with("they have no guest for ") && refused.contains("6.17, only x86_64 6."), "{refused}");

    let plan = plan(None);
    let made = |change: &dyn Fn(&mut Target)| {
        let mut made = like.manifest.clone();
        made.targets.iter_mut().for_each(change);
        like.check_guests(&made, &plan)
    };
    made(&|_| ()).unwrap();
    // Tools under test are not a part of the testbed.
    made(&|target| {
        let mut segment = target.initramfs[0].clone();
        role::TOOLS.clone_into(&mut segment.role);
        segment.archive.sha256 = Digest::of(b"a tool");
        target.initramfs.push(segment);
    })
    .unwrap();
    let other = Digest::of(b"another");
    for (change, named) in [
        (&(|target: &mut Target| target.kernel.image.sha256 = other) as &dyn Fn(&mut Target), "the kernel (6."),
        (&|target| target.kernel.modules = Some(other), "the set of kernel modules for "),
        (&|target| target.initramfs[0].archive.sha256 = other, "the part `"),
        (&|target| target.initramfs.clear(), "the part `"),
    ] {
        let problem = problem(made(change).unwrap_err());
        assert!(problem.starts_with(named) && problem.ends_with(" is another one now"), "{problem}");
    }

    let mut now = like.recorded.clone();
    like.check_qemu(&now).unwrap();
    let facts = now.qemu.get_mut(&Arch::X86_64).unwrap();
    (facts.program.version, facts.program.sha256) = ("9.9".to_owned(), Some(other.to_string()));
    let problem = problem(like.check_qemu(&now).unwrap_err());
    assert!(problem.starts_with("QEMU for x86_64 was ") && problem.contains(", and is 9.9 (SHA-256 "), "{problem}");
}

#[test]
fn guests_that_are_gone_are_made_again_only_from_packages() {
    let mut like = like();
    let gone = Path::new("/nonexistent/image");
    for target in &mut like.manifest.targets {
        gone.clone_into(&mut target.kernel.image.path);
    }
    assert_eq!(like.guests(&plan(None)).unwrap(), None);
    "nix".clone_into(&mut like.manifest.provider.name);
    let error = like.guests(&plan(None)).unwrap_err().to_string();
    assert!(
        error.contains("which the provider `nix` made, are gone (") && error.contains("/nonexistent/image"),
        "{error}"
    );
}
