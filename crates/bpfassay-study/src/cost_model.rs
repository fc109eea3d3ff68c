// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models of caches and branch prediction: geometry, and prices of misses.
//! docs/explanation/priced-cost.md describes what is modelled.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A model that adds prices to executed instructions. Plans and results contain the whole model,
/// and so record how their figures were computed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Model name in study files and in `--model`.
    pub name: String,
    /// The modelled caches and predictors.
    pub geometry: Geometry,
    /// Prices of misses and mispredictions.
    pub prices: Prices,
}

/// Caches and predictors of a model. All are empty at the start of every phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Geometry {
    /// Line size of every cache in bytes.
    pub line_bytes: u32,
    /// First-level instruction cache.
    pub l1i: CacheGeometry,
    /// First-level data cache.
    pub l1d: CacheGeometry,
    /// Second-level cache, also the last level. It serves misses of both first-level caches.
    pub l2: CacheGeometry,
    /// Two-bit counters that predict conditional branches, indexed by address and by the directions
    /// of earlier branches (gshare).
    pub direction_counters: u32,
    /// Entries for the last targets of indirect jumps and calls, indexed by address.
    pub targets: u32,
    /// Entries of the stack that predicts returns.
    pub returns: u32,
}

/// A set-associative cache with LRU replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheGeometry {
    /// Size in bytes.
    pub bytes: u32,
    /// Lines per set.
    pub ways: u32,
}

/// Prices of misses and mispredictions in instructions. Priced cost = instructions + sum of count ×
/// price. It is not a number of cycles of any processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// A miss in a first-level cache, for instructions or data.
    pub l1_miss: u32,
    /// A miss in the second-level cache, in addition to the first-level miss.
    pub l2_miss: u32,
    /// A mispredicted branch of any kind.
    pub misprediction: u32,
}

/// A built-in model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Declared {
    name: &'static str,
    geometry: Geometry,
    prices: Prices,
}

/// The prices of `CEst`, KCachegrind's estimate from Cachegrind's counts: Ir + 10 Bm + 10 L1m + 100
/// LLm. The formula is in `EventType` of KCachegrind's libcore/globalconfig.cpp, which also has
/// terms for events of other tools. The table sizes for conditional and indirect branches are the
/// sizes in Cachegrind's cg_branchpred.c, which predicts no returns. The caches have typical sizes
/// of a server core.
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
    /// The models by name. A new model is one constant and one line.
    pub(crate) const NAMES: &'static [(&'static str, Self)] = &[(CACHEGRIND.name, CACHEGRIND)];
}

impl From<Declared> for Model {
    fn from(Declared { name, geometry, prices }: Declared) -> Self {
        Self { name: name.to_owned(), geometry, prices }
    }
}

impl Model {
    /// Lists the names of all models.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Declared::NAMES.iter().map(|(name, _)| *name)
    }

    /// Returns the model called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Declared::NAMES.iter().find(|(known, _)| *known == name).map(|(_, declared)| Self::from(*declared))
    }

    /// Formats the geometry as an argument of the plugin (`Model::new` in bpfassay-plugin): numbers
    /// separated by `-`.
    #[must_use]
    pub fn argument(&self) -> String {
        let Geometry { line_bytes, l1i, l1d, l2, direction_counters, targets, returns } = self.geometry;
        let caches = [l1i, l1d, l2].map(|cache| format!("{}-{}", cache.bytes, cache.ways)).join("-");
        format!("{line_bytes}-{caches}-{direction_counters}-{targets}-{returns}")
    }

    /// Describes name, geometry and prices in one line.
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
