// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests a tool's figures by HTTP.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use bpfassay_protocol::tool_job::Endpoint;

/// How long one response can take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Largest accepted response, in bytes.
const MAX_ANSWER: usize = 256 << 10;

fn address(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Returns whether a program accepts connections on this port.
pub(super) fn accepts(port: u16) -> bool {
    TcpStream::connect_timeout(&address(port), PATIENCE).is_ok()
}

/// Returns the body of the response, or why there is none.
pub(super) fn ask(endpoint: &Endpoint) -> Result<Vec<u8>, String> {
    let deadline = Instant::now() + PATIENCE;
    let failed = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
    let mut stream = TcpStream::connect_timeout(&address(endpoint.port), PATIENCE)
        .map_err(failed("does not accept a connection"))?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed("cannot be sent a request"))?;
    // A server answers version 1.0 with the whole response and closes the connection.
    let request = format!("GET {} HTTP/1.0\r\nHost: localhost\r\nAccept: */*\r\n\r\n", endpoint.path);
    stream.write_all(request.as_bytes()).map_err(failed("cannot be sent a request"))?;
    let mut answer = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("has not answered within {} s", PATIENCE.as_secs()));
        }
        stream.set_read_timeout(Some(left)).map_err(failed("cannot be sent a request"))?;
        match stream.read(&mut buffer) {
            Ok(0) => return body(&answer),
            Ok(length) => answer.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("breaks off its answer: {error}")),
        }
        if answer.len() > MAX_ANSWER {
            return Err(format!("answers more than {MAX_ANSWER} bytes"));
        }
    }
}

/// Returns the body of a whole response with status 200.
pub(crate) fn body(answer: &[u8]) -> Result<Vec<u8>, String> {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Err("does not answer in HTTP".to_owned());
    };
    let head = String::from_utf8_lossy(&answer[..end]);
    let status = head.lines().next().unwrap_or_default();
    let mut fields = status.split(' ');
    match (fields.next(), fields.next()) {
        (Some(version), Some("200")) if version.starts_with("HTTP/1.") => Ok(answer[end + 4..].to_vec()),
        _ => Err(format!("answers `{}`", status.chars().take(100).collect::<String>())),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use proptest::prelude::*;

    use super::*;

    /// Creates an endpoint that sends `answer` to the first client.
    fn serve(answer: &'static [u8]) -> Endpoint {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 200];
            let length = stream.read(&mut request).unwrap();
            assert!(request[..length].starts_with(b"GET /metrics HTTP/1.0\r\n"));
            stream.write_all(answer).unwrap();
        });
        Endpoint { port, path: "/metrics".to_owned(), interval_ms: None }
    }

    #[test]
    fn the_body_of_a_response_is_returned() {
        let endpoint = serve(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nx 1\n");
        assert_eq!(ask(&endpoint).unwrap(), b"x 1\n");
    }

    #[test]
    fn other_responses_are_reported() {
        assert_eq!(ask(&serve(b"HTTP/1.0 404 Not Found\r\n\r\n")).unwrap_err(), "answers `HTTP/1.0 404 Not Found`");
        assert_eq!(ask(&serve(b"SSH-2.0\r\n")).unwrap_err(), "does not answer in HTTP");
    }

    #[test]
    fn no_listener_is_reported() {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        assert!(!accepts(port));
        let error = ask(&Endpoint { port, path: "/".to_owned(), interval_ms: None }).unwrap_err();
        assert!(error.starts_with("does not accept a connection"), "{error}");
    }

    proptest! {
        #[test]
        fn any_answer_is_survived(answer: Vec<u8>) {
            let _ = body(&answer);
        }
    }
}
