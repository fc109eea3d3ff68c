// SPDX-License-Identifier: MIT OR Apache-2.0
//! Determines how far QEMU can be confined on this host, by starting it with each kind of
//! confinement.
//!
//! Every QEMU gets the limits of `limits.rs`, and QEMU's filter of system calls if that works. If
//! root started this program, QEMU also runs as another user.

#![allow(clippy::disallowed_methods, reason = "reads files of the kernel, in /proc or /sys")]

use std::{fs, io, os::unix::fs::MetadataExt, path::Path, process::Stdio, time::Duration};

use bpfassay_protocol::{Arch, with_causes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Child,
    time::timeout,
};

use crate::{
    device::MachineDevice,
    error::VmError,
    host_load,
    limits::{FIRST_USER, PROCESS_IDS, QemuLimits},
    machine::{
        Accelerator, board::Board, no_defaults::NoDefaults, plugin_device::TranslatorPlugin, sandbox::SyscallFilter,
    },
    own_root::{self, OwnRoot},
    qemu_process,
};

/// Longest duration of a trial.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest output of a trial that is kept, in bytes.
const MAX_OUTPUT: u64 = 16 << 10;
/// The task of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginUse {
    /// The plugin holds back QEMU's main loop while the guest executes. Any dynamically linked QEMU
    /// with the plugin's C library can load it for this.
    HoldsMainLoop,
    /// The plugin also counts instructions, which requires a QEMU with TCG plugins.
    Counts,
}

/// The confinement of QEMU that this host permits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Confinement {
    /// Whether QEMU's filter of system calls works.
    pub sandbox: bool,
    /// Whether QEMU runs as another user. Always false if root did not start this program, because
    /// only root can change users.
    pub own_user: bool,
    /// The measures that are impossible here, with the reason, one sentence each.
    pub lacking: Vec<String>,
}

impl Confinement {
    /// Starts `program` (possibly in its own root directory) with as much confinement as this host
    /// permits.
    pub(crate) async fn find(program: &Path, own_root: Option<&OwnRoot>, arch: Arch) -> Self {
        let mut lacking = Vec::new();
        let own_user = may_change_user().unwrap_or_else(|reason| {
            lacking.push(format!("QEMU runs as root: {reason}"));
            false
        });
        let trial = async |sandbox, own_user| try_start((program, own_root), arch, sandbox, own_user, None).await;
        let Err(first) = trial(true, own_user).await else { return Self { sandbox: true, own_user, lacking } };
        let without_sandbox = format!("QEMU runs without its filter of system calls: {first}");
        if trial(false, own_user).await.is_ok() {
            lacking.push(without_sandbox);
            return Self { sandbox: false, own_user, lacking };
        }
        if own_user {
            let without_user = format!("QEMU runs as root: it does not start as another user: {first}");
            for sandbox in [true, false] {
                if trial(sandbox, false).await.is_ok() {
                    lacking.push(without_user);
                    lacking.extend((!sandbox).then_some(without_sandbox));
                    return Self { sandbox, own_user: false, lacking };
                }
            }
        }
        // QEMU does not start even without confinement. Booting a guest will report that.
        Self { sandbox: true, own_user, lacking }
    }

    /// Starts `program` with `plugin`, confined like guests.
    ///
    /// # Errors
    /// The reason in one line if QEMU does not load the plugin.
    pub(crate) async fn try_plugin(
        &self,
        (program, own_root): (&Path, Option<&OwnRoot>),
        arch: Arch,
        plugin: &[u8],
        plugin_use: PluginUse,
    ) -> Result<(), String> {
        try_start((program, own_root), arch, self.sandbox, self.own_user, Some((plugin, plugin_use))).await
    }

    /// Returns the limits of a QEMU with this accelerator, and the measures that it lacks.
    pub(crate) fn limits(&self, accelerator: Accelerator, cpus: u32) -> (QemuLimits, Vec<String>) {
        let mut lacking = self.lacking.clone();
        let groups = match (self.own_user, accelerator) {
            (false, _) => None,
            (true, Accelerator::Tcg) => Some(Vec::new()),
            (true, Accelerator::Kvm) => match group_of_kvm(Path::new("/dev/kvm")) {
                Ok(group) => Some(group.into_iter().collect()),
                Err(reason) => {
                    lacking.push(format!("QEMU runs as root: {reason}"));
                    None
                }
            },
        };
        (QemuLimits { groups, cpus }, lacking)
    }
}

/// Returns whether QEMU must run as another user. Returns `Ok(false)` if this program is not root,
/// and `Err` if it is root but cannot change users.
fn may_change_user() -> Result<bool, String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(false);
    }
    let status = fs::read_to_string("/proc/self/status").map_err(|error| format!("/proc/self/status: {error}"))?;
    if let Some(missing) = missing_capability(&status) {
        return Err(format!("this program is root without {missing}"));
    }
    for map in ["/proc/self/uid_map", "/proc/self/gid_map"] {
        let text = fs::read_to_string(map).map_err(|error| format!("{map}: {error}"))?;
        if !is_mapped(&text) {
            return Err(format!("{map} of this user namespace has no ids from {FIRST_USER} on"));
        }
    }
    Ok(true)
}

/// Returns the first required capability that `/proc/self/status` does not show as effective. They
/// are needed to change users, and later to kill a QEMU of another user.
fn missing_capability(status: &str) -> Option<&'static str> {
    const NEEDED: [(u32, &str); 3] = [(5, "CAP_KILL"), (6, "CAP_SETGID"), (7, "CAP_SETUID")];
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or_default();
    NEEDED.iter().find(|(bit, _)| effective >> bit & 1 == 0).map(|(_, name)| *name)
}

/// Returns whether a map of a user namespace has all ids for QEMU (user_namespaces(7): first
/// inside, first outside, count).
fn is_mapped(map: &str) -> bool {
    let (first, last) = (u64::from(FIRST_USER), u64::from(FIRST_USER + PROCESS_IDS - 1));
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(inside)), Some(Ok(_)), Some(Ok(count))) => inside <= first && last - inside < count,
            _ => false,
        }
    })
}

/// Returns the group whose members can use `device`, or `None` if every user can.
fn group_of_kvm(device: &Path) -> Result<Option<libc::gid_t>, String> {
    let found = fs::metadata(device).map_err(|error| format!("{}: {error}", device.display()))?;
    match (found.mode() & 0o006, found.mode() & 0o060, found.gid()) {
        (0o006, ..) => Ok(None),
        (_, 0o060, group) if group != 0 => Ok(Some(group)),
        _ => Err(format!("only root may use {}", device.display())),
    }
}

/// Starts QEMU with a board without devices, and makes it quit. Returns the reason in one line if
/// that fails.
async fn try_start(
    (program, own_root): (&Path, Option<&OwnRoot>),
    arch: Arch,
    sandbox: bool,
    own_user: bool,
    plugin: Option<(&[u8], PluginUse)>,
) -> Result<(), String> {
    let limits = QemuLimits { groups: own_user.then(Vec::new), cpus: 1 };
    let devices: [&dyn MachineDevice; 4] = [
        &SyscallFilter { on: sandbox },
        &NoDefaults,
        &Board { arch, accelerator: Accelerator::Tcg },
        &TranslatorPlugin { on: plugin.is_some_and(|(_, plugin_use)| plugin_use == PluginUse::Counts), model: None },
    ];
    let inherited =
        plugin.map(|(plugin, _)| host_load::plugin(plugin)).transpose().map_err(|error| error.to_string())?;
    let mut inherited: Vec<_> = inherited.into_iter().flat_map(|(inherited, _)| inherited).collect();
    let started = own_root::command(program, own_root, &limits);
    let (mut command, root) = started.map_err(|error| with_causes(&error))?;
    inherited.extend(root);
    command
        .args(devices.iter().flat_map(|device| device.arguments()))
        .args(["-serial", "none", "-monitor", "none", "-qmp", "stdio", "-S"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = qemu_process::spawn(command, inherited, limits).await.map_err(|error| error.to_string())?;
    let quit = b"{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"quit\"}\n";
    let attempt = async {
        if let Some(mut stdin) = child.stdin.take() {
            // A process that has already exited has written the reason.
            let _ = stdin.write_all(quit).await;
        }
        let (_, stderr) = printed(&mut child).await;
        (child.wait().await, stderr)
    };
    match timeout(PATIENCE, attempt).await {
        Ok((Ok(status), _)) if status.success() => Ok(()),
        Ok((Ok(status), stderr)) => {
            let lines: Vec<_> = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect();
            Err(if lines.is_empty() { status.to_string() } else { lines.join("; ") })
        }
        Ok((Err(error), _)) => Err(error.to_string()),
        Err(_) => Err(format!("it did not quit within {} s", PATIENCE.as_secs())),
    }
}

/// Returns the output of `program` (possibly in its own root directory) with `argument`, or `None`
/// if it does not end in time. Starts it as another user if this host permits that. If that is
/// denied, or the output is not `expected`, starts it once more as this user.
///
/// # Errors
/// [`VmError::Spawn`] if the program cannot be started, [`VmError::Input`] if its root directory
/// cannot be opened.
pub(crate) async fn print(
    (program, own_root): (&Path, Option<&OwnRoot>),
    argument: &str,
    patience: Duration,
    expected: impl Fn(&str) -> bool,
) -> Result<Option<String>, VmError> {
    let start = async |own_user: bool| -> Result<Option<String>, VmError> {
        let limits = QemuLimits { groups: own_user.then(Vec::new), cpus: 1 };
        let (mut command, root) = own_root::command(program, own_root, &limits)?;
        command.arg(argument).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = qemu_process::spawn(command, root.into_iter().collect(), limits).await?;
        Ok(timeout(patience, printed(&mut child)).await.ok().map(|(stdout, _)| stdout))
    };
    if may_change_user().unwrap_or(false) {
        match start(true).await {
            Ok(Some(text)) if !expected(&text) => {}
            Err(VmError::Spawn { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {}
            printed => return printed,
        }
    }
    start(false).await
}

/// Returns the beginnings of `child`'s standard output and standard error, after it has closed
/// both.
pub(crate) async fn printed(child: &mut Child) -> (String, String) {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    tokio::join!(beginning(stdout), beginning(stderr))
}

async fn beginning(stream: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    let mut kept = Vec::new();
    if let Some(mut stream) = stream {
        // After a read error, only the earlier bytes are available.
        let _ = (&mut stream).take(MAX_OUTPUT).read_to_end(&mut kept).await;
        // The rest is read and dropped, so that it does not block the program.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn ids_that_a_user_namespace_does_not_have_are_not_taken() {
        assert!(is_mapped("         0          0 4294967295\n"));
        assert!(!is_mapped("         0     100000      65536\n"));
        assert!(!is_mapped("0 1000 1\n1 100000 65536"));
        assert!(is_mapped("0 1000 1\n 2063597568 5 4194304"));
        assert!(!is_mapped("2063597568 5 4194303"));
        assert!(!is_mapped("2063597569 5 4194304"));
        assert!(!is_mapped("garbage"));
    }

    #[test]
    fn missing_capabilities_are_named() {
        assert_eq!(missing_capability("Name:\tx\nCapEff:\t000001ffffffff7f\n"), Some("CAP_SETUID"));
        assert_eq!(missing_capability("CapEff:\t000001fffeffffff\n"), None);
        assert_eq!(missing_capability("CapEff:\t0000000000000000\n"), Some("CAP_KILL"));
        assert_eq!(missing_capability(""), Some("CAP_KILL"));
    }

    #[test]
    fn kvm_is_used_by_its_group_and_never_by_that_of_root() {
        let directory = tempfile::tempdir().unwrap();
        let device = directory.path().join("kvm");
        fs::write(&device, "").unwrap();
        let with = |mode| {
            fs::set_permissions(&device, fs::Permissions::from_mode(mode)).unwrap();
            group_of_kvm(&device)
        };
        assert_eq!(with(0o666), Ok(None));
        assert!(with(0o600).unwrap_err().contains("only root may use"));
        let group = fs::metadata(&device).unwrap().gid();
        let by_group = with(0o660);
        assert_eq!(by_group.ok(), (group != 0).then_some(Some(group)));
        assert!(group_of_kvm(Path::new("/nonexistent")).is_err());
    }

    #[tokio::test]
    async fn a_program_that_never_quits_or_prints_endlessly_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("qemu");
        let script = |text: &str| {
            fs::write(&program, text).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        };
        script("#!/bin/sh\nyes | head -c 3000000 >&2\nexit 3\n");
        let error = try_start((&program, None), Arch::X86_64, false, false, None).await.unwrap_err();
        assert_eq!(error, "y; y; y");
        script("#!/bin/sh\nexec sleep 1000\n");
        let since = std::time::Instant::now();
        let error = try_start((&program, None), Arch::X86_64, false, false, None).await.unwrap_err();
        assert!(error.contains("did not quit within 10 s"), "{error}");
        assert!(since.elapsed() < PATIENCE * 2);
    }

    #[tokio::test]
    async fn confinement_that_a_qemu_does_not_support_is_named_and_left_out() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = directory.path().join("qemu");
        let text = "#!/bin/sh\ncase \"$*\" in *-sandbox*) echo '-sandbox support is not enabled in this QEMU binary' >&2; exit 1;; esac\n";
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let found = Confinement::find(&program, None, Arch::X86_64).await;
        assert!(!found.sandbox);
        let lines = "QEMU runs without its filter of system calls: -sandbox support is not enabled in this QEMU binary";
        assert_eq!(found.lacking.last().map(String::as_str), Some(lines));
        if !matches!(may_change_user(), Ok(true)) {
            return;
        }
        // Other users cannot enter root's directory to reach the program.
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let found = Confinement::find(&program, None, Arch::X86_64).await;
        assert_eq!((found.sandbox, found.own_user), (true, false));
        assert!(found.lacking[0].starts_with("QEMU runs as root: it does not start as another user"), "{found:?}");
    }
}
