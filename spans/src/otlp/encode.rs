// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encodes spans as OTLP messages.

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span as Message, Status, span::SpanKind, status::StatusCode},
};

use crate::span::{AttributeValue, Span};

fn attribute(name: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// Returns the resource that all spans share.
pub(super) fn resource(service: &str, host: &str) -> Resource {
    let text = |text: &str| any_value::Value::StringValue(text.to_owned());
    Resource {
        attributes: vec![attribute("service.name", text(service)), attribute("host.name", text(host))],
        ..Resource::default()
    }
}

/// Returns the message with a batch.
pub(super) fn request(resource: &Resource, spans: &[Span]) -> ExportTraceServiceRequest {
    let scope = InstrumentationScope {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let scope_spans =
        ScopeSpans { scope: Some(scope), spans: spans.iter().map(message).collect(), ..ScopeSpans::default() };
    let resource_spans =
        ResourceSpans { resource: Some(resource.clone()), scope_spans: vec![scope_spans], ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![resource_spans] }
}

fn message(span: &Span) -> Message {
    let attributes = span.attributes.iter().map(|(name, value)| {
        let value = match value {
            AttributeValue::Number(number) => any_value::Value::IntValue(*number),
            AttributeValue::Text(text) => any_value::Value::StringValue(text.clone().into_owned()),
            AttributeValue::Flag(flag) => any_value::Value::BoolValue(*flag),
        };
        attribute(name, value)
    });
    Message {
        trace_id: span.trace.to_vec(),
        span_id: span.id.to_vec(),
        parent_span_id: span.parent.map(|parent| parent.to_vec()).unwrap_or_default(),
        name: span.name.to_owned(),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: span.begin,
        end_time_unix_nano: span.end,
        attributes: attributes.collect(),
        status: span.failed.then(|| Status { code: StatusCode::Error.into(), ..Status::default() }),
        ..Message::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_keeps_all_that_it_has() {
        let span = Span {
            trace: [1; 16],
            id: [2; 8],
            parent: Some([3; 8]),
            name: "MPI_File_read",
            begin: 4,
            end: 5,
            failed: true,
            attributes: vec![
                ("mpi.rank", AttributeValue::Number(6)),
                ("file.path", AttributeValue::Text("/a".into())),
                ("mpi.io.closed", AttributeValue::Flag(true)),
            ],
        };
        let root = Span { parent: None, failed: false, ..span.clone() };
        let request = request(&resource("ior", "node1"), &[span, root]);
        let of_resource = &request.resource_spans[0];
        let names: Vec<&str> =
            of_resource.resource.as_ref().unwrap().attributes.iter().map(|each| each.key.as_str()).collect();
        assert_eq!(names, ["service.name", "host.name"]);
        let [first, second] = &of_resource.scope_spans[0].spans[..] else { panic!() };
        assert_eq!((first.trace_id.len(), first.span_id.len(), &first.parent_span_id[..]), (16, 8, &[3; 8][..]));
        assert_eq!((first.start_time_unix_nano, first.end_time_unix_nano), (4, 5));
        assert_eq!(first.attributes.len(), 3);
        assert_eq!(first.status.as_ref().unwrap().code(), StatusCode::Error);
        assert!(second.parent_span_id.is_empty() && second.status.is_none());
    }
}
