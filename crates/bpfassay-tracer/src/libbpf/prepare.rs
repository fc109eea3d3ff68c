//! What is decided before an object is loaded: settings, prototypes, and which programs and maps this kernel and these
//! options need.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs, io,
};

use bpfassay_btf::{self as btf, Btf, Shape};
use bpfassay_protocol::{
    finding::{Finding, Pitfall},
    tracer::Step,
};
use bpfassay_tracer_common::{COPIES, Prototype, Settings, map};
use libbpf_rs::OpenObject;

use super::Failure;
use crate::{
    preemption,
    probes::{self, Attachment, REQUIRED},
    tracer::Options,
};

/// The sections of [`Settings`] and of [`Prototype`]s, which are maps of their own.
const SETTINGS: &str = ".rodata.settings";
const PROTOTYPES: &str = ".rodata.prototypes";
/// The section of the size of a page, in objects that count pages.
const PAGE_SIZE: &str = ".rodata.page_size";
/// The section that says whether programs may ask for the calling task ([`is_task_known`]).
const TASK_KNOWN: &str = ".rodata.task_known";

/// Functions whose arguments differ between kernels, with the operation that they are counted under.
const NAME_FUNCTIONS: [(&str, bpfassay_tracer_common::Operation); 5] = [
    ("vfs_create", bpfassay_tracer_common::Operation::Create),
    ("vfs_mkdir", bpfassay_tracer_common::Operation::Mkdir),
    ("vfs_unlink", bpfassay_tracer_common::Operation::Unlink),
    ("vfs_rmdir", bpfassay_tracer_common::Operation::Rmdir),
    ("vfs_rename", bpfassay_tracer_common::Operation::Rename),
];

/// Functions that later kernels have another one for, which is hooked as well where it is.
const INSTEAD: [(&str, &str); 1] = [("do_set_pte", "set_pte_range")];

/// Prepares `open` for this kernel.
///
/// # Errors
/// [`Failure`] where the kernel has no type information, or an object is not as this program expects it.
pub(super) fn prepare(
    open: &mut OpenObject,
    options: &Options,
    absent: &BTreeSet<&str>,
) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    let sections: Vec<String> = open.progs().map(|program| program.section().to_string_lossy().into_owned()).collect();
    let hooks: Vec<(Attachment, &str)> = sections.iter().filter_map(|section| probes::attachment(section)).collect();
    let found = prototypes(&hooks, options)?;

    let has_copies = open.progs().any(|program| probes::copy_of(&program.name().to_string_lossy()).is_some());
    let settings = Settings {
        cgroup: options.cgroup,
        mount: options.mount,
        latency: u32::from(options.latency),
        copies: if has_copies { copies() } else { 1 },
    };
    write(open, SETTINGS, &settings.to_bytes())?;
    if open.maps().any(|map| map.name() == OsStr::new(PAGE_SIZE)) {
        write(open, PAGE_SIZE, &(rustix::param::page_size() as u64).to_ne_bytes())?;
    }
    if open.maps().any(|map| map.name() == OsStr::new(TASK_KNOWN)) {
        write(open, TASK_KNOWN, &u64::from(is_task_known()).to_ne_bytes())?;
        if !is_task_known() && hooks.iter().any(|(_, function)| *function == "sys_fsync") {
            findings.push(fsync_without_mount());
        }
    }
    if open.maps().any(|map| map.name() == OsStr::new(PROTOTYPES)) {
        write(open, PROTOTYPES, &table(&found, options))?;
    }

    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let section = program.section().to_string_lossy().into_owned();
        let Some((attachment, function)) = probes::attachment(&section) else { continue };
        let function = options.function(function);
        let unwanted = probes::copy_of(&name).is_some_and(|(_, copy)| copy > settings.copies)
            || name.ends_with("_begin") && !options.latency
            || name.ends_with("_mark") && settings.copies == 1;
        let unknown = !found.contains_key(function);
        let missing = attachment == Attachment::Trampoline && (unknown || absent.contains(function));
        let stands_in = INSTEAD.iter().any(|&(older, newer)| older == function && found.contains_key(newer));
        if missing && !unwanted && !stands_in && !REQUIRED.contains(&function) {
            let why =
                if unknown { "the kernel has no type information on it" } else { "it has no address of that name" };
            findings.push(not_counted(function, why));
        }
        if unwanted || missing && !REQUIRED.contains(&function) {
            program.set_autoload(false);
        }
    }
    for mut one in open.maps_mut() {
        let name = one.name().to_string_lossy().into_owned();
        let wanted = match name.as_str() {
            map::COUNTERS_2 => settings.copies > 1,
            "turns" => settings.copies > 1,
            "starts" | map::LATENCIES => options.latency,
            _ => true,
        };
        let failed = |error: libbpf_rs::Error| failure(format!("the map `{name}` cannot be set up: {error:#}"));
        if name == map::SLOTS {
            one.set_max_entries(settings.copies * bpfassay_tracer_common::Operation::DATA).map_err(failed)?;
        }
        if !wanted {
            one.set_autocreate(false).map_err(failed)?;
        } else if let Some(entries) = options.map_entries {
            match name.as_str() {
                map::COUNTERS | map::COUNTERS_2 => one.set_max_entries(entries).map_err(failed)?,
                // The kernel wants a power of two and whole pages; each event has a header of eight bytes.
                map::EVENTS => {
                    let page = u32::try_from(rustix::param::page_size()).unwrap_or(1 << 16);
                    let bytes = entries.saturating_mul(64).clamp(page, 1 << 30);
                    one.set_max_entries(bytes.next_power_of_two()).map_err(failed)?;
                }
                _ => {}
            }
        }
    }
    Ok(findings)
}

/// What the programs are told of the functions that change names: a [`Prototype`] for each operation, by number.
pub(crate) fn name_prototypes(options: &Options) -> Result<Vec<u8>, Failure> {
    let hooks = NAME_FUNCTIONS.map(|(function, _)| (Attachment::Kprobe, function));
    Ok(table(&prototypes(&hooks, options)?, options))
}

fn table(found: &BTreeMap<String, btf::Prototype>, options: &Options) -> Vec<u8> {
    let mut bytes = vec![0; bpfassay_tracer_common::Operation::ALL.len() * size_of::<Prototype>()];
    for &(function, operation) in &NAME_FUNCTIONS {
        let prototype = found.get(options.function(function)).and_then(superblock).unwrap_or_default();
        bytes[operation as usize * size_of::<Prototype>()..][..size_of::<Prototype>()]
            .copy_from_slice(&prototype.to_bytes());
    }
    bytes
}

/// That `function` is not hooked, and why.
pub(crate) fn not_counted(function: &str, why: &str) -> Finding {
    Finding {
        pitfall: Pitfall::SymbolMissing,
        subject: function.to_owned(),
        detail: format!("not hooked, its calls are not counted: {why}"),
    }
}

fn failure(message: String) -> Failure {
    Failure { step: Step::Open, program: None, error: io::Error::other(message) }
}

/// Copies of programs that the kernel skips while they run on the CPU already (trampolines, raw tracepoints): one, unless
/// tasks can be preempted inside them. What settles whose turn it
/// is needs the JIT compiler on some kernels (riscv64 7.2: "program requires BPF JIT compiler"): without it there is one
/// copy, and its misses are reported as what may be lost.
pub(crate) fn copies() -> u32 {
    if preemption::is_preemptible() && has_jit() { COPIES } else { 1 }
}

/// Whether programs may ask for the calling task. The JIT compiler of riscv64 puts that in itself, and 7.2 refuses it to
/// programs that are not compiled.
pub(crate) fn is_task_known() -> bool {
    !cfg!(target_arch = "riscv64") || has_jit()
}

/// What follows where they may not.
pub(crate) fn fsync_without_mount() -> Finding {
    Finding {
        pitfall: Pitfall::NotChecked,
        subject: "fsync".to_owned(),
        detail:
            "counted without mount and device, which --mount leaves out: programs may not ask for the calling task \
                 without the JIT compiler (net.core.bpf_jit_enable)"
                .to_owned(),
    }
}

/// Whether the kernel compiles programs. Where it does not say, it is one that always does.
pub(crate) fn has_jit() -> bool {
    fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").map_or(true, |text| text.trim() != "0")
}

/// The prototypes of the functions that are hooked, from the kernel's BTF. A name that several functions have is left
/// out: there is no telling which of them is meant.
fn prototypes(hooks: &[(Attachment, &str)], options: &Options) -> Result<BTreeMap<String, btf::Prototype>, Failure> {
    let wanted: BTreeSet<&str> = hooks
        .iter()
        .filter(|(attachment, _)| {
            !matches!(
                attachment,
                Attachment::Syscalls(_)
                    | Attachment::Tracepoint
                    | Attachment::RawTracepoint
                    | Attachment::Iterator
                    | Attachment::Uprobe
                    | Attachment::Uretprobe
            )
        })
        .map(|(_, function)| options.function(function))
        .collect();
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    let cannot = |error: String| {
        failure(format!(
            "cannot read the kernel's type information in {}: {error}; it takes CONFIG_DEBUG_INFO_BTF",
            btf::KERNEL
        ))
    };
    let bytes = fs::read(btf::KERNEL).map_err(|error| cannot(error.to_string()))?;
    let all = Btf::new(&bytes).and_then(|btf| btf.prototypes(&wanted)).map_err(|error| cannot(error.to_string()))?;
    let mut found = BTreeMap::new();
    let mut ambiguous = BTreeSet::new();
    for (name, prototype) in all {
        if found.get(&name).is_some_and(|known| *known != prototype) {
            ambiguous.insert(name.clone());
        }
        found.insert(name, prototype);
    }
    found.retain(|name, _| !ambiguous.contains(name));
    Ok(found)
}

/// Where the superblock is found in the arguments of a function that changes a name. A directory is held by the caller
/// throughout; a name may be let go of by the function (`vfs_mkdir` of 7.x).
fn superblock(prototype: &btf::Prototype) -> Option<Prototype> {
    let at = |name: &str| prototype.arguments.iter().position(|shape| *shape == Shape::Pointer(name.to_owned()));
    let (source, argument) = at("inode")
        .map(|at| (Prototype::INODE, at))
        .or_else(|| at("renamedata").map(|at| (Prototype::RENAME, at)))
        .or_else(|| at("dentry").map(|at| (Prototype::DENTRY, at)))?;
    // The programs look at three arguments at most.
    let argument = u8::try_from(argument).ok().filter(|argument| *argument <= 2)?;
    Some(Prototype { source, argument })
}

/// Writes the beginning of a read-only section.
fn write(open: &mut OpenObject, section: &str, bytes: &[u8]) -> Result<(), Failure> {
    let written = open.maps_mut().find(|map| map.name() == OsStr::new(section)).is_some_and(|mut map| {
        map.initial_value_mut().is_some_and(|value| {
            // The section is padded at its end, if at all.
            value.get_mut(..bytes.len()).map(|value| value.copy_from_slice(bytes)).is_some()
        })
    });
    if written { Ok(()) } else { Err(failure(format!("the object has no `{section}` of {} bytes", bytes.len()))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prototype(arguments: &[&str]) -> btf::Prototype {
        let shape = |name: &&str| if name.is_empty() { Shape::Address } else { Shape::Pointer((*name).to_owned()) };
        let arguments = arguments.iter().map(shape).collect();
        btf::Prototype { text: String::new(), returns: Shape::Integer(4), arguments }
    }

    #[test]
    fn the_superblock_is_found_in_every_known_prototype() {
        let bytes = |arguments: &[&str]| superblock(&prototype(arguments)).map(Prototype::to_bytes);
        // 5.10
        assert_eq!(bytes(&["inode", "dentry", ""]), Some([1, 0]));
        // 5.12 to 6.2, and with mnt_idmap from 6.3
        assert_eq!(bytes(&["mnt_idmap", "inode", "dentry"]), Some([1, 1]));
        // vfs_rename before and from 5.12
        assert_eq!(bytes(&["inode", "dentry", "inode", "dentry", "", ""]), Some([1, 0]));
        assert_eq!(bytes(&["renamedata"]), Some([3, 0]));
        // vfs_create and vfs_mkdir of 7.x
        assert_eq!(bytes(&["mnt_idmap", "dentry", "", ""]), Some([2, 1]));
        assert_eq!(bytes(&["mnt_idmap", "inode", "dentry", "", ""]), Some([1, 1]));
        assert_eq!(bytes(&["", "file"]), None);
        assert_eq!(bytes(&["", "", "", "inode"]), None, "beyond what the programs look at");
    }
}
