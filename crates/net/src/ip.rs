//! IP over one port: Ethernet, IPv4 and IPv6 put together, each of which can be replaced by another
//! type.
//!
//! [`Ip::receive`] fetches frames, and [`Ip::accept`] takes one of them up to its transport header.
//! [`Ip::write`] sends what a transport layer fills in. [`Ip::poll`] does what is due, not later
//! than at [`Ip::deadline`], and [`Ip::flush`] sends what is queued: all at the end of each turn.

use crate::ethernet::{Ethernet, Link};
use crate::icmp::{Refusal, Report};
use crate::layer::{Filled, Unsent};
use crate::version::{Arrived, Packet, Received, Version};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use device::ethernet::{TYPE_ARP, TYPE_IPV4, TYPE_IPV6};
use device::{Batch, Frame};
use ports::Instant;

/// IP over one port.
pub struct Ip<V4, V6> {
    /// The link.
    pub link: Ethernet,
    /// IPv4.
    pub v4: V4,
    /// IPv6.
    pub v6: V6,
}

impl<V4, V6> Ip<V4, V6>
where
    V4: Version<Ethernet, Address = Ipv4Addr>,
    V6: Version<Ethernet, Address = Ipv6Addr>,
{
    /// Both versions over a link.
    pub fn new(link: Ethernet, v4: V4, v6: V6) -> Self {
        Self { link, v4, v6 }
    }

    /// Adds received frames to `batch`, each for [`Self::accept`].
    pub fn receive(&mut self, batch: &mut Batch) {
        self.link.receive(batch);
    }

    /// Takes a received frame; what it brings to the layers above.
    #[inline]
    pub fn accept(&mut self, frame: Frame, now: Instant) -> Option<Arrived> {
        let Self { link, v4, v6 } = self;
        let arrival = link.accept(frame)?;
        match arrival.ethertype {
            TYPE_IPV4 => v4.accept(link, arrival, now).map(Arrived::any),
            TYPE_IPV6 => v6.accept(link, arrival, now).map(Arrived::any),
            TYPE_ARP => {
                v4.resolve(link, arrival, now);
                None
            }
            _ => None,
        }
    }

    /// Sends a packet of at most `size` bytes behind IP's header, which `fill` writes: transport
    /// header and payload. Checksums may be left to the port, large TCP segments as well if
    /// [`Self::largest`] says so.
    ///
    /// # Errors
    /// Why it was not sent. `fill` may have been called nevertheless.
    #[inline]
    pub fn write(
        &mut self,
        packet: Packet,
        size: usize,
        fill: impl FnOnce(&mut [u8]) -> Filled,
        now: Instant,
    ) -> Result<(), Unsent> {
        let Self { link, v4, v6 } = self;
        match (packet.source, packet.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                v4.write(link, packet.between(source, destination), size, fill, now)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                v6.write(link, packet.between(source, destination), size, fill, now)
            }
            _ => Err(Unsent::NoRoute),
        }
    }

    /// Which of our addresses packets to `destination` come from; `None` if no route leads there.
    pub fn source(&self, destination: IpAddr) -> Option<IpAddr> {
        match destination {
            IpAddr::V4(destination) => self.v4.source(destination).map(IpAddr::V4),
            IpAddr::V6(destination) => self.v6.source(destination).map(IpAddr::V6),
        }
    }

    /// Largest packet that the whole path to `destination` is known to carry, in bytes.
    pub fn mtu(&self, destination: IpAddr, now: Instant) -> usize {
        match destination {
            IpAddr::V4(destination) => self.v4.mtu(&self.link, destination, now),
            IpAddr::V6(destination) => self.v6.mtu(&self.link, destination, now),
        }
    }

    /// Most bytes of transport header and payload that one [`Self::write`] takes.
    pub fn largest(&self, destination: IpAddr, now: Instant) -> usize {
        match destination {
            IpAddr::V4(destination) => self.v4.largest(&self.link, destination, now),
            IpAddr::V6(destination) => self.v6.largest(&self.link, destination, now),
        }
    }

    /// Tells the sender of a packet that nobody takes it.
    pub fn refuse(&mut self, refused: Received, why: Refusal, now: Instant) {
        let Received {
            unicast,
            protocol,
            class,
            header,
            frame,
            ..
        } = refused;
        macro_rules! refuse {
            ($version:expr, $source:expr, $destination:expr) => {{
                let refused = Received {
                    source: $source,
                    destination: $destination,
                    unicast,
                    protocol,
                    class,
                    header,
                    frame,
                };
                $version.refuse(&mut self.link, refused, why, now);
            }};
        }
        match (refused.source, refused.destination) {
            (IpAddr::V4(from), IpAddr::V4(to)) => refuse!(self.v4, from, to),
            (IpAddr::V6(from), IpAddr::V6(to)) => refuse!(self.v6, from, to),
            _ => {}
        }
    }

    /// A report says that a packet of ours was too big. `live` is whether the owner of the quoted
    /// transport header knows it to be in flight. Returns the path's MTU if that became less.
    pub fn too_big(&mut self, report: &Report, live: bool, now: Instant) -> Option<usize> {
        match (report.source, report.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let report = report.between(source, destination);
                self.v4.too_big(&self.link, &report, live, now)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let report = report.between(source, destination);
                self.v6.too_big(&self.link, &report, live, now)
            }
            _ => None,
        }
    }

    /// What we send to `destination` is known to arrive: it acknowledged new data.
    #[inline]
    pub fn confirm(&mut self, destination: IpAddr, now: Instant) {
        match destination {
            IpAddr::V4(destination) => self.v4.confirm(destination, now),
            IpAddr::V6(destination) => self.v6.confirm(destination, now),
        }
    }

    /// Does what is due: requests for neighbours, announcements, packets that did not become whole.
    pub fn poll(&mut self, now: Instant) {
        self.v4.poll(&mut self.link, now);
        self.v6.poll(&mut self.link, now);
    }

    /// When [`Self::poll`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.v4
            .deadline()
            .into_iter()
            .chain(self.v6.deadline())
            .min()
    }

    /// Sends what is queued.
    pub fn flush(&mut self) {
        self.link.flush();
    }
}
