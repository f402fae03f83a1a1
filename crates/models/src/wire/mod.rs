//! What a NIC is connected to.

mod flood;
pub(crate) mod frames;
mod pair;
mod pcap;
mod reflect;
#[cfg(test)]
pub(crate) mod script;
mod socket;
mod spec;
mod tap;

pub use crate::packet::Offload;
pub use flood::Flood;
use hw::sim::vectored::{Span, SpanMut};
pub use pair::{Pair, pair};
pub use pcap::{Pcap, PcapFault};
pub use reflect::Loop;
pub use socket::SocketWire;
pub use spec::{NoWire, Spec, WireFault};
use std::os::fd::BorrowedFd;
pub use tap::{TapFault, TapWire};

/// A frame that came in.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// All of it, or its first bytes.
    pub frame: &'a [u8],
    /// Bytes that follow it, and were put into the places for them.
    pub placed: usize,
    /// What is left to do to it.
    pub offload: Offload,
}

/// A wire. Frames have no frame check sequence; how long they may be is the wire's affair.
pub trait Wire {
    /// Whether there is anybody at the other end.
    fn is_up(&mut self) -> bool {
        true
    }

    /// The first frame that came in and was not [taken](Self::take), and what is left to do to it;
    /// the same until it is taken.
    fn peek(&mut self) -> Option<(&[u8], Offload)>;

    /// Takes the frame away that [`peek`](Self::peek) returned.
    fn take(&mut self);

    /// As [`peek`](Self::peek), with headers split from payload: of a frame that is longer than
    /// `headers`, the rest may be put into `places`, one after the other. Such a frame must be
    /// [taken](Self::take) or [linearized](Self::linearize) next.
    fn peek_split(&mut self, headers: usize, places: &[SpanMut<'_>]) -> Option<Incoming<'_>> {
        let _one_piece = (headers, places);
        let (frame, offload) = self.peek()?;
        Some(Incoming {
            frame,
            placed: 0,
            offload,
        })
    }

    /// Copies what was put into `places` back: the next [`peek`](Self::peek) finds all of it in one
    /// place.
    fn linearize(&mut self, places: &[SpanMut<'_>]) {
        let _nothing_there = places;
    }

    /// Whether another frame can be sent now.
    fn can_send(&mut self) -> bool {
        true
    }

    /// Whether frames of up to 64 KiB can be sent, for the other end to cut.
    fn takes_large_frames(&self) -> bool {
        false
    }

    /// Whether that goes for datagrams of UDP, too.
    fn takes_large_datagrams(&self) -> bool {
        self.takes_large_frames()
    }

    /// Sends a frame.
    fn send(&mut self, frame: &[u8], offload: Offload);

    /// Whether [`send_fragments`](Self::send_fragments) copies nothing, and never has to wait.
    fn sends_fragments(&self) -> bool {
        false
    }

    /// Sends a frame that begins with `headers`; the rest lies in the driver's memory, which nobody
    /// needs any more when this returns.
    fn send_fragments(&mut self, headers: &[u8], payload: &[Span<'_>], offload: Offload) {
        let mut frame = headers.to_vec();
        for part in payload {
            let at = frame.len();
            frame.resize(at + part.len(), 0);
            part.copy_to(&mut frame[at..]);
        }
        self.send(&frame, offload);
    }

    /// Sends what may have been held back, in the hope that more follows.
    fn flush(&mut self) {}

    /// What becomes readable when a frame comes in, for a device that sleeps.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl<W: Wire + ?Sized> Wire for Box<W> {
    fn is_up(&mut self) -> bool {
        (**self).is_up()
    }

    fn peek(&mut self) -> Option<(&[u8], Offload)> {
        (**self).peek()
    }

    fn take(&mut self) {
        (**self).take();
    }

    fn peek_split(&mut self, headers: usize, places: &[SpanMut<'_>]) -> Option<Incoming<'_>> {
        (**self).peek_split(headers, places)
    }

    fn linearize(&mut self, places: &[SpanMut<'_>]) {
        (**self).linearize(places);
    }

    fn can_send(&mut self) -> bool {
        (**self).can_send()
    }

    fn takes_large_frames(&self) -> bool {
        (**self).takes_large_frames()
    }

    fn takes_large_datagrams(&self) -> bool {
        (**self).takes_large_datagrams()
    }

    fn send(&mut self, frame: &[u8], offload: Offload) {
        (**self).send(frame, offload);
    }

    fn sends_fragments(&self) -> bool {
        (**self).sends_fragments()
    }

    fn send_fragments(&mut self, headers: &[u8], payload: &[Span<'_>], offload: Offload) {
        (**self).send_fragments(headers, payload, offload);
    }

    fn flush(&mut self) {
        (**self).flush();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).descriptor()
    }
}

/// Frames in slots of one size, first in, first out; nothing is allocated once it exists.
#[derive(Debug)]
struct Slots {
    frames: Vec<Vec<u8>>,
    first: usize,
    used: usize,
}

impl Slots {
    fn new(count: usize, bytes: usize) -> Self {
        Self {
            frames: (0..count.max(1))
                .map(|_| Vec::with_capacity(bytes))
                .collect(),
            first: 0,
            used: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.used == self.frames.len()
    }

    /// Whether there are slots for a packet, into however many frames it is cut.
    fn can_send(&self) -> bool {
        self.frames.len() - self.used > self.frames.len() / 4
    }

    fn push(&mut self, frame: &[u8]) {
        if self.is_full() {
            return;
        }
        let mut place = self.first + self.used;
        if place >= self.frames.len() {
            place -= self.frames.len();
        }
        self.frames[place].clear();
        self.frames[place].extend_from_slice(frame);
        self.used += 1;
    }

    fn first(&self) -> Option<&[u8]> {
        (self.used > 0).then(|| &self.frames[self.first][..])
    }

    fn pop(&mut self) {
        if self.used > 0 {
            self.used -= 1;
            self.first += 1;
            if self.first == self.frames.len() {
                self.first = 0;
            }
        }
    }
}
