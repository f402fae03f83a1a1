//! What is read from a request (RFC 9112; RFC 9110, 13).

use crate::answer::Status;
use crate::range::number;
use alloc::borrow::Cow;
use httparse::{Error, Header, Request};

/// Values of all fields of this name.
pub fn values<'a>(headers: &'a [Header<'a>], name: &str) -> impl Iterator<Item = &'a [u8]> {
    let named = move |header: &&Header<'_>| header.name.eq_ignore_ascii_case(name);
    headers.iter().filter(named).map(|header| header.value)
}

/// The members of all lists of this name.
fn members<'a>(headers: &'a [Header<'a>], name: &str) -> impl Iterator<Item = &'a [u8]> {
    let lists = values(headers, name).flat_map(|value| value.split(|byte| *byte == b','));
    lists.map(<[u8]>::trim_ascii)
}

/// What becomes of a request that cannot be parsed.
pub fn refusal(error: Error, bytes: &[u8]) -> Status {
    match error {
        Error::TooManyHeaders => Status::FIELDS_TOO_LARGE,
        Error::Version if names_a_version(bytes) => Status::VERSION,
        _ => Status::BAD_REQUEST,
    }
}

/// Whether the first line ends with a version of HTTP that there might be.
fn names_a_version(bytes: &[u8]) -> bool {
    let line = bytes
        .split(|byte| *byte == b'\n')
        .find(|line| !line.trim_ascii().is_empty());
    let word = line.and_then(|line| line.trim_ascii_end().rsplit(|byte| *byte == b' ').next());
    matches!(
        word,
        Some([b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'])
    )
}

/// What becomes of a request whose header does not end within the bounds.
pub fn too_long(bytes: &[u8]) -> Status {
    match bytes.trim_ascii_start().contains(&b'\n') {
        true => Status::FIELDS_TOO_LARGE,
        false => Status::TARGET_TOO_LONG,
    }
}

/// Whether a body follows.
///
/// # Errors
/// If it cannot be told where the request ends (RFC 9112, 6.3), or for whom it is (3.2).
pub fn has_body(request: &Request<'_, '_>) -> Result<bool, Status> {
    let (headers, minor) = (&*request.headers, request.version);
    let hosts = values(headers, "Host").count();
    if hosts > 1 || (hosts == 0 && minor == Some(1)) {
        return Err(Status::BAD_REQUEST);
    }
    let mut length = None;
    for member in members(headers, "Content-Length") {
        let this = core::str::from_utf8(member).ok().and_then(number);
        if this.is_none() || length.is_some_and(|before| Some(before) != this) {
            return Err(Status::BAD_REQUEST);
        }
        length = this;
    }
    let Some(coding) = members(headers, "Transfer-Encoding").last() else {
        return Ok(length.is_some_and(|length| length > 0));
    };
    if length.is_some() || minor != Some(1) || !coding.eq_ignore_ascii_case(b"chunked") {
        return Err(Status::BAD_REQUEST);
    }
    match members(headers, "Transfer-Encoding").count() {
        1 => Ok(true),
        _ => Err(Status::NOT_IMPLEMENTED),
    }
}

/// Whether the client wants to go on with this connection (RFC 9112, 9.3).
pub fn keeps_alive(request: &Request<'_, '_>) -> bool {
    let has = |option: &[u8]| {
        members(request.headers, "Connection").any(|member| member.eq_ignore_ascii_case(option))
    };
    !has(b"close") && (request.version == Some(1) || has(b"keep-alive"))
}

/// The path of a target, decoded; `None` if there is none.
pub fn path(target: &str) -> Option<Cow<'_, [u8]>> {
    let path = match target.split_once("://") {
        // The absolute form (RFC 9112, 3.2.2).
        Some((scheme, rest)) if !scheme.contains('/') => {
            &rest[rest.find(['/', '?']).unwrap_or(rest.len())..]
        }
        _ if target.starts_with('/') => target,
        _ => return None,
    };
    let path = path.split('?').next().unwrap_or_default();
    if path.is_empty() {
        return Some(Cow::Borrowed(b"/"));
    }
    if !path.contains('%') {
        return Some(Cow::Borrowed(path.as_bytes()));
    }
    let mut pieces = path.split('%');
    let mut decoded = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.as_bytes().split_at_checked(2)?;
        let [high, low] = [digits[0], digits[1]].map(|digit| char::from(digit).to_digit(16));
        let byte = (high? << 4 | low?) as u8;
        if byte == 0 {
            return None;
        }
        decoded.push(byte);
        decoded.extend_from_slice(rest);
    }
    Some(Cow::Owned(decoded))
}

/// Whether a field of this name lists the entity tag, or all of them.
pub fn lists(headers: &[Header<'_>], name: &str, etag: &str, weak: bool) -> bool {
    members(headers, name).any(|member| {
        let opaque = if weak {
            member.strip_prefix(b"W/")
        } else {
            None
        };
        member == b"*" || opaque.unwrap_or(member) == etag.as_bytes()
    })
}
