// SPDX-License-Identifier: MIT OR Apache-2.0
//! One plot of a report as a separate file, readable on light and dark: for a README or a paper.

use std::fmt::Write as _;

use super::{
    STYLE,
    escape::escape,
    figures::{Plot, plots},
};
use crate::render::{
    finished,
    format::{FormatOptions, NoFigure, ReportFormat},
};
use bpfassay_results::Results;

/// Heights of the title above the plot, and of the key below it.
const TITLE: u32 = 32;
const KEY: u32 = 28;

pub(in crate::render) const FORMAT: ReportFormat = ReportFormat {
    name: "svg",
    about: "One figure of the page (--figure), for light and dark",
    file: None,
    render: |results, FormatOptions { figure, .. }| Ok(figure_svg(results, figure.unwrap_or_default())?.into()),
};

/// Renders one figure of the report on `results` as an SVG file. The figure's title is `wanted`, or
/// it is the only title that contains `wanted`.
///
/// # Errors
/// [`NoFigure`], if no figure of the page has this title, or more than one contains it.
pub fn figure_svg(results: &Results, wanted: &str) -> Result<String, NoFigure> {
    let plots: Vec<Plot> = plots(results).into_iter().flat_map(|group| group.plots).collect();
    let exact: Vec<&Plot> = plots.iter().filter(|plot| plot.title == wanted).collect();
    let found =
        if exact.is_empty() { plots.iter().filter(|plot| plot.title.contains(wanted)).collect() } else { exact };
    match found.as_slice() {
        [plot] => Ok(finished(alone(plot))),
        _ => Err(NoFigure {
            wanted: wanted.to_owned(),
            found: found.len(),
            known: plots.iter().map(|plot| plot.title.clone()).collect(),
        }),
    }
}

fn alone(plot: &Plot) -> String {
    let body = plot.svg.wide.split_once('>').map_or("", |(_, rest)| rest);
    let body = body.rsplit_once("</svg>").map_or(body, |(body, _)| body);
    let size =
        plot.svg.wide.split_once("viewBox=\"0 0 ").and_then(|(_, rest)| rest.split_once('"')).map(|(size, _)| size);
    let mut sides = size.unwrap_or_default().split(' ').map(|side| side.parse::<u32>().unwrap_or(0));
    let (width, height) = (sides.next().unwrap_or(0), sides.next().unwrap_or(0));
    // The page's variables, for both colour schemes.
    let (variables, _) = STYLE.split_once("* {").unwrap_or((STYLE, ""));
    let title = escape(&plot.title);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {}\" font-family=\"sans-serif\" role=\"img\">\n\
         <title>{title}</title>\n<style>{variables}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"var(--paper)\"/>\n\
         <text x=\"{}\" y=\"22\" text-anchor=\"middle\" font-size=\"15\" font-weight=\"bold\" fill=\"var(--ink)\">{title}</text>\n\
         <g transform=\"translate(0 {TITLE})\">{body}</g>\n",
        height + TITLE + KEY,
        width / 2,
    );
    let baseline = height + TITLE + 14;
    // The width of a name, with about 7 for a letter.
    let mut x = 16;
    for (number, name) in (0..8).cycle().zip(&plot.series).filter(|(_, name)| !name.is_empty()) {
        let _ = writeln!(svg, "{}", mark(number, x, baseline - 5));
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{baseline}\" font-size=\"13\" fill=\"var(--ink)\">{}</text>",
            x + 12,
            escape(name)
        );
        x += 40 + 7 * u32::try_from(name.chars().count()).unwrap_or(0);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Draws the mark of a series in the shape that [`super::plot`] uses.
fn mark(series: u32, x: u32, y: u32) -> String {
    let colour = format!("fill=\"var(--series-{series})\"");
    let (left, right, top, bottom) = (x - 4, x + 4, y - 4, y + 4);
    match series % 4 {
        0 => format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"4\" {colour}/>"),
        1 => format!("<rect x=\"{left}\" y=\"{top}\" width=\"8\" height=\"8\" {colour}/>"),
        2 => format!("<path d=\"M{x} {top} L{right} {bottom} L{left} {bottom} Z\" {colour}/>"),
        _ => format!(
            "<path d=\"M{left} {top} L{right} {bottom} M{left} {bottom} L{right} {top}\" stroke=\"var(--series-{series})\" \
             stroke-width=\"2\"/>"
        ),
    }
}
