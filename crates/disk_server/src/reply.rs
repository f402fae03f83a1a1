//! What is in front of the data of a reply ("Simple reply message", "Structured reply chunk
//! message").

use crate::wire::{CHUNK_MAGIC, SIMPLE_MAGIC, chunk};

/// A simple reply, in front of its data if it is of a read without error.
pub(crate) fn simple(error: u32, cookie: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&SIMPLE_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// A chunk of a structured reply, in front of `length` bytes.
fn header(is_last: bool, kind: u16, cookie: u64, length: u32) -> [u8; 20] {
    let flags = if is_last { chunk::DONE } else { 0 };
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// A chunk of `length` bytes of data, in front of them.
pub(crate) fn data(is_last: bool, cookie: u64, offset: u64, length: u32) -> [u8; 28] {
    let mut bytes = [0; 28];
    let head = header(is_last, chunk::OFFSET_DATA, cookie, length + 8);
    bytes[..20].copy_from_slice(&head);
    bytes[20..].copy_from_slice(&offset.to_be_bytes());
    bytes
}

/// A last chunk without data.
pub(crate) fn nothing(cookie: u64) -> [u8; 20] {
    header(true, chunk::NONE, cookie, 0)
}

/// A last chunk that says what failed, without words.
pub(crate) fn error(error: u32, cookie: u64) -> [u8; 26] {
    let mut bytes = [0; 26];
    bytes[..20].copy_from_slice(&header(true, chunk::ERROR, cookie, 6));
    bytes[20..24].copy_from_slice(&error.to_be_bytes());
    bytes
}
