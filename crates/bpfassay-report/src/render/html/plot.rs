// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plots as SVG elements. The page's CSS (`report.css`) defines their colours, so they are readable
//! on light and dark.
//!
//! Series differ by colour and by the shape of their marks, and every plot is also a table on the
//! page.

use std::ops::Range;

use bpfassay_stats::Estimate;
use plotters::{
    chart::{ChartBuilder, ChartContext},
    coord::{Shift, ranged1d::ValueFormatter, types::RangedCoordf64},
    drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea},
    element::{Circle, Cross, PathElement, Polygon, Text},
    prelude::{Cartesian2d, IntoLogRange as _, LogCoord, Ranged, SVGBackend},
    style::{
        Color as _, IntoFont as _, RGBColor, ShapeStyle, TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};

/// Placeholder colours for variables of the page's style; [`themed`] replaces them.
const INK: RGBColor = RGBColor(1, 1, 1);
const GRID: RGBColor = RGBColor(2, 2, 2);
/// The number of series that can be distinguished; further series reuse the colours.
const SERIES: u8 = 8;

/// The width for which a plot is drawn, in the plot's own unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlotSize {
    /// For windows as wide as a tablet, and for paper.
    Wide,
    /// For narrow windows, in which the letters of a wide plot would be too small to read.
    Narrow,
}

impl PlotSize {
    pub(super) const fn width(self) -> u32 {
        match self {
            Self::Wide => 600,
            Self::Narrow => 320,
        }
    }

    /// Returns the longest label of a row, in characters.
    const fn longest(self) -> usize {
        match self {
            Self::Wide => 45,
            Self::Narrow => 20,
        }
    }

    /// Returns the number of numbers along an axis.
    const fn labels(self, wide: usize) -> usize {
        match self {
            Self::Wide => wide,
            Self::Narrow => wide / 2,
        }
    }

    /// Returns the name of an axis, if there is room for it.
    fn name(self, quantity: &str) -> &str {
        match self {
            Self::Wide => quantity,
            Self::Narrow => "",
        }
    }
}

/// A plot in both sizes; a window shows one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) wide: String,
    pub(super) narrow: String,
}

impl Sizes {
    pub(super) fn of(draw: impl Fn(PlotSize) -> String) -> Self {
        Self { wide: draw(PlotSize::Wide), narrow: draw(PlotSize::Narrow) }
    }

    /// Draws both sizes; `None` if there is nothing to draw.
    pub(super) fn both(draw: impl Fn(PlotSize) -> Option<String>) -> Option<Self> {
        Some(Self { wide: draw(PlotSize::Wide)?, narrow: draw(PlotSize::Narrow)? })
    }
}

/// Height of one row of an interval plot.
const ROW: u32 = 26;
/// Average width of a character of a label.
const CHARACTER: u32 = 7;
/// Font size in the unit of plotters, which writes 1 / 1.24 of it.
const FONT: i32 = 16;
/// Half the width of the number below the end of an axis.
const MARGIN: u32 = 32;

/// The largest value that is drawn, in any unit.
const LARGEST: f64 = 1e12;

type DrawingFailed = DrawingAreaErrorKind<std::io::Error>;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mark {
    pub(super) value: f64,
    pub(super) interval: Option<(f64, f64)>,
}

impl Mark {
    /// Creates a mark with the estimate's interval, if it has one.
    pub(super) fn of(estimate: &Estimate) -> Self {
        let interval = estimate.bounds.interval().map(|interval| (interval.lower, interval.upper));
        Self { value: estimate.value, interval }
    }

    /// Returns the mark of a ratio in per cent beyond 1.
    pub(super) fn percent(self) -> Self {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let interval = self.interval.map(|(lower, upper)| (percent(lower), percent(upper)));
        Self { value: percent(self.value), interval }
    }

    /// Returns the lower end of the interval, the value, and the upper end.
    pub(super) fn ends(self) -> [f64; 3] {
        let (lower, upper) = self.interval.unwrap_or((self.value, self.value));
        [lower, self.value, upper]
    }
}

/// Estimates of several things below each other.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Dots {
    /// The quantity with its unit.
    pub(super) quantity: String,
    /// Follows the numbers on the axis.
    pub(super) unit: &'static str,
    /// The value without an effect.
    pub(super) reference: f64,
    pub(super) rows: Vec<DotRow>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct DotRow {
    pub(super) label: String,
    /// A mark of each series that has one.
    pub(super) marks: Vec<(u8, Mark)>,
    /// Tells why there is no mark. Rows with marks do not show it.
    pub(super) note: String,
}

/// Estimates along a quantity.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Curves {
    /// The quantity on the horizontal axis, with its unit.
    pub(super) along: String,
    pub(super) quantity: String,
    /// Follows the numbers on the vertical axis.
    pub(super) unit: &'static str,
    /// The value without an effect, if there is one.
    pub(super) reference: Option<f64>,
    /// The range of the vertical axis; `None`: the range of the marks.
    pub(super) axis: Option<Range<f64>>,
    /// Names of the points 0, 1, 2 … on the horizontal axis, if they are not numbers.
    pub(super) names: Vec<String>,
    /// Whether the horizontal axis is logarithmic.
    pub(super) logarithmic: bool,
    pub(super) series: Vec<Vec<(f64, Mark)>>,
    /// Levels: the series, the range, and the value.
    pub(super) levels: Vec<(u8, Range<f64>, f64)>,
}

/// Draws the plot as an `svg` element; `None` if there is nothing to show.
pub(super) fn dots(plot: &Dots, size: PlotSize) -> Option<String> {
    let ends = plot.rows.iter().flat_map(|row| &row.marks).flat_map(|(_, mark)| mark.ends());
    let x = span(ends.chain([plot.reference]))?;
    plot.rows.iter().any(|row| !row.marks.is_empty()).then_some(())?;
    let longest = plot.rows.iter().map(|row| row.label.chars().count()).max().unwrap_or(0);
    let left =
        u32::try_from(longest).unwrap_or(0).clamp(4, u32::try_from(size.longest()).unwrap_or(4)) * CHARACTER + 16;
    let rows = u32::try_from(plot.rows.len()).ok()?;
    drawn((size.width(), rows * ROW + 64), |area| {
        let y = f64::from(rows)..0.0;
        let mut chart = ChartBuilder::on(area)
            .margin_right(MARGIN)
            .margin_top(8)
            .x_label_area_size(48)
            .y_label_area_size(left)
            .build_cartesian_2d(x.clone(), y)?;
        mesh(&mut chart, (size.name(&plot.quantity), plot.unit), None, size.labels(7), [x.end - x.start, 1.0])?;
        line(&chart, [(plot.reference, 0.0), (plot.reference, f64::from(rows))], INK.mix(0.6).stroke_width(1))?;
        for (number, row) in plot.rows.iter().enumerate() {
            let middle = f64::from(u32::try_from(number).unwrap_or(0)) + 0.5;
            let (reference, at) = chart.backend_coord(&(plot.reference, middle));
            let place = (i32::try_from(left).unwrap_or(0) - 8, at);
            area.draw(&Text::new(shortened(&row.label, size.longest()), place, text(HPos::Right, VPos::Center)))?;
            if row.marks.is_empty() {
                let note = shortened(&row.note, size.longest());
                area.draw(&Text::new(note, (reference + 8, at), text(HPos::Left, VPos::Center)))?;
                continue;
            }
            // The eye follows the row from its label to its marks.
            line(&chart, [(x.start, middle), (x.end, middle)], GRID)?;
            for &(series, mark) in &row.marks {
                // Two series in one row are drawn side by side.
                let offset = if row.marks.len() > 1 { 0.18 * (2.0 * f64::from(series % 2) - 1.0) } else { 0.0 };
                let at = middle + offset;
                if let Some((lower, upper)) = mark.interval {
                    line(&chart, [(lower, at), (upper, at)], colour(series).stroke_width(2))?;
                }
                point(&chart, (mark.value, at), series)?;
            }
        }
        Ok(())
    })
}

/// Draws the plot as an `svg` element; `None` if there is nothing to show.
pub(super) fn curves(plot: &Curves, size: PlotSize) -> Option<String> {
    let points = || plot.series.iter().flatten();
    let own = span(points().flat_map(|(_, mark)| mark.ends()).chain(plot.reference))?;
    let y = plot.axis.clone().unwrap_or(own);
    let along = points().map(|(along, _)| *along).filter(|along| !plot.logarithmic || *along > 0.0);
    let (low, high) = along.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| (low.min(at), high.max(at)));
    if !low.is_finite() || !high.is_finite() || low < -LARGEST || high > LARGEST {
        return None;
    }
    // The library treats such small powers of ten as zero, and then searches the next one forever.
    if plot.logarithmic && low < 1.0 / LARGEST {
        return None;
    }
    // Names are written vertically.
    let longest = plot.names.iter().map(|name| shortened(name, size.longest()).chars().count()).max();
    let bottom = longest.map_or(48, |longest| (u32::try_from(longest).unwrap_or(0) * CHARACTER + 20).min(180));
    drawn((size.width(), 300 + bottom), |area| {
        let mut builder = ChartBuilder::on(area);
        builder.margin_left(12).margin_right(MARGIN).margin_top(8).x_label_area_size(bottom).y_label_area_size(72);
        if plot.logarithmic {
            let chart = builder.build_cartesian_2d((low / 1.3..high * 1.3).log_scale(), y.clone())?;
            draw_log(chart, plot, size, low / 1.3..high * 1.3, y.end - y.start)
        } else {
            let room = ((high - low) * 0.03).max(0.5);
            let chart = builder.build_cartesian_2d(low - room..high + room, y.clone())?;
            draw_linear(area, chart, (plot, size), low - room..high + room, y.end - y.start)
        }
    })
}

type Chart<'a, 'b, X> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, RangedCoordf64>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn draw_log(
    mut chart: Chart<'_, '_, LogCoord<f64>>,
    plot: &Curves,
    size: PlotSize,
    along: Range<f64>,
    height: f64,
) -> Result<(), DrawingFailed> {
    let quantity = Some((size.name(&plot.quantity), plot.unit));
    mesh(&mut chart, (&plot.along, ""), quantity, size.labels(8), [6.0, height])?;
    series(&chart, plot, along)
}

fn draw_linear(
    area: &Area<'_>,
    mut chart: Chart<'_, '_, RangedCoordf64>,
    (plot, size): (&Curves, PlotSize),
    along: Range<f64>,
    height: f64,
) -> Result<(), DrawingFailed> {
    let quantity = Some((size.name(&plot.quantity), plot.unit));
    if plot.names.is_empty() {
        mesh(&mut chart, (&plot.along, ""), quantity, size.labels(8), [along.end - along.start, height])?;
        return series(&chart, plot, along);
    }
    mesh(&mut chart, ("", ""), quantity, 0, [1.0, height])?;
    // Some names are left out if they would overlap.
    let every = plot.names.len().div_ceil(size.labels(24) + 12 * usize::from(size == PlotSize::Wide)).max(1);
    let (_, bottom) = chart.plotting_area().get_pixel_range();
    for (index, name) in plot.names.iter().enumerate().step_by(every) {
        let (at, _) = chart.backend_coord(&(f64::from(u32::try_from(index).unwrap_or(0)), 0.0));
        let style = TextStyle::from(("sans-serif", FONT - 2).into_font())
            .transform(plotters::style::FontTransform::Rotate90)
            .color(&INK)
            .pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(shortened(name, size.longest()), (at + 4, bottom.end + 6), style))?;
    }
    series(&chart, plot, along)
}

fn series<X: Ranged<ValueType = f64>>(
    chart: &Chart<'_, '_, X>,
    plot: &Curves,
    along: Range<f64>,
) -> Result<(), DrawingFailed> {
    if let Some(reference) = plot.reference {
        line(chart, [(along.start, reference), (along.end, reference)], INK.mix(0.6).stroke_width(1))?;
    }
    for (number, points) in plot.series.iter().enumerate().filter(|(_, points)| !points.is_empty()) {
        let number = u8::try_from(number % usize::from(SERIES)).unwrap_or(0);
        line(chart, points.iter().map(|(at, mark)| (*at, mark.value)), colour(number).mix(0.7).stroke_width(2))?;
        for &(at, mark) in points {
            if let Some((lower, upper)) = mark.interval {
                line(chart, [(at, lower), (at, upper)], colour(number).stroke_width(2))?;
            }
            point(chart, (at, mark.value), number)?;
        }
    }
    for (number, range, level) in &plot.levels {
        line(chart, [(range.start, *level), (range.end, *level)], colour(*number).stroke_width(4))?;
    }
    Ok(())
}

/// Draws on an empty area of that size.
fn drawn(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<(), DrawingFailed>) -> Option<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        // Drawing into memory fails only for a plot without extent.
        draw(&area).and_then(|()| area.present()).ok()?;
    }
    Some(themed(&svg))
}

/// Replaces the colours in the output of plotters by the page's variables, and removes the fixed
/// size.
fn themed(svg: &str) -> String {
    let mut svg = svg.replace("#010101", "var(--ink)").replace("#020202", "var(--grid)");
    for number in 0..SERIES {
        svg = svg.replace(&format!("#0303{number:02}"), &format!("var(--series-{number})"));
    }
    // `<svg width="720" height="300" viewBox=…`: the box is enough.
    let Some((start, rest)) = svg.split_once(" width=\"") else { return svg };
    let Some((_, rest)) = rest.split_once("viewBox=") else { return svg };
    format!("{start} viewBox={rest}")
}

/// Draws the axes, each with its name and the unit of its numbers.
fn mesh<X: Ranged<ValueType = f64> + ValueFormatter<f64>>(
    chart: &mut Chart<'_, '_, X>,
    (along, unit_along): (&str, &str),
    quantity: Option<(&str, &str)>,
    labels: usize,
    [width, height]: [f64; 2],
) -> Result<(), DrawingFailed> {
    let (name, unit) = quantity.unwrap_or_default();
    let number = |value: &f64| figure(*value, height, unit);
    let along_number = |value: &f64| figure(*value, width, unit_along);
    let mut mesh = chart.configure_mesh();
    mesh.axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(RGBColor(0, 0, 0).mix(0.0))
        .label_style(text(HPos::Center, VPos::Center))
        .axis_desc_style(text(HPos::Center, VPos::Center))
        .x_desc(along)
        .y_desc(name)
        .x_label_formatter(&along_number)
        .y_label_formatter(&number)
        .x_labels(labels)
        .y_labels(if quantity.is_none() { 0 } else { 6 });
    if quantity.is_none() {
        mesh.disable_y_mesh().disable_y_axis();
    }
    mesh.draw()
}

fn line<X: Ranged<ValueType = f64>>(
    chart: &Chart<'_, '_, X>,
    points: impl IntoIterator<Item = (f64, f64)>,
    style: impl Into<ShapeStyle>,
) -> Result<(), DrawingFailed> {
    let area = chart.plotting_area();
    area.draw(&PathElement::new(points.into_iter().collect::<Vec<_>>(), style))
}

/// Draws the mark of a series: each has a shape as well as a colour.
fn point<X: Ranged<ValueType = f64>>(
    chart: &Chart<'_, '_, X>,
    (x, y): (f64, f64),
    series: u8,
) -> Result<(), DrawingFailed> {
    let at = chart.backend_coord(&(x, y));
    let area = chart.plotting_area().strip_coord_spec();
    let (left, top) = area.get_base_pixel();
    let at = (at.0 - left, at.1 - top);
    let style = colour(series).filled();
    let around = |corners: &[(i32, i32)]| {
        Polygon::new(corners.iter().map(|(x, y)| (at.0 + x, at.1 + y)).collect::<Vec<_>>(), style)
    };
    match series % 4 {
        0 => area.draw(&Circle::new(at, 4, style)),
        1 => area.draw(&around(&[(-4, -4), (4, -4), (4, 4), (-4, 4)])),
        2 => area.draw(&around(&[(0, -6), (6, 4), (-6, 4)])),
        _ => area.draw(&Cross::new(at, 5, colour(series).stroke_width(2))),
    }
}

fn colour(series: u8) -> RGBColor {
    // `#030300` to `#030307`: see `themed`.
    RGBColor(3, 3, series % SERIES)
}

fn text(horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", FONT).into_font()).color(&INK).pos(Pos::new(horizontal, vertical))
}

fn shortened(label: &str, longest: usize) -> String {
    let is_short = label.chars().count() <= longest;
    if is_short { label.to_owned() } else { label.chars().take(longest - 1).chain(['…']).collect() }
}

/// Returns a range that contains all `values` with a margin; `None` without values.
pub(super) fn span(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    // No figure of a run is that large, and an axis would not end.
    if low > high || low < -LARGEST || high > LARGEST {
        return None;
    }
    let room = ((high - low) * 0.06).max(low.abs().max(high.abs()) * 0.002).max(1e-9);
    Some(low - room..high + room)
}

/// Formats a number on an axis that covers `span`, with just enough digits to distinguish
/// neighbours. A per cent has its sign, as in tables.
fn figure(value: f64, span: f64, unit: &str) -> String {
    // An axis has about six marks; marks at least 1 apart are distinct without decimals.
    let digits = (-(span / 6.0).log10()).ceil().clamp(0.0, 6.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 6")]
    let text = format!("{value:.*}", digits as usize);
    let sign = if unit == "%" && value > 0.0 { "+" } else { "" };
    // A number that rounds to zero has no sign.
    let is_zero = text.trim_start_matches('-').chars().all(|c| matches!(c, '0' | '.'));
    if is_zero { format!("0{unit}") } else { format!("{sign}{text}{unit}") }
}

#[cfg(test)]
mod tests;
