// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bystander of an IOR workload (key `bystander`).

use bpfassay_input::document::{Field, Reported};
use bpfassay_ior::Api;
use bpfassay_protocol::job::{Bystander, IorEngine};

use super::{EngineChoice, kept_files, named_files, plan_of_options, run, to_test};

/// Size of the bystander's file system in MiB.
const SIZE_MIB: u32 = 16;

/// Reads the options of a bystander as a list of IOR's arguments. The embedded engine runs it, and
/// so the workload before it: `engine` becomes [`EngineChoice::Embedded`] unless it is declared.
///
/// # Errors
/// The options are not one test that one rank can run on the bystander's tmpfs, or the study
/// demands another engine.
pub(super) fn read(
    options: &Field<'_, '_>,
    engine: &mut Result<EngineChoice, Reported>,
) -> Result<Vec<String>, Reported> {
    let plan = plan_of_options(options)?;
    if !named_files(&plan).is_empty() || plan.output != Default::default() {
        return Err(options.error("a bystander has its own file on its own tmpfs: leave out `-o` and `-O`"));
    }
    kept_files::are_shared(&plan.tests, 1).map_err(|message| options.error(message))?;
    if plan.tests.iter().any(|test| test.api != Api::Posix) {
        return Err(options.error("the cost of a bystander is per call of read or write: use `-a POSIX`"));
    }
    let most = u64::from(SIZE_MIB) << 20;
    if plan.tests.iter().any(|test| test.aggregate_size(1).is_none_or(|size| size > most)) {
        return Err(options.error(format!("its file does not fit into the bystander's tmpfs of {SIZE_MIB} MiB")));
    }
    if let Ok(engine) = engine {
        if *engine == EngineChoice::External {
            return Err(options.error("a bystander needs the embedded engine: leave out `engine = \"external\"`"));
        }
        *engine = EngineChoice::Embedded;
    }
    Ok(plan.tests.into_iter().map(to_test).flat_map(|test| test.options).collect())
}

/// Creates the part of a job for the bystander with these options.
pub(super) fn job(options: &[String]) -> Bystander {
    Bystander { workload: Box::new(run(IorEngine::Embedded, (1, 1), options)), size_mib: SIZE_MIB }
}
