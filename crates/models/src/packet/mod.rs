//! What a NIC does to packets: checksums, segmentation, coalescing. Written for the models alone;
//! drivers and appliances have their own.

pub(crate) mod checksum;
pub(crate) mod coalesce;
pub(crate) mod headers;
pub(crate) mod multicast;
#[cfg(test)]
pub(crate) mod samples;
pub(crate) mod segment;
pub(crate) mod toeplitz;

/// What is left to do to a frame that crosses a wire which takes large ones (virtio 1.2, 5.1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The checksum of TCP or UDP is still to be completed: where the sum begins, and where its
    /// field lies from there, in bytes. The field holds the sum of the pseudo header.
    pub checksum: Option<(u16, u16)>,
    /// The frame is TCP, or UDP whose checksum is left to do, to be cut into packets of this many
    /// bytes of payload.
    pub segment: Option<u16>,
}

/// Completes a checksum that was left to do; does nothing if it does not lie inside.
pub(crate) fn complete(frame: &mut [u8], start: u16, offset: u16) {
    let start = usize::from(start);
    let Some(covered) = frame.get(start..) else {
        return;
    };
    let value = !checksum::fold(checksum::sum(covered));
    // Zero would say that there is none (RFC 768); both are the same number.
    let value = if value == 0 { 0xffff } else { value };
    checksum::set_word(frame, start + usize::from(offset), value);
}
