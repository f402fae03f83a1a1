//! What the sender of a packet is told that rules reject.

use crate::forward::{Ip, Passage};
use crate::packet::Packet;
use core::net::IpAddr;
use device::Frame;
use nf::log::TokenBucket;
use nf::router::{ANSWER_MAX, Rejection};
use ports::Instant;

/// Errors at once, and nanoseconds in which one more may be sent: as many as there are about
/// packets that cannot be sent on (RFC 1812, 4.3.2.8; RFC 4443, 2.4 f). Resets, which are no
/// larger than what they answer, are not limited.
const ERRORS_BURST: u64 = 20;
const ERROR_INTERVAL: u64 = 10_000_000;

/// How many errors may be sent at the moment.
pub(crate) const fn errors() -> TokenBucket {
    TokenBucket::new(ERRORS_BURST, ERROR_INTERVAL)
}

impl Passage {
    /// Tells the sender of a packet that has not gone on, if rules reject it. The answer comes from
    /// the address `own`, or else from that of the port that it leaves by.
    pub(crate) fn tell(&mut self, ip: &mut Ip, frame: &Frame, own: Option<IpAddr>, now: Instant) {
        let Some(rejection) = self.judge.borrow().gate.rejected() else {
            return;
        };
        if let Rejection::Unreachable { .. } = rejection
            && self.errors.take(now.0).is_none()
        {
            return;
        }
        // Without a way or a buffer it is lost, as it may be on the link.
        let _ = self.send_answer(ip, frame, (rejection, own), now);
    }

    fn send_answer(
        &mut self,
        ip: &mut Ip,
        frame: &Frame,
        (rejection, own): (Rejection, Option<IpAddr>),
        now: Instant,
    ) -> Option<()> {
        let Packet {
            source: sender,
            destination,
            ..
        } = Packet::read(frame)?;
        let to = ip.way(sender, now)?;
        // Of IPv6, the address that was asked answers at each hook (the kernel's `icmpv6_send`).
        let is_asked = destination.is_ipv6() && ip.is_own(destination);
        let own = own.or(is_asked.then_some(destination));
        let own = own.or_else(|| ip.port(to).source(sender, now))?;
        let mut place = [0; ANSWER_MAX];
        let length = {
            let gate = &self.judge.borrow().gate;
            gate.answer(rejection, frame, own, &mut place)?
        };
        let mut answer = ip.port(to).link.port().alloc(length)?;
        answer.bytes_mut().copy_from_slice(place.get(..length)?);
        let local = self.local(to);
        let leaves = self.judge.borrow_mut().gate.answers(&mut answer, to, local);
        if leaves {
            self.make_room(ip, to);
            let _ = ip.port(to).forward(answer, sender, now);
        }
        Some(())
    }
}
