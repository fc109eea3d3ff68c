// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plots of few, of no and of any figures.

use proptest::prelude::*;

use super::*;

fn mark(value: f64) -> Mark {
    Mark { value, interval: Some((value - 0.1, value + 0.1)) }
}

fn of_rows(marks: Vec<(u8, Mark)>) -> Dots {
    let row = DotRow { label: "fexit".into(), marks, note: String::new() };
    Dots { quantity: "overhead".into(), unit: "", reference: 1.0, rows: vec![row] }
}

#[test]
fn colours_are_the_page_s() {
    let svg = dots(&of_rows(vec![(0, mark(1.0)), (1, mark(1.2))]), PlotSize::Wide).unwrap();
    assert!(svg.contains("var(--ink)") && svg.contains("var(--grid)"), "{svg}");
    assert!(svg.contains("var(--series-0)") && svg.contains("var(--series-1)"), "{svg}");
    assert!(svg.starts_with("<svg viewBox="), "{svg}");
    assert!(svg.contains("fexit"));
}

#[test]
fn nothing_is_no_plot() {
    assert_eq!(dots(&of_rows(Vec::new()), PlotSize::Wide), None);
    let curves_of = |series| Curves { logarithmic: true, series, ..Curves::default() };
    assert_eq!(curves(&curves_of(Vec::new()), PlotSize::Wide), None);
    assert_eq!(
        curves(&curves_of(vec![vec![(0.0, mark(1.0))]]), PlotSize::Wide),
        None,
        "a logarithmic axis has no zero"
    );
}

#[test]
fn an_axis_with_numbers_that_no_power_of_ten_reaches_ends() {
    let smallest = [f64::from_bits(1), f64::MIN_POSITIVE, 1e-300, 1e-13];
    for at in smallest {
        let plot = Curves {
            logarithmic: true,
            series: vec![[at, 1.0].map(|at| (at, mark(1.0))).to_vec()],
            ..Curves::default()
        };
        assert_eq!(curves(&plot, PlotSize::Wide), None, "{at:e}");
    }
}

#[test]
fn numbers_are_as_long_as_they_need_be() {
    let all = |values: &[f64], span, unit| values.iter().map(|value| figure(*value, span, unit)).collect::<Vec<_>>();
    assert_eq!(all(&[0.0, 0.998, 1.0, 1.0005], 0.002, ""), ["0", "0.9980", "1.0000", "1.0005"]);
    assert_eq!(all(&[-0.001, 5.0, 1234.4], 2000.0, ""), ["0", "5", "1234"]);
    assert_eq!(all(&[1.0, 1.05], 0.3, ""), ["1.00", "1.05"]);
    assert_eq!(all(&[-1.0, 0.0, 2.5], 3.0, "%"), ["-1.0%", "0%", "+2.5%"]);
}

proptest! {
    #[test]
    fn any_figures_end_in_a_plot_or_none(values in proptest::collection::vec(any::<(f64, f64)>(), 0..8), logarithmic: bool) {
        let points: Vec<_> =
            values.iter().map(|&(at, value)| (at, Mark { value, interval: Some((value, at)) })).collect();
        let plot = Curves {
            along: "x".into(),
            quantity: "y".into(),
            reference: Some(1.0),
            logarithmic,
            series: vec![points],
            ..Curves::default()
        };
        let _ = (curves(&plot, PlotSize::Wide), curves(&plot, PlotSize::Narrow));
    }
}
