// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects classes of blocks that all fail alike, so that the rest is not tried. Pure.

use std::collections::BTreeMap;

use bpfassay_protocol::message::Phase;
use bpfassay_results::{FailureKind, RunFailure};
use bpfassay_study::{Block, Target, plan::file_system_id};

use crate::decisions::{attempt::Attempt, blame::HostFailure, failure};

/// After this many blocks in a row with the same host failure, no further block is begun.
const MOST_OF_HOST: u32 = 3;

/// After this many blocks in which a kernel was never ready, no further guest of it is booted. One
/// block is enough if the kernel was silent.
const MOST_NEVER_READY: usize = 2;

/// A class of blocks that never got ready: a target, with one file system if its agent spoke.
type BlockClass = (Target, Option<String>);

/// Failures of classes of blocks.
#[derive(Debug, Default)]
pub(crate) struct RepeatedFailures {
    /// The host failure of the latest blocks, and their number in a row.
    host: Option<(HostFailure, u32)>,
    /// Blocks that were given up because none of their guests was ever ready.
    never_ready: BTreeMap<BlockClass, Vec<(String, RunFailure)>>,
}

fn class(block: &Block, phase: Option<Phase>) -> BlockClass {
    let of_file_system = (phase != Some(Phase::Boot)).then(|| file_system_id(&block.file_system));
    (block.target.clone(), of_file_system)
}

impl RepeatedFailures {
    /// Notes that `block` was given up with `failure` because none of its guests was ever ready.
    pub(crate) fn never_ready(&mut self, block: &Block, failure: &RunFailure) {
        let blocks = self.never_ready.entry(class(block, failure.phase)).or_default();
        if blocks.iter().all(|(known, _)| *known != block.id) {
            blocks.push((block.id.clone(), failure.clone()));
        }
    }

    /// Notes how `block` ended or was left, according to `attempt`.
    pub(crate) fn done(&mut self, block: &Block, attempt: &Attempt) {
        self.host = match (attempt.left_by_host(), self.host) {
            (None, _) => None,
            // This failure depends on the kind of guest, and says nothing about the host's state.
            (Some(HostFailure::Lacking), before) => before,
            (Some(now), Some((before, count))) if now == before => Some((now, count.saturating_add(1))),
            (Some(now), _) => Some((now, 1)),
        };
        if attempt.was_ready() {
            self.never_ready.remove(&class(block, Some(Phase::Boot)));
            self.never_ready.remove(&class(block, None));
        } else if let Some(failure) = attempt.never_ready() {
            self.never_ready(block, failure);
        }
    }

    /// Returns why no further block begins, if the host fails all of them.
    pub(crate) fn pause(&self) -> Option<String> {
        let (failure, count) = self.host.filter(|(_, count)| *count >= MOST_OF_HOST)?;
        let what = match failure {
            HostFailure::Initramfs => "what a guest boots from could not be written",
            HostFailure::Start => "QEMU could not be started",
            HostFailure::Exit => "QEMU ended by itself or was killed",
            HostFailure::Lacking => "a guest lacked something, or was another than was asked for",
        };
        Some(format!("host failure in {count} blocks in a row ({what}): no further block is begun"))
    }

    /// Returns why the runs of `block` are not tried, if its kernel was never ready elsewhere.
    pub(crate) fn not_tried(&self, block: &Block) -> Option<RunFailure> {
        let blocks = [Some(Phase::Boot), None].map(|phase| self.never_ready.get(&class(block, phase)));
        let blocks = blocks.into_iter().flatten().find(|blocks| {
            let is_enough =
                blocks.len() >= MOST_NEVER_READY || blocks.iter().any(|(_, known)| failure::is_silent(known));
            is_enough && blocks.iter().all(|(_, other)| Some(other.kind) == kind_of(blocks))
        })?;
        let names: Vec<&str> = blocks.iter().map(|(block, _)| block.as_str()).collect();
        let (_, first) = blocks.first()?;
        let line =
            format!("guests of {} were never ready in {}: {}", block.target, names.join(" and "), first.headline());
        let rest = first.excerpt.iter().cloned();
        Some(RunFailure {
            kind: FailureKind::NotTried,
            phase: None,
            excerpt: std::iter::once(line).chain(rest).collect(),
            log: first.log.clone(),
            after: None,
        })
    }
}

fn kind_of(blocks: &[(String, RunFailure)]) -> Option<FailureKind> {
    blocks.first().map(|(_, failure)| failure.kind)
}
