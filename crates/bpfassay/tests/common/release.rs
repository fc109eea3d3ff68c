// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates releases in the layout of `ci/release/make`, and runs `ci/action` with them.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Returns the name of the program in a release.
pub(crate) fn program() -> String {
    format!("bpfassay-{}-{}-linux", env!("CARGO_PKG_VERSION"), env::consts::ARCH)
}

/// Creates a release in `directory` with `program`, and with the packed testbed `testbed`, whose
/// directory has the testbed's name.
pub(crate) fn release(directory: &Path, program: &[u8], testbed: Option<&Path>) -> PathBuf {
    let release = directory.join("release");
    fs::create_dir(&release).unwrap();
    let file = release.join(self::program());
    fs::write(&file, program).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    if let Some(testbed) = testbed {
        super::needs("xz", "xz-utils");
        let name = testbed.file_name().unwrap();
        let mut tar = Command::new("tar");
        tar.args(["--create", "--xz", "--directory"]).arg(testbed.parent().unwrap()).arg("--file");
        tar.arg(release.join(format!("{}.tar.xz", name.display()))).arg(name).env("XZ_OPT", "-0");
        assert!(tar.status().unwrap().success());
    }
    sums(&release);
    release
}

pub(crate) fn sha256(file: &Path) -> String {
    let output = Command::new("sha256sum").stdin(fs::File::open(file).unwrap()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

/// Writes SHA256SUMS of the files in `release`.
pub(crate) fn sums(release: &Path) {
    let mut lines = Vec::new();
    for entry in fs::read_dir(release).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name != "SHA256SUMS" {
            lines.push(format!("{}  {name}\n", sha256(&release.join(&name))));
        }
    }
    lines.sort_unstable();
    fs::write(release.join("SHA256SUMS"), lines.concat()).unwrap();
}

/// The result of `ci/action`.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Checks that the release was refused with `message`, and that no fetched file remains.
    pub(crate) fn refused(&self, directory: &Path, message: &str) {
        assert_eq!(self.code, Some(3), "{}\n{}", self.stdout, self.stderr);
        let is_it = self.stdout.starts_with("::error title=bpfassay::") && self.stdout.contains(message);
        assert!(is_it, "{message:?} is not said: {}", self.stdout);
        assert!(!directory.join("out").exists(), "{message}: something was written");
        assert_eq!(fs::read_dir(directory.join("tmp")).unwrap().count(), 0, "{message}: something was kept");
    }
}

/// Runs `ci/action` in `directory` with a release at `from`, and further inputs. Programs in `bin`
/// of `directory` come first.
pub(crate) fn action(directory: &Path, from: &Path, inputs: &[(&str, &str)]) -> Ended {
    fs::create_dir_all(directory.join("tmp")).unwrap();
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/action"));
    let path = format!("{}:{}", directory.join("bin").display(), env::var("PATH").unwrap());
    command.current_dir(directory).stdin(Stdio::null()).env("PATH", path).env("TMPDIR", directory.join("tmp"));
    command.env("GITHUB_STEP_SUMMARY", directory.join("summary")).env("GITHUB_OUTPUT", directory.join("outputs"));
    // The cache of this machine must not be used.
    command.env("XDG_CACHE_HOME", directory.join("cache"));
    command.env("no_proxy", "127.0.0.1").env_remove("BPFASSAY_FROM").env_remove("BPFASSAY_MANIFEST");
    for (name, value) in [("VERSION", env!("CARGO_PKG_VERSION")), ("OUTPUT", "out")] {
        command.env(format!("INPUT_{name}"), value);
    }
    command.env("INPUT_FROM", from);
    for (name, value) in inputs {
        command.env(format!("INPUT_{name}"), value);
    }
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}
