//! What the arguments of a command choose: a part of a study, with tools beside it. Tool files are read once, so that plan and guests
//! speak of the same.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use bpfassay_protocol::Arch;
use bpfassay_study::{Plan, Study, Target};
use bpfassay_testbed::{manifest::Manifest, tools::tools_segment};
use bpfassay_tool::{Loaded, Supply};

use crate::{
    cli,
    exit::{Failure, USAGE},
    setup::Store,
};

/// What is chosen.
#[derive(Default)]
pub(crate) struct Chosen {
    /// Kernels, or one image, and so on.
    pub(crate) selection: cli::Selection,
    /// The tools under test.
    tools: Vec<Loaded>,
    /// The directory of the study file; `None` for a bundled study, and where a plan is taken up again.
    folder: Option<PathBuf>,
}

impl Chosen {
    /// Reads the tool files of the arguments.
    pub(crate) fn read(selection: &cli::Selection) -> Result<Self, Failure> {
        let tools = selection.tool.iter().map(|name| bpfassay_tool::load(name).map_err(Failure::usage));
        let tools = tools.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { selection: selection.clone(), tools, folder: bpfassay_study::folder(&selection.study) })
    }

    /// Puts the tools beside what `study` measures.
    pub(crate) fn test_tools(&self, study: &mut Study) -> Result<(), Failure> {
        for tool in &self.tools {
            let name = &tool.file.name;
            study.test_tool(tool.under_test().map_err(Failure::usage)?).map_err(|problem| Failure {
                code: USAGE,
                report: miette::miette!("cannot test the tool {name}: {problem}"),
            })?;
        }
        Ok(())
    }

    /// Puts the tools, and the programs that are workloads of `plan`, into the guests of `manifest`.
    pub(crate) fn add_tools(
        &self,
        store: &Store,
        plan: &Plan,
        targets: &[Target],
        manifest: &mut Manifest,
    ) -> Result<(), Failure> {
        self.check_has_tools(plan)?;
        let mut supplies: Vec<Supply<'_>> = self.tools.iter().map(Loaded::supply).collect();
        let cases: BTreeSet<&str> = plan.cells.iter().map(|cell| cell.case.as_str()).collect();
        for case in cases {
            supplies.extend(plan.study.workload(case).and_then(|workload| workload.supply(self.folder.as_deref())));
        }
        if supplies.is_empty() {
            return Ok(());
        }
        // That of another provider may have guests of architectures that this plan does not need.
        manifest.targets.retain(|made| {
            targets.iter().any(|target| (target.arch, target.kernel.as_str()) == (made.arch, made.name.as_str()))
        });
        let archs: BTreeSet<Arch> = manifest.targets.iter().map(|target| target.arch).collect();
        for arch in archs {
            let Some(segment) = tools_segment(&store.apt(), arch, &supplies)? else { continue };
            for target in manifest.targets.iter_mut().filter(|target| target.arch == arch) {
                target.initramfs.push(segment.clone());
            }
        }
        Ok(())
    }

    /// A plan that is taken up again names its tools; where their files lie, it does not know.
    fn check_has_tools(&self, plan: &Plan) -> Result<(), Failure> {
        let is_here = |name: &str| self.tools.iter().any(|tool| tool.file.name == name);
        match plan.study.tool_files.iter().find(|tool| !is_here(&tool.file.name)) {
            None => Ok(()),
            Some(tool) => Err(Failure {
                code: USAGE,
                report: miette::miette!(
                    help = "begin again in another directory, with --tool, or leave out what makes other guests",
                    "these guests would have to be made again, without the file of the tool {}, which is not known here",
                    tool.file.name
                ),
            }),
        }
    }

    /// How each tool is started in guests of `arch`, by its name; or why it is not.
    pub(crate) fn commands(&self, arch: Arch) -> impl Iterator<Item = (&str, Result<Vec<String>, String>)> {
        self.tools.iter().map(move |tool| {
            let order = tool.file.for_arch(arch);
            (tool.file.name.as_str(), order.map(|order| order.command))
        })
    }
}

/// The kernel image given in place of names, if one was.
pub(crate) fn local_image(selection: &cli::Selection) -> Result<Option<&Path>, Failure> {
    let refuse =
        |help: &str, what: &str| Err(Failure { code: USAGE, report: miette::miette!(help = help, "{}", what) });
    match selection.kernel.as_slice() {
        [one] if is_image(one) => Ok(Some(Path::new(one))),
        names if names.iter().any(|name| is_image(name)) => refuse(
            "run the study once per image",
            "--kernel takes the path of one image by itself, or names of the catalogue",
        ),
        _ if selection.modules.is_some() => refuse(
            "give the path of the image with --kernel (./bzImage), or leave --modules out: kernels of the catalogue have their own",
            "--modules belongs to the path of a kernel image, and --kernel names none",
        ),
        _ => Ok(None),
    }
}

/// Whether an argument of `--kernel` is the path of an image and no name of the catalogue, all of which begin with a digit.
pub(crate) fn is_image(argument: &str) -> bool {
    argument.contains('/') || (!argument.starts_with(|c: char| c.is_ascii_digit()) && Path::new(argument).is_file())
}
