// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ring buffer of events. It is summed up into what other layouts keep in the kernel.

use std::{
    collections::BTreeMap,
    ffi::{c_int, c_void},
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
    ptr::NonNull,
    slice, thread,
    time::{Duration, Instant},
};

use bpfassay_tracer_common::{Event, Key, LATENCY_SLOTS, NO_DURATION, Value};

/// The consumer of a ring buffer.
#[derive(Debug)]
pub(crate) struct EventRing {
    ring: NonNull<libbpf_sys::ring_buffer>,
    sums: Box<RingSums>,
}

/// The sums of all events so far.
#[derive(Debug, Default)]
pub(crate) struct RingSums {
    /// Counts and histogram by key.
    pub(crate) counters: BTreeMap<Key, (Value, [u64; LATENCY_SLOTS])>,
    /// Number of records of a size that no program writes.
    pub(crate) malformed: u64,
}

impl EventRing {
    /// Maps the ring buffer `map`.
    ///
    /// # Errors
    /// The kernel's error, if the buffer cannot be mapped.
    pub(crate) fn new(map: BorrowedFd<'_>) -> io::Result<Self> {
        let mut sums = Box::<RingSums>::default();
        let context: *mut RingSums = &mut *sums;
        // SAFETY: the context is on the heap and lives as long as the ring; the callback casts it
        // to its own type.
        let ring = unsafe {
            libbpf_sys::ring_buffer__new(map.as_raw_fd(), Some(take), context.cast::<c_void>(), std::ptr::null())
        };
        // libbpf sets errno whenever it returns a null pointer. No other call may happen in
        // between.
        let error = io::Error::last_os_error();
        NonNull::new(ring).map(|ring| Self { ring, sums }).ok_or(error)
    }

    /// Returns a descriptor that becomes readable when there are events.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring is valid, and its descriptor lives as long as it does.
        unsafe { BorrowedFd::borrow_raw(libbpf_sys::ring_buffer__epoll_fd(self.ring.as_ptr())) }
    }

    /// Reads every event that any program had begun to write when this was called. A task that was
    /// preempted while it wrote an event blocks those behind it until it continues.
    ///
    /// # Errors
    /// The kernel's error, or `TimedOut` if a task does not continue.
    pub(crate) fn drain_all(&mut self) -> io::Result<&RingSums> {
        const PATIENCE: Duration = Duration::from_secs(10);
        const PAUSE: Duration = Duration::from_micros(200);
        // SAFETY: the ring is valid, and has one buffer.
        let (written, ring) = unsafe {
            let ring = libbpf_sys::ring_buffer__ring(self.ring.as_ptr(), 0);
            (libbpf_sys::ring__producer_pos(ring), ring)
        };
        let start = Instant::now();
        loop {
            self.drain()?;
            // SAFETY: as above.
            let taken = unsafe { libbpf_sys::ring__consumer_pos(ring) };
            // Positions only grow, modulo the size of a word; the buffer is far smaller than that.
            if (written.wrapping_sub(taken) as isize) <= 0 {
                return Ok(&self.sums);
            }
            if start.elapsed() > PATIENCE {
                let message = "a task that was writing an event has not continued for 10 s";
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Reads every event in the buffer and discards all sums.
    ///
    /// # Errors
    /// The errors of [`EventRing::drain_all`].
    pub(crate) fn reset(&mut self) -> io::Result<()> {
        self.drain_all()?;
        *self.sums = RingSums::default();
        Ok(())
    }

    /// Reads every event in the buffer.
    ///
    /// # Errors
    /// The kernel's error, if the buffer cannot be read.
    pub(crate) fn drain(&mut self) -> io::Result<&RingSums> {
        // SAFETY: the ring is valid; only the callback touches `sums` in the meantime.
        let status = unsafe { libbpf_sys::ring_buffer__consume(self.ring.as_ptr()) };
        if status < 0 { Err(io::Error::from_raw_os_error(-status)) } else { Ok(&self.sums) }
    }
}

impl Drop for EventRing {
    fn drop(&mut self) {
        // SAFETY: the ring is valid and not used any more.
        unsafe { libbpf_sys::ring_buffer__free(self.ring.as_ptr()) };
    }
}

/// Adds one record.
unsafe extern "C" fn take(context: *mut c_void, data: *mut c_void, size: libbpf_sys::size_t) -> c_int {
    // SAFETY: libbpf passes the context of `EventRing::new`, and a record valid for its size.
    let (sums, record) =
        unsafe { (&mut *context.cast::<RingSums>(), slice::from_raw_parts(data.cast::<u8>(), size as usize)) };
    sums.add(record);
    0
}

impl RingSums {
    pub(crate) fn add(&mut self, record: &[u8]) {
        let Some(event) = event(record) else {
            self.malformed += 1;
            return;
        };
        let (value, latency) = self.counters.entry(event.key).or_insert((Value::default(), [0; LATENCY_SLOTS]));
        value.calls = value.calls.wrapping_add(1);
        value.bytes = value.bytes.wrapping_add(event.bytes);
        value.errors = value.errors.wrapping_add(event.errors);
        if event.duration != NO_DURATION {
            let slot = event.duration.checked_ilog2().unwrap_or(0) as usize;
            latency[slot.min(LATENCY_SLOTS - 1)] += 1;
        }
    }
}

fn event(record: &[u8]) -> Option<Event> {
    let mut words = record.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
    if record.len() != size_of::<Event>() {
        return None;
    }
    let mut next = || words.next();
    let (cgroup, mount, word) = (next()?, next()?, next()?.to_ne_bytes());
    let half = |at: usize| u32::from_ne_bytes([word[at], word[at + 1], word[at + 2], word[at + 3]]);
    let key = Key { cgroup, mount, device: half(0), operation: half(4) };
    Some(Event { key, bytes: next()?, errors: next()?, duration: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(cgroup: u64, operation: u32, bytes: u64, errors: u64, duration: u64) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(cgroup.to_ne_bytes());
        record.extend(7u64.to_ne_bytes());
        record.extend(3u32.to_ne_bytes());
        record.extend(operation.to_ne_bytes());
        [bytes, errors, duration].iter().for_each(|word| record.extend(word.to_ne_bytes()));
        record
    }

    #[test]
    fn events_are_added_up_by_key_and_duration() {
        let mut sums = RingSums::default();
        sums.add(&record(1, 0, 4096, 0, NO_DURATION));
        sums.add(&record(1, 0, 10, 1, 1000));
        sums.add(&record(1, 1, 5, 0, 0));
        sums.add(&record(1, 1, 5, 0, u64::MAX - 1));
        sums.add(&[0; 40]);
        let (value, latency) = sums.counters[&Key { cgroup: 1, mount: 7, device: 3, operation: 0 }];
        assert_eq!(value, Value { calls: 2, bytes: 4106, errors: 1 });
        assert_eq!((latency[9], latency.iter().sum::<u64>()), (1, 1));
        let (_, latency) = sums.counters[&Key { cgroup: 1, mount: 7, device: 3, operation: 1 }];
        assert_eq!((latency[0], latency[LATENCY_SLOTS - 1]), (1, 1));
        assert_eq!(sums.malformed, 1);
    }
}
