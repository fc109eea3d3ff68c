//! `bpfassay testbed`: testbeds made from what others built, checked, and packed.

use std::path::Path;

use bpfassay_protocol::Arch;
use bpfassay_report::plain;
use bpfassay_testbed::{
    Error,
    catalogue::Catalogue,
    compose::{self, Recipe},
    manifest::{Check, Manifest, Target},
};

use crate::{
    cli,
    exit::{Failure, INTERNAL, Outcome, SUCCESS},
    output,
    setup::Store,
};

pub(crate) fn testbed(arguments: &cli::Testbed, global: &cli::Global) -> Outcome {
    match &arguments.verb {
        cli::TestbedVerb::Compose { recipe, output } => {
            let recipe = Recipe::load(recipe).map_err(input)?;
            let store = Store::open_offline(global)?;
            let manifest = compose::compose(&store.cache, &recipe)?;
            compose::pack(&manifest, output)?;
            print(&manifest, &output.join(compose::MANIFEST))?;
        }
        cli::TestbedVerb::Pack { manifest, output } => {
            let manifest = Manifest::load(manifest, Check::Size).map_err(input)?;
            compose::pack(&manifest, output)?;
            print(&manifest, &output.join(compose::MANIFEST))?;
        }
        cli::TestbedVerb::Check { file, recipe: false } => {
            print(&Manifest::load(file, Check::Content).map_err(input)?, file)?;
        }
        cli::TestbedVerb::Check { file, recipe: true } => {
            let recipe = Recipe::load(file).map_err(input)?;
            let catalogue = Catalogue::bundled().map_err(|error| Failure::new(INTERNAL, error))?;
            for target in &recipe.targets {
                let version = target.version.as_deref().unwrap_or("of unknown version");
                super::print(&line(target.arch, &target.name, version))?;
            }
            for target in recipe.strangers(&catalogue) {
                super::print(&format!("not in the catalogue: {} {}\n", target.arch, plain::line(&target.name)))?;
            }
        }
    }
    Ok(SUCCESS)
}

/// What the user named cannot be read: a fault in the command line.
fn input(error: Error) -> Failure {
    match error {
        Error::Io { .. } | Error::Recipe(_) => Failure::usage(error),
        error => error.into(),
    }
}

fn print(manifest: &Manifest, path: &Path) -> Result<(), Failure> {
    for target in &manifest.targets {
        super::print(&told(target))?;
    }
    super::print(&format!("manifest: {}\n", output::path(path)))
}

/// The line of a target, whose names are those of whoever made the manifest.
pub(super) fn told(target: &Target) -> String {
    line(target.arch, &target.name, &target.kernel.release)
}

fn line(arch: Arch, name: &str, release: &str) -> String {
    format!("  {arch:<8} {:<8} Linux {}\n", plain::line(name), plain::line(release))
}
