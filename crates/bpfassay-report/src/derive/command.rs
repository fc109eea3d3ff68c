// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of a run of any program: how long it worked, what it reported of its work, and the bytes that it reports to have moved.

use bpfassay_protocol::{job::Better, message::RunFigures};
use bpfassay_study::{Clock, CommandSpec};

use super::{bytes, cost, merit};
use bpfassay_results::{Access, ByteFigure, Figure, Merit, RunAccess};

/// The accesses of a run, the time first, and its bytes.
pub(super) fn derive(clock: Clock, spec: &CommandSpec, figures: &RunFigures) -> (Vec<RunAccess>, Vec<ByteFigure>) {
    let reported = spec.read(&figures.summary);
    let of_figures = reported.figures.into_iter().map(|(figure, number)| {
        let number = number.map_or_else(Figure::missing, Figure::Value);
        merit::access(
            Access::Figure(figure.name),
            Merit { figure: number, unit: figure.unit.clone(), better: figure.better },
        )
    });
    let accesses = [merit::access(Access::Work, time(clock, figures))].into_iter().chain(of_figures).collect();
    let moved = reported
        .bytes
        .into_iter()
        .map(|(operation, bytes)| (operation, bytes.map_or_else(Figure::missing, Figure::Value)));
    (accesses, bytes::reported(figures, moved))
}

/// What the work took, from before the program was started until it had ended: instructions where the clock counts them, without
/// those in which the guest had nothing to do where the kernel reports them; else seconds.
fn time(clock: Clock, figures: &RunFigures) -> Merit<f64> {
    let elapsed = cost::elapsed(&figures.whole);
    let busy = elapsed.zip(cost::idle(&figures.whole)).and_then(|(elapsed, idle)| elapsed.checked_sub(idle));
    let (time, unit) = match (clock, busy) {
        (Clock::Instructions, Some(busy)) => (Some(busy as f64), "instructions"),
        (Clock::Instructions, None) => (elapsed.map(|ns| ns as f64), "instructions, idle included"),
        (Clock::Wall, _) => (elapsed.map(|ns| ns as f64 / 1e9), "s"),
    };
    let figure = time.map_or_else(|| Figure::missing("the clock went back during the run"), Figure::Value);
    Merit { figure, unit: unit.to_owned(), better: Better::Lower }
}
