//! Checksum offload: checksums that a context asks for in a packet that is not cut (82574,
//! 7.2.11; 82540, 3.6). The card sums what it is told to, whatever that is.

use super::descriptor::{Context, Data, Place};
use crate::packet::checksum::{fold, set_word, sum};

/// Why a packet cannot be sent: the rule that it breaks.
pub(super) type Refused = &'static str;

/// The checksums that the first descriptor of a packet asks for.
pub(super) fn insert_checksums(
    frame: &mut [u8],
    first: Data,
    context: Option<Context>,
) -> Result<(), Refused> {
    if let Some(place) = first.inserts {
        return insert(frame, place, false);
    }
    if !first.ip_checksum && !first.l4_checksum {
        return Ok(());
    }
    let context = context.ok_or("IXSM and TXSM take a context (7.2.6 / 3.3.6)")?;
    if first.ip_checksum {
        insert(frame, context.ip, false)?;
    }
    if first.l4_checksum {
        insert(frame, context.l4, !context.tcp)?;
    }
    Ok(())
}

/// Sums a part of the packet, its field included, and stores the complement there. `never_zero` is
/// for UDP, where zero says that there is no checksum (7.2.6.1, TUCMD).
fn insert(frame: &mut [u8], place: Place, never_zero: bool) -> Result<(), Refused> {
    let start = usize::from(place.start);
    let end = match place.end {
        0 => frame.len(),
        last => usize::from(last) + 1,
    };
    let Some(covered) = frame.get(start..end).filter(|covered| !covered.is_empty()) else {
        return Err("what is summed must lie in the packet (7.2.6 / 3.3.6)");
    };
    let value = match !fold(sum(covered)) {
        0 if never_zero => 0xffff,
        value => value,
    };
    match set_word(frame, usize::from(place.field), value) {
        true => Ok(()),
        false => Err("the checksum's field must lie in the packet (7.2.6 / 3.3.6)"),
    }
}
