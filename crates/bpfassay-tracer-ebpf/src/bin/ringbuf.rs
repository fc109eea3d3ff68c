// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The object with the map layout `ringbuf`.
#![cfg_attr(target_arch = "bpf", no_std, no_main, feature(asm_experimental_arch))]

#[path = "../map/ringbuf.rs"]
mod map;
#[path = "../tracer/mod.rs"]
mod tracer;

#[cfg(not(target_arch = "bpf"))]
fn main() -> Result<(), &'static str> {
    Err(tracer::NOT_FOR_HOSTS)
}
