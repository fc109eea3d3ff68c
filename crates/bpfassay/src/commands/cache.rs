// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay testbed cache`: lists what uses space in the cache, and removes what was not used for
//! a long time.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use bpfassay_packages::{
    cache::{Cache, Item, ItemKind},
    error::human,
};
use bpfassay_results::plain;
use serde_json::json;

use crate::{
    cli,
    exit::{CommandOutcome, SUCCESS},
    output,
};

/// Days without use for which the list has a column.
const LONG: u32 = 30;

/// Executes the command.
///
/// # Errors
/// - A usage failure, if the cache directory is not a cache
/// - An infrastructure failure, if the cache cannot be read, something cannot be removed, or
///   another process uses the cache to prune
pub(crate) fn cache(arguments: &cli::CacheArguments, global: &cli::Global) -> CommandOutcome {
    let cache = Cache::open(Cache::locate(global.cache.as_deref())?)?;
    match &arguments.command {
        None if arguments.json => super::print_json(serde_json::to_string_pretty(&as_json(&cache, &cache.items()?)))?,
        None => {
            let text = format!(
                "{}{} free in {}\n",
                table(&cache.items()?),
                human(cache.free_space()?),
                output::path(cache.root())
            );
            super::print(&text)?;
        }
        Some(cli::CacheCommand::Prune { unused, packages, dry_run }) => {
            let is_unneeded = |item: &Item| is_unused(item, *unused) || (*packages && item.kind == ItemKind::Package);
            let (what, items) = match dry_run {
                true => ("would be removed", cache.unneeded(is_unneeded)?),
                false => ("removed", cache.prune(is_unneeded)?),
            };
            if arguments.json {
                return super::print_json(serde_json::to_string_pretty(&as_json(&cache, &items))).map(|()| SUCCESS);
            }
            let bytes = items.iter().map(|item| item.bytes).sum();
            let table = if items.is_empty() { String::new() } else { table(&items) };
            super::print(&format!("{table}{what}: {} in {} of the cache\n", human(bytes), count(items.len())))?;
        }
    }
    Ok(SUCCESS)
}

fn is_unused(item: &Item, days: u32) -> bool {
    item.used.elapsed().is_ok_and(|age| age >= Duration::from_secs(86_400) * days)
}

fn count(number: usize) -> String {
    if number == 1 { "1 entry".to_owned() } else { format!("{number} entries") }
}

fn name(kind: &ItemKind) -> String {
    match kind {
        ItemKind::Package => "Debian packages".to_owned(),
        ItemKind::Segment => "segments of guests".to_owned(),
        ItemKind::File => "kernel images, programs".to_owned(),
        ItemKind::Tree(of) => format!("unpacked: {}", plain::line(of)),
        ItemKind::Index => "package indexes".to_owned(),
    }
}

/// Counts items, bytes, and bytes that were not used for long, for each kind.
fn by_kind(items: &[Item]) -> BTreeMap<&ItemKind, (usize, u64, u64)> {
    let mut kinds = BTreeMap::<_, (usize, u64, u64)>::new();
    for item in items {
        let of_kind = kinds.entry(&item.kind).or_default();
        of_kind.0 += 1;
        of_kind.1 += item.bytes;
        of_kind.2 += if is_unused(item, LONG) { item.bytes } else { 0 };
    }
    kinds
}

fn table(items: &[Item]) -> String {
    let unused = format!("unused for {LONG} days");
    let mut text = format!("{:<26}{:>8}{:>12}{unused:>22}\n", "what", "number", "size");
    let mut all = (0, 0, 0);
    let mut line = |name: &str, (number, bytes, unused): (usize, u64, u64)| {
        let unused = if unused == 0 { "-".to_owned() } else { human(unused) };
        let _ = writeln!(text, "{name:<26}{number:>8}{:>12}{unused:>22}", human(bytes));
    };
    for (kind, of_kind) in by_kind(items) {
        line(&name(kind), of_kind);
        all = (all.0 + of_kind.0, all.1 + of_kind.1, all.2 + of_kind.2);
    }
    line("all", all);
    text
}

fn as_json(cache: &Cache, items: &[Item]) -> serde_json::Value {
    let seconds = |item: &Item| item.used.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    json!({
        "cache": cache.root(),
        "items": items.iter().map(|item| json!({
            "what": name(&item.kind), "path": item.path, "bytes": item.bytes, "used_unix_s": seconds(item),
        })).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, time::SystemTime};

    use super::*;

    #[test]
    fn the_list_has_a_line_for_each_kind_and_their_sum() {
        let item = |kind, bytes, days: u32| {
            let used = SystemTime::now() - Duration::from_secs(86_400) * days - Duration::from_secs(60);
            Item { kind, path: PathBuf::new(), bytes, used }
        };
        let items = [
            item(ItemKind::Package, 2_500_000_000, 0),
            item(ItemKind::Package, 100_000_000, 30),
            item(ItemKind::Tree("kernel".to_owned()), 2_000_000, 29),
        ];
        insta::assert_snapshot!(table(&items), @r"
        what                        number        size    unused for 30 days
        Debian packages                  2      2.6 GB              100.0 MB
        unpacked: kernel                 1      2.0 MB                     -
        all                              3      2.6 GB              100.0 MB
        ");
    }
}
