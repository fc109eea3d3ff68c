// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creating, reading and writing maps.

use std::{
    fs, io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use crate::{
    object::map_info,
    syscall::{BpfCommand, call, name, number, open},
};

/// `BPF_MAP_TYPE_…`.
const HASH: u32 = 1;
const ARRAY: u32 = 2;
const PROGRAM_ARRAY: u32 = 3;
const PERCPU_HASH: u32 = 5;
const PERCPU_ARRAY: u32 = 6;
const LRU_HASH: u32 = 9;
const LRU_PERCPU_HASH: u32 = 10;
const RING_BUFFER: u32 = 27;
const TASK_STORAGE: u32 = 29;

/// `BPF_F_RDONLY_PROG`: programs cannot write to the map.
const READ_ONLY: u32 = 1 << 7;

/// Memory limit of a batch of entries in bytes, unless a single bucket needs more.
const BATCH: usize = 64 << 20;

/// A map to create.
#[derive(Debug, Clone, Copy)]
pub struct MapSpec<'a> {
    /// The map's type.
    pub kind: u32,
    /// Size of a key in bytes.
    pub key: u32,
    /// Size of a value in bytes.
    pub value: u32,
    /// Maximum number of entries.
    pub entries: u32,
    /// Flags (`BPF_F_…`).
    pub flags: u32,
    /// Types of keys and values: the BTF, and the two type ids.
    pub types: Option<(BorrowedFd<'a>, u32, u32)>,
    /// BTF id of a kernel structure, for maps of operations; 0 for none.
    pub kernel_type: u32,
    /// A token with the right to create the map, in place of the process's rights. `flags` must
    /// contain `BPF_F_TOKEN_FD`.
    pub token: Option<BorrowedFd<'a>>,
}

impl MapSpec<'_> {
    /// An array of one value of `size` bytes.
    #[must_use]
    pub const fn array(size: u32) -> Self {
        Self { kind: ARRAY, key: 4, value: size, entries: 1, flags: 0, types: None, kernel_type: 0, token: None }
    }

    /// Creates the map.
    ///
    /// # Errors
    /// The kernel's error if it does not have this type of map, refuses the sizes or flags, or has
    /// no memory, or if `CAP_BPF` is missing.
    pub fn create(self) -> io::Result<OwnedFd> {
        #[repr(C)]
        #[derive(Default)]
        struct Attributes {
            kind: u32,
            key: u32,
            value: u32,
            entries: u32,
            flags: u32,
            inner: u32,
            node: u32,
            name: [u8; 16],
            interface: u32,
            btf: u32,
            key_type: u32,
            value_type: u32,
            kernel_type: u32,
            extra: u64,
            value_object: u32,
            token: u32,
        }
        let (btf, key_type, value_type) = self.types.map_or((0, 0, 0), |(btf, key, value)| (number(btf), key, value));
        let mut attributes = Attributes {
            kind: self.kind,
            key: self.key,
            value: self.value,
            entries: self.entries,
            flags: self.flags,
            name: name("bpfassay"),
            btf,
            key_type,
            value_type,
            kernel_type: self.kernel_type,
            token: self.token.map_or(0, number),
            ..Attributes::default()
        };
        // SAFETY: there are no addresses, and the command returns a new descriptor.
        unsafe { open(BpfCommand::MapCreate, &mut attributes) }
    }
}

/// A key with its values: one per CPU, or a single one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapEntry {
    /// The key.
    pub key: Vec<u8>,
    /// The values.
    pub values: Vec<Vec<u8>>,
}

/// A map for reading and writing.
#[derive(Debug)]
pub struct BpfMap {
    fd: OwnedFd,
    key_size: usize,
    value_size: usize,
    kind: u32,
    flags: u32,
    per_cpu: bool,
    /// The number of elements of an array; `None` for other maps.
    elements: Option<u32>,
    /// Values per key: the number of possible CPUs for per-CPU maps, otherwise 1.
    values: usize,
}

/// The part of `union bpf_attr` for one entry.
#[repr(C)]
struct Element {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl BpfMap {
    /// Wraps the map `fd` and asks the kernel for its properties.
    ///
    /// # Errors
    /// The kernel's error; `InvalidData` for a per-CPU map if possible CPUs are not listed.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let info = map_info(fd.as_fd())?;
        let per_cpu = matches!(info.kind, PERCPU_HASH | PERCPU_ARRAY | LRU_PERCPU_HASH);
        let values = if per_cpu { possible_cpus()? } else { 1 };
        let elements = matches!(info.kind, ARRAY | PERCPU_ARRAY).then_some(info.max_entries);
        Ok(Self {
            fd,
            key_size: info.key_size as usize,
            value_size: info.value_size as usize,
            kind: info.kind,
            flags: info.flags,
            per_cpu,
            elements,
            values,
        })
    }

    /// The descriptor.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the size of a key in bytes.
    #[must_use]
    pub const fn key_size(&self) -> usize {
        self.key_size
    }

    /// Returns the size of a value in bytes.
    #[must_use]
    pub const fn value_size(&self) -> usize {
        self.value_size
    }

    /// Returns the number of values per key.
    #[must_use]
    pub const fn copies(&self) -> usize {
        self.values
    }

    /// Returns the values of `key`, one per CPU or a single one; `None` if there is no such key.
    ///
    /// # Errors
    /// The kernel's error, or `InvalidInput` if the key has another size.
    pub fn lookup(&self, key: &[u8]) -> io::Result<Option<Vec<Vec<u8>>>> {
        if key.len() != self.key_size {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a key of another size than the map's"));
        }
        let stride = self.stride();
        let mut buffer = vec![0u8; stride * self.values];
        let mut element = self.element(key.as_ptr() as u64, buffer.as_mut_ptr() as u64);
        // SAFETY: the key has the map's key size, and the buffer has room for everything that the
        // kernel writes for this map.
        match unsafe { call(BpfCommand::MapLookupElem, &mut element) } {
            Ok(_) => Ok(Some(buffer.chunks_exact(stride).map(|value| value[..self.value_size].to_vec()).collect())),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the value of `key` in a map that is not per-CPU.
    ///
    /// # Errors
    /// The kernel's error, or `InvalidInput` for a per-CPU map or another size of key or value.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if key.len() != self.key_size || value.len() != self.value_size || self.per_cpu {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a key or value of another size than the map's"));
        }
        let mut element = self.element(key.as_ptr() as u64, value.as_ptr() as u64);
        // SAFETY: key and value have the map's sizes.
        unsafe { call(BpfCommand::MapUpdateElem, &mut element) }.map(drop)
    }

    /// Undoes what programs wrote: deletes all keys of a hash map, and zeroes an array. Nothing may
    /// write to the map in the meantime.
    ///
    /// Some maps are not changed: maps that programs cannot write to, and program arrays. The
    /// content of a ring buffer belongs to its reader. Task storage ends with the tasks.
    ///
    /// # Errors
    /// The kernel's error, or `Unsupported` for other types of maps.
    pub fn empty(&self) -> io::Result<()> {
        match self.kind {
            _ if self.flags & READ_ONLY != 0 => Ok(()),
            RING_BUFFER | TASK_STORAGE | PROGRAM_ARRAY => Ok(()),
            HASH | PERCPU_HASH | LRU_HASH | LRU_PERCPU_HASH => {
                self.entries()?.iter().try_for_each(|entry| self.delete(&entry.key))
            }
            ARRAY | PERCPU_ARRAY => {
                let zeros = vec![0u8; self.stride() * self.values];
                (0..self.elements.unwrap_or(0)).try_for_each(|index| {
                    let key = index.to_ne_bytes();
                    let mut element = self.element(key.as_ptr() as u64, zeros.as_ptr() as u64);
                    // SAFETY: the key is an index, and the kernel reads no more zeros than there
                    // are.
                    unsafe { call(BpfCommand::MapUpdateElem, &mut element) }.map(drop)
                })
            }
            kind => Err(io::Error::new(io::ErrorKind::Unsupported, format!("maps of type {kind} cannot be emptied"))),
        }
    }

    /// Deletes a key that [`BpfMap::entries`] returned. A missing key is not an error.
    fn delete(&self, key: &[u8]) -> io::Result<()> {
        let mut element = self.element(key.as_ptr() as u64, 0);
        // SAFETY: the key has the map's key size, because the kernel returned it.
        match unsafe { call(BpfCommand::MapDeleteElem, &mut element) } {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
            _ => Ok(()),
        }
    }

    /// Forbids later changes by system calls, so the verifier can treat the content as constant.
    ///
    /// # Errors
    /// The kernel's error if the map cannot be frozen: it is mapped writable, or its type does not
    /// support the command.
    pub fn freeze(&self) -> io::Result<()> {
        // SAFETY: there are no addresses.
        unsafe { call(BpfCommand::MapFreeze, &mut [number(self.fd())]) }.map(drop)
    }

    fn element(&self, key: u64, value: u64) -> Element {
        Element { map: number(self.fd()), unused: 0, key, value, flags: 0 }
    }

    /// Returns every key of a hash map with its values. Concurrent changes may or may not show.
    ///
    /// Keys are read in batches (Linux 5.6 and later). A walk from key to key would restart after a
    /// key that an LRU map evicted.
    ///
    /// # Errors
    /// The kernel's error if a lookup fails or the map's type does not support batches.
    pub fn entries(&self) -> io::Result<Vec<MapEntry>> {
        self.first_entries(usize::MAX)
    }

    /// Returns up to `most` elements of an array, by index: before 5.13, per-CPU arrays have no
    /// batches.
    fn first_elements(&self, elements: u32, most: usize) -> io::Result<Vec<MapEntry>> {
        let mut entries = Vec::new();
        for index in (0..elements).take(most) {
            let key = index.to_ne_bytes().to_vec();
            if let Some(values) = self.lookup(&key)? {
                entries.push(MapEntry { key, values });
            }
        }
        Ok(entries)
    }

    /// Like [`BpfMap::entries`], but stops when there are `most` entries or more.
    ///
    /// # Errors
    /// The errors of [`BpfMap::entries`].
    pub fn first_entries(&self, most: usize) -> io::Result<Vec<MapEntry>> {
        if let Some(elements) = self.elements {
            return self.first_elements(elements, most);
        }
        let stride = self.stride();
        let mut entries = Vec::new();
        self.in_batches(most, |key, values| {
            entries.push(MapEntry {
                key: key.to_vec(),
                values: values.chunks_exact(stride).map(|value| value[..self.value_size].to_vec()).collect(),
            });
        })?;
        Ok(entries)
    }

    /// Returns how many keys a hash map has. Concurrent changes may or may not count.
    ///
    /// # Errors
    /// The errors of [`BpfMap::entries`].
    pub fn count_keys(&self) -> io::Result<usize> {
        self.in_batches(usize::MAX, |_, _| ())
    }

    /// Calls `take` with each key of a map that is no array and with all values of the key, until
    /// there were `most` keys or more. Returns the number of keys.
    fn in_batches(&self, most: usize, mut take: impl FnMut(&[u8], &[u8])) -> io::Result<usize> {
        #[repr(C)]
        struct Batch {
            from: u64,
            next: u64,
            keys: u64,
            values: u64,
            count: u32,
            map: u32,
            flags: [u64; 2],
        }
        let per_key = self.stride() * self.values;
        let mut taken = 0;
        let mut room = (BATCH / (self.key_size + per_key).max(1)).clamp(1, 256);
        // The kernel's position marker: a bucket number, for which it wants the size of a key.
        let mut place: Option<Vec<u8>> = None;
        loop {
            let (mut keys, mut values) = (vec![0u8; room * self.key_size], vec![0u8; room * per_key]);
            let mut next = vec![0u8; self.key_size.max(8)];
            let mut batch = Batch {
                from: place.as_ref().map_or(0, |place| place.as_ptr() as u64),
                next: next.as_mut_ptr() as u64,
                keys: keys.as_mut_ptr() as u64,
                values: values.as_mut_ptr() as u64,
                count: u32::try_from(room).map_err(|_| io::Error::from_raw_os_error(libc::ENOSPC))?,
                map: number(self.fd()),
                flags: [0; 2],
            };
            // SAFETY: keys and values have room for `count` entries of the map, and both position
            // markers for a key.
            let last = match unsafe { call(BpfCommand::MapLookupBatch, &mut batch) } {
                Ok(_) => false,
                Err(error) => match error.raw_os_error() {
                    Some(libc::ENOENT) => true,
                    // A bucket has more keys than there is room for.
                    Some(libc::ENOSPC) if room < 1 << 20 => {
                        room *= 4;
                        continue;
                    }
                    _ => return Err(error),
                },
            };
            let (keys, values) = (keys.chunks_exact(self.key_size), values.chunks_exact(per_key));
            for (key, values) in keys.zip(values).take(batch.count as usize) {
                take(key, values);
                taken += 1;
            }
            if last || taken >= most {
                return Ok(taken);
            }
            place = Some(next);
        }
    }

    /// Returns the distance between values in bytes. Per-CPU values are padded to multiples of 8.
    const fn stride(&self) -> usize {
        if self.per_cpu { self.value_size.next_multiple_of(8) } else { self.value_size }
    }
}

/// Returns the number of possible CPUs, which is the number of values in per-CPU maps.
fn possible_cpus() -> io::Result<usize> {
    const PATH: &str = "/sys/devices/system/cpu/possible";
    let text = fs::read_to_string(PATH)?;
    count(text.trim())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{PATH} holds no list of CPUs")))
}

/// Counts the CPUs in a list such as `0-3,5`.
fn count(list: &str) -> Option<usize> {
    let ranges = list.split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    ranges.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a map of 16 entries with keys of 8 bytes and values of `value` bytes; prints and
    /// returns `None` if this machine forbids it.
    fn map(kind: u32, value: u32, flags: u32) -> Option<BpfMap> {
        let key = if matches!(kind, ARRAY | PERCPU_ARRAY) { 4 } else { 8 };
        match (MapSpec { kind, key, value, entries: 16, flags, ..MapSpec::array(value) }).create() {
            Ok(fd) => Some(BpfMap::new(fd).unwrap()),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
                eprintln!("not checked: this machine forbids maps: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn write(map: &BpfMap, key: &[u8], byte: u8) -> io::Result<()> {
        let values = vec![byte; map.stride() * map.values];
        let mut element = map.element(key.as_ptr() as u64, values.as_ptr() as u64);
        // SAFETY: the key has the map's size, and there are values for each CPU.
        unsafe { call(BpfCommand::MapUpdateElem, &mut element) }.map(drop)
    }

    #[test]
    fn an_emptied_map_is_as_when_it_was_created() {
        for kind in [HASH, PERCPU_HASH, LRU_HASH, LRU_PERCPU_HASH] {
            let Some(map) = map(kind, 20, 0) else { return };
            for round in 0..3 {
                // The map is filled up: all slots must be free in each round.
                (0..16_u64).for_each(|key| write(&map, &(key + round).to_ne_bytes(), 7).unwrap());
                let entries = map.entries().unwrap();
                assert!(!entries.is_empty());
                assert_eq!(map.count_keys().unwrap(), entries.len());
                map.empty().unwrap();
                assert_eq!(map.entries().unwrap(), [], "type {kind}");
            }
        }
        for kind in [ARRAY, PERCPU_ARRAY] {
            let Some(map) = map(kind, 20, 0) else { return };
            (0..16_u32).for_each(|index| write(&map, &index.to_ne_bytes(), 7).unwrap());
            map.empty().unwrap();
            let entries = map.entries().unwrap();
            assert_eq!(entries.len(), 16);
            assert!(entries.iter().all(|entry| entry.values == vec![vec![0; 20]; map.copies()]), "type {kind}");
        }
    }

    #[test]
    fn constants_stay() {
        let Some(map) = map(ARRAY, 4, READ_ONLY) else { return };
        write(&map, &[0; 4], 7).unwrap();
        map.freeze().unwrap();
        map.empty().unwrap();
        assert_eq!(map.lookup(&[0; 4]).unwrap(), Some(vec![vec![7; 4]]));
    }

    #[test]
    fn a_type_of_map_that_is_not_known_is_not_taken_for_empty() {
        /// `BPF_MAP_TYPE_QUEUE`.
        const QUEUE: u32 = 22;
        let queue = MapSpec { kind: QUEUE, key: 0, ..MapSpec::array(8) };
        let Ok(fd) = queue.create() else { return eprintln!("not checked: this machine forbids maps") };
        assert_eq!(BpfMap::new(fd).unwrap().empty().unwrap_err().kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!((count("0"), count("0-3"), count("0-1,4,6-7")), (Some(1), Some(4), Some(5)));
        assert_eq!((count(""), count("3-1"), count("0-x")), (None, None, None));
        assert!(possible_cpus().unwrap() > 0);
    }
}
