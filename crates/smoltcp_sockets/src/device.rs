//! A port as smoltcp sees it: frames in, frames out, one at a time.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use device::ethernet::HEADER_SIZE;
use device::{Batch, Frame, Netif, Offload, Transport, checksum};
use net::address::pseudo_sum;
use smoltcp::phy::{Checksum, ChecksumCapabilities, DeviceCapabilities, Medium};
use smoltcp::phy::{Device, RxToken, TxToken};
use smoltcp::time::Instant;

/// Protocol number of TCP.
const TCP: u8 = 6;
/// Where the checksum lies in TCP's header (RFC 9293, 3.1).
const TCP_CHECKSUM: usize = 16;

/// A port, what has come from it and what is to leave.
pub struct Phy {
    port: Box<dyn Netif>,
    arrived: Batch,
    /// Frames of `arrived`, the last one first.
    waiting: Vec<Frame>,
    leaving: Batch,
    /// Largest frame that smoltcp makes, Ethernet header included.
    frame_bytes_max: usize,
    /// TCP's checksum is left to the port, and the port may leave it to us.
    checksum: bool,
}

impl Phy {
    /// This port.
    pub fn new(port: Box<dyn Netif>) -> Self {
        Self {
            frame_bytes_max: port.mtu() + HEADER_SIZE,
            checksum: port.offloads().checksum,
            port,
            arrived: Batch::new(),
            waiting: Vec::new(),
            leaving: Batch::new(),
        }
    }

    /// The port's address.
    pub fn mac(&self) -> [u8; 6] {
        self.port.mac()
    }

    /// Largest packet in bytes.
    pub fn mtu(&self) -> usize {
        self.port.mtu()
    }

    /// Takes one batch from the port, unless frames of the last one still wait; how many wait now.
    pub fn look(&mut self) -> usize {
        if self.waiting.is_empty() {
            self.port.receive(&mut self.arrived);
            let checksum = self.checksum;
            let whole = self.arrived.drain().rev();
            self.waiting.extend(whole.filter_map(|frame| {
                if checksum {
                    checked(frame)
                } else {
                    Some(frame)
                }
            }));
        }
        self.waiting.len()
    }

    /// Hands what was sent to the port.
    pub fn flush(&mut self) {
        if !self.leaving.is_empty() {
            self.port.transmit(&mut self.leaving);
        }
    }

    /// A frame to be filled; `None` while the port has no buffer.
    fn free(&mut self) -> Option<Frame> {
        // smoltcp does not learn of an MTU that becomes smaller.
        let len = self.frame_bytes_max.min(self.port.max_frame());
        if let Some(frame) = self.port.alloc(len) {
            return Some(frame);
        }
        self.flush();
        self.port.alloc(len)
    }
}

/// smoltcp asks once for all protocols whether it is to look at checksums, and a port says so of
/// each frame. So TCP's are looked at here; those of UDP are completed for it.
fn checked(mut frame: Frame) -> Option<Frame> {
    let is_tcp = |found: &Transport| found.protocol == TCP;
    let tcp = Transport::find(frame.bytes()).filter(is_tcp);
    match (tcp, frame.offload().checksum) {
        (Some(_), Some(_)) => Some(frame),
        (None, Some(_)) => {
            let offload = frame.offload();
            offload.complete_checksum(frame.bytes_mut());
            Some(frame)
        }
        (Some(tcp), None) => {
            let (start, len, pseudo) = covered(frame.bytes(), &tcp)?;
            let bytes = frame.bytes().get(start..start + len)?;
            (checksum::fold(checksum::sum(bytes) + pseudo) == 0xffff).then_some(frame)
        }
        (None, None) => Some(frame),
    }
}

/// Where the bytes begin that TCP's checksum covers, how many they are, and the sum of the pseudo
/// header; `None` if the packet is cut off.
fn covered(frame: &[u8], tcp: &Transport) -> Option<(usize, usize, u64)> {
    let ip = frame.get(tcp.ip..)?;
    let be16 = |at: usize| {
        Some(usize::from(u16::from_be_bytes(
            *ip.get(at..)?.first_chunk()?,
        )))
    };
    let (source, destination, end): (IpAddr, IpAddr, usize) = match tcp.ipv6 {
        true => (
            (*ip.get(8..)?.first_chunk::<16>()?).into(),
            (*ip.get(24..)?.first_chunk::<16>()?).into(),
            be16(4)? + 40,
        ),
        false => (
            (*ip.get(12..)?.first_chunk::<4>()?).into(),
            (*ip.get(16..)?.first_chunk::<4>()?).into(),
            be16(2)?,
        ),
    };
    let len = (tcp.ip + end).checked_sub(tcp.start)?;
    Some((tcp.start, len, pseudo_sum(source, destination, TCP, len)))
}

/// Leaves TCP's checksum to the port, as virtio wants it: its place holds the sum of the pseudo
/// header (virtio 1.2, 5.1.6.2).
fn leave_checksum(frame: &mut Frame) {
    let found = Transport::find(frame.bytes()).filter(|found| found.protocol == TCP);
    let Some(tcp) = found else {
        return;
    };
    let Some((start, _, pseudo)) = covered(frame.bytes(), &tcp) else {
        return;
    };
    let place = frame.bytes_mut().get_mut(start + TCP_CHECKSUM..);
    let Some(place) = place.and_then(|rest| rest.first_chunk_mut()) else {
        return;
    };
    *place = checksum::fold(pseudo).to_ne_bytes();
    frame.set_offload(Offload {
        // A header begins within the frame, which is shorter than 64 KiB.
        checksum: Some(device::Checksum {
            start: start as u16,
            offset: TCP_CHECKSUM as u16,
        }),
        gso: None,
    });
}

impl Device for Phy {
    type RxToken<'a> = Received;
    type TxToken<'a> = Free<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Free<'_>)> {
        // What arrives may be answered at once.
        let frame = (!self.waiting.is_empty()).then(|| self.free())??;
        let received = Received(self.waiting.pop()?);
        Some((received, Free { frame, phy: self }))
    }

    fn transmit(&mut self, _: Instant) -> Option<Free<'_>> {
        let frame = self.free()?;
        Some(Free { frame, phy: self })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut checksum = ChecksumCapabilities::default();
        if self.checksum {
            checksum.tcp = Checksum::None;
        }
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.frame_bytes_max;
        capabilities.checksum = checksum;
        capabilities
    }
}

/// A frame that has come.
pub struct Received(Frame);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0.bytes())
    }
}

/// A frame to be filled. Unused, it goes back to its pool.
pub struct Free<'a> {
    frame: Frame,
    phy: &'a mut Phy,
}

impl TxToken for Free<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let Self { mut frame, phy } = self;
        if len > frame.len() {
            // As a port does with what exceeds its MTU: it is lost.
            return f(&mut vec![0; len]);
        }
        frame.truncate(len);
        let result = f(frame.bytes_mut());
        if phy.checksum {
            leave_checksum(&mut frame);
        }
        if phy.leaving.is_full() {
            phy.flush();
        }
        // It has room, as a port leaves the batch empty.
        let _ = phy.leaving.push(frame);
        result
    }
}
