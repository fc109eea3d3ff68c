// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans as the command prints them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use crate::common::exits;

#[test]
fn plan_lists_every_cell_of_quick() {
    let printed = exits(&["plan"], 0);
    // 8 targets, 3 probe configurations.
    assert!(printed.starts_with("study quick: 24 cells, 8 boots, "), "{printed}");
    for cell in ["x86_64_6.1_quick_nfs4.2_none", "aarch64_7.2_quick_nfs4.2_fexit", "riscv64_6.12_quick_nfs4.2_kprobe"] {
        assert!(printed.contains(cell), "{printed}");
    }
}

#[test]
fn plan_is_the_same_every_time_and_narrows() {
    let all = exits(&["plan", "quick", "--json"], 0);
    assert_eq!(all, exits(&["plan", "quick", "--json"], 0));
    let some = exits(&["plan", "quick", "--arch", "riscv64", "--kernel", "6.12", "--probe", "fexit"], 0);
    assert!(some.starts_with("study quick: 2 cells, 1 boot, "), "{some}");
}

/// Every kernel of `bpfassay list kernels` can follow --kernel, even if the study has other
/// kernels.
#[test]
fn any_kernel_of_the_catalogue_takes_the_place_of_a_studys_kernels() {
    for (kernel, boots) in [("6.16", "2 boots"), ("6.12.107", "3 boots"), ("6.12,7.3", "5 boots")] {
        let all = exits(&["plan", "quick", "--kernel", kernel], 0);
        assert!(all.contains(boots), "{kernel}: {all}");
        let last = kernel.rsplit(',').next().unwrap();
        assert!(all.contains(&format!("x86_64_{last}_quick_nfs4.2_fexit")), "{kernel}: {all}");
    }
    // riscv64 has no 6.16.
    let refused = exits(&["plan", "quick", "--kernel", "6.16", "--arch", "riscv64"], 2);
    assert!(refused.contains("has no kernel `6.16`") && refused.contains("bpfassay list kernels"), "{refused}");
}

#[test]
fn ceems_ior_leaves_out_mpi_io_with_its_reason() {
    let printed = exits(&["plan", "ceems-ior"], 0);
    assert!(printed.contains("left out:"), "{printed}");
    assert!(printed.contains("MPIIO"), "{printed}");
}

/// Creates a tree for `--ior` with `program` at `bin/ior`. It is a link like those of package
/// managers: absolute, and valid in the guest only.
fn ior_tree(program: &[u8]) -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    for directory in ["bin", "opt/ior/bin"] {
        fs::create_dir_all(tree.path().join(directory)).unwrap();
    }
    let file = tree.path().join("opt/ior/bin/ior");
    fs::write(&file, program).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    symlink("/opt/ior/bin/ior", tree.path().join("bin/ior")).unwrap();
    tree
}

#[test]
fn a_real_ior_brings_its_interfaces_and_only_these() {
    // The beginning of an ELF program for x86_64, and strings.
    let mut program = b"\x7fELF\x02\x01\x01".to_vec();
    program.resize(64, 0);
    program[18] = 62;
    program.extend(b"\0POSIX\0MPIIO\0not MMAP\0");
    let tree = ior_tree(&program);
    let given = format!("x86_64={}", tree.path().display());
    let printed = exits(&["plan", "ceems-ior", "--kernel", "6.12", "--ior", &given], 0);
    assert!(printed.contains("x86_64_6.12_ceems-ior-mpiio-t16MiB"), "{printed}");
    assert!(!printed.contains("aarch64_6.12_ceems-ior-mpiio"), "{printed}");
    assert!(
        printed.contains("ceems-ior-mpiio-t16MiB on aarch64, riscv64: the embedded engine does not have"),
        "{printed}"
    );
}

#[test]
fn several_ranks_of_a_real_ior_need_what_launches_them() {
    let mut program = b"\x7fELF\x02\x01\x01".to_vec();
    program.resize(64, 0);
    program[18] = 62;
    program.extend(b"\0POSIX\0");
    let tree = ior_tree(&program);
    let given = format!("x86_64={}", tree.path().display());
    let study = |ranks: u32| {
        let text = fs::read_to_string(crate::common::study("smoke.toml")).unwrap();
        let text = text.replace("name = \"small\"", &format!("name = \"small\"\nranks = {ranks}"));
        fs::write(tree.path().join("mine.toml"), text).unwrap();
        tree.path().join("mine.toml").display().to_string()
    };
    exits(&["plan", &study(1), "--arch", "x86_64", "--ior", &given], 0);
    let printed = exits(&["plan", &study(2), "--arch", "x86_64", "--ior", &given], 2);
    assert!(printed.contains("runs 2 MPI ranks of a real IOR on x86_64"), "{printed}");
    assert!(printed.contains("has no `mpiexec`") && printed.contains("put mpiexec"), "{printed}");
    // The embedded engine starts its ranks itself.
    exits(&["plan", &study(2), "--arch", "aarch64", "--ior", &given], 0);
    fs::write(tree.path().join("opt/ior/bin/mpiexec"), "#!/bin/sh\n").unwrap();
    exits(&["plan", &study(2), "--arch", "x86_64", "--ior", &given], 0);
}

#[test]
fn an_ior_without_interfaces_is_refused_and_not_replaced() {
    let tree = ior_tree(b"#!/bin/sh\nexec /opt/ior/libexec/ior \"$@\"\n");
    let printed = exits(&["plan", "quick", "--ior", &format!("x86_64={}", tree.path().display())], 2);
    assert!(printed.contains("names none of IOR's interfaces"), "{printed}");
    assert!(printed.contains("program itself"), "{printed}");
}

#[test]
fn a_shard_of_a_plan_has_its_boots_only() {
    let whole = exits(&["plan", "quick"], 0);
    let shards: Vec<String> =
        ["1/3", "2/3", "3/3"].iter().map(|shard| exits(&["plan", "quick", "--shard", shard], 0)).collect();
    let first = |text: &str| text.lines().next().unwrap().to_owned();
    let boots = |text: &str| {
        let after = text.split_once("boots and their runs").unwrap().1;
        after.lines().filter(|line| line.starts_with("  ")).map(str::to_owned).collect::<Vec<_>>()
    };
    for shard in &shards {
        // The plan is the same, with the same digest.
        assert_eq!(first(shard), first(&whole));
    }
    assert!(shards[0].contains("shard 1 of 3: 9 cells, 3 boots, "), "{}", shards[0]);
    let mut all: Vec<String> = shards.iter().flat_map(|shard| boots(shard)).collect();
    let mut planned = boots(&whole);
    all.sort();
    planned.sort();
    assert_eq!((all.len(), &all), (8, &planned));
    for (wrong, message) in
        [("0/3", "K from 1 to N"), ("4/3", "K from 1 to N"), ("3", "K from 1 to N"), ("1/9", "8 at most")]
    {
        let printed = exits(&["plan", "quick", "--shard", wrong], 2);
        assert!(printed.contains(message), "{printed}");
    }
}
