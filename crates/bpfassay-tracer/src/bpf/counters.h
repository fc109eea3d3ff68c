/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * Counts of every probe, and their keys. The crate bpfassay-tracer-common has the same declarations
 * in Rust; a test compares both through the object's BTF.
 *
 * A map layout (`map_*.h`, chosen by -DMAP_LAYOUT) declares the map `counters` and defines
 *	static void counter_add(__u32 copy, const struct subject *subject, enum operation operation,
 *			       __u64 bytes, __u64 errors, __u64 duration);
 * which adds one call. `copy` is constant: the number of the calling copy of a program (0 if
 * there is only one). `duration` is NO_DURATION if it is not measured.
 */
#ifndef BPFASSAY_COUNTERS_H
#define BPFASSAY_COUNTERS_H

#include "atomic.h"
#include "mount.h"

/* Sizes of maps: see the crate for their meaning. The loader can change them. */
#define COUNTER_KEYS 8192
#define COUNTER_LRU_KEYS 16384
#define RING_BYTES (8 << 20)
#define COUNTER_SLOTS 256
#define LATENCY_KEYS 1024
#define LATENCY_SLOTS 40
#define NO_DURATION (~0ULL)

/* Numbers of the operations, in the order of `Operation::ALL`. */
enum operation {
	OPERATION_READ,
	OPERATION_WRITE,
	OPERATION_READV,
	OPERATION_WRITEV,
	OPERATION_OPEN,
	OPERATION_CREATE,
	OPERATION_MKDIR,
	OPERATION_UNLINK,
	OPERATION_RMDIR,
	OPERATION_RENAME,
	OPERATION_FSYNC,
	OPERATION_MAP_READ,
	OPERATION_MAP_WRITE,
	OPERATION_MPI_OPEN,
	OPERATION_MPI_READ,
	OPERATION_MPI_WRITE,
};

#define OPERATION_COUNT (OPERATION_MPI_WRITE + 1)
/* The first operations move data by their own calls. */
#define OPERATION_DATA_COUNT (OPERATION_WRITEV + 1)

/*
 * Which of an operation's calls it was: fdatasync is a variant of OPERATION_FSYNC, the opening by
 * execve one of OPERATION_OPEN. Keys of layouts with LAYOUT_HAS_VARIANTS contain the variant.
 */
enum variant {
	VARIANT_USUAL,
	VARIANT_FDATASYNC,
	VARIANT_EXEC,
	/* The program cannot tell. */
	VARIANT_UNKNOWN,
};

/* There is no implicit padding: the map compares keys byte by byte. */
struct counter_key {
	__u64 cgroup;
	__u64 mount;
	__u32 device;
	enum operation operation;
};

struct counter_value {
	__u64 calls;
	__u64 bytes;
	__u64 errors;
};

/* See map_percpu.h. */
struct counter_slot {
	__u64 tag;
	struct counter_key key;
	struct counter_value value;
	/* Makes the size a power of two, so that one instruction turns an index into an address. */
	__u64 zero;
};

struct counter_pair {
	struct counter_slot slots[2];
};

enum tally {
	TALLY_INSERT_FAILURES,
	TALLY_RING_BUFFER_DROPS,
	TALLY_INSERTIONS,
	TALLY_UNMATCHED,
	TALLY_COUNT,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TALLY_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} tallies SEC(".maps");

/*
 * Set before loading. The verifier then removes unused code, but not the loads of settings. Zero in
 * a filter means any. `plain` is 1 if there are neither filters nor durations: one load, not three.
 */
struct tracer_settings {
	__u64 cgroup;
	__u64 mount;
	__u32 latency;
	__u32 copies;
	__u32 plain;
	__u32 zero;
};

const volatile struct tracer_settings settings SEC(".rodata.settings") = {};

/* Adds one call to a value to which several programs, CPUs or tasks can write at once. */
static __always_inline void value_add(struct counter_value *value, __u64 bytes, __u64 errors)
{
	ATOMIC_ADD(&value->calls, 1);
	/* Adding a constant zero would become an atomic OR, which 5.10 does not accept. */
	if (bytes)
		ATOMIC_ADD(&value->bytes, bytes);
	if (errors)
		ATOMIC_ADD(&value->errors, errors);
}

/* This is rare, and happens in programs that can interrupt each other, so it is atomic. */
static __always_inline void tally_add(enum tally which)
{
	__u32 index = which;
	__u64 *count = bpf_map_lookup_elem(&tallies, &index);

	if (count)
		ATOMIC_ADD(count, 1);
}

struct latency_histogram {
	__u64 slots[LATENCY_SLOTS];
};

/* The loader does not create this map unless durations are measured. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, LATENCY_KEYS);
	__type(key, struct counter_key);
	__type(value, struct latency_histogram);
} latencies SEC(".maps");

/* A histogram is too large for the stack. */
const struct latency_histogram no_latencies SEC(".rodata.histogram") = {};

/* Cgroup and mount of a call: a key without the operation. */
struct subject {
	__u64 cgroup;
	__u64 mount;
	/* The mount, for its path; null if unknown. Read it by bpf_probe_read_kernel only. */
	const struct vfsmount *vfsmount;
	__u32 device;
	/* Usual, until the counting program sets another variant. */
	enum variant variant;
};

static __always_inline struct counter_key key_of(const struct subject *subject, enum operation operation)
{
	return (struct counter_key){
		.cgroup = subject->cgroup,
		.mount = subject->mount,
		.device = subject->device,
		.operation = operation,
	};
}

/*
 * Returns the id of a mount, as in /proc/PID/mountinfo: by a plain load if the kernel can cast the
 * pointer (bpf_rdonly_cast, 6.2 and later: a35b9af4ec2c), else by a helper.
 */
static __always_inline __u32 mount_id(const struct vfsmount *mnt)
{
	if (bpf_ksym_exists(bpf_rdonly_cast))
		return bpf_core_cast(mount_of(mnt), struct mount)->mnt_id;
	return BPF_CORE_READ(mount_of(mnt), mnt_id);
}

#include MAP_LAYOUT

#ifndef LAYOUT_HAS_VARIANTS
#define LAYOUT_HAS_VARIANTS 0
#endif

/*
 * Fills `subject` in for the calling task; false if it is not counted. A null `mnt` counts under
 * mount 0, unless a mount was selected. `plain` is constant: true if no filter is set.
 */
static __always_inline bool subject_of_mount(struct subject *subject, const struct vfsmount *mnt, __u32 device, bool plain)
{
	*subject = (struct subject){ .cgroup = bpf_get_current_cgroup_id(), .vfsmount = mnt, .device = device };
	if (!plain && settings.cgroup && subject->cgroup != settings.cgroup)
		return false;
	if (mnt)
		subject->mount = mount_id(mnt);
	return plain || !settings.mount || subject->mount == settings.mount;
}

static __always_inline bool subject_of(struct subject *subject, const struct vfsmount *mnt, __u32 device)
{
	return subject_of_mount(subject, mnt, device, false);
}

/* The same for an open file, for programs that are not allowed to follow pointers. */
static __always_inline bool subject_of_open(struct subject *subject, const struct file *file, bool plain)
{
	const struct vfsmount *mnt;

	if (bpf_ksym_exists(bpf_rdonly_cast)) {
		mnt = bpf_core_cast(file, struct file)->f_path.mnt;
		return subject_of_mount(subject, mnt, mnt->mnt_sb->s_dev, plain);
	}
	mnt = BPF_CORE_READ(file, f_path.mnt);
	return subject_of_mount(subject, mnt, BPF_CORE_READ(mnt, mnt_sb, s_dev), plain);
}

static __always_inline bool subject_of_file(struct subject *subject, const struct file *file)
{
	return subject_of_open(subject, file, false);
}

static __always_inline __u32 log2_of(__u64 value)
{
	__u32 log = 0;

	if (value >> 32)
		log += 32, value >>= 32;
	if (value >> 16)
		log += 16, value >>= 16;
	if (value >> 8)
		log += 8, value >>= 8;
	if (value >> 4)
		log += 4, value >>= 4;
	if (value >> 2)
		log += 2, value >>= 2;
	return log + (value >> 1);
}

static __always_inline void latency_add(const struct counter_key *key, __u64 duration)
{
	struct latency_histogram *histogram = bpf_map_lookup_elem(&latencies, key);
	__u32 slot = log2_of(duration);

	if (!histogram) {
		bpf_map_update_elem(&latencies, key, &no_latencies, BPF_NOEXIST);
		histogram = bpf_map_lookup_elem(&latencies, key);
		if (!histogram) {
			tally_add(TALLY_INSERT_FAILURES);
			return;
		}
	}
	if (slot >= LATENCY_SLOTS)
		slot = LATENCY_SLOTS - 1;
	/* Copies of a program can interrupt each other between two instructions. */
	ATOMIC_ADD(&histogram->slots[slot], 1);
}

/* Returns the time, if durations are measured. */
static __always_inline __u64 latency_clock(void)
{
	return settings.latency ? bpf_ktime_get_ns() : 0;
}

/* Counts a call that began at `start` (latency_clock(); 0 means unknown). */
static __always_inline void count_call_copy(__u32 copy, const struct subject *subject,
					      enum operation operation, __u64 bytes, __u64 errors, __u64 start)
{
	__u64 duration = NO_DURATION;

	if (settings.latency && start) {
		struct counter_key key = key_of(subject, operation);

		duration = bpf_ktime_get_ns() - start;
		if (!LAYOUT_HAS_DURATION)
			latency_add(&key, duration);
	}
	counter_add(copy, subject, operation, bytes, errors, duration);
}

static __always_inline void count_call(const struct subject *subject, enum operation operation, __u64 bytes,
					 __u64 errors, __u64 start)
{
	count_call_copy(0, subject, operation, bytes, errors, start);
}

/* Counts the result of a call that returns bytes or an error. */
static __always_inline void count_call_returned(const struct subject *subject, enum operation operation,
						  long ret, __u64 start)
{
	count_call(subject, operation, ret < 0 ? 0 : ret, ret < 0, start);
}

#endif
