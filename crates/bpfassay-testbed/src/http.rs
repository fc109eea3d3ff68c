// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files over HTTP, on hosts whose package manager does not download them: a bounded client over
//! `ureq`.
//!
//! What a server sends is bounded in size and in time, and is believed by nobody: whoever downloads
//! compares hashes. Proxies are those of `http_proxy`, `https_proxy` and `NO_PROXY`; certificates
//! are the host's (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others).

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

/// How long servers may take.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// For a connection, for the whole head of an answer, and for the next bytes of a file.
    answer: Duration,
    /// For [`LEAST`] bytes of a file.
    least: Duration,
}

const PATIENCE: Patience = Patience { answer: Duration::from_secs(30), least: Duration::from_secs(60) };
/// Bytes of a file that have to come within [`Patience::least`]: 1 KiB in a second.
const LEAST: u64 = 60 << 10;
/// Redirections that are followed. Those of `https` lead to `https` only.
const REDIRECTIONS: u32 = 5;
/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// Why a file was not downloaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum HttpError {
    /// The server does not have it (404 or 410).
    #[error("the server does not have it ({0})")]
    Missing(u16),
    /// Another attempt may succeed: no connection, no answer in time, an answer that broke off, or
    /// a server that is overloaded.
    #[error("{0}")]
    Passing(String),
    /// The server takes longer than it may: for a connection, for the head of its answer, or for
    /// the file. Another attempt would take as long.
    #[error("{0}")]
    Slow(String),
    /// The server or its certificate does not serve this request, and will not soon.
    #[error("{0}")]
    Refused(String),
    /// The file is larger than what was asked for.
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    /// The file cannot be written here.
    #[error("cannot write it: {0}")]
    Write(#[source] io::Error),
}

/// What is downloaded into: what is there of a file is kept or thrown away.
pub(crate) trait Sink: Write {
    /// Bytes that are there of the file.
    fn known(&self) -> u64;
    /// Throws them away.
    ///
    /// # Errors
    /// Those of the file system.
    fn begin_again(&mut self) -> io::Result<()>;
}

impl Sink for Vec<u8> {
    fn known(&self) -> u64 {
        self.len() as u64
    }

    fn begin_again(&mut self) -> io::Result<()> {
        self.clear();
        Ok(())
    }
}

/// A file that may have the beginning of what is downloaded.
#[derive(Debug)]
pub(crate) struct Partial {
    file: File,
    known: u64,
}

impl Partial {
    /// `file`, to be continued at its end.
    ///
    /// # Errors
    /// Those of the file system.
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

impl Sink for Partial {
    fn known(&self) -> u64 {
        self.known
    }

    fn begin_again(&mut self) -> io::Result<()> {
        self.known = 0;
        self.file.set_len(0)?;
        self.file.rewind()
    }
}

/// Downloads `url` to the end of `sink`, which has `limit` bytes at most afterwards. A server that
/// does not understand ranges sends it as a whole. `progress` receives the bytes that are there.
///
/// # Errors
/// [`HttpError`]. What arrived before stays in `sink`.
pub(crate) fn download(
    url: &str,
    sink: &mut impl Sink,
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
    // A host with many files would be waited for once for each.
    if matches!(downloaded, Err(HttpError::Slow(_))) {
        silent().insert(server);
    }
    downloaded
}

fn download_by(
    (agent, patience): (&Agent, Patience),
    url: &str,
    sink: &mut impl Sink,
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
        // What is there is no beginning of the server's file, or the server answers something else
        // than was asked for.
        StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PARTIAL_CONTENT if known > 0 => {
            sink.begin_again().map_err(HttpError::Write)?;
            return download_by((agent, patience), url, sink, limit, progress);
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => return Err(HttpError::Missing(status.as_u16())),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => return Err(HttpError::Passing(answer(status))),
        other if other.is_server_error() => return Err(HttpError::Passing(answer(status))),
        _ => return Err(HttpError::Refused(answer(status))),
    };
    // One byte more than may come shows that more comes.
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

/// Whether an answer in part begins at `known`.
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
        // A certificate that is not trusted, among others.
        E::Io(error) if error.get_ref().is_some_and(|error| error.is::<rustls::Error>()) => {
            HttpError::Refused(error.to_string())
        }
        E::Timeout(_) => HttpError::Slow(format!("the server does not answer in time ({error})")),
        E::Io(_) | E::HostNotFound | E::ConnectionFailed | E::Protocol(_) => HttpError::Passing(error.to_string()),
        other => HttpError::Refused(other.to_string()),
    }
}

/// The client for `url`. That for `https` reads the host's certificates when it is first needed.
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

/// A client for requests of every method to the server of `url`, with the proxies and certificates
/// of a download: for protocols other than downloading files. It follows no redirections, takes
/// every status for an answer, and gives a request up after `patience`.
///
/// # Errors
/// [`NoCertificates`] where `url` is one of `https`, and the host has none.
pub fn client(url: &str, patience: Duration) -> Result<Agent, NoCertificates> {
    let is_encrypted = url.starts_with("https://");
    let tls = if is_encrypted { trusting(of_host()?) } else { TlsConfig::builder().build() };
    let builder = settings(tls, is_encrypted, PATIENCE).max_redirects(0).allow_non_standard_methods(true);
    Ok(builder.timeout_global(Some(patience)).build().new_agent())
}

/// The certificates of authorities that the host trusts.
fn of_host() -> Result<Vec<Certificate<'static>>, NoCertificates> {
    let certificates = rustls_native_certs::load_native_certs().certs;
    if certificates.is_empty() {
        return Err(NoCertificates);
    }
    Ok(certificates.iter().map(|der| Certificate::from_der(der).to_owned()).collect())
}

/// What trusts who has a certificate from one of `authorities`.
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
        // What is compressed in transit is not what was asked for.
        .accept_encoding("identity")
        .timeout_resolve(Some(answer))
        .timeout_connect(Some(answer))
        .timeout_recv_response(Some(answer))
        .timeout_per_read(Some(answer))
        .timeout_per_write(Some(answer))
}

#[cfg(test)]
mod tests;
