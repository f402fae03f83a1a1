//! What is negotiated, and what the device says of itself (5.1.5).

use super::config::Config;
use super::registers::*;
use super::rx::frame_bytes;
use crate::net::Error;
use crate::virtio::{self, Transport};
use device::Offloads;

/// Smallest MTU that the device may say (5.1.4.1).
pub const MTU_MIN: usize = 68;
/// Largest that it can say.
pub const MTU_MAX: usize = 0xffff;

/// What the device and the driver agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The features.
    pub features: u64,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Largest payload of a frame.
    pub mtu: usize,
}

impl Agreement {
    /// What the device does by itself.
    pub fn offloads(&self) -> Offloads {
        const TSO: u64 = CSUM | HOST_TSO4 | HOST_TSO6 | HOST_ECN;
        Offloads {
            checksum: self.features & CSUM != 0,
            tso: self.features & TSO == TSO,
            uso: false,
        }
    }
}

/// 5.1.5, steps 3 to 6 but for the queues, with a device that has just been reset and whose buffers
/// have so many bytes.
///
/// # Errors
/// If the device is none that can be used.
pub fn agree<T: Transport>(
    transport: &T,
    config: &Config,
    found: usize,
) -> Result<Agreement, Error> {
    let mut of_device = None;
    let features = virtio::negotiate(transport, HAS_MAC, |offered| {
        of_device = (offered & HAS_MTU != 0).then(|| mtu(transport));
        // Who accepts that, promises buffers for it (5.1.4.2).
        let holds = of_device.is_some_and(|mtu| found >= frame_bytes(mtu));
        choose(offered, config) | if holds { HAS_MTU } else { 0 }
    })?;
    let mtu = of_device.map_or(config.mtu, |of_device| of_device.min(config.mtu));
    let mac = virtio::transport::stable(transport, |transport| {
        [0, 1, 2, 3, 4, 5].map(|n| transport.config(MAC.nth(n, 1)))
    });
    let group = mac[0] & 1 != 0;
    if group || mac == [0; 6] {
        return Err(Error::Mac(mac));
    }
    let wanted = frame_bytes(mtu);
    if !(MTU_MIN..=MTU_MAX).contains(&mtu) {
        return Err(Error::Mtu(mtu));
    }
    if found < wanted {
        return Err(Error::BufferSize { wanted, found });
    }
    Ok(Agreement { features, mac, mtu })
}

/// The MTU that the device says.
fn mtu<T: Transport>(transport: &T) -> usize {
    virtio::transport::stable(transport, |transport| transport.config(MTU)).into()
}

/// Which of the features that are offered are accepted.
fn choose(offered: u64, config: &Config) -> u64 {
    let mut wanted = HAS_MAC | HAS_STATUS | SPEED_DUPLEX | MRG_RXBUF | CSUM | GUEST_CSUM;
    // Each needs others (5.1.3.1). A device that does not cut all that a port may leave to it is
    // left nothing: the port does that in software.
    const TSO: u64 = HOST_TSO4 | HOST_TSO6 | HOST_ECN;
    if offered & (CSUM | TSO) == CSUM | TSO {
        wanted |= TSO;
    }
    if config.large && offered & GUEST_CSUM != 0 {
        wanted |= GUEST_TSO4 | GUEST_TSO6;
        if offered & (GUEST_TSO4 | GUEST_TSO6) != 0 {
            wanted |= GUEST_ECN;
        }
    }
    wanted
}
