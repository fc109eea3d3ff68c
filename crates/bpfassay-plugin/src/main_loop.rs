// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds QEMU's main loop back while the virtual CPU executes code, so that a guest under the
//! instruction clock does not depend on the speed of the host's threads.
//!
//! QEMU has one place where such a guest would notice. A virtual CPU that goes to sleep first marks
//! itself as halted. Then it adds the instructions of its slice to the clock
//! (`icount_process_data`), and then it takes QEMU's lock. The main loop is woken at deadlines of
//! the guest's timers (`icount_notify_aio_contexts`).
//!
//! The main loop can get the lock in the gap. It then finds the CPU halted and advances the clock
//! to the next timer, starting from the time before the slice (`icount_start_warp_timer`). The
//! slice is added on top, so the timer is late by as many instructions (QEMU 7.2:
//! accel/tcg/tcg-accel-ops-rr.c, softmmu/icount.c). A busy host makes the gap longer.
//!
//! QEMU loads this library before the C library (`LD_PRELOAD` of ld.so(8)), and the library
//! replaces three pthread functions. The main loop gets the lock only while no virtual CPU
//! executes. All virtual CPUs of a guest that counts instructions share one thread. The main loop
//! usually waits until that thread sleeps. After [`PATIENCE`] it waits, holding the lock, until the
//! end of the slice. A slice has at most 2^31 instructions (`icount_get_limit`).

use std::{
    cell::Cell,
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
    time::{Duration, Instant},
};

use super::turn::CpuTurn;

type OnMutex = unsafe extern "C" fn(*mut c_void) -> c_int;
type OnCondition = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;

/// `RTLD_NEXT`.
const NEXT: *mut c_void = ptr::without_provenance_mut(usize::MAX);

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn getpid() -> c_int;
    fn gettid() -> c_int;
}

/// How long the main loop waits for the virtual CPUs to sleep.
const PATIENCE: Duration = Duration::from_millis(50);

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
        if !TURN.is_executing() {
            return result;
        }
        if begun.elapsed() >= PATIENCE {
            TURN.wait_for_end();
            return result;
        }
        // SAFETY: this thread has locked it.
        unsafe { unlock(mutex) };
        TURN.wait_for_sleep(PATIENCE);
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
