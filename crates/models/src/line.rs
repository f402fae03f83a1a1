//! What the MAC of a NIC sends to and receives from: the wire, or itself while it is told to loop
//! back (82599, 8.2.3.22.8; 82574, 10.2.8).

use crate::packet::Offload;
use crate::wire::{Incoming, Loop, Wire};
use hw::sim::vectored::{Span, SpanMut};

/// A wire, and a plug that may be in its place. What comes in over the wire waits meanwhile.
#[derive(Debug)]
pub(crate) struct Line<W> {
    pub(crate) wire: W,
    plug: Option<Loop>,
}

impl<W: Wire> Line<W> {
    pub(crate) fn new(wire: W) -> Self {
        let plug = None;
        Self { wire, plug }
    }

    /// Puts the plug in, or takes it out with all that is in it.
    #[inline]
    pub(crate) fn loop_back(&mut self, on: bool) {
        if on != self.plug.is_some() {
            self.plug = on.then(Loop::new);
        }
    }
}

impl<W: Wire> Wire for Line<W> {
    #[inline]
    fn peek(&mut self) -> Option<(&[u8], Offload)> {
        match &mut self.plug {
            None => self.wire.peek(),
            Some(plug) => plug.peek(),
        }
    }

    #[inline]
    fn take(&mut self) {
        match &mut self.plug {
            None => self.wire.take(),
            Some(plug) => plug.take(),
        }
    }

    #[inline]
    fn peek_split(&mut self, headers: usize, places: &[SpanMut<'_>]) -> Option<Incoming<'_>> {
        match &mut self.plug {
            None => self.wire.peek_split(headers, places),
            Some(plug) => plug.peek_split(headers, places),
        }
    }

    /// Of the wire alone: a plug puts nothing into places.
    fn linearize(&mut self, places: &[SpanMut<'_>]) {
        self.wire.linearize(places);
    }

    #[inline]
    fn can_send(&mut self) -> bool {
        match &mut self.plug {
            None => self.wire.can_send(),
            Some(plug) => plug.can_send(),
        }
    }

    #[inline]
    fn takes_large_frames(&self) -> bool {
        self.plug.is_none() && self.wire.takes_large_frames()
    }

    #[inline]
    fn send(&mut self, frame: &[u8], offload: Offload) {
        match &mut self.plug {
            None => self.wire.send(frame, offload),
            Some(plug) => plug.send(frame, offload),
        }
    }

    #[inline]
    fn sends_fragments(&self) -> bool {
        self.plug.is_none() && self.wire.sends_fragments()
    }

    /// Of the wire alone, as a plug sends no fragments.
    #[inline]
    fn send_fragments(&mut self, headers: &[u8], payload: &[Span<'_>], offload: Offload) {
        self.wire.send_fragments(headers, payload, offload);
    }

    fn flush(&mut self) {
        self.wire.flush();
    }
}
