// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel objects of other programs. In a guest, every object that appears while a tool runs
//! belongs to the tool. On a running system other programs load objects, too, so objects that a
//! process outside the tool's cgroup holds do not belong to the tool.

use std::{collections::BTreeSet, fs};

use rustix::process::Pid;

use crate::error::{Error, Result};

/// Ids of BPF objects that are held by descriptors.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HeldIds {
    pub(super) programs: BTreeSet<u32>,
    pub(super) maps: BTreeSet<u32>,
    pub(super) links: BTreeSet<u32>,
}

impl HeldIds {
    /// Returns what all processes but `own` hold now. A process that exits meanwhile holds nothing.
    ///
    /// # Errors
    /// `/proc` cannot be listed.
    pub(super) fn by_all_but(own: &[Pid]) -> Result<Self> {
        let mut held = Self::default();
        for entry in fs::read_dir("/proc").map_err(Error::file("list", "/proc"))? {
            let entry = entry.map_err(Error::file("list", "/proc"))?;
            let name = entry.file_name();
            let process = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            let Some(process) = process.filter(|process| !own.contains(process)) else { continue };
            let directory = format!("/proc/{}", process.as_raw_nonzero());
            for descriptor in fs::read_dir(format!("{directory}/fd")).into_iter().flatten().flatten() {
                let number = descriptor.file_name();
                // Names such as `anon_inode:bpf-prog`. The check skips nearly all other
                // descriptors.
                let is_bpf = fs::read_link(descriptor.path()).is_ok_and(|name| name.to_string_lossy().contains("bpf"));
                if !is_bpf {
                    continue;
                }
                if let Ok(text) = fs::read_to_string(format!("{directory}/fdinfo/{}", number.to_string_lossy())) {
                    held.add(&text);
                }
            }
        }
        Ok(held)
    }

    /// Adds the objects of a descriptor whose file in `/proc/PID/fdinfo` contains `text`. The file
    /// of a link contains the id of the link's program, too.
    fn add(&mut self, text: &str) {
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let of = match name {
                "prog_id" => &mut self.programs,
                "map_id" => &mut self.maps,
                "link_id" => &mut self.links,
                _ => continue,
            };
            of.extend(value.trim().parse::<u32>());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_held_with_its_program() {
        let mut held = HeldIds::default();
        held.add(
            "pos:\t0\nflags:\t02000000\nmnt_id:\t15\nlink_type:\ttracing\nlink_id:\t4\nprog_tag:\t0\nprog_id:\t21\n",
        );
        held.add("map_type:\t5\nmemlock:\t81920\nmap_id:\t3\nfrozen:\t0\n");
        held.add("pos:\t0\nmap_id:\tmany\n");
        let expected = HeldIds { programs: [21].into(), maps: [3].into(), links: [4].into() };
        assert_eq!(held, expected);
    }

    #[test]
    fn processes_are_looked_at_whatever_becomes_of_them() {
        HeldIds::by_all_but(&[rustix::process::getpid()]).unwrap();
    }
}
