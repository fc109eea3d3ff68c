// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the heavy estimators at the sizes of a study: `cargo bench -p bpfassay-stats`.

use std::hint::black_box;

use bpfassay_stats::{
    change_points::{Point, Search},
    hierarchical::Hierarchy,
    power::detectable_shift,
    random::Generator,
};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

fn figures(n: usize) -> Vec<f64> {
    let mut generator = Generator::new(1);
    (0..n).map(|_| 0.01 * generator.normal()).collect()
}

fn hierarchical(criterion: &mut Criterion) {
    let logs = figures(400);
    let boots: Vec<&[f64]> = logs.chunks(20).collect();
    criterion.bench_function("hierarchical, 20 boots of 20", |bencher| {
        bencher.iter(|| Hierarchy::new(black_box(&boots)));
    });
}

fn change_points(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("change points");
    for n in [25, 40] {
        let step = |index: usize| if index < n / 2 { 0.0 } else { 0.05 };
        let series: Vec<Option<Point>> = figures(n)
            .into_iter()
            .enumerate()
            .map(|(index, noise)| {
                Some(Point { log_ratio: step(index) + noise, variance: 1e-6, degrees_of_freedom: 4.0, layout: 0.0 })
            })
            .collect();
        group.bench_with_input(BenchmarkId::from_parameter(n), &series, |bencher, series| {
            bencher.iter(|| Search::new(1).changes(black_box(series)));
        });
    }
    group.finish();
}

fn power(criterion: &mut Criterion) {
    criterion.bench_function("minimum detectable effect", |bencher| {
        bencher.iter(|| detectable_shift(0.05, black_box(7.0), 0.8));
    });
}

criterion_group!(benches, hierarchical, change_points, power);
criterion_main!(benches);
