//! The layout of the CEEMS exporter: one value per key in a shared LRU map of 16384 entries, with 64 bytes of the mount's
//! path in the key; `map_lru-shared.h` on the C side says where ours differs.
//!
//! The kernel throws keys out, with their counts, when it runs short of free entries: insertions are tallied, so that the
//! reader can tell how many went.

use aya_ebpf::{bindings::BPF_NOEXIST, helpers::generated::bpf_probe_read_kernel_str, macros::map, maps::LruHashMap};
use bpfassay_ledger::{LRU_KEYS, PATH_BYTES, PathKey, Value, tally as tallies};

use crate::tracer::{
    Outcome, Subject,
    count::add_atomically,
    kernel::{Address, mount_of, offset, read},
    tally,
};

/// Whether durations go with the counts.
pub(crate) const HAS_DURATION: bool = false;

/// Directories and mounts that are walked up at most.
const STEPS: usize = 12;

#[map(name = "counters")]
static COUNTERS: LruHashMap<PathKey, Value> = LruHashMap::with_max_entries(LRU_KEYS, 0);

/// Adds one call. A function of its own: two copies of the key and the path are too much for a program's stack.
#[inline(never)]
pub(crate) fn add(_copy: u32, subject: &Subject, operation: u32, outcome: Outcome) {
    let mut key = PathKey { cgroup: subject.key(operation).cgroup, path: [0; PATH_BYTES], operation, zero: 0 };
    if subject.place.mount != 0 {
        write_path(&mut key.path, subject.place.mount);
    }
    let key = &key;
    let value = COUNTERS.get_ptr_mut(key).or_else(|| {
        // See the layout `percpu`.
        if COUNTERS.insert(key, Value::default(), u64::from(BPF_NOEXIST)).is_ok() {
            tally(tallies::INSERTIONS);
        }
        COUNTERS.get_ptr_mut(key)
    });
    let Some(value) = value else { return tally(tallies::INSERT_FAILURES) };
    // SAFETY: a value of a map.
    unsafe {
        add_atomically(&raw mut (*value).calls, 1);
        add_atomically(&raw mut (*value).bytes, outcome.bytes);
        add_atomically(&raw mut (*value).errors, outcome.errors);
    }
}

/// Writes where `vfsmount` is mounted, from the root of its namespace; what does not fit is cut off.
#[inline(always)]
fn write_path(path: &mut [u8; PATH_BYTES], vfsmount: Address) {
    // Names are written from the root down: any of them may reach up to a path's length beyond its beginning.
    let mut buffer = [0u64; 2 * PATH_BYTES / 8];
    let bytes = buffer.as_mut_ptr().cast::<u8>();
    let mut names: [Address; STEPS] = [0; STEPS];
    let mut mount = mount_of(vfsmount);
    let mut dentry: Address = read(mount, offset!(mount_mountpoint));
    for name in &mut names {
        let parent: Address = read(mount, offset!(mount_parent));
        if parent == mount {
            break;
        }
        if dentry == read::<Address>(parent, offset!(mount_embedded) + offset!(mount_root)) {
            mount = parent;
            dentry = read(mount, offset!(mount_mountpoint));
        } else {
            *name = read(dentry, offset!(dentry_name));
            dentry = read(dentry, offset!(dentry_parent));
        }
    }
    let mut end = 0usize;
    for &name in names.iter().rev() {
        if name == 0 || end >= PATH_BYTES - 1 {
            continue;
        }
        // SAFETY: the place is below PATH_BYTES, and the buffer has as many bytes behind it.
        unsafe {
            *bytes.add(end & (PATH_BYTES - 1)) = b'/';
            end += 1;
            let place = bytes.add(end & (PATH_BYTES - 1));
            let length = bpf_probe_read_kernel_str(place.cast(), PATH_BYTES as u32, name as *const _);
            if length > 0 {
                end += length as usize - 1;
            }
        }
    }
    // SAFETY: both have PATH_BYTES bytes, and the key aligns them to eight.
    unsafe {
        if end == 0 {
            *bytes = b'/';
        }
        *bytes.add(PATH_BYTES - 1) = 0;
        let target = path.as_mut_ptr().cast::<u64>();
        for (index, word) in buffer.iter().take(PATH_BYTES / 8).enumerate() {
            *target.add(index) = *word;
        }
    }
}
