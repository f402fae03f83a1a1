//! What layers hand to each other.
//!
//! Whoever sends gives the layer below a size and a function. The layer below has the buffer
//! allocated, by the port in the end, calls the function to fill the place behind its own header,
//! and learns how much was written.

use device::{Checksum, Frame, Gso, Offload, Pool};

/// What was written into the place that the layer below gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// Bytes written, from the start of the place; at most as many as were asked for.
    pub len: usize,
    /// What is left to the port. Positions count from the start of the place.
    pub offload: Offload,
}

impl Filled {
    /// So many bytes, with nothing left to do.
    pub fn new(len: usize) -> Self {
        Self {
            len,
            offload: Offload::NONE,
        }
    }

    /// The same behind a header of so many bytes, which the layer below has written.
    #[must_use]
    pub fn behind(self, header: u16) -> Self {
        let Offload { checksum, gso } = self.offload;
        Self {
            len: self.len + usize::from(header),
            offload: Offload {
                checksum: checksum.map(|checksum| Checksum {
                    start: checksum.start.saturating_add(header),
                    ..checksum
                }),
                gso: gso.map(|gso| Gso {
                    header: gso.header.saturating_add(header),
                    ..gso
                }),
            },
        }
    }
}

/// Takes a header of so many bytes off a received frame, and moves what was left to do with the
/// payload; `None` if the frame is shorter, or if that lies in the header.
#[inline]
pub(crate) fn uncovered(frame: &mut Frame, header: usize) -> Option<()> {
    if frame.has_offload() {
        let Offload { checksum, gso } = frame.offload();
        let less = |position: u16| {
            let header = u16::try_from(header).ok()?;
            position.checked_sub(header)
        };
        let checksum = match checksum {
            Some(Checksum { start, offset }) => Some(Checksum {
                start: less(start)?,
                offset,
            }),
            None => None,
        };
        let gso = match gso {
            Some(gso) => Some(Gso {
                header: less(gso.header)?,
                ..gso
            }),
            None => None,
        };
        frame.set_offload(Offload { checksum, gso });
    }
    frame.pop_front(header).then_some(())
}

/// Has a packet of at most `size` bytes filled in whole, in a buffer of `pool`, because it is to be
/// cut: its checksum is completed before.
///
/// # Errors
/// [`Unsent::NoBuffer`].
pub(crate) fn whole(
    pool: &Pool,
    size: usize,
    fill: impl FnOnce(&mut [u8]) -> Filled,
) -> Result<Frame, Unsent> {
    let mut whole = pool.alloc(size).ok_or(Unsent::NoBuffer)?;
    let filled = fill(whole.bytes_mut());
    whole.truncate(filled.len);
    filled.offload.complete_checksum(whole.bytes_mut());
    Ok(whole)
}

/// Why a packet was not sent. Each is counted by the layer that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// The port has no free buffer.
    NoBuffer,
    /// No route leads to the destination.
    NoRoute,
    /// It exceeds what may be sent in one piece, and must not be fragmented.
    TooBig,
    /// It waits for the link address of the next hop, and too many others do as well.
    NoNeighbour,
}

impl core::fmt::Display for Unsent {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NoBuffer => "the port has no free buffer",
            Self::NoRoute => "no route to the host",
            Self::TooBig => "too long for one packet",
            Self::NoNeighbour => "too many packets wait for the next hop's address",
        })
    }
}

impl core::error::Error for Unsent {}

#[cfg(test)]
mod tests {
    use super::*;
    use device::GsoKind;

    #[test]
    fn positions_move_behind_each_header() {
        let tcp = Filled {
            len: 1020,
            offload: Offload {
                checksum: Some(Checksum {
                    start: 0,
                    offset: 16,
                }),
                gso: Some(Gso {
                    kind: GsoKind::TcpV4,
                    size: 500,
                    header: 20,
                    ecn: false,
                }),
            },
        };
        let frame = tcp.behind(20).behind(14);
        assert_eq!(frame.len, 1054);
        assert_eq!(frame.offload.checksum.unwrap().start, 34);
        assert_eq!(frame.offload.checksum.unwrap().offset, 16);
        assert_eq!(frame.offload.gso.unwrap().header, 54);
        assert_eq!(Filled::new(7).behind(8), Filled::new(15));
    }
}
