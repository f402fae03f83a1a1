//! What the tender writes into guest memory.

use super::Error;
use crate::load;
use crate::memory::{Gpa, Memory, Segment};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Copies the segments from the file to where the guest expects them.
///
/// # Errors
/// The file cannot be read.
pub fn segments(
    guest: &mut impl Memory,
    segments: &[Segment],
    file: &File,
) -> Result<(), load::Error> {
    for segment in segments {
        // The plan lies inside of guest memory, so there is always such a place.
        let place = guest.bytes(Gpa::new(segment.addresses.start), segment.file_size);
        let read = file.read_exact_at(place.unwrap_or_default(), segment.file_offset);
        read.map_err(load::Error::Read)?;
    }
    Ok(())
}

/// Copies `bytes` to `address`.
///
/// # Errors
/// [`Error::Outside`] if guest memory has no such place.
pub fn put(guest: &mut impl Memory, address: Gpa, bytes: &[u8]) -> Result<(), Error> {
    let length = bytes.len() as u64;
    let place = guest.bytes(address, length);
    let place = place.ok_or(Error::Outside { address, length })?;
    place.copy_from_slice(bytes);
    Ok(())
}
