//! A frame in hexadecimal digits.

/// What may stand between bytes.
fn is_separator(c: char) -> bool {
    c.is_ascii_whitespace() || c == ':'
}

/// Whether `text` is meant as hexadecimal digits: it has nothing else but separators.
pub(super) fn is_hex(text: &str) -> bool {
    text.contains(|c: char| c.is_ascii_hexdigit())
        && text
            .chars()
            .all(|c| c.is_ascii_hexdigit() || is_separator(c))
}

/// The bytes; `None` if a digit stands alone.
pub(super) fn bytes(text: &str) -> Option<Vec<u8>> {
    let groups = text.split(is_separator).filter(|group| !group.is_empty());
    let mut bytes = Vec::new();
    for group in groups {
        let (pairs, []) = group.as_bytes().as_chunks::<2>() else {
            return None;
        };
        for pair in pairs {
            let pair = str::from_utf8(pair).ok()?;
            bytes.push(u8::from_str_radix(pair, 16).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_come_in_pairs() {
        assert_eq!(bytes("02:00 FFa0\n01"), Some(vec![2, 0, 0xff, 0xa0, 1]));
        assert_eq!(bytes("020"), None);
        assert_eq!(bytes("02 0:0"), None);
        assert!(is_hex("02:00") && !is_hex("02 0x") && !is_hex(" ") && !is_hex(""));
        assert!(!is_hex("+1") && !is_hex("é"));
    }
}
