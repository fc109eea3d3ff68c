// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scripted guest: a program in QEMU's place that starts the real QEMU, whose processor is
//! stopped, and takes the part of the agent and the kernel's console itself.
//!
//! QEMU's process, its monitor, its exit and its signals are real; only the guest is not. The
//! stand-in starts the player and then *becomes* QEMU, so that the process that bpfassay started
//! and watches is QEMU itself. The player ends the machine as a guest does: by its ports (power
//! management, reset), which QEMU's monitor can write to.

mod arguments;
pub mod figures;
pub mod machine;
pub mod player;
pub mod send;
pub mod stand_in;
