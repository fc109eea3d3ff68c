// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths in the guest. The host composes the root file system, and the agent uses it.

/// Path of the agent, which the kernel starts as process 1.
pub const AGENT: &str = "/init";

/// Directory with everything of this project except [`AGENT`]. A user's overlay cannot write to it.
pub const HOME: &str = "/bpfassay";

/// The bundled tracer.
pub const TRACER: &str = "/bpfassay/tracer";

/// The embedded IOR-compatible engine.
pub const IOR: &str = "/bpfassay/ior";

/// Symbolic link to the real `ior` in the user's overlay; absent without an overlay.
pub const EXTERNAL_IOR: &str = "/bpfassay/external-ior";

/// Directory of kernel modules, without subdirectories. [`crate::job::Job::modules`] has their
/// order of insertion.
pub const MODULES: &str = "/bpfassay/modules";

/// Busybox, which only images for an interactive shell have. It is not in `/bin`, because a user's
/// overlay may have that as a symbolic link. `busybox --install -s DIRECTORY` links its applets.
pub const BUSYBOX: &str = "/bpfassay/busybox";

/// Directories that are empty at boot: mount points, and places for the agent's files.
pub const DIRECTORIES: [&str; 7] = ["/dev", "/mnt", "/proc", "/run", "/sys", "/tmp", "/var"];
