// SPDX-License-Identifier: MIT OR Apache-2.0
//! Downloads over HTTP with `ureq`, within limits, for hosts whose package manager does not do it.
//!
//! Size and time of an answer are limited. Nobody trusts a server: the caller compares hashes.
//! Proxies come from `http_proxy`, `https_proxy` and `NO_PROXY`. Certificates are the host's, or
//! those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read, Seek as _, SeekFrom, Write},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use ureq::{
    Agent,
    config::{Config, ConfigBuilder},
    http::{StatusCode, header},
    tls::{Certificate, RootCerts, TlsConfig},
    typestate::AgentScope,
};

/// Time limits for servers.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// For a connection, for the head of an answer, and for the next bytes of a file.
    answer: Duration,
    /// For [`LEAST`] bytes of a file.
    least: Duration,
}

const PATIENCE: Patience = Patience { answer: Duration::from_secs(30), least: Duration::from_secs(60) };
/// Bytes of a file that must arrive within [`Patience::least`]: 1 KiB/s.
const LEAST: u64 = 60 << 10;
/// How many redirections are followed. `https` is never redirected to `http`.
const REDIRECTIONS: u32 = 5;
/// Buffer size for reading, in bytes.
const CHUNK: usize = 64 << 10;

/// Why a file was not downloaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum HttpError {
    /// The server does not have the file (404 or 410).
    #[error("the server does not have it ({0})")]
    Missing(u16),
    /// Another attempt can succeed: there was no connection, the answer broke off, or the server is
    /// overloaded.
    #[error("{0}")]
    Passing(String),
    /// The server exceeded a time limit for the connection, the answer's head or the file. Another
    /// attempt would take as long.
    #[error("{0}")]
    Slow(String),
    /// The server, or a check of its certificate, refuses this request, and will do so again.
    #[error("{0}")]
    Refused(String),
    /// The file is larger than expected.
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    /// The file cannot be written here.
    #[error("cannot write it: {0}")]
    Write(#[source] io::Error),
}

/// A target of downloads. It can have the start of a file.
pub(crate) trait DownloadSink: Write {
    /// Returns how many bytes of the file it has.
    fn known(&self) -> u64;
    /// Discards these bytes.
    ///
    /// # Errors
    /// The errors of the file system.
    fn begin_again(&mut self) -> io::Result<()>;
}

impl DownloadSink for Vec<u8> {
    fn known(&self) -> u64 {
        self.len() as u64
    }

    fn begin_again(&mut self) -> io::Result<()> {
        self.clear();
        Ok(())
    }
}

/// A file that can have the start of a download.
#[derive(Debug)]
pub(crate) struct Partial {
    file: File,
    known: u64,
}

impl Partial {
    /// Continues `file` at its end.
    ///
    /// # Errors
    /// The errors of the file system.
    pub(crate) fn continued(mut file: File) -> io::Result<Self> {
        let known = file.seek(SeekFrom::End(0))?;
        Ok(Self { file, known })
    }
}

impl Write for Partial {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl DownloadSink for Partial {
    fn known(&self) -> u64 {
        self.known
    }

    fn begin_again(&mut self) -> io::Result<()> {
        self.known = 0;
        self.file.set_len(0)?;
        self.file.rewind()
    }
}

/// Downloads `url` to the end of `sink`, up to a total of `limit` bytes. A server without support
/// for ranges sends the whole file again. `progress` gets the number of bytes so far.
///
/// # Errors
/// [`HttpError`]. `sink` keeps what arrived before.
pub(crate) fn download(
    url: &str,
    sink: &mut impl DownloadSink,
    limit: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<(), HttpError> {
    static SILENT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let server: String = url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    let silent = || SILENT.lock().unwrap_or_else(PoisonError::into_inner);
    if silent().contains(&server) {
        return Err(HttpError::Slow("the server did not answer in time before, and is not asked again".to_owned()));
    }
    let downloaded = download_by((agent(url)?, PATIENCE), url, sink, limit, progress);
    // A slow server is not asked again, so that its other files need no waiting.
    if matches!(downloaded, Err(HttpError::Slow(_))) {
        silent().insert(server);
    }
    downloaded
}

fn download_by(
    (agent, patience): (&Agent, Patience),
    url: &str,
    sink: &mut impl DownloadSink,
    limit: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<(), HttpError> {
    let known = sink.known();
    let mut request = agent.get(url);
    if known > 0 {
        request = request.header(header::RANGE, format!("bytes={known}-"));
    }
    let mut response = request.call().map_err(|error| failure(&error))?;
    let status = response.status();
    let mut done = match status {
        StatusCode::PARTIAL_CONTENT if begins_at(response.headers(), known) => known,
        StatusCode::OK => {
            sink.begin_again().map_err(HttpError::Write)?;
            0
        }
        // The sink does not have the start of the server's file, or the server sends another part.
        StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PARTIAL_CONTENT if known > 0 => {
            sink.begin_again().map_err(HttpError::Write)?;
            return download_by((agent, patience), url, sink, limit, progress);
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => return Err(HttpError::Missing(status.as_u16())),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => return Err(HttpError::Passing(answer(status))),
        other if other.is_server_error() => return Err(HttpError::Passing(answer(status))),
        _ => return Err(HttpError::Refused(answer(status))),
    };
    // Reading one byte above the limit reveals a larger file.
    let mut body = response.body_mut().as_reader().take(limit.saturating_sub(done).saturating_add(1));
    let mut chunk = vec![0; CHUNK];
    let (mut since, mut came) = (Instant::now(), 0);
    loop {
        if since.elapsed() >= patience.least {
            if came < LEAST {
                let seconds = patience.least.as_secs();
                return Err(HttpError::Slow(format!(
                    "the server sent {came} bytes within {seconds} s, expected {LEAST} or more"
                )));
            }
            (since, came) = (Instant::now(), 0);
        }
        let count = match body.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(HttpError::Passing(format!("it broke off after {done} bytes: {error}"))),
        };
        if done.saturating_add(count as u64) > limit {
            return Err(HttpError::TooLarge(limit));
        }
        sink.write_all(chunk.get(..count).unwrap_or_default()).map_err(HttpError::Write)?;
        done += count as u64;
        came += count as u64;
        progress(done);
    }
}

/// Whether a partial answer begins at `known`.
fn begins_at(headers: &ureq::http::HeaderMap, known: u64) -> bool {
    let range = headers.get(header::CONTENT_RANGE).and_then(|value| value.to_str().ok());
    let begin = range.and_then(|range| range.trim().strip_prefix("bytes ")?.split('-').next()?.parse().ok());
    begin == Some(known)
}

fn answer(status: StatusCode) -> String {
    format!("the server answers {}", status.as_u16())
}

fn failure(error: &ureq::Error) -> HttpError {
    use ureq::Error as E;
    match error {
        // The server's certificate is not trusted, for example.
        E::Io(error) if error.get_ref().is_some_and(|error| error.is::<rustls::Error>()) => {
            HttpError::Refused(error.to_string())
        }
        E::Timeout(_) => HttpError::Slow(format!("the server does not answer in time ({error})")),
        E::Io(_) | E::HostNotFound | E::ConnectionFailed | E::Protocol(_) => HttpError::Passing(error.to_string()),
        other => HttpError::Refused(other.to_string()),
    }
}

/// Returns the client for `url`. The first use of `https` reads the host's certificates.
fn agent(url: &str) -> Result<&'static Agent, HttpError> {
    static PLAIN: OnceLock<Agent> = OnceLock::new();
    static ENCRYPTED: OnceLock<Result<Agent, String>> = OnceLock::new();
    if !url.starts_with("https://") {
        return Ok(PLAIN.get_or_init(|| config(TlsConfig::builder().build(), false, PATIENCE).new_agent()));
    }
    let encrypted = ENCRYPTED.get_or_init(|| {
        Ok(config(trusting(of_host().map_err(|error| error.to_string())?), true, PATIENCE).new_agent())
    });
    encrypted.as_ref().map_err(|reason| HttpError::Refused(reason.clone()))
}

/// The host has no certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this host has no certificates to check https with: install its package ca-certificates, or name a file with them in SSL_CERT_FILE"
)]
pub struct NoCertificates;

/// Creates a client for requests of every method to the server of `url`, for protocols other than
/// file downloads. It has the proxies and certificates of downloads. It follows no redirections,
/// returns every status as an answer, and gives up after `patience`.
///
/// # Errors
/// [`NoCertificates`] if `url` begins with `https`, and the host has no certificates.
pub fn client(url: &str, patience: Duration) -> Result<Agent, NoCertificates> {
    let is_encrypted = url.starts_with("https://");
    let tls = if is_encrypted { trusting(of_host()?) } else { TlsConfig::builder().build() };
    let builder = settings(tls, is_encrypted, PATIENCE).max_redirects(0).allow_non_standard_methods(true);
    Ok(builder.timeout_global(Some(patience)).build().new_agent())
}

/// Loads the certificates of authorities that the host trusts.
fn of_host() -> Result<Vec<Certificate<'static>>, NoCertificates> {
    let certificates = rustls_native_certs::load_native_certs().certs;
    if certificates.is_empty() {
        return Err(NoCertificates);
    }
    Ok(certificates.iter().map(|der| Certificate::from_der(der).to_owned()).collect())
}

/// Trusts servers with a certificate from one of `authorities`.
fn trusting(authorities: Vec<Certificate<'static>>) -> TlsConfig {
    TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(authorities)))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
}

fn config(tls: TlsConfig, https_only: bool, patience: Patience) -> Config {
    settings(tls, https_only, patience).build()
}

fn settings(tls: TlsConfig, https_only: bool, Patience { answer, .. }: Patience) -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .tls_config(tls)
        .https_only(https_only)
        .http_status_as_error(false)
        .max_redirects(REDIRECTIONS)
        .user_agent(concat!("bpfassay/", env!("CARGO_PKG_VERSION")))
        // Compression would change size and content of the file.
        .accept_encoding("identity")
        .timeout_resolve(Some(answer))
        .timeout_connect(Some(answer))
        .timeout_recv_response(Some(answer))
        .timeout_per_read(Some(answer))
        .timeout_per_write(Some(answer))
}

#[cfg(test)]
mod tests;
