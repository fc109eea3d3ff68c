// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of HTTP/1.1 that is needed to reply to one `GET` of a single page (RFC 9110, RFC 9112).
//! This module does no I/O.

use crate::service::metrics::Format;

/// Longest head of a request, in bytes, and the most header fields in it.
pub(crate) const MAX_HEAD: usize = 8 << 10;
const MAX_HEADERS: usize = 64;

/// A client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientRequest {
    /// The page, in this format if it has several. The response to `HEAD` lacks the page itself.
    Page { format: Format, head: bool },
    /// A refusal with this status.
    Refusal { status: ErrorStatus, head: bool },
}

/// A status other than 200.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorStatus {
    BadRequest,
    NotFound,
    MethodNotAllowed,
    HeadTooLarge,
    Unavailable,
    VersionNotSupported,
}

impl ErrorStatus {
    const fn line(self) -> &'static str {
        match self {
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
            Self::Unavailable => "503 Service Unavailable",
            Self::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// Parses the head of a request. `page` is the path of the only page. Returns `None` until the head
/// is complete or known to be invalid.
pub(crate) fn read(bytes: &[u8], page: &str) -> Option<ClientRequest> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let parsed = request.parse(&bytes[..bytes.len().min(MAX_HEAD)]);
    let head = request.method == Some("HEAD");
    let refuse = |status| Some(ClientRequest::Refusal { status, head });
    match parsed {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return refuse(ErrorStatus::HeadTooLarge);
        }
        Err(httparse::Error::Version) => return refuse(ErrorStatus::VersionNotSupported),
        Err(_) => return refuse(ErrorStatus::BadRequest),
    }
    if request.path.and_then(path) != Some(page) {
        return refuse(ErrorStatus::NotFound);
    }
    if !head && request.method != Some("GET") {
        return refuse(ErrorStatus::MethodNotAllowed);
    }
    let accept = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    // A value that is not UTF-8 does not name a known format.
    let accept: Vec<&str> = accept.filter_map(|header| str::from_utf8(header.value).ok()).collect();
    Some(ClientRequest::Page { format: negotiate(&accept), head })
}

/// Returns the path of a request target in origin form (`/metrics?x`) or absolute form
/// (`http://host/metrics`).
fn path(target: &str) -> Option<&str> {
    let path = match target.split_once("://") {
        Some((_, rest)) if !target.starts_with('/') => &rest[rest.find('/')?..],
        _ => target,
    };
    path.split('?').next()
}

/// Returns OpenMetrics if the client prefers it to plain text or accepts both equally.
fn negotiate(accept: &[&str]) -> Format {
    let (mut open, mut text) = (None, None);
    for entry in accept.iter().flat_map(|value| value.split(',')) {
        let mut parts = entry.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut quality, mut version) = (1.0, None);
        for parameter in parts {
            match parameter.split_once('=').map(|(name, value)| (name.trim(), value.trim().trim_matches('"'))) {
                Some((name, value)) if name.eq_ignore_ascii_case("q") => quality = value.parse().unwrap_or(0.0),
                Some((name, value)) if name.eq_ignore_ascii_case("version") => version = Some(value),
                _ => {}
            }
        }
        let better = |known: Option<f64>| Some(known.map_or(quality, |known| known.max(quality)));
        match (kind.as_str(), version) {
            ("application/openmetrics-text", None | Some("1.0.0" | "0.0.1")) => open = better(open),
            ("text/plain", None | Some("0.0.4")) | ("text/*" | "*/*", _) => text = better(text),
            _ => {}
        }
    }
    match open {
        Some(quality) if quality > 0.0 && quality >= text.unwrap_or(0.0) => Format::OpenMetrics,
        _ => Format::Text,
    }
}

/// Returns a whole response. The connection ends after it.
pub(crate) fn page(content_type: &str, body: &str, head: bool) -> Vec<u8> {
    answer("200 OK", content_type, "", body, head)
}

/// Returns a whole response that refuses. `page` is the path of the only page.
pub(crate) fn refusal(status: ErrorStatus, page: &str, head: bool) -> Vec<u8> {
    let more = if status == ErrorStatus::MethodNotAllowed { "Allow: GET, HEAD\r\n" } else { "" };
    let line = status.line();
    let body = match status {
        ErrorStatus::NotFound if !page.is_empty() => format!("{line}: the only page is {page}\n"),
        ErrorStatus::Unavailable => format!("{line}: the counters could not be read\n"),
        _ => format!("{line}\n"),
    };
    answer(line, "text/plain; charset=utf-8", more, &body, head)
}

fn answer(status: &str, content_type: &str, more: &str, body: &str, head: bool) -> Vec<u8> {
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{more}Cache-Control: no-store\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    if !head {
        answer.push_str(body);
    }
    answer.into_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Option<ClientRequest> {
        super::read(bytes, "/metrics")
    }

    fn get(accept: &str) -> Option<ClientRequest> {
        read(format!("GET /metrics HTTP/1.1\r\nHost: h\r\n{accept}\r\n").as_bytes())
    }

    const fn refused(status: ErrorStatus) -> Option<ClientRequest> {
        Some(ClientRequest::Refusal { status, head: false })
    }

    #[test]
    fn the_format_is_the_one_that_the_client_prefers() {
        let format = |accept: &str| match get(accept) {
            Some(ClientRequest::Page { format, head: false }) => format,
            other => panic!("{accept}: {other:?}"),
        };
        assert_eq!(format(""), Format::Text);
        assert_eq!(format("Accept: */*\r\n"), Format::Text);
        // The header of Prometheus 2.x.
        let prometheus = "Accept: application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;\
                          q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n";
        assert_eq!(format(prometheus), Format::OpenMetrics);
        assert_eq!(format("accept: text/plain\r\nACCEPT:application/openmetrics-text ; q=0.5\r\n"), Format::Text);
        assert_eq!(format("Accept: application/openmetrics-text;q=0\r\n"), Format::Text);
        assert_eq!(format("Accept: application/openmetrics-text; version=2.0.0, */*;q=0.1\r\n"), Format::Text);
    }

    #[test]
    fn targets_and_methods() {
        let ask = |line: &str| read(format!("{line}\r\n\r\n").as_bytes());
        assert_eq!(ask("HEAD /metrics?x=1 HTTP/1.0"), Some(ClientRequest::Page { format: Format::Text, head: true }));
        assert!(matches!(ask("GET http://h:1/metrics HTTP/1.1"), Some(ClientRequest::Page { .. })));
        assert_eq!(ask("GET / HTTP/1.1"), refused(ErrorStatus::NotFound));
        assert_eq!(ask("GET /metrics/x HTTP/1.1"), refused(ErrorStatus::NotFound));
        assert_eq!(ask("HEAD /x HTTP/1.1"), Some(ClientRequest::Refusal { status: ErrorStatus::NotFound, head: true }));
        assert_eq!(ask("POST /metrics HTTP/1.1"), refused(ErrorStatus::MethodNotAllowed));
        assert_eq!(ask("GET /metrics HTTP/2.0"), refused(ErrorStatus::VersionNotSupported));
        for wrong in ["GET /metrics", "GET  /metrics HTTP/1.1", "nonsense", "GET /metrics HTTP/1.1\r\nno colon"] {
            assert_eq!(ask(wrong), refused(ErrorStatus::BadRequest), "{wrong}");
        }
        assert_eq!(read(b"GET /\xff HTTP/1.1\r\n\r\n"), refused(ErrorStatus::BadRequest));
        assert!(matches!(read(b"\r\n\nGET /metrics HTTP/1.1\nA: b\n\nbody"), Some(ClientRequest::Page { .. })));
    }

    #[test]
    fn a_head_ends_or_exceeds_the_limit() {
        assert_eq!(read(b""), None);
        assert_eq!(read(b"GET /metrics HTTP/1.1\r\nA: b\r\n"), None);
        let mut long = b"GET /metrics HTTP/1.1\r\nA: ".to_vec();
        long.resize(MAX_HEAD, b'b');
        assert_eq!(read(&long), refused(ErrorStatus::HeadTooLarge));
        assert_eq!(read(&long[..MAX_HEAD - 1]), None);
        long.extend(b"\r\n\r\n");
        assert_eq!(read(&long), refused(ErrorStatus::HeadTooLarge));
    }

    #[test]
    fn answers_contain_their_length() {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert_eq!(
            text(page(Format::Text.content_type(), "a 1\n", false)),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: 4\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\na 1\n"
        );
        assert!(text(page(Format::OpenMetrics.content_type(), "a 1\n", true)).ends_with("Connection: close\r\n\r\n"));
        let refusal = text(refusal(ErrorStatus::MethodNotAllowed, "/metrics", false));
        assert!(refusal.starts_with("HTTP/1.1 405 ") && refusal.contains("\r\nAllow: GET, HEAD\r\n"), "{refusal}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_waited_for_or_answered(bytes in prop::collection::vec(any::<u8>(), 0..MAX_HEAD * 2)) {
            prop_assert!(read(&bytes).is_some() || bytes.len() < MAX_HEAD);
        }

        #[test]
        fn an_answer_does_not_depend_on_what_follows(rest: Vec<u8>) {
            let request = b"GET /metrics HTTP/1.1\r\nAccept: text/plain\r\n\r\n";
            prop_assert_eq!(read(&[&request[..], &rest].concat()), read(request));
        }
    }
}
