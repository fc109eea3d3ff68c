// SPDX-License-Identifier: MIT OR Apache-2.0
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use rustix::event::{Timespec, poll};

use super::*;

/// An endpoint in a separate thread, which sends a text of `length` bytes and the number of the
/// reading.
struct Served {
    address: ListenAddress,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
}

fn serve(address: ListenAddress, length: usize) -> Served {
    let mut endpoint = MetricsEndpoint::bind(address, Page::Metrics).unwrap();
    let address = endpoint.address().clone();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = thread::spawn(move || {
        let mut readings = 0;
        while !stopped.load(Ordering::Relaxed) {
            let ready: Vec<bool> = {
                let mut waiting: Vec<_> = endpoint.waiting().collect();
                poll(&mut waiting, Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 })).unwrap();
                waiting.iter().map(|fd| !fd.revents().is_empty()).collect()
            };
            endpoint
                .serve(&ready, Instant::now(), &mut |format| {
                    readings += 1;
                    Some(format!("{format:?} {readings}\n{}", "x".repeat(length)))
                })
                .unwrap();
        }
        readings
    });
    Served { address, stop, thread: Some(thread) }
}

impl Served {
    fn connect(&self) -> TcpStream {
        let ListenAddress::Tcp(address) = self.address else { panic!("{:?}", self.address) };
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn ask(&self, request: &str) -> String {
        ask(self.connect(), request)
    }

    /// Ends the endpoint. Returns the number of readings.
    fn end(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn ask(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn loopback() -> ListenAddress {
    ListenAddress::Tcp((Ipv4Addr::LOCALHOST, 0).into())
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn addresses_are_distinguished() {
    assert_eq!("127.0.0.1:9100".parse(), Ok(ListenAddress::Tcp((Ipv4Addr::LOCALHOST, 9100).into())));
    assert!(matches!("[::1]:0".parse(), Ok(ListenAddress::Tcp(_))));
    assert_eq!("/run/x.sock".parse(), Ok(ListenAddress::Unix("/run/x.sock".into())));
    assert_eq!("unix:x.sock".parse(), Ok(ListenAddress::Unix("x.sock".into())));
    for wrong in ["", "9100", "localhost:9100", "unix:", "127.0.0.1"] {
        assert!(wrong.parse::<ListenAddress>().is_err(), "{wrong}");
    }
}

#[test]
fn a_client_gets_the_counters_and_the_end_of_the_connection() {
    let served = serve(loopback(), 0);
    let answer = served.ask(GET);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nText 1\n"), "{answer}");
    let answer = served.ask("GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n");
    assert!(answer.ends_with("\r\n\r\nOpenMetrics 2\n"), "{answer}");
    assert!(served.ask("HEAD /metrics HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
    assert!(served.ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(served.ask("PUT /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(served.ask(&format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(20_000))).starts_with("HTTP/1.1 431 "));
    assert_eq!(served.end(), 3, "only requests of the counters cause a reading");
}

#[test]
fn another_page_is_served_at_its_own_path_only() {
    let mut endpoint = MetricsEndpoint::bind(loopback(), Page::Map).unwrap();
    let ListenAddress::Tcp(address) = *endpoint.address() else { panic!("{:?}", endpoint.address()) };
    let client = thread::spawn(move || {
        ["/map", "/metrics"].map(|path| {
            ask(TcpStream::connect(address).unwrap(), &format!("GET {path} HTTP/1.0\r\nAccept: text/plain\r\n\r\n"))
        })
    });
    while !client.is_finished() {
        let ready = vec![true; endpoint.waiting().count()];
        endpoint.serve(&ready, Instant::now(), &mut |_| Some("{}".to_owned())).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    let [map, metrics] = client.join().unwrap();
    assert!(map.contains("\r\nContent-Type: application/json\r\n") && map.ends_with("\r\n\r\n{}"), "{map}");
    assert!(metrics.ends_with("\r\n\r\n404 Not Found: the only page is /map\n"), "{metrics}");
}

#[test]
fn slow_and_silent_clients_do_not_keep_others_waiting() {
    let served = serve(loopback(), 0);
    let silent: Vec<TcpStream> = (0..20).map(|_| served.connect()).collect();
    let mut slow = served.connect();
    slow.write_all(&GET.as_bytes()[..10]).unwrap();
    let start = Instant::now();
    assert!(served.ask(GET).starts_with("HTTP/1.1 200 "));
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    assert!(ask(slow, &GET[10..]).starts_with("HTTP/1.1 200 "), "in pieces");
    drop(silent);
    served.end();
}

#[test]
fn a_client_that_does_not_read_gets_its_response_in_pieces() {
    let served = serve(loopback(), 20 << 20);
    let mut late = served.connect();
    late.write_all(GET.as_bytes()).unwrap();
    // This is far more than the kernel buffers: the endpoint must wait for this client and continue
    // to serve others.
    assert!(served.ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    let mut answer = Vec::new();
    late.read_to_end(&mut answer).unwrap();
    assert!(answer.len() > 20 << 20, "{}", answer.len());
    served.end();
}

#[test]
fn more_clients_than_places_are_all_served_in_time() {
    let served = serve(loopback(), 0);
    let clients: Vec<TcpStream> = (0..2 * MAX_CONNECTIONS).map(|_| served.connect()).collect();
    for client in clients {
        assert!(ask(client, GET).starts_with("HTTP/1.1 200 "));
    }
    assert!(served.end() <= 2 * MAX_CONNECTIONS);
}

#[test]
fn a_client_that_takes_too_long_is_disconnected() {
    let mut endpoint = MetricsEndpoint::bind(loopback(), Page::Metrics).unwrap();
    let ListenAddress::Tcp(address) = *endpoint.address() else { panic!() };
    let mut client = TcpStream::connect(address).unwrap();
    let start = Instant::now();
    while endpoint.connections.is_empty() {
        endpoint.serve(&[true], start, &mut |_| None).unwrap();
    }
    assert_eq!(endpoint.deadline(), Some(start + PATIENCE));
    endpoint.serve(&[false, false], start + PATIENCE, &mut |_| None).unwrap();
    assert_eq!(endpoint.deadline(), None);
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn counters_that_cannot_be_read_are_a_503() {
    let mut endpoint = MetricsEndpoint::bind(loopback(), Page::Metrics).unwrap();
    let ListenAddress::Tcp(address) = *endpoint.address() else { panic!() };
    let client = thread::spawn(move || ask(TcpStream::connect(address).unwrap(), GET));
    while !client.is_finished() {
        let ready: Vec<bool> = {
            let mut waiting: Vec<_> = endpoint.waiting().collect();
            poll(&mut waiting, Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 })).unwrap();
            waiting.iter().map(|fd| !fd.revents().is_empty()).collect()
        };
        endpoint.serve(&ready, Instant::now(), &mut |_| None).unwrap();
    }
    assert!(client.join().unwrap().starts_with("HTTP/1.1 503 "));
}

#[test]
fn an_abandoned_socket_is_replaced_and_one_in_use_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let address = ListenAddress::Unix(path.clone());
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let served = serve(address.clone(), 0);
    assert!(ask(UnixStream::connect(&path).unwrap(), GET).starts_with("HTTP/1.1 200 "));
    let error = MetricsEndpoint::bind(address, Page::Metrics).unwrap_err();
    assert!(matches!(error, ListenError::Bind { .. }), "{error}");
    served.end();
    assert!(!path.exists(), "it removes its socket");
    fs::write(&path, "not a socket").unwrap();
    assert!(MetricsEndpoint::bind(ListenAddress::Unix(path.clone()), Page::Metrics).is_err());
    assert!(path.exists(), "a file that is no socket is not removed");
}
