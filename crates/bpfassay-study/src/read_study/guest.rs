// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guests of a study (`[guest]`).

use bpfassay_input::document::{Field, Reported, Section};
use bpfassay_protocol::{job::Scheduling, job_nodes::Node};

use crate::{Addresses, GuestSize};

/// Reads the key `scheduling` of guests and file systems.
pub(super) fn scheduling(section: &Section<'_, '_>) -> Result<Option<Scheduling>, Reported> {
    section.optional("scheduling", |field| {
        field.choice(&Scheduling::ALL.iter().map(|&one| (one.name(), one)).collect::<Vec<_>>())
    })
}

/// Reads `[guest]`.
///
/// # Errors
/// [`Reported`] if a key is unknown or a value is invalid. The complaint is in the document.
pub(super) fn read(field: &Field<'_, '_>) -> Result<GuestSize, Reported> {
    let mut guest = GuestSize::default();
    let section = field.table()?;
    section.only(&["cpus", "memory_mib", "kernel_parameters", "addresses", "scheduling", "short_turns", "nodes"]);
    let addresses = section.or("addresses", guest.addresses, |field| field.choice(Addresses::NAMES));
    let scheduling = scheduling(&section);
    let cpus = section.or("cpus", guest.cpus, |cpus| cpus.number(1..=64));
    let short_turns = section.or("short_turns", false, Field::boolean);
    let nodes = section.or("nodes", guest.nodes, |nodes| nodes.number(1..=Node::MOST));
    // A Debian kernel does not boot with its initramfs in less memory.
    let memory_mib = section.or("memory_mib", guest.memory_mib, |memory| memory.number(384..=1 << 20));
    let kernel_parameters = section.or("kernel_parameters", Vec::new(), |parameters| {
        parameters.distinct("kernel parameter", |field| {
            let parameter = field.text()?;
            let valid =
                (1..=200).contains(&parameter.len()) && parameter.chars().all(|c| c.is_ascii_graphic() && c != '"');
            match valid {
                true => Ok(parameter.to_owned()),
                false => {
                    Err(field.error("give one kernel parameter: visible ASCII characters without blanks and quotes"))
                }
            }
        })
    });
    guest.cpus = cpus?;
    guest.memory_mib = memory_mib?;
    guest.kernel_parameters = kernel_parameters?;
    guest.addresses = addresses?;
    guest.scheduling = scheduling?;
    guest.short_turns = short_turns?;
    guest.nodes = nodes?;
    Ok(guest)
}
