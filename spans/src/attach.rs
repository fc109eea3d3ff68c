// SPDX-License-Identifier: MIT OR Apache-2.0
//! The eBPF programs in the kernel.

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

/// Bytes where libelf may read words.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/spans.o")));

/// Longest text of libbpf and the verifier that is kept, in bytes; of a longer one, the end.
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

/// Why the kernel does not take the programs.
#[derive(Debug, thiserror::Error)]
#[error("the kernel refuses to {step}: {source}{}", hint(step, log))]
pub(crate) struct Refused {
    /// What was to be done.
    step: String,
    /// What libbpf and the verifier printed.
    log: String,
    #[source]
    source: libbpf_rs::Error,
}

/// The last lines of the log, which have the reason, and what to do.
fn hint(step: &str, log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let end = lines[lines.len().saturating_sub(4)..].join("; ");
    let instead = if step.contains("system_") { ". Without the system calls: --no-system-calls" } else { "" };
    format!("{}{end}{instead}", if end.is_empty() { "" } else { ": " })
}

/// What no event was written for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Lost {
    /// Events for which the ring buffer had no place.
    pub ring_full: u64,
    /// Calls for which the map of calls had no place.
    pub calls_full: u64,
    /// Returns of calls whose beginning was not seen.
    pub unmatched: u64,
    /// Calls within calls.
    pub nested: u64,
    /// Calls that never returned.
    pub abandoned: u64,
    /// System calls that the programs missed; `None` where it does not count them (before Linux
    /// 5.12).
    pub missed: Option<u64>,
}

impl Lost {
    /// Whether nothing was lost, as far as that is known.
    #[must_use]
    pub(crate) fn is_nothing(&self) -> bool {
        let Self { ring_full, calls_full, unmatched, nested, abandoned, missed } = *self;
        [ring_full, calls_full, unmatched, nested, abandoned, missed.unwrap_or(0)] == [0; 6]
    }
}

/// Loaded programs, attached.
pub(crate) struct Programs {
    object: Object,
    links: Vec<Link>,
    way: Way,
    functions: usize,
}

/// How programs are attached to functions of libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// All functions of a file by one link (`BPF_TRACE_UPROBE_MULTI`, Linux 6.6).
    Together,
    /// Each by an event of its own.
    Single,
}

/// What is attached at one of `places`: a function by its number, and where it begins.
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

/// What `multi_enter` of src/bpf/spans.bpf.c needs to know of a function.
fn cookie(function: usize) -> u64 {
    /// `NONE` of that file.
    const NONE: u8 = 255;
    let (datatype, status) = FUNCTIONS[function].shape.places();
    // The number of a function is less than a byte has: see the test.
    function as u64 | u64::from(datatype.unwrap_or(NONE)) << 8 | u64::from(status.unwrap_or(NONE)) << 16
}

/// The error of a step, with what libbpf printed.
fn refused(step: &str) -> impl FnOnce(libbpf_rs::Error) -> Refused {
    let step = step.to_owned();
    move |source| Refused { step, log: LOG.lock().unwrap_or_else(PoisonError::into_inner).clone(), source }
}

impl Programs {
    /// Loads the programs and attaches them to the functions of `libraries`, and, if wanted, to
    /// system calls. The ring buffer has `ring_bytes`. Where no `way` is asked for, it is the newer
    /// one if the kernel has it.
    ///
    /// # Errors
    /// [`Refused`].
    pub(crate) fn attach(
        libraries: &[Library],
        system_calls: bool,
        ring_bytes: u32,
        way: Option<Way>,
    ) -> Result<Self, Refused> {
        set_print(Some((PrintLevel::Warn, keep_log)));
        let by = |way| Self::attach_by(way, libraries, system_calls, ring_bytes);
        // Whatever it is that a kernel refuses of the newer way, it may take the older one.
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
        // Returns first: then there is no call of which only the beginning is seen.
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

    /// To how many functions programs are attached.
    pub(crate) fn functions(&self) -> usize {
        self.functions
    }

    /// How.
    pub(crate) fn way(&self) -> Way {
        self.way
    }

    /// The records, each of which `take` gets.
    ///
    /// # Errors
    /// The kernel's, where the ring buffer cannot be mapped.
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

    /// Detaches the programs; what is in the ring buffer stays. For each single uprobe the kernel
    /// waits until no CPU runs it any more, about 0.1 s, and holds a lock meanwhile
    /// (`perf_uprobe_destroy`), so that several threads would not be faster.
    pub(crate) fn detach(&mut self) {
        self.links.clear();
    }

    /// What was lost so far.
    ///
    /// # Errors
    /// The kernel's, where a count cannot be read.
    pub(crate) fn lost(&self) -> io::Result<Lost> {
        let map =
            self.object.maps().find(|map| map.name() == "tallies").ok_or_else(|| io::Error::other("no tallies"))?;
        let tally = |number: u32| -> io::Result<u64> {
            let counts = map.lookup_percpu(&number.to_ne_bytes(), MapFlags::ANY).map_err(other)?.unwrap_or_default();
            let words = counts.iter().filter_map(|count| count.first_chunk().copied().map(u64::from_ne_bytes));
            Ok(words.fold(0, u64::wrapping_add))
        };
        let mut missed = Some(0_u64);
        for program in self.object.progs() {
            // uprobes run without a check for recursion; those that are not loaded have no
            // descriptor.
            if program.name().to_string_lossy().starts_with("system_") && program.autoload() {
                let of_one = bpfassay_bpf::program_info(program.as_fd())?.recursion_misses;
                missed = missed.zip(of_one).map(|(sum, one)| sum.wrapping_add(one));
            }
        }
        Ok(Lost {
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

/// Whether a program is needed for these libraries.
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

/// The reader of the ring buffer.
pub(crate) struct Records<'a>(RingBuffer<'a>);

impl Records<'_> {
    /// Takes the records that are there, and waits at most `pause` for one.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn wait(&self, pause: Duration) -> io::Result<()> {
        match self.0.poll_raw(pause) {
            status if status >= 0 => Ok(()),
            // A signal.
            status if status == -rustix::io::Errno::INTR.raw_os_error() => Ok(()),
            status => Err(io::Error::from_raw_os_error(-status)),
        }
    }

    /// Takes the records that are there.
    ///
    /// # Errors
    /// The kernel's.
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
        assert!(Lost::default().is_nothing());
        for lost in [Lost { ring_full: 1, ..Lost::default() }, Lost { missed: Some(1), ..Lost::default() }] {
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
