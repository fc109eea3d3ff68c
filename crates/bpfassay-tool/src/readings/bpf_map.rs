// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps of a bare object, with the layout from the object's BTF.

use std::collections::BTreeMap;

use bpfassay_btf::{Btf, MapField, MapTypes, Scalar, TypeLayout};
use bpfassay_input::document::suggestion;

use super::{ReadingsError, ReportedSample, SampleSink, TextRow, Vanished};
use crate::{
    file::{Report, ReportedFigure},
    recorded_output::Dump,
};

/// A reading of a map: its time, and the samples of each key.
type Keys<'f> = (u64, BTreeMap<&'f [u8], Vec<ReportedSample>>);

/// Reads the maps of `object` that `report` names from `dumps`.
///
/// # Errors
/// [`ReadingsError::NoObject`] without an object; other [`ReadingsError`]s if the BTF cannot be
/// read, or lacks a map or field of the report.
pub(super) fn read<'f>(
    sink: &mut SampleSink<'f>,
    report: &Report,
    dumps: &'f [Dump],
    object: Option<&[u8]>,
) -> Result<(), ReadingsError> {
    let names = || report.form.maps().join("`, `");
    let layouts = check(report, object.ok_or_else(|| ReadingsError::NoObject(names()))?)?;
    let mut before: BTreeMap<&str, Keys<'f>> = BTreeMap::new();
    for dump in dumps {
        let Some(layout) = layouts.get(dump.map.as_str()) else { continue };
        sink.part = Some(&dump.map);
        let first = sink.readings.samples.len();
        sink.report(dump.at_ns);
        let mut keys = BTreeMap::new();
        for (key, value) in &dump.entries {
            if sink.is_full() {
                break;
            }
            let of_key = sink.readings.samples.len();
            entry(sink, dump, layout, key, value);
            keys.insert(key.as_slice(), sink.readings.samples[of_key..].to_vec());
        }
        sink.add_up(first);
        // Missing keys could be in the data that was not looked at.
        if !sink.readings.cut
            && let Some((last_ns, earlier)) = before.insert(&dump.map, (dump.at_ns, keys))
            && let Some((_, keys)) = before.get(dump.map.as_str())
        {
            let gone = earlier.into_iter().filter(|(key, _)| !keys.contains_key(key));
            gone.for_each(|(_, samples)| vanish(&mut sink.readings.vanished, samples, last_ns, dump.at_ns));
        }
    }
    Ok(())
}

/// Records a disappeared key in `all`. `samples` are its last samples.
fn vanish(all: &mut Vec<Vanished>, samples: Vec<ReportedSample>, last_ns: u64, lacking_ns: u64) {
    for ReportedSample { figure, subject, value, .. } in samples.into_iter().filter(|sample| sample.value > 0) {
        match all.iter_mut().find(|one| (one.figure, &one.subject) == (figure, &subject)) {
            Some(one) => {
                one.keys = one.keys.saturating_add(1);
                one.amount = one.amount.saturating_add(value);
            }
            None => all.push(Vanished { figure, subject, keys: 1, amount: value, last_ns, lacking_ns }),
        }
    }
}

/// Layouts of the report's maps by name. Every figure can be read from them.
///
/// # Errors
/// [`ReadingsError`] if the object lacks a map, or a field of a figure.
pub(crate) fn check<'r>(report: &'r Report, object: &[u8]) -> Result<BTreeMap<&'r str, MapTypes>, ReadingsError> {
    let of_map = |map: &'r String| {
        let is_of = |figure: &&ReportedFigure| figure.part.as_ref().is_none_or(|part| part == map);
        Ok((map.as_str(), check_map(report.figures.iter().filter(is_of), map, object)?))
    };
    report.form.maps().iter().map(of_map).collect()
}

fn check_map<'f>(
    figures: impl Iterator<Item = &'f ReportedFigure>,
    map: &str,
    object: &[u8],
) -> Result<MapTypes, ReadingsError> {
    let layout = layout(map, object)?;
    let fields = |layout: &Option<TypeLayout>, whole: &str| -> Vec<String> {
        let fields = layout.iter().flat_map(|layout| &layout.fields);
        fields.map(|field| field.name_of(whole).to_owned()).collect()
    };
    let known = [fields(&layout.key, "key"), fields(&layout.value, "value")].concat();
    let mut needed = figures.flat_map(|figure| {
        let labels = figure.labelled.keys().chain(&figure.label);
        // A field that can be missing in one entry can be missing in all.
        labels.chain(Some(&figure.value).filter(|_| !figure.blank_is_zero))
    });
    match needed.find(|field| !known.contains(field)) {
        None => Ok(layout),
        Some(field) => Err(ReadingsError::NoField {
            map: map.to_owned(),
            field: field.clone(),
            nearest: suggestion(field, known.iter().map(String::as_str)),
            known: known.join(", "),
        }),
    }
}

/// `object` is an ELF file, or only its BTF.
fn layout(map: &str, object: &[u8]) -> Result<MapTypes, ReadingsError> {
    if let Ok(btf) = Btf::new(object) {
        return btf.map(map).ok_or_else(|| ReadingsError::NoMap(map.to_owned()));
    }
    let types = bpfassay_btf::of_object(object).map_err(|error| ReadingsError::Object(error.to_string()))?;
    let btf = Btf::new(&types).map_err(|error| ReadingsError::Object(error.to_string()))?;
    btf.map(map).ok_or_else(|| ReadingsError::NoMap(map.to_owned()))
}

fn entry(sink: &mut SampleSink<'_>, dump: &Dump, layout: &MapTypes, key: &[u8], value: &[u8]) {
    let mut row = TextRow::new();
    let mut fits = true;
    if let Some(layout) = &layout.key {
        fits &= key.len() == layout.size;
        for field in &layout.fields {
            drop(scalar(field, key).map(|text| row.insert(field.name_of("key").to_owned().into(), text.into())));
        }
    }
    if let Some(layout) = &layout.value {
        let copies = usize::try_from(dump.copies).unwrap_or(usize::MAX);
        let stride = if copies == 1 { layout.size } else { layout.size.next_multiple_of(8) };
        fits &= stride > 0 && stride.checked_mul(copies) == Some(value.len());
        if fits {
            for field in &layout.fields {
                drop(
                    sum(field, value, stride)
                        .map(|text| row.insert(field.name_of("value").to_owned().into(), text.into())),
                );
            }
        }
    }
    if !fits {
        let of = |layout: &Option<TypeLayout>| layout.as_ref().map_or(0, |layout| layout.size);
        let text = format!(
            "key of {} bytes, value of {} in {} copies; by the BTF {} and {}",
            key.len(),
            value.len(),
            dump.copies,
            of(&layout.key),
            of(&layout.value)
        );
        sink.unread(&text, "not the size in the BTF");
        return;
    }
    if !sink.row(dump.at_ns, &row, "an entry of the map") {
        let known = row.keys().map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
        sink.unread(&known, "no figure is among the fields");
    }
}

/// Sums up numbers over the copies of a per-CPU map, modulo 2^64. For texts, the first copy counts.
fn sum(field: &MapField, value: &[u8], stride: usize) -> Option<String> {
    let mut copies = value.chunks_exact(stride);
    if field.scalar == Scalar::Text || value.len() == stride {
        return scalar(field, copies.next()?);
    }
    let mut sum = 0_u64;
    for copy in copies {
        sum = sum.wrapping_add(number(field, copy)?);
    }
    Some(shown(field.scalar, sum))
}

fn scalar(field: &MapField, bytes: &[u8]) -> Option<String> {
    if field.scalar == Scalar::Text {
        let text = bytes.get(field.offset..field.offset.checked_add(field.size)?)?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        return Some(String::from_utf8_lossy(&text[..end]).into_owned());
    }
    number(field, bytes).map(|value| shown(field.scalar, value))
}

/// Reads a number and extends it to 64 bits. Guests are little-endian on every architecture.
fn number(field: &MapField, bytes: &[u8]) -> Option<u64> {
    let bytes = bytes.get(field.offset..field.offset.checked_add(field.size)?)?;
    let mut word = [0; 8];
    word.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let value = u64::from_le_bytes(word);
    let unused = 64 - 8 * u32::try_from(field.size).ok()?;
    Some(match field.scalar {
        Scalar::Signed => (value.cast_signed() << unused >> unused).cast_unsigned(),
        Scalar::Unsigned | Scalar::Text => value,
    })
}

fn shown(scalar: Scalar, value: u64) -> String {
    if scalar == Scalar::Signed { value.cast_signed().to_string() } else { value.to_string() }
}
