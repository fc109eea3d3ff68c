// SPDX-License-Identifier: MIT OR Apache-2.0
//! Losses of a tracer.

use bpfassay_protocol::{message::RunFigures, tracer_messages};
use bpfassay_results::Figure;

/// Returns the events that the tracer reports as lost over the whole run.
pub(super) fn of(figures: &RunFigures) -> Figure<tracer_messages::Losses> {
    match (&figures.whole.after.tracer, figures.probe.is_baseline()) {
        (_, true) => Figure::missing("the baseline attaches nothing"),
        (Some(sample), false) => Figure::Value(sample.losses.clone()),
        (None, false) => Figure::missing("the tracer was not read at the end of the run"),
    }
}
