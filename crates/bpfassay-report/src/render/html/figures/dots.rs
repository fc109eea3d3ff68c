// SPDX-License-Identifier: MIT OR Apache-2.0
//! A dot plot with one row for each cell. Figures that are much less certain than the others get a
//! second plot with another axis.

use super::{
    super::plot::{self, DotRow, Dots, Sizes},
    Plot,
    axis::{Extent, PlotStyle, noisy},
};

/// The largest number of rows.
const MOST_ROWS: usize = 100;

/// Draws `rows`; a plot exists if it has a mark. `title` says what the plot shows.
pub(in super::super) fn dots(title: &str, mut rows: Vec<DotRow>, metrics: &[&str], of: PlotStyle<'_>) -> Vec<Plot> {
    let more = rows.len().saturating_sub(MOST_ROWS);
    rows.truncate(MOST_ROWS);
    let extents: Vec<_> = rows.iter().flat_map(|row| row.marks.iter().map(|(_, mark)| Extent::of(*mark))).collect();
    let mut noisy = noisy(&extents, of.reference).into_iter();
    let mut wide = Vec::new();
    for row in &mut rows {
        let (apart, kept) = row.marks.drain(..).partition(|_| noisy.next().unwrap_or_default());
        row.marks = kept;
        if !apart.is_empty() {
            wide.push(DotRow { label: row.label.clone(), marks: apart, note: String::new() });
            row.note = "wide intervals: below".to_owned();
        }
    }
    let rest = match more {
        0 => String::new(),
        more => format!(" {more} more rows are in the tables."),
    };
    let apart = " These intervals are wider than the axis of the others.";
    let draw = |title: String, rows: Vec<DotRow>, more: &str| {
        let names = series(metrics, &rows);
        let dots = Dots { quantity: of.axis.to_owned(), unit: of.unit, reference: of.reference, rows };
        let svg = Sizes::both(|size| plot::dots(&dots, size))?;
        let note = format!("{}{more}", of.note);
        Some(Plot { title, svg, axis: dots.quantity, series: names, note, ..Plot::default() })
    };
    let plots = [draw(title.to_owned(), rows, &rest), draw(format!("{title}, wide intervals"), wide, apart)];
    plots.into_iter().flatten().collect()
}

/// Returns the names of the series in these rows: all metrics up to the last one that occurs. A
/// series without marks has an empty name.
fn series(metrics: &[&str], rows: &[DotRow]) -> Vec<String> {
    let has = |series: usize| rows.iter().flat_map(|row| &row.marks).any(|(known, _)| usize::from(*known) == series);
    let last = (0..metrics.len()).rfind(|series| has(*series)).map_or(0, |last| last + 1);
    (0..last).map(|series| if has(series) { metrics[series].to_owned() } else { String::new() }).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::super::plot::Mark, *};

    const OF: PlotStyle<'_> = PlotStyle { axis: "overhead", unit: "%", reference: 0.0, note: "A note." };

    fn row(label: &str, marks: &[(f64, f64)]) -> DotRow {
        let mark = |&(value, half): &(f64, f64)| Mark { value, interval: Some((value - half, value + half)) };
        DotRow { label: label.to_owned(), marks: (0_u8..).zip(marks.iter().map(mark)).collect(), note: String::new() }
    }

    fn plots(rows: Vec<DotRow>) -> Vec<Plot> {
        dots("overhead", rows, &["write", "read", "work"], OF)
    }

    #[test]
    fn what_is_noisy_stands_apart() {
        let plots = plots(vec![
            row("a", &[(1.01, 0.001), (1.02, 0.001)]),
            row("b", &[(0.9, 3.0), (1.03, 0.001)]),
            // A large and certain figure is no noise.
            row("c", &[(1.02, 0.002), (1.5, 0.001)]),
        ]);
        let titles: Vec<&str> = plots.iter().map(|plot| plot.title.as_str()).collect();
        assert_eq!(titles, ["overhead", "overhead, wide intervals"]);
        assert_eq!([&plots[0].series, &plots[1].series], [&["write", "read"][..], &["write"]]);
        let rows = |plot: &Plot| ["a", "b", "c"].map(|label| plot.svg.wide.contains(&format!("\n{label}\n")));
        assert_eq!((rows(&plots[0]), rows(&plots[1])), ([true; 3], [false, true, false]), "{}", plots[0].svg.wide);
        assert_eq!(plots[1].note, "A note. These intervals are wider than the axis of the others.");
    }

    #[test]
    fn what_has_no_figure_keeps_its_row_with_the_reason() {
        let refused = DotRow { note: "refused as expected".to_owned(), ..row("b", &[]) };
        let plots = plots(vec![row("a", &[(1.0, 0.1)]), refused.clone()]);
        assert!(plots[0].svg.wide.contains("\nb\n") && plots[0].svg.wide.contains("refused as expected"));
        assert_eq!(self::plots(vec![refused]), []);
    }

    #[test]
    fn rows_that_are_left_out_are_counted() {
        let plots = plots((0..103).map(|_| row("a", &[(1.0, 0.1)])).collect());
        assert_eq!(plots[0].note, "A note. 3 more rows are in the tables.");
        assert_eq!(plots[0].svg.wide.matches("<circle").count(), 100);
    }
}
