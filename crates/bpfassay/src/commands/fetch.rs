//! `bpfassay fetch`: prepare everything for a study, so that it then runs offline.

use crate::{
    chosen::Chosen,
    cli,
    exit::{Failure, INTERNAL, Outcome, SUCCESS},
    output,
    setup::{self, Store},
};

pub(crate) async fn fetch(arguments: cli::Fetch, global: &cli::Global) -> Outcome {
    let overlays = cli::Overlays { ior: Vec::new(), manifest: None, available: false };
    let chosen = Chosen::read(&arguments.selection)?;
    let plan = setup::expand(&chosen, &overlays, arguments.selection.clock, global)?;
    let store = Store::open(global)?;
    setup::host_packages(&plan, setup::needed(&store, &chosen, &overlays)?, global)?;
    if arguments.verify {
        let checked = store.cache.check()?;
        super::print(&format!("checked {} files, {} MiB\n", checked.files, checked.bytes >> 20))?;
        for path in &checked.removed {
            super::print(&format!("damaged, removed: {}\n", output::path(path)))?;
        }
    }
    let testbed = setup::testbed(&store, &chosen, &overlays, &plan, setup::Shell::With)?;
    setup::rig(&store, testbed.images, &plan, bpfassay_vm::AcceleratorWish::Auto, setup::Trial::Boot).await?;
    if let Some(path) = &arguments.manifest_out {
        let text = testbed.manifest.to_json().map_err(|error| Failure::new(INTERNAL, error))?;
        std::fs::write(path, text).map_err(|source| {
            Failure::from(bpfassay_testbed::Error::Io { action: "write", path: path.clone(), source })
        })?;
    }
    super::print("ready; these targets now run offline:\n")?;
    for target in &testbed.manifest.targets {
        super::print(&super::testbed::summary(target))?;
    }
    Ok(SUCCESS)
}
