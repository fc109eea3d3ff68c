// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scripted guest. A stand-in replaces QEMU and starts the real QEMU with a stopped processor.
//! A player acts as the agent and as the kernel's console.
//!
//! QEMU's process, monitor, exit and signals are real; only the guest is not. The stand-in starts
//! the player and then *becomes* QEMU, so the process that bpfassay started and watches is QEMU
//! itself. The player ends the machine as a guest does: it has QEMU's monitor write to the ports
//! for power management and reset.

mod arguments;
pub mod lying_figures;
pub mod lying_machine;
pub mod player;
pub mod send;
pub mod stand_in;
