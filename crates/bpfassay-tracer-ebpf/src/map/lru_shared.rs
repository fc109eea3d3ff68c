// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The layout of the CEEMS exporter: one value per key in a shared LRU map, with 64 bytes of the
//! mount's path in the key. For details see `map_lru-shared.h` of the C programs.

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    helpers::generated::{bpf_probe_read_kernel, bpf_probe_read_kernel_str},
    macros::map,
    maps::LruHashMap,
};
use bpfassay_tracer_common::{LRU_KEYS, PATH_BYTES, PathKey, Value, tally as tallies};

use crate::tracer::{
    By, Outcome, Subject,
    count::add_atomically,
    kernel::{Address, mount_of, offset},
    tally,
};

/// Whether durations are part of the counts.
pub(crate) const HAS_DURATION: bool = false;

#[map(name = "counters")]
static COUNTERS: LruHashMap<PathKey, Value> = LruHashMap::with_max_entries(LRU_KEYS, 0);

/// Reads an address in the kernel's memory. For an address that is not mapped the helper writes 0
/// (`bpf_probe_read_kernel_common`, kernel/trace/bpf_trace.c, 5.10 to 7.2).
///
/// This is not [`kernel::read`](crate::tracer::kernel::read), which checks the helper's result: the
/// verifier would follow both cases of each of the fifty reads separately.
#[inline(always)]
fn follow(base: Address, offset: usize) -> Address {
    let mut address: Address = 0;
    let from = (base as *const u8).wrapping_add(offset);
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel((&raw mut address).cast(), size_of::<Address>() as u32, from.cast()) };
    address
}

/// A position on the path from a mount to the root of its namespace.
#[derive(Clone, Copy)]
struct Step {
    mount: Address,
    dentry: Address,
}

impl Step {
    /// Goes up by one directory, whose name is returned, or by one mount. Stays at the root.
    #[inline(always)]
    fn up(&mut self) -> Address {
        let parent = follow(self.mount, offset!(mount_parent));
        let mut named = 0;
        if parent != self.mount {
            if self.dentry == follow(parent, offset!(mount_root)) {
                self.mount = parent;
                self.dentry = follow(parent, offset!(mount_point));
            } else {
                named = self.dentry;
                self.dentry = follow(self.dentry, offset!(dentry_parent));
            }
        }
        // This is read in any case, so that the verifier knows nothing about the name and treats
        // all cases as one.
        follow(named, offset!(dentry_name))
    }
}

/// A path from the root down. Any name can extend up to a path's length beyond its beginning.
struct Path {
    bytes: [u8; 2 * PATH_BYTES],
    end: usize,
}

impl Path {
    #[inline(always)]
    fn push(&mut self, name: Address) {
        const MASK: usize = PATH_BYTES - 1;
        if name == 0 || self.end >= PATH_BYTES - 1 {
            return;
        }
        // SAFETY: below PATH_BYTES, and the buffer has the same size again after that; the helper
        // checks the address.
        let length = unsafe {
            let bytes = (&raw mut self.bytes).cast::<u8>();
            bytes.add(self.end & MASK).write(b'/');
            self.end += 1;
            let to = bytes.add(self.end & MASK);
            bpf_probe_read_kernel_str(to.cast(), PATH_BYTES as u32, name as *const _)
        };
        if length > 0 {
            self.end += length as usize - 1;
        }
    }
}

/// Writes the mount point of `vfsmount`, from the root of its namespace, cut off if it does not
/// fit. The walk has at most twelve directories and mounts. It is unrolled, because the verifiers
/// accepted no loop.
#[inline(never)]
fn write_path(key: &mut PathKey, vfsmount: Address) {
    let mount = mount_of(vfsmount);
    let mut step = Step { mount, dentry: follow(mount, offset!(mount_point)) };
    macro_rules! walk {
        ($($name:ident)+; $($reversed:ident)+) => {
            $(let $name = step.up();)+
            let mut path = Path { bytes: [0; 2 * PATH_BYTES], end: 0 };
            $(path.push($reversed);)+
            if path.end == 0 {
                path.bytes[0] = b'/';
            }
            path.bytes[PATH_BYTES - 1] = 0;
            // SAFETY: as many bytes as the key has room for.
            unsafe { key.path = *(&raw const path.bytes).cast() };
        };
    }
    walk!(a b c d e f g h i j k l; l k j i h g f e d c b a);
}

/// Adds one call.
#[inline(always)]
pub(crate) fn add(_by: By, subject: &Subject, operation: u32, outcome: Outcome) {
    let mut key = PathKey { cgroup: subject.cgroup(), path: [0; PATH_BYTES], operation, zero: 0 };
    if subject.place.mount != 0 {
        write_path(&mut key, subject.place.mount);
    }
    // Using the key directly would put copies of it on the stack, which is too small for them.
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
