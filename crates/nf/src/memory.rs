//! How much heap a load may take, so that a guest can refuse it before its heap is exhausted.

/// Bytes of heap for each byte of text: names, conditions and statements.
const PER_BYTE: usize = 32;
/// Bytes for each line or `;`, which end a rule.
const PER_RULE: usize = 400;
/// Bytes for each comma, behind which there is another element of a set.
const PER_ELEMENT: usize = 200;
/// Bytes for any text.
const FIXED: usize = 256 << 10;

/// Bytes of heap that [`crate::load`] takes at its peak for a text, what it returns included: at
/// least a quarter more than was measured for the most expensive texts of each kind (rules of one
/// word, single conditions, sets of few and of many elements, rules of many statements).
///
/// Texts whose variables stand for sets can take more: as much as a text in which they are written
/// out, within [`crate::nft::Limits::elements`].
pub fn memory_needed(text: &str) -> usize {
    let (mut rules, mut elements) = (1, 0);
    for byte in text.bytes() {
        match byte {
            b'\n' | b';' => rules += 1,
            b',' => elements += 1,
            _ => {}
        }
    }
    FIXED + PER_BYTE * text.len() + PER_RULE * rules + PER_ELEMENT * elements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_text_needs_more_memory() {
        assert_eq!(memory_needed(""), FIXED + PER_RULE);
        let (one, two) = (memory_needed("accept\n"), memory_needed("accept\naccept\n"));
        assert_eq!(two - one, 7 * PER_BYTE + PER_RULE);
        assert_eq!(memory_needed("{1,2}") - memory_needed("{1 2}"), PER_ELEMENT);
    }
}
