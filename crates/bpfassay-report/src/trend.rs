// SPDX-License-Identifier: MIT OR Apache-2.0
//! A series of kernels, tool versions or days: the figures along it, and where their level changed.
//! Pure.

mod trend_noise;

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
};

use bpfassay_protocol::Arch;
use bpfassay_stats::change_points::{Point, Search, Segmentation};
use bpfassay_study::{Clock, MetricName, Plan, Share, by_version};
use serde::{Deserialize, Serialize};

use crate::{
    compare::{NotComparable, same_guests, usual_margin},
    derive::lookup::{ByCell, by_cell},
};
use bpfassay_results::{CellMetric, CellResult, Figure, Results};

/// Version of the JSON form of a trend.
pub const TREND_VERSION: u32 = 4;

/// Seed of the intervals of places: the same results give the same answer.
const SEED: u64 = 1;

/// Figures along a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trend {
    /// Version of this form.
    pub version: u32,
    /// The clock of all results.
    pub clock: Clock,
    /// Error rate of the search for changes: the probability of at least one false alarm in all
    /// series without a change (Holm).
    pub error_rate: f64,
    /// Changes of level up to this share, either way, are negligible.
    pub margin: Share,
    /// One series per architecture, workload case, file system, probe configuration or tool, and
    /// metric.
    pub series: Vec<TrendSeries>,
}

/// One figure along the series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrendSeries {
    /// The architecture.
    pub arch: Arch,
    /// The workload case.
    pub case: String,
    /// Identifier of the file system.
    pub file_system: String,
    /// The probe configuration or tool.
    pub under_test: String,
    /// Name of the metric.
    pub metric: MetricName,
    /// The quantity of the figures.
    pub quantity: Quantity,
    /// The points in order.
    pub points: Vec<SeriesPoint>,
    /// The changes of level; indices are indices into `points`.
    pub segmentation: Figure<Segmentation>,
}

/// One point of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesPoint {
    /// The kernel; with several results also the name of the results.
    pub label: String,
    /// The figure, in the unit of the quantity.
    pub value: Figure<f64>,
}

/// The quantity that the figures of a series measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Direct cost in instructions per call.
    DirectCost,
    /// Extra instructions per call.
    InstructionsPerCall,
    /// Relative overhead, a ratio.
    Overhead,
    /// Bandwidth of the baseline in MiB/s.
    Bandwidth,
    /// Time per call of the baseline in nanoseconds.
    TimePerCall,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::DirectCost => "direct cost",
            Self::InstructionsPerCall => "instructions/call",
            Self::Overhead => "overhead",
            Self::Bandwidth => "MiB/s",
            Self::TimePerCall => "ns/call",
        })
    }
}

type NamedResults<'a> = (&'a str, &'a Results);

/// Derives the trend over `results`, each with a name, in the given order. The kernels within one
/// result are in the order of their versions.
///
/// # Errors
/// [`NotComparable`], if the results were measured under different clocks or in guests with
/// different set-ups, or if there are none.
pub fn trend<R: Borrow<Results>>(results: &[(String, R)]) -> Result<Trend, NotComparable> {
    let results: Vec<NamedResults<'_>> =
        results.iter().map(|(name, results)| (name.as_str(), results.borrow())).collect();
    let Some((_, first)) = results.first() else {
        return Err(NotComparable::NothingInCommon { hint: "no results were given".to_owned() });
    };
    let clock = first.plan.study.clock;
    if let Some((_, other)) = results.iter().find(|(_, other)| other.plan.study.clock != clock) {
        return Err(NotComparable::Clock { base: clock, new: other.plan.study.clock });
    }
    results.iter().try_for_each(|(_, other)| same_guests(first, other))?;
    let margin = usual_margin(clock);
    let search = Search { margin: margin.ratio(), ..Search::new(SEED) };
    let index = Index::of(&results);
    let (mut series, mut figures) = (Vec::<TrendSeries>::new(), Vec::new());
    let (mut known, mut counted) = (HashSet::<(SeriesGroup<'_>, &str)>::new(), HashSet::new());
    for (_, result) in &results {
        for cell in &result.cells {
            for metric in &cell.metrics {
                let mut add = |quantity| {
                    let (of_metric, points) = one(&index, cell, metric.name, quantity);
                    series.push(of_metric);
                    figures.push(points);
                };
                let name = (kind(cell), &*metric.name);
                if metric.direct.is_some() && counted.insert(name.clone()) {
                    add(Quantity::DirectCost);
                }
                if known.insert(name) {
                    add(quantity(&index, cell, metric.name));
                }
            }
        }
    }
    for ((of_metric, points), found) in series.iter_mut().zip(&figures).zip(search.family(&figures)) {
        if points.iter().any(Option::is_some) {
            of_metric.segmentation = found.into();
        }
    }
    Ok(Trend { version: TREND_VERSION, clock, error_rate: search.alpha, margin, series })
}

/// The properties that distinguish series except for the metric: architecture, workload case, file
/// system, what is under test.
type SeriesGroup<'a> = (Arch, &'a str, &'a str, String);

fn kind(cell: &CellResult) -> SeriesGroup<'_> {
    (cell.target.arch, &cell.case, &cell.file_system, cell.under_test())
}

/// Results and the indexes to look up each series.
struct Index<'a> {
    results: Vec<OfResults<'a>>,
    /// The cells with the same architecture and the same thing under test, over all results.
    alike: HashMap<(Arch, String), Vec<&'a CellResult>>,
}

struct OfResults<'a> {
    name: &'a str,
    plan: &'a Plan,
    runs: ByCell<'a>,
    /// The kernels of each architecture, by version.
    kernels: BTreeMap<Arch, Vec<&'a str>>,
    /// The cells by kind and kernel. The first cell counts.
    cells: HashMap<SeriesGroup<'a>, HashMap<&'a str, &'a CellResult>>,
}

impl<'a> Index<'a> {
    fn of(results: &[NamedResults<'a>]) -> Self {
        let mut index = Self { results: Vec::new(), alike: HashMap::new() };
        for (name, result) in results {
            let mut of_results = OfResults {
                name,
                plan: &result.plan,
                runs: by_cell(&result.runs),
                kernels: BTreeMap::new(),
                cells: HashMap::new(),
            };
            for target in result.plan.targets() {
                of_results.kernels.entry(target.arch).or_default().push(&target.kernel);
            }
            for kernels in of_results.kernels.values_mut() {
                kernels.sort_by(|a, b| by_version(a, b));
            }
            for cell in &result.cells {
                let of_kind = of_results.cells.entry(kind(cell)).or_default();
                of_kind.entry(&cell.target.kernel).or_insert(cell);
                index.alike.entry((cell.target.arch, cell.under_test())).or_default().push(cell);
            }
            index.results.push(of_results);
        }
        index
    }
}

/// Creates the series to which `model` belongs, without its changes, and its points for the search.
fn one(
    index: &Index<'_>,
    model: &CellResult,
    metric: MetricName,
    quantity: Quantity,
) -> (TrendSeries, Vec<Option<Point>>) {
    let mut series = TrendSeries {
        arch: model.target.arch,
        case: model.case.clone(),
        file_system: model.file_system.clone(),
        under_test: model.under_test(),
        metric,
        quantity,
        points: Vec::new(),
        segmentation: Figure::missing("no point was measured"),
    };
    let mut points = Vec::new();
    for OfResults { name, plan, runs, kernels, cells } in &index.results {
        let cells = cells.get(&kind(model));
        for &kernel in kernels.get(&model.target.arch).into_iter().flatten() {
            let label = if index.results.len() > 1 { format!("{kernel} {name}") } else { kernel.to_owned() };
            let cell = cells.and_then(|cells| cells.get(kernel));
            let figures = cell.and_then(|cell| Some((runs.get(cell.cell.as_str())?.as_slice(), cell.metric(&metric)?)));
            let (value, point) = match figures {
                Some((runs, figures)) => trend_noise::value(plan, runs, figures, quantity),
                None => (Figure::missing("not in the plan"), None),
            };
            series.points.push(SeriesPoint { label, value });
            points.push(point);
        }
    }
    (series, points)
}

/// Chooses the quantity of a series. It is instructions per call only if all measured points are
/// positive, because other figures have no ratio.
fn quantity(index: &Index<'_>, model: &CellResult, metric: MetricName) -> Quantity {
    if model.is_baseline() {
        let of_calls = model.metric(&metric).is_some_and(|figures| figures.calls_of.is_some());
        return if of_calls { Quantity::TimePerCall } else { Quantity::Bandwidth };
    }
    let mut measured = index
        .alike
        .get(&(model.target.arch, model.under_test()))
        .into_iter()
        .flatten()
        .flat_map(|cell| &cell.metrics)
        .filter(|figures| figures.name == metric && figures.overhead.value().is_some());
    let is_positive = |figures: &CellMetric| figures.cost.value().is_some_and(|cost| cost.per_call.value > 0.0);
    if measured.all(is_positive) { Quantity::InstructionsPerCall } else { Quantity::Overhead }
}

impl Trend {
    /// Returns the changes, each with its series.
    pub fn changes(&self) -> impl Iterator<Item = (&TrendSeries, &bpfassay_stats::change_points::ChangePoint)> {
        self.series.iter().flat_map(|series| {
            let found = series.segmentation.value();
            found.into_iter().flat_map(|found| &found.changes).map(move |change| (series, change))
        })
    }

    /// Returns what distinguishes series except for probe configuration and metric, each once.
    pub(crate) fn groups(&self) -> Vec<(Arch, &str, &str)> {
        let mut seen = BTreeSet::new();
        let group = |series: &'_ TrendSeries| (series.arch, series.case.clone(), series.file_system.clone());
        self.series
            .iter()
            .filter(|series| seen.insert(group(series)))
            .map(|series| (series.arch, series.case.as_str(), series.file_system.as_str()))
            .collect()
    }
}
