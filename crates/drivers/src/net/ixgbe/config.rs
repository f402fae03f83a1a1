//! How the device is to be set up, and why it cannot be used.

use alloc::vec::Vec;
use core::fmt;
use hw::OutOfDma;

/// How the device is to be set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest payload of an Ethernet frame, in bytes.
    pub mtu: usize,
    /// Which frames are received; [`super::Driver::set_filter`] changes that.
    pub filter: Filter,
    /// Whether it takes 802.1Q tags off. They are lost: for an appliance that serves one tagged
    /// network and is told which by the switch. Whoever forwards frames keeps them, and so
    /// [`Filter::None`] does not go with it.
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
        filter: Filter::None,
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
        match self.vlan_strip && self.filter == Filter::None {
            true => Err(Error::VlanStrip),
            false => Ok(()),
        }
    }
}

/// Which frames are received. Forwarders need all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All, whoever they are for (promiscuous).
    None,
    /// Those to its own address, broadcasts, and those to these addresses, of stations or of
    /// groups. To some others too: of groups the device looks at a hash of 12 bits, and if there
    /// are more than 127 stations, it receives what is for any.
    Own(Vec<[u8; 6]>),
}

/// Why the device cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// BAR 0 has fewer bytes than the registers need.
    Bar {
        /// Bytes that the driver needs.
        wanted: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// Registers read all ones: the device has been unplugged or is without power.
    Gone,
    /// It did not do in time what the datasheet says that it does.
    Timeout(&'static str),
    /// The address in its EEPROM is none that a station can have.
    Mac([u8; 6]),
    /// It cannot be set up for frames of this size.
    Mtu(usize),
    /// Tags are to be taken off frames that are for others.
    VlanStrip,
    /// The pool's buffers are too small for what the device may write.
    BufferSize {
        /// Bytes that the device may write.
        wanted: usize,
        /// Bytes of a buffer.
        found: usize,
    },
    /// The pool has too few buffers to fill the ring, or none that devices can reach.
    Buffers,
    /// DMA memory is used up.
    Dma(OutOfDma),
}

impl From<OutOfDma> for Error {
    fn from(out: OutOfDma) -> Self {
        Self::Dma(out)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bar { wanted, found } => write!(
                f,
                "ixgbe: BAR 0 has {found} bytes instead of {wanted}: set map_bar0 in manifest.json"
            ),
            Self::Gone => f.write_str("ixgbe: its registers read all ones: it is unplugged or off"),
            Self::Timeout(what) => write!(f, "ixgbe: it did not report in time: {what}"),
            Self::Mac(mac) => write!(
                f,
                "ixgbe: its EEPROM holds no address of a station: {mac:02x?}"
            ),
            Self::Mtu(mtu) => write!(f, "ixgbe: it has no frames of MTU {mtu}"),
            Self::VlanStrip => f.write_str(
                "ixgbe: frames that are for others would lose their tags: leave vlan_strip off, or \
                 filter frames",
            ),
            Self::BufferSize { wanted, found } => write!(
                f,
                "ixgbe: buffers of {found} bytes are too small, the device may write {wanted}"
            ),
            Self::Buffers => {
                f.write_str("ixgbe: the pool has too few buffers of DMA memory for its ring")
            }
            Self::Dma(out) => out.fmt(f),
        }
    }
}

impl core::error::Error for Error {}
