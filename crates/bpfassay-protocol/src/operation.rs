//! Operations of the ledger: what a tracer counts and a workload does.

use crate::names;

names! {
    /// One kind of file operation, named as in the virtual file system.
    pub enum Operation: "operation" {
        /// Data read by `read`, `pread64` and their relatives (`vfs_read`).
        Read = "read",
        /// Data written by `write`, `pwrite64` and their relatives (`vfs_write`).
        Write = "write",
    }
}

/// Calls, bytes and errors of one operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Totals {
    /// Calls made, those that failed included.
    pub calls: u64,
    /// Bytes. For exit-side probes and workloads: returned by the calls that succeeded; for entry-side probes: requested.
    pub bytes: u64,
    /// Calls that returned an error. Zero where the probe cannot see it (entry side).
    pub errors: u64,
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.calls = self.calls.wrapping_add(other.calls);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.errors = self.errors.wrapping_add(other.errors);
    }
}

impl std::ops::Sub for Totals {
    type Output = Self;

    /// Difference of two readings of counters that only grow (modulo 2^64).
    fn sub(self, earlier: Self) -> Self {
        Self {
            calls: self.calls.wrapping_sub(earlier.calls),
            bytes: self.bytes.wrapping_sub(earlier.bytes),
            errors: self.errors.wrapping_sub(earlier.errors),
        }
    }
}
