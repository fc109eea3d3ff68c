//! Refusals that are expected.

use bpfassay_document::{Document, Field, Invalid, distinct};
use bpfassay_protocol::{
    Arch, ProbeConfiguration,
    probe::{Loader, MapLayout},
    tracer::Step,
};

use super::kernel_name;
use crate::{Expectation, expectation};

const STEPS: &[(&str, Step)] = &[("open", Step::Open), ("load", Step::Load), ("attach", Step::Attach)];

/// The expectations compiled in.
///
/// # Errors
/// None but for an error in the file, which a test would find.
pub(super) fn built_in() -> Result<Vec<Expectation>, Invalid> {
    let document = Document::parse("bundled expectations", expectation::BUILT_IN)?;
    let root = document.root();
    root.only(&["expected"])?;
    read(root.get("expected"))
}

/// The tables `[[expected]]`.
///
/// # Errors
/// [`Invalid`]
pub(super) fn read(field: Option<Field<'_, '_>>) -> Result<Vec<Expectation>, Invalid> {
    let mut expectations = Vec::new();
    let Some(field) = field else { return Ok(expectations) };
    for element in field.list()? {
        let section = element.table()?;
        section.only(&["arch", "kernels", "probe", "step", "errno", "reason", "source"])?;
        expectations.push(Expectation {
            archs: distinct(&section.need("arch")?, "architecture", Field::name::<Arch>)?,
            kernels: distinct(&section.need("kernels")?, "kernel", kernel_name)?,
            probes: distinct(&section.need("probe")?, "probe configuration", meant)?.concat(),
            step: section.need("step")?.word(STEPS)?,
            errno: section.need("errno")?.number(1..=4095)?,
            reason: section.need("reason")?.text()?.to_owned(),
            source: section.need("source")?.text()?.to_owned(),
        });
    }
    Ok(expectations)
}

/// The configurations that a name stands for: `fexit` for itself, `fexit+*` for every map layout, `fexit+*@*` for every map
/// layout and loader.
fn meant(field: &Field<'_, '_>) -> Result<Vec<ProbeConfiguration>, Invalid> {
    let text = field.text()?;
    let (rest, any_loader) = text.strip_suffix("@*").map_or((text, false), |rest| (rest, true));
    // Of a loader that is named the layout may still be any.
    let (rest, loader) = rest.split_once('@').map_or((rest, None), |(rest, loader)| (rest, Some(loader)));
    let (rest, any_map) = rest.strip_suffix("+*").map_or((rest, false), |rest| (rest, true));
    let plain = loader.map_or_else(|| rest.to_owned(), |loader| format!("{rest}@{loader}"));
    let one: ProbeConfiguration =
        plain.parse().map_err(|error: bpfassay_protocol::UnknownName| field.error(error.to_string()))?;
    if one.is_baseline() {
        return Err(field.error("the baseline attaches nothing, so no kernel can refuse it"));
    }
    let maps = if any_map { MapLayout::ALL } else { std::slice::from_ref(&one.map) };
    let loaders = if any_loader { Loader::ALL } else { std::slice::from_ref(&one.loader) };
    let all = loaders.iter().flat_map(|&loader| maps.iter().map(move |&map| ProbeConfiguration { map, loader, ..one }));
    Ok(all.collect())
}
