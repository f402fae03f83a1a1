//! Ports in memory whose network the test keeps in hand.

use crate::address::Prefix;
use crate::arp::Detect;
use crate::ethernet::Ethernet;
use crate::ip::Ip;
use crate::ipv4::Ipv4;
use crate::ipv6::Ipv6;
use crate::stack::Stack;
use crate::tcp::Config;
use crate::tcp::host::Tcp;
use crate::tcp::identity::Secret;
use crate::version::Addresses;
use alloc::boxed::Box;
use alloc::vec;
use core::net::Ipv4Addr;
use core::time::Duration;
use device::memory::MemoryPort;
pub(crate) use device::memory::{Port, Wire};
use device::{Frame, HEADROOM, Netif, Pool};
use ports::Instant;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::vec::Vec;
use zerocopy::IntoBytes;

/// A port with an MTU of 1500 bytes and no offloads.
pub(crate) fn port() -> (Port, Wire) {
    MemoryPort::new("net").split()
}

/// The same, with segmentation left to the port.
pub(crate) fn port_with_tso() -> (Port, Wire) {
    MemoryPort::new("net").with_tso().split()
}

/// A frame with these bytes, of a pool of its own.
pub(crate) fn frame(bytes: &[u8]) -> Frame {
    let size = HEADROOM + bytes.len().max(1);
    let mut frame = Pool::new(vec![0; size].leak(), size)
        .alloc(bytes.len())
        .unwrap();
    frame.bytes_mut().copy_from_slice(bytes);
    frame
}

/// A point in time, so many milliseconds after the tests' beginning.
pub(crate) fn at(milliseconds: u64) -> Instant {
    Instant::PAST + Duration::from_secs(1000) + Duration::from_millis(milliseconds)
}

/// Memory that outlives a host, with these bytes, at a multiple of 4.
pub(crate) fn lasting(bytes: &[u8]) -> &'static mut [u8] {
    let memory = vec![0_u32; bytes.len().div_ceil(4)].leak().as_mut_bytes();
    let memory = &mut memory[..bytes.len()];
    memory.copy_from_slice(bytes);
    memory
}

/// What lies there, as the next host will find it, while another one has that memory.
pub(crate) fn lying(address: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let memory = File::open("/proc/self/mem").unwrap();
    memory.read_exact_at(&mut bytes, address as u64).unwrap();
    bytes
}

/// Buffers for whole packets.
pub(crate) fn large(count: usize) -> Pool {
    let size = HEADROOM + 40 + 65_535;
    Pool::new(vec![0; count * size].leak(), size)
}

/// A whole stack with the address 10.0.0.1.
pub(crate) fn stack() -> (Stack<Ipv4, Ipv6>, Wire) {
    let (port, wire) = port();
    (stack_over(Box::new(port)), wire)
}

/// The same over this port.
pub(crate) fn stack_over(port: Box<dyn Netif>) -> Stack<Ipv4, Ipv6> {
    let large = large(1);
    let mut v4 = Ipv4::new(large, 0);
    let own = Prefix::new(Ipv4Addr::new(10, 0, 0, 1), 24).unwrap();
    v4.add_address(own, Detect::Later, at(0));
    let ip = Ip::new(Ethernet::new(port), v4, Ipv6::new(large, 0));
    let tcp = Tcp::new(Config::default(), Secret::new([0; 16]), [0; 16], 1000);
    Stack::new(ip, tcp, at(0))
}
