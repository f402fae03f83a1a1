//! What a request is answered with (RFC 9110; RFC 9112).

use crate::site::{File, NoFile, Site};
use alloc::borrow::Cow;
use alloc::rc::Rc;
use alloc::string::String;
use core::fmt::Write;
use core::ops::Range;
use httparse::{EMPTY_HEADER, Error, Header, Request};
use jiff::Timestamp;
use jiff::fmt::rfc2822::{DateTimeParser, DateTimePrinter};

/// Most fields of a request.
pub const FIELDS_MAX: usize = 64;

/// An answer.
pub struct Answer {
    status: &'static str,
    /// What it is about.
    file: Option<Rc<File>>,
    /// The part of the file that is its body.
    range: Range<u64>,
    head: bool,
    /// Whether the connection goes on.
    pub keeps_alive: bool,
}

/// The answer to the first request of `bytes`, and how long that is; `None` before its header has
/// come.
pub fn answer(bytes: &[u8], site: &Site) -> Option<(Answer, usize)> {
    let mut headers = [EMPTY_HEADER; FIELDS_MAX];
    let mut request = Request::new(&mut headers);
    let status = match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(len)) => return Some((to(&request, site), len)),
        Err(Error::TooManyHeaders) => "431 Request Header Fields Too Large",
        Err(Error::Version) => "505 HTTP Version Not Supported",
        Err(_) => "400 Bad Request",
    };
    Some((Answer::refusal(status), bytes.len()))
}

fn to(request: &Request<'_, '_>, site: &Site) -> Answer {
    let (headers, newer) = (&*request.headers, request.version == Some(1));
    let head = request.method == Some("HEAD");
    let answer = match path(request.path.unwrap_or_default()) {
        _ if !is_framed(headers, newer) => Answer::refusal("400 Bad Request"),
        _ if !head && request.method != Some("GET") => Answer::refusal("405 Method Not Allowed"),
        None => Answer::refusal("400 Bad Request"),
        Some(path) => match site.find(&path) {
            Ok(file) => about(file, headers, head),
            Err(NoFile::NotFound) => Answer::refusal("404 Not Found"),
            Err(NoFile::Failed) => Answer::refusal("500 Internal Server Error"),
        },
    };
    let wants = |option: &str| members(headers, "Connection").any(|member| is(member, option));
    // Nobody reads a body: what follows it is no request (RFC 9112, 9.3).
    let has_body = members(headers, "Content-Length").any(|length| number(length) != Some(0))
        || members(headers, "Transfer-Encoding").next().is_some();
    let goes_on = !wants("close") && (newer || wants("keep-alive")) && !has_body;
    Answer {
        head,
        keeps_alive: goes_on && !answer.status.starts_with("400"),
        ..answer
    }
}

/// Whether it can be told for whom the request is (RFC 9112, 3.2), and where it ends (6.3).
fn is_framed(headers: &[Header<'_>], newer: bool) -> bool {
    let hosts = values(headers, "Host").count();
    let mut lengths = members(headers, "Content-Length").map(number);
    let first = lengths.next();
    let coding = members(headers, "Transfer-Encoding").last();
    hosts <= 1
        && (hosts == 1 || !newer)
        && first != Some(None)
        && lengths.all(|length| Some(length) == first)
        && coding.is_none_or(|coding| newer && first.is_none() && is(coding, "chunked"))
}

/// What conditions (RFC 9110, 13.2.2) and ranges leave of a file.
fn about(file: Rc<File>, headers: &[Header<'_>], head: bool) -> Answer {
    let (len, has) = (file.len, |name| values(headers, name).next().is_some());
    let lists = |name| members(headers, name).any(|tag| is(tag, &file.etag) || tag == b"*");
    let weakly = |tag: &[u8]| {
        let opaque = tag.strip_prefix(b"W/").unwrap_or(tag);
        opaque == file.etag.as_bytes() || tag == b"*"
    };
    // A date is of use if the file has one, and no tag says more.
    let since = |name, tags| {
        let date = values(headers, name).next().and_then(date);
        date.filter(|_| file.modified > 0 && !has(tags))
    };
    let changed_after = |date: u64| file.modified > date;
    if has("If-Match") && !lists("If-Match")
        || since("If-Unmodified-Since", "If-Match").is_some_and(changed_after)
    {
        return Answer::refusal("412 Precondition Failed");
    }
    let is_known = members(headers, "If-None-Match").any(weakly)
        || since("If-Modified-Since", "If-None-Match").is_some_and(|date| !changed_after(date));
    let as_it_was = !has("If-Range") || lists("If-Range");
    let asked = values(headers, "Range")
        .next()
        .filter(|_| as_it_was && !head);
    let (status, range) = match asked.and_then(|field| part(field, len)) {
        _ if is_known => ("304 Not Modified", 0..0),
        None => ("200 OK", 0..len),
        Some(range) if range.is_empty() => ("416 Range Not Satisfiable", 0..0),
        Some(range) => ("206 Partial Content", range),
    };
    Answer {
        status,
        file: Some(file),
        range,
        head,
        keeps_alive: true,
    }
}

/// The range of `len` bytes that the field `Range` asks for, empty if they do not reach there
/// (RFC 9110, 14); `None` if it does not say so in one range of bytes, which is ignored.
fn part(field: &[u8], len: u64) -> Option<Range<u64>> {
    let (unit, range) = core::str::from_utf8(field).ok()?.split_once('=')?;
    let (first, last) = range.split_once('-')?;
    let [first, last] = [
        (first, number(first.as_bytes())),
        (last, number(last.as_bytes())),
    ];
    let range = match (first, last) {
        (("", _), (_, Some(count))) => len.saturating_sub(count)..len,
        ((_, Some(first)), ("", _)) => first..len,
        ((_, Some(first)), (_, Some(last))) if first <= last => first..len.min(last + 1),
        _ => return None,
    };
    unit.eq_ignore_ascii_case("bytes").then_some(range)
}

/// Values of all fields of this name.
fn values<'a>(headers: &'a [Header<'a>], name: &str) -> impl Iterator<Item = &'a [u8]> {
    let named = move |header: &&Header<'_>| header.name.eq_ignore_ascii_case(name);
    headers.iter().filter(named).map(|header| header.value)
}

/// The members of all lists of this name.
fn members<'a>(headers: &'a [Header<'a>], name: &str) -> impl Iterator<Item = &'a [u8]> {
    let lists = values(headers, name).flat_map(|value| value.split(|byte| *byte == b','));
    lists.map(<[u8]>::trim_ascii)
}

fn is(member: &[u8], word: &str) -> bool {
    member.eq_ignore_ascii_case(word.as_bytes())
}

/// A number of digits alone; one that is too large is the largest but one.
fn number(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = core::str::from_utf8(text).ok().filter(|_| digits)?;
    Some(text.parse().unwrap_or(u64::MAX).min(u64::MAX - 1))
}

/// A date, in seconds since 1970-01-01 00:00 UTC.
fn date(text: &[u8]) -> Option<u64> {
    let date = DateTimeParser::new().parse_timestamp(text).ok()?;
    date.as_second().try_into().ok()
}

fn write_date(header: &mut String, name: &str, seconds: u64) {
    let date = Timestamp::from_second(seconds.cast_signed()).unwrap_or(Timestamp::MAX);
    // Nothing that is written to a string fails.
    let _ = write!(header, "{name}: ");
    let _ = DateTimePrinter::new().print_timestamp_rfc9110(&date, &mut *header);
    header.push_str("\r\n");
}

/// The path of a target, decoded; `None` if there is none.
fn path(target: &str) -> Option<Cow<'_, [u8]>> {
    let path = match target.split_once("://") {
        // The absolute form (RFC 9112, 3.2.2).
        Some((scheme, rest)) if !scheme.contains('/') => {
            &rest[rest.find(['/', '?']).unwrap_or(rest.len())..]
        }
        _ if target.starts_with('/') => target,
        _ => return None,
    };
    match path.split('?').next() {
        None | Some("") => Some(Cow::Borrowed(b"/")),
        Some(path) => Some(percent_encoding::percent_decode_str(path).into()),
    }
}

impl Answer {
    /// Says only that it is not done. The connection ends, unless the caller knows where the next
    /// request begins.
    pub fn refusal(status: &'static str) -> Self {
        Self {
            status,
            file: None,
            range: 0..status.len() as u64,
            head: false,
            keeps_alive: false,
        }
    }

    /// The file and the part of it that is the body, if it is a file's.
    pub fn body(&self) -> Option<(&File, Range<u64>)> {
        let file = self.file.as_deref().filter(|_| !self.head)?;
        Some((file, self.range.clone()))
    }

    /// Writes the header, and a body that is no file's.
    pub fn write(&self, now: u64, header: &mut String) {
        let Range { start, end } = self.range;
        header.push_str("HTTP/1.1 ");
        header.push_str(self.status);
        header.push_str("\r\n");
        write_date(header, "Date", now);
        let len = self.file.as_ref().map_or(0, |file| file.len);
        let _ = match self.file.as_deref() {
            None => header.write_str("Content-Type: text/plain\r\n"),
            Some(File {
                media_type, etag, ..
            }) => write!(
                header,
                "Content-Type: {media_type}\r\nETag: {etag}\r\nAccept-Ranges: bytes\r\n"
            ),
        };
        if let Some(file) = self.file.as_ref().filter(|file| file.modified > 0) {
            write_date(header, "Last-Modified", file.modified);
        }
        let _ = match &self.status[..3] {
            "206" => write!(header, "Content-Range: bytes {start}-{}/{len}\r\n", end - 1),
            "416" => write!(header, "Content-Range: bytes */{len}\r\n"),
            "405" => header.write_str("Allow: GET, HEAD\r\n"),
            _ => Ok(()),
        };
        if self.status != "304 Not Modified" {
            let _ = write!(header, "Content-Length: {}\r\n", end - start);
        }
        header.push_str(match self.keeps_alive {
            true => "Connection: keep-alive\r\n\r\n",
            false => "Connection: close\r\n\r\n",
        });
        if self.file.is_none() && !self.head {
            header.push_str(self.status);
        }
    }
}
