// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;
use crate::{
    Bounds,
    simulation::{Distribution, share},
};

/// Creates a series of levels (log ratio, number of points). The noise has a deviation of 1 %, of
/// which replicates show nothing.
fn series(generator: &mut Generator, shape: Distribution, levels: &[(f64, usize)]) -> Vec<Option<Point>> {
    levels
        .iter()
        .flat_map(|&(level, n)| std::iter::repeat_n(level, n))
        .map(|level| Some(single(level + 0.01 * shape.draw(generator))))
        .collect()
}

/// Creates a point with many replicates.
fn point(log_ratio: f64, variance: f64) -> Point {
    Point { log_ratio, variance, degrees_of_freedom: 20.0, layout: 0.0 }
}

/// Creates a point without replicates.
fn single(log_ratio: f64) -> Point {
    Point { degrees_of_freedom: 0.0, ..point(log_ratio, 0.0) }
}

/// Creates a search for independent noise.
fn quick(alpha: f64) -> Search {
    Search { alpha, autocorrelation: 0.0, ..Search::new(1) }
}

fn exact(levels: &[(f64, usize)]) -> Vec<Option<Point>> {
    levels.iter().flat_map(|&(level, n)| std::iter::repeat_n(Some(single(level)), n)).collect()
}

#[test]
fn an_exact_step_is_found_where_it_is() {
    let found = Search::new(1).changes(&exact(&[(0.1, 12), (0.15, 13)])).unwrap();
    let [change] = found.changes[..] else { panic!("{found:?}") };
    assert_eq!((change.last_before, change.first_after, change.earliest, change.latest), (11, 12, 12, 12));
    assert_eq!((change.certainty, change.ratio.bounds), (1.0, Bounds::NoSpread));
    assert!((change.ratio.value - 0.05_f64.exp()).abs() < 1e-12 && change.p < 0.001);
    assert_eq!(found.stretches.len(), 2);
}

#[test]
fn what_comes_and_goes_is_found() {
    let mut generator = Generator::new(81);
    let found =
        quick(0.01).changes(&series(&mut generator, Distribution::Normal, &[(0.0, 10), (0.05, 8), (0.0, 12)])).unwrap();
    let places: Vec<usize> = found.changes.iter().map(|change| change.first_after).collect();
    assert_eq!(places, [10, 18]);
    let [up, down] = found.changes[..] else { panic!("{found:?}") };
    assert!(up.ratio.value > 1.03 && down.ratio.value < 0.97, "{found:?}");
}

#[test]
fn missing_points_leave_the_place_open() {
    let mut series = exact(&[(0.0, 10), (0.1, 10)]);
    for index in [0, 4, 9, 10, 11] {
        series[index] = None;
    }
    let found = Search::new(1).changes(&series).unwrap();
    let [change] = found.changes[..] else { panic!("{found:?}") };
    assert_eq!((change.last_before, change.first_after), (8, 12));
    assert_eq!((found.stretches[0].first, found.stretches[0].level.n, found.stretches[1].last), (1, 7, 19));
}

#[test]
fn few_points_have_no_changes_and_none_are_an_error() {
    let search = Search::new(1);
    for n in 1..4 {
        assert_eq!(search.changes(&exact(&[(0.1, n)])).unwrap().changes, []);
    }
    assert_eq!(search.changes(&exact(&[(0.1, 1)])).unwrap().stretches[0].level.bounds, Bounds::OneObservation);
    assert_eq!(search.changes(&exact(&[(0.1, 30)])).unwrap().changes, []);
    assert_eq!(search.changes(&[None, None]), Err(StatsError::Empty));
    assert_eq!(search.changes(&[]), Err(StatsError::Empty));
    // Two kernels without replicates cannot be distinguished from chance.
    assert_eq!(search.changes(&[0.0, 0.5].map(|level| Some(single(level)))).unwrap().changes, []);
}

#[test]
fn what_is_no_series_is_refused() {
    let search = Search::new(1);
    let refused = |log_ratio, variance| search.changes(&[Some(point(log_ratio, variance))]).unwrap_err();
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(matches!(refused(value, 0.0), StatsError::NotFinite { .. }));
        assert!(matches!(refused(0.0, value), StatsError::NotFinite { .. }));
    }
    assert_eq!(refused(0.0, -1.0), StatsError::Negative { value: -1.0 });
    assert_eq!((refused(-1e4, 0.0), refused(0.0, 1e9)), (StatsError::Range, StatsError::Range));
    let one = exact(&[(0.0, 9)]);
    assert!(Search { alpha: 0.0, ..search }.changes(&one).is_err());
    assert!(Search { margin: 0.9, ..search }.changes(&one).is_err());
    assert!(Search { autocorrelation: 1.0, ..search }.changes(&one).is_err());
    assert!(Search { shortest: 0, ..search }.changes(&one).is_err());
    assert!(Search { level: 1.0, ..search }.changes(&one).is_err());
}

/// 300 series without change have a standard error of 0.0126 at 0.05; 100 series each have a step
/// of three deviations.
#[test]
fn steps_are_found_and_noise_is_not() {
    let mut generator = Generator::new(82);
    for (shape, least) in [(Distribution::Normal, 0.9), (Distribution::HeavyTailed, 0.9), (Distribution::Skewed, 0.9)] {
        let step = 0.03 * shape.deviation();
        let alarms = share(300, || {
            !quick(0.05).changes(&series(&mut generator, shape, &[(0.0, 24)])).unwrap().changes.is_empty()
        });
        assert!(alarms <= 0.085, "{shape:?}: {alarms}");
        let (mut near, mut inside) = (0, 0);
        let found = share(100, || {
            let found = quick(0.05).changes(&series(&mut generator, shape, &[(0.0, 14), (step, 10)])).unwrap();
            if let Some(change) = found.changes.first() {
                near += usize::from(change.first_after.abs_diff(14) <= 1);
                inside += usize::from(change.earliest <= 14 && 14 <= change.latest);
            }
            !found.changes.is_empty()
        });
        assert!(found >= least, "{shape:?}: {found}");
        assert!(near as f64 / 100.0 >= least - 0.15, "{shape:?}: {near} near");
        assert!(inside as f64 / 100.0 >= least - 0.1, "{shape:?}: {inside} inside");
    }
}

/// An uncertain point that lies far off must not count as a level.
#[test]
fn unsure_points_count_less() {
    let mut generator = Generator::new(83);
    let alarms = share(200, || {
        let series: Vec<_> = (0..24)
            .map(|index| {
                let deviation = if index % 6 == 5 { 0.05 } else { 0.005 };
                Some(point(deviation * generator.normal(), deviation * deviation))
            })
            .collect();
        !quick(0.05).changes(&series).unwrap().changes.is_empty()
    });
    assert!(alarms <= 0.1, "{alarms}");
}

/// Intervals of the step are checked over 200 series in which exactly that step was found.
#[test]
fn the_interval_of_a_step_covers_it() {
    let mut generator = Generator::new(84);
    let (mut single, mut covered) = (0, 0);
    for _ in 0..200 {
        let found =
            quick(0.05).changes(&series(&mut generator, Distribution::Normal, &[(0.0, 12), (0.05, 12)])).unwrap();
        if let [change] = found.changes[..] {
            let interval = change.ratio.bounds.interval().unwrap();
            single += 1;
            covered += usize::from(interval.lower <= 0.05_f64.exp() && 0.05_f64.exp() <= interval.upper);
        }
    }
    assert!(single >= 170, "{single}");
    assert!(covered as f64 / f64::from(single) >= 0.9, "{covered} of {single}");
}

/// Creates first-order autoregressive noise of deviation 1, like that of kernels that share most of
/// their source.
fn autocorrelated(generator: &mut Generator, n: usize, correlation: f64) -> Vec<f64> {
    let (mut noise, fresh) = (generator.normal(), (1.0 - correlation * correlation).sqrt());
    let mut next = || {
        noise = correlation * noise + fresh * generator.normal();
        noise
    };
    (0..n).map(|_| next()).collect()
}

/// At most 2 % of 200 series of 31 kernels without change, whose replicates show the noise, may
/// have a false alarm.
#[test]
fn autocorrelated_noise_gives_no_false_alarms() {
    let mut generator = Generator::new(86);
    let alarms = share(200, || {
        let noise = autocorrelated(&mut generator, 31, 0.35);
        let series: Vec<_> = noise.iter().map(|noise| Some(point(0.01 * noise, 1e-4))).collect();
        !Search::new(1).changes(&series).unwrap().changes.is_empty()
    });
    assert!(alarms <= 0.02, "{alarms}");
}

/// A step of 5 % after three points at a noise of 0.2 % is found at its place in at least 19 of 20
/// series.
#[test]
fn a_step_after_three_points_is_found() {
    let mut generator = Generator::new(87);
    for points in [9, 12, 31] {
        let found = share(200, || {
            let noise = autocorrelated(&mut generator, points, 0.35);
            let step = |index: usize| if index < 3 { 0.0 } else { 0.05 };
            let series: Vec<_> =
                noise.iter().enumerate().map(|(index, noise)| Some(point(step(index) + 0.002 * noise, 4e-6))).collect();
            let found = Search::new(1).changes(&series).unwrap();
            found.changes.iter().map(|change| change.first_after).eq([3])
        });
        assert!(found >= 0.95, "{points} points: {found}");
    }
}

/// No arrangement of eight points is rare enough for a permutation test at 1 %.
#[test]
fn four_points_and_four_are_enough() {
    let mut generator = Generator::new(88);
    let levels = [(0.0, 4), (0.05, 4)];
    let found = share(100, || {
        let series: Vec<_> = levels
            .iter()
            .flat_map(|&(level, n)| std::iter::repeat_n(level, n))
            .map(|level| Some(point(level + 0.002 * generator.normal(), 4e-6)))
            .collect();
        !Search::new(1).changes(&series).unwrap().changes.is_empty()
    });
    assert!(found >= 0.95, "{found}");
}

/// Neighbours show noise that replicates do not show. Here replicates show a quarter of the
/// variance or less by two degrees of freedom each, or nothing at all.
#[test]
fn noise_that_replicates_do_not_show_gives_no_false_alarms() {
    let mut generator = Generator::new(89);
    for (shown, degrees_of_freedom) in [(0.25, 2.0), (0.001, 2.0), (0.0, 0.0)] {
        for points in [6, 12, 31] {
            let alarms = share(200, || {
                let noise = autocorrelated(&mut generator, points, 0.35);
                let mut variance = || 1e-4 * shown * (generator.normal().powi(2) + generator.normal().powi(2)) / 2.0;
                let point = |noise: f64| Point { degrees_of_freedom, ..point(0.01 * noise, variance()) };
                let series: Vec<_> = noise.into_iter().map(point).map(Some).collect();
                !Search::new(1).changes(&series).unwrap().changes.is_empty()
            });
            assert!(alarms <= 0.02, "{shown} {points}: {alarms}");
        }
    }
}

/// The layout term declares noise, so what it explains is no change.
#[test]
fn the_layout_term_is_noise() {
    let series = |layout: f64| -> Vec<_> {
        [(0.0, 6), (0.004, 6)]
            .iter()
            .flat_map(|&(level, n)| std::iter::repeat_n(Some(Point { layout, ..point(level, 1e-9) }), n))
            .collect()
    };
    let changes = |layout| Search::new(1).changes(&series(layout)).unwrap().changes.len();
    assert_eq!((changes(0.0), changes(1e-7), changes(1e-5)), (1, 1, 0));
}

/// Replicates show that one stretch is noisy and the other one quiet: the step in the quiet one is
/// found, and none in the noisy one.
#[test]
fn a_noisy_stretch_does_not_hide_steps_of_a_quiet_one() {
    let mut generator = Generator::new(90);
    let found = share(100, || {
        let series: Vec<_> = (0..28)
            .map(|index| {
                let deviation = if index < 12 { 0.15 } else { 0.002 };
                let level = [1.0, 0.0, -0.07][usize::from(index >= 12) + usize::from(index >= 20)];
                Some(point(level + deviation * generator.normal(), deviation * deviation))
            })
            .collect();
        let found = Search::new(1).changes(&series).unwrap();
        found.changes.iter().map(|change| change.first_after).eq([12, 20])
    });
    assert!(found >= 0.95, "{found}");
}

/// The last kernel alone changes, as `compare` would find it.
#[test]
fn the_last_point_alone_is_enough() {
    let mut series: Vec<_> = (0..12).map(|index| Some(point(0.001 * f64::from(index % 2), 4e-6))).collect();
    series.push(Some(point(0.05, 4e-6)));
    let found = Search::new(1).changes(&series).unwrap();
    let [change] = found.changes[..] else { panic!("{found:?}") };
    assert_eq!((change.last_before, change.first_after), (11, 12));
}

/// In families of twelve series without change, at most α of the families have an alarm, although
/// each series alone may have that many.
#[test]
fn the_rate_is_kept_over_a_family() {
    let mut generator = Generator::new(91);
    let search = Search { alpha: 0.05, ..Search::new(1) };
    let alarms = share(50, || {
        let mut series = || -> Vec<_> {
            autocorrelated(&mut generator, 20, 0.35).into_iter().map(|noise| Some(point(0.01 * noise, 1e-4))).collect()
        };
        let family: Vec<_> = (0..12).map(|_| series()).collect();
        search.family(&family).into_iter().any(|found| !found.unwrap().changes.is_empty())
    });
    assert!(alarms <= 0.06, "{alarms}");
}

/// A change that holds alone does not hold among many series, but a clear one does. Invalid series
/// do not count in the family.
#[test]
fn a_family_asks_for_more_than_a_series() {
    let step =
        |size: f64| -> Vec<_> { (0..10).map(|index| Some(point(if index < 5 { 0.0 } else { size }, 4e-6))).collect() };
    let search = Search { autocorrelation: 0.0, ..Search::new(1) };
    let is_found = |size: f64| !search.changes(&step(size)).unwrap().changes.is_empty();
    // The smallest step that is found alone, in steps of 0.0002.
    let smallest = (1..100).map(|size| 0.0002 * f64::from(size)).find(|&size| is_found(size)).unwrap();
    let mut family = vec![step(0.0); 50];
    family.extend([step(smallest), step(2.0 * smallest), vec![None]]);
    let found: Vec<_> =
        search.family(&family).into_iter().map(|found| found.map(|found| found.changes.len())).collect();
    assert_eq!(found[49..], [Ok(0), Ok(0), Ok(1), Err(StatsError::Empty)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Neither the unit nor the level matters, the seed determines everything, and stretches cover
    /// the series.
    #[test]
    fn segmentations_follow_the_series(steps in prop::collection::vec((-0.1..0.1f64, 2..8usize), 1..4), seed: u64, scale in 0.5..4.0f64) {
        let mut generator = Generator::new(seed);
        let series = series(&mut generator, Distribution::Normal, &steps);
        let search = Search { alpha: 0.02, ..Search::new(seed) };
        let found = search.changes(&series).unwrap();
        prop_assert_eq!(&search.changes(&series).unwrap(), &found);
        prop_assert_eq!(found.stretches.len(), found.changes.len() + 1);
        prop_assert_eq!(found.stretches.iter().map(|stretch| stretch.level.n).sum::<usize>(), series.len());
        for change in &found.changes {
            prop_assert!(change.earliest <= change.latest && change.p <= 0.02);
        }
        let moved: Vec<_> = series
            .iter()
            .map(|point| point.map(|point| Point { log_ratio: scale * point.log_ratio + 1.0, variance: scale * scale * point.variance, ..point }))
            .collect();
        let moved = search.changes(&moved).unwrap();
        let places = |found: &Segmentation| found.changes.iter().map(|change| change.first_after).collect::<Vec<_>>();
        prop_assert_eq!(places(&moved), places(&found));
    }

    #[test]
    fn any_series_is_taken_or_refused(series in prop::collection::vec(prop::option::of((prop::num::f64::ANY, prop::num::f64::ANY, prop::num::f64::ANY, 0.0..9.0f64)), 0..12)) {
        let point = |(log_ratio, variance, layout, degrees_of_freedom)| Point { log_ratio, variance, degrees_of_freedom, layout };
        let series: Vec<_> = series.into_iter().map(|found| found.map(point)).collect();
        if let Ok(found) = quick(0.05).changes(&series) {
            prop_assert!(!found.stretches.is_empty());
        }
    }
}
