//! How the device is to be set up.

use crate::net::Error;
use alloc::vec::Vec;

/// How the device is to be set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest payload of an Ethernet frame, in bytes.
    pub mtu: usize,
    /// Which frames are received; [`super::Driver::set_filter`] changes that.
    pub filter: AddressFilter,
    /// Whether it takes 802.1Q tags off. They are lost: for an appliance that serves one tagged
    /// network and is told which by the switch. Whoever forwards frames keeps them, and so
    /// [`AddressFilter::None`] does not go with it.
    pub vlan_strip: bool,
    /// Whether it makes one large frame of TCP segments that follow each other (7.11). Buffers
    /// have to be of [`super::COALESCED_BUFFER_BYTES`]; who receives such a frame finds in its
    /// offload how it is to be cut again.
    pub coalesce: bool,
}

impl Config {
    /// What forwards frames wants: all of them, as they are, and 1500 bytes.
    pub const FORWARD: Self = Self {
        mtu: 1500,
        filter: AddressFilter::None,
        vlan_strip: false,
        coalesce: false,
    };
    /// The same for who can pass large frames on, to be cut by the next device.
    pub const COALESCE: Self = Self {
        coalesce: true,
        ..Self::FORWARD
    };

    /// Whether all of it goes together.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self.vlan_strip && self.filter == AddressFilter::None {
            true => Err(Error::VlanStrip),
            false => Ok(()),
        }
    }
}

/// Which frames are received. Forwarders need all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressFilter {
    /// All, whoever they are for (promiscuous).
    None,
    /// Those to its own address, broadcasts, and those to these addresses, of stations or of
    /// groups. To some others too: of groups the device looks at a hash of 12 bits, and if there
    /// are more than 127 stations, it receives what is for any.
    Own(Vec<[u8; 6]>),
}
