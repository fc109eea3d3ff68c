// SPDX-License-Identifier: MIT OR Apache-2.0
//! The panels of one figure. They share one axis so that they can be compared. Figures that are
//! much less certain get panels with another axis. If all panels show the same, one replaces them.

use std::ops::Range;

use super::{
    super::plot::{self, Curves, Intervals, Mark, Sizes},
    Plot,
};

/// How many times wider than usual an interval must be to count as noise. It must also be wider
/// than the whole axis of the others.
const WIDE: f64 = 5.0;
/// Marks that differ by less than this share of their value count as equal: tables show four digits
/// after the point.
const SAME: f64 = 5e-5;

/// The common properties of a figure's panels.
#[derive(Clone, Copy)]
pub(in super::super) struct PanelStyle<'a> {
    /// The name in the title.
    pub(in super::super) name: &'a str,
    /// The name of the axis.
    pub(in super::super) axis: &'a str,
    /// The value without an effect.
    pub(in super::super) reference: f64,
    /// How to read the figure.
    pub(in super::super) note: &'a str,
}

/// A panel before its axis is known.
#[derive(Debug, Clone)]
pub(in super::super) struct Panel {
    /// The subject: target and file system.
    pub(in super::super) place: String,
    /// The title: the place, and by what the panel shows the figure.
    pub(in super::super) title: String,
    pub(in super::super) series: Vec<String>,
    pub(in super::super) shape: PanelShape,
}

/// A label, and a mark of each series that has one.
type PanelRow = (String, Vec<(u8, Mark)>);

/// How a panel shows its marks.
#[derive(Debug, Clone)]
pub(in super::super) enum PanelShape {
    Rows(Vec<PanelRow>),
    Curves(Curves),
}

impl Panel {
    fn marks(&self) -> Vec<(u8, Mark)> {
        match &self.shape {
            PanelShape::Rows(rows) => rows.iter().flat_map(|(_, marks)| marks.iter().copied()).collect(),
            PanelShape::Curves(curves) => {
                let number = |index: usize| u8::try_from(index).unwrap_or(u8::MAX);
                let of = |(index, points): (usize, &Vec<(f64, Mark)>)| {
                    points.iter().map(move |(_, mark)| (number(index), *mark)).collect::<Vec<_>>()
                };
                curves.series.iter().enumerate().flat_map(of).collect()
            }
        }
    }

    /// Returns the panel with only the series for which `is_kept` holds. The series keep their
    /// numbers, and so their colours. Returns `None` if no mark is left.
    fn with(&self, is_kept: impl Fn(u8) -> bool) -> Option<Self> {
        let mut panel = self.clone();
        match &mut panel.shape {
            PanelShape::Rows(rows) => {
                rows.iter_mut().for_each(|(_, marks)| marks.retain(|(series, _)| is_kept(*series)));
                rows.retain(|(_, marks)| !marks.is_empty());
            }
            PanelShape::Curves(curves) => {
                for (series, points) in (0_u8..).zip(&mut curves.series) {
                    if !is_kept(series) {
                        points.clear();
                    }
                }
            }
        }
        for (series, name) in (0_u8..).zip(&mut panel.series) {
            if !is_kept(series) {
                name.clear();
            }
        }
        (!panel.marks().is_empty()).then_some(panel)
    }

    fn drawn(self, of: PanelStyle<'_>, axis: Option<Range<f64>>, note: String) -> Option<Plot> {
        let svg = match self.shape {
            PanelShape::Rows(rows) => Sizes::both(|size| {
                let rows = rows.clone();
                let quantity = of.axis.to_owned();
                plot::intervals(&Intervals { quantity, reference: of.reference, axis: axis.clone(), rows }, size)
            }),
            PanelShape::Curves(curves) => {
                let curves = Curves { axis, ..curves };
                Sizes::both(|size| plot::curves(&curves, size))
            }
        }?;
        Some(Plot { title: self.title, svg, axis: of.axis.to_owned(), series: self.series, note, ..Plot::default() })
    }
}

/// Draws the plots of the `panels` that have a mark.
pub(in super::super) fn together(mut panels: Vec<Panel>, of: PanelStyle<'_>) -> Vec<Plot> {
    panels.retain(|panel| !panel.marks().is_empty());
    if let Some((panel, note)) = alike(&panels, of) {
        return panel.drawn(of, None, note).into_iter().collect();
    }
    let (quiet, noisy) = apart(&panels, of);
    let is_shared = quiet.len() > 1;
    let axis = |panels: &[Panel]| {
        let ends = panels.iter().flat_map(Panel::marks).flat_map(|(_, mark)| mark.ends());
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

/// Returns one panel with all rows, and how to read it, if every mark of several panels is the
/// same.
fn alike(panels: &[Panel], of: PanelStyle<'_>) -> Option<(Panel, String)> {
    let [first, _, ..] = panels else { return None };
    let value = first.marks().first()?.1.value;
    let is_same = |end: f64| (end - value).abs() <= SAME * value.abs().max(1.0);
    let all = || panels.iter().flat_map(Panel::marks);
    all().all(|(_, mark)| mark.ends().into_iter().all(is_same)).then_some(())?;
    let mut rows: Vec<PanelRow> = Vec::new();
    for panel in panels {
        let PanelShape::Rows(of_panel) = &panel.shape else { return None };
        for (label, marks) in of_panel {
            let Some((_, known)) = rows.iter_mut().find(|(known, _)| known == label) else {
                rows.push((label.clone(), marks.clone()));
                continue;
            };
            known.extend(marks.iter().filter(|(series, _)| !marks_series(known, *series)).copied().collect::<Vec<_>>());
        }
    }
    let places: Vec<&str> = panels.iter().map(|panel| panel.place.as_str()).collect();
    let title = format!("{} the same everywhere: {value:.4}", of.name);
    let note = format!("{} The same in every row of {}.", of.note, places.join("; "));
    Some((Panel { title, shape: PanelShape::Rows(rows), ..first.clone() }, note))
}

fn marks_series(marks: &[(u8, Mark)], series: u8) -> bool {
    marks.iter().any(|(known, _)| *known == series)
}

/// Splits the panels into what one axis can show, and what is too noisy for it.
fn apart(panels: &[Panel], of: PanelStyle<'_>) -> (Vec<Panel>, Vec<Panel>) {
    // The widest interval of each series in each panel, and the ends of all its marks.
    let mut units: Vec<((usize, u8), f64, [f64; 2])> = Vec::new();
    for (index, panel) in panels.iter().enumerate() {
        for (series, mark) in panel.marks() {
            let [lower, value, upper] = mark.ends();
            let (width, low, high) = (upper - lower, lower.min(value), upper.max(value));
            match units.iter_mut().find(|(unit, ..)| *unit == (index, series)) {
                Some((_, widest, ends)) => {
                    *widest = widest.max(width);
                    *ends = [ends[0].min(low), ends[1].max(high)];
                }
                None => units.push(((index, series), width, [low, high])),
            }
        }
    }
    let mut widths: Vec<f64> = units.iter().map(|(_, width, _)| *width).collect();
    widths.sort_by(f64::total_cmp);
    let usual = widths.get(widths.len() / 2).copied().unwrap_or(0.0);
    let is_usual = |width: f64| width <= WIDE * usual;
    let quiet = units.iter().filter(|(_, width, _)| is_usual(*width)).map(|(.., ends)| ends);
    let [low, high] = quiet.fold([of.reference; 2], |[low, high], ends| [low.min(ends[0]), high.max(ends[1])]);
    let noisy: Vec<(usize, u8)> =
        units.iter().filter(|(_, width, _)| !is_usual(*width) && *width > high - low).map(|(unit, ..)| *unit).collect();
    let part = |wanted: bool| {
        let of = |(index, panel): (usize, &Panel)| panel.with(|series| noisy.contains(&(index, series)) == wanted);
        panels.iter().enumerate().filter_map(of).collect()
    };
    (part(false), part(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: PanelStyle<'_> = PanelStyle { name: "overhead", axis: "overhead", reference: 1.0, note: "A note." };

    fn panel(place: &str, marks: &[(f64, f64)]) -> Panel {
        let mark = |&(value, half): &(f64, f64)| Mark { value, interval: Some((value - half, value + half)) };
        Panel {
            place: place.to_owned(),
            title: format!("{place}: overhead"),
            series: ["write", "read"].map(str::to_owned).into(),
            shape: PanelShape::Rows(vec![("fexit".to_owned(), (0_u8..).zip(marks.iter().map(mark)).collect())]),
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
        let plots = together(vec![panel("a", &[(1.01, 0.001)]), panel("b", &[(1.03, 0.001)])], OF);
        assert_eq!(plots.iter().map(|plot| plot.title.as_str()).collect::<Vec<_>>(), ["a: overhead", "b: overhead"]);
        assert_eq!(labels(&plots[0]), labels(&plots[1]));
        assert!(labels(&plots[0]).len() > 3, "{:?}", labels(&plots[0]));
        assert_eq!(plots[0].note, "A note. All on one axis.");
    }

    #[test]
    fn what_is_noisy_stands_apart() {
        let plots = together(
            vec![
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

    #[test]
    fn what_is_the_same_everywhere_is_one_panel() {
        let plots = together(vec![panel("a", &[(1.0, 0.0); 2]), panel("b", &[(1.000_01, 0.0); 2])], OF);
        assert_eq!(plots.len(), 1);
        assert_eq!(plots[0].title, "overhead the same everywhere: 1.0000");
        assert_eq!(plots[0].note, "A note. The same in every row of a; b.");
        // The panels stay apart if one mark differs, or is less certain.
        assert_eq!(together(vec![panel("a", &[(1.0, 0.0); 2]), panel("b", &[(1.001, 0.0); 2])], OF).len(), 2);
        assert_eq!(together(vec![panel("a", &[(1.0, 0.0); 2]), panel("b", &[(1.0, 0.01); 2])], OF).len(), 2);
    }
}
