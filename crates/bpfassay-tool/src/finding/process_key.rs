// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a tool names processes: by process id, thread id or name. Its reports show which.

use super::{
    process_identity::ProcessKey,
    truth::{CallShare, Truth},
};
use crate::{
    file::{ReportedFigure, Whose},
    readings::Readings,
};

/// Largest number of names that are shown.
const MOST_NAMES: usize = 3;

impl ProcessKey {
    /// Determines how `figure` (index `index`) names processes in `readings`. Returns
    /// [`Self::Name`] if the figure is not about processes.
    ///
    /// # Errors
    /// The names of counted processes are unknown, or no process has a reported name.
    pub(super) fn of(
        index: usize,
        figure: &ReportedFigure,
        readings: &Readings,
        truth: &Truth,
    ) -> Result<Self, String> {
        if figure.whose != Whose::Process {
            return Ok(Self::Name);
        }
        let samples = readings.samples.iter().filter(|sample| sample.figure == index && sample.at_ns <= truth.to_ns);
        let reported: Vec<&str> =
            samples.filter_map(|sample| sample.subject.as_deref()).filter(|name| !name.is_empty()).collect();
        let certain = || {
            let is_certain = |share: &&CallShare| {
                share.is_counted(figure) && !truth.optional.contains(share) && !truth.copies.contains(share)
            };
            truth.shares.iter().filter(is_certain)
        };
        let lacks = |key: Self| certain().filter(move |share| key.names(&share.process).is_empty());
        let key = match reported.as_slice() {
            // If no processes are reported, any kind of name with complete data works.
            [] => Self::ALL.into_iter().find(|&key| lacks(key).next().is_none()).unwrap_or(Self::Id),
            reported => Self::reported(reported, truth),
        };
        if let Some(first) = lacks(key).next() {
            let calls = lacks(key).fold(0_u64, |sum, share| sum.saturating_add(share.calls));
            let (operation, what) = (first.operation, key.unknown());
            return Err(format!(
                "{what} did {calls} of the calls that `{}` counts ({operation}) is not recorded",
                figure.name()
            ));
        }
        let is_known = |name: &&str| knows(truth, key, name);
        if !reported.is_empty() && !reported.iter().any(is_known) && certain().next().is_some() {
            let mut names = reported;
            names.sort_unstable();
            names.dedup();
            let shown: Vec<String> = names.iter().take(MOST_NAMES).map(|name| format!("`{name}`")).collect();
            let more = if names.len() > MOST_NAMES { ", …" } else { "" };
            return Err(format!(
                "no process that is known to have done anything has a name that it reports ({}{more})",
                shown.join(", ")
            ));
        }
        Ok(key)
    }

    /// Determines the kind of the `reported` names. A thread id that is not a process id shows that
    /// all are thread ids.
    fn reported(reported: &[&str], truth: &Truth) -> Self {
        let is_number = |name: &&str| name.bytes().all(|byte| byte.is_ascii_digit());
        let is = |key: Self, name: &str| knows(truth, key, name);
        if !reported.iter().all(is_number) {
            Self::Name
        } else if reported.iter().any(|name| is(Self::Thread, name) && !is(Self::Id, name)) {
            Self::Thread
        } else if reported.iter().any(|name| is(Self::Id, name)) || !reported.iter().any(|name| is(Self::Name, name)) {
            Self::Id
        } else {
            Self::Name
        }
    }
}

/// Whether a known process or thread has this name.
fn knows(truth: &Truth, key: ProcessKey, name: &str) -> bool {
    let of_shares = truth.shares.iter().chain(&truth.earlier).map(|share| &share.process);
    of_shares.chain(&truth.threads).flat_map(|process| key.names(process)).any(|known| known == name)
}
