// SPDX-License-Identifier: MIT OR Apache-2.0
use std::{net::TcpListener, thread};

use super::*;
use crate::test_support::{lacks, server::TestServer};

/// Answers one request after the other with `answers`, whatever the request is. Returns the URL.
fn answering(answers: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).unwrap();
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

fn get(url: &str, limit: u64) -> Result<Vec<u8>, HttpError> {
    let mut content = Vec::new();
    download(url, &mut content, limit, &mut |_| ()).map(|()| content)
}

#[test]
fn a_file_is_taken_whole_and_not_if_it_is_larger() {
    let server = TestServer::start([("/x".to_owned(), b"content".to_vec())]);
    let url = format!("{}/x", server.url());
    let mut seen = 0;
    let mut content = Vec::new();
    download(&url, &mut content, 7, &mut |at| seen = at).unwrap();
    assert_eq!((content.as_slice(), seen), (&b"content"[..], 7));
    assert!(matches!(get(&url, 6), Err(HttpError::TooLarge(6))));
    assert!(matches!(get(&format!("{}/y", server.url()), 7), Err(HttpError::Missing(404))));
}

#[test]
fn what_is_there_goes_on_or_begins_again() {
    let server = TestServer::start([("/x".to_owned(), b"content".to_vec())]);
    let url = format!("{}/x", server.url());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    for ranges in [true, false] {
        if !ranges {
            server.without_ranges();
        }
        std::fs::write(&path, "cont").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        download(&url, &mut Partial::continued(file).unwrap(), 7, &mut |_| ()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"content");
        assert_eq!(server.requests(), [("/x".to_owned(), if ranges { 4 } else { 0 })]);
    }
}

#[test]
fn a_part_that_is_another_than_was_asked_for_begins_again() {
    let whole = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\ncontent".to_owned();
    let head = "HTTP/1.1 206 Partial Content\r\nConnection: close\r\n";
    for wrong in [
        format!("{head}Content-Range: bytes 1-6/7\r\nContent-Length: 6\r\n\r\nontent"),
        format!("{head}Content-Length: 6\r\n\r\nontent"),
        "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned(),
    ] {
        let url = answering(vec![wrong.clone(), whole.clone()]);
        let mut content = b"cont".to_vec();
        download(&url, &mut content, 7, &mut |_| ()).unwrap();
        assert_eq!(content, b"content", "{wrong}");
        // A partial answer is refused if no part was requested.
        let url = answering(vec![wrong]);
        assert!(matches!(get(&url, 7), Err(HttpError::Refused(_))));
    }
}

#[test]
fn answers_that_may_change_are_distinguished_from_those_that_do_not() {
    for (code, passing) in
        [(500, true), (503, true), (429, true), (408, true), (403, false), (401, false), (204, false)]
    {
        let url = answering(vec![format!("HTTP/1.1 {code} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")]);
        let error = get(&url, 7).unwrap_err();
        assert_eq!(matches!(error, HttpError::Passing(_)), passing, "{code}: {error}");
        assert!(error.to_string().contains(&code.to_string()), "{error}");
    }
    let broken_off = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\ncont".to_owned();
    for answer in [broken_off, "no answer at all\r\n\r\n".to_owned(), String::new()] {
        let error = get(&answering(vec![answer.clone()]), 7).unwrap_err();
        assert!(matches!(error, HttpError::Passing(_)), "{answer:?}: {error:?}");
    }
}

#[test]
fn redirections_are_followed_some_times_and_never_from_https_to_http() {
    let server = TestServer::start([("/x".to_owned(), b"content".to_vec())]);
    let redirect =
        |to: &str| format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let url = answering(vec![redirect(&format!("{}/x", server.url()))]);
    assert_eq!(get(&url, 7).unwrap(), b"content");
    let url = answering(vec![redirect("/x"); 7]);
    assert!(matches!(get(&url, 7), Err(HttpError::Refused(_))));
    let url = answering(vec![redirect("file:///etc/passwd")]);
    assert!(get(&url, 7).is_err());
    assert!(config(TlsConfig::builder().build(), true, PATIENCE).https_only());
}

/// A TLS server of `directory`: the program openssl, with a new certificate. It ends when dropped.
struct Encrypted(std::process::Child, u16);

impl Encrypted {
    fn start(directory: &std::path::Path) -> Option<Self> {
        use std::process::{Command, Stdio};
        let configuration =
            "[req]\ndistinguished_name=name\n[name]\n[x]\nbasicConstraints=CA:FALSE\nsubjectAltName=IP:127.0.0.1\n";
        std::fs::write(directory.join("configuration"), configuration).unwrap();
        let mut make = Command::new("openssl");
        make.current_dir(directory).args(["req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "2"]);
        make.args(["-subj", "/CN=x", "-config", "configuration", "-extensions", "x"]);
        make.args(["-keyout", "key.pem", "-out", "certificate.pem"]);
        if lacks("openssl", "openssl") {
            return None;
        }
        let output = make.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut serve = Command::new("openssl");
        serve.current_dir(directory).args([
            "s_server",
            "-quiet",
            "-HTTP",
            "-key",
            "key.pem",
            "-cert",
            "certificate.pem",
        ]);
        serve.args(["-accept", &format!("127.0.0.1:{port}")]).stdin(Stdio::null()).stdout(Stdio::null());
        let server = Self(serve.stderr(Stdio::null()).spawn().unwrap(), port);
        for _ in 0..100 {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(server);
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("openssl s_server does not listen");
    }
}

impl Drop for Encrypted {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_is_trusted_by_a_certificate_that_the_host_knows_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    // openssl sends files unchanged, so the file contains the HTTP head.
    std::fs::write(directory.path().join("x"), "HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\ncontent").unwrap();
    let Some(server) = Encrypted::start(directory.path()) else { return };
    let url = format!("https://127.0.0.1:{}/x", server.1);
    let known = rustls_native_certs::load_certs_from_paths(Some(&directory.path().join("certificate.pem")), None).certs;
    let known: Vec<_> = known.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    assert_eq!(known.len(), 1);
    let mut content = Vec::new();
    download_by(
        (&config(trusting(known.clone()), true, PATIENCE).new_agent(), PATIENCE),
        &url,
        &mut content,
        7,
        &mut |_| (),
    )
    .unwrap();
    assert_eq!(content, b"content");
    let other = url.replace("127.0.0.1", "localhost");
    for (agent, url) in [
        (config(trusting(Vec::new()), true, PATIENCE).new_agent(), &url),
        (config(trusting(known), true, PATIENCE).new_agent(), &other),
    ] {
        let error = download_by((&agent, PATIENCE), url, &mut Vec::new(), 7, &mut |_| ()).unwrap_err();
        assert!(matches!(error, HttpError::Refused(_)), "{error:?}");
        assert!(error.to_string().contains("certificate"), "{error}");
    }
}

/// Sends `head`, then `drop` repeatedly with pauses until the client closes. Returns the URL.
fn dripping(head: &'static str, drop: &'static str, pause: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        let _ = stream.write_all(head.as_bytes());
        while stream.write_all(drop.as_bytes()).is_ok() {
            thread::sleep(pause);
        }
    });
    url
}

#[test]
fn a_server_that_is_silent_or_slow_is_given_up() {
    let patience = Patience { answer: Duration::from_millis(600), least: Duration::from_millis(1200) };
    let agent = config(TlsConfig::builder().build(), false, patience).new_agent();
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
    let pause = Duration::from_millis(100);
    for (what, url) in [
        ("silent", dripping("", "", pause)),
        ("a head without end", dripping("HTTP/1.1 200 OK\r\nX: ", "x", pause)),
        ("fields without end", dripping("HTTP/1.1 200 OK\r\n", "X: x\r\n", pause)),
        ("a byte now and then", dripping(head, "x", pause)),
    ] {
        let since = Instant::now();
        let error = download_by((&agent, patience), &url, &mut Vec::new(), 1 << 20, &mut |_| ()).unwrap_err();
        assert!(matches!(error, HttpError::Slow(_)), "{what}: {error:?}");
        assert!(since.elapsed() < Duration::from_secs(5), "{what}: {:?}", since.elapsed());
    }
    // Headers without end are limited in bytes, too.
    let url =
        dripping("HTTP/1.1 200 OK\r\n", "X: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n", Duration::ZERO);
    assert!(download_by((&agent, patience), &url, &mut Vec::new(), 1 << 20, &mut |_| ()).is_err());
}
