// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the deliberately wrong tools as far as possible without a kernel.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../bpfassay/tests/common/wrong_tools.rs"]
mod built;

use std::{error::Error as _, fs};

use bpfassay_btf::prototype;
use bpfassay_protocol::Arch;
use bpfassay_tool::{
    ReportForm, Source, ToolCapture,
    finding::{Evidence, FindingStatus, Kind, ValueLimits, evaluate},
    load, read,
    recorded_output::Dump,
};

/// Prototypes of Linux 6.12.
const KERNEL: &[u8] = include_bytes!("../../../bpfassay-btf/tests/data/kernel.btf");

#[test]
fn who_reads_the_wrong_argument_is_named_and_no_other_tool() {
    let directory = tempfile::tempdir().unwrap();
    let tools = built::build("wrong-tools", directory.path());
    for &arch in Arch::ALL {
        let (mut differing, mut has_arity) = (Vec::new(), false);
        for name in &tools {
            let tool = load(directory.path().join(format!("{name}.toml")).to_str().unwrap()).unwrap().file;
            assert_eq!(tool.name, *name);
            let path = match &tool.source {
                // Registers differ by architecture, and so does the object of `wrong-arity`.
                Source::Object(_) => match tool.source.object(arch, "6.12") {
                    Some((_, object)) => object.path.clone(),
                    None => continue,
                },
                // The tool is a script or runs commands, so it has no object.
                Source::Script(scripts) if !scripts[0].path.ends_with(".bpf.o") => continue,
                Source::Script(scripts) => scripts[0].path.clone(),
                other => panic!("{name}: {other:?}"),
            };
            has_arity |= name == "wrong-arity";
            let object = fs::read(directory.path().join(path)).unwrap();
            let checked = prototype::check(&object, KERNEL, arch).unwrap();
            let evidence = Evidence { prototypes: Some(&checked), ..Evidence::default() };
            for result in evaluate(&evidence, &ValueLimits::default()) {
                if let FindingStatus::Found { evidence, .. } = result.status {
                    assert_eq!(result.kind, Kind::PrototypeDiffers, "{name}: {evidence:?}");
                    differing.push(format!("{name}: {}", evidence.join("; ")));
                }
            }
        }
        let readv = "ssize_t vfs_readv(struct file *, const struct iovec *, unsigned long, loff_t *, rwf_t)";
        let vfs_read = "ssize_t vfs_read(struct file *, char *, size_t, loff_t *)";
        let taken = "on_readv (fexit/vfs_readv): takes argument 5 for a number of 64 bits, where the return value would be with one argument less";
        let mut expected = vec![
            format!("argument-for-return: {taken}: {readv}"),
            format!("flags-as-bytes: {taken}: {readv}"),
            format!("four-arguments: {taken}: {readv}"),
        ];
        if has_arity {
            expected.push(format!("wrong-arity: on_read (kprobe/vfs_read): reads argument 6 of 4: {vfs_read}"));
        }
        assert_eq!(differing, expected, "{arch}");
        assert!(has_arity || !matches!(arch, Arch::X86_64 | Arch::Aarch64 | Arch::Riscv64), "{arch}");
    }
}

#[test]
fn right_tools_are_accused_of_nothing_and_set_what_their_objects_have() {
    let directory = tempfile::tempdir().unwrap();
    for name in built::build("right-tools", directory.path()) {
        let path = directory.path().join(format!("{name}.toml"));
        let tool = load(path.to_str().unwrap()).unwrap();
        tool.under_test().unwrap();
        let Some((_, object)) = tool.file.source.object(Arch::X86_64, "6.12") else { continue };
        for checked in
            prototype::check(&fs::read(directory.path().join(&object.path)).unwrap(), KERNEL, Arch::X86_64).unwrap()
        {
            // The other function is not in these prototypes.
            let unchecked = checked.unchecked.filter(|_| checked.program == "on_read");
            assert_eq!((checked.differs, unchecked), (vec![], None), "{name}: {}", checked.program);
        }
        let text = fs::read_to_string(&path).unwrap();
        if name != "configured" {
            continue;
        }
        for (from, to, reason) in [
            (
                "magic =",
                "magick =",
                "the value of the map `conf_map` has no `magick`: it has subsystem, magic, inner.mount, inner.level",
            ),
            ("enabled =", "enable =", "`.rodata` has no `enable`: it has "),
            ("\"gate\"", "\"gates\"", "the object's BTF describes no map `gates` with its keys and values"),
        ] {
            fs::write(&path, text.replace(from, to)).unwrap();
            let error = load(path.to_str().unwrap()).unwrap().under_test().unwrap_err();
            let begins =
                format!("{name} sets what the object {} cannot hold", directory.path().join(&object.path).display());
            assert_eq!(error.to_string(), begins);
            let source = error.source().unwrap().to_string();
            assert!(source.starts_with(reason), "{source}");
        }
    }
}

#[test]
fn their_maps_are_read_by_their_objects_types() {
    let directory = tempfile::tempdir().unwrap();
    for name in built::build("wrong-tools", directory.path()) {
        let tool = load(directory.path().join(format!("{name}.toml")).to_str().unwrap()).unwrap().file;
        let Some(report) = tool.report.as_ref().filter(|report| matches!(report.form, ReportForm::Map { .. })) else {
            continue;
        };
        let object = fs::read(directory.path().join(format!("{name}.bpf.o"))).unwrap();
        // The key has cgroup 7, device 9, the figure's operation, and process `ior`.
        let operation: u32 = match name.as_str() {
            "argument-for-return" | "vlen" => 2,
            "backwards" | "evicting" => 1,
            _ => 0,
        };
        let mut key = [&7_u64.to_le_bytes()[..], &9_u32.to_le_bytes(), &operation.to_le_bytes(), b"ior"].concat();
        key.resize(40, 0);
        let value = [3_u64, 300, 1].map(u64::to_le_bytes).concat();
        let dump = Dump { at_ns: 1, map: "counts".to_owned(), copies: 1, entries: vec![(key, value)] };
        let readings =
            read(report, &ToolCapture { dumps: vec![dump], ..ToolCapture::default() }, Some(&object)).unwrap();
        assert_eq!((readings.unread, &readings.first_unread), (0, &None), "{name}");
        let [sample] = readings.samples.as_slice() else { panic!("{name}: {readings:?}") };
        let figure = &report.figures[sample.figure];
        let subject = match figure.label.as_deref() {
            Some("comm") => "ior",
            Some("device") => "9",
            Some("cgroup") => "7",
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(sample.subject.as_deref(), Some(subject), "{name}");
        assert_eq!(sample.value, if figure.value == "calls" { 3 } else { 300 * figure.scale }, "{name}");
    }
}
