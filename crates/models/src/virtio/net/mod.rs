//! A network card (5.1).
//!
//! | module | what | section |
//! |---|---|---|
//! | [`header`] | what stands in front of each frame | 5.1.6 |
//! | [`transmit`] | frames from the driver | 5.1.6.2 |
//! | [`receive`] | frames to the driver | 5.1.6.4 |
//! | [`filter`] | which frames are for the driver | 5.1.6.5.1, 5.1.6.5.3 |
//! | [`steering`] | which queue they go to | 5.1.6.5.5 |
//! | [`control`] | commands of the driver | 5.1.6.5 |
//!
//! Offloads go through a wire that takes large frames as they are. What a wire or a driver does not
//! take is done here: checksums are completed, and large packets are cut. The card counts nothing,
//! as virtio has no counters for it.
//!
//! What it leaves out: fragmentation of UDP, receive side scaling and hashes.

mod control;
mod filter;
mod header;
mod receive;
mod steering;
#[cfg(test)]
mod tests;
mod transmit;

use super::chain::Chain;
use super::device::{QueueKind, VirtioDevice, copy_config};
use super::queue::Virtqueue;
use super::work::Work;
use crate::device::Progress;
use crate::misbehaviour::Fault;
use crate::model::{Make, Model, Setup};
use crate::packet::headers::{ETHERNET, TAG};
use crate::violation::Queue;
use crate::wire::Wire;
use filter::Filter;
use receive::Receiver;
use std::os::fd::BorrowedFd;
use steering::Steering;
use transmit::Transmitter;

/// Device ID (5.1.1).
pub(crate) const ID: u16 = 1;

/// Features (5.1.3).
pub(super) mod feature {
    pub const CSUM: u64 = 1 << 0;
    pub const GUEST_CSUM: u64 = 1 << 1;
    pub const CTRL_GUEST_OFFLOADS: u64 = 1 << 2;
    pub const MTU: u64 = 1 << 3;
    pub const MAC: u64 = 1 << 5;
    pub const GUEST_TSO4: u64 = 1 << 7;
    pub const GUEST_TSO6: u64 = 1 << 8;
    pub const GUEST_ECN: u64 = 1 << 9;
    pub const HOST_TSO4: u64 = 1 << 11;
    pub const HOST_TSO6: u64 = 1 << 12;
    pub const HOST_ECN: u64 = 1 << 13;
    pub const MRG_RXBUF: u64 = 1 << 15;
    pub const STATUS: u64 = 1 << 16;
    pub const CTRL_VQ: u64 = 1 << 17;
    pub const CTRL_RX: u64 = 1 << 18;
    pub const CTRL_VLAN: u64 = 1 << 19;
    pub const GUEST_ANNOUNCE: u64 = 1 << 21;
    pub const MQ: u64 = 1 << 22;
    pub const CTRL_MAC_ADDR: u64 = 1 << 23;
    /// Segmentation of UDP is of virtio 1.3.
    pub const GUEST_USO4: u64 = 1 << 54;
    pub const GUEST_USO6: u64 = 1 << 55;
    pub const HOST_USO: u64 = 1 << 56;
    pub const SPEED_DUPLEX: u64 = 1 << 63;
    /// Those that are about received frames, and can be switched (5.1.6.5.8).
    pub const GUEST: u64 = GUEST_CSUM | GUEST_ECN | GUEST_LARGE;
    /// Those of packets that are longer than any frame.
    pub const GUEST_LARGE: u64 = GUEST_TSO4 | GUEST_TSO6 | GUEST_USO4 | GUEST_USO6;
}

/// All that are offered, but for the MTU.
const FEATURES: u64 = feature::GUEST
    | feature::CSUM
    | feature::CTRL_GUEST_OFFLOADS
    | feature::MAC
    | feature::HOST_TSO4
    | feature::HOST_TSO6
    | feature::HOST_ECN
    | feature::HOST_USO
    | feature::MRG_RXBUF
    | feature::STATUS
    | feature::CTRL_VQ
    | feature::CTRL_RX
    | feature::CTRL_VLAN
    | feature::GUEST_ANNOUNCE
    | feature::MQ
    | feature::CTRL_MAC_ADDR
    | feature::SPEED_DUPLEX;

/// Those of a card without a queue of commands.
const FEATURES_WITHOUT_CONTROL: u64 = feature::GUEST
    | feature::CSUM
    | feature::HOST_TSO4
    | feature::HOST_TSO6
    | feature::HOST_ECN
    | feature::HOST_USO
    | feature::MRG_RXBUF
    | feature::MQ;

/// Features that take another one (5.1.3.1).
const TAKES: [(u64, u64, &str); 14] = [
    (
        feature::GUEST_TSO4,
        feature::GUEST_CSUM,
        "GUEST_TSO4 takes GUEST_CSUM (5.1.3.1)",
    ),
    (
        feature::GUEST_TSO6,
        feature::GUEST_CSUM,
        "GUEST_TSO6 takes GUEST_CSUM (5.1.3.1)",
    ),
    (
        feature::GUEST_ECN,
        feature::GUEST_TSO4 | feature::GUEST_TSO6,
        "GUEST_ECN takes GUEST_TSO4 or GUEST_TSO6 (5.1.3.1)",
    ),
    (
        feature::HOST_TSO4,
        feature::CSUM,
        "HOST_TSO4 takes CSUM (5.1.3.1)",
    ),
    (
        feature::HOST_TSO6,
        feature::CSUM,
        "HOST_TSO6 takes CSUM (5.1.3.1)",
    ),
    (
        feature::HOST_ECN,
        feature::HOST_TSO4 | feature::HOST_TSO6,
        "HOST_ECN takes HOST_TSO4 or HOST_TSO6 (5.1.3.1)",
    ),
    (
        feature::GUEST_USO4,
        feature::GUEST_CSUM,
        "GUEST_USO4 takes GUEST_CSUM (1.3, 5.1.3.1)",
    ),
    (
        feature::GUEST_USO6,
        feature::GUEST_CSUM,
        "GUEST_USO6 takes GUEST_CSUM (1.3, 5.1.3.1)",
    ),
    (
        feature::HOST_USO,
        feature::CSUM,
        "HOST_USO takes CSUM (1.3, 5.1.3.1)",
    ),
    (
        feature::CTRL_RX,
        feature::CTRL_VQ,
        "CTRL_RX takes CTRL_VQ (5.1.3.1)",
    ),
    (
        feature::CTRL_VLAN,
        feature::CTRL_VQ,
        "CTRL_VLAN takes CTRL_VQ (5.1.3.1)",
    ),
    (
        feature::GUEST_ANNOUNCE,
        feature::CTRL_VQ,
        "GUEST_ANNOUNCE takes CTRL_VQ (5.1.3.1)",
    ),
    (feature::MQ, feature::CTRL_VQ, "MQ takes CTRL_VQ (5.1.3.1)"),
    (
        feature::CTRL_MAC_ADDR,
        feature::CTRL_VQ,
        "CTRL_MAC_ADDR takes CTRL_VQ (5.1.3.1)",
    ),
];

/// Bits of `status` (5.1.4).
const LINK_UP: u16 = 1;
const ANNOUNCE: u16 = 2;
/// Speed of the link in Mb/s, and that it goes both ways (5.1.4).
const SPEED: u32 = 10_000;
const FULL_DUPLEX: u8 = 1;
/// Pairs of queues.
const PAIRS: u16 = 4;
/// Most descriptors of a queue of frames, and of the one of commands.
const FRAMES_MAX: u16 = 1024;
const COMMANDS_MAX: u16 = 64;
/// Frames that one poll moves in each direction.
const POLL_FRAMES: u32 = 256;
/// The driver is told of so many frames at once: it works on them while the next are moved.
const PUBLISH_FRAMES: u32 = 32;
/// Polls for which a link that flaps stays down.
const FLAP_POLLS: u32 = 16;

/// What [`MODELS`](crate::MODELS) says of it.
pub(crate) const MODEL: Model = Model {
    name: "virtio-net",
    about: "virtio 1.2 network card",
    make: Make::Nic(|setup| {
        let Setup {
            address,
            wire,
            mtu,
            misbehaviour,
        } = setup;
        let card = VirtioNet::new(address, wire).with_mtu(mtu);
        Box::new(super::Pci::new(card, &misbehaviour))
    }),
    back_end: Some(Make::Nic(|setup| {
        let Setup {
            address, wire, mtu, ..
        } = setup;
        let card = VirtioNet::new(address, wire).with_mtu(mtu);
        Box::new(card.without_control())
    })),
};

/// A virtio network card, at one end of a wire.
#[derive(Debug)]
pub struct VirtioNet<W> {
    wire: W,
    /// Its address at first, and the one that the driver may have given it.
    permanent: [u8; 6],
    mtu: Option<u16>,
    /// Whether the driver's commands come here.
    control: bool,
    nic: Nic,
    receiver: Receiver,
    transmitter: Transmitter,
    command: Chain,
}

/// What the driver has set up, and the link.
#[derive(Debug)]
struct Nic {
    /// Features that were negotiated, and those of them that are in force.
    negotiated: u64,
    features: u64,
    filter: Filter,
    steering: Steering,
    /// The longest packet, if the driver has been told one.
    mtu: Option<u16>,
    /// Whether the link is up, as the driver reads it.
    link: bool,
    announce: bool,
    changed: bool,
    flap_polls: u32,
    hung: bool,
}

impl<W: Wire> VirtioNet<W> {
    /// A card with this Ethernet address.
    pub fn new(address: [u8; 6], mut wire: W) -> Self {
        let link = wire.is_up();
        Self {
            wire,
            permanent: address,
            mtu: None,
            control: true,
            nic: Nic::new(address, link),
            receiver: Receiver::default(),
            transmitter: Transmitter::default(),
            command: Chain::default(),
        }
    }

    /// The same card, which tells its driver the longest packet that it may send (5.1.4), or none.
    pub fn with_mtu(self, mtu: Option<u16>) -> Self {
        Self { mtu, ..self }
    }

    /// The same card as the part of one that moves frames: whoever has the other part answers the
    /// driver's commands, and filters nothing here. Frames are received on as many pairs as run.
    pub fn without_control(self) -> Self {
        Self {
            control: false,
            ..self
        }
    }

    /// The wire.
    pub fn wire(&mut self) -> &mut W {
        &mut self.wire
    }
}

impl Nic {
    fn new(address: [u8; 6], link: bool) -> Self {
        Self {
            negotiated: 0,
            features: 0,
            filter: Filter::new(address),
            steering: Steering::default(),
            mtu: None,
            link,
            announce: false,
            changed: false,
            flap_polls: 0,
            hung: false,
        }
    }

    fn has(&self, features: u64) -> bool {
        self.features & features != 0
    }

    /// Whether a frame that is not cut is short enough for the MTU (5.1.4.1, 5.1.4.2). A tag is
    /// part of the Ethernet header.
    fn admits_length(&self, frame: usize) -> bool {
        self.mtu
            .is_none_or(|mtu| frame <= ETHERNET + TAG + usize::from(mtu))
    }

    fn status(&self) -> u16 {
        let link = if self.link { LINK_UP } else { 0 };
        let announce = if self.announce { ANNOUNCE } else { 0 };
        link | announce
    }

    /// Looks at the link. A card that comes back asks its driver to say where it is (5.1.6.5.4).
    fn set_link(&mut self, wire_is_up: bool) {
        self.flap_polls = self.flap_polls.saturating_sub(1);
        let link = wire_is_up && self.flap_polls == 0;
        if link != self.link {
            self.link = link;
            self.announce |= link && self.has(feature::GUEST_ANNOUNCE);
            self.changed = true;
        }
    }
}

impl<W: Wire> VirtioDevice for VirtioNet<W> {
    fn id(&self) -> u16 {
        ID
    }

    fn features(&self) -> u64 {
        let features = match self.control {
            true => FEATURES,
            false => FEATURES_WITHOUT_CONTROL,
        };
        features | self.mtu.map_or(0, |_| feature::MTU)
    }

    fn refuses(&self, features: u64) -> Option<&'static str> {
        let elsewhere = if self.control { 0 } else { feature::CTRL_VQ };
        let lacks = |(feature, one_of, _): &&(u64, u64, &str)| {
            features & feature != 0 && (features | elsewhere) & one_of == 0
        };
        TAKES.iter().find(lacks).map(|(_, _, rule)| *rule)
    }

    fn queues(&self) -> Vec<QueueKind> {
        let pair = |number: u16| {
            [Queue::Rx(number as u8), Queue::Tx(number as u8)].map(|name| QueueKind {
                name,
                size_max: FRAMES_MAX,
            })
        };
        let control = QueueKind {
            name: Queue::Control,
            size_max: COMMANDS_MAX,
        };
        let control = self.control.then_some(control);
        (0..PAIRS).flat_map(pair).chain(control).collect()
    }

    fn queue_sets(&self) -> u16 {
        PAIRS
    }

    fn read_config(&mut self, offset: usize, bytes: &mut [u8]) {
        let mut config = [0; 17];
        config[..6].copy_from_slice(&self.nic.filter.address());
        config[6..8].copy_from_slice(&self.nic.status().to_le_bytes());
        config[8..10].copy_from_slice(&PAIRS.to_le_bytes());
        config[10..12].copy_from_slice(&self.mtu.unwrap_or(0).to_le_bytes());
        config[12..16].copy_from_slice(&SPEED.to_le_bytes());
        config[16] = FULL_DUPLEX;
        copy_config(&config, offset, bytes);
    }

    fn start(&mut self, features: u64) {
        (self.nic.negotiated, self.nic.features) = (features, features);
        self.nic.mtu = self.mtu.filter(|_| features & feature::MTU != 0);
        let vlans = features & feature::CTRL_VLAN != 0;
        self.nic.filter.start(vlans);
    }

    fn reset(&mut self) {
        let link = self.wire.is_up();
        self.nic = Nic::new(self.permanent, link);
        self.receiver.reset();
    }

    fn poll(&mut self, queues: &mut [Virtqueue], work: &mut Work<'_>) -> Progress {
        if work.faults.strikes(Fault::LinkFlap) {
            self.nic.flap_polls = FLAP_POLLS;
        }
        self.nic.set_link(self.wire.is_up());
        let (frames, commands) = queues.split_at_mut(usize::from(2 * PAIRS));
        let mut progress = Progress::default();
        match commands.first_mut() {
            Some(control) => {
                progress.transmitted = self.nic.obey(control, &mut self.command, work);
            }
            None => self.nic.steering.follow(frames),
        }
        if self.nic.link {
            progress.transmitted +=
                self.transmitter
                    .transmit(&mut self.nic, frames, &mut self.wire, work);
            progress.received = self
                .receiver
                .receive(&mut self.nic, frames, &mut self.wire, work);
        }
        self.wire.flush();
        progress
    }

    fn take_config_change(&mut self) -> bool {
        std::mem::take(&mut self.nic.changed)
    }

    fn wire_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.wire.descriptor()
    }
}
