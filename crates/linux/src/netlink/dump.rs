//! Lists that the kernel gives in as many messages as it takes.

use super::{Cause, KERNEL, Netlink};
use netlink_packet_core::{NLM_F_DUMP, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;

/// Datagrams of one answer: the kernel puts several entries into each.
const DATAGRAMS_MAX: usize = 4096;
/// Room for one: more than the kernel fills.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

impl Netlink {
    /// Sends `request`, and hands each message of the answer to `take`.
    pub(super) fn dump(
        &mut self,
        request: RouteNetlinkMessage,
        mut take: impl FnMut(RouteNetlinkMessage),
    ) -> Result<(), Cause> {
        self.send(request, NLM_F_DUMP)?;
        for _ in 0..DATAGRAMS_MAX {
            let mut datagram = Vec::with_capacity(DATAGRAM_BYTES_MAX);
            let (_, sender) = self.socket.recv_from(&mut datagram, 0)?;
            if sender.port_number() == KERNEL && read(&datagram, self.sequence, &mut take)? {
                return Ok(());
            }
        }
        Err(Cause::BadReply)
    }
}

/// Hands the messages of `datagram` on; whether it was the last.
fn read(
    mut datagram: &[u8],
    sequence: u32,
    take: &mut impl FnMut(RouteNetlinkMessage),
) -> Result<bool, Cause> {
    while !datagram.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(datagram);
        let message = message.map_err(|_| Cause::BadReply)?;
        // A message is at least as long as its header, so that this makes progress.
        let length = (message.header.length as usize).next_multiple_of(4);
        datagram = datagram.get(length..).unwrap_or_default();
        if message.header.sequence_number != sequence {
            continue;
        }
        match message.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io().into()),
            NetlinkPayload::InnerMessage(message) => take(message),
            _ => {}
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncations_are_refused_and_ends_are_seen() {
        // `struct nlmsghdr` of NLMSG_DONE, and its status.
        let mut done = Vec::new();
        done.extend(20u32.to_ne_bytes());
        done.extend(3u16.to_ne_bytes());
        done.extend(0u16.to_ne_bytes());
        done.extend(7u32.to_ne_bytes());
        done.extend([0; 8]);
        let mut taken = 0;
        let mut take = |_| taken += 1;
        assert!(read(&done, 7, &mut take).unwrap());
        assert!(!read(&done, 8, &mut take).unwrap());
        for length in 1..done.len() {
            assert!(read(&done[..length], 7, &mut take).is_err(), "{length}");
        }
        assert_eq!(taken, 0);
    }
}
