// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends requests to an object store. It uses the client of all other downloads, with the host's
//! proxies and certificates, and limits size and time.

use std::{
    collections::BTreeMap,
    io::Read as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use http_body_util::{BodyExt as _, Collected};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    },
};
use ureq::{Agent, http::Request};

use super::store_error::MAX_ENTRY;

/// How long a request can take, including its answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Largest answer that is read, in bytes: an entry with its protocol, or a page of a list.
const MAX_ANSWER: u64 = MAX_ENTRY + (1 << 20);

/// Gives object stores the client.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(StoreClient::default()))
    }
}

/// A client for each scheme. It blocks its thread, which belongs to the store (`objects`).
#[derive(Debug, Default)]
struct StoreClient {
    agents: Mutex<BTreeMap<bool, Arc<Agent>>>,
}

/// An answer is larger than any expected one.
#[derive(Debug, thiserror::Error)]
#[error("the answer has more than {MAX_ANSWER} bytes")]
struct TooLarge;

impl StoreClient {
    /// Returns the client for the scheme of `url`.
    fn agent(&self, url: &str) -> Result<Arc<Agent>, HttpError> {
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        let is_encrypted = url.starts_with("https://");
        if let Some(agent) = agents.get(&is_encrypted) {
            return Ok(Arc::clone(agent));
        }
        let agent = bpfassay_packages::http::client(url, PATIENCE)
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let agent = Arc::new(agent);
        agents.insert(is_encrypted, Arc::clone(&agent));
        Ok(agent)
    }
}

#[async_trait]
impl HttpService for StoreClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let agent = self.agent(&parts.uri.to_string())?;
        let content = body.collect().await.map(Collected::to_bytes)?;
        let has_body = !content.is_empty() || ["PUT", "POST"].contains(&parts.method.as_str());
        let sent = if has_body {
            agent.run(Request::from_parts(parts, &content[..]))
        } else {
            agent.run(Request::from_parts(parts, ()))
        };
        let (parts, mut body) = sent.map_err(|error| HttpError::new(kind(&error), error))?.into_parts();
        let mut answer = Vec::new();
        let read = body.as_reader().take(MAX_ANSWER + 1).read_to_end(&mut answer);
        read.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error))?;
        if answer.len() as u64 > MAX_ANSWER {
            return Err(HttpError::new(HttpErrorKind::Decode, TooLarge));
        }
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(answer)))
    }
}

/// Classifies an error by whether another attempt can succeed.
fn kind(error: &ureq::Error) -> HttpErrorKind {
    match error {
        ureq::Error::Timeout(_) => HttpErrorKind::Timeout,
        ureq::Error::ConnectionFailed | ureq::Error::HostNotFound => HttpErrorKind::Connect,
        // This includes a certificate that is not trusted.
        ureq::Error::Io(error) if error.get_ref().is_some_and(|inner| inner.is::<ureq::Error>()) => {
            HttpErrorKind::Unknown
        }
        ureq::Error::Io(_) => HttpErrorKind::Interrupted,
        _ => HttpErrorKind::Unknown,
    }
}
