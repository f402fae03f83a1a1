//! Ethernet's constants (IEEE 802.3, 802.1Q).

/// Destination, source and type: bytes in front of the payload.
pub const HEADER_SIZE: usize = 14;
/// An 802.1Q tag.
pub const VLAN_TAG_SIZE: usize = 4;
/// EtherType of an 802.1Q tag.
pub const TYPE_VLAN: u16 = 0x8100;
/// EtherType of IPv4.
pub const TYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const TYPE_IPV6: u16 = 0x86dd;
/// EtherType of ARP.
pub const TYPE_ARP: u16 = 0x0806;

/// Length in bytes of the link header of `frame`: 18 with an 802.1Q tag, else 14. A tag does not
/// count against the MTU.
pub fn link_header_size(frame: &[u8]) -> usize {
    match frame.get(12..14) {
        Some([0x81, 0x00]) => HEADER_SIZE + VLAN_TAG_SIZE,
        _ => HEADER_SIZE,
    }
}
