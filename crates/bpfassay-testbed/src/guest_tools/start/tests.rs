// SPDX-License-Identifier: MIT OR Apache-2.0

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use bpfassay_protocol::Arch;
use bpfassay_tool::{LoadedFile, elf};

use crate::guest_tools::{self, Besides};

const X86_64: u16 = 62;
const AARCH64: u16 = 183;
const BPF: u16 = 247;

/// An empty ELF file for `machine`.
fn empty(machine: u16) -> Vec<u8> {
    linked(machine, None, &[], None)
}

/// A program or library for `machine` with the tables that the dynamic linker reads.
fn linked(machine: u16, linker: Option<&str>, needed: &[&str], name: Option<&str>) -> Vec<u8> {
    const HEADERS: u64 = 64 + 3 * 56;
    let mut strings = vec![0_u8];
    let mut string = |text: &str| {
        let at = strings.len() as u64;
        strings.extend(text.bytes().chain([0]));
        at
    };
    let mut entries: Vec<(u64, u64)> = needed.iter().map(|name| (1, string(name))).collect();
    entries.extend(name.map(|name| (14, string(name))));
    let interpreter = linker.map(|path| (string(path), path.len() as u64 + 1));
    let (strings_at, size) = (HEADERS, strings.len() as u64);
    let entries_at = (strings_at + size).next_multiple_of(8);
    entries.extend([(5, strings_at), (10, size), (0, 0)]);
    let all = entries_at + entries.len() as u64 * 16;

    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(16, 0);
    bytes.extend([3_u16, machine].map(u16::to_le_bytes).concat());
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend([0_u64, 64, 0].map(u64::to_le_bytes).concat());
    bytes.extend([0_u8; 4]);
    bytes.extend([64_u16, 56, 3, 64, 0, 0].map(u16::to_le_bytes).concat());
    let (at, length) = interpreter.unwrap_or_default();
    // PT_LOAD of everything, PT_DYNAMIC, and PT_INTERP or PT_NULL.
    let kind = if interpreter.is_some() { 3 } else { 0 };
    for (kind, at, length) in [(1_u32, 0, all), (2, entries_at, all - entries_at), (kind, strings_at + at, length)] {
        bytes.extend([kind, 4].map(u32::to_le_bytes).concat());
        bytes.extend([at, at, at, length, length, 1].map(u64::to_le_bytes).concat());
    }
    bytes.extend(strings);
    bytes.resize(entries_at as usize, 0);
    bytes.extend(entries.iter().flat_map(|(tag, value)| [*tag, *value]).flat_map(u64::to_le_bytes));
    bytes
}

fn put(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns the error for a tool from `source` for `arch`, or an empty text.
fn checked(folder: &Path, source: &str, besides: Besides, arch: Arch) -> String {
    let text = format!("schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\n{source}\n");
    let file = bpfassay_tool::ToolFile::parse("t.toml", &text).unwrap();
    let loaded = LoadedFile { file, folder: Some(folder.to_owned()) };
    guest_tools::check(arch, &[loaded.supply()], besides).map_or_else(|error| error.to_string(), |()| String::new())
}

fn said(folder: &Path, source: &str) -> String {
    checked(folder, source, Besides::Nothing, Arch::X86_64)
}

#[test]
fn what_the_dynamic_linker_reads_is_read() {
    let program = linked(X86_64, Some("/lib64/ld-linux-x86-64.so.2"), &["libelf.so.1", "libc.so.6"], Some("me"));
    assert_eq!(elf::interpreter(&program).as_deref(), Some("/lib64/ld-linux-x86-64.so.2"));
    let dynamic = elf::dynamic(&program).unwrap();
    assert_eq!(
        (dynamic.needed, dynamic.name),
        (vec!["libelf.so.1".to_owned(), "libc.so.6".to_owned()], Some("me".into()))
    );
    for length in 0..program.len() {
        let _ = (elf::dynamic(&program[..length]), elf::no_program(&program[..length], Arch::X86_64));
        let _ = elf::no_object(&program[..length], &["p".to_owned()]);
    }
    // This test's program.
    let own = fs::read(std::env::current_exe().unwrap()).unwrap();
    assert!(elf::dynamic(&own).unwrap().needed.contains(&"libc.so.6".to_owned()));
}

#[test]
fn a_program_of_another_architecture_is_refused_with_both_names() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder.path().join("arm"), &empty(AARCH64));
    let source = "binary = [{ arch = 'x86_64', path = 'arm' }]";
    let error = said(folder.path(), source);
    assert!(
        error.contains("the tool mine")
            && error.contains("arm is a program for aarch64, and the tool file gives it for x86_64"),
        "{error}"
    );
    // Programs for an architecture that the study lacks are ignored.
    assert_eq!(checked(folder.path(), source, Besides::Nothing, Arch::Riscv64), "");
    let mut object = empty(X86_64);
    object[16] = 1;
    put(&folder.path().join("main.o"), &object);
    assert!(said(folder.path(), "binary = { arch = 'x86_64', path = 'main.o' }").contains("not linked"));
    put(&folder.path().join("p.bpf.o"), &empty(BPF));
    assert!(said(folder.path(), "binary = { arch = 'x86_64', path = 'p.bpf.o' }").contains("an eBPF object (`object"));
    assert!(said(folder.path(), "binary = { arch = 'x86_64', path = 'none' }").contains("none, which mine names"));
}

#[test]
fn an_object_that_is_none_or_lacks_a_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder.path().join("host.o"), &empty(X86_64));
    let error = said(folder.path(), "object = { path = 'host.o' }");
    assert!(error.contains("host.o is no eBPF object") && error.contains("clang -target bpf"), "{error}");
    let mut big = empty(BPF);
    big[5] = 2;
    big[18..20].copy_from_slice(&BPF.to_be_bytes());
    put(&folder.path().join("big.o"), &big);
    assert!(said(folder.path(), "object = { path = 'big.o' }").contains("no eBPF object"));
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../bpfassay-btf/tests/data/reads.bpf.o");
    fs::copy(own, folder.path().join("reads.o")).unwrap();
    assert_eq!(said(folder.path(), "object = { path = 'reads.o', programs = ['right', 'asks'] }"), "");
    let error = said(folder.path(), "object = { path = 'reads.o', programs = ['right', 'ask'] }");
    assert!(error.contains("reads.o has no program `ask`; it has right, flags_for_return"), "{error}");
    assert!(error.contains("did you mean `asks`?"), "{error}");
    // A function that programs call is not a program.
    assert!(said(folder.path(), "object = { path = 'reads.o', programs = ['sub'] }").contains("has no program `sub`"));
    put(&folder.path().join("empty.o"), &empty(BPF));
    assert_eq!(said(folder.path(), "object = { path = 'empty.o' }"), "");
    let error = said(folder.path(), "object = { path = 'empty.o', programs = ['on_read'] }");
    assert!(error.contains("has no program `on_read`; it has none"), "{error}");
}

#[test]
fn an_interpreter_that_guests_do_not_have_is_refused_where_it_is_certain() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder.path().join("run"), b"#!/bin/sh\nexec true\n");
    put(&folder.path().join("mine"), b"#!/bpfassay/tracer\n");
    put(&folder.path().join("s.bt"), b"BEGIN { }");
    let binary = "binary = { arch = 'x86_64', path = 'run' }";
    let error = said(folder.path(), binary);
    assert!(error.contains("run is a script for /bin/sh, which guests do not have"), "{error}");
    assert_eq!(checked(folder.path(), binary, Besides::Others, Arch::X86_64), "");
    assert_eq!(said(folder.path(), "binary = { arch = 'x86_64', path = 'mine' }"), "");
    let error = said(folder.path(), "script = { path = 's.bt', interpreter = '/usr/bin/bpftrace' }");
    assert!(
        error.contains("guests do not have /usr/bin/bpftrace, the interpreter of") && error.contains("debian = {"),
        "{error}"
    );
    let with = "script = { path = 's.bt', interpreter = '/usr/bin/bpftrace', debian = { suite = 'trixie', package = 'bpftrace' } }";
    assert_eq!(said(folder.path(), with), "");
    assert_eq!(said(folder.path(), "script = { path = 's.bt', interpreter = '/run/made-later' }"), "");
    assert_eq!(said(folder.path(), "guest = { program = '/bpfassay/tracer' }"), "");
    let error = said(folder.path(), "guest = { program = '/usr/bin/tracer' }");
    assert!(error.contains("guests do not have /usr/bin/tracer; they have /init, /bpfassay/tracer"), "{error}");
}

#[test]
fn libraries_that_are_nowhere_are_refused_and_others_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    let source = "binary = { arch = 'x86_64', path = 'tool', libraries = 'lib' }";
    put(&at("tool"), &linked(X86_64, Some("/lib64/ld-linux-x86-64.so.2"), &["libelf.so.1", "libc.so.6"], None));
    put(&at("lib/libc.so.6"), &linked(X86_64, None, &["ld-linux-x86-64.so.2"], Some("libc.so.6")));
    let error = said(folder.path(), source);
    assert!(error.contains("the dynamic linker ld-linux-x86-64.so.2, which is not in"), "{error}");
    put(&at("lib/ld-linux-x86-64.so.2"), &linked(X86_64, None, &[], Some("ld-linux-x86-64.so.2")));
    let error = said(folder.path(), source);
    assert!(error.contains("tool needs the library libelf.so.1, which is not in"), "{error}");
    assert_eq!(checked(folder.path(), source, Besides::Others, Arch::X86_64), "");

    put(&at("lib/libelf.so.1"), &linked(X86_64, None, &["libz.so.1", "libc.so.6"], Some("libelf.so.1")));
    let error = said(folder.path(), source);
    assert!(error.contains("libelf.so.1 needs the library libz.so.1, which is not in"), "{error}");
    // A search path could find this library.
    put(&at("lib/more/libz.so.1"), &linked(X86_64, None, &[], None));
    assert_eq!(said(folder.path(), source), "");
    fs::remove_dir_all(at("lib/more")).unwrap();
    put(&at("lib/libz.so.1.3"), &linked(X86_64, None, &[], None));
    symlink("libz.so.1.3", at("lib/libz.so.1")).unwrap();
    assert_eq!(said(folder.path(), source), "");
    put(&at("lib/libz.so.1.3"), &linked(AARCH64, None, &[], None));
    let error = said(folder.path(), source);
    assert!(error.contains("libz.so.1 is none for x86_64"), "{error}");
}

#[test]
fn names_that_loaded_libraries_give_themselves_are_found_and_musls_own_are_not_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    let source = "binary = { arch = 'x86_64', path = 'tool', libraries = 'lib' }";
    put(
        &at("tool"),
        &linked(X86_64, Some("/lib/ld-musl-x86_64.so.1"), &["libc.musl-x86_64.so.1", "liba.so", "libb.so"], None),
    );
    put(&at("lib/ld-musl-x86_64.so.1"), &linked(X86_64, None, &[], None));
    put(&at("lib/liba.so"), &linked(X86_64, None, &[], Some("liba.so.1")));
    put(&at("lib/libb.so"), &linked(X86_64, None, &["liba.so.1"], None));
    assert_eq!(said(folder.path(), source), "");
    put(&at("lib/libb.so"), &linked(X86_64, None, &["liba.so.2"], None));
    assert!(said(folder.path(), source).contains("libb.so needs the library liba.so.2"));
}
