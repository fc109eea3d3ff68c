// SPDX-License-Identifier: MIT OR Apache-2.0
//! An HTTP file server for tests, which records requests and can break off answers.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

/// One request: the path, and the offset in the file at which the answer begins.
pub(crate) type HttpRequest = (String, u64);

/// A running server. It ends with the test's process.
pub(crate) struct TestServer {
    url: String,
    shared: Arc<ServerState>,
}

struct ServerState {
    files: BTreeMap<String, Vec<u8>>,
    requests: Mutex<Vec<HttpRequest>>,
    /// Number of bytes of an answer before the server breaks off.
    most: AtomicUsize,
    /// Whether the server supports ranges.
    ranges: AtomicBool,
}

/// Modification time of every file.
const MODIFIED: &str = "Thu, 01 Jan 2026 00:00:00 GMT";

impl TestServer {
    /// Serves `files` by their paths, which begin with `/`.
    pub(crate) fn start(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(ServerState {
            files: files.into_iter().collect(),
            requests: Mutex::default(),
            most: AtomicUsize::new(usize::MAX),
            ranges: AtomicBool::new(true),
        });
        let served = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let served = Arc::clone(&served);
                thread::spawn(move || served.answer(&stream.unwrap()));
            }
        });
        Self { url, shared }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Breaks off answers after so many bytes.
    pub(crate) fn break_after(&self, bytes: usize) {
        self.shared.most.store(bytes, Ordering::SeqCst);
    }

    /// Serves only whole files from now on.
    pub(crate) fn without_ranges(&self) {
        self.shared.ranges.store(false, Ordering::SeqCst);
    }

    /// Returns the requests since the last call.
    pub(crate) fn requests(&self) -> Vec<HttpRequest> {
        std::mem::take(&mut *self.shared.requests.lock().unwrap())
    }
}

impl ServerState {
    fn answer(&self, mut stream: &TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        while let Some(Ok(request)) = lines.next() {
            let (mut begin, mut same) = (0, true);
            for line in lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()) {
                let (name, value) = line.split_once(": ").unwrap();
                if name.eq_ignore_ascii_case("range") {
                    begin = value.strip_prefix("bytes=").unwrap().trim_end_matches('-').parse().unwrap();
                } else if name.eq_ignore_ascii_case("if-range") {
                    same = value == MODIFIED;
                }
            }
            // apt encodes a tilde in this way.
            let path = request.split(' ').nth(1).unwrap().replace("%7e", "~");
            let file = self.files.get(&path).map(Vec::as_slice);
            let begin = if same && self.ranges.load(Ordering::SeqCst) { begin } else { 0 };
            self.requests.lock().unwrap().push((path, begin));
            let body = file.map(|file| &file[usize::try_from(begin).unwrap()..]).unwrap_or_default();
            let length = format!("Content-Length: {}\r\nLast-Modified: {MODIFIED}\r\n", body.len());
            let head = match file {
                None => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n".to_owned(),
                Some(_) if begin == 0 => format!("HTTP/1.1 200 OK\r\n{length}"),
                Some(file) => {
                    let range = format!("bytes {begin}-{}/{}", file.len() - 1, file.len());
                    format!("HTTP/1.1 206 Partial Content\r\nContent-Range: {range}\r\n{length}")
                }
            };
            let most = self.most.load(Ordering::SeqCst).min(body.len());
            let written = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(b"\r\n"));
            if written.and_then(|()| stream.write_all(&body[..most])).is_err() || most < body.len() {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}
