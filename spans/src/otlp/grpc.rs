// SPDX-License-Identifier: MIT OR Apache-2.0
//! OTLP over gRPC.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse, trace_service_client::TraceServiceClient,
};
use tonic::{
    Code, Status,
    codegen::http::Uri,
    transport::{Channel, Endpoint},
};

use super::failed;
use crate::export::Failed;

/// A gRPC client.
#[derive(Debug)]
pub(super) struct GrpcClient(TraceServiceClient<Channel>);

impl GrpcClient {
    pub(super) fn new(address: Uri, timeout: Duration) -> Self {
        Self(TraceServiceClient::new(Endpoint::from(address).connect_timeout(timeout).connect_lazy()))
    }

    pub(super) async fn send(
        &mut self,
        request: ExportTraceServiceRequest,
    ) -> Result<ExportTraceServiceResponse, Failed> {
        match self.0.export(request).await {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => Err(failed(may_succeed(&status), format!("gRPC: {}: {}", status.code(), status.message()))),
        }
    }
}

/// Whether OTLP asks clients to repeat after such an answer (OTLP 1.9, "Failures"). A receiver
/// without resources may give a delay in its details, which are not read: the message is repeated
/// in any case.
fn may_succeed(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
    )
}
