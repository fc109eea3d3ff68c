// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of builds in studies and on the command line.

/// Returns the name of the build whose packages have `version`.
pub(crate) fn build_name(version: &str) -> String {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    version.rsplit_once('-').map_or(version, |(upstream, _)| upstream).replace('~', "-")
}
