//! The layout of the CEEMS exporter: one value per key in a shared LRU map of 16384 entries, with 64 bytes of the mount's
//! path in the key; `map_lru-shared.h` on the C side says where ours differs.
//!
//! The kernel throws keys out, with their counts, when it runs short of free entries: insertions are tallied, so that the
//! reader can tell how many went.

use core::mem::offset_of;

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
    // The key, and behind it room for the path to run over: what does not fit is overwritten by what follows in the
    // key, or lies behind it.
    let mut words = [0u64; 1 + 2 * PATH_BYTES / 8];
    words[0] = subject.key(operation).cgroup;
    if subject.place.mount != 0 {
        write_path((&raw mut words).cast::<u8>().wrapping_add(offset_of!(PathKey, path)), subject.place.mount);
    }
    // The operation, and behind it zero.
    words[offset_of!(PathKey, operation) / 8] = u64::from(operation);
    // SAFETY: the words cover the key, which is made of integers.
    let key = unsafe { &*(&raw const words).cast::<PathKey>() };
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

/// Writes where `vfsmount` is mounted, from the root of its namespace, to `path`, which has twice PATH_BYTES: names are
/// written from the root down, and any of them may reach up to a path's length beyond its beginning.
#[inline(always)]
fn write_path(path: *mut u8, vfsmount: Address) {
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
        // SAFETY: the place is below PATH_BYTES, and there are as many bytes behind it.
        unsafe {
            *path.add(end & (PATH_BYTES - 1)) = b'/';
            end += 1;
            let place = path.add(end & (PATH_BYTES - 1));
            let length = bpf_probe_read_kernel_str(place.cast(), PATH_BYTES as u32, name as *const _);
            if length > 0 {
                end += length as usize - 1;
            }
        }
    }
    // SAFETY: inside the path.
    unsafe {
        if end == 0 {
            *path = b'/';
        }
        *path.add(PATH_BYTES - 1) = 0;
    }
}
