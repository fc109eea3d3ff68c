// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decodes rows from the bytes of keys and values, in the layout of `bpfassay_tracer_common`.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    mem::{offset_of, size_of},
};

use bpfassay_protocol::{
    Operation,
    operation::{Totals, Variant},
    tracer_messages::{CounterRow, Device, Task},
};
use bpfassay_tracer_common::{
    Histogram, Key, LATENCY_SLOTS, NAME_BYTES, PATH_BYTES, Pair, PathKey, SLOTS, Slot, ThreadKey, Value, VariantKey,
    variant,
};

use super::error::DecodeError;
use crate::kernel::mountinfo::Mounts;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowKey {
    key: Key,
    /// Number of the variant, if the layout has variants.
    variant: Option<u32>,
    /// The thread, if the layout has threads.
    task: Option<Task>,
}

impl From<Key> for RowKey {
    fn from(key: Key) -> Self {
        Self { key, variant: None, task: None }
    }
}

pub(crate) type Rows = BTreeMap<RowKey, CounterRow>;

/// Decodes a map's key.
///
/// # Errors
/// [`DecodeError::Size`] if `bytes` do not have the size of a key.
pub(crate) fn key(bytes: &[u8]) -> Result<Key, DecodeError> {
    size_is("key", bytes, size_of::<Key>())?;
    Ok(Key {
        cgroup: u64_at(bytes, offset_of!(Key, cgroup)),
        mount: u64_at(bytes, offset_of!(Key, mount)),
        device: u32_at(bytes, offset_of!(Key, device)),
        operation: u32_at(bytes, offset_of!(Key, operation)),
    })
}

/// Decodes a map's key, with variant and thread if the layout has them.
///
/// # Errors
/// [`DecodeError::Size`] if `bytes` do not have the size of any key.
pub(crate) fn row_key(bytes: &[u8]) -> Result<RowKey, DecodeError> {
    if bytes.len() == size_of::<VariantKey>() {
        let key = key(&bytes[offset_of!(VariantKey, key)..][..size_of::<Key>()])?;
        return Ok(RowKey { key, variant: Some(u32_at(bytes, offset_of!(VariantKey, variant))), task: None });
    }
    if bytes.len() != size_of::<ThreadKey>() {
        return key(bytes).map(RowKey::from);
    }
    let [process, thread] = [32, 0].map(|shift| u64_at(bytes, offset_of!(ThreadKey, task)) >> shift & 0xffff_ffff);
    let name = bytes[offset_of!(ThreadKey, name)..][..NAME_BYTES].split(|&byte| byte == 0).next().unwrap_or_default();
    let task = Task::new(process as u32, thread as u32, String::from_utf8_lossy(name));
    Ok(RowKey { task: Some(task), ..row_key(&bytes[offset_of!(ThreadKey, call)..][..size_of::<VariantKey>()])? })
}

/// Returns the variant of `operation` with this number. `None` if the operation has no variants, or
/// the program cannot tell.
///
/// # Errors
/// [`DecodeError::Variant`] if the operation has no such variant.
fn variant_of(operation: Operation, number: u32) -> Result<Option<Variant>, DecodeError> {
    match (operation, number) {
        (Operation::Open, variant::USUAL) => Ok(Some(Variant::Open)),
        (Operation::Open, variant::EXEC) => Ok(Some(Variant::Exec)),
        (Operation::Fsync, variant::USUAL) => Ok(Some(Variant::Fsync)),
        (Operation::Fsync, variant::FDATASYNC) => Ok(Some(Variant::Fdatasync)),
        (_, variant::USUAL | variant::UNKNOWN) => Ok(None),
        _ => Err(DecodeError::Variant { number, operation }),
    }
}

/// Decodes the key of the layout with paths. Mount and device are of the topmost mount that is now
/// at the path. They are 0 if nothing is mounted at the path, as for truncated paths. A mount that
/// another one covers is not distinguished from it.
///
/// # Errors
/// [`DecodeError::Size`] if `bytes` do not have the size of a key with a path.
pub(crate) fn key_by_path(bytes: &[u8], mounts: &Mounts) -> Result<Key, DecodeError> {
    size_is("key", bytes, size_of::<PathKey>())?;
    let path = &bytes[offset_of!(PathKey, path)..][..PATH_BYTES];
    let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
    let (mount, device) = mounts.at(&String::from_utf8_lossy(path)).unwrap_or((0, Device { major: 0, minor: 0 }));
    Ok(Key {
        cgroup: u64_at(bytes, offset_of!(PathKey, cgroup)),
        mount,
        device: device.major << 20 | device.minor,
        operation: u32_at(bytes, offset_of!(PathKey, operation)),
    })
}

/// Sums the values of all CPUs.
///
/// # Errors
/// [`DecodeError::Size`] if an element of `values` does not have the size of a value.
pub(crate) fn sum<V: AsRef<[u8]>>(values: impl IntoIterator<Item = V>) -> Result<Value, DecodeError> {
    let mut sum = Value::default();
    for value in values {
        let value = value.as_ref();
        size_is("value", value, size_of::<Value>())?;
        sum.calls = sum.calls.wrapping_add(u64_at(value, offset_of!(Value, calls)));
        sum.bytes = sum.bytes.wrapping_add(u64_at(value, offset_of!(Value, bytes)));
        sum.errors = sum.errors.wrapping_add(u64_at(value, offset_of!(Value, errors)));
    }
    Ok(sum)
}

/// Returns the contents of the slots of one operation that are in use, on any CPU.
///
/// # Errors
/// [`DecodeError::Size`] if an element of `values` does not have the size of the slots of one
/// operation.
pub(crate) fn slots(operation: u32, values: &[Vec<u8>]) -> Result<Vec<(Key, Value)>, DecodeError> {
    let mut found = Vec::new();
    for pairs in values {
        size_is("array of slots", pairs, SLOTS / 2 * size_of::<Pair>())?;
        let pairs = pairs.chunks_exact(size_of::<Pair>()).map(|pair| &pair[offset_of!(Pair, slots)..]);
        for slot in pairs.flat_map(|slots| slots.chunks_exact(size_of::<Slot>())) {
            let value = sum([&slot[offset_of!(Slot, value)..][..size_of::<Value>()]])?;
            if value.calls > 0 {
                let key = key(&slot[offset_of!(Slot, key)..][..size_of::<Key>()])?;
                found.push((Key { operation, ..key }, value));
            }
        }
    }
    Ok(found)
}

/// Sums the histograms of all CPUs.
///
/// # Errors
/// [`DecodeError::Size`] if an element of `values` does not have the size of a histogram.
pub(crate) fn histogram<V: AsRef<[u8]>>(
    values: impl IntoIterator<Item = V>,
) -> Result<[u64; LATENCY_SLOTS], DecodeError> {
    let mut sum = [0u64; LATENCY_SLOTS];
    for value in values {
        let value = value.as_ref();
        size_is("histogram", value, size_of::<Histogram>())?;
        for (slot, sum) in sum.iter_mut().enumerate() {
            *sum = sum.wrapping_add(u64_at(value, 8 * slot));
        }
    }
    Ok(sum)
}

/// Creates a row.
///
/// # Errors
/// [`DecodeError::Operation`] if the number of the key's operation is too large.
pub(crate) fn row_of(key: Key, value: Value, latency: &[u64]) -> Result<CounterRow, DecodeError> {
    let number = key.operation;
    let operation = usize::try_from(number).ok().and_then(|index| Operation::COUNTED.get(index));
    let used = latency.iter().rposition(|&calls| calls > 0).map_or(0, |last| last + 1);
    Ok(CounterRow {
        cgroup: key.cgroup,
        device: Device::from_kernel(key.device),
        mount: key.mount,
        path: None,
        operation: *operation.ok_or(DecodeError::Operation { number })?,
        variant: None,
        task: None,
        totals: Totals { calls: value.calls, bytes: value.bytes, errors: value.errors },
        latency: latency[..used].to_vec(),
    })
}

/// Adds to the row of `key`.
///
/// # Errors
/// [`DecodeError::Operation`] if the number of the key's operation is too large,
/// [`DecodeError::Variant`] if the operation has no such variant.
pub(crate) fn add(rows: &mut Rows, key: RowKey, value: Value) -> Result<(), DecodeError> {
    let row = row_of(key.key, value, &[])?;
    let variant = key.variant.map(|number| variant_of(row.operation, number)).transpose()?.flatten();
    let row = CounterRow { variant, task: key.task.clone(), ..row };
    match rows.entry(key) {
        Entry::Vacant(vacant) => {
            vacant.insert(row);
        }
        Entry::Occupied(mut occupied) => occupied.get_mut().totals += row.totals,
    }
    Ok(())
}

/// Stores a histogram in the row of `key`, or in the first row if the key has several.
///
/// # Errors
/// [`DecodeError::Operation`] if the number of the key's operation is too large.
pub(crate) fn add_latency(rows: &mut Rows, key: Key, latency: &[u64]) -> Result<(), DecodeError> {
    let row = row_of(key, Value::default(), latency)?;
    let first = rows.range_mut(RowKey::from(key)..).next();
    // A call that was timed after its row was read has no row yet. It is in the next reading.
    if let Some((_, known)) = first.filter(|(found, _)| found.key == key) {
        known.latency = row.latency;
    }
    Ok(())
}

/// Checks a length.
///
/// # Errors
/// [`DecodeError::Size`] if there are not `expected` bytes.
pub(super) fn size_is(what: &'static str, bytes: &[u8], expected: usize) -> Result<(), DecodeError> {
    if bytes.len() == expected { Ok(()) } else { Err(DecodeError::Size { what, length: bytes.len(), expected }) }
}

/// Sums one counter over CPUs.
///
/// # Errors
/// [`DecodeError`] unless every value is a `__u64`.
pub(crate) fn total<V: AsRef<[u8]>>(values: impl IntoIterator<Item = V>) -> Result<u64, DecodeError> {
    values.into_iter().try_fold(0u64, |sum, value| {
        let value = value.as_ref();
        let bytes =
            value.try_into().map_err(|_| DecodeError::Size { what: "counter", length: value.len(), expected: 8 })?;
        Ok(sum.wrapping_add(u64::from_ne_bytes(bytes)))
    })
}

/// Sorts rows by their keys, variants and threads.
pub(crate) fn sort(rows: &mut [CounterRow]) {
    fn key(row: &CounterRow) -> impl Ord {
        (row.cgroup, row.device, row.mount, row.operation, row.variant, row.task.as_ref())
    }
    rows.sort_unstable_by(|one, other| key(one).cmp(&key(other)));
}

/// Returns the number at `offset` of bytes whose size was checked.
pub(super) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_ne_bytes(value)
}

/// Returns the number at `offset` of bytes whose size was checked.
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_ne_bytes(value)
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::probe::{MapLayout, Probe};
    use libbpf_rs::{
        Btf, HasSize as _, ObjectBuilder,
        btf::types::{Enum, Struct},
    };

    use bpfassay_tracer_common::{Event, KEYS, Prototype, Settings, THREAD_KEYS, map};

    use super::*;
    use crate::loader::plan::object_files;

    fn key(cgroup: u64, device: u32, mount: u64, operation: u32) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<Key>()];
        bytes[offset_of!(Key, cgroup)..][..8].copy_from_slice(&cgroup.to_ne_bytes());
        bytes[offset_of!(Key, mount)..][..8].copy_from_slice(&mount.to_ne_bytes());
        bytes[offset_of!(Key, device)..][..4].copy_from_slice(&device.to_ne_bytes());
        bytes[offset_of!(Key, operation)..][..4].copy_from_slice(&operation.to_ne_bytes());
        bytes
    }

    /// Encodes the key of a layout with variants.
    fn variant_key(operation: u32, variant: u32) -> Vec<u8> {
        [key(7, 8, 21, operation), variant.to_ne_bytes().to_vec(), vec![0; 4]].concat()
    }

    /// Creates a row in the same way as the reader.
    fn row<V: AsRef<[u8]>>(key: &[u8], values: impl IntoIterator<Item = V>) -> Result<CounterRow, DecodeError> {
        row_of(super::key(key)?, sum(values)?, &[])
    }

    fn value(calls: u64, bytes: u64, errors: u64) -> Vec<u8> {
        [calls, bytes, errors].iter().flat_map(|counter| counter.to_ne_bytes()).collect()
    }

    /// Returns names and bit offsets of the members, and the size of a structure in an object's
    /// BTF.
    fn layout(btf: &Btf<'_>, name: &str) -> (Vec<(String, u32)>, usize) {
        use libbpf_rs::btf::types::MemberAttr;
        let found = btf.type_by_name::<Struct<'_>>(name).unwrap_or_else(|| panic!("no struct {name}"));
        let members = found.iter().map(|member| {
            let MemberAttr::Normal { offset } = member.attr else { panic!("bit field in {name}") };
            (member.name.unwrap().to_str().unwrap().to_owned(), offset)
        });
        (members.collect(), found.size())
    }

    macro_rules! assert_same_layout {
        ($btf:expr, $c:literal, $rust:ty { $($field:ident),+ }) => {
            let expected = vec![$((stringify!($field).to_owned(), 8 * offset_of!($rust, $field) as u32)),+];
            assert_eq!(layout($btf, $c), (expected, size_of::<$rust>()), $c);
        };
    }

    #[test]
    fn c_and_rust_agree_on_every_structure_and_operation() {
        for &probe in Probe::ALL.iter().filter(|probe| !matches!(probe, Probe::None | Probe::Programs)) {
            for &map in MapLayout::ALL {
                let elf = object_files::find(probe, map).unwrap().elf;
                let btf = Btf::from_raw("object", elf).unwrap().unwrap();
                assert_same_layout!(&btf, "counter_key", Key { cgroup, mount, device, operation });
                if map == MapLayout::Ringbuf {
                    assert_same_layout!(&btf, "call_event", Event { key, bytes, errors, duration });
                } else {
                    assert_same_layout!(&btf, "counter_value", Value { calls, bytes, errors });
                    assert_same_layout!(&btf, "latency_histogram", Histogram { slots });
                }
                if map == MapLayout::Percpu {
                    assert_same_layout!(&btf, "counter_slot", Slot { tag, key, value, zero });
                    let slots = btf.type_by_name::<Struct<'_>>("counter_slots").unwrap();
                    assert_same_layout!(&btf, "counter_pair", Pair { slots });
                    assert_eq!(slots.size(), SLOTS / 2 * size_of::<Pair>());
                }
                if map == MapLayout::LruShared {
                    assert_same_layout!(&btf, "counter_path_key", PathKey { cgroup, path, operation, zero });
                }
                if map == MapLayout::Threads {
                    assert_same_layout!(&btf, "counter_variant_key", VariantKey { key, variant, zero });
                    assert_same_layout!(&btf, "counter_thread_key", ThreadKey { call, task, name });
                    let open = ObjectBuilder::default().name("x").and_then(|builder| builder.open_memory(elf)).unwrap();
                    let entries = |name: &str| open.maps().find(|map| map.name() == name).unwrap().max_entries();
                    assert_eq!((entries(map::COUNTERS), entries(map::OTHERS)), (THREAD_KEYS, KEYS));
                }
                if matches!(probe, Probe::Kprobe | Probe::Fentry) {
                    assert_same_layout!(&btf, "name_prototype", Prototype { source, argument });
                }
                assert_same_layout!(&btf, "tracer_settings", Settings { cgroup, mount, latency, copies, plain, zero });
                let numbers = btf.type_by_name::<Enum<'_>>("operation").unwrap();
                let numbers: Vec<_> = numbers
                    .iter()
                    .map(|constant| (constant.value, constant.name.unwrap().to_str().unwrap().to_lowercase()))
                    .collect();
                assert_eq!(Operation::COUNTED.len(), bpfassay_tracer_common::Operation::ALL.len());
                let expected: Vec<_> = (0..)
                    .zip(Operation::COUNTED)
                    .map(|(number, name)| (number, format!("operation_{}", name.name().replace('-', "_"))))
                    .collect();
                assert_eq!(numbers, expected);
                if map == MapLayout::Threads {
                    let numbers = btf.type_by_name::<Enum<'_>>("variant").unwrap();
                    let names = numbers.iter().map(|constant| constant.name.unwrap().to_str().unwrap().to_owned());
                    let expected = ["VARIANT_USUAL", "VARIANT_FDATASYNC", "VARIANT_EXEC", "VARIANT_UNKNOWN"];
                    assert_eq!(names.collect::<Vec<_>>(), expected);
                    assert_eq!([variant::USUAL, variant::FDATASYNC, variant::EXEC, variant::UNKNOWN], [0, 1, 2, 3]);
                }
            }
        }
    }

    #[test]
    fn operations_in_programs_are_those_of_the_protocol() {
        let numbered = bpfassay_tracer_common::Operation::ALL.map(|operation| format!("{operation:?}"));
        let protocol: Vec<_> = Operation::COUNTED.iter().map(|operation| format!("{operation:?}")).collect();
        assert_eq!(numbered[..], protocol[..]);
    }

    #[test]
    fn rows_are_sums_over_cpus() {
        let row = row(&key(7, 8 << 20 | 3, 21, 1), [value(1, 4096, 0), value(0, 0, 0), value(2, 10, 1)]).unwrap();
        assert_eq!(row.cgroup, 7);
        assert_eq!(row.device, Device { major: 8, minor: 3 });
        assert_eq!(row.mount, 21);
        assert_eq!(row.operation, Operation::Write);
        assert_eq!(row.totals, Totals { calls: 3, bytes: 4106, errors: 1 });
        assert_eq!(total([1u64.to_ne_bytes(), 41u64.to_ne_bytes()]), Ok(42));
    }

    #[test]
    fn threads_have_rows_of_their_own_and_those_without_room_one_row() {
        let of = |task: u64, name: &[u8]| {
            let mut bytes = [variant_key(0, 0), task.to_ne_bytes().to_vec(), vec![0; NAME_BYTES]].concat();
            bytes[offset_of!(ThreadKey, name)..][..name.len()].copy_from_slice(name);
            bytes
        };
        let cat = |thread: u64| 20 << 32 | thread;
        let entries = [
            (of(cat(21), b"cat\0left over"), 40),
            (of(cat(20), b"cat"), 30),
            (of(cat(20), b"sixteen bytes of"), 2),
            // These names become equal when invalid UTF-8 is replaced.
            (of(cat(20), b"\xff"), 4),
            (of(cat(20), b"\xfe"), 5),
            (variant_key(0, 0), 3),
        ];
        let mut rows = Rows::new();
        for (bytes, calls) in &entries {
            add(&mut rows, row_key(bytes).unwrap(), Value { calls: *calls, ..Value::default() }).unwrap();
        }
        add_latency(&mut rows, super::key(&key(7, 8, 21, 0)).unwrap(), &[0, 84]).unwrap();
        add_latency(&mut rows, super::key(&key(7, 8, 21, 1)).unwrap(), &[1]).unwrap();
        let mut rows: Vec<_> = rows.into_values().rev().collect();
        sort(&mut rows);
        let task = |thread, name: &str| Some(Task::new(20, thread, name));
        let expected = [
            (None, 3),
            (task(20, "cat"), 30),
            (task(20, "sixteen bytes of"), 2),
            (task(20, "\u{fffd}"), 9),
            (task(21, "cat"), 40),
        ];
        let found: Vec<_> = rows.iter().map(|row| (row.task.clone(), row.totals.calls)).collect();
        assert_eq!(found, expected);
        assert_eq!(rows.iter().flat_map(|row| &row.latency).copied().collect::<Vec<_>>(), [0, 84]);
        assert!(matches!(row_key(&[0; 47]), Err(DecodeError::Size { length: 47, .. })));
    }

    #[test]
    fn variants_of_an_operation_have_rows_of_their_own() {
        let number = |operation| Operation::COUNTED.iter().position(|one| *one == operation).unwrap() as u32;
        let row = |operation, variant| {
            let mut rows = Rows::new();
            add(&mut rows, row_key(&variant_key(number(operation), variant))?, Value::default())?;
            Ok(rows.into_values().next().unwrap().variant)
        };
        assert_eq!(row(Operation::Fsync, variant::USUAL), Ok(Some(Variant::Fsync)));
        assert_eq!(row(Operation::Fsync, variant::FDATASYNC), Ok(Some(Variant::Fdatasync)));
        assert_eq!(row(Operation::Open, variant::USUAL), Ok(Some(Variant::Open)));
        assert_eq!(row(Operation::Open, variant::EXEC), Ok(Some(Variant::Exec)));
        // io_uring's calls can be either variant; other operations have no variants.
        assert_eq!(row(Operation::Fsync, variant::UNKNOWN), Ok(None));
        assert_eq!(row(Operation::Read, variant::USUAL), Ok(None));
        for (operation, number) in [(Operation::Fsync, variant::EXEC), (Operation::Read, 1), (Operation::Open, 4)] {
            assert_eq!(row(operation, number), Err(DecodeError::Variant { number, operation }));
        }
        // This layout does not distinguish variants.
        let mut rows = Rows::new();
        add(&mut rows, row_key(&key(7, 8, 21, number(Operation::Fsync))).unwrap(), Value::default()).unwrap();
        assert_eq!(rows.into_values().next().unwrap().variant, None);
    }

    #[test]
    fn slots_in_use_are_counted_for_their_operation() {
        let mut cpus = vec![vec![0; SLOTS / 2 * size_of::<Pair>()]; 2];
        let mut put = |cpu: usize, slot: usize, key: Vec<u8>, value: Vec<u8>| {
            let bytes = [1_u64.to_ne_bytes().to_vec(), key, value].concat();
            let (pair, of_pair) = (slot / 2 * size_of::<Pair>(), slot % 2 * size_of::<Slot>());
            cpus[cpu][pair + offset_of!(Pair, slots) + of_pair..][..bytes.len()].copy_from_slice(&bytes);
        };
        put(0, 3, key(7, 8, 21, 0), value(2, 4096, 1));
        put(1, 255, key(9, 8, 22, 0), value(1, 10, 0));
        // This slot is taken, but has counted no call yet.
        put(1, 4, key(7, 8, 21, 0), value(0, 0, 0));
        let of = |cgroup, mount| Key { cgroup, mount, device: 8, operation: 1 };
        let expected = [
            (of(7, 21), Value { calls: 2, bytes: 4096, errors: 1 }),
            (of(9, 22), Value { calls: 1, bytes: 10, errors: 0 }),
        ];
        assert_eq!(slots(1, &cpus).unwrap(), expected);
        cpus[1].pop();
        assert!(matches!(slots(1, &cpus), Err(DecodeError::Size { .. })));
    }

    #[test]
    fn bytes_that_no_probe_writes_are_refused() {
        let none: [Vec<u8>; 0] = [];
        assert_eq!(row(&[0; 23], none.clone()), Err(DecodeError::Size { what: "key", length: 23, expected: 24 }));
        assert_eq!(
            row(&key(1, 1, 1, 0), [vec![0; 8]]),
            Err(DecodeError::Size { what: "value", length: 8, expected: 24 })
        );
        assert_eq!(row(&key(1, 1, 1, 99), none), Err(DecodeError::Operation { number: 99 }));
        assert!(total([[0u8; 4]]).is_err());
    }

    #[test]
    fn rows_are_sorted_by_key() {
        let none: [Vec<u8>; 0] = [];
        let keys = [(2, 1, 1, 0), (1, 2, 1, 0), (1, 1, 2, 1), (1, 1, 2, 0), (1, 1, 1, 0)];
        let mut rows: Vec<_> = keys.iter().map(|&(c, d, m, o)| row(&key(c, d, m, o), none.clone()).unwrap()).collect();
        let expected: Vec<_> = rows.iter().rev().cloned().collect();
        sort(&mut rows);
        assert_eq!(rows, expected);
    }
}
