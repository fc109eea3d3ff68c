// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modes of `bpfassay run`: a new run, a run with the guests of other results, and a continued
//! run.

use std::{path::Path, sync::Arc};

use bpfassay_packages::stages::Stages;
use bpfassay_results::{Again, file};
use bpfassay_runner::{
    Interrupted, Like, PlannedWork, QemuSource, Session, ShellUse, Store, StoreOptions, StudySelection, Testbed,
    is_counted, run_provenance::this_program,
};
use bpfassay_study::{Plan, Shard};
use bpfassay_vm::AcceleratorWish;

use crate::{
    cli,
    exit::{CommandFailure, USAGE},
    selection,
};

/// The origin of a run's plan and guests.
pub(super) enum RunMode {
    New,
    /// A new run with the guests of other results (`--like`).
    Like(Box<Like>),
    /// A continued run (`--resume`).
    Resumed(Box<Interrupted>),
}

impl RunMode {
    /// Returns the mode that `arguments` select.
    ///
    /// # Errors
    /// A usage failure, if the results or the interrupted run cannot be read, and for another shard
    /// than that of the interrupted run.
    pub(super) fn of(arguments: &cli::RunArgs) -> Result<Self, CommandFailure> {
        if let Some(directory) = &arguments.resume {
            let interrupted = Interrupted::open(directory)?;
            let plan = interrupted.plan();
            return match arguments.selection.shard {
                Some(asked) if plan.shard != Some(asked) => Err(other_shard(plan, asked)),
                _ => Ok(Self::Resumed(Box::new(interrupted))),
            };
        }
        Ok(match &arguments.like {
            Some(path) => Self::Like(Box::new(like(path)?)),
            None => Self::New,
        })
    }

    /// Returns the QEMU that measured the interrupted run or the other results.
    pub(super) fn qemu(&self) -> Option<QemuSource> {
        match self {
            Self::New => None,
            Self::Like(like) => like.qemu(),
            Self::Resumed(interrupted) => interrupted.qemu(),
        }
    }

    /// Returns the plan, and the sources of its guests.
    ///
    /// # Errors
    /// A usage failure for a study, a tool file or a kernel that cannot be used, and for other
    /// kernels than those of `--like`.
    pub(super) fn selected(
        &self,
        arguments: &cli::RunArgs,
        global: &cli::Global,
        options: &mut StoreOptions,
    ) -> Result<(StudySelection, Plan), CommandFailure> {
        if let Self::Resumed(interrupted) = self {
            return Ok((selection::overlays(&arguments.execution.overlays), interrupted.plan().clone()));
        }
        let mut selection = selection::selection(&arguments.selection, &arguments.execution.overlays, global)?;
        let plan = selection.expand(options)?;
        if let Self::Like(like) = self {
            if global.packages.newest || global.packages.refresh || selection.sources.local.is_some() {
                return Err(other_than_like());
            }
            options.packages.exact = true;
            selection.sources.recorded = like.guests(&plan)?;
        }
        Ok((selection, plan))
    }

    /// Opens the store with the parts of guests.
    ///
    /// # Errors
    /// - An infrastructure failure, if the store cannot be opened
    /// - A usage failure, if another program began the run to continue
    pub(super) fn store(
        &self,
        options: &StoreOptions,
        stages: &Stages,
        asked: Again,
    ) -> Result<Arc<Store>, CommandFailure> {
        let mut store = Store::open(options)?.with_stages(stages.clone());
        match self {
            Self::New => {}
            Self::Like(like) => store.catalogue = like.catalogue(store.catalogue),
            // Check this before anything is built.
            Self::Resumed(interrupted) => interrupted.check_program(&this_program(&store.cache), asked)?,
        }
        Ok(Arc::new(store))
    }

    /// Whether guests can be measured while others are built: in a new run under the instruction
    /// clock, because this does not change figures. A run with tools cannot be continued without
    /// the tools' files, so it starts only with all guests.
    pub(super) fn begins_early(&self, plan: &Plan, selection: &StudySelection, wish: AcceleratorWish) -> bool {
        matches!(self, Self::New)
            && is_counted(plan)
            && plan.targets().len() > 1
            && wish != AcceleratorWish::Kvm
            && selection.tools.is_empty()
            && plan.study.tool_files.is_empty()
    }

    /// Returns the guests for `plan`.
    ///
    /// # Errors
    /// An infrastructure failure, if a guest cannot be built; a usage failure, if the guests differ
    /// from those of `--like`.
    pub(super) fn testbed(
        &self,
        store: &Arc<Store>,
        selection: &Arc<StudySelection>,
        plan: &Plan,
    ) -> Result<Testbed, CommandFailure> {
        if let Self::Resumed(interrupted) = self
            && !selection.sources.are_made()
            && selection.sources.ior.is_empty()
            && let Some(testbed) = interrupted.testbed()?
        {
            return Ok(testbed);
        }
        let testbed = Testbed::provide(store, selection, plan, ShellUse::Without)?;
        if let Self::Like(like) = self {
            like.check_guests(&testbed.manifest, plan)?;
        }
        Ok(testbed)
    }

    /// Checks that `session` has the QEMU of `--like`.
    ///
    /// # Errors
    /// A usage failure, if it has another one.
    pub(super) fn check_qemu(&self, session: &Session) -> Result<(), CommandFailure> {
        match self {
            Self::Like(like) => Ok(like.check_qemu(session.provenance())?),
            Self::New | Self::Resumed(_) => Ok(()),
        }
    }

    /// Returns the blocks to execute, with the journal of the run.
    ///
    /// # Errors
    /// A usage failure, if `directory` has a run already; an infrastructure failure, if the journal
    /// cannot be written.
    pub(super) fn work(
        self,
        session: &Session,
        directory: Option<&Path>,
        asked: Again,
    ) -> Result<PlannedWork, CommandFailure> {
        Ok(match self {
            Self::Resumed(interrupted) => interrupted.resume(asked, session.provenance().clone())?,
            Self::New | Self::Like(_) => session.begin(directory)?,
        })
    }
}

/// Reads the guests and QEMU that measured the results at `path`.
fn like(path: &Path) -> Result<Like, CommandFailure> {
    Ok(Like::new(path, &file::read(path)?)?)
}

/// Creates the failure for kernels that were named in addition to those of `--like`.
fn other_than_like() -> CommandFailure {
    let help = "leave --like out, or take the kernels of these results by their names";
    let report = miette::miette!(
        help = help,
        "--like names the kernels that are used, and --newest, --refresh or --kernel others"
    );
    CommandFailure { code: USAGE, report }
}

/// Creates the failure for a run that is continued as another shard.
fn other_shard(plan: &Plan, asked: Shard) -> CommandFailure {
    let is =
        plan.shard.map_or_else(|| "the whole of a study".to_owned(), |shard| format!("{} of a study", shard.phrase()));
    let help = "leave --shard out to continue it, or begin the other shard in another directory";
    let report = miette::miette!(help = help, "this run is {is}, and --shard requests {asked}");
    CommandFailure { code: USAGE, report }
}
