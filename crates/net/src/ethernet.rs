//! Ethernet over a port (IEEE 802.3), and what layers above need of any link.
//!
//! Its header is written and read here and nowhere else. A layer above gives a destination, a type,
//! a size and a function that fills the payload; the port allocates the buffer.
//!
//! It is usable alone:
//!
//! ```
//! use device::memory::MemoryPort;
//! use net::ethernet::{Ethernet, Link, Mac};
//! use net::layer::Filled;
//!
//! let mut ethernet = Ethernet::new(Box::new(MemoryPort::new("net")));
//! let sent = ethernet.write(Mac::BROADCAST, 0x88b5, 100, |place| {
//!     place[..5].copy_from_slice(b"hello");
//!     Filled::new(5)
//! });
//! assert_eq!(sent, Ok(()));
//! ethernet.flush();
//! ```

use crate::counts::{Counts, reasons};
use crate::layer::{Filled, Unsent, uncovered};
use alloc::boxed::Box;
use device::ethernet::{HEADER_SIZE, TYPE_VLAN, VLAN_TAG_SIZE};
use device::{Batch, Frame, Netif, Offloads, WaitHandle};

/// Smaller numbers in the type's place are lengths of IEEE 802.3 frames (IEEE 802.3, 3.2.6).
const TYPE_MIN: u16 = 0x600;

/// An address of Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// All stations.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether it names several stations, or all.
    #[inline]
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether it can be one station's own.
    #[inline]
    pub fn is_station(self) -> bool {
        !self.is_group() && self != Self([0; 6])
    }
}

/// A received frame, from its payload on.
#[derive(Debug)]
pub struct Arrival {
    /// Who sent it: one station.
    pub source: Mac,
    /// Whether it was sent to several stations, or to all.
    pub group: bool,
    /// What the payload is.
    pub ethertype: u16,
    /// The payload, perhaps with padding behind it.
    pub frame: Frame,
}

/// A frame that lacks its destination: it waits until that is known.
#[derive(Debug)]
pub struct Unaddressed {
    frame: Frame,
    /// Whether it is sent on for somebody else.
    passing: bool,
}

/// A link, as layers above see it.
pub trait Link {
    /// Largest payload of a frame on the wire, in bytes.
    fn mtu(&self) -> usize;

    /// The station's own address.
    fn mac(&self) -> Mac;

    /// What may be left to the port.
    fn offloads(&self) -> Offloads;

    /// Most payload bytes that one call of [`Self::write`] may carry: more than [`Self::mtu`] if
    /// segmentation is left to the port.
    fn largest(&self) -> usize;

    /// A frame without its destination: `fill` writes at most `size` bytes of payload.
    ///
    /// # Errors
    /// [`Unsent::TooBig`] or [`Unsent::NoBuffer`]; `fill` is not called then.
    fn prepare(
        &mut self,
        ethertype: u16,
        size: usize,
        fill: impl FnOnce(&mut [u8]) -> Filled,
    ) -> Result<Unaddressed, Unsent>;

    /// Queues a frame that was prepared.
    fn address(&mut self, to: Mac, frame: Unaddressed);

    /// Queues a frame of at most `size` bytes of payload, which `fill` writes.
    ///
    /// # Errors
    /// [`Unsent::TooBig`] or [`Unsent::NoBuffer`]; `fill` is not called then.
    #[inline]
    fn write(
        &mut self,
        to: Mac,
        ethertype: u16,
        size: usize,
        fill: impl FnOnce(&mut [u8]) -> Filled,
    ) -> Result<(), Unsent> {
        let frame = self.prepare(ethertype, size, fill)?;
        self.address(to, frame);
        Ok(())
    }

    /// Sends what is queued.
    fn flush(&mut self);
}

reasons! {
    /// Why a received frame was dropped.
    pub enum Dropped {
        /// It ends inside the header.
        Short = "ethernet_short",
        /// Its source is a group, or nobody.
        Source = "ethernet_source",
        /// It is for another station.
        NotOurs = "ethernet_not_ours",
        /// It has a length in the place of a type.
        Length = "ethernet_length",
        /// It has an 802.1Q tag, which a layer below should have taken off.
        Tagged = "ethernet_tagged",
        /// What was left to do to it lies outside of its payload.
        Offload = "ethernet_offload",
        /// No layer above takes its type.
        Type = "ethernet_type",
        /// It was to be sent on, and too many others were.
        Passing = "ethernet_passing",
    }
}

/// Ethernet over one port.
pub struct Ethernet {
    port: Box<dyn Netif>,
    /// The port's, which does not change.
    mac: Mac,
    pending: Batch,
    passing: Batch,
    dropped: Counts<Dropped>,
}

impl Ethernet {
    /// Over this port.
    pub fn new(port: Box<dyn Netif>) -> Self {
        Self {
            mac: Mac(port.mac()),
            port,
            pending: Batch::new(),
            passing: Batch::new(),
            dropped: Counts::default(),
        }
    }

    /// Adds received frames to `batch`, from their Ethernet headers on; see [`Netif::receive`].
    pub fn receive(&mut self, batch: &mut Batch) {
        self.port.receive(batch);
    }

    /// Takes the header off a received frame; `None`, and counted, if it is malformed or not for
    /// this station.
    #[inline]
    pub fn accept(&mut self, frame: Frame) -> Option<Arrival> {
        parse(frame, self.mac)
            .map_err(|reason| self.dropped.add(reason))
            .ok()
    }

    /// Counts a frame whose type no layer above takes.
    pub fn refuse(&mut self, _: Arrival) {
        self.dropped.add(Dropped::Type);
    }

    /// What was dropped on receive.
    pub fn dropped(&self) -> &Counts<Dropped> {
        &self.dropped
    }

    /// What to sleep on while nothing arrives.
    pub fn wait_handle(&self) -> WaitHandle {
        self.port.wait_handle()
    }

    /// A buffer of the port's for `len` bytes that do not leave; `None` if there is none.
    pub(crate) fn buffer(&mut self, len: usize) -> Option<Frame> {
        self.alloc(len)
    }

    /// A frame of somebody else's that is to be sent on; `None` if it has no whole header. Its
    /// source will be this station.
    pub fn pass(&self, mut frame: Frame) -> Option<Unaddressed> {
        let header: &mut [u8; HEADER_SIZE] = frame.bytes_mut().first_chunk_mut()?;
        header[6..12].copy_from_slice(&self.mac.0);
        Some(Unaddressed {
            frame,
            passing: true,
        })
    }

    /// Frames of others that are to be sent on, and have their destination. Whoever sends them on
    /// takes them from here; if nobody does, further ones are dropped. [`Link::flush`] leaves them.
    pub fn passing(&mut self) -> &mut Batch {
        &mut self.passing
    }

    /// The port, for tests and statistics.
    pub fn port(&mut self) -> &mut dyn Netif {
        &mut *self.port
    }
}

impl Link for Ethernet {
    fn mtu(&self) -> usize {
        self.port.mtu()
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn offloads(&self) -> Offloads {
        self.port.offloads()
    }

    fn largest(&self) -> usize {
        // A tag does not count against the MTU, and is not ours to use.
        let most = self
            .port
            .max_frame()
            .saturating_sub(HEADER_SIZE + VLAN_TAG_SIZE);
        if self.port.offloads().tso {
            most
        } else {
            most.min(self.port.mtu())
        }
    }

    #[inline]
    fn prepare(
        &mut self,
        ethertype: u16,
        size: usize,
        fill: impl FnOnce(&mut [u8]) -> Filled,
    ) -> Result<Unaddressed, Unsent> {
        if size > self.largest() {
            return Err(Unsent::TooBig);
        }
        let mut frame = self.alloc(HEADER_SIZE + size).ok_or(Unsent::NoBuffer)?;
        let (header, payload) = frame.bytes_mut().split_at_mut(HEADER_SIZE);
        header[6..12].copy_from_slice(&self.mac.0);
        header[12..].copy_from_slice(&ethertype.to_be_bytes());
        let filled = fill(payload).behind(HEADER_SIZE as u16);
        frame.truncate(filled.len);
        frame.set_offload(filled.offload);
        Ok(Unaddressed {
            frame,
            passing: false,
        })
    }

    #[inline]
    fn address(&mut self, to: Mac, unaddressed: Unaddressed) {
        let Unaddressed { mut frame, passing } = unaddressed;
        frame.bytes_mut()[..6].copy_from_slice(&to.0);
        if passing {
            if self.passing.push(frame).is_err() {
                self.dropped.add(Dropped::Passing);
            }
            return;
        }
        if self.pending.is_full() {
            self.flush();
        }
        // There is room: a port leaves a batch empty.
        let _ = self.pending.push(frame);
    }

    fn flush(&mut self) {
        if !self.pending.is_empty() {
            self.port.transmit(&mut self.pending);
        }
    }
}

impl Ethernet {
    /// A buffer, if need be after what is queued has been sent, which may give buffers back.
    #[inline]
    fn alloc(&mut self, len: usize) -> Option<Frame> {
        match self.port.alloc(len) {
            None if !self.pending.is_empty() => {
                self.flush();
                self.port.alloc(len)
            }
            frame => frame,
        }
    }
}

/// Takes the header off a frame that `own` may be meant by.
#[inline]
fn parse(mut frame: Frame, own: Mac) -> Result<Arrival, Dropped> {
    let header: &[u8; HEADER_SIZE] = frame.bytes().first_chunk().ok_or(Dropped::Short)?;
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *header;
    let destination = Mac([d0, d1, d2, d3, d4, d5]);
    let source = Mac([s0, s1, s2, s3, s4, s5]);
    let ethertype = u16::from_be_bytes([t0, t1]);
    if destination != own && !destination.is_group() {
        return Err(Dropped::NotOurs);
    }
    if !source.is_station() {
        return Err(Dropped::Source);
    }
    match ethertype {
        TYPE_VLAN => return Err(Dropped::Tagged),
        ..TYPE_MIN => return Err(Dropped::Length),
        _ => {}
    }
    uncovered(&mut frame, HEADER_SIZE).ok_or(Dropped::Offload)?;
    Ok(Arrival {
        source,
        group: destination.is_group(),
        ethertype,
        frame,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use alloc::vec::Vec;
    use device::{Checksum, Offload};
    use proptest::prelude::*;

    const PEER: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn ethernet() -> (Ethernet, testing::Wire) {
        let (port, wire) = testing::port();
        (Ethernet::new(Box::new(port)), wire)
    }

    fn frame(destination: [u8; 6], source: [u8; 6], ethertype: u16) -> Vec<u8> {
        let mut bytes = [destination, source].concat();
        bytes.extend(ethertype.to_be_bytes());
        bytes.extend([7; 46]);
        bytes
    }

    fn accepted(bytes: &[u8]) -> Result<Arrival, Dropped> {
        parse(testing::frame(bytes), Mac([2, 0, 0, 0, 0, 0]))
    }

    #[test]
    fn a_layer_above_fills_behind_the_header() {
        let (mut ethernet, wire) = ethernet();
        let fill = |place: &mut [u8]| {
            assert_eq!(place.len(), 100);
            place[..3].copy_from_slice(b"abc");
            Filled::new(3)
        };
        ethernet.write(Mac(PEER), 0x88b5, 100, fill).unwrap();
        assert_eq!(
            wire.sent(),
            Vec::<Vec<u8>>::new(),
            "queued until it is flushed"
        );
        ethernet.flush();
        let expected = [&PEER[..], &[2, 0, 0, 0, 0, 0, 0x88, 0xb5], b"abc"].concat();
        assert_eq!(wire.sent(), [expected]);
    }

    #[test]
    fn a_full_queue_is_sent_and_an_empty_pool_is_told() {
        let (mut ethernet, wire) = ethernet();
        for _ in 0..100 {
            ethernet
                .write(Mac(PEER), 0x88b5, 1, |_| Filled::new(1))
                .unwrap();
        }
        assert_eq!(wire.sent().len(), device::BATCH_FRAMES_MAX);
        let held: Vec<_> = core::iter::from_fn(|| ethernet.port.alloc(60)).collect();
        // The queue holds the rest of the buffers: they are sent for this one.
        ethernet
            .write(Mac(PEER), 0x88b5, 1, |_| Filled::new(1))
            .unwrap();
        assert_eq!(wire.sent().len(), 100 - device::BATCH_FRAMES_MAX);
        let all: Vec<_> = core::iter::from_fn(|| ethernet.port.alloc(60)).collect();
        ethernet.flush();
        let one = ethernet.port.alloc(60);
        let sent = ethernet.write(Mac(PEER), 0x88b5, 1, |_| unreachable!());
        assert_eq!(sent, Err(Unsent::NoBuffer));
        drop((held, all, one));
    }

    #[test]
    fn what_exceeds_the_mtu_is_refused_unless_the_port_cuts_it() {
        let (mut plain, _) = ethernet();
        assert_eq!((plain.mtu(), plain.largest()), (1500, 1500));
        let sent = plain.write(Mac(PEER), 0x800, 1501, |_| unreachable!());
        assert_eq!(sent, Err(Unsent::TooBig));
        let (port, _) = testing::port_with_tso();
        assert_eq!(Ethernet::new(Box::new(port)).largest(), 65_535);
    }

    #[test]
    fn a_received_frame_goes_up_without_its_header() {
        let (mut ethernet, wire) = ethernet();
        wire.arrives(&frame([2, 0, 0, 0, 0, 0], PEER, 0x800));
        wire.arrives(&frame([0xff; 6], PEER, 0x806));
        let mut batch = Batch::new();
        ethernet.receive(&mut batch);
        let arrivals: Vec<_> = batch
            .drain()
            .map(|frame| ethernet.accept(frame).unwrap())
            .collect();
        assert_eq!(
            (arrivals[0].source, arrivals[0].ethertype),
            (Mac(PEER), 0x800)
        );
        assert_eq!((arrivals[0].group, arrivals[1].group), (false, true));
        assert_eq!(arrivals[1].frame.bytes(), [7; 46]);
    }

    #[test]
    fn offloads_move_with_the_payload() {
        let mut received = testing::frame(&frame([0xff; 6], PEER, 0x800));
        let checksum = Checksum {
            start: 34,
            offset: 6,
        };
        received.set_offload(Offload {
            checksum: Some(checksum),
            gso: None,
        });
        let arrival = parse(received, Mac(PEER)).unwrap();
        assert_eq!(arrival.frame.offload().checksum.unwrap().start, 20);
    }

    #[test]
    fn each_bad_frame_has_its_reason() {
        let own = [2, 0, 0, 0, 0, 0];
        let reason = |bytes: &[u8]| accepted(bytes).unwrap_err();
        assert_eq!(reason(&[0; 13]), Dropped::Short);
        assert_eq!(reason(&frame(PEER, own, 0x800)), Dropped::NotOurs);
        assert_eq!(
            reason(&frame(own, [3, 0, 0, 0, 0, 9], 0x800)),
            Dropped::Source
        );
        assert_eq!(reason(&frame(own, [0; 6], 0x800)), Dropped::Source);
        assert_eq!(reason(&frame(own, PEER, 0x8100)), Dropped::Tagged);
        assert_eq!(reason(&frame(own, PEER, 46)), Dropped::Length);
        let mut outside = testing::frame(&frame(own, PEER, 0x800));
        let checksum = Checksum {
            start: 3,
            offset: 6,
        };
        outside.set_offload(Offload {
            checksum: Some(checksum),
            gso: None,
        });
        assert_eq!(parse(outside, Mac(own)).unwrap_err(), Dropped::Offload);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(arrival) = accepted(&bytes) {
                prop_assert_eq!(arrival.frame.bytes(), &bytes[14..]);
            }
        }
    }
}
