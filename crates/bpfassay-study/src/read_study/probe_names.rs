// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of probe configurations in studies, and what `*` in them stands for.

use bpfassay_input::document::{Field, Reported};
use bpfassay_protocol::{
    ProbeConfiguration, UnknownName,
    probe::{Loader, MapLayout, Probe},
};

/// Every probe of the bundled tracer that counts file operations, with every map layout.
const EVERY: &str = "*+*";

/// Reads the list of the probe configurations of a study. A name with `*` adds the configurations
/// that are not listed before it.
///
/// # Errors
/// [`Reported`] if a name is unknown, or if a name without `*` is listed before.
pub(super) fn probes(field: &Field<'_, '_>) -> Result<Vec<ProbeConfiguration>, Reported> {
    let mut all: Vec<ProbeConfiguration> = Vec::new();
    field.each(|element| {
        let mut named = configurations(element)?;
        if named.iter().any(|one| all.contains(one)) && !element.text()?.contains('*') {
            return Err(element.error("this probe configuration is listed twice"));
        }
        named.retain(|one| !all.contains(one));
        all.extend(named);
        Ok(())
    })?;
    Ok(all)
}

/// Expands the name of probe configurations. `fexit` is one configuration. `fexit+*` is every map
/// layout that is compared with others, `fexit+*@*` each of these with every loader, and `*+*`
/// every probe that counts file operations, with every map layout that the probe has.
///
/// # Errors
/// [`Reported`] if the name is unknown.
pub(super) fn configurations(field: &Field<'_, '_>) -> Result<Vec<ProbeConfiguration>, Reported> {
    let text = field.text()?;
    if text == EVERY {
        return Ok(every());
    }
    let (rest, any_loader) = text.strip_suffix("@*").map_or((text, false), |rest| (rest, true));
    // The layout can be `*` with a named loader, too.
    let (rest, loader) = rest.split_once('@').map_or((rest, None), |(rest, loader)| (rest, Some(loader)));
    let (rest, any_map) = rest.strip_suffix("+*").map_or((rest, false), |rest| (rest, true));
    let plain = loader.map_or_else(|| rest.to_owned(), |loader| format!("{rest}@{loader}"));
    let one: ProbeConfiguration = plain.parse().map_err(|error: UnknownName| field.error(error))?;
    let loaders = if any_loader { Loader::ALL } else { std::slice::from_ref(&one.loader) };
    let of_loader = |&loader: &Loader| with_maps(ProbeConfiguration { loader, ..one }, any_map);
    Ok(loaders.iter().flat_map(of_loader).collect())
}

fn with_maps(one: ProbeConfiguration, any_map: bool) -> Vec<ProbeConfiguration> {
    let maps = if any_map { &MapLayout::COMPARED } else { std::slice::from_ref(&one.map) };
    maps.iter().map(|&map| ProbeConfiguration { map, ..one }).collect()
}

fn every() -> Vec<ProbeConfiguration> {
    let counts_files = |probe: &&Probe| !matches!(probe, Probe::None | Probe::Programs);
    let all = Probe::ALL.iter().filter(counts_files);
    // Without a mount in the key, task accounting has no counters in maps.
    all.flat_map(|&probe| with_maps(ProbeConfiguration::with_defaults(probe), probe.distinguishes_mounts())).collect()
}

#[cfg(test)]
mod tests {
    use bpfassay_input::document;

    use super::*;

    fn read(list: &str) -> Result<Vec<String>, String> {
        let read = document::read("s.toml", &format!("probes = {list}"), |root| root.need("probes", probes));
        read.map(|all| all.iter().map(ToString::to_string).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_star_adds_what_is_not_listed_before() {
        let some = read("[\"none\", \"fexit+ringbuf\", \"fexit+*\"]").unwrap();
        assert_eq!(some, ["none", "fexit+ringbuf", "fexit", "fexit+hash-shared", "fexit+lru-shared"]);
        let every = read("[\"*+*\"]").unwrap();
        assert!(every.contains(&"task-io".to_owned()) && every.contains(&"complete+ringbuf".to_owned()), "{every:?}");
        assert!(!every.contains(&"none".to_owned()) && !every.contains(&"programs".to_owned()), "{every:?}");
    }

    #[test]
    fn a_name_that_is_listed_twice_is_refused() {
        let error = read("[\"fexit\", \"fexit+percpu\"]").unwrap_err();
        assert_eq!(error, "s.toml:1:20: `probes[1]`: this probe configuration is listed twice");
    }
}
