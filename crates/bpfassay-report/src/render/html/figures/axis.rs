// SPDX-License-Identifier: MIT OR Apache-2.0
//! The axis of a figure. Panels with curves share one axis so that they can be compared. Figures
//! that are much less certain get an axis that the others do not have.

use std::ops::Range;

use super::{
    super::plot::{self, Curves, Mark, Sizes},
    Plot,
};

/// How many times wider than usual an interval must be to count as noise. It must also be wider
/// than the whole axis of the others.
const WIDE: f64 = 5.0;

/// The common properties of a figure's plots.
#[derive(Clone, Copy)]
pub(in super::super) struct PlotStyle<'a> {
    /// The name of the axis.
    pub(in super::super) axis: &'a str,
    /// Follows the numbers on the axis.
    pub(in super::super) unit: &'static str,
    /// The value without an effect.
    pub(in super::super) reference: f64,
    /// How to read the figure.
    pub(in super::super) note: &'a str,
}

/// A panel with curves, before its axis is known.
#[derive(Debug, Clone)]
pub(super) struct Panel {
    /// The title: the place, and by what the panel shows the figure.
    pub(super) title: String,
    pub(super) series: Vec<String>,
    pub(super) curves: Curves,
}

impl Panel {
    /// Returns the panel with only the series for which `is_kept` holds. The series keep their
    /// numbers, and so their colours. Returns `None` if no mark is left.
    fn with(&self, is_kept: impl Fn(usize) -> bool) -> Option<Self> {
        let mut panel = self.clone();
        for (series, points) in panel.curves.series.iter_mut().enumerate().filter(|(series, _)| !is_kept(*series)) {
            points.clear();
            panel.series.get_mut(series).into_iter().for_each(String::clear);
        }
        let has_marks = panel.marks().next().is_some();
        has_marks.then_some(panel)
    }

    fn marks(&self) -> impl Iterator<Item = Mark> {
        self.curves.series.iter().flatten().map(|(_, mark)| *mark)
    }

    fn drawn(self, of: PlotStyle<'_>, axis: Option<Range<f64>>, note: String) -> Option<Plot> {
        let curves = Curves { axis, unit: of.unit, ..self.curves };
        let svg = Sizes::both(|size| plot::curves(&curves, size))?;
        Some(Plot { title: self.title, svg, axis: of.axis.to_owned(), series: self.series, note, ..Plot::default() })
    }
}

/// Draws the plots of the `panels` that have a mark.
pub(super) fn together(panels: &[Panel], of: PlotStyle<'_>) -> Vec<Plot> {
    let mut units: Vec<((usize, usize), Extent)> = Vec::new();
    for (index, panel) in panels.iter().enumerate() {
        for (series, points) in panel.curves.series.iter().enumerate() {
            let extent = points.iter().map(|(_, mark)| Extent::of(*mark)).reduce(Extent::and);
            units.extend(extent.map(|extent| ((index, series), extent)));
        }
    }
    let extents: Vec<Extent> = units.iter().map(|(_, extent)| *extent).collect();
    let noisy = noisy(&extents, of.reference);
    let noisy: Vec<(usize, usize)> =
        units.iter().zip(noisy).filter(|(_, is_noisy)| *is_noisy).map(|((unit, _), _)| *unit).collect();
    let part = |wanted: bool| -> Vec<Panel> {
        let of = |(index, panel): (usize, &Panel)| panel.with(|series| noisy.contains(&(index, series)) == wanted);
        panels.iter().enumerate().filter_map(of).collect()
    };
    let (quiet, noisy) = (part(false), part(true));
    let is_shared = quiet.len() > 1;
    let axis = |panels: &[Panel]| {
        let ends = panels.iter().flat_map(Panel::marks).flat_map(Mark::ends);
        plot::span(ends.chain([of.reference]))
    };
    let (of_quiet, of_noisy) = (axis(&quiet), axis(&noisy));
    let note = if is_shared { format!("{} All on one axis.", of.note) } else { of.note.to_owned() };
    let mut plots: Vec<Plot> =
        quiet.into_iter().filter_map(|panel| panel.drawn(of, of_quiet.clone(), note.clone())).collect();
    for panel in noisy {
        let title = format!("{}, wide intervals", panel.title);
        let note = format!(
            "{} These intervals are wider than the axis of the others: they have an axis of their own.",
            of.note
        );
        plots.extend(Panel { title, ..panel }.drawn(of, of_noisy.clone(), note));
    }
    plots
}

/// The widest interval of marks, and the ends of all marks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    widest: f64,
    low: f64,
    high: f64,
}

impl Extent {
    pub(super) fn of(mark: Mark) -> Self {
        let [lower, value, upper] = mark.ends();
        Self { widest: upper - lower, low: lower.min(value), high: upper.max(value) }
    }

    fn and(self, other: Self) -> Self {
        Self { widest: self.widest.max(other.widest), low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

/// Returns for each extent whether its marks are too noisy for the axis of the others.
pub(super) fn noisy(extents: &[Extent], reference: f64) -> Vec<bool> {
    let mut widths: Vec<f64> = extents.iter().map(|of| of.widest).collect();
    widths.sort_by(f64::total_cmp);
    let usual = widths.get(widths.len() / 2).copied().unwrap_or(0.0);
    let is_usual = |of: &Extent| of.widest <= WIDE * usual;
    let none = Extent { widest: 0.0, low: reference, high: reference };
    let quiet = extents.iter().copied().filter(is_usual).fold(none, Extent::and);
    extents.iter().map(|of| !is_usual(of) && of.widest > quiet.high - quiet.low).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: PlotStyle<'_> = PlotStyle { axis: "overhead", unit: "", reference: 1.0, note: "A note." };

    fn panel(place: &str, marks: &[(f64, f64)]) -> Panel {
        let mark = |&(value, half): &(f64, f64)| Mark { value, interval: Some((value - half, value + half)) };
        Panel {
            title: format!("{place}: overhead"),
            series: ["write", "read"].map(str::to_owned).into(),
            curves: Curves { series: marks.iter().map(|of| vec![(1.0, mark(of))]).collect(), ..Curves::default() },
        }
    }

    fn labels(plot: &Plot) -> Vec<String> {
        let numbers = plot.svg.wide.split("<text").skip(1).filter_map(|text| {
            let shown = text.split_once('>')?.1.split_once('<')?.0.trim().to_owned();
            shown.parse::<f64>().is_ok().then_some(shown)
        });
        numbers.collect()
    }

    #[test]
    fn panels_have_one_axis() {
        let plots = together(&[panel("a", &[(1.01, 0.001)]), panel("b", &[(1.03, 0.001)])], OF);
        assert_eq!(plots.iter().map(|plot| plot.title.as_str()).collect::<Vec<_>>(), ["a: overhead", "b: overhead"]);
        assert_eq!(labels(&plots[0]), labels(&plots[1]));
        assert!(labels(&plots[0]).len() > 3, "{:?}", labels(&plots[0]));
        assert_eq!(plots[0].note, "A note. All on one axis.");
    }

    #[test]
    fn what_is_noisy_stands_apart() {
        let plots = together(
            &[
                panel("a", &[(1.01, 0.001), (1.02, 0.001)]),
                panel("b", &[(0.9, 3.0), (1.03, 0.001)]),
                panel("c", &[(1.02, 0.002), (1.5, 0.001)]),
            ],
            OF,
        );
        let titles: Vec<&str> = plots.iter().map(|plot| plot.title.as_str()).collect();
        // A large and certain figure is no noise.
        assert_eq!(titles, ["a: overhead", "b: overhead", "c: overhead", "b: overhead, wide intervals"]);
        assert_eq!(
            (plots[1].series.as_slice(), plots[3].series.as_slice()),
            (&[String::new(), "read".to_owned()][..], &["write".to_owned(), String::new()][..])
        );
        assert_eq!(labels(&plots[0]), labels(&plots[1]));
        assert_ne!(labels(&plots[0]), labels(&plots[3]));
    }
}
