//! Frames for tests.

use super::checksum::{fold, set_word, sum};
use super::headers::{IPV4_CHECKSUM, Ip, TCP, TCP_CHECKSUM, UDP, UDP_CHECKSUM};

/// `len` bytes, no two neighbours alike.
pub(crate) fn bytes(len: usize) -> Vec<u8> {
    (0..len)
        .map(|index| (index * 7 + index / 251) as u8)
        .collect()
}

/// Where frames go and come from.
pub(crate) const DESTINATION: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn ethernet(v6: bool, tag: Option<u16>) -> Vec<u8> {
    let mut frame = [DESTINATION, SOURCE].concat();
    if let Some(tag) = tag {
        frame.extend_from_slice(&[0x81, 0x00]);
        frame.extend_from_slice(&tag.to_be_bytes());
    }
    frame.extend_from_slice(if v6 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
    frame
}

fn ip(frame: &mut Vec<u8>, v6: bool, protocol: u8, len: usize) {
    let start = frame.len();
    if v6 {
        frame.extend_from_slice(&[0x60, 0, 0, 0, 0, 0, protocol, 64]);
        set_word(frame, start + 4, len as u16);
        frame.extend((0..32).map(|byte| byte * 3));
        return;
    }
    frame.extend_from_slice(&[0x45, 0, 0, 0, 0, 9, 0x40, 0, 64, protocol, 0, 0]);
    frame.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    set_word(frame, start + 2, (20 + len) as u16);
    let checksum = !fold(sum(&frame[start..]));
    set_word(frame, start + IPV4_CHECKSUM, checksum);
}

fn finish(mut frame: Vec<u8>, field: usize) -> Vec<u8> {
    let ip = Ip::find(&frame).unwrap();
    let payload = ip.end - ip.payload;
    let total = ip.pseudo_header(&frame, payload) + sum(&frame[ip.payload..ip.end]);
    set_word(&mut frame, ip.payload + field, !fold(total));
    frame
}

/// A TCP segment (ACK) with these bytes.
pub(crate) fn tcp(v6: bool, tag: Option<u16>, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = ethernet(v6, tag);
    ip(&mut frame, v6, TCP, 20 + payload.len());
    frame.extend_from_slice(&[0x12, 0x34, 0x00, 0x50]);
    frame.extend_from_slice(&sequence.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, 1, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
    frame.extend_from_slice(payload);
    finish(frame, TCP_CHECKSUM)
}

/// A UDP datagram with these bytes.
pub(crate) fn udp(v6: bool, tag: Option<u16>, payload: &[u8]) -> Vec<u8> {
    let mut frame = ethernet(v6, tag);
    ip(&mut frame, v6, UDP, 8 + payload.len());
    frame.extend_from_slice(&[0x12, 0x34, 0x00, 0x35]);
    frame.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(payload);
    finish(frame, UDP_CHECKSUM)
}
