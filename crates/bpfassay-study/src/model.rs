// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models of caches and branch prediction: their geometry, and the prices of what they find.
//! docs/explanation/priced-cost.md has what is modelled.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A model by which executed instructions are priced beside being counted. Plans and results have
/// it whole, so that they say what their figures were made with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Its name, as study files and `--model` have it.
    pub name: String,
    /// What is modelled.
    pub geometry: Geometry,
    /// What misses and mispredictions cost.
    pub prices: Prices,
}

/// Caches and predictors of a model. Each begins empty in every phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Geometry {
    /// Bytes of a line of every cache.
    pub line_bytes: u32,
    /// The first cache of instructions.
    pub l1i: CacheGeometry,
    /// The first cache of data.
    pub l1d: CacheGeometry,
    /// The second and last cache, for what misses in the first ones.
    pub l2: CacheGeometry,
    /// Counters of two bits that predict conditional branches, found by address and by the
    /// directions of the branches before (gshare).
    pub direction_counters: u32,
    /// Entries with the last targets of indirect jumps and calls, found by address.
    pub targets: u32,
    /// Addresses on the stack that predicts returns.
    pub returns: u32,
}

/// A cache with sets of lines, of which the one goes that was used the longest time ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheGeometry {
    /// Its bytes.
    pub bytes: u32,
    /// Lines of a set.
    pub ways: u32,
}

/// What misses and mispredictions cost, in instructions: priced = instructions + the sum of their
/// numbers times these. No cycles of any processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Of a miss in a first cache, of instructions or of data.
    pub l1_miss: u32,
    /// Of a miss in the second cache, in addition.
    pub l2_miss: u32,
    /// Of a branch that was predicted wrongly, of any kind.
    pub misprediction: u32,
}

/// A model that is compiled in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Declared {
    name: &'static str,
    geometry: Geometry,
    prices: Prices,
}

/// The prices of `CEst`, the estimate that KCachegrind computes from the counts of Cachegrind: Ir +
/// 10 Bm + 10 L1m + 100 LLm (`EventType`'s known formulas in KCachegrind's
/// libcore/globalconfig.cpp, where terms for events of other tools stand besides). The sizes of the
/// tables for conditional and indirect branches are those of Cachegrind's cg_branchpred.c, which
/// predicts no returns; caches are of the sizes that servers have per core.
const CACHEGRIND: Declared = Declared {
    name: "cachegrind",
    geometry: Geometry {
        line_bytes: 64,
        l1i: CacheGeometry { bytes: 32 << 10, ways: 8 },
        l1d: CacheGeometry { bytes: 32 << 10, ways: 8 },
        l2: CacheGeometry { bytes: 1 << 20, ways: 16 },
        direction_counters: 16_384,
        targets: 512,
        returns: 16,
    },
    prices: Prices { l1_miss: 10, l2_miss: 100, misprediction: 10 },
};

impl Declared {
    /// The models by their names. A new one is a constant and a line.
    pub(crate) const NAMES: &'static [(&'static str, Self)] = &[(CACHEGRIND.name, CACHEGRIND)];
}

impl From<Declared> for Model {
    fn from(Declared { name, geometry, prices }: Declared) -> Self {
        Self { name: name.to_owned(), geometry, prices }
    }
}

impl Model {
    /// The names of all models.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Declared::NAMES.iter().map(|(name, _)| *name)
    }

    /// The model with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Declared::NAMES.iter().find(|(known, _)| *known == name).map(|(_, declared)| Self::from(*declared))
    }

    /// Its geometry as an argument of the plugin (`Model::new` of bpfassay-plugin): numbers with
    /// `-` between them.
    #[must_use]
    pub fn argument(&self) -> String {
        let Geometry { line_bytes, l1i, l1d, l2, direction_counters, targets, returns } = self.geometry;
        let caches = [l1i, l1d, l2].map(|cache| format!("{}-{}", cache.bytes, cache.ways)).join("-");
        format!("{line_bytes}-{caches}-{direction_counters}-{targets}-{returns}")
    }

    /// In a line: name, geometry, prices.
    #[must_use]
    pub fn described(&self) -> String {
        let Geometry { line_bytes, l1i, l1d, l2, direction_counters, targets, returns } = self.geometry;
        let cache = |CacheGeometry { bytes, ways }: CacheGeometry| format!("{} KiB in {ways} ways", bytes / 1024);
        let Prices { l1_miss, l2_miss, misprediction } = self.prices;
        format!(
            "{}: L1I {}, L1D {}, L2 {}, lines of {line_bytes} bytes; {direction_counters} counters of directions, {targets} targets, {returns} returns; \
             {l1_miss} per miss of L1, {l2_miss} per miss of L2, {misprediction} per mispredicted branch",
            self.name,
            cache(l1i),
            cache(l1d),
            cache(l2)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_names_and_a_form_for_the_plugin() {
        for name in Model::names() {
            assert_eq!(Model::named(name).unwrap().name, name);
        }
        assert!(Model::named("none").is_none());
        let model = Model::named("cachegrind").unwrap();
        assert_eq!(model.argument(), "64-32768-8-32768-8-1048576-16-16384-512-16");
        assert_eq!(
            model.described(),
            "cachegrind: L1I 32 KiB in 8 ways, L1D 32 KiB in 8 ways, L2 1024 KiB in 16 ways, lines of 64 bytes; 16384 counters of directions, \
             512 targets, 16 returns; 10 per miss of L1, 100 per miss of L2, 10 per mispredicted branch"
        );
    }
}
