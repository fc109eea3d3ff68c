// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests metrics from a tool on this machine. The protocol is HTTP 1.0, so the answer is not
//! chunked and ends with the connection.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

use super::InitError;

/// Size limit of the answer, in bytes.
const MAX_ANSWER: u64 = 16 << 20;
/// Time limit for each step.
const PATIENCE: Duration = Duration::from_secs(10);

/// An endpoint on the loopback interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url {
    host: String,
    address: IpAddr,
    pub(super) port: u16,
    pub(super) path: String,
}

impl Url {
    /// Parses `http://HOST[:PORT][/PATH]`. The host must be this machine.
    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("http://")?;
        let (authority, path) = rest.find('/').map_or((rest, "/metrics"), |at| rest.split_at(at));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok().filter(|&port| port > 0)?),
            _ => (authority, 80),
        };
        let address = match host {
            "localhost" => IpAddr::from(Ipv4Addr::LOCALHOST),
            "[::1]" => IpAddr::from(Ipv6Addr::LOCALHOST),
            host => host.parse().ok().filter(IpAddr::is_loopback)?,
        };
        let is_path = path.len() <= 255 && path.chars().all(|c| c.is_ascii_graphic());
        is_path.then(|| Self { host: host.to_owned(), address, port, path: path.to_owned() })
    }
}

/// Requests the page at the URL `text`.
///
/// # Errors
/// [`InitError::Url`] if `text` is not a supported URL; [`InitError::Endpoint`] if there is no
/// answer in time, or the answer is not a text page.
pub(super) fn ask(text: &str) -> Result<(Url, String), InitError> {
    let url = Url::parse(text).ok_or_else(|| InitError::Url { url: text.chars().take(300).collect() })?;
    let page = answer(&url).map_err(|source| InitError::Endpoint { url: text.to_owned(), source })?;
    Ok((url, page))
}

fn answer(url: &Url) -> io::Result<String> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(url.address, url.port), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let Url { host, port, path, .. } = url;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\nAccept: text/plain\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.take(MAX_ANSWER + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_ANSWER {
        return Err(wrong(format!("its answer has more than {MAX_ANSWER} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong("its answer is no text in UTF-8".to_owned()))?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| wrong("its answer is not of HTTP".to_owned()))?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(wrong(format!("it answers `{}`", super::draft::shown(status))));
    }
    if head.to_ascii_lowercase().contains("\r\ntransfer-encoding:") {
        return Err(wrong(
            "it answers in pieces, which HTTP 1.0 does not have: save the page in a file, and name that".to_owned(),
        ));
    }
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_asked() {
        let of = |text: &str| Url::parse(text).map(|url| (url.address.to_string(), url.port, url.path));
        let local = |port, path: &str| Some(("127.0.0.1".to_owned(), port, path.to_owned()));
        assert_eq!(of("http://127.0.0.1:9100/metrics?x=1"), local(9100, "/metrics?x=1"));
        assert_eq!(of("http://localhost:9100"), local(9100, "/metrics"));
        assert_eq!(of("http://localhost/m"), local(80, "/m"));
        assert_eq!(of("http://[::1]:9/"), Some(("::1".to_owned(), 9, "/".to_owned())));
        for other in [
            "https://localhost/",
            "http://10.0.0.1/",
            "http://example.org/",
            "http://localhost:0/",
            "http://localhost:x/",
            "http:///",
            "http://localhost/a b",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
