//! The part of a file that is asked for (RFC 9110, 14).

use core::ops::Range;

/// What is served of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// These bytes.
    Bytes(Range<usize>),
    /// Nothing: the file does not reach there.
    Beyond,
}

/// What the field `Range` asks for of `len` bytes. What it does not say in one range of bytes is
/// ignored, as a server may.
pub fn part(field: &[u8], len: usize) -> Part {
    let ask = core::str::from_utf8(field).ok().and_then(ask);
    match ask {
        None => Part::Whole,
        Some(Ask::Last(0)) => Part::Beyond,
        Some(Ask::Last(count)) if len > 0 => Part::Bytes(len.saturating_sub(count)..len),
        Some(Ask::From(first, last)) if first < len => Part::Bytes(first..last.min(len - 1) + 1),
        Some(_) => Part::Beyond,
    }
}

enum Ask {
    /// From the first to the last of these.
    From(usize, usize),
    /// So many at the end.
    Last(usize),
}

fn ask(field: &str) -> Option<Ask> {
    let (unit, range) = field.split_once('=')?;
    let (first, last) = range.split_once('-')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    match (first, last) {
        ("", last) => Some(Ask::Last(number(last)?)),
        (first, "") => Some(Ask::From(number(first)?, usize::MAX)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Ask::From(first, last))
        }
    }
}

/// A number of digits alone; one that is too large is the largest.
pub fn number(text: &str) -> Option<usize> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_thousand_bytes() {
        for (field, expected) in [
            ("bytes=0-0", Part::Bytes(0..1)),
            ("BYTES=0-99", Part::Bytes(0..100)),
            ("bytes=990-", Part::Bytes(990..1000)),
            ("bytes=990-99999999999999999999", Part::Bytes(990..1000)),
            ("bytes=-10", Part::Bytes(990..1000)),
            ("bytes=-5000", Part::Bytes(0..1000)),
            ("bytes=-0", Part::Beyond),
            ("bytes=1000-", Part::Beyond),
            ("bytes=99999999999999999999-", Part::Beyond),
        ] {
            assert_eq!(part(field.as_bytes(), 1000), expected, "{field}");
        }
    }

    #[test]
    fn what_is_no_single_range_is_ignored() {
        for field in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5",
            "bytes=9-3",
            "bytes=0-1,3-4",
            "lines=1-2",
            "bytes=+1-2",
            "bytes=a-b",
            "bytes=--1",
        ] {
            assert_eq!(part(field.as_bytes(), 1000), Part::Whole, "{field}");
        }
        assert_eq!(part(b"bytes=\xff-1", 1000), Part::Whole);
    }

    #[test]
    fn an_empty_file_has_no_parts() {
        for field in ["bytes=0-", "bytes=-1", "bytes=0-0"] {
            assert_eq!(part(field.as_bytes(), 0), Part::Beyond, "{field}");
        }
    }
}
