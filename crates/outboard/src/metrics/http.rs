//! The part of HTTP/1.1 (RFC 9112) that a scraper needs: the decision, without any effect.

use crate::stats::prometheus::CONTENT_TYPE;

/// Longest request, in bytes: a scraper's has a few hundred.
pub const REQUEST_BYTES_MAX: usize = 8192;
/// Most header fields of a request.
const HEADERS_MAX: usize = 64;
/// Where the metrics are.
const PATH: &str = "/metrics";

/// What to do about the bytes that a client has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Wait for more of them.
    Incomplete,
    /// Send the metrics, or their header alone.
    Metrics {
        /// Whether the client asks for the header alone.
        head: bool,
    },
    /// Say what is wrong.
    Refused(Status),
}

/// Status codes (RFC 9110, 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Here it is.
    Ok,
    /// No request of HTTP/1.1.
    BadRequest,
    /// Nothing is there.
    NotFound,
    /// Only GET and HEAD are known.
    MethodNotAllowed,
    /// The header is too long.
    HeaderTooLarge,
    /// The counters cannot be read.
    InternalError,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::HeaderTooLarge => "431 Request Header Fields Too Large",
            Self::InternalError => "500 Internal Server Error",
        }
    }
}

/// What a client asks for that has sent `bytes` so far.
pub fn request(bytes: &[u8]) -> Request {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < REQUEST_BYTES_MAX => {
            return Request::Incomplete;
        }
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Request::Refused(Status::HeaderTooLarge);
        }
        Err(_) => return Request::Refused(Status::BadRequest),
    }
    let target = request.path.unwrap_or_default();
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    if path != PATH {
        return Request::Refused(Status::NotFound);
    }
    match request.method {
        Some("GET") => Request::Metrics { head: false },
        Some("HEAD") => Request::Metrics { head: true },
        _ => Request::Refused(Status::MethodNotAllowed),
    }
}

/// A response with this body, the last one of its connection.
pub fn response(status: Status, body: &str, head: bool) -> String {
    let content_type = match status {
        Status::Ok => CONTENT_TYPE,
        _ => "text/plain; charset=utf-8",
    };
    let allow = match status {
        Status::MethodNotAllowed => "Allow: GET, HEAD\r\n",
        _ => "",
    };
    let (line, length) = (status.line(), body.len());
    let body = if head { "" } else { body };
    format!(
        "HTTP/1.1 {line}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         {allow}Connection: close\r\n\r\n{body}"
    )
}

/// A response that says what is wrong.
pub fn refusal(status: Status) -> String {
    response(
        status,
        &format!("{}; try GET {PATH}\n", status.line()),
        false,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_told_apart() {
        let get = Request::Metrics { head: false };
        let head = Request::Metrics { head: true };
        let cases = [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", get),
            ("GET /metrics?x=y HTTP/1.0\r\n\r\n", get),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", head),
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n", Request::Incomplete),
            ("", Request::Incomplete),
            ("GET / HTTP/1.1\r\n\r\n", Request::Refused(Status::NotFound)),
            (
                "POST /metrics HTTP/1.1\r\n\r\n",
                Request::Refused(Status::MethodNotAllowed),
            ),
            ("\0\0\0", Request::Refused(Status::BadRequest)),
            (
                "GET /metrics HTTP/9\r\n\r\n",
                Request::Refused(Status::BadRequest),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(request(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn a_request_is_bounded() {
        let endless = vec![b'a'; REQUEST_BYTES_MAX];
        let begun = [b"GET /metrics HTTP/1.1\r\nA: ", &endless[..]].concat();
        let refused = Request::Refused(Status::HeaderTooLarge);
        assert_eq!(request(&begun[..REQUEST_BYTES_MAX]), refused);
        let many = format!("GET / HTTP/1.1\r\n{}", "A: b\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(request(many.as_bytes()), refused);
    }

    #[test]
    fn a_response_has_its_length() {
        let text = response(Status::Ok, "a 1\n", false);
        assert!(text.contains("\r\nContent-Length: 4\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\na 1\n"), "{text}");
        let head = response(Status::Ok, "a 1\n", true);
        assert_eq!(text.strip_suffix("a 1\n"), Some(&*head));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            request(&bytes);
        }
    }
}
