//! What a request is answered with.

use crate::date::Date;
use crate::file::File;
use crate::range::{Part, part};
use crate::request::{has_body, keeps_alive, lists, path, refusal, values};
use alloc::string::String;
use core::fmt::Write;
use core::ops::Range;
use httparse::{EMPTY_HEADER, Request};

/// Most fields of a request.
const FIELDS_MAX: usize = 64;

/// A status (RFC 9110, 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(&'static str);

impl Status {
    const OK: Self = Self("200 OK");
    const PARTIAL: Self = Self("206 Partial Content");
    const NOT_MODIFIED: Self = Self("304 Not Modified");
    pub(crate) const BAD_REQUEST: Self = Self("400 Bad Request");
    const NOT_FOUND: Self = Self("404 Not Found");
    const NOT_ALLOWED: Self = Self("405 Method Not Allowed");
    pub(crate) const TIMEOUT: Self = Self("408 Request Timeout");
    const PRECONDITION: Self = Self("412 Precondition Failed");
    pub(crate) const TARGET_TOO_LONG: Self = Self("414 URI Too Long");
    const RANGE: Self = Self("416 Range Not Satisfiable");
    pub(crate) const FIELDS_TOO_LARGE: Self = Self("431 Request Header Fields Too Large");
    pub(crate) const NOT_IMPLEMENTED: Self = Self("501 Not Implemented");
    pub(crate) const UNAVAILABLE: Self = Self("503 Service Unavailable");
    pub(crate) const VERSION: Self = Self("505 HTTP Version Not Supported");
}

/// An answer.
pub struct Answer {
    status: Status,
    /// What it is about.
    file: Option<&'static File>,
    /// Where its body lies in the file.
    range: Range<usize>,
    head: bool,
    /// Whether the connection goes on.
    pub keeps_alive: bool,
}

/// The answer to the first request of `bytes`, and how long that is; `None` before its header has
/// come.
pub fn answer(bytes: &[u8]) -> Option<(Answer, usize)> {
    let mut headers = [EMPTY_HEADER; FIELDS_MAX];
    let mut request = Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => None,
        Ok(httparse::Status::Complete(len)) => Some((to(&request), len)),
        Err(error) => Some((Answer::refusal(refusal(error, bytes)), bytes.len())),
    }
}

fn to(request: &Request<'_, '_>) -> Answer {
    let method = request.method.unwrap_or_default();
    let head = method == "HEAD";
    let body = match has_body(request) {
        Ok(body) => body,
        Err(status) => {
            return Answer {
                head,
                ..Answer::refusal(status)
            };
        }
    };
    let answer = match path(request.path.unwrap_or_default()) {
        _ if !head && method != "GET" => Answer::refusal(Status::NOT_ALLOWED),
        None => Answer::refusal(Status::BAD_REQUEST),
        Some(path) => match File::find(&path) {
            Some(file) => about(file, request, head),
            None => Answer::refusal(Status::NOT_FOUND),
        },
    };
    Answer {
        head,
        // Nobody reads a body: what follows it is no request.
        keeps_alive: keeps_alive(request) && !body,
        ..answer
    }
}

/// What conditions (RFC 9110, 13.2.2) and ranges leave of a file.
fn about(file: &'static File, request: &Request<'_, '_>, head: bool) -> Answer {
    let headers = &*request.headers;
    let (etag, all) = (file.etag(), 0..file.bytes.len());
    let has = |name| values(headers, name).next().is_some();
    let as_it_was = !has("If-Range") || lists(headers, "If-Range", etag, false);
    let range = values(headers, "Range").next();
    let part = match range.filter(|_| as_it_was && !head) {
        Some(field) => part(field, all.end),
        None => Part::Whole,
    };
    let (status, range) = if has("If-Match") && !lists(headers, "If-Match", etag, false) {
        return Answer::refusal(Status::PRECONDITION);
    } else if lists(headers, "If-None-Match", etag, true) {
        (Status::NOT_MODIFIED, 0..0)
    } else {
        match part {
            Part::Whole => (Status::OK, all),
            Part::Bytes(range) => (Status::PARTIAL, range),
            Part::Beyond => (Status::RANGE, 0..0),
        }
    };
    Answer {
        status,
        file: Some(file),
        range,
        head,
        keeps_alive: true,
    }
}

impl Answer {
    /// Says only that it is not done. The connection ends, unless the caller knows where the next
    /// request begins.
    pub fn refusal(status: Status) -> Self {
        Self {
            status,
            file: None,
            range: 0..status.0.len(),
            head: false,
            keeps_alive: false,
        }
    }

    /// The body, if one is sent.
    pub fn body(&self) -> &'static [u8] {
        let all = self
            .file
            .map_or(self.status.0.as_bytes(), |file| file.bytes);
        if self.head {
            &[]
        } else {
            &all[self.range.clone()]
        }
    }

    /// Writes the header.
    pub fn write_header(&self, date: Date, header: &mut String) {
        // Nothing that is written to a string fails.
        let _ = self.try_write_header(date, header);
    }

    fn try_write_header(&self, date: Date, header: &mut String) -> core::fmt::Result {
        let Range { start, end } = self.range;
        write!(header, "HTTP/1.1 {}\r\nDate: {date}\r\n", self.status.0)?;
        let fields = self
            .file
            .map_or("Content-Type: text/plain\r\n", |file| file.fields);
        header.push_str(fields);
        let len = self.file.map_or(0, |file| file.bytes.len());
        match self.status {
            Status::PARTIAL => {
                write!(header, "Content-Range: bytes {start}-{}/{len}\r\n", end - 1)?;
            }
            Status::RANGE => write!(header, "Content-Range: bytes */{len}\r\n")?,
            Status::NOT_ALLOWED => header.push_str("Allow: GET, HEAD\r\n"),
            _ => {}
        }
        if self.status != Status::NOT_MODIFIED {
            write!(header, "Content-Length: {}\r\n", end - start)?;
        }
        header.push_str(match self.keeps_alive {
            true => "Connection: keep-alive\r\n\r\n",
            false => "Connection: close\r\n\r\n",
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
