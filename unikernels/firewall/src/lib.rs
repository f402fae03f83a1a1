//! What the firewall does: frames that the rules accept pass between two ports, unchanged and
//! uncopied; all others are dropped and counted. Nothing here knows the host, so that `cargo test`
//! runs it.

#![no_std]
#![forbid(unsafe_code)]

use device::{Batch, Guess, Netif};
use filter::{Filter, Path};
use ports::Ready;

/// The rules in force where neither the host nor the command line has others.
pub const BUILT_IN: &str = include_str!(env!("OUTBOARD_RULES"));

/// A filter between the ports `private` and `public`.
pub struct Firewall {
    filter: Filter,
    out: Path,
    back: Path,
    batch: Batch,
    answered: Guess,
}

impl Firewall {
    /// A firewall that judges by this filter. What comes in at one port is received into buffers of
    /// the other one, if that is a link whose other end may see frames that are dropped.
    pub fn new(filter: Filter, private: &mut dyn Netif, public: &mut dyn Netif) -> Self {
        private.receive_into(public.open_buffers());
        public.receive_into(private.open_buffers());
        Self {
            out: filter.path(private, public),
            back: filter.path(public, private),
            filter,
            batch: Batch::new(),
            answered: Guess::default(),
        }
    }

    /// Forwards a batch from each port that is ready.
    #[inline]
    pub fn step(&mut self, ready: Ready, private: &mut dyn Netif, public: &mut dyn Netif) {
        self.filter.refresh();
        let outwards = ready.contains(private.wait_handle());
        let inwards = ready.contains(public.wait_handle());
        if outwards {
            self.forward(self.out, private, public);
        }
        if inwards {
            self.forward(self.back, public, private);
        }
        // Who got a frame may have answered already, and to look costs less than to wait.
        if outwards != inwards && self.answered.worth() {
            let found = if outwards {
                self.forward(self.back, public, private)
            } else {
                self.forward(self.out, private, public)
            };
            self.answered.learn(found);
        }
    }

    /// The ports from which nothing can be taken, since the other one has no room for it: who waits
    /// is to leave it where it is, and not to hear of it.
    #[inline]
    pub fn held(&self, private: &mut dyn Netif, public: &mut dyn Netif) -> Ready {
        let outwards = (!public.has_room()).then(|| private.wait_handle());
        let inwards = (!private.has_room()).then(|| public.wait_handle());
        outwards.into_iter().chain(inwards).collect()
    }

    /// One batch from one port to the other; whether there was one.
    fn forward(&mut self, path: Path, from: &mut dyn Netif, to: &mut dyn Netif) -> bool {
        let Self { filter, batch, .. } = self;
        from.receive(batch);
        let any = !batch.is_empty();
        filter.look_ahead(batch);
        batch.retain(|frame| filter.accepts(frame, path));
        to.transmit(batch);
        any
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use super::*;
    use abi::manifest::Device;
    use alloc::vec;
    use device::memory::MemoryPort;
    use ports::puppet::Setup;

    const TCP: u8 = 6;
    const UDP: u8 = 17;

    /// An IPv4 packet without payload behind an Ethernet header.
    fn frame(protocol: u8, destination_port: u16) -> [u8; 54] {
        let mut bytes = [0; 54];
        bytes[12..14].copy_from_slice(&[8, 0]);
        bytes[14] = 0x45;
        bytes[17] = 40;
        bytes[22] = 64;
        bytes[23] = protocol;
        // All words of the header that are not zero; the sum has no carry.
        let checksum = !(0x4500 + 40 + 0x4000 + u16::from(protocol));
        bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
        bytes[36..38].copy_from_slice(&destination_port.to_be_bytes());
        bytes[39] = 20;
        bytes[46] = 0x50;
        bytes[47] = 2;
        bytes
    }

    /// The firewall with its own rules, and its ports.
    fn firewall() -> (Firewall, MemoryPort, MemoryPort) {
        let device = Device::Net {
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
        };
        let setup = Setup {
            devices: vec![("private", device, 0), ("public", device, 0)],
            rules: true,
            ..Setup::default()
        };
        let filter = Filter::start(setup.start().runtime, BUILT_IN, || None).unwrap();
        let mut private = MemoryPort::new("private").with_index(1);
        let mut public = MemoryPort::new("public").with_index(2);
        let firewall = Firewall::new(filter, &mut private, &mut public);
        (firewall, private, public)
    }

    #[test]
    fn accepted_frames_pass_both_ways_and_others_do_not() {
        let (mut firewall, mut private, mut public) = firewall();
        for port in [&mut private, &mut public] {
            port.arrives(&frame(UDP, 8080));
            port.arrives(&frame(TCP, 1234));
            port.arrives(&frame(TCP, 7070));
        }
        let ready = [private.wait_handle(), public.wait_handle()]
            .into_iter()
            .collect();
        firewall.step(ready, &mut private, &mut public);
        let passed = [frame(UDP, 8080), frame(TCP, 7070)];
        assert_eq!(private.sent(), passed);
        assert_eq!(public.sent(), passed);
    }

    #[test]
    fn an_answer_is_looked_for_at_once() {
        let (mut firewall, mut private, mut public) = firewall();
        private.arrives(&frame(UDP, 8080));
        public.arrives(&frame(UDP, 8080));
        let ready = [private.wait_handle()].into_iter().collect();
        firewall.step(ready, &mut private, &mut public);
        assert_eq!((private.sent().len(), public.sent().len()), (1, 1));
    }
}
