// SPDX-License-Identifier: MIT OR Apache-2.0
//! Downloads files other than packages by URL. apt's helper downloads them with the host's proxies
//! and certificates, if the host has apt.

#![allow(clippy::disallowed_methods, reason = "joins a fixed name to a scratch directory")]

use super::{
    Apt,
    apt_sandbox::{AptSandbox, warn_of_root},
    cannot_start,
    host_apt::{self, download_user},
    mirror::ATTEMPTS,
    root::APT_HELPER,
};
use crate::error::{PackagesError, Result, apt_failure::AptError};

impl Apt<'_> {
    /// Downloads the file at `url`, which has at most `limit` bytes. Returns `None` if the server
    /// does not have it. The content is not checked.
    ///
    /// # Errors
    /// - [`PackagesError::Download`]: the server fails, or the file is larger.
    /// - [`PackagesError::Offline`]: the network may not be used.
    /// - [`PackagesError::Program`]: the host has no `prlimit`.
    /// - [`PackagesError::Io`]
    pub fn read_url(&self, url: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        if self.options().offline {
            return Err(PackagesError::Offline { what: url.to_owned() });
        }
        if self.is_direct() {
            return self.read_url_directly(url, limit);
        }
        let sandbox = AptSandbox::make(self.cache(), &download_user()?, url, limit)?;
        let scratch = self.cache().scratch()?;
        let file = sandbox.as_ref().map_or_else(|| scratch.path().to_owned(), AptSandbox::files).join("file");
        let mut attempt = 1;
        loop {
            // apt-helper has no size limit.
            let mut command = host_apt::command("prlimit");
            command.arg(format!("--fsize={limit}")).args(["--core=0", "--", APT_HELPER, "-q"]);
            if let Some(sandbox) = &sandbox {
                sandbox.confine_download(&mut command);
            }
            command.arg("download-file").arg(url).arg(&file).env("LC_ALL", "C.UTF-8");
            let output = command.output().map_err(|source| cannot_start("prlimit", source))?;
            warn_of_root(&output.stderr);
            if output.status.success() {
                let content =
                    bpfassay_input::open_unlinked(&file.canonicalize().map_err(PackagesError::io("read", &file))?)
                        .and_then(|file| bpfassay_input::read_file(file, limit));
                return content.map(Some).map_err(PackagesError::io("read", &file));
            }
            let stderr = String::from_utf8_lossy(&output.stderr);
            if stderr.contains("  404  ") {
                return Ok(None);
            }
            let error = AptError::from_output("", &stderr, attempt);
            if !error.is_passing() || attempt == ATTEMPTS {
                let too_large = stderr.contains("received signal 25");
                let detail =
                    if too_large { format!("it is larger than {limit} bytes") } else { super::tail(&output.stderr) };
                return Err(PackagesError::Download { url: url.to_owned(), detail });
            }
            tracing::debug!("attempt {attempt} of {ATTEMPTS} at {url} failed: {error}");
            std::thread::sleep(std::time::Duration::from_secs(attempt.into()));
            attempt += 1;
        }
    }
}
