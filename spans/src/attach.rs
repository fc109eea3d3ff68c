// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads and attaches the eBPF programs.

use std::{
    io,
    os::fd::AsFd as _,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use libbpf_rs::{
    Link, MapCore as _, MapFlags, Object, ObjectBuilder, PrintLevel, ProgramMut, RingBuffer, RingBufferBuilder,
    UprobeMultiOpts, UprobeOpts, set_print,
};
use serde::Serialize;

use crate::{functions::FUNCTIONS, library::Library};

/// Bytes with the alignment of the words that libelf reads.
#[repr(C, align(8))]
struct AlignedWords<T: ?Sized>(T);

static OBJECT: &AlignedWords<[u8]> = &AlignedWords(*include_bytes!(concat!(env!("OUT_DIR"), "/spans.o")));

/// Longest log of libbpf and the verifier in bytes. The start of a longer one is dropped.
const MAX_LOG: usize = 64 << 10;

static LOG: Mutex<String> = Mutex::new(String::new());

fn keep_log(_: PrintLevel, text: String) {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    log.push_str(&text);
    if log.len() > MAX_LOG {
        let cut = log.ceil_char_boundary(log.len() - MAX_LOG);
        log.drain(..cut);
    }
}

/// The kernel refuses the programs.
#[derive(Debug, thiserror::Error)]
#[error("the kernel refuses to {step}: {source}{}", hint(step, log))]
pub(crate) struct Refused {
    /// The step that failed.
    step: String,
    /// The output of libbpf and the verifier.
    log: String,
    #[source]
    source: libbpf_rs::Error,
}

/// Returns the last lines of the log, which have the reason, and advice.
fn hint(step: &str, log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let end = lines[lines.len().saturating_sub(4)..].join("; ");
    let instead = if step.contains("system_") { ". Without the system calls: --no-system-calls" } else { "" };
    format!("{}{end}{instead}", if end.is_empty() { "" } else { ": " })
}

/// Counts of missing events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct MissingEvents {
    /// Events for which the ring buffer had no room.
    pub ring_full: u64,
    /// Calls for which the map of calls had no room.
    pub calls_full: u64,
    /// Returns from calls whose start was not seen.
    pub unmatched: u64,
    /// Calls within calls.
    pub nested: u64,
    /// Calls that never returned.
    pub abandoned: u64,
    /// System calls that the programs missed; `None` if the kernel has no count (before 5.12).
    pub missed: Option<u64>,
}

impl MissingEvents {
    /// Whether nothing was lost, as far as known.
    #[must_use]
    pub(crate) fn is_nothing(&self) -> bool {
        let Self { ring_full, calls_full, unmatched, nested, abandoned, missed } = *self;
        [ring_full, calls_full, unmatched, nested, abandoned, missed.unwrap_or(0)] == [0; 6]
    }
}

/// Loaded and attached programs.
pub(crate) struct Programs {
    object: Object,
    links: Vec<Link>,
    way: Way,
    functions: usize,
}

/// How programs are attached to library functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// One link for all functions of a file (`BPF_TRACE_UPROBE_MULTI`, Linux 6.6).
    Together,
    /// One perf event per function.
    Single,
}

/// Where programs are attached: function numbers and offsets in the file.
type Places<'a> = &'a [(usize, usize)];

fn single(
    program: &ProgramMut<'_>,
    library: &Library,
    places: Places<'_>,
    retprobe: bool,
    links: &mut Vec<Link>,
) -> libbpf_rs::Result<()> {
    for &(_, place) in places {
        let options = UprobeOpts { retprobe, ..UprobeOpts::default() };
        links.push(program.attach_uprobe_with_opts(EVERY_PROCESS, &library.path, place, options)?);
    }
    Ok(())
}

fn together(
    program: &ProgramMut<'_>,
    library: &Library,
    places: Places<'_>,
    retprobe: bool,
    links: &mut Vec<Link>,
) -> libbpf_rs::Result<()> {
    if places.is_empty() {
        return Ok(());
    }
    let options = UprobeMultiOpts {
        offsets: places.iter().map(|&(_, place)| place).collect(),
        cookies: places.iter().map(|&(function, _)| cookie(function)).collect(),
        retprobe,
        ..UprobeMultiOpts::default()
    };
    links.push(program.attach_uprobe_multi_with_opts(EVERY_PROCESS, &library.path, "", options)?);
    Ok(())
}

const EVERY_PROCESS: i32 = -1;

/// Encodes what `multi_enter` of src/bpf/spans.bpf.c needs to know about a function.
fn cookie(function: usize) -> u64 {
    /// `NONE` in spans.bpf.c.
    const NONE: u8 = 255;
    let (datatype, status) = FUNCTIONS[function].shape.places();
    // A function's number fits into a byte; a test checks that.
    function as u64 | u64::from(datatype.unwrap_or(NONE)) << 8 | u64::from(status.unwrap_or(NONE)) << 16
}

/// Makes the error of a step, with the output of libbpf.
fn refused(step: &str) -> impl FnOnce(libbpf_rs::Error) -> Refused {
    let step = step.to_owned();
    move |source| Refused { step, log: LOG.lock().unwrap_or_else(PoisonError::into_inner).clone(), source }
}

impl Programs {
    /// Loads the programs and attaches them to the functions of `libraries` and, if `system_calls`
    /// is set, to system calls. `ring_bytes` is the size of the ring buffer. If `way` is `None`,
    /// the newer way is used if the kernel supports it.
    ///
    /// # Errors
    /// [`Refused`] if the kernel refuses a step.
    pub(crate) fn attach(
        libraries: &[Library],
        system_calls: bool,
        ring_bytes: u32,
        way: Option<Way>,
    ) -> Result<Self, Refused> {
        set_print(Some((PrintLevel::Warn, keep_log)));
        let by = |way| Self::attach_by(way, libraries, system_calls, ring_bytes);
        // If a kernel refuses the newer way for whatever reason, it may accept the older one.
        way.map_or_else(|| by(Way::Together).or_else(|_| by(Way::Single)), by)
    }

    fn attach_by(way: Way, libraries: &[Library], system_calls: bool, ring_bytes: u32) -> Result<Self, Refused> {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(refused("open the programs"))?;
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            program.set_autoload(is_wanted(&name, way, libraries, system_calls));
        }
        for mut map in open.maps_mut() {
            if map.name() == "events" {
                map.set_max_entries(ring_bytes).map_err(refused("size the ring buffer"))?;
            }
        }
        let object = open.load().map_err(refused("load the programs"))?;
        let mut links = Vec::new();
        // Attach returns first, so that no call is seen without its return.
        for prefix in ["leave_", "enter_", "multi_leave_", "multi_enter", "system_"] {
            for program in object.progs_mut() {
                let name = program.name().to_string_lossy().into_owned();
                let Some(rest) = name.strip_prefix(prefix) else { continue };
                if !is_wanted(&name, way, libraries, system_calls) {
                    continue;
                }
                if prefix == "system_" {
                    links.push(program.attach().map_err(refused(&format!("attach {name}")))?);
                    continue;
                }
                for (number, library) in libraries.iter().enumerate() {
                    let functions = library.places.iter().filter(|&(&function, _)| {
                        rest.is_empty() || rest == FUNCTIONS[function].short || rest == number.to_string()
                    });
                    let places: Vec<(usize, usize)> = functions
                        .flat_map(|(&function, places)| places.iter().map(move |&place| (function, place)))
                        .map(|(function, place)| (function, usize::try_from(place).unwrap_or(usize::MAX)))
                        .collect();
                    let step = format!("attach {name} in {}", library.path.display());
                    let attached = match way {
                        Way::Single => single(&program, library, &places, prefix == "leave_", &mut links),
                        Way::Together => together(&program, library, &places, prefix == "multi_leave_", &mut links),
                    };
                    attached.map_err(refused(&step))?;
                }
            }
        }
        let functions = libraries.iter().map(|library| library.places.len()).sum();
        Ok(Self { object, links, way, functions })
    }

    /// Returns the number of functions with programs attached.
    pub(crate) fn functions(&self) -> usize {
        self.functions
    }

    /// Returns how the programs are attached.
    pub(crate) fn way(&self) -> Way {
        self.way
    }

    /// Returns a reader that passes each record to `take`.
    ///
    /// # Errors
    /// The kernel's error if the ring buffer cannot be mapped.
    pub(crate) fn records<'a>(&self, mut take: impl FnMut(&[u8]) + 'a) -> io::Result<Records<'a>> {
        let map =
            self.object.maps().find(|map| map.name() == "events").ok_or_else(|| io::Error::other("no ring buffer"))?;
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&map, move |record| {
                take(record);
                0
            })
            .map_err(other)?;
        builder.build().map(Records).map_err(other)
    }

    /// Detaches the programs. The ring buffer keeps its content. For each single uprobe the kernel
    /// waits until no CPU runs it any more, about 0.1 s. It holds a lock meanwhile
    /// (`perf_uprobe_destroy`), so more threads would not help.
    pub(crate) fn detach(&mut self) {
        self.links.clear();
    }

    /// Returns what was lost so far.
    ///
    /// # Errors
    /// The kernel's error if a count cannot be read.
    pub(crate) fn lost(&self) -> io::Result<MissingEvents> {
        let map =
            self.object.maps().find(|map| map.name() == "tallies").ok_or_else(|| io::Error::other("no tallies"))?;
        let tally = |number: u32| -> io::Result<u64> {
            let counts = map.lookup_percpu(&number.to_ne_bytes(), MapFlags::ANY).map_err(other)?.unwrap_or_default();
            let words = counts.iter().filter_map(|count| count.first_chunk().copied().map(u64::from_ne_bytes));
            Ok(words.fold(0, u64::wrapping_add))
        };
        let mut missed = Some(0_u64);
        for program in self.object.progs() {
            // Uprobes run without a check for recursion. Unloaded programs have no descriptor.
            if program.name().to_string_lossy().starts_with("system_") && program.autoload() {
                let of_one = bpfassay_bpf::program_info(program.as_fd())?.recursion_misses;
                missed = missed.zip(of_one).map(|(sum, one)| sum.wrapping_add(one));
            }
        }
        Ok(MissingEvents {
            ring_full: tally(0)?,
            calls_full: tally(1)?,
            unmatched: tally(2)?,
            nested: tally(3)?,
            abandoned: tally(4)?,
            missed,
        })
    }
}

fn other(error: libbpf_rs::Error) -> io::Error {
    io::Error::other(error)
}

/// Whether a program is needed for `libraries`.
fn is_wanted(name: &str, way: Way, libraries: &[Library], system_calls: bool) -> bool {
    let is_library = |number: &str| number.parse::<usize>().is_ok_and(|number| number < libraries.len());
    let has = |short: &str| {
        let of = |library: &Library| library.places.keys().any(|&number| FUNCTIONS[number].short == short);
        libraries.iter().any(of)
    };
    match (name.split_once('_'), way) {
        (Some(("system", _)), _) => system_calls,
        (Some(("leave", number)), Way::Single) => is_library(number),
        (Some(("enter", short)), Way::Single) => has(short),
        (Some(("multi", "enter")), Way::Together) => true,
        (Some(("multi", rest)), Way::Together) => rest.strip_prefix("leave_").is_some_and(is_library),
        _ => false,
    }
}

/// A reader of the ring buffer.
pub(crate) struct Records<'a>(RingBuffer<'a>);

impl Records<'_> {
    /// Reads the available records. Waits at most `pause` if there are none.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn wait(&self, pause: Duration) -> io::Result<()> {
        match self.0.poll_raw(pause) {
            status if status >= 0 => Ok(()),
            // A signal.
            status if status == -rustix::io::Errno::INTR.raw_os_error() => Ok(()),
            status => Err(io::Error::from_raw_os_error(-status)),
        }
    }

    /// Reads the available records without waiting.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn rest(&self) -> io::Result<()> {
        self.0.consume().map_err(other)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::bytes::Family;

    #[test]
    fn only_what_the_libraries_have_is_loaded() {
        let places = BTreeMap::from([(2, BTreeSet::from([16]))]);
        let libraries = [Library { path: "/lib/libmpi.so".into(), family: Family::OpenMpi, places }];
        let wanted = |name, way| is_wanted(name, way, &libraries, false);
        for (name, single, together) in [
            ("enter_open", true, false),
            ("enter_close", false, false),
            ("leave_0", true, false),
            ("leave_1", false, false),
            ("multi_enter", false, true),
            ("multi_leave_0", false, true),
            ("multi_leave_1", false, false),
            ("system_read_ends", false, false),
        ] {
            assert_eq!((wanted(name, Way::Single), wanted(name, Way::Together)), (single, together), "{name}");
        }
        assert!(is_wanted("system_read_ends", Way::Single, &libraries, true));
    }

    #[test]
    fn a_cookie_has_all_that_differs() {
        assert!(FUNCTIONS.len() < 256);
        let of = |short: &str| cookie(FUNCTIONS.iter().position(|function| function.short == short).unwrap());
        assert_eq!(of("init"), 0xff_ff_00);
        assert_eq!(of("open"), 0xff_ff_02);
        assert_eq!(of("read_at") >> 8, 0x05_04);
        assert_eq!(of("write_all_end") >> 8, 0x02_ff);
    }

    #[test]
    fn a_loss_is_something() {
        assert!(MissingEvents::default().is_nothing());
        for lost in
            [MissingEvents { ring_full: 1, ..Lost::default() }, MissingEvents { missed: Some(1), ..Lost::default() }]
        {
            assert!(!lost.is_nothing());
        }
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let refused = |step: &str, log: &str| {
            let source = libbpf_rs::Error::from_raw_os_error(524);
            Refused { step: step.to_owned(), log: log.to_owned(), source }.to_string()
        };
        let text = refused("attach system_read_ends", "a\nb\nc\nd\ne\n");
        assert!(text.starts_with("the kernel refuses to attach system_read_ends: "), "{text}");
        assert!(text.ends_with(": b; c; d; e. Without the system calls: --no-system-calls"), "{text}");
        assert!(!refused("load the programs", "").contains("--no-system-calls"));
    }
}
