// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds QEMU's main loop back while the virtual CPU executes code, so that a guest under the
//! instruction clock does not depend on the speed of the host's threads.
//!
//! QEMU has two places where such a guest would notice (QEMU 7.2:
//! accel/tcg/tcg-accel-ops-rr.c, softmmu/icount.c, softmmu/cpu-timers.c).
//!
//! A virtual CPU that goes to sleep first marks itself as halted. Then it adds the instructions of
//! its turn to the clock (`icount_process_data`), and then it takes QEMU's lock. If the main loop
//! gets the lock in the gap, it finds the CPU halted and advances the clock to the next timer,
//! starting from the time before the turn (`icount_start_warp_timer`). The turn is added on top, so
//! the timer is late by as many instructions.
//!
//! Several virtual CPUs take turns in one thread. If the main loop gets the lock between two turns
//! while all CPUs are halted or a timer is due, it advances the clock or runs the timer itself.
//! Both ask every CPU to end its next turn at once (`rr_kick_vcpu_thread`). The thread of the CPUs
//! would have slept or run the timer without that, so the turns would have had other lengths.
//!
//! QEMU loads this library before the C library (`LD_PRELOAD` of ld.so(8)), and the library
//! replaces three pthread functions. The main loop gets the lock while the thread of the virtual
//! CPUs sleeps. After a while it also gets the lock at the end of a turn, if it would find
//! neither all CPUs halted nor a timer due ([`CpuTurn::admit`]).

use std::{
    cell::Cell,
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
    sync::{
        OnceLock,
        atomic::{AtomicPtr, Ordering},
    },
    time::Instant,
};

use super::turn::CpuTurn;

type OnMutex = unsafe extern "C" fn(*mut c_void) -> c_int;
type OnCondition = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type AllIdle = unsafe extern "C" fn() -> bool;
type IsExpired = unsafe extern "C" fn(c_int) -> bool;

/// `QEMU_CLOCK_VIRTUAL` of QEMU's include/qemu/timer.h.
const GUEST_CLOCK: c_int = 1;

/// `RTLD_DEFAULT`, which searches QEMU first.
const DEFAULT: *mut c_void = ptr::null_mut();
/// `RTLD_NEXT`, which searches the libraries after this one.
const NEXT: *mut c_void = ptr::without_provenance_mut(usize::MAX);

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn getpid() -> c_int;
    fn gettid() -> c_int;
}

/// The task of a thread of QEMU.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ThreadRole {
    Unknown,
    MainLoop,
    VirtualCpu,
    Other,
}

thread_local! {
    static ROLE: Cell<ThreadRole> = const { Cell::new(ThreadRole::Unknown) };
}

/// QEMU's lock, under which the main loop works; null until the virtual CPUs' thread is known.
static LOCK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The mutex of the main thread's last wait.
static AWAITED: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static TURN: CpuTurn = CpuTurn::new();

static MUTEX_LOCK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static MUTEX_UNLOCK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static COND_WAIT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Returns the C library's function `name`, which `known` caches.
fn next(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut function = known.load(Ordering::Relaxed);
    if function.is_null() {
        // SAFETY: the name ends with 0.
        function = unsafe { dlsym(NEXT, name.as_ptr()) };
        known.store(function, Ordering::Relaxed);
    }
    function
}

fn role() -> ThreadRole {
    let known = ROLE.get();
    if known != ThreadRole::Unknown {
        return known;
    }
    // SAFETY: both functions only return a number.
    let role = if unsafe { getpid() == gettid() } { ThreadRole::MainLoop } else { ThreadRole::Other };
    ROLE.set(role);
    role
}

/// Returns the role of the calling thread if `mutex` is QEMU's lock.
fn role_with(mutex: *mut c_void) -> Option<ThreadRole> {
    (mutex == LOCK.load(Ordering::Acquire)).then(role)
}

/// Locks a mutex as the C library does.
///
/// # Safety
/// The caller fulfils the conditions of pthread_mutex_lock(3).
unsafe fn lock(mutex: *mut c_void) -> c_int {
    // SAFETY: the C library's function has this type, and the caller vouches for the mutex.
    unsafe { std::mem::transmute::<*mut c_void, OnMutex>(next(&MUTEX_LOCK, c"pthread_mutex_lock"))(mutex) }
}

/// Unlocks a mutex as the C library does.
///
/// # Safety
/// The caller fulfils the conditions of pthread_mutex_unlock(3).
unsafe fn unlock(mutex: *mut c_void) -> c_int {
    // SAFETY: the C library's function has this type, and the caller vouches for the mutex.
    unsafe { std::mem::transmute::<*mut c_void, OnMutex>(next(&MUTEX_UNLOCK, c"pthread_mutex_unlock"))(mutex) }
}

/// Takes QEMU's lock for the main loop.
///
/// # Safety
/// The caller fulfils the conditions of pthread_mutex_lock(3).
unsafe fn lock_between_turns(mutex: *mut c_void) -> c_int {
    let begun = Instant::now();
    loop {
        // SAFETY: the caller vouches for the mutex.
        let result = unsafe { lock(mutex) };
        // SAFETY: this thread has QEMU's lock.
        let Err(pause) = TURN.admit(begun.elapsed(), || unsafe { is_work_due() }) else { return result };
        // SAFETY: this thread has locked it.
        unsafe { unlock(mutex) };
        TURN.wait_for_sleep(pause);
    }
}

/// Returns whether the main loop would do a virtual CPU's work: all CPUs are halted, or a timer of
/// the guest's clock is due. A QEMU that was built without modules does not export the functions
/// for this, and the result is `false`.
///
/// # Safety
/// The caller has QEMU's lock.
unsafe fn is_work_due() -> bool {
    static FUNCTIONS: OnceLock<(Option<AllIdle>, Option<IsExpired>)> = OnceLock::new();
    // SAFETY: the names end with 0, and QEMU's functions have these types (include/sysemu/cpus.h
    // and include/qemu/timer.h).
    let functions = FUNCTIONS.get_or_init(|| unsafe {
        (
            std::mem::transmute::<*mut c_void, Option<AllIdle>>(dlsym(DEFAULT, c"all_cpu_threads_idle".as_ptr())),
            std::mem::transmute::<*mut c_void, Option<IsExpired>>(dlsym(DEFAULT, c"qemu_clock_expired".as_ptr())),
        )
    });
    match *functions {
        // SAFETY: the caller has QEMU's lock.
        (Some(all_idle), Some(is_expired)) => unsafe { all_idle() || is_expired(GUEST_CLOCK) },
        _ => false,
    }
}

/// # Safety
/// The caller fulfils the conditions of pthread_mutex_lock(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: *mut c_void) -> c_int {
    match role_with(mutex) {
        // SAFETY: the caller vouches for the mutex.
        Some(ThreadRole::MainLoop) => return unsafe { lock_between_turns(mutex) },
        Some(ThreadRole::VirtualCpu) => TURN.end(),
        _ => {}
    }
    // SAFETY: the caller vouches for the mutex.
    unsafe { lock(mutex) }
}

/// # Safety
/// The caller fulfils the conditions of pthread_mutex_unlock(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_unlock(mutex: *mut c_void) -> c_int {
    if role_with(mutex) == Some(ThreadRole::VirtualCpu) {
        TURN.begin();
    }
    // SAFETY: the caller vouches for the mutex.
    unsafe { unlock(mutex) }
}

/// Finds QEMU's lock and the virtual CPUs' thread. `qemu_init_vcpu` waits, holding the lock, until
/// the thread exists. The thread then waits, holding the same lock, until it can execute code.
///
/// # Safety
/// The caller fulfils the conditions of pthread_cond_wait(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_wait(condition: *mut c_void, mutex: *mut c_void) -> c_int {
    // SAFETY: the C library's function has this type.
    let wait: OnCondition = unsafe { std::mem::transmute(next(&COND_WAIT, c"pthread_cond_wait")) };
    match role() {
        ThreadRole::MainLoop => AWAITED.store(mutex, Ordering::Release),
        ThreadRole::Other if LOCK.load(Ordering::Acquire).is_null() && mutex == AWAITED.load(Ordering::Acquire) => {
            ROLE.set(ThreadRole::VirtualCpu);
            LOCK.store(mutex, Ordering::Release);
        }
        _ => {}
    }
    if role_with(mutex) == Some(ThreadRole::VirtualCpu) {
        TURN.sleep();
    }
    // SAFETY: the caller vouches for both.
    unsafe { wait(condition, mutex) }
}
