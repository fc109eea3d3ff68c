// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths in the guest: the host composes the root file system, the agent uses it.

/// Path of the agent; the kernel starts it as process 1.
pub const AGENT: &str = "/init";

/// Directory of everything that belongs to this project, except [`AGENT`]. A user's overlay cannot write into it.
pub const HOME: &str = "/bpfassay";

/// The bundled tracer.
pub const TRACER: &str = "/bpfassay/tracer";

/// The embedded IOR-compatible engine.
pub const IOR: &str = "/bpfassay/ior";

/// Symbolic link to the real `ior` in the user's overlay; absent where there is no overlay.
pub const EXTERNAL_IOR: &str = "/bpfassay/external-ior";

/// Directory of kernel modules, one flat level. Their order of insertion is in [`crate::job::Job::modules`].
pub const MODULES: &str = "/bpfassay/modules";

/// Busybox, in images made for an interactive shell; absent in others. Not in `/bin`, which a user's overlay may have as
/// a symbolic link; `busybox --install -s DIRECTORY` makes the links to its applets.
pub const BUSYBOX: &str = "/bpfassay/busybox";

/// Directories that exist and are empty at start: mount points, and directories for the agent's files.
pub const DIRECTORIES: [&str; 7] = ["/dev", "/mnt", "/proc", "/run", "/sys", "/tmp", "/var"];
