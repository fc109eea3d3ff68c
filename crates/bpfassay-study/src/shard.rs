// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shards: parts of a plan that are measured separately, for example on different machines.
//!
//! The boots of a plan are sorted by target, then by workload and file system, then by replicate.
//! The list is cut into parts of equal length, up to one boot. A shard therefore needs the kernels
//! of few targets, and a study with one target and many replicates also has shards. Sequential
//! sampling keeps all boots of one target, workload and file system together, because their results
//! decide on the number of boots.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    fmt,
    str::FromStr,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Block, ExpandError, Plan, Target,
    plan::{Cell, file_system_id},
};

/// One of several parts of a plan, written `2/3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Shard {
    number: u32,
    of: u32,
}

impl Shard {
    /// Creates shard `number` of `of`. Numbers begin with 1; `None` for numbers out of range.
    #[must_use]
    pub const fn new(number: u32, of: u32) -> Option<Self> {
        if number >= 1 && number <= of { Some(Self { number, of }) } else { None }
    }

    /// Number of the shard, from 1.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.number
    }

    /// Number of all shards.
    #[must_use]
    pub const fn of(self) -> u32 {
        self.of
    }

    /// Text for sentences: `shard 2 of 3`.
    #[must_use]
    pub fn phrase(self) -> String {
        format!("shard {} of {}", self.number, self.of)
    }

    /// Whether the shard has the item at `index` (from 0) of `count` items.
    fn has(self, index: usize, count: usize) -> bool {
        // The product cannot overflow in u128.
        let part = (index as u128 * u128::from(self.of)) / (count.max(1) as u128);
        part + 1 == u128::from(self.number)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // `u32::from_str` accepts a sign, shards do not.
        let number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok()).flatten();
        let parts = text.split_once('/').and_then(|(part, of)| Self::new(number(part)?, number(of)?));
        parts.ok_or_else(|| {
            let shown: String = text.chars().take(32).collect();
            format!("`{shown}` is no shard: write K/N with K from 1 to N, such as 1/4")
        })
    }
}

impl TryFrom<String> for Shard {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> Self {
        shard.to_string()
    }
}

impl Plan {
    /// Restricts measuring to `shard`. The plan keeps the cells and blocks of the whole plan.
    ///
    /// # Errors
    /// [`ExpandError::Shards`] if some shard would have no boots.
    pub fn of_shard(self, shard: Shard) -> Result<Self, ExpandError> {
        let plan = Self { shard: Some(shard), ..self };
        if plan.has_shards() {
            return Ok(plan);
        }
        let most = plan.units().len();
        let together = if plan.until().is_some() { ", because --until keeps those of a target together" } else { "" };
        Err(ExpandError::Shards { study: plan.study.name, of: shard.of, most, together })
    }

    /// Whether every shard has boots. True for a plan without shards.
    #[must_use]
    pub fn has_shards(&self) -> bool {
        self.shard.is_none_or(|shard| shard.of as usize <= self.units().len())
    }

    /// The blocks to measure, in execution order: all, or those of the shard.
    #[must_use]
    pub fn measured_blocks(&self) -> Vec<&Block> {
        let Some(shard) = self.shard else { return self.blocks.iter().collect() };
        let units = self.units();
        let mut places: Vec<usize> = (0..)
            .zip(&units)
            .filter(|(at, _)| shard.has(*at, units.len()))
            .flat_map(|(_, unit)| unit.clone())
            .collect();
        places.sort_unstable();
        places.into_iter().filter_map(|place| self.blocks.get(place)).collect()
    }

    /// The cells to measure, in plan order: all, or those with runs in the shard.
    #[must_use]
    pub fn measured_cells(&self) -> Vec<&Cell> {
        if self.shard.is_none() {
            return self.cells.iter().collect();
        }
        let blocks = self.measured_blocks();
        let measured: HashSet<&str> =
            blocks.iter().flat_map(|block| &block.runs).map(|run| run.cell.as_str()).collect();
        self.cells.iter().filter(|cell| measured.contains(cell.id.as_str())).collect()
    }

    /// The measured part as a plan without shard: only the shard's cells and blocks. The digest is
    /// the digest of the whole plan.
    #[must_use]
    pub fn part(&self) -> Cow<'_, Self> {
        if self.shard.is_none() {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self {
            study: self.study.clone(),
            narrowing: self.narrowing.clone(),
            shard: None,
            digest: self.digest.clone(),
            cells: self.measured_cells().into_iter().cloned().collect(),
            blocks: self.measured_blocks().into_iter().cloned().collect(),
            left_out: self.left_out.clone(),
        })
    }

    /// Name of the study with the shard: `quick, shard 2 of 3`.
    #[must_use]
    pub fn title(&self) -> String {
        let shard = self.shard.map(|shard| format!(", {}", shard.phrase()));
        format!("{}{}", self.study.name, shard.unwrap_or_default())
    }

    /// Block indices that shards keep together, in the order of distribution.
    fn units(&self) -> Vec<Vec<usize>> {
        let mut order: HashMap<(&Target, &str, String), usize> = HashMap::new();
        let mut of_places: Vec<Vec<usize>> = Vec::new();
        for (at, block) in self.blocks.iter().enumerate() {
            // The first replicate of everything comes first, in target order.
            let place = (&block.target, block.case.as_str(), file_system_id(&block.file_system));
            let index = *order.entry(place).or_insert(of_places.len());
            match of_places.get_mut(index) {
                Some(places) => places.push(at),
                None => of_places.push(vec![at]),
            }
        }
        if self.until().is_some() {
            return of_places;
        }
        of_places.into_iter().flatten().map(|at| vec![at]).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::{Available, Narrowing, Share};

    fn plan(study: &str, narrowing: Narrowing) -> Plan {
        crate::expand(&crate::load(study).unwrap(), &narrowing, &Available::default()).unwrap()
    }

    fn shard(text: &str) -> Shard {
        text.parse().unwrap()
    }

    fn ids(plan: &Plan) -> Vec<String> {
        plan.measured_blocks().iter().map(|block| block.id.clone()).collect()
    }

    #[test]
    fn a_shard_is_a_number_of_how_many() {
        assert_eq!(
            (shard("2/3").number(), shard("2/3").of(), shard("2/3").phrase()),
            (2, 3, "shard 2 of 3".to_owned())
        );
        for wrong in ["", "1", "/", "0/2", "3/2", "1/0", "-1/2", "+1/2", "1/2/3", "a/b", " 1/2", "1/4294967296", "1/"] {
            let error = wrong.parse::<Shard>().unwrap_err();
            assert!(error.contains("K from 1 to N"), "{wrong:?}: {error}");
            assert!(serde_json::from_value::<Shard>(wrong.into()).is_err(), "{wrong:?}");
        }
        assert_eq!(serde_json::to_value(shard("2/3")).unwrap(), "2/3");
    }

    #[test]
    fn a_shard_needs_few_targets_and_keeps_the_plan() {
        let whole = plan("quick", Narrowing { replicates: Some(3), ..Narrowing::default() });
        let first = whole.clone().of_shard(shard("1/4")).unwrap();
        // The study has eight targets and 24 boots.
        assert_eq!((first.targets().len(), first.measured_blocks().len(), first.blocks.len()), (2, 6, 24));
        assert_eq!((&first.digest, first.is_intact(), &first.cells), (&whole.digest, true, &whole.cells));
        assert_eq!(first.title(), "quick, shard 1 of 4");
        let part = first.part();
        let of_part: BTreeSet<&Target> = part.cells.iter().map(|cell| &cell.target).collect();
        assert_eq!((of_part.len(), part.blocks.len(), part.shard), (2, 6, None));
        assert_eq!((whole.part().as_ref(), whole.title()), (&whole, "quick".to_owned()));
    }

    #[test]
    fn replicates_of_one_target_are_spread() {
        let narrowing = Narrowing {
            replicates: Some(4),
            kernels: vec!["7.2".to_owned()],
            archs: vec!["x86_64".parse().unwrap()],
            ..Narrowing::default()
        };
        let plan = plan("quick", narrowing);
        let of = |text| ids(&plan.clone().of_shard(shard(text)).unwrap());
        assert_eq!(of("1/3"), ["x86_64_7.2_quick_nfs4.2_1", "x86_64_7.2_quick_nfs4.2_2"]);
        assert_eq!(
            (of("2/3"), of("3/3")),
            (vec!["x86_64_7.2_quick_nfs4.2_3".to_owned()], vec!["x86_64_7.2_quick_nfs4.2_4".to_owned()])
        );
        let error = plan.of_shard(shard("1/5")).unwrap_err().to_string();
        assert!(error.contains("5 shards") && error.contains('4'), "{error}");
    }

    #[test]
    fn boots_that_decide_together_stay_together() {
        let narrowing =
            Narrowing { until: Some("1%".parse::<Share>().unwrap()), replicates: Some(6), ..Narrowing::default() };
        let plan = plan("quick", narrowing);
        for number in 1..=3 {
            let of_shard = plan.clone().of_shard(Shard::new(number, 3).unwrap()).unwrap();
            assert_eq!(of_shard.measured_blocks().len(), of_shard.targets().len() * 6);
        }
        assert!(plan.of_shard(shard("1/9")).unwrap_err().to_string().contains("--until"));
    }

    proptest! {
        #[test]
        fn every_boot_is_in_one_shard_and_the_lengths_are_the_same_up_to_one(replicates in 1_u32..5, of in 1_u32..40) {
            let whole = plan("quick", Narrowing { replicates: Some(replicates), ..Narrowing::default() });
            let shards: Vec<_> = (1..=of).filter_map(|number| whole.clone().of_shard(Shard::new(number, of)?).ok()).collect();
            if of as usize > whole.blocks.len() {
                prop_assert!(shards.is_empty());
            } else {
                let lengths: Vec<usize> = shards.iter().map(|plan| plan.measured_blocks().len()).collect();
                prop_assert!(lengths.iter().max().unwrap() - lengths.iter().min().unwrap() <= 1);
                let mut all: Vec<String> = shards.iter().flat_map(ids).collect();
                all.sort();
                let mut planned = ids(&whole);
                planned.sort();
                prop_assert_eq!(all, planned);
            }
        }
    }
}
