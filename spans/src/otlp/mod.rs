// SPDX-License-Identifier: MIT OR Apache-2.0
//! OTLP, the protocol of OpenTelemetry: encodes spans as messages and sends them.
//!
//! `opentelemetry-otlp` would need the same crates. It only logs how many spans a receiver refused
//! and whether a batch may be repeated, but this program counts both. So it uses only the messages
//! and the generated client.

mod encode;
mod grpc;
mod http;

use std::{io, str::FromStr, time::Duration};

use opentelemetry_proto::tonic::{collector::trace::v1::ExportTraceServiceResponse, resource::v1::Resource};

use crate::{
    export::{Accepted, Failed, Transport},
    span::Span,
};

/// The transport of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// gRPC, usually port 4317.
    Grpc,
    /// HTTP with Protocol Buffers, usually port 4318.
    #[value(name = "http/protobuf")]
    Http,
}

impl Protocol {
    /// Returns the default address of a receiver on this machine.
    #[must_use]
    pub const fn usual_endpoint(self) -> &'static str {
        match self {
            Self::Grpc => "http://127.0.0.1:4317",
            Self::Http => "http://127.0.0.1:4318",
        }
    }
}

/// The address of a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverUri(tonic::codegen::http::Uri);

impl FromStr for ReceiverUri {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: tonic::codegen::http::Uri = text.parse().map_err(|error| format!("it is no address: {error}"))?;
        match (uri.scheme_str(), uri.host()) {
            (Some("http"), Some(_)) => Ok(Self(uri)),
            (Some("https"), _) => {
                Err("TLS is not supported: send to a collector on this machine, which forwards the spans".to_owned())
            }
            _ => Err("it is not of the form http://HOST:PORT".to_owned()),
        }
    }
}

/// The address of a receiver, and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpReceiver {
    /// The address.
    pub endpoint: ReceiverUri,
    /// The transport.
    pub protocol: Protocol,
    /// Timeout of one attempt.
    pub timeout: Duration,
    /// The name of the service in the spans (`service.name`).
    pub service: String,
}

/// A receiver.
#[derive(Debug)]
pub struct Receiver {
    runtime: tokio::runtime::Runtime,
    timeout: Duration,
    resource: Resource,
    carrier: Carrier,
}

#[derive(Debug)]
enum Carrier {
    Grpc(grpc::GrpcClient),
    Http(Box<http::HttpClient>),
}

impl Receiver {
    /// A receiver. The connection is made on first use.
    ///
    /// # Errors
    /// The system's error if it provides no descriptors, or an error for an invalid address.
    pub fn new(target: OtlpReceiver) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let resource = encode::resource(&target.service, &host());
        let carrier = {
            let _inside = runtime.enter();
            match target.protocol {
                Protocol::Grpc => Carrier::Grpc(grpc::GrpcClient::new(target.endpoint.0, target.timeout)),
                Protocol::Http => Carrier::Http(Box::new(http::HttpClient::new(target.endpoint.0)?)),
            }
        };
        Ok(Self { runtime, timeout: target.timeout, resource, carrier })
    }
}

impl Transport for Receiver {
    fn send(&mut self, spans: &[Span]) -> Result<Accepted, Failed> {
        let request = encode::request(&self.resource, spans);
        let Self { runtime, timeout, carrier, .. } = self;
        runtime.block_on(async {
            let answer = async {
                match carrier {
                    Carrier::Grpc(client) => client.send(request).await,
                    Carrier::Http(client) => client.send(&request).await,
                }
            };
            match tokio::time::timeout(*timeout, answer).await {
                Ok(answer) => answer.map(accepted),
                Err(_) => Err(failed(true, format!("no answer within {} s", timeout.as_secs_f64()))),
            }
        })
    }
}

fn failed(again: bool, message: String) -> Failed {
    Failed { again, after: None, message }
}

/// Returns the refusals that a receiver reports (`ExportTracePartialSuccess`).
fn accepted(response: ExportTraceServiceResponse) -> Accepted {
    let Some(partial) = response.partial_success else { return Accepted::default() };
    Accepted {
        rejected: u64::try_from(partial.rejected_spans).unwrap_or(0),
        message: Some(partial.error_message).filter(|text| !text.is_empty()),
    }
}

/// Returns the host name of this machine.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use super::*;

    #[test]
    fn an_address_is_one_of_http() {
        let parse = |text: &str| text.parse::<ReceiverUri>();
        assert!(parse("http://127.0.0.1:4317").is_ok() && parse("http://[::1]:4318/otlp").is_ok());
        assert!(parse("https://collector:4317").unwrap_err().contains("TLS"));
        for text in ["", "127.0.0.1:4317", "/var/run/socket", "ftp://a", "http://"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_was_refused_is_read() {
        let answer = |rejected_spans, error_message: &str| {
            let partial = ExportTracePartialSuccess { rejected_spans, error_message: error_message.to_owned() };
            accepted(ExportTraceServiceResponse { partial_success: Some(partial) })
        };
        assert_eq!(answer(3, "too old"), Accepted { rejected: 3, message: Some("too old".to_owned()) });
        assert_eq!(answer(-3, ""), Accepted::default());
        assert_eq!(accepted(ExportTraceServiceResponse { partial_success: None }), Accepted::default());
    }
}
