// SPDX-License-Identifier: MIT OR Apache-2.0
//! OTLP over HTTP 1.1, with Protocol Buffers.

use std::{io, time::Duration};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use prost::{Message as _, bytes::Bytes};
use tonic::codegen::http::{Request, StatusCode, Uri, header};

use super::failed;
use crate::export::Failed;

/// Largest answer that is read, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// An HTTP client.
#[derive(Debug)]
pub(super) struct HttpClient {
    address: Uri,
    client: legacy::Client<HttpConnector, Full<Bytes>>,
}

impl HttpClient {
    /// A client that sends to `v1/traces` below `address`.
    ///
    /// # Errors
    /// If the result is not a valid address.
    pub(super) fn new(address: Uri) -> io::Result<Self> {
        let text = format!("{}/v1/traces", address.to_string().trim_end_matches('/'));
        let address = text.parse().map_err(|_| io::Error::other(format!("{text} is no address")))?;
        Ok(Self { address, client: legacy::Client::builder(TokioExecutor::new()).build(HttpConnector::new()) })
    }

    pub(super) async fn send(
        &mut self,
        request: &ExportTraceServiceRequest,
    ) -> Result<ExportTraceServiceResponse, Failed> {
        let request = Request::post(self.address.clone())
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .body(Full::new(Bytes::from(request.encode_to_vec())))
            .map_err(|error| failed(false, format!("HTTP: {error}")))?;
        let answer = self.client.request(request).await.map_err(|error| failed(true, format!("HTTP: {error}")))?;
        let (head, body) = answer.into_parts();
        if !head.status.is_success() {
            let after = head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            let mut failed = failed(may_succeed(head.status), format!("HTTP: status {}", head.status));
            failed.after = after.map(Duration::from_secs);
            return Err(failed);
        }
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        // The receiver accepted the spans: they are not sent again, even if the answer is wrong.
        let body = body.map_err(|error| failed(false, format!("HTTP: the answer cannot be read: {error}")))?;
        ExportTraceServiceResponse::decode(body.to_bytes())
            .map_err(|error| failed(false, format!("HTTP: the answer is not of OTLP: {error}")))
    }
}

/// Whether OTLP asks clients to repeat after such an answer (OTLP 1.9, "Retryable Response Codes").
fn may_succeed(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}
