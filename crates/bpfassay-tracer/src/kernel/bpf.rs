//! The BPF system call on file descriptors: programs, links and maps, whichever library made them.

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use libbpf_sys::{bpf_link_info, bpf_map_info, bpf_prog_info};

/// What the kernel tells of a loaded program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProgramInfo {
    pub(crate) jited_bytes: u32,
    pub(crate) instructions: u32,
    pub(crate) verified_instructions: Option<u32>,
    pub(crate) recursion_misses: Option<u64>,
    /// `run_cnt`; stands still while statistics are off.
    pub(crate) runs: u64,
    /// `run_time_ns`, likewise.
    pub(crate) run_time_ns: u64,
}

/// Asks the kernel about a program.
///
/// # Errors
/// The kernel's error.
pub(crate) fn program_info(program: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    let mut info = bpf_prog_info::default();
    // SAFETY: all bytes of `bpf_prog_info` may be written by the kernel; null pointers in it ask for lengths only.
    let known = unsafe { object_info(program, &mut info)? };
    let has = |offset: usize, size: usize| offset + size <= known;
    Ok(ProgramInfo {
        jited_bytes: info.jited_prog_len,
        instructions: info.xlated_prog_len / 8,
        verified_instructions: has(offset_of!(bpf_prog_info, verified_insns), 4).then_some(info.verified_insns),
        recursion_misses: has(offset_of!(bpf_prog_info, recursion_misses), 8).then_some(info.recursion_misses),
        runs: info.run_cnt,
        run_time_ns: info.run_time_ns,
    })
}

/// Hits of a link (kprobe, kretprobe, multi link, tracepoint) that ran no program, where the kernel tells (6.7 and
/// later). A tracepoint misses none by itself.
///
/// # Errors
/// The kernel's error.
pub(crate) fn link_missed(link: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    /// From the beginning of `bpf_link_info`: `type`, `id`, `prog_id` and padding; then in `perf_event`: `type` and
    /// padding, `func_name`, `name_len`, `offset`, `addr`, and `missed`, which ends here.
    const MISSED_ENDS: usize = 16 + 8 + 8 + 4 + 4 + 8 + 8;
    let mut info = bpf_link_info::default();
    // SAFETY: all bytes of `bpf_link_info` may be written by the kernel; null pointers in it ask for lengths only.
    let known = match unsafe { object_info(link, &mut info) } {
        Ok(known) => known,
        // Before 5.15 a kprobe is a perf event, not a link, and there is no information about it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => return Ok(None),
        Err(error) => return Err(error),
    };
    if known < MISSED_ENDS {
        return Ok(None);
    }
    // SAFETY: the kernel filled in the member for this type of link; any bytes are valid integers.
    unsafe {
        Ok(match info.type_ {
            libbpf_sys::BPF_LINK_TYPE_KPROBE_MULTI => Some(info.__bindgen_anon_1.kprobe_multi.missed),
            libbpf_sys::BPF_LINK_TYPE_PERF_EVENT => {
                let event = info.__bindgen_anon_1.perf_event;
                match event.type_ {
                    libbpf_sys::BPF_PERF_EVENT_KPROBE | libbpf_sys::BPF_PERF_EVENT_KRETPROBE => {
                        Some(event.__bindgen_anon_1.kprobe.missed)
                    }
                    libbpf_sys::BPF_PERF_EVENT_TRACEPOINT => Some(0),
                    _ => None,
                }
            }
            _ => None,
        })
    }
}

/// Fills `info` and returns how many bytes of it this kernel knows.
///
/// # Safety
/// Any bytes must make a valid `T`, and pointers in it must be null or valid for the lengths beside them.
unsafe fn object_info<T>(object: BorrowedFd<'_>, info: &mut T) -> io::Result<usize> {
    let mut length = size_of::<T>() as u32;
    // SAFETY: the kernel writes at most `length` bytes to `info`; the caller vouches for the rest.
    let status =
        unsafe { libbpf_sys::bpf_obj_get_info_by_fd(object.as_raw_fd(), (info as *mut T).cast(), &mut length) };
    if status < 0 { Err(io::Error::from_raw_os_error(-status)) } else { Ok(length as usize) }
}

/// A descriptor of the link with this id.
///
/// # Errors
/// The kernel's error.
pub(crate) fn link_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes a number and touches no memory of ours.
    own(unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) })
}

/// A link of `program` to `target`.
///
/// # Errors
/// The kernel's error.
pub(crate) fn link_create(
    program: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    attach: libbpf_sys::bpf_attach_type,
) -> io::Result<OwnedFd> {
    // SAFETY: numbers only; without options there are no pointers.
    own(unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), target.as_raw_fd(), attach, std::ptr::null()) })
}

/// A reading of the iterator behind `link`.
///
/// # Errors
/// The kernel's error.
pub(crate) fn iterator(link: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: takes a number and touches no memory of ours.
    own(unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) })
}

/// Switches statistics on, for every program of the machine, for as long as the descriptor is open (`BPF_ENABLE_STATS`,
/// Linux 5.8 and later).
///
/// # Errors
/// The kernel's error.
pub(crate) fn enable_statistics() -> io::Result<OwnedFd> {
    // SAFETY: takes a number and touches no memory of ours.
    own(unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) })
}

/// Takes over a descriptor that libbpf returned: below 0 is the negated error number.
fn own(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel just made the descriptor, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A map.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    key_size: usize,
    value_size: usize,
    per_cpu: bool,
    /// Of an array, how many elements it has.
    elements: Option<u32>,
    /// Values per key: one for each possible CPU in per-CPU maps.
    values: usize,
}

/// Most memory that one batch of entries is to take, in bytes, unless a single bucket needs more.
const BATCH: usize = 64 << 20;

/// A key and the values that each CPU holds of it, one after the other, or the only one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) values: Vec<Vec<u8>>,
}

impl Map {
    /// Asks the kernel what kind of map `fd` is.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        let mut info = bpf_map_info::default();
        // SAFETY: all bytes of `bpf_map_info` may be written by the kernel; there are no pointers in it.
        unsafe { object_info(fd.as_fd(), &mut info)? };
        let per_cpu = matches!(
            info.type_,
            libbpf_sys::BPF_MAP_TYPE_PERCPU_HASH
                | libbpf_sys::BPF_MAP_TYPE_PERCPU_ARRAY
                | libbpf_sys::BPF_MAP_TYPE_LRU_PERCPU_HASH
        );
        let values = if per_cpu { possible_cpus()? } else { 1 };
        let is_array = matches!(info.type_, libbpf_sys::BPF_MAP_TYPE_ARRAY | libbpf_sys::BPF_MAP_TYPE_PERCPU_ARRAY);
        let elements = is_array.then_some(info.max_entries);
        Ok(Self {
            fd,
            key_size: info.key_size as usize,
            value_size: info.value_size as usize,
            per_cpu,
            elements,
            values,
        })
    }

    /// The descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Bytes of a key.
    pub(crate) fn key_size(&self) -> usize {
        self.key_size
    }

    /// Bytes of a value.
    pub(crate) fn value_size(&self) -> usize {
        self.value_size
    }

    /// How often each value is there.
    pub(crate) fn copies(&self) -> usize {
        self.values
    }

    /// The values of `key`, one per CPU or the only one; `None` if it is not there.
    ///
    /// # Errors
    /// The kernel's error, or `InvalidInput` for a key of another size.
    pub(crate) fn lookup(&self, key: &[u8]) -> io::Result<Option<Vec<Vec<u8>>>> {
        if key.len() != self.key_size {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a key of another size than the map's"));
        }
        let stride = self.stride();
        let mut buffer = vec![0u8; stride * self.values];
        // SAFETY: the key has the map's key size, and the buffer has room for what the kernel writes for this map.
        let status = unsafe {
            libbpf_sys::bpf_map_lookup_elem(self.fd.as_raw_fd(), key.as_ptr().cast(), buffer.as_mut_ptr().cast())
        };
        match status {
            0.. => Ok(Some(buffer.chunks_exact(stride).map(|value| value[..self.value_size].to_vec()).collect())),
            _ if -status == libc::ENOENT => Ok(None),
            _ => Err(io::Error::from_raw_os_error(-status)),
        }
    }

    /// Every key of a hash map and its values. Keys that come or go meanwhile may or may not be among them.
    ///
    /// Asked for in batches (5.6 and later): a walk from key to key begins anew after one that an LRU map threw out.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn entries(&self) -> io::Result<Vec<Entry>> {
        self.first_entries(usize::MAX)
    }

    /// The elements of an array up to `most`, by index: per-CPU arrays have no batches before 5.13.
    fn first_elements(&self, elements: u32, most: usize) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for index in (0..elements).take(most) {
            let key = index.to_ne_bytes().to_vec();
            if let Some(values) = self.lookup(&key)? {
                entries.push(Entry { key, values });
            }
        }
        Ok(entries)
    }

    /// As [`Map::entries`], until there are `most` of them or more.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn first_entries(&self, most: usize) -> io::Result<Vec<Entry>> {
        if let Some(elements) = self.elements {
            return self.first_elements(elements, most);
        }
        let stride = self.stride();
        let per_key = stride * self.values;
        let mut entries = Vec::new();
        let mut room = (BATCH / (self.key_size + per_key).max(1)).clamp(1, 256);
        // The kernel's place marker: a bucket number, though it asks for the room of a key.
        let mut place: Option<Vec<u8>> = None;
        loop {
            let (mut keys, mut values) = (vec![0u8; room * self.key_size], vec![0u8; room * per_key]);
            let mut next = vec![0u8; self.key_size.max(8)];
            let mut count = u32::try_from(room).map_err(|_| io::Error::from_raw_os_error(libc::ENOSPC))?;
            // SAFETY: keys and values have room for `count` of the map's, and both place markers for a key.
            let status = unsafe {
                libbpf_sys::bpf_map_lookup_batch(
                    self.fd.as_raw_fd(),
                    place.as_mut().map_or(std::ptr::null_mut(), |place| place.as_mut_ptr().cast()),
                    next.as_mut_ptr().cast(),
                    keys.as_mut_ptr().cast(),
                    values.as_mut_ptr().cast(),
                    &mut count,
                    std::ptr::null(),
                )
            };
            let last = match status {
                0.. => false,
                _ if -status == libc::ENOENT => true,
                // One bucket has more keys than there is room for.
                _ if -status == libc::ENOSPC && room < 1 << 20 => {
                    room *= 4;
                    continue;
                }
                _ => return Err(io::Error::from_raw_os_error(-status)),
            };
            let (keys, values) = (keys.chunks_exact(self.key_size), values.chunks_exact(per_key));
            entries.extend(keys.zip(values).take(count as usize).map(|(key, values)| Entry {
                key: key.to_vec(),
                values: values.chunks_exact(stride).map(|value| value[..self.value_size].to_vec()).collect(),
            }));
            if last || entries.len() >= most {
                return Ok(entries);
            }
            place = Some(next);
        }
    }

    /// Bytes from one value to the next: per-CPU values are padded to eight bytes each.
    fn stride(&self) -> usize {
        if self.per_cpu { self.value_size.next_multiple_of(8) } else { self.value_size }
    }
}

/// CPUs that may ever be online: as many values as per-CPU maps have.
fn possible_cpus() -> io::Result<usize> {
    // SAFETY: reads a file of sysfs and touches no memory of ours.
    let count = unsafe { libbpf_sys::libbpf_num_possible_cpus() };
    usize::try_from(count).map_err(|_| io::Error::from_raw_os_error(-count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missed_count_lies_where_the_length_check_assumes() {
        let mut info = bpf_link_info::default();
        let start = &raw const info as usize;
        // SAFETY: only addresses are taken.
        let missed = unsafe { &raw mut info.__bindgen_anon_1.perf_event.__bindgen_anon_1.kprobe.missed as usize };
        assert_eq!(missed - start + 8, 56);
    }
}
