//! The device's own configuration (5.1.4), its features (5.1.3) and its queues (5.1.2).

use hw::Register;

/// The MAC address: six bytes from here on.
pub const MAC: Register<u8> = Register::new("mac", 0, "5.1.4");
/// What the link does.
pub const STATUS: Register<u16> = Register::new("status", 6, "5.1.4");
/// The link is up.
pub const STATUS_LINK_UP: u16 = 1 << 0;
/// Largest payload of a frame.
pub const MTU: Register<u16> = Register::new("mtu", 10, "5.1.4");
/// Speed in Mb/s, or all ones.
pub const SPEED: Register = Register::new("speed", 12, "5.1.4");
/// Bytes of the configuration that every device has.
pub const CONFIG_BYTES: usize = 6;

/// The device completes checksums.
pub const CSUM: u64 = 1 << 0;
/// The driver takes frames whose checksum is to be completed.
pub const GUEST_CSUM: u64 = 1 << 1;
/// There is an MTU in the configuration.
pub const HAS_MTU: u64 = 1 << 3;
/// There is a MAC address in the configuration.
pub const HAS_MAC: u64 = 1 << 5;
/// The driver takes large frames of TCP over IPv4.
pub const GUEST_TSO4: u64 = 1 << 7;
/// The same over IPv6.
pub const GUEST_TSO6: u64 = 1 << 8;
/// The same with explicit congestion notification.
pub const GUEST_ECN: u64 = 1 << 9;
/// The device cuts large frames of TCP over IPv4.
pub const HOST_TSO4: u64 = 1 << 11;
/// The same over IPv6.
pub const HOST_TSO6: u64 = 1 << 12;
/// The same with explicit congestion notification.
pub const HOST_ECN: u64 = 1 << 13;
/// A frame may lie in several buffers.
pub const MRG_RXBUF: u64 = 1 << 15;
/// There is the link's status in the configuration.
pub const HAS_STATUS: u64 = 1 << 16;
/// There is the link's speed in the configuration.
pub const SPEED_DUPLEX: u64 = 1 << 63;

/// The device fills this queue's buffers.
pub const RECEIVE_QUEUE: u16 = 0;
/// The device sends this queue's buffers.
pub const TRANSMIT_QUEUE: u16 = 1;
