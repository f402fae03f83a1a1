//! How much heap a load may take, so that a guest can refuse it before its heap is exhausted.

use crate::nft::Limits;

/// Bytes of heap for each byte of text: names, conditions and statements.
const PER_BYTE: usize = 32;
/// Bytes for each line or `;`, which end a rule.
const PER_RULE: usize = 400;
/// Bytes for each comma, behind which there is another element of a set.
const PER_ELEMENT: usize = 200;
/// Bytes for an element that is not written, but stands in a variable elsewhere.
const PER_EXPANDED: usize = 64;
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

/// Limits under which `text` can be loaded where `has_room` says of numbers of bytes whether the
/// heap has them; `None` if it has not enough for what is written there. Where memory is short, the
/// limit of elements is lower than [`Limits::DEFAULT`]'s, for the sake of variables.
pub fn limits_within(text: &str, has_room: impl Fn(usize) -> bool) -> Option<Limits> {
    let needed = memory_needed(text);
    if !has_room(needed) {
        return None;
    }
    let most = Limits::DEFAULT.elements;
    let mut expanded = most;
    while expanded > 0 && !has_room(needed + expanded * PER_EXPANDED) {
        expanded /= 2;
    }
    let mut changing = Limits::DEFAULT.changing;
    let taken = needed + expanded * PER_EXPANDED;
    while changing > 0 && !has_room(taken + changing) {
        changing /= 2;
    }
    let written = text.bytes().filter(|byte| b",{".contains(byte)).count();
    Some(Limits {
        elements: most.min(written + expanded),
        changing,
        ..Limits::DEFAULT
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_bounds_the_elements_of_variables() {
        let text = "define A = { 1, 2 }";
        let needed = memory_needed(text);
        let with = |memory: usize| limits_within(text, |bytes| bytes <= memory);
        assert_eq!(with(needed - 1), None);
        assert_eq!(with(usize::MAX), Some(Limits::DEFAULT));
        assert_eq!(with(needed).unwrap().elements, 2);
        let some = with(needed + 1000 * PER_EXPANDED).unwrap().elements;
        assert!((500..=1002).contains(&some), "{some}");
    }

    #[test]
    fn more_text_needs_more_memory() {
        assert_eq!(memory_needed(""), FIXED + PER_RULE);
        let (one, two) = (memory_needed("accept\n"), memory_needed("accept\naccept\n"));
        assert_eq!(two - one, 7 * PER_BYTE + PER_RULE);
        assert_eq!(memory_needed("{1,2}") - memory_needed("{1 2}"), PER_ELEMENT);
    }
}
