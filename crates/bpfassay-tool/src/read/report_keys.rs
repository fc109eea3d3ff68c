// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the part `[report]`: the form, and the meaning of figures.

use std::collections::BTreeMap;

use bpfassay_input::document::{Field, Reported, Section, suggestion};
use bpfassay_protocol::{Operation, UnknownName, operation::Variant};

use super::{HOUR_MS, MAX_ENTRIES, line, one_of, pattern, places::mount_point};
use crate::{
    Stream,
    file::{CountedUnit, Counting, Lost, MetricsPage, Report, ReportForm, ReportedFigure, Whose},
    readings::MAX_KEYS,
};

/// Default wait for a tool that reports by itself, in milliseconds.
const WITHIN_MS: u64 = 10_000;

const FORMS: &[&str] = &["json-lines", "openmetrics", "table", "histogram", "events", "bpftrace-json", "map", "maps"];

/// Limit for maps and pages of a report.
const MAX_PARTS: usize = 8;

/// Reads the report. `is_object` says whether the tool is a bare object.
///
/// # Errors
/// [`Reported`] if a key is unknown or missing, a value is invalid, or it does not fit the report's
/// form. The complaint is in the document.
pub(super) fn read(field: &Field<'_, '_>, is_object: bool) -> Result<Report, Reported> {
    let section = field.table()?;
    section.only(
        &[
            FORMS,
            &["counting", "unit", "whose", "only_files", "excludes_itself", "leaves_out", "within", "lost", "figures"],
        ]
        .concat(),
    );
    let (kind, form_field) = one_of(&section, FORMS)?;
    let is_map = matches!(kind, "map" | "maps");
    let asked = is_map || kind == "openmetrics";
    let form = match (is_map, is_object) {
        (true, false) => Err(form_field.error("only maps of a bare object are read: see `source.object`")),
        (false, true) => Err(form_field.error("a bare object prints nothing: use `map` or `maps`")),
        _ => form(kind, &form_field),
    };
    let within_ms = section.or("within", (!asked).then_some(WITHIN_MS), |field| match asked {
        true => Err(field.error("this form is asked for, not waited for")),
        false => field.milliseconds(1..=HOUR_MS).map(Some),
    });
    let is_event = kind == "events";
    let usual = if is_event { Some(Counting::Interval) } else { asked.then_some(Counting::Cumulative) };
    let counting = section.or("counting", usual, |field| match is_event {
        true => Err(field.error("an event counts once: this form has no other way of counting")),
        false => field.choice(Counting::NAMES).map(Some),
    });
    // An exporter can print lines in addition to its page; a bare object prints none.
    let lost = section.optional("lost", |field| match is_map {
        true => Err(field.error("this form has no lines in which a tool says that it lost events")),
        false => lost(field),
    });
    let unit = section.optional("unit", |field| field.choice(CountedUnit::NAMES));
    let whose = section.or("whose", Whose::System, |field| field.choice(Whose::NAMES));
    let only_files = section.or("only_files", false, Field::boolean);
    let excludes_itself = section.or("excludes_itself", false, Field::boolean);
    let leaves_out = section.or("leaves_out", Vec::new(), |field| field.distinct("mount point", mount_point));
    // The form determines which keys a figure can have.
    let form = form?;
    let usual = Usual { counting: counting?, unit: unit?, whose: whose?, only_files: only_files? };
    let figures = section.need("figures", |list| {
        let figures = list.distinct("figure", |element| figure(&element.table()?, &usual, &form))?;
        if figures.len() > MAX_ENTRIES {
            return Err(list.error(format!("{} figures are given, and {MAX_ENTRIES} may be", figures.len())));
        }
        Ok(figures)
    });
    Ok(Report {
        within_ms: within_ms?,
        excludes_itself: excludes_itself?,
        leaves_out: leaves_out?,
        lost: lost?,
        figures: figures?,
        form,
    })
}

/// Reads the part about lines that report lost events.
fn lost(field: &Field<'_, '_>) -> Result<Lost, Reported> {
    let section = field.table()?;
    section.only(&["line", "stream"]);
    let line = section.need("line", |field| {
        let line = pattern(field)?;
        let is_named = line.groups().any(|group| group == Lost::GROUP);
        let problem = || format!("name the number of events with a group: (?<{}>\\d+)", Lost::GROUP);
        if is_named { Ok(line) } else { Err(field.error(problem())) }
    });
    let stream = section.or("stream", Stream::Stderr, Field::name);
    Ok(Lost { line: line?, stream: stream? })
}

/// Checks that the report has 2 to [`MAX_PARTS`] pages or maps.
fn several<T>(field: &Field<'_, '_>, parts: Vec<T>) -> Result<Vec<T>, Reported> {
    match parts.len() {
        2..=MAX_PARTS => Ok(parts),
        other => Err(field.error(format!("the list has {other} entries, and may have 2 to {MAX_PARTS}"))),
    }
}

/// Reads several pages of metrics, each with a name.
fn pages(field: &Field<'_, '_>) -> Result<ReportForm, Reported> {
    let pages = field.distinct("page", |element| {
        let section = element.table()?;
        section.only(&["name", "port", "path", "interval"]);
        let interval_ms = section.optional("interval", |field| field.milliseconds(10..=HOUR_MS));
        let path = section.or("path", "/metrics".to_owned(), url_path);
        let name = section.need("name", name);
        let port = section.need("port", |field| field.number(1..=u16::MAX));
        Ok((MetricsPage { name: name?, port: port?, path: path? }, interval_ms?))
    })?;
    let pages = several(field, pages)?;
    let is_twice = |(at, (page, _)): (usize, &(MetricsPage, _))| {
        pages
            .iter()
            .take(at)
            .any(|(other, _)| other.name == page.name || (other.port, &other.path) == (page.port, &page.path))
    };
    if pages.iter().enumerate().any(is_twice) {
        return Err(field.error("two of the pages have the same name, or the same port and path"));
    }
    // All pages are requested together, at the shortest interval.
    let interval_ms = pages.iter().filter_map(|(_, interval_ms)| *interval_ms).min();
    Ok(ReportForm::OpenmetricsPages { pages: pages.into_iter().map(|(page, _)| page).collect(), interval_ms })
}

fn form(kind: &str, field: &Field<'_, '_>) -> Result<ReportForm, Reported> {
    if kind == "maps" {
        let maps = field.distinct("map", name)?;
        return Ok(ReportForm::Maps { maps: several(field, maps)? });
    }
    if kind == "openmetrics" && field.is_list() {
        return pages(field);
    }
    let section = field.table()?;
    let stream = |section: &Section<'_, '_>| section.or("stream", Stream::Stdout, Field::name);
    let ignore = |section: &Section<'_, '_>| section.optional("ignore", pattern);
    Ok(match kind {
        "json-lines" => {
            section.only(&["stream", "ignore"]);
            let (stream, ignore) = (stream(&section), ignore(&section));
            ReportForm::JsonLines { stream: stream?, ignore: ignore? }
        }
        "openmetrics" => {
            section.only(&["port", "path", "interval"]);
            let port = section.need("port", |field| field.number(1..=u16::MAX));
            let path = section.or("path", "/metrics".to_owned(), url_path);
            let interval_ms = section.optional("interval", |field| field.milliseconds(10..=HOUR_MS));
            ReportForm::Openmetrics { port: port?, path: path?, interval_ms: interval_ms? }
        }
        "table" => {
            section.only(&["stream", "line", "ignore"]);
            let (stream, ignore) = (stream(&section), ignore(&section));
            ReportForm::Table { line: section.need("line", pattern)?, stream: stream?, ignore: ignore? }
        }
        "histogram" => {
            section.only(&["stream", "heading", "time", "ignore"]);
            let (stream, ignore) = (stream(&section), ignore(&section));
            let (heading, time) = (section.optional("heading", pattern), section.optional("time", pattern));
            ReportForm::Histogram { stream: stream?, heading: heading?, time: time?, ignore: ignore? }
        }
        "events" => {
            section.only(&["stream", "line", "ignore"]);
            let (stream, ignore) = (stream(&section), ignore(&section));
            let line = section.optional("line", pattern);
            ReportForm::Events { stream: stream?, line: line?, ignore: ignore? }
        }
        "bpftrace-json" => {
            section.only(&["stream"]);
            ReportForm::BpftraceJson { stream: stream(&section)? }
        }
        _ => {
            section.only(&["map"]);
            ReportForm::Map { map: section.need("map", name)? }
        }
    })
}

/// Reads a path that is safe in the first line of an HTTP request.
fn url_path(field: &Field<'_, '_>) -> Result<String, Reported> {
    let text = field.text()?;
    if text.starts_with('/') && text.len() <= 255 && text.chars().all(|c| c.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err(field.error("give a path that begins with `/`, of at most 255 visible ASCII characters"))
}

/// Reads the name of a value, label or map.
fn name(field: &Field<'_, '_>) -> Result<String, Reported> {
    let text = field.text()?;
    check_name(text).map_err(|message| field.error(message))?;
    Ok(text.to_owned())
}

fn check_name(text: &str) -> Result<(), &'static str> {
    let valid = (1..=127).contains(&text.len()) && text.chars().all(|c| c.is_ascii_graphic());
    if valid { Ok(()) } else { Err("use a name of at most 127 visible ASCII characters") }
}

/// Default values of figures.
struct Usual {
    counting: Option<Counting>,
    unit: Option<CountedUnit>,
    whose: Whose,
    only_files: bool,
}

/// Keys of every figure.
const FIGURE_KEYS: [&str; 13] = [
    "value",
    "where",
    "operations",
    "variants",
    "unit",
    "scale",
    "whose",
    "label",
    "only_files",
    "file_systems",
    "counting",
    "blank_is_zero",
    "differs",
];

fn figure(section: &Section<'_, '_>, usual: &Usual, form: &ReportForm) -> Result<ReportedFigure, Reported> {
    let part_key = match form {
        ReportForm::Maps { .. } => "map",
        _ => "page",
    };
    section.only(&[&[part_key], &FIGURE_KEYS[..]].concat());
    let part = part(section, part_key, form);
    // A figure of events can count all of them.
    let value = match form {
        ReportForm::Events { .. } => section.or("value", String::new(), |field| group(field, form)),
        ReportForm::Histogram { .. } => section.need("value", |field| count_of(field)),
        _ => section.need("value", |field| group(field, form)),
    };
    let operations = operations(section, value.as_deref());
    let variants = section.or("variants", Vec::new(), |field| field.distinct("variant", Field::name::<Variant>));
    let variants =
        variants.and_then(|variants| check_variants(section, variants, operations.as_deref().unwrap_or_default()));
    let missing = |key: &str| section.error(format!("key `{key}` is missing here and in `report`"));
    let whose = section.or("whose", usual.whose, |field| field.choice(Whose::NAMES));
    let label = whose.and_then(|whose| label(section, whose, form));
    let unit_of = |unit: CountedUnit| match (form, &value) {
        (ReportForm::Events { .. }, Ok(value)) if value.is_empty() && !unit.is_of_lines() => Err(section
            .error(format!("`value` is missing: it names what the call returned, of which {} are known", unit.name()))),
        _ => Ok(unit),
    };
    let labelled = section.or("where", BTreeMap::new(), |field| labelled(field, form));
    let unit = section.or("unit", usual.unit, |field| field.choice(CountedUnit::NAMES).map(Some));
    let unit = unit.and_then(|unit| unit.ok_or_else(|| missing("unit"))).and_then(unit_of);
    let scale = section.or("scale", 1, |field| field.number(1..=1 << 40));
    let only_files = section.or("only_files", usual.only_files, Field::boolean);
    let file_systems = section.or("file_systems", Vec::new(), |field| field.distinct("file system", file_system));
    let counting = section.or("counting", usual.counting, |field| match form {
        ReportForm::Events { .. } => Err(field.error("an event counts once: this form has no other way of counting")),
        _ => field.choice(Counting::NAMES).map(Some),
    });
    let counting = counting.and_then(|counting| counting.ok_or_else(|| missing("counting")));
    let blank_is_zero = section.or("blank_is_zero", false, Field::boolean);
    let differs = section.optional("differs", line);
    Ok(ReportedFigure {
        part: part?,
        value: value?,
        labelled: labelled?,
        operations: operations?,
        variants: variants?,
        unit: unit?,
        scale: scale?,
        whose: whose?,
        label: label?,
        only_files: only_files?,
        file_systems: file_systems?,
        counting: counting?,
        blank_is_zero: blank_is_zero?,
        differs: differs?,
    })
}

/// Reads the operations that a figure counts. The name of its value can be one.
fn operations(section: &Section<'_, '_>, value: Result<&str, &Reported>) -> Result<Vec<Operation>, Reported> {
    match (section.get("operations"), value) {
        (Some(operations), _) => operations.distinct("operation", Field::name::<Operation>),
        (None, Ok(value)) => value.parse().map(|operation| vec![operation]).map_err(|_: UnknownName| {
            section.error(format!(
                "`operations` is missing, and the value's name is none: operations are {}",
                Operation::ALL.iter().map(|operation| operation.name()).collect::<Vec<_>>().join(", ")
            ))
        }),
        (None, Err(reported)) => Err(*reported),
    }
}

/// Reads the label that names whose activity it is, which is that of `whose` by default. The whole
/// system has no label.
fn label(section: &Section<'_, '_>, whose: Whose, form: &ReportForm) -> Result<Option<String>, Reported> {
    match (section.get("label"), whose) {
        (Some(field), Whose::System) => Err(field.error("the whole system needs no label: see `whose`")),
        (Some(field), _) => {
            let label = name(&field)?;
            check_label(&label, form).map_err(|message| field.error(message))?;
            Ok(Some(label))
        }
        (None, Whose::System) => Ok(None),
        (None, _) => {
            check_label(whose.name(), form).map_err(|message| section.error(message))?;
            Ok(Some(whose.name().to_owned()))
        }
    }
}

/// Reads a file system type, as in `/proc/filesystems`.
fn file_system(field: &Field<'_, '_>) -> Result<String, Reported> {
    let text = field.text()?;
    let is_type = (1..=64).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    if is_type { Ok(text.to_owned()) } else { Err(field.error("give the type of a file system, such as \"nfs4\"")) }
}

/// Checks that variants belong to the figure's operations.
fn check_variants(
    section: &Section<'_, '_>,
    variants: Vec<Variant>,
    operations: &[Operation],
) -> Result<Vec<Variant>, Reported> {
    let foreign = variants.iter().find(|variant| !operations.contains(&variant.operation()));
    match foreign.filter(|_| !operations.is_empty()) {
        None => Ok(variants),
        Some(variant) => Err(section.error(format!(
            "variant `{variant}` is one of the operation `{}`, which this figure does not count",
            variant.operation()
        ))),
    }
}

/// Reads the page or map of a figure, if the report has several.
fn part(section: &Section<'_, '_>, key: &str, form: &ReportForm) -> Result<Option<String>, Reported> {
    let known: Vec<&str> = form.parts().collect();
    match section.get(key) {
        None if known.is_empty() => Ok(None),
        None => Err(section.error(format!("key `{key}` is missing: the report has {}", known.join(", ")))),
        Some(field) if known.is_empty() => Err(field.error("the report has one only")),
        Some(field) => {
            let name = name(&field)?;
            match known.contains(&name.as_str()) {
                true => Ok(Some(name)),
                false => Err(field.error(format!(
                    "the report has no {key} `{name}`{}; it has {}",
                    suggestion(&name, known.iter().copied()),
                    known.join(", ")
                ))),
            }
        }
    }
}

/// Reads the name of a histogram's number of values.
fn count_of(field: &Field<'_, '_>) -> Result<String, Reported> {
    let name = name(field)?;
    match name.strip_suffix(".count") {
        Some(title) if !title.is_empty() => Ok(name),
        _ => Err(field.error("give the number of a histogram's values by its title, as `usecs.count`: the values themselves are not known")),
    }
}

fn labelled(field: &Field<'_, '_>, form: &ReportForm) -> Result<BTreeMap<String, String>, Reported> {
    let section = field.table()?;
    let read: Vec<_> = section
        .entries()
        .enumerate()
        .map(|(index, (key, field))| {
            check_name(key).map_err(|message| field.error(message))?;
            check_label(key, form).map_err(|message| field.error(message))?;
            let value = field.text()?;
            if value.len() > 255 || index >= MAX_ENTRIES {
                return Err(field.error("labels have at most 255 bytes, and there are at most 64"));
            }
            Ok((key.to_owned(), value.to_owned()))
        })
        .collect();
    read.into_iter().collect()
}

fn group(field: &Field<'_, '_>, form: &ReportForm) -> Result<String, Reported> {
    let name = name(field)?;
    check_group(&name, form).map_err(|message| field.error(message))?;
    Ok(name)
}

/// Labels in bpftrace maps are their keys.
fn check_label(name: &str, form: &ReportForm) -> Result<(), String> {
    if !matches!(form, ReportForm::BpftraceJson { .. }) {
        return check_group(name, form);
    }
    let is_part = |number: &str| number.parse().is_ok_and(|number: usize| (1..=MAX_KEYS).contains(&number));
    match name.strip_prefix("key") {
        Some(number) if number.is_empty() || is_part(number) => Ok(()),
        _ => Err(format!(
            "a map of bpftrace has no label `{name}`: `label` or `where` names `key`, the whole key, or a part, `key1` to `key{MAX_KEYS}`"
        )),
    }
}

/// Names in a table must be groups of its line pattern.
fn check_group(name: &str, form: &ReportForm) -> Result<(), String> {
    let (ReportForm::Table { line, .. } | ReportForm::Events { line: Some(line), .. }) = form else {
        return check_heading(name, form);
    };
    if line.groups().any(|group| group == name) {
        return Ok(());
    }
    let known = line.groups().collect::<Vec<_>>().join(", ");
    let of = if matches!(form, ReportForm::Table { .. }) { "the table's line" } else { "the line of an event" };
    Err(format!("{of} has no group named `{name}`; it has {known}"))
}

/// Labels of histograms must be groups of the heading pattern.
fn check_heading(name: &str, form: &ReportForm) -> Result<(), String> {
    let ReportForm::Histogram { heading, .. } = form else { return Ok(()) };
    let known: Vec<&str> = heading.iter().flat_map(crate::pattern::ToolPattern::groups).collect();
    match known.contains(&name) {
        true => Ok(()),
        false if heading.is_none() => Err(format!("`{name}` would be a group of `heading`, which is not given")),
        false => Err(format!("the heading has no group named `{name}`; it has {}", known.join(", "))),
    }
}
