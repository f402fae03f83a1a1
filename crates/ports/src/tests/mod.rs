//! Each kind of port, disks and captures over a host that does what a test says.

mod capture;
mod disk;
mod inquiry;
mod layer;
mod message;
mod nic;
mod tap;

use alloc::vec;
use alloc::vec::Vec;
use device::{Batch, Netif};

/// A frame of so many bytes that carries no IP.
pub(crate) fn frame(length: usize) -> Vec<u8> {
    (0..length).map(|i| i as u8).collect()
}

/// The same behind a virtio-net header that leaves nothing to do.
fn with_header(length: usize) -> Vec<u8> {
    [vec![0; device::virtio::HEADER_SIZE], frame(length)].concat()
}

/// Lengths of what a port receives at once.
pub(crate) fn received(port: &mut dyn Netif) -> Vec<usize> {
    let mut batch = Batch::new();
    port.receive(&mut batch);
    batch.iter().map(device::Frame::len).collect()
}

/// Sends frames of these lengths together.
pub(crate) fn send(port: &mut dyn Netif, lengths: &[usize]) {
    let mut batch = Batch::new();
    for length in lengths {
        let mut sent = port.alloc(*length).expect("a buffer");
        sent.bytes_mut().copy_from_slice(&frame(*length));
        batch.push(sent).expect("room");
    }
    port.transmit(&mut batch);
    assert!(batch.is_empty());
}

/// An Ethernet frame with a TCP packet over IPv4 that carries so many bytes, its checksum left to
/// be completed and to be cut into segments of `size` bytes.
pub(crate) fn large(port: &mut dyn Netif, payload: usize, size: u16) -> device::Frame {
    let length = 54 + payload;
    let mut frame = port.alloc(65_000).expect("a buffer");
    frame.truncate(length);
    let bytes = frame.bytes_mut();
    bytes.fill(0);
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14] = 0x45;
    bytes[16..18].copy_from_slice(&((length - 14) as u16).to_be_bytes());
    bytes[23] = 6;
    bytes[46] = 0x50;
    frame.set_offload(device::Offload {
        checksum: Some(device::offload::Checksum {
            start: 34,
            offset: 16,
        }),
        gso: Some(device::Gso {
            kind: device::GsoKind::TcpV4,
            size,
            header: 54,
            ecn: false,
        }),
    });
    frame
}
