// SPDX-License-Identifier: MIT OR Apache-2.0
//! The border to bpfassay-ior, which parses IOR's JSON.

use bpfassay_ior::Summary;

use bpfassay_results::{Access, AccessKey};

/// What IOR reports of one timed phase of one repetition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reported {
    pub(crate) key: AccessKey,
    /// MiB/s.
    pub(crate) bandwidth: Option<f64>,
    /// First open to last close, in seconds.
    pub(crate) total_s: Option<f64>,
    /// Bytes moved; `None` where the summary's rounded figures do not settle the number.
    pub(crate) bytes: Option<u64>,
}

/// The timed phases in IOR's summary, in its order.
pub(crate) fn reported(summary: &str) -> Result<Vec<Reported>, String> {
    let summary = Summary::parse(summary.as_bytes()).map_err(|error| {
        let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        format!("{error}{source}")
    })?;
    Ok(summary
        .tests
        .iter()
        .flat_map(|test| {
            test.results.iter().map(|result| Reported {
                key: AccessKey {
                    access: match result.access {
                        bpfassay_ior::Access::Write => Access::Write,
                        bpfassay_ior::Access::Read => Access::Read,
                    },
                    test: test.id,
                    repetition: result.repetition,
                },
                bandwidth: result.bw_mib,
                total_s: result.total_s,
                bytes: result.moved.filter(|moved| moved.exact).map(|moved| moved.bytes),
            })
        })
        .collect())
}
