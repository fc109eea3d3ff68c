// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part `[report]`: the form, and what the figures mean.

use std::collections::BTreeMap;

use bpfassay_input::document::{Field, Reported, Section};
use bpfassay_protocol::{Operation, UnknownName};

use super::{HOUR_MS, MAX_ENTRIES, line, one_of, pattern, places::mount_point};
use crate::{Counting, Form, Report, ReportedFigure, Stream, Unit, Whose};

/// How long a tool that reports by itself is waited for, where its file does not say.
const WITHIN_MS: u64 = 10_000;

const FORMS: &[&str] = &["json-lines", "openmetrics", "table", "bpftrace-json", "map"];

/// Reads it; `is_object`: whether the tool is a bare object.
pub(super) fn read(field: &Field<'_, '_>, is_object: bool) -> Result<Report, Reported> {
    let section = field.table()?;
    section.only(
        &[FORMS, &["counting", "unit", "whose", "only_files", "excludes_itself", "leaves_out", "within", "figures"]]
            .concat(),
    );
    let (kind, form_field) = one_of(&section, FORMS)?;
    let asked = matches!(kind, "map" | "openmetrics");
    let form = match (kind == "map", is_object) {
        (true, false) => Err(form_field.error("only maps of a bare object are read: see `source.object`")),
        (false, true) => Err(form_field.error("a bare object prints nothing: use `map`")),
        _ => form(kind, &form_field),
    };
    let within_ms = section.or("within", (!asked).then_some(WITHIN_MS), |field| match asked {
        true => Err(field.error("this form is asked for, not waited for")),
        false => field.milliseconds(1..=HOUR_MS).map(Some),
    });
    let counting =
        section.or("counting", asked.then_some(Counting::Cumulative), |field| field.choice(Counting::NAMES).map(Some));
    let unit = section.optional("unit", |field| field.choice(Unit::NAMES));
    let whose = section.or("whose", Whose::System, |field| field.choice(Whose::NAMES));
    let only_files = section.or("only_files", false, Field::boolean);
    let excludes_itself = section.or("excludes_itself", false, Field::boolean);
    let leaves_out = section.or("leaves_out", Vec::new(), |field| field.distinct("mount point", mount_point));
    // What a figure can be depends on the form.
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
        figures: figures?,
        form,
    })
}

fn form(kind: &str, field: &Field<'_, '_>) -> Result<Form, Reported> {
    let section = field.table()?;
    let stream = |section: &Section<'_, '_>| section.or("stream", Stream::Stdout, Field::name);
    let ignore = |section: &Section<'_, '_>| section.optional("ignore", pattern);
    Ok(match kind {
        "json-lines" => {
            section.only(&["stream", "ignore"]);
            let (stream, ignore) = (stream(&section), ignore(&section));
            Form::JsonLines { stream: stream?, ignore: ignore? }
        }
        "openmetrics" => {
            section.only(&["port", "path", "interval"]);
            let port = section.need("port", |field| field.number(1..=u16::MAX));
            let path = section.or("path", "/metrics".to_owned(), url_path);
            let interval_ms = section.optional("interval", |field| field.milliseconds(10..=HOUR_MS));
            Form::Openmetrics { port: port?, path: path?, interval_ms: interval_ms? }
        }
        "table" => {
            section.only(&["stream", "line", "ignore"]);
            let (stream, ignore) = (stream(&section), ignore(&section));
            Form::Table { line: section.need("line", pattern)?, stream: stream?, ignore: ignore? }
        }
        "bpftrace-json" => {
            section.only(&["stream"]);
            Form::BpftraceJson { stream: stream(&section)? }
        }
        _ => {
            section.only(&["map"]);
            Form::Map { map: section.need("map", name)? }
        }
    })
}

/// A path that can stand in the first line of an HTTP request.
fn url_path(field: &Field<'_, '_>) -> Result<String, Reported> {
    let text = field.text()?;
    if text.starts_with('/') && text.len() <= 255 && text.chars().all(|c| c.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err(field.error("give a path that begins with `/`, of at most 255 visible ASCII characters"))
}

/// The name of a value, a label or a map.
fn name(field: &Field<'_, '_>) -> Result<String, Reported> {
    let text = field.text()?;
    check_name(text).map_err(|message| field.error(message))?;
    Ok(text.to_owned())
}

fn check_name(text: &str) -> Result<(), &'static str> {
    let valid = (1..=127).contains(&text.len()) && text.chars().all(|c| c.is_ascii_graphic());
    if valid { Ok(()) } else { Err("use a name of at most 127 visible ASCII characters") }
}

/// What figures are, where they do not say.
struct Usual {
    counting: Option<Counting>,
    unit: Option<Unit>,
    whose: Whose,
    only_files: bool,
}

fn figure(section: &Section<'_, '_>, usual: &Usual, form: &Form) -> Result<ReportedFigure, Reported> {
    section.only(&[
        "value",
        "where",
        "operations",
        "unit",
        "scale",
        "whose",
        "label",
        "only_files",
        "counting",
        "blank_is_zero",
        "differs",
    ]);
    let value = section.need("value", |field| group(field, form));
    let operations = match (section.get("operations"), &value) {
        (Some(operations), _) => operations.distinct("operation", Field::name::<Operation>),
        (None, Ok(value)) => value.parse().map(|operation| vec![operation]).map_err(|_: UnknownName| {
            section.error(format!(
                "`operations` is missing, and the value's name is none: operations are {}",
                Operation::ALL.iter().map(|operation| operation.name()).collect::<Vec<_>>().join(", ")
            ))
        }),
        (None, Err(reported)) => Err(*reported),
    };
    let missing = |key: &str| section.error(format!("key `{key}` is missing here and in `report`"));
    let whose = section.or("whose", usual.whose, |field| field.choice(Whose::NAMES));
    let label = whose.and_then(|whose| match (section.get("label"), whose) {
        (Some(field), Whose::System) => Err(field.error("the whole system needs no label: see `whose`")),
        (Some(field), _) => group(&field, form).map(Some),
        (None, Whose::System) => Ok(None),
        (None, _) => {
            check_group(whose.name(), form).map_err(|message| section.error(message))?;
            Ok(Some(whose.name().to_owned()))
        }
    });
    let labelled = section.or("where", BTreeMap::new(), |field| labelled(field, form));
    let unit = section.or("unit", usual.unit, |field| field.choice(Unit::NAMES).map(Some));
    let unit = unit.and_then(|unit| unit.ok_or_else(|| missing("unit")));
    let scale = section.or("scale", 1, |field| field.number(1..=1 << 40));
    let only_files = section.or("only_files", usual.only_files, Field::boolean);
    let counting = section.or("counting", usual.counting, |field| field.choice(Counting::NAMES).map(Some));
    let counting = counting.and_then(|counting| counting.ok_or_else(|| missing("counting")));
    let blank_is_zero = section.or("blank_is_zero", false, Field::boolean);
    let differs = section.optional("differs", line);
    Ok(ReportedFigure {
        value: value?,
        labelled: labelled?,
        operations: operations?,
        unit: unit?,
        scale: scale?,
        whose: whose?,
        label: label?,
        only_files: only_files?,
        counting: counting?,
        blank_is_zero: blank_is_zero?,
        differs: differs?,
    })
}

fn labelled(field: &Field<'_, '_>, form: &Form) -> Result<BTreeMap<String, String>, Reported> {
    let section = field.table()?;
    let read: Vec<_> = section
        .entries()
        .enumerate()
        .map(|(index, (key, field))| {
            check_name(key).map_err(|message| field.error(message))?;
            check_group(key, form).map_err(|message| field.error(message))?;
            let value = field.text()?;
            if value.len() > 255 || index >= MAX_ENTRIES {
                return Err(field.error("labels have at most 255 bytes, and there are at most 64"));
            }
            Ok((key.to_owned(), value.to_owned()))
        })
        .collect();
    read.into_iter().collect()
}

fn group(field: &Field<'_, '_>, form: &Form) -> Result<String, Reported> {
    let name = name(field)?;
    check_group(&name, form).map_err(|message| field.error(message))?;
    Ok(name)
}

/// In a table, what figures speak of are groups of the line.
fn check_group(name: &str, form: &Form) -> Result<(), String> {
    let Form::Table { line, .. } = form else { return Ok(()) };
    if line.groups().any(|group| group == name) {
        return Ok(());
    }
    let known = line.groups().collect::<Vec<_>>().join(", ");
    Err(format!("the table's line has no group named `{name}`; it has {known}"))
}
