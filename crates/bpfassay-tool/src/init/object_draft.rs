// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drafts for eBPF objects: programs, and maps described by BTF.

use bpfassay_btf::{Btf, MapField, MapTypes, Scalar, TypeLayout};
use bpfassay_protocol::Operation;

use super::{
    draft::{DraftFigure, ToolDraft, is_name, key_of, listed, quoted, shown},
    guess,
};
use crate::{elf, under_test::MAX_OBJECT};

/// A readable map.
struct ReadableMap {
    name: String,
    key: Vec<String>,
    /// Numeric fields of the value.
    value: Vec<String>,
}

impl ReadableMap {
    fn of(name: &str, types: &MapTypes) -> Self {
        let names = |layout: &Option<TypeLayout>, whole: &str, wanted: fn(&MapField) -> bool| -> Vec<String> {
            let fields = layout.iter().flat_map(|layout| &layout.fields).filter(|field| wanted(field));
            fields.map(|field| field.name_of(whole).to_owned()).filter(|name| is_name(name)).collect()
        };
        let is_number = |field: &MapField| field.scalar != Scalar::Text;
        Self {
            name: name.to_owned(),
            key: names(&types.key, "key", |_| true),
            value: names(&types.value, "value", is_number),
        }
    }

    /// Figures that the map's fields can be. `of_programs` is the operation that all programs are
    /// attached to, if it is only one.
    fn figures(&self, of_programs: Option<Operation>) -> Vec<DraftFigure> {
        let (whose, label) = guess::subject(self.key.iter().map(String::as_str));
        let of_map = guess::words(&self.name);
        let figure = |value: &String| {
            let words = guess::words(value);
            let (unit, scale) = guess::unit(&words);
            let operation = guess::operation(&words).or_else(|| guess::operation(&of_map)).or(of_programs);
            let value = value.clone();
            DraftFigure {
                value,
                labelled: Vec::new(),
                operations: operation.into_iter().collect(),
                unit,
                scale,
                whose,
                label: label.clone(),
            }
        };
        self.value.iter().map(figure).collect()
    }
}

/// Drafts a tool file for the object `named`.
pub(super) fn draft(name: &str, named: &str, bytes: &[u8]) -> ToolDraft {
    let programs = elf::programs(bytes);
    let names =
        |of: &[elf::ElfItem]| of.iter().map(|one| format!("{} ({})", one.name, one.section)).collect::<Vec<_>>();
    let names = names(&programs);
    let mut source = vec![
        format!(
            "# Programs: {}. All are attached where their sections say; `programs = […]` names some.",
            listed(names.iter().map(String::as_str))
        ),
        format!("object = {{ path = {} }}", quoted(named)),
    ];
    if bytes.len() as u64 > MAX_OBJECT {
        source.insert(
            0,
            format!("# It has more than {MAX_OBJECT} bytes: strip it (`llvm-strip -g`), or its maps cannot be read."),
        );
    }
    let (maps, unread) = maps(bytes);
    let mut draft =
        ToolDraft { name: name.to_owned(), seen: format!("the eBPF object {named}"), source, ..ToolDraft::default() };
    // The map with the most numbers and a key is most likely the report.
    let best = maps.iter().rev().max_by_key(|map| (!map.key.is_empty(), map.value.len()));
    let Some(best) = best else {
        draft.source.push(format!(
            "# No map of it can be read: its BTF describes none with numbers{}. Declare maps with `__type(key, …)` and `__type(value, …)`.",
            if unread.is_empty() { String::new() } else { format!(" (maps: {})", listed(unread.iter().map(String::as_str))) }
        ));
        return draft;
    };
    draft.report = maps.iter().map(|map| described(map, map.name == best.name)).collect();
    if !unread.is_empty() {
        draft.report.push(format!("# Not described by its BTF: {}", listed(unread.iter().map(String::as_str))));
    }
    draft.report.push(format!("#map = {{ map = {} }}", quoted(&best.name)));
    let choosing = ["op", "operation", "kind", "type", "mode", "direction", "rw"];
    let is_choosing = |field: &&String| guess::words(field).iter().any(|word| choosing.contains(&word.as_str()));
    if let Some(field) = best.key.iter().find(is_choosing) {
        let chosen = format!("where = {{ {} = \"0\" }}", key_of(field));
        draft.report.push(format!("# Decide: a figure for each value of {}, with {chosen}.", shown(field)));
    }
    draft.figures = best.figures(attached_to(&programs));
    draft
}

/// The operation of the functions that programs are attached to, if all name the same.
fn attached_to(programs: &[elf::ElfItem]) -> Option<Operation> {
    let named = |program: &elf::ElfItem| guess::operation(&guess::words(program.section.rsplit('/').next()?));
    let (first, rest) = programs.split_first()?;
    named(first).filter(|operation| rest.iter().all(|program| named(program) == Some(*operation)))
}

fn described(map: &ReadableMap, is_best: bool) -> String {
    let key = if map.key.is_empty() { "none".to_owned() } else { listed(map.key.iter().map(String::as_str)) };
    let value = listed(map.value.iter().map(String::as_str));
    let decide = if is_best { "" } else { "; to report this one, name it and its fields below" };
    shown_map(&map.name, &key, &value) + decide
}

fn shown_map(name: &str, key: &str, value: &str) -> String {
    format!("# map {}: fields of the key: {key}; of the value: {value}", shown(name))
}

/// Maps that the BTF describes with numbers, and the names of the other maps.
fn maps(bytes: &[u8]) -> (Vec<ReadableMap>, Vec<String>) {
    let names = elf::maps(bytes).into_iter().map(|map| map.name).chain(elf::global_sections(bytes));
    let (mut maps, mut unread) = (Vec::new(), Vec::new());
    let types = bpfassay_btf::of_object(bytes).ok();
    let btf = types.as_ref().and_then(|types| Btf::new(types).ok());
    for name in names.filter(|name| is_name(name)) {
        let types = btf.as_ref().and_then(|btf| btf.map(&name));
        match types.map(|types| ReadableMap::of(&name, &types)).filter(|map| !map.value.is_empty()) {
            Some(map) => maps.push(map),
            None => unread.push(name),
        }
    }
    (maps, unread)
}
