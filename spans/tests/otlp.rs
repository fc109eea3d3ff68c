// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends spans to a receiver of OTLP by gRPC and HTTP, and checks that its answers are understood.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::VecDeque,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use bpfassay_spans::{
    export::{Exporter, Failed, Limits, Sent, Transport as _},
    otlp::{OtlpReceiver, Protocol, Receiver},
    span::{AttributeValue, Span},
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
    trace_service_server::{TraceService, TraceServiceServer},
};
use prost::Message as _;
use tonic::{Code, Request, Response, Status};

fn span(number: u8) -> Span {
    Span {
        trace: [1; 16],
        id: [number; 8],
        parent: Some([9; 8]),
        name: "MPI_File_write_at",
        begin: 5,
        end: 6,
        failed: false,
        attributes: vec![("mpi.io.bytes.moved", AttributeValue::Number(4096))],
    }
}

fn receiver(address: SocketAddr, protocol: Protocol) -> Receiver {
    let endpoint = format!("http://{address}").parse().unwrap();
    let timeout = Duration::from_secs(5);
    Receiver::new(OtlpReceiver { endpoint, protocol, timeout, service: "ior".to_owned() }).unwrap()
}

fn refusing(rejected_spans: i64) -> ExportTraceServiceResponse {
    let error_message = "too old".to_owned();
    ExportTraceServiceResponse { partial_success: Some(ExportTracePartialSuccess { rejected_spans, error_message }) }
}

/// Returns the identifiers of the spans in a request.
fn ids(request: &ExportTraceServiceRequest) -> Vec<u8> {
    let of_resource = &request.resource_spans[0];
    of_resource.scope_spans[0].spans.iter().map(|span| span.span_id[0]).collect()
}

type Answers = VecDeque<Result<ExportTraceServiceResponse, Code>>;

/// Answers from a list, then with success. Keeps what it accepted.
#[derive(Clone, Default)]
struct Service {
    answers: Arc<Mutex<Answers>>,
    taken: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let answer = self.answers.lock().unwrap().pop_front();
        match answer {
            Some(Err(code)) => Err(Status::new(code, "not now")),
            answer => {
                self.taken.lock().unwrap().push(request.into_inner());
                let success = Ok(ExportTraceServiceResponse { partial_success: None });
                answer.unwrap_or(success).map(Response::new).map_err(|code| Status::new(code, ""))
            }
        }
    }
}

/// Starts a gRPC receiver that lives as long as the test.
fn grpc(answers: impl IntoIterator<Item = Result<ExportTraceServiceResponse, Code>>) -> (SocketAddr, Service) {
    let service = Service { answers: Arc::new(Mutex::new(answers.into_iter().collect())), ..Service::default() };
    let served = service.clone();
    let (send, address) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            send.send(listener.local_addr().unwrap()).unwrap();
            let incoming = tonic::transport::server::TcpIncoming::from(listener);
            let server = tonic::transport::Server::builder();
            server.serve_with_incoming(TraceServiceServer::new(served), incoming).await.unwrap();
        });
    });
    (address.recv().unwrap(), service)
}

/// An HTTP answer: status, a further header, body.
type Answer = (&'static str, &'static str, Vec<u8>);

/// The head and the body of a request.
type Asked = (String, Vec<u8>);

/// Starts an HTTP receiver that gives `answers` and then ends. It returns the requests.
fn http(answers: Vec<Answer>) -> (SocketAddr, thread::JoinHandle<Vec<Asked>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let worker = thread::spawn(move || {
        let mut requests = Vec::new();
        for (status, header, body) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            requests.push(request(&mut stream));
            let head =
                format!("HTTP/1.1 {status}\r\n{header}Connection: close\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
        }
        requests
    });
    (address, worker)
}

fn request(stream: &mut TcpStream) -> Asked {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (head, body)
}

#[test]
fn grpc_takes_spans() {
    let (address, service) = grpc([]);
    let mut receiver = receiver(address, Protocol::Grpc);
    assert_eq!(receiver.send(&[span(1), span(2)]).unwrap().rejected, 0);
    receiver.send(&[span(3)]).unwrap();
    let taken = service.taken.lock().unwrap();
    assert_eq!(taken.iter().map(ids).collect::<Vec<_>>(), [vec![1, 2], vec![3]]);
    let resource = taken[0].resource_spans[0].resource.as_ref().unwrap();
    assert_eq!(resource.attributes[0].key, "service.name");
}

#[test]
fn grpc_answers_are_understood() {
    let (address, _service) = grpc([
        Ok(refusing(1)),
        Err(Code::Unavailable),
        Err(Code::ResourceExhausted),
        Err(Code::InvalidArgument),
        Err(Code::Unimplemented),
    ]);
    let mut receiver = receiver(address, Protocol::Grpc);
    let accepted = receiver.send(&[span(1), span(2)]).unwrap();
    assert_eq!((accepted.rejected, accepted.message.as_deref()), (1, Some("too old")));
    let again: Vec<bool> = (0..4).map(|_| receiver.send(&[span(1)]).unwrap_err().again).collect();
    assert_eq!(again, [true, true, false, false]);
    assert!(receiver.send(&[span(1)]).is_ok());
}

#[test]
fn http_takes_spans() {
    let ok = || ("200 OK", "", ExportTraceServiceResponse::default().encode_to_vec());
    let (address, worker) = http(vec![ok(), ("200 OK", "", refusing(1).encode_to_vec())]);
    let mut receiver = receiver(address, Protocol::Http);
    assert_eq!(receiver.send(&[span(1), span(2)]).unwrap().rejected, 0);
    assert_eq!(receiver.send(&[span(3)]).unwrap().rejected, 1);
    let requests = worker.join().unwrap();
    for (head, _) in &requests {
        assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/x-protobuf\r\n"), "{head}");
    }
    let bodies = requests.iter().map(|(_, body)| ids(&ExportTraceServiceRequest::decode(&body[..]).unwrap()));
    assert_eq!(bodies.collect::<Vec<_>>(), [vec![1, 2], vec![3]]);
}

#[test]
fn http_answers_are_understood() {
    let (address, worker) = http(vec![
        ("503 Service Unavailable", "Retry-After: 7\r\n", Vec::new()),
        ("429 Too Many Requests", "Retry-After: soon\r\n", Vec::new()),
        ("400 Bad Request", "", Vec::new()),
        ("200 OK", "", b"no message".to_vec()),
        ("200 OK", "", vec![0; (1 << 20) + 1]),
    ]);
    let mut receiver = receiver(address, Protocol::Http);
    let failed: Vec<Failed> = (0..5).map(|_| receiver.send(&[span(1)]).unwrap_err()).collect();
    assert_eq!(failed.iter().map(|failed| failed.again).collect::<Vec<_>>(), [true, true, false, false, false]);
    assert_eq!((failed[0].after, failed[1].after), (Some(Duration::from_secs(7)), None));
    assert!(failed[2].message.contains("400") && failed[3].message.contains("OTLP"), "{failed:?}");
    worker.join().unwrap();
}

#[test]
fn a_receiver_that_does_not_answer_is_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let endpoint = format!("http://{address}").parse().unwrap();
        let timeout = Duration::from_millis(100);
        let mut receiver = Receiver::new(OtlpReceiver { endpoint, protocol, timeout, service: String::new() }).unwrap();
        let failed = receiver.send(&[span(1)]).unwrap_err();
        assert!(failed.again && failed.message.starts_with("no answer within 0.1 s"), "{failed:?}");
    }
    drop(listener);
    for protocol in [Protocol::Grpc, Protocol::Http] {
        assert!(receiver(address, protocol).send(&[span(1)]).unwrap_err().again, "{protocol:?}");
    }
}

#[test]
fn through_the_queue_each_span_arrives_once_or_is_counted() {
    let (address, service) = grpc([Err(Code::Unavailable), Err(Code::InvalidArgument), Ok(refusing(2))]);
    let limits = Limits {
        queue: 10,
        batch: 20,
        delay: Duration::from_secs(60),
        patience: Duration::from_secs(60),
        flush: Duration::from_secs(60),
    };
    let exporter = Exporter::start(limits, move || Ok(receiver(address, Protocol::Grpc))).unwrap();
    (0..100).for_each(|number| exporter.put(span(number)));
    let sent = exporter.finish().unwrap();
    // The first batch is repeated, then refused for good. The second has two refused spans.
    assert_eq!(sent, Sent { accepted: 78, rejected: 2, unsent: 20, repeated: 1, reason: Some("too old".to_owned()) });
    let taken: Vec<u8> = service.taken.lock().unwrap().iter().flat_map(ids).collect();
    assert_eq!(taken, (20..100).collect::<Vec<_>>());
}
