// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns events into spans.
//!
//! A file that a process opens becomes a span from the start of `MPI_File_open` to the end of
//! `MPI_File_close`. The span is the root of a trace. Calls on the file are its children. System
//! calls that read and write are children of the call in which they happened.

use std::borrow::Cow;

use serde::Serialize;

use crate::{
    aged::Aged,
    bytes::{Data, Family, data, low_half},
    event::{CallEvent, SpanEvent, SystemCall, When, decode},
    functions::{DataDirection, Shape},
    span::{AttributeValue, Identifiers, Of, Span},
};

/// Most files that are open at once. Beyond that, the oldest count as never closed.
const MAX_FILES: usize = 65_536;
/// Most processes whose ranks are cached.
const MAX_PROCESSES: usize = 16_384;

/// The name of a file's span.
pub const FILE: &str = "MPI file";

/// Counts of what was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// Calls of MPI-IO.
    pub calls: u64,
    /// Opened files.
    pub files: u64,
    /// System calls that read and write within calls of MPI-IO.
    pub system_calls: u64,
    /// Bytes that calls moved, if known.
    pub bytes: u64,
    /// Calls that moved an unknown number of bytes.
    pub calls_of_unknown_bytes: u64,
    /// Calls on files whose opening was not seen. Their spans have no parent.
    pub calls_without_file: u64,
    /// Files whose closing was not seen.
    pub files_not_closed: u64,
    /// Records that none of the eBPF programs writes.
    pub malformed: u64,
}

/// An open file.
#[derive(Debug)]
struct OpenFile {
    when: When,
    last: u64,
    family: Family,
    path: Option<(Vec<u8>, bool)>,
    mode: i64,
    calls: u64,
    read: u64,
    written: u64,
}

/// Turns events into spans.
#[derive(Debug)]
pub struct Assembler<R> {
    identifiers: Identifiers,
    clock: ClockOffset,
    libraries: Vec<Family>,
    rank: R,
    ranks: Aged<u32, Option<u32>>,
    files: Aged<(u32, u64), OpenFile>,
    seen: Seen,
}

/// The difference between the time of day and the clock of events, which starts at boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// The difference in nanoseconds.
    pub offset: u64,
}

impl ClockOffset {
    fn time(self, monotonic: u64) -> u64 {
        monotonic.saturating_add(self.offset)
    }
}

impl<R: FnMut(u32) -> Option<u32>> Assembler<R> {
    /// An assembler that derives identifiers from `seed`. `libraries` has the families by the
    /// library numbers in events. `rank` finds the rank of a process.
    pub fn new(seed: [u8; 16], clock: ClockOffset, libraries: Vec<Family>, rank: R) -> Self {
        Self {
            identifiers: Identifiers::new(seed),
            clock,
            libraries,
            rank,
            ranks: Aged::new(MAX_PROCESSES),
            files: Aged::new(MAX_FILES),
            seen: Seen::default(),
        }
    }

    /// Returns the counts so far.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    /// Passes the spans that follow from one ring-buffer record to `out`.
    pub fn take(&mut self, record: &[u8], out: &mut impl FnMut(Span)) {
        match decode(record) {
            Some(SpanEvent::System(event)) => self.system_call(&event, out),
            Some(SpanEvent::Call(event)) => match self.libraries.get(event.library as usize) {
                Some(&family) => self.call(event, family, out),
                None => self.seen.malformed += 1,
            },
            None => self.seen.malformed += 1,
        }
    }

    /// Passes the spans of files that are still open to `out`.
    pub fn finish(&mut self, out: &mut impl FnMut(Span)) {
        for file in self.files.take(|_| true) {
            self.not_closed(file, out);
        }
    }

    fn call(&mut self, event: CallEvent, family: Family, out: &mut impl FnMut(Span)) {
        let process = event.when.process;
        match event.function.shape {
            Shape::Init => {
                // A new program runs under this process id. Files of an earlier one are gone.
                self.ranks.remove(process);
                for file in self.files.take(|(of, _)| of == process) {
                    self.not_closed(file, out);
                }
                self.rank(process);
            }
            Shape::Open => self.open(event, family, out),
            _ => {
                let data = data(&event, family);
                let key = event.handle.map(|handle| (process, handle));
                self.count(&event, &data);
                let parent = key.and_then(|key| self.files.get_mut(key)).map(|file| {
                    file.add(&event, &data);
                    file.when
                });
                if parent.is_none() {
                    self.seen.calls_without_file += 1;
                }
                let span = self.call_span(&event, family, &data, parent);
                out(span);
                let closed = event.function.shape == Shape::Close && event.result == 0;
                if let Some(file) = key.filter(|_| closed).and_then(|key| self.files.remove(key)) {
                    out(self.file_span(file, true));
                }
            }
        }
    }

    fn open(&mut self, event: CallEvent, family: Family, out: &mut impl FnMut(Span)) {
        let data = Data::default();
        self.count(&event, &data);
        let handle = event.handle.filter(|_| event.result == 0);
        let mut span = self.call_span(&event, family, &data, handle.map(|_| event.when));
        path_attributes(event.path.as_ref(), &mut span.attributes);
        out(span);
        let Some(handle) = handle else { return };
        self.seen.files += 1;
        let file = OpenFile {
            when: event.when,
            last: event.when.end,
            family,
            mode: low_half(event.arguments[2]),
            path: event.path,
            calls: 1,
            read: 0,
            written: 0,
        };
        // An open file with the same key was closed unseen.
        let gone: Vec<OpenFile> = self.files.insert((event.when.process, handle), file).collect();
        for file in gone {
            self.not_closed(file, out);
        }
    }

    fn count(&mut self, event: &CallEvent, data: &Data) {
        self.seen.calls += 1;
        match (event.function.shape, data.moved) {
            (_, Some((bytes, _))) => self.seen.bytes = self.seen.bytes.saturating_add(bytes),
            (Shape::Data { completes: true, .. } | Shape::End(_), None) if event.result == 0 => {
                self.seen.calls_of_unknown_bytes += 1;
            }
            _ => {}
        }
    }

    fn not_closed(&mut self, file: OpenFile, out: &mut impl FnMut(Span)) {
        self.seen.files_not_closed += 1;
        out(self.file_span(file, false));
    }

    fn rank(&mut self, process: u32) -> Option<u32> {
        if let Some(rank) = self.ranks.get_mut(process) {
            return *rank;
        }
        let rank = (self.rank)(process);
        let _: usize = self.ranks.insert(process, rank).count();
        rank
    }

    /// Returns the attributes that every span has.
    fn common(&mut self, when: When) -> Vec<(&'static str, AttributeValue)> {
        let mut attributes = Vec::with_capacity(16);
        attributes.push(("process.pid", AttributeValue::Number(when.process.into())));
        attributes.push(("thread.id", AttributeValue::Number(when.thread.into())));
        if let Some(rank) = self.rank(when.process) {
            attributes.push(("mpi.rank", AttributeValue::Number(rank.into())));
        }
        attributes
    }

    fn call_span(&mut self, event: &CallEvent, family: Family, data: &Data, file: Option<When>) -> Span {
        let When { process, thread, begin, end } = event.when;
        let mut attributes = self.common(event.when);
        attributes.push(("mpi.library", AttributeValue::Text(family.name().into())));
        attributes.push(("mpi.result", AttributeValue::Number(event.result.into())));
        let mut number =
            |name, value: Option<i64>| attributes.extend(value.map(|value| (name, AttributeValue::Number(value))));
        number("mpi.io.offset", data.offset);
        number("mpi.io.count", data.count);
        number("mpi.io.requested", data.requested.and_then(|bytes| i64::try_from(bytes).ok()));
        if let Some((bytes, source)) = data.moved {
            attributes.push(("mpi.io.bytes.moved", AttributeValue::unsigned(bytes)));
            attributes.push(("mpi.io.bytes.source", AttributeValue::Text(source.name().into())));
        }
        let root = file.unwrap_or(event.when);
        Span {
            trace: self.identifiers.of(Of::Trace, root.process, root.thread, root.begin),
            id: self.identifiers.span(Of::Call, process, thread, begin),
            parent: file.map(|file| self.identifiers.span(Of::File, file.process, file.thread, file.begin)),
            name: event.function.name,
            begin: self.clock.time(begin),
            end: self.clock.time(end),
            failed: event.result != 0,
            attributes,
        }
    }

    fn system_call(&mut self, event: &SystemCall, out: &mut impl FnMut(Span)) {
        let When { process, thread, begin, end } = event.when;
        self.seen.system_calls += 1;
        // A call that opens a file has no handle yet, and its trace begins with the call.
        let opened = event.handle.and_then(|handle| self.files.get_mut((process, handle))).map(|file| file.when);
        let root = opened.map_or((thread, event.call_begin), |file| (file.thread, file.begin));
        let mut attributes = self.common(event.when);
        attributes.push(("file.inode", AttributeValue::Text(event.inode.to_string().into())));
        let (major, minor) = event.device;
        attributes.push(("file.device", AttributeValue::Text(format!("{major}:{minor}").into())));
        if let Some(offset) = event.offset {
            attributes.push(("syscall.offset", AttributeValue::unsigned(offset)));
        }
        if let Some(requested) = event.requested {
            attributes.push(("syscall.requested", AttributeValue::unsigned(requested)));
        }
        attributes.push(("syscall.result", AttributeValue::Number(event.result)));
        out(Span {
            trace: self.identifiers.of(Of::Trace, process, root.0, root.1),
            id: self.identifiers.span(Of::SystemCall, process, thread, begin),
            parent: Some(self.identifiers.span(Of::Call, process, thread, event.call_begin)),
            name: event.name,
            begin: self.clock.time(begin),
            end: self.clock.time(end),
            failed: event.result < 0,
            attributes,
        });
    }

    fn file_span(&mut self, file: OpenFile, closed: bool) -> Span {
        let When { process, thread, begin, .. } = file.when;
        let mut attributes = self.common(file.when);
        attributes.push(("mpi.library", AttributeValue::Text(file.family.name().into())));
        attributes.push(("mpi.io.mode", AttributeValue::Number(file.mode)));
        attributes.push(("mpi.io.calls", AttributeValue::unsigned(file.calls)));
        attributes.push(("mpi.io.bytes.read", AttributeValue::unsigned(file.read)));
        attributes.push(("mpi.io.bytes.written", AttributeValue::unsigned(file.written)));
        attributes.push(("mpi.io.closed", AttributeValue::Flag(closed)));
        path_attributes(file.path.as_ref(), &mut attributes);
        Span {
            trace: self.identifiers.of(Of::Trace, process, thread, begin),
            id: self.identifiers.span(Of::File, process, thread, begin),
            parent: None,
            name: FILE,
            begin: self.clock.time(begin),
            end: self.clock.time(file.last),
            failed: false,
            attributes,
        }
    }
}

impl OpenFile {
    fn add(&mut self, event: &CallEvent, data: &Data) {
        self.calls += 1;
        self.last = self.last.max(event.when.end);
        let (Some((bytes, _)), Shape::Data { direction, .. } | Shape::End(direction)) =
            (data.moved, event.function.shape)
        else {
            return;
        };
        let sum = if direction == DataDirection::Read { &mut self.read } else { &mut self.written };
        *sum = sum.saturating_add(bytes);
    }
}

/// Adds the path of a file. OpenTelemetry's strings are UTF-8, so other bytes are replaced.
fn path_attributes(path: Option<&(Vec<u8>, bool)>, attributes: &mut Vec<(&'static str, AttributeValue)>) {
    if let Some((path, whole)) = path {
        attributes.push(("file.path", AttributeValue::Text(Cow::Owned(String::from_utf8_lossy(path).into_owned()))));
        if !whole {
            attributes.push(("file.path.truncated", AttributeValue::Flag(true)));
        }
    }
}

#[cfg(test)]
#[path = "assemble_tests.rs"]
mod tests;
