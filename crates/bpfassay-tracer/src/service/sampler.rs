// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts the tracer's counters into rows of a sample or of the metrics endpoint.

use std::{collections::BTreeMap, os::fd::BorrowedFd};

use bpfassay_protocol::{
    Operation,
    program_set::EventRow,
    tracer_messages::{Attached, CounterRow, Device, Losses, Sample},
};
use rustix::time::{ClockId, clock_gettime};

use crate::{
    counters::{counting_tracer::Tracer, error::ReadError},
    kernel::{
        kernel_cgroups::Cgroups,
        mountinfo::{Mounts, MountsError},
    },
    service::metrics::{LabelledCounters, Labels, MetricsSnapshot},
};

/// Replaces path and device if the probe does not know them.
const NOT_KNOWN: &str = "not known";

/// The source of the counters: the tracer, or in tests a source with fixed counts.
pub(crate) trait CounterSource {
    /// [`Tracer::attached`].
    fn attached(&self) -> &Attached;

    /// [`Tracer::rows`].
    ///
    /// # Errors
    /// [`ReadError`] if the counters cannot be read.
    fn rows(&mut self) -> Result<Vec<CounterRow>, ReadError>;

    /// [`Tracer::event_rows`].
    ///
    /// # Errors
    /// [`ReadError`] if the counters cannot be read.
    fn event_rows(&mut self) -> Result<Vec<EventRow>, ReadError>;

    /// [`Tracer::losses`].
    ///
    /// # Errors
    /// [`ReadError`] if the counts of losses cannot be read.
    fn losses(&mut self) -> Result<Losses, ReadError>;
}

impl CounterSource for Tracer {
    fn attached(&self) -> &Attached {
        self.attached()
    }

    fn rows(&mut self) -> Result<Vec<CounterRow>, ReadError> {
        self.rows()
    }

    fn event_rows(&mut self) -> Result<Vec<EventRow>, ReadError> {
        self.event_rows()
    }

    fn losses(&mut self) -> Result<Losses, ReadError> {
        self.losses()
    }
}

/// A tracer, and the names of what it counts.
pub(crate) struct Sampler<'a, S> {
    source: &'a mut S,
    mounts: Mounts,
    cgroups: Cgroups,
    /// Paths that mounts have or had, by device and mount id. A counter keeps its label after an
    /// unmount.
    paths: BTreeMap<(Device, u64), String>,
    /// Whether `readv` counts as `read` and `writev` as `write`.
    merge: bool,
}

impl Sampler<'_, Tracer> {
    /// [`Tracer::fd`].
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.source.fd()
    }

    /// [`Tracer::drain`].
    ///
    /// # Errors
    /// [`ReadError`] if the ring buffer cannot be read.
    pub(crate) fn drain(&mut self) -> Result<(), ReadError> {
        self.source.drain()
    }
}

impl<'a, S: CounterSource> Sampler<'a, S> {
    /// Creates a sampler that reads `source`.
    ///
    /// # Errors
    /// [`MountsError`] if the mount table cannot be read.
    pub(crate) fn new(source: &'a mut S, merge: bool) -> Result<Self, MountsError> {
        let mounts = Mounts::open()?;
        let cgroups = Cgroups::new(mounts.of_type("cgroup2").next().map(Into::into));
        Ok(Self { source, mounts, cgroups, paths: BTreeMap::new(), merge })
    }

    /// Takes a sample now.
    ///
    /// # Errors
    /// [`ReadError`] if the counters or the mount table cannot be read.
    pub(crate) fn sample(&mut self, label: Option<String>) -> Result<Sample, ReadError> {
        let now = clock_gettime(ClockId::Monotonic);
        Ok(Sample {
            monotonic_ns: now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs(),
            label,
            rows: self.rows()?,
            events: self.source.event_rows()?,
            losses: self.source.losses()?,
        })
    }

    /// Takes a snapshot for the metrics endpoint. Counters of keys with the same labels are summed.
    ///
    /// # Errors
    /// [`ReadError`] if the counters or the mount table cannot be read.
    pub(crate) fn snapshot(&mut self) -> Result<MetricsSnapshot<'_>, ReadError> {
        let mut series = BTreeMap::<Labels, LabelledCounters>::new();
        for row in self.rows()? {
            let path = self.paths.entry((row.device, row.mount)).or_default();
            if row.device == Device::UNKNOWN {
                NOT_KNOWN.clone_into(path);
            } else if let Some(now) = row.path {
                *path = now;
            }
            let labels = Labels {
                operation: row.operation,
                mount: path.clone(),
                device: match row.device {
                    Device::UNKNOWN => NOT_KNOWN.to_owned(),
                    Device { major, minor } => format!("{major}:{minor}"),
                },
                mount_id: row.mount,
                cgroup: self.cgroups.label(row.cgroup),
            };
            series.entry(labels).or_default().add(row.totals, &row.latency);
        }
        let losses = self.source.losses()?;
        Ok(MetricsSnapshot { attached: self.source.attached(), series, losses })
    }

    fn rows(&mut self) -> Result<Vec<CounterRow>, ReadError> {
        let mut rows = self.source.rows()?;
        if self.merge {
            rows = merge(rows);
        }
        self.mounts.name(&mut rows).map_err(ReadError::Mounts)?;
        Ok(rows)
    }
}

/// Counts `readv` as `read` and `writev` as `write`. Keeps the order by key.
fn merge(rows: Vec<CounterRow>) -> Vec<CounterRow> {
    let mut merged = BTreeMap::<_, CounterRow>::new();
    for mut row in rows {
        row.operation = match row.operation {
            Operation::Readv => Operation::Read,
            Operation::Writev => Operation::Write,
            other => other,
        };
        let key = (row.cgroup, row.device, row.mount, row.operation, row.variant, row.task.clone());
        match merged.get_mut(&key) {
            Some(known) => known.add(row.totals, &row.latency),
            None => {
                merged.insert(key, row);
            }
        }
    }
    merged.into_values().collect()
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::operation::Totals;
    use proptest::prelude::*;

    use super::*;
    use crate::service::metrics::{self, Format};

    fn row(cgroup: u64, mount: u64, operation: Operation, bytes: u64, latency: &[u64]) -> CounterRow {
        CounterRow {
            cgroup,
            device: Device { major: 0, minor: 50 },
            mount,
            path: None,
            operation,
            variant: None,
            task: None,
            totals: Totals { calls: 1, bytes, errors: 0 },
            latency: latency.to_vec(),
        }
    }

    struct Fake {
        attached: Attached,
        rows: Vec<CounterRow>,
    }

    impl CounterSource for Fake {
        fn attached(&self) -> &Attached {
            &self.attached
        }

        fn rows(&mut self) -> Result<Vec<CounterRow>, ReadError> {
            Ok(self.rows.clone())
        }

        fn event_rows(&mut self) -> Result<Vec<EventRow>, ReadError> {
            Ok(Vec::new())
        }

        fn losses(&mut self) -> Result<Losses, ReadError> {
            Ok(Losses::default())
        }
    }

    fn fake(rows: Vec<CounterRow>) -> Fake {
        Fake { attached: Attached::none("fexit".parse().unwrap()), rows }
    }

    #[test]
    fn vectors_count_with_the_plain_calls_when_merged() {
        let rows = vec![
            row(1, 1, Operation::Read, 10, &[0, 1]),
            row(1, 1, Operation::Readv, 5, &[0, 0, 1]),
            row(1, 2, Operation::Writev, 7, &[]),
            row(1, 2, Operation::Open, 0, &[]),
        ];
        let merged = merge(rows);
        let shown: Vec<_> = merged.iter().map(|row| (row.mount, row.operation, row.totals.bytes)).collect();
        assert_eq!(shown, [(1, Operation::Read, 15), (2, Operation::Write, 7), (2, Operation::Open, 0)]);
        assert_eq!((merged[0].totals.calls, &merged[0].latency[..]), (2, &[0, 1, 1][..]));
    }

    #[test]
    fn a_sample_carries_label_and_paths() {
        let mut tracer = fake(vec![row(1, u64::MAX, Operation::Readv, 3, &[])]);
        let apart = Sampler::new(&mut tracer, false).unwrap().sample(Some("x".to_owned())).unwrap();
        assert_eq!((apart.label.as_deref(), apart.rows[0].operation), (Some("x"), Operation::Readv));
        assert_eq!(apart.rows[0].path, None);
        assert_eq!(Sampler::new(&mut tracer, true).unwrap().sample(None).unwrap().rows[0].operation, Operation::Read);
    }

    #[test]
    fn keys_with_the_same_labels_are_one_counter() {
        let mut tracer = fake(vec![row(1, 7, Operation::Read, 3, &[]), row(2, 7, Operation::Read, 4, &[])]);
        let mut reader = Sampler::new(&mut tracer, false).unwrap();
        reader.paths.insert((Device { major: 0, minor: 50 }, 7), "/was here".to_owned());
        // Two jobs with the same name, one after the other.
        reader.cgroups = Cgroups::of([(1, "/job"), (2, "/job")]);
        let snapshot = reader.snapshot().unwrap();
        assert_eq!(snapshot.series.len(), 1);
        let text = metrics::render(&snapshot, Format::Text);
        let expected = "bpfassay_bytes_total{operation=\"read\",mount=\"/was here\",device=\"0:50\",mount_id=\"7\",\
                        cgroup=\"/job\"} 7\n";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn what_the_probe_does_not_have_is_shown_as_unknown() {
        let nowhere = CounterRow { device: Device::UNKNOWN, ..row(1, 0, Operation::Open, 0, &[]) };
        let mut tracer = fake(vec![nowhere]);
        let mut reader = Sampler::new(&mut tracer, false).unwrap();
        let text = metrics::render(&reader.snapshot().unwrap(), Format::Text);
        assert!(text.contains("mount=\"not known\",device=\"not known\",mount_id=\"0\""), "{text}");
    }

    proptest! {
        #[test]
        fn merging_loses_nothing_and_keeps_the_order(keys in prop::collection::vec((0u64..3, 0u64..3, 0usize..13, 0u64..99), 0..40)) {
            let rows: Vec<_> = keys.iter().map(|&(c, m, o, b)| row(c, m, Operation::ALL[o], b, &[b])).collect();
            let bytes = |rows: &[CounterRow]| rows.iter().map(|row| row.totals.bytes).sum::<u64>();
            let (before, merged) = (bytes(&rows), merge(rows));
            prop_assert_eq!(bytes(&merged), before);
            prop_assert!(merged.is_sorted_by_key(|row| (row.cgroup, row.device, row.mount, row.operation)));
        }
    }
}
