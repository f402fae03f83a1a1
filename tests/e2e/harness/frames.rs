//! Frames to send: built by etherparse, so that no code of ours vouches for itself.

use etherparse::PacketBuilder;

/// The test's own address.
pub const TEST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x11];
/// An address that no interface has.
pub const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x22];
const FROM: [u8; 4] = [10, 10, 0, 1];
const TO: [u8; 4] = [10, 10, 0, 2];

/// A UDP datagram.
pub fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(TEST_MAC, PEER_MAC)
        .ipv4(FROM, TO, 64)
        .udp(999, port);
    let mut frame = Vec::new();
    builder
        .write(&mut frame, payload)
        .expect("a vector takes everything");
    frame
}

/// A TCP segment of a connection in progress, of any length up to 64 KiB.
pub fn tcp(port: u16, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(TEST_MAC, PEER_MAC)
        .ipv4(FROM, TO, 64)
        .tcp(999, port, 1000, 4096)
        .ack(77)
        .psh();
    let mut frame = Vec::new();
    builder
        .write(&mut frame, payload)
        .expect("a vector takes everything");
    frame
}

/// Bytes that tell where they belong.
pub fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i / 7) as u8 ^ i as u8).collect()
}

/// A virtio-net header and a TCP frame that leaves checksum and segmentation to the receiver.
pub fn unsegmented(port: u16, payload: &[u8], segment: u16) -> Vec<u8> {
    let mut frame = tcp(port, payload);
    let tcp_bytes = (frame.len() - 34) as u32;
    let words = FROM.chunks(2).chain(TO.chunks(2));
    let mut sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    sum += 6 + tcp_bytes;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    frame[50..52].copy_from_slice(&(sum as u16).to_be_bytes());
    let mut bytes = vec![1, 1, 54, 0];
    bytes.extend_from_slice(&segment.to_le_bytes());
    bytes.extend_from_slice(&[34, 0, 16, 0, 0, 0]);
    bytes.extend_from_slice(&frame);
    bytes
}
