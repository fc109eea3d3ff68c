// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options that change how a study is measured. `run --resume` refuses all of them, because the
//! continued run has the plan of the interrupted run.

use bpfassay_runner::StudyChange;
use bpfassay_study::{Clock, Model, Share, Study, StudyDesign};
use clap::Args;

use super::MEASURE;

/// Changes how a study is measured.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct MeasureArgs {
    /// The clock: wall or instructions
    #[arg(long, value_name = "CLOCK", help_heading = MEASURE)]
    pub(crate) clock: Option<Clock>,

    /// Also estimate the cost of cache misses and branches by this model (an estimate, not a time)
    #[arg(long, value_name = "MODEL", value_parser = super::run::model(), help_heading = MEASURE, hide_short_help = true)]
    pub(crate) model: Option<Model>,

    /// Rounds of each boot
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(StudyDesign::MOST_ROUNDS)), help_heading = MEASURE)]
    pub(crate) rounds: Option<u32>,

    /// Boots of each target; with --until, the most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = MEASURE)]
    pub(crate) replicates: Option<u32>,

    /// Boot until all intervals are this narrow (0.5%)
    ///
    /// Error rates are kept. The most boots are the study's replicates, or 20.
    #[arg(long, value_name = "SHARE", help_heading = MEASURE)]
    pub(crate) until: Option<Share>,
}

impl StudyChange for MeasureArgs {
    fn change(&self, study: &mut Study) {
        if let Some(rounds) = self.rounds {
            study.design.rounds = rounds;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_given_options_change_a_study() {
        let study = bpfassay_study::load("quick").unwrap();
        let changed = |arguments: &MeasureArgs| {
            let mut study = study.clone();
            arguments.change(&mut study);
            study
        };
        assert_eq!(changed(&MeasureArgs::default()), study);
        assert_eq!(changed(&MeasureArgs { rounds: Some(77), ..MeasureArgs::default() }).design.rounds, 77);
    }
}
