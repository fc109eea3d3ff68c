//! The part `[report]`: the form, and what the figures mean.

use std::collections::BTreeMap;

use bpfassay_document::{Field, Invalid, Section, distinct};
use bpfassay_protocol::Operation;

use super::{HOUR_MS, MAX_ENTRIES, one_of, pattern};
use crate::{Counting, Form, Report, ReportedFigure, Stream, Unit, Whose};

/// How long a tool that reports by itself is waited for, where its file does not say.
const WITHIN_MS: u64 = 10_000;

const FORMS: &[&str] = &["json-lines", "openmetrics", "table", "bpftrace-json", "map"];

/// Reads it; `is_object` tells whether the tool is a bare object.
pub(super) fn read(field: &Field<'_, '_>, is_object: bool) -> Result<Report, Invalid> {
    let section = field.table()?;
    section.only(
        &[FORMS, &["counting", "unit", "whose", "only_files", "excludes_itself", "within", "figures"]].concat(),
    )?;
    let (word, field) = one_of(&section, FORMS)?;
    let form = form(word, &field)?;
    match (matches!(form, Form::Map { .. }), is_object) {
        (true, false) => return Err(field.error("only maps of a bare object are read: see `source.object`")),
        (false, true) => return Err(field.error("a bare object prints nothing: use `map`")),
        _ => {}
    }
    let asked = matches!(form, Form::Map { .. } | Form::Openmetrics { .. });
    let within_ms = match section.get("within") {
        Some(field) if asked => return Err(field.error("this form is asked for, not waited for")),
        Some(field) => Some(field.milliseconds(1..=HOUR_MS)?),
        None => (!asked).then_some(WITHIN_MS),
    };
    let usual = Usual {
        counting: match section.get("counting") {
            Some(field) => Some(field.word(Counting::WORDS)?),
            None if asked => Some(Counting::Cumulative),
            None => None,
        },
        unit: section.get("unit").map(|field| field.word(Unit::WORDS)).transpose()?,
        whose: section.get("whose").map_or(Ok(Whose::System), |field| field.word(Whose::WORDS))?,
        only_files: section.get("only_files").map_or(Ok(false), |field| field.boolean())?,
    };
    let list = section.need("figures")?;
    let mut figures: Vec<ReportedFigure> = Vec::new();
    for element in list.list()? {
        let section = element.table()?;
        let figure = figure(&section, &usual, &form)?;
        if figures.contains(&figure) {
            return Err(element.error("this figure stands here twice"));
        }
        figures.push(figure);
    }
    if figures.len() > MAX_ENTRIES {
        return Err(list.error(format!("{} figures are given, and {MAX_ENTRIES} may be", figures.len())));
    }
    let excludes_itself = section.get("excludes_itself").map_or(Ok(false), |field| field.boolean())?;
    Ok(Report { form, within_ms, excludes_itself, figures })
}

fn form(word: &str, field: &Field<'_, '_>) -> Result<Form, Invalid> {
    let section = field.table()?;
    let stream = |section: &Section<'_, '_>| section.get("stream").map_or(Ok(Stream::Stdout), |field| field.name());
    let ignore = |section: &Section<'_, '_>| section.get("ignore").map(|field| pattern(&field)).transpose();
    Ok(match word {
        "json-lines" => {
            section.only(&["stream", "ignore"])?;
            Form::JsonLines { stream: stream(&section)?, ignore: ignore(&section)? }
        }
        "openmetrics" => {
            section.only(&["port", "path", "interval"])?;
            Form::Openmetrics {
                port: section.need("port")?.number(1..=u16::MAX)?,
                path: section.get("path").map_or_else(|| Ok("/metrics".to_owned()), |field| url_path(&field))?,
                interval_ms: section.get("interval").map(|field| field.milliseconds(10..=HOUR_MS)).transpose()?,
            }
        }
        "table" => {
            section.only(&["stream", "line", "ignore"])?;
            Form::Table { stream: stream(&section)?, line: pattern(&section.need("line")?)?, ignore: ignore(&section)? }
        }
        "bpftrace-json" => {
            section.only(&["stream"])?;
            Form::BpftraceJson { stream: stream(&section)? }
        }
        _ => {
            section.only(&["map"])?;
            Form::Map { map: name(&section.need("map")?)? }
        }
    })
}

/// A path that can stand in the first line of an HTTP request.
fn url_path(field: &Field<'_, '_>) -> Result<String, Invalid> {
    let text = field.text()?;
    if text.starts_with('/') && text.len() <= 255 && text.chars().all(|c| c.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err(field.error("give a path that begins with `/`, of at most 255 visible ASCII characters"))
}

/// The name of a value, a label or a map.
fn name(field: &Field<'_, '_>) -> Result<String, Invalid> {
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

fn figure(section: &Section<'_, '_>, usual: &Usual, form: &Form) -> Result<ReportedFigure, Invalid> {
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
    ])?;
    let field = section.need("value")?;
    let value = name(&field)?;
    let operations = match section.get("operations") {
        Some(operations) => distinct(&operations, "operation", Field::name::<Operation>)?,
        None => vec![field.name().map_err(|_| {
            section.error(format!(
                "`operations` is missing, and the value's name is none: operations are {}",
                Operation::ALL.iter().map(|operation| operation.name()).collect::<Vec<_>>().join(", ")
            ))
        })?],
    };
    let needed = |key: &str| section.error(format!("key `{key}` is missing here and in `report`"));
    let whose = section.get("whose").map_or(Ok(usual.whose), |field| field.word(Whose::WORDS))?;
    let label = match (section.get("label"), whose) {
        (Some(field), Whose::System) => return Err(field.error("the whole system needs no label: see `whose`")),
        (Some(field), _) => Some(group(&field, form)?),
        (None, Whose::System) => None,
        (None, _) => {
            check_group(whose.name(), form).map_err(|message| section.error(message))?;
            Some(whose.name().to_owned())
        }
    };
    check_group(&value, form).map_err(|message| field.error(message))?;
    Ok(ReportedFigure {
        labelled: section.get("where").map(|field| labelled(&field, form)).transpose()?.unwrap_or_default(),
        operations,
        unit: match section.get("unit") {
            Some(field) => field.word(Unit::WORDS)?,
            None => usual.unit.ok_or_else(|| needed("unit"))?,
        },
        scale: section.get("scale").map_or(Ok(1), |field| field.number(1..=1 << 40))?,
        whose,
        label,
        only_files: section.get("only_files").map_or(Ok(usual.only_files), |field| field.boolean())?,
        counting: match section.get("counting") {
            Some(field) => field.word(Counting::WORDS)?,
            None => usual.counting.ok_or_else(|| needed("counting"))?,
        },
        blank_is_zero: section.get("blank_is_zero").map_or(Ok(false), |field| field.boolean())?,
        value,
    })
}

fn labelled(field: &Field<'_, '_>, form: &Form) -> Result<BTreeMap<String, String>, Invalid> {
    let section = field.table()?;
    let mut labels = BTreeMap::new();
    for (key, field) in section.entries() {
        check_name(key).map_err(|message| field.error(message))?;
        check_group(key, form).map_err(|message| field.error(message))?;
        let value = field.text()?;
        if value.len() > 255 || labels.len() >= MAX_ENTRIES {
            return Err(field.error("labels have at most 255 bytes, and there are at most 64"));
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}

fn group(field: &Field<'_, '_>, form: &Form) -> Result<String, Invalid> {
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
