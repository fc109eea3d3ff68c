// SPDX-License-Identifier: MIT OR Apache-2.0
use std::{fs, os::unix::fs::symlink};

use bpfassay_protocol::job::Nfs;

use super::*;

/// Builds a relocatable ELF file with this `.modinfo` section, or without one.
pub(crate) fn module(modinfo: Option<&[u8]>) -> Vec<u8> {
    elf(modinfo.map(|modinfo| (".modinfo", modinfo)))
}

/// Builds a relocatable ELF file with a section of this name and content, or without one.
pub(crate) fn elf(section: Option<(&str, &[u8])>) -> Vec<u8> {
    let (name, body) = section.unwrap_or_default();
    let names = format!("\0.shstrtab\0{name}\0").into_bytes();
    let names_at = 64 + body.len();
    let sections_at = (names_at + names.len()).next_multiple_of(8);
    let section = |name: u32, kind: u32, offset: usize, size: usize| {
        let mut header = [name.to_le_bytes(), kind.to_le_bytes()].concat();
        for value in [0, 0, offset as u64, size as u64, 0, 1, 0] {
            header.extend(value.to_le_bytes());
        }
        header
    };
    let count: u16 = if name.is_empty() { 2 } else { 3 };
    let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\x3e\0\x01\0\0\0".to_vec();
    bytes.extend([0; 16]);
    bytes.extend((sections_at as u64).to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    for value in [64, 0, 0, 64, count, 1] {
        bytes.extend(value.to_le_bytes());
    }
    assert_eq!(bytes.len(), 64);
    bytes.extend(body);
    bytes.extend(&names);
    bytes.resize(sections_at, 0);
    bytes.extend(section(0, 0, 0, 0));
    bytes.extend(section(1, 3, names_at, names.len()));
    if !name.is_empty() {
        bytes.extend(section(11, 1, 64, body.len()));
    }
    bytes
}

/// Writes a module tree: file names with their `.modinfo` text (`;` for zero bytes), and built-in
/// modules.
fn tree(modules: &[(&str, &str)], builtin: &[&str]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (file, modinfo) in modules {
        let path = directory.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, module(Some(modinfo.replace(';', "\0").as_bytes()))).unwrap();
    }
    fs::write(directory.path().join("modules.builtin"), builtin.join("\n")).unwrap();
    directory
}

/// Reads an installed tree for guests without tools, and keeps the signatures.
fn read(tree: &Path) -> Result<(ModuleSet, Archive), ModulesError> {
    ModuleSet::read(tree, ModuleLayout::Installed, Signatures::Kept, &BTreeSet::new())
}

/// A kernel shaped like Debian's 6.1.
const USUAL: [(&str, &str); 15] = [
    ("kernel/drivers/virtio/virtio.ko", "name=virtio;depends=;"),
    ("kernel/drivers/virtio/virtio_ring.ko", "name=virtio_ring;depends=virtio;"),
    ("kernel/drivers/virtio/virtio_pci.ko", "name=virtio_pci;depends=virtio_ring,virtio,virtio_pci_modern_dev;"),
    ("kernel/drivers/virtio/virtio_pci_modern_dev.ko", "name=virtio_pci_modern_dev;depends=;"),
    ("kernel/drivers/char/virtio_console.ko", "name=virtio_console;depends=virtio_ring,virtio;"),
    ("kernel/net/sunrpc/sunrpc.ko", "name=sunrpc;depends=;"),
    ("kernel/fs/lockd/lockd.ko", "name=lockd;depends=sunrpc,grace;"),
    ("kernel/fs/nfs_common/grace.ko", "name=grace;depends=;"),
    ("kernel/fs/nfs/nfs.ko", "name=nfs;depends=lockd,sunrpc;"),
    ("kernel/fs/nfs/nfsv3.ko", "name=nfsv3;depends=nfs,sunrpc;"),
    ("kernel/fs/nfs/nfsv4.ko", "name=nfsv4;depends=nfs,sunrpc,dns-resolver;softdep=pre: absent keys post: layouts;"),
    ("kernel/fs/nfs/layouts.ko", "name=layouts;depends=nfsv4;"),
    ("kernel/fs/nfsd/nfsd.ko", "name=nfsd;depends=lockd,sunrpc,grace;"),
    ("kernel/net/core/failover.ko", "name=failover;depends=;"),
    ("kernel/drivers/net/virtio_net.ko", "name=virtio_net;depends=failover;"),
];

fn nfs(version: NfsVersion) -> FileSystem {
    FileSystem::Nfs(Nfs { version, localio: None, threads: 8, size_mib: 64, scheduling: None })
}

fn names(order: &[String]) -> Vec<&str> {
    order
        .iter()
        .map(|path| path.strip_prefix("/bpfassay/modules/").and_then(|rest| rest.strip_suffix(".ko")).unwrap())
        .collect()
}

#[test]
fn dependencies_come_first_and_each_module_once() {
    let tree = tree(&USUAL, &["kernel/net/dns_resolver/dns-resolver.ko"]);
    let (set, archive) = read(tree.path()).unwrap();
    let order = set.load_order(&nfs(NfsVersion::V42), false).unwrap();
    assert_eq!(
        names(&order),
        [
            "virtio",
            "virtio_ring",
            "virtio_pci_modern_dev",
            "virtio_pci",
            "virtio_console",
            "sunrpc",
            "grace",
            "lockd",
            "nfsd",
            "nfs",
            "nfsv4",
            "layouts"
        ]
    );
    assert!(order.iter().all(|path| archive.get(path).is_some()));
    assert_eq!(names(&set.load_order(&FileSystem::Tmpfs { size_mib: 1 }, false).unwrap()).len(), 5);
    assert_eq!(names(&set.load_order(&nfs(NfsVersion::V3), false).unwrap()).last(), Some(&"nfsv3"));
    assert_eq!(set.absent, BTreeSet::from(EXTRA.map(str::to_owned)));
    // A guest has a network card only if it is one of several nodes.
    assert_eq!(names(&set.load_order(&nfs(NfsVersion::V42), true).unwrap())[12..], ["failover", "virtio_net"]);
}

/// In Debian's 6.12 a softdep of libcrc32c names a crypto algorithm.
#[test]
fn modules_of_tools_come_last_and_what_a_kernel_lacks_is_left_out() {
    let mut modules = USUAL.to_vec();
    modules.extend([
        ("kernel/fs/xfs/xfs.ko", "name=xfs;depends=libcrc32c;"),
        ("kernel/lib/libcrc32c.ko", "name=libcrc32c;depends=;softdep=pre: crc32c;"),
        ("kernel/crypto/crc32c_generic.ko", "name=crc32c_generic;depends=;"),
    ]);
    let tree = tree(&modules, &["kernel/net/dns_resolver/dns-resolver.ko"]);
    let of_tools = BTreeSet::from(["bcachefs".to_owned(), "xfs".to_owned()]);
    let (set, archive) = ModuleSet::read(tree.path(), ModuleLayout::Installed, Signatures::Kept, &of_tools).unwrap();
    let order = set.load_order(&nfs(NfsVersion::V42), false).unwrap();
    assert_eq!(names(&order)[12..], ["crc32c_generic", "libcrc32c", "xfs"]);
    assert!(order.iter().all(|path| archive.get(path).is_some()));
    assert!(set.absent.contains("bcachefs"));
    let text = serde_json::to_string(&set).unwrap();
    assert_eq!(serde_json::from_str::<ModuleSet>(&text).unwrap(), set);
    let (without, _) = read(tree.path()).unwrap();
    assert_eq!(names(&without.load_order(&nfs(NfsVersion::V42), false).unwrap()).len(), 12);
    assert!(!serde_json::to_string(&without).unwrap().contains("of_tools"));
}

#[test]
fn built_in_modules_are_neither_inserted_nor_missing() {
    let builtin = ["kernel/drivers/virtio/virtio_pci.ko", "kernel/drivers/char/virtio_console.ko"];
    let mut modules = USUAL[5..].to_vec();
    modules.retain(|(file, _)| !file.ends_with("nfsv4.ko") && !file.ends_with("layouts.ko"));
    let tree = tree(&modules, &builtin);
    let (set, _) = read(tree.path()).unwrap();
    assert_eq!(set.builtin, BTreeSet::from(["virtio_pci".into(), "virtio_console".into()]));
    assert!(set.load_order(&FileSystem::Tmpfs { size_mib: 1 }, false).unwrap().is_empty());
    set.load_order(&nfs(NfsVersion::V3), false).unwrap();
    let without_card = ModuleSet { absent: BTreeSet::from([NETWORK.to_owned()]), ..set.clone() };
    let error = without_card.load_order(&nfs(NfsVersion::V3), true).unwrap_err();
    assert!(
        matches!(error, ModulesError::Missing { module, purpose: "the network of several nodes" } if module == "virtio_net")
    );
    match set.load_order(&nfs(NfsVersion::V41), false).unwrap_err() {
        ModulesError::Missing { module, purpose } => {
            assert_eq!((module.as_str(), purpose), ("nfsv4", "an NFSv4 mount"))
        }
        error => panic!("{error}"),
    }
}

#[test]
fn a_missing_dependency_names_both_sides() {
    let tree = tree(&USUAL, &[]);
    match read(tree.path()).unwrap_err() {
        ModulesError::MissingDependency { module, dependency } => {
            assert_eq!((module.as_str(), dependency.as_str()), ("nfsv4", "dns_resolver"));
        }
        error => panic!("{error}"),
    }
}

#[test]
fn circles_and_endless_chains_are_errors() {
    let circle = tree(&[("kernel/nfsd.ko", "depends=a;"), ("kernel/a.ko", "depends=nfsd;")], &[]);
    assert!(matches!(read(circle.path()), Err(ModulesError::Circle { .. })));
    let chain: Vec<(String, String)> = (0..100)
        .map(|n| {
            (if n == 0 { "kernel/nfsd.ko".into() } else { format!("kernel/m{n}.ko") }, format!("depends=m{};", n + 1))
        })
        .collect();
    let chain: Vec<(&str, &str)> = chain.iter().map(|(file, info)| (file.as_str(), info.as_str())).collect();
    assert!(matches!(read(tree(&chain, &[]).path()), Err(ModulesError::Circle { .. })));
    let soft = tree(&[("kernel/nfsd.ko", "softdep=pre: a;"), ("kernel/a.ko", "softdep=pre: nfsd;")], &[]);
    let (set, _) = read(soft.path()).unwrap();
    assert_eq!(names(&set.load_order_of(&["nfsd"])), ["a", "nfsd"]);
}

#[test]
fn who_is_wanted_before_a_module_that_it_needs_follows_it() {
    // A kernel whose cryptography is all modules (crypto/algapi.c).
    let modules = [
        ("kernel/nfsd.ko", "depends=sha256;"),
        ("kernel/sha256.ko", "depends=crypto_algapi;"),
        ("kernel/crypto_algapi.ko", "softdep=pre: cryptomgr;"),
        ("kernel/cryptomgr.ko", "depends=crypto_algapi,kpp;"),
        ("kernel/kpp.ko", "depends=crypto_algapi;"),
    ];
    let directory = tree(&modules, &[]);
    let (set, _) = read(directory.path()).unwrap();
    assert_eq!(names(&set.load_order_of(&["nfsd"])), ["crypto_algapi", "kpp", "cryptomgr", "sha256", "nfsd"]);
    // The dependency is indirect: `c` follows `a`, which it needs, not `b`, which wants it.
    let modules = [
        ("kernel/nfsd.ko", "depends=a;"),
        ("kernel/a.ko", "depends=b;"),
        ("kernel/b.ko", "softdep=pre: c;"),
        ("kernel/c.ko", "depends=a;"),
    ];
    let directory = tree(&modules, &[]);
    let (set, _) = read(directory.path()).unwrap();
    assert_eq!(names(&set.load_order_of(&["nfsd"])), ["b", "a", "c", "nfsd"]);
}

#[test]
fn updates_win_and_links_are_not_followed() {
    let directory = tree(
        &[("kernel/nfsd.ko", "depends=;"), ("updates/dkms/nfsd.ko", "depends=sunrpc;"), ("kernel/sunrpc.ko", "")],
        &[],
    );
    symlink("/", directory.path().join("kernel/build")).unwrap();
    let (set, _) = read(directory.path()).unwrap();
    assert_eq!(names(&set.load_order_of(&["nfsd"])), ["sunrpc", "nfsd"]);
}

/// A kernel whose modules are compressed with bzip2 also has them.
#[test]
fn a_module_in_a_form_that_is_not_read_is_named() {
    let refused = |replace: &dyn Fn(&Path)| {
        let tree = tree(&[("kernel/fs/nfsd.ko", "")], &[]);
        let file = tree.path().join("kernel/fs/nfsd.ko");
        fs::remove_file(&file).unwrap();
        replace(&file);
        let read = read(tree.path());
        read.map(drop).unwrap_err().to_string()
    };
    let bzip2 = refused(&|file| fs::write(file.with_extension("ko.bz2"), "x").unwrap());
    assert!(bzip2.contains("nfsd.ko.bz2: files that end in .bz2 are not read; unpack it"), "{bzip2}");
    let link = refused(&|file| symlink("/nowhere/nfsd.ko", file).unwrap());
    assert!(link.contains("nfsd.ko: it is a symbolic link"), "{link}");
    let pipe = refused(&|file| drop(std::os::unix::net::UnixListener::bind(file).unwrap()));
    assert!(pipe.contains("nfsd.ko: it is no regular file"), "{pipe}");
    // A form that cannot be read does not matter for a module that no guest needs.
    let tree = tree(&[("kernel/fs/nfsd.ko", "")], &[]);
    fs::write(tree.path().join("kernel/fs/other.ko.bz2"), "x").unwrap();
    read(tree.path()).unwrap();
}

#[test]
fn trees_that_are_none_are_refused_with_what_is_missing() {
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(read(empty.path()), Err(ModulesError::Read { .. })));
    fs::create_dir(empty.path().join("kernel")).unwrap();
    assert!(matches!(read(empty.path()), Err(ModulesError::NoBuiltin { .. })));
    fs::write(empty.path().join("modules.builtin"), "").unwrap();
    read(empty.path()).unwrap();
    fs::write(empty.path().join("kernel/nfsd.ko"), "no ELF").unwrap();
    assert!(matches!(read(empty.path()), Err(ModulesError::ModInfo { .. })));
    fs::rename(empty.path().join("kernel/nfsd.ko"), empty.path().join("kernel/nfsd.ko.xz")).unwrap();
    fs::write(empty.path().join("kernel/nfsd.ko.xz"), b"\xfd7zXZ\0damaged").unwrap();
    assert!(matches!(read(empty.path()), Err(ModulesError::Decompress { .. })));
}

#[test]
fn a_set_survives_the_cache() {
    let (set, _) = read(tree(&USUAL, &["x/dns-resolver.ko"]).path()).unwrap();
    let text = serde_json::to_string(&set).unwrap();
    assert_eq!(serde_json::from_str::<ModuleSet>(&text).unwrap(), set);
}

#[test]
fn signatures_are_cut_off_or_kept_as_asked() {
    let tree = tree(&[("kernel/nfsd.ko", "depends=;")], &[]);
    let file = tree.path().join("kernel/nfsd.ko");
    let module = fs::read(&file).unwrap();
    let signed = signature::tests::signed(&module, 395);
    fs::write(&file, &signed).unwrap();
    for (signatures, expected) in [(Signatures::Cut, &module), (Signatures::Kept, &signed)] {
        let (set, archive) =
            ModuleSet::read(tree.path(), ModuleLayout::Installed, signatures, &BTreeSet::new()).unwrap();
        assert_eq!(set.signatures, signatures);
        let file = NewcNode::File { executable: false, content: expected.clone().into() };
        assert_eq!(archive.get("/bpfassay/modules/nfsd.ko"), Some(&file));
    }
}

#[test]
fn enum_values_are_hidden_where_signatures_are_cut() {
    let tree = tree(&[], &[]);
    let file = tree.path().join("kernel/nfsd.ko");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    // The module has no `.modinfo`, and so no dependencies.
    let module = elf(Some(("_ftrace_eval_map", b"table")));
    let mut hidden = module.clone();
    enum_values::hide(&mut hidden);
    assert_ne!(hidden, module);
    fs::write(&file, &module).unwrap();
    for (signatures, expected) in [(Signatures::Cut, &hidden), (Signatures::Kept, &module)] {
        let read = Installed::find(tree.path()).unwrap();
        assert_eq!(content(&read.files["nfsd"], signatures).unwrap(), *expected);
    }
}

#[test]
fn a_set_without_a_record_of_signatures_has_kept_them() {
    let set: ModuleSet =
        serde_json::from_str(r#"{"modules": {}, "builtin": [], "absent": [], "monolithic": false}"#).unwrap();
    assert_eq!(set.signatures, Signatures::Kept);
}
