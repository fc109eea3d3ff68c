// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a program in a root directory and in new namespaces. The program sees that directory and
//! the directories mounted into it, and nothing else of the host's files. Its mounts disappear when
//! it ends. Callers without root privileges get a user namespace that provides them inside.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

/// The program that starts a sandbox. Its package also contains `unshare`.
pub const PROGRAM: &str = "setpriv";

/// The Debian package that contains [`PROGRAM`] and `unshare`.
pub const PACKAGE: &str = "util-linux";

/// A directory of the host in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxMount {
    /// Path of the directory on the host.
    pub host: PathBuf,
    /// The existing directory in the root to mount it on, without leading slash.
    pub inside: &'static str,
    /// Whether the program can write into it.
    pub writable: bool,
}

/// A root directory with mounts.
#[derive(Debug, Clone)]
pub struct Sandbox<'a> {
    root: &'a Path,
    mounts: Vec<SandboxMount>,
}

/// The arguments are the root, triples (host directory, directory inside, `rw` or `ro`), `--`, and
/// the program.
///
/// In a user namespace, a mount keeps the restrictions of its file system on the host. A remount
/// has to repeat them, which the second attempt does. Debian has `chroot` in `/usr/sbin`, which is
/// only in root's path. `/proc` is mounted again where that is allowed. Containers that hide parts
/// of `/proc` do not allow this mount, so the sandbox gets a bind mount of the host's `/proc`.
const SCRIPT: &str = r#"
set -eu
PATH=$PATH:/usr/sbin:/sbin
root=$1
shift
mount --make-rprivate /
while [ "$1" != -- ]; do
    mount --bind -- "$1" "$root/$2"
    if [ "$3" = ro ]; then
        mount -o remount,bind,ro -- "$root/$2" 2>/dev/null || mount -o remount,bind,ro,nosuid,nodev -- "$root/$2"
    fi
    shift 3
done
shift
mount -t proc proc "$root/proc" 2>/dev/null || mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
exec chroot "$root" "$@"
"#;

impl<'a> Sandbox<'a> {
    /// Creates a sandbox that mounts only `/proc`, `/dev` and an empty `/tmp`.
    #[must_use]
    pub fn new(root: &'a Path) -> Self {
        Self { root, mounts: Vec::new() }
    }

    /// Adds a mount.
    #[must_use]
    pub fn mount(mut self, host: impl Into<PathBuf>, inside: &'static str, writable: bool) -> Self {
        self.mounts.push(SandboxMount { host: host.into(), inside, writable });
        self
    }

    /// Returns a command that runs `program`, an absolute path in the root, in `directory` of the
    /// root. Its environment is `PATH`, `HOME`, `LC_ALL` and `variables`. The caller adds the
    /// arguments.
    #[must_use]
    pub fn command(&self, program: &str, directory: &str, variables: &[(String, String)]) -> Command {
        self.command_as(rustix::process::geteuid().is_root(), program, directory, variables)
    }

    fn command_as(&self, root: bool, program: &str, directory: &str, variables: &[(String, String)]) -> Command {
        let mut command = bpfassay_child::command(PROGRAM, &[]);
        // When the caller dies, `unshare` ends, and so do all processes in its PID namespace.
        command.args(["--pdeathsig", "KILL", "--", "unshare"]);
        if !root {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--", "/bin/sh", "-c", SCRIPT, "sandbox"]);
        command.arg(self.root);
        for mount in &self.mounts {
            let access = if mount.writable { "rw" } else { "ro" };
            command.args([mount.host.as_os_str().to_owned(), OsString::from(mount.inside), OsString::from(access)]);
        }
        command.args(["--", "/usr/bin/env", "-i", "-C", directory]);
        command.args(["PATH=/usr/bin:/bin", "HOME=/tmp", "LC_ALL=C.UTF-8"]);
        command.args(variables.iter().map(|(name, value)| format!("{name}={value}")));
        command.arg(program);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_keeps_odd_names_whole() {
        let sandbox = Sandbox::new(Path::new("/r o")).mount("/a b/$(x)", "src", false).mount("/t", "target", true);
        let args = |root| {
            let command = sandbox.command_as(root, "/usr/bin/true", "/src", &[("A".into(), "b c".into())]);
            command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let privileged = args(true);
        let start = privileged.iter().position(|arg| arg == "sandbox").unwrap();
        assert_eq!(
            privileged[start + 1..],
            [
                "/r o",
                "/a b/$(x)",
                "src",
                "ro",
                "/t",
                "target",
                "rw",
                "--",
                "/usr/bin/env",
                "-i",
                "-C",
                "/src",
                "PATH=/usr/bin:/bin",
                "HOME=/tmp",
                "LC_ALL=C.UTF-8",
                "A=b c",
                "/usr/bin/true"
            ]
        );
        assert!(!privileged.contains(&"--user".to_owned()));
        assert!(args(false).contains(&"--map-root-user".to_owned()));
    }

    /// Runs a shell in a sandbox with the host's programs. Returns `None` if namespaces are not
    /// allowed.
    fn shell(root: bool, script: &str) -> Option<(String, String)> {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("root");
        for (name, text) in [("source", "from the host"), ("target", "")] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
            std::fs::write(directory.path().join(name).join("file"), text).unwrap();
        }
        for place in ["mnt", "srv", "proc", "dev", "tmp"] {
            std::fs::create_dir_all(inside.join(place)).unwrap();
        }
        let mut sandbox = Sandbox::new(&inside).mount(directory.path().join("source"), "mnt", false).mount(
            directory.path().join("target"),
            "srv",
            true,
        );
        // Some hosts have directories here, others links into /usr.
        for name in ["usr", "bin", "lib", "lib64"] {
            let of_host = Path::new("/").join(name);
            if let Ok(link) = std::fs::read_link(&of_host) {
                std::os::unix::fs::symlink(link, inside.join(name)).unwrap();
            } else if of_host.is_dir() {
                std::fs::create_dir(inside.join(name)).unwrap();
                sandbox = sandbox.mount(of_host, name, false);
            }
        }
        let mut command = sandbox.command_as(root, "/bin/sh", "/mnt", &[("X".into(), "x y".into())]);
        // The path that unprivileged users have on Debian.
        command.args(["-c", script]).env("PATH", "/usr/bin:/bin").env("SECRET", "of the host");
        let Ok(output) = command.output() else {
            println!("skipped: no unshare");
            return None;
        };
        let stderr = String::from_utf8(output.stderr).unwrap();
        let refusals = ["unshare: unshare failed", "write failed /proc/self/uid_map", "mount: not found"];
        if refusals.iter().any(|refusal| stderr.contains(refusal)) {
            println!("skipped: name spaces are not allowed here, or there is no mount: {stderr}");
            return None;
        }
        assert!(output.status.success(), "{stderr}");
        let written = std::fs::read_to_string(directory.path().join("target/file")).unwrap();
        Some((String::from_utf8(output.stdout).unwrap(), written))
    }

    #[test]
    fn a_program_sees_its_mounts_and_writes_only_where_it_may() {
        let script = "pwd; cat file; echo; echo more 2>&- >file || echo refused; echo done >/srv/file; id -u; \
            echo \"$X ${SECRET-unset} $HOME\"; ls -A /tmp | wc -l; test -e /proc/self/status && echo proc; \
            echo >/dev/null && echo dev";
        for root in [rustix::process::geteuid().is_root(), false] {
            let Some((printed, written)) = shell(root, script) else { return };
            let lines: Vec<&str> = printed.lines().map(str::trim).collect();
            assert_eq!(
                lines,
                ["/mnt", "from the host", "refused", "0", "x y unset /tmp", "0", "proc", "dev"],
                "as root: {root}"
            );
            assert_eq!(written, "done\n");
        }
    }

    #[test]
    fn a_sandbox_ends_with_whoever_started_it() {
        use std::io::Read;
        if shell(false, "true").is_none() {
            return;
        }
        // A shell starts the sandbox, reports when the program in it runs, and is then killed.
        let sandbox = Sandbox::new(Path::new("/"));
        let mut command = sandbox.command_as(false, "/bin/sh", "/", &[]);
        command.args(["-c", "echo running; exec sleep 1000"]);
        let mut caller = Command::new("/bin/sh");
        caller.args(["-c", "\"$@\" & wait", "caller"]).arg(command.get_program()).args(command.get_args());
        let mut caller = caller.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut output = caller.stdout.take().unwrap();
        let mut printed = [0; 8];
        output.read_exact(&mut printed).unwrap();
        assert_eq!(&printed, b"running\n");
        caller.kill().unwrap();
        caller.wait().unwrap();
        // The stream ends when the last process that has it open has ended.
        assert_eq!(output.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
}
