// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shortens a run's figures to fit into one frame, and reports what was left out.

use bpfassay_protocol::{
    frame::{self, FrameError},
    message::{BystanderFigures, GuestMessage, Interval, RunFigures, RunOutcome, WorkloadPhase},
    tracer_messages::{Sample, without_tasks},
};

use crate::error::Result;

/// Returns the frame that reports `outcome`, and what was left out to make it fit. The least
/// important figures go first.
///
/// # Errors
/// The frame is too large even without everything that can be left out.
pub(crate) fn report(run: &str, mut outcome: RunOutcome, largest: usize) -> Result<(Vec<u8>, Vec<String>)> {
    let mut notes = Vec::new();
    let mut reduction = 0;
    loop {
        let message = GuestMessage::RunEnded { run: run.to_owned(), outcome: Box::new(outcome) };
        let too_large = match frame::encode(&message) {
            Ok(frame) if frame.len() <= largest => return Ok((frame, notes)),
            Ok(frame) => FrameError::TooLarge { announced: frame.len() },
            Err(error) => error,
        };
        let GuestMessage::RunEnded { outcome: returned, .. } = message else { return Err(too_large.into()) };
        outcome = *returned;
        let RunOutcome::Measured(figures) = &mut outcome else { return Err(too_large.into()) };
        match reduce(figures, reduction) {
            Some(Some(note)) => notes.push(note),
            Some(None) => {}
            None => return Err(too_large.into()),
        }
        // Samples are thinned repeatedly for as long as there are any.
        if reduction < THINNING || figures.samples.is_empty() {
            reduction += 1;
        }
    }
}

const THREADS: u32 = 1;
const READINGS: u32 = THREADS + 1;
const THINNING: u32 = READINGS + 1;
const TOOL_OUTPUT: u32 = THINNING + 1;

/// Makes the figures smaller in the way number `reduction`. Returns `None` if there is no such
/// way, and a note if something was left out.
fn reduce(figures: &mut RunFigures, reduction: u32) -> Option<Option<String>> {
    let (cgroup, device) = (figures.cgroup, figures.mount.device);
    let ours = move |samples: &mut dyn Iterator<Item = &mut Sample>| {
        let mut dropped = 0;
        for sample in samples {
            let before = sample.rows.len() + sample.events.len();
            sample.rows.retain(|row| row.cgroup == cgroup || row.device == device);
            sample.events.retain(|row| row.cgroup == cgroup);
            dropped += before - sample.rows.len() - sample.events.len();
        }
        dropped
    };
    match reduction {
        0 => {
            let dropped = ours(&mut figures.samples.iter_mut());
            Some((dropped > 0).then(|| {
                format!(
                    "{dropped} rows of periodic samples left out: neither the workload's cgroup nor its file system"
                )
            }))
        }
        THREADS => {
            // All readings at once: an interval between two readings needs the same keys in both.
            let of_tool = figures.tool.iter_mut().flat_map(|tool| &mut tool.output);
            let beside = of_tool.filter_map(|piece| piece.reference.as_mut());
            let beside = beside.flat_map(|reference| [&mut reference.before, &mut reference.after]);
            let samples = readings(&mut figures.phases, &mut figures.bystander, &mut figures.whole)
                .chain(&mut figures.samples)
                .chain(beside);
            let mut before = 0;
            for sample in samples.filter(|sample| sample.rows.iter().any(|row| row.task.is_some())) {
                before += sample.rows.len();
                sample.rows = without_tasks(std::mem::take(&mut sample.rows));
            }
            Some((before > 0).then(|| format!("the threads of {before} rows left out")))
        }
        READINGS => {
            let dropped = ours(&mut readings(&mut figures.phases, &mut figures.bystander, &mut figures.whole));
            Some((dropped > 0).then(|| {
                format!("{dropped} rows of readings left out: neither the workload's cgroup nor its file system")
            }))
        }
        THINNING => {
            let before = figures.samples.len();
            let mut index = 0usize;
            figures.samples.retain(|_| {
                index += 1;
                index.is_multiple_of(2)
            });
            let dropped = before - figures.samples.len();
            Some((dropped > 0).then(|| format!("{dropped} of {before} periodic samples left out, every second one")))
        }
        TOOL_OUTPUT => {
            let tool = figures.tool.as_mut()?;
            let bytes: u64 = tool.output.iter().map(|piece| piece.text.len() as u64).sum();
            tool.output.clear();
            tool.dropped_bytes = tool.dropped_bytes.saturating_add(bytes);
            Some((bytes > 0).then(|| format!("{bytes} bytes of the tool's output left out")))
        }
        _ => None,
    }
}

/// Returns the tracer's samples around a run and its phases.
fn readings<'a>(
    phases: &'a mut [WorkloadPhase],
    bystander: &'a mut Option<Box<BystanderFigures>>,
    whole: &'a mut Interval,
) -> impl Iterator<Item = &'a mut Sample> {
    let phases = phases.iter_mut().chain(bystander.iter_mut().flat_map(|bystander| &mut bystander.phases));
    let intervals = phases.map(|phase| &mut phase.interval).chain([whole]);
    intervals
        .flat_map(|interval| [&mut interval.before, &mut interval.after])
        .filter_map(|reading| reading.tracer.as_mut())
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::{
        Operation, ProbeConfiguration,
        job::IorEngine,
        message::{MountFacts, Reading},
        operation::{Totals, Variant},
        tool_job::{OutputPiece, Reference, Source, ToolFigures},
        tracer_messages::{CounterRow, Device, Task},
    };

    use super::*;

    const OURS: Device = Device { major: 0, minor: 44 };

    fn row(cgroup: u64, minor: u32) -> CounterRow {
        let totals = Totals { calls: 1, bytes: 2, errors: 0 };
        CounterRow {
            cgroup,
            device: Device { major: 0, minor },
            mount: 9,
            path: None,
            operation: Operation::Read,
            variant: None,
            task: None,
            totals,
            latency: Vec::new(),
        }
    }

    fn sample(rows: Vec<CounterRow>) -> Sample {
        Sample { monotonic_ns: 1, label: None, rows, events: Vec::new(), losses: Default::default() }
    }

    fn figures(samples: usize, foreign: u32) -> RunOutcome {
        let reading = Reading { monotonic_ns: 1, idle_ns: None, tracer: None, mountstats: None };
        let mut rows = vec![row(7, 44)];
        rows.extend((0..foreign).map(|minor| row(8, 100 + minor)));
        RunOutcome::Measured(Box::new(RunFigures {
            probe: ProbeConfiguration::BASELINE,
            engine: Some(IorEngine::Embedded),
            features: Vec::new(),
            summary: "{}".to_owned(),
            cgroup: 7,
            mount: MountFacts { device: OURS, ..MountFacts::default() },
            phases: Vec::new(),
            whole: Interval {
                before: Reading { tracer: Some(sample(rows.clone())), ..reading.clone() },
                after: reading,
            },
            tracer: None,
            ended: None,
            tool_statistics: Vec::new(),
            tool: None,
            samples: vec![sample(rows); samples],
            bystander: None,
            warm_up: None,
            namespace: Vec::new(),
        }))
    }

    fn decode(frame: &[u8]) -> RunFigures {
        let mut decoder = frame::Decoder::default();
        decoder.push(frame);
        match decoder.next().unwrap() {
            Some(GuestMessage::RunEnded { outcome, .. }) => match *outcome {
                RunOutcome::Measured(figures) => *figures,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_fits_stays_whole() {
        let (frame, notes) = report("r", figures(3, 4), 1 << 20).unwrap();
        assert!(notes.is_empty());
        assert_eq!(decode(&frame).samples[2].rows.len(), 5);
    }

    #[test]
    fn foreign_rows_go_first_and_are_counted() {
        let (frame, notes) = report("r", figures(10, 50), 10_000).unwrap();
        assert_eq!(
            notes[0],
            "500 rows of periodic samples left out: neither the workload's cgroup nor its file system"
        );
        let figures = decode(&frame);
        assert_eq!(figures.samples.len(), 10);
        assert!(figures.samples.iter().all(|sample| sample.rows == [row(7, 44)]));
    }

    /// Rows of threads become sums without threads, so figures of the whole system stay true.
    #[test]
    fn threads_go_before_rows_of_readings_and_from_all_readings() {
        let RunOutcome::Measured(mut figures) = figures(0, 5) else { panic!("measured above") };
        let by_thread = |rows: &[CounterRow]| -> Vec<CounterRow> {
            let of = |row: &CounterRow| {
                (1..=9).map(|id| CounterRow { task: Some(Task::new(id, id, "x")), ..row.clone() }).collect()
            };
            rows.iter().flat_map::<Vec<_>, _>(of).collect()
        };
        let before = figures.whole.before.tracer.as_mut().unwrap();
        before.rows = by_thread(&before.rows);
        let rows = before.rows.clone();
        figures.whole.after.tracer = Some(sample(rows.clone()));
        let reference = Reference { before: sample(rows.clone()), after: sample(rows) };
        let piece = OutputPiece {
            monotonic_ns: 1,
            source: Source::Output,
            endpoint: 0,
            text: String::new(),
            reference: Some(Box::new(reference)),
        };
        figures.tool = Some(Box::new(ToolFigures { output: vec![piece], ..ToolFigures::default() }));
        let (frame, notes) = report("r", RunOutcome::Measured(figures), 8000).unwrap();
        assert_eq!(notes, ["the threads of 216 rows left out"]);
        let figures = decode(&frame);
        let reference = figures.tool.as_ref().unwrap().output[0].reference.as_ref().unwrap();
        let [before, after] = [&figures.whole.before, &figures.whole.after].map(|reading| reading.tracer.as_ref());
        for sample in [before.unwrap(), after.unwrap(), &reference.before, &reference.after] {
            assert_eq!(sample.rows.len(), 6);
            let is_sum = |row: &CounterRow| row.task.is_none() && (row.totals.calls, row.totals.bytes) == (9, 18);
            assert!(sample.rows.iter().all(is_sum), "{sample:?}");
        }
    }

    #[test]
    fn variants_stay_where_threads_go() {
        let RunOutcome::Measured(mut figures) = figures(0, 0) else { panic!("measured above") };
        let of = |variant, id| CounterRow {
            operation: Operation::Fsync,
            variant: Some(variant),
            task: Some(Task::new(id, id, "x")),
            ..row(7, 44)
        };
        let of_threads = |variant| (1..=30).map(move |id| of(variant, id));
        let rows: Vec<_> = of_threads(Variant::Fsync).chain(of_threads(Variant::Fdatasync).take(20)).collect();
        figures.whole.after.tracer = Some(sample(rows));
        let (frame, _) = report("r", RunOutcome::Measured(figures), 3000).unwrap();
        let rows = decode(&frame).whole.after.tracer.unwrap().rows;
        let found: Vec<_> = rows.iter().map(|row| (row.variant, row.totals.calls)).collect();
        assert_eq!(found, [(Some(Variant::Fsync), 30), (Some(Variant::Fdatasync), 20)]);
    }

    #[test]
    fn then_samples_are_thinned_until_it_fits() {
        let (frame, notes) = report("r", figures(64, 0), 6000).unwrap();
        assert!(frame.len() <= 6000);
        let kept = decode(&frame).samples.len();
        assert!((1..64).contains(&kept) && notes.len() as u32 == (64 / kept).ilog2(), "{kept} {notes:?}");
    }

    #[test]
    fn what_cannot_fit_is_an_error() {
        assert!(report("r", figures(4, 4), 100).is_err());
        let failed = RunOutcome::Failed { message: "x".repeat(200) };
        assert!(report("r", failed, 100).is_err());
    }
}
