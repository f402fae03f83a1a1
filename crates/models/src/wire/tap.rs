//! A tap: frames of up to 64 KiB cross it whole, with checksums left to do.

use super::{Incoming, Offload, Wire};
use crate::packet::coalesce::{Coalescer, Taken};
use crate::packet::headers::{UDP_CHECKSUM, UDP_HEADER};
use hw::sim::vectored::{self, Span, SpanMut};
use linux::interface::Interfaces;
use linux::mtu;
use linux::netlink::{self, Netlink};
use linux::tap::{self, Tap, VNET_HEADER_BYTES, offload};
use rustix::io::Errno;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Bytes of the virtio-net header in front of each frame (virtio 1.2, 5.1.6).
const HEADER: usize = VNET_HEADER_BYTES as usize;
/// Longest frame: an IP packet behind an Ethernet header with two tags.
const FRAME_BYTES_MAX: usize = 0xffff + 22;
/// How often the interface is looked at, whether it is up.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
/// Datagrams of UDP (virtio 1.3, 5.1.6).
const GSO_UDP: u8 = 5;
/// A bit beside the kind: CWR is set.
const GSO_ECN: u8 = 0x80;
const TCP_FLAGS: usize = 13;
const CWR: u8 = 0x80;

/// Why there is no tap.
#[derive(Debug)]
pub enum TapFault {
    /// It cannot be opened.
    Open(io::Error),
    /// It cannot be set up.
    Up(netlink::Error),
}

impl fmt::Display for TapFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => write!(f, "{error}"),
            Self::Up(error) => write!(f, "it cannot be set up: {error}"),
        }
    }
}

impl std::error::Error for TapFault {}

/// A tap with virtio-net headers.
///
/// Consecutive TCP segments that are sent between two [flushes](Wire::flush) cross it as one.
#[derive(Debug)]
pub struct TapWire {
    tap: Tap,
    buffer: Box<[u8]>,
    /// Bytes of header and frame in the buffer; zero for none.
    len: usize,
    /// Bytes of the frame that were put into places for them.
    placed: usize,
    coalescer: Coalescer,
    /// Whether the kernel cuts UDP, and leaves it to be cut.
    cuts_udp: bool,
    /// Frames that the tap refused.
    lost: u64,
    gone: bool,
    /// Tells whether it is up, unless its namespace cannot be entered.
    interfaces: Option<Interfaces>,
    /// Whether it was up when it was looked at, and when that was.
    is_up: bool,
    looked: Option<Instant>,
}

impl TapWire {
    /// Opens the tap `name` of this thread's network namespace, or makes it, and sets it up. Who
    /// may do neither needs one of his own that is up.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(name: &str) -> Result<Self, TapFault> {
        let tap = Tap::create(name, true).map_err(TapFault::Open)?;
        let interfaces = Interfaces::here().map_err(TapFault::Open)?;
        let name = tap.name();
        let raised = Netlink::open().and_then(|mut netlink| netlink.set_up(name));
        match raised {
            Err(fault) if !interfaces.is_up(name).unwrap_or(false) => Err(TapFault::Up(fault)),
            _ => Self::over(tap, Some(interfaces)),
        }
    }

    /// Takes the tap behind a descriptor that the parent passed as `number`.
    ///
    /// # Errors
    /// What the kernel says; `EINVAL` if it is no tap with virtio-net headers.
    pub fn adopt(number: i32) -> Result<Self, TapFault> {
        Self::new(Tap::adopt(number).map_err(TapFault::Open)?)
    }

    /// Takes a tap that was opened with virtio-net headers, in any network namespace. Where that
    /// may not be entered, the tap is taken for up.
    ///
    /// # Errors
    /// What the kernel says when it is asked to leave segmentation and checksums to us.
    pub fn new(tap: Tap) -> Result<Self, TapFault> {
        let interfaces = tap::namespace(tap.as_fd())
            .and_then(|_| mtu::beside(tap.as_fd(), Interfaces::here))
            .ok();
        Self::over(tap, interfaces)
    }

    fn over(tap: Tap, interfaces: Option<Interfaces>) -> Result<Self, TapFault> {
        // Kernels before 6.2 refuse what they do not know.
        let cuts_udp = tap.set_offloads(offload::ALL | offload::USO).is_ok();
        if !cuts_udp {
            tap.set_offloads(offload::ALL).map_err(TapFault::Open)?;
        }
        Ok(Self {
            tap,
            cuts_udp,
            buffer: vec![0; HEADER + FRAME_BYTES_MAX].into(),
            len: 0,
            placed: 0,
            coalescer: Coalescer::new(),
            lost: 0,
            gone: false,
            interfaces,
            is_up: true,
            looked: None,
        })
    }

    /// Frames that the tap refused: nobody reads them, or it is down.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// What it asks whether it is up, for a jail, which has to know; the tap itself is its
    /// [descriptor](Wire::descriptor).
    pub fn interfaces(&self) -> Option<BorrowedFd<'_>> {
        self.interfaces.as_ref().map(AsFd::as_fd)
    }

    /// Reads a frame, if there is one.
    fn read(&mut self, front: usize, places: &[SpanMut<'_>]) {
        let front = self.buffer.len().min(front.saturating_add(HEADER));
        match vectored::read(self.tap.as_fd(), &mut self.buffer[..front], places) {
            Ok(len) if len > HEADER => {
                self.len = len.min(front);
                self.placed = len - self.len;
            }
            Ok(_) => {}
            // The interface was deleted (`EBADFD`): it does not come back.
            Err(error) => {
                self.gone |= error.raw_os_error() == Some(Errno::BADFD.raw_os_error());
            }
        }
    }

    fn send_held(&mut self) {
        if let Some((frame, offload)) = self.coalescer.take() {
            self.lost += u64::from(write(self.tap.as_fd(), frame, offload).is_err());
        }
    }
}

impl Wire for TapWire {
    fn is_up(&mut self) -> bool {
        if self
            .looked
            .is_none_or(|looked| looked.elapsed() >= LOOK_EVERY)
        {
            self.looked = Some(Instant::now());
            let interfaces = self.interfaces.as_ref();
            let up = interfaces.and_then(|all| all.is_up(self.tap.name()).ok());
            self.is_up = up.unwrap_or(true);
        }
        self.is_up && !self.gone
    }

    fn peek(&mut self) -> Option<(&[u8], Offload)> {
        let whole = self.peek_split(FRAME_BYTES_MAX, &[])?;
        Some((whole.frame, whole.offload))
    }

    fn take(&mut self) {
        (self.len, self.placed) = (0, 0);
    }

    fn peek_split(&mut self, headers: usize, places: &[SpanMut<'_>]) -> Option<Incoming<'_>> {
        if self.len == 0 {
            self.read(headers, places);
        }
        let (header, frame) = self.buffer[..self.len].split_first_chunk::<HEADER>()?;
        Some(Incoming {
            frame,
            placed: self.placed,
            offload: parse(header),
        })
    }

    fn linearize(&mut self, places: &[SpanMut<'_>]) {
        let mut end = self.len + std::mem::take(&mut self.placed);
        end = end.min(self.buffer.len());
        for place in places {
            self.len += place.as_span().copy_to(&mut self.buffer[self.len..end]);
        }
    }

    fn takes_large_frames(&self) -> bool {
        true
    }

    fn takes_large_datagrams(&self) -> bool {
        self.cuts_udp
    }

    fn send(&mut self, frame: &[u8], offload: Offload) {
        if offload == Offload::default() {
            if self.coalescer.offer(frame) == Taken::Refused {
                self.send_held();
                if self.coalescer.offer(frame) == Taken::Refused {
                    self.lost += u64::from(write(self.tap.as_fd(), frame, offload).is_err());
                }
            }
            if self.coalescer.is_full() {
                self.send_held();
            }
            return;
        }
        self.send_held();
        self.lost += u64::from(write(self.tap.as_fd(), frame, offload).is_err());
    }

    fn sends_fragments(&self) -> bool {
        true
    }

    fn send_fragments(&mut self, headers: &[u8], payload: &[Span<'_>], offload: Offload) {
        self.send_held();
        let front = [&header(headers, offload), headers];
        self.lost += u64::from(vectored::write(self.tap.as_fd(), front, payload).is_err());
    }

    fn flush(&mut self) {
        self.send_held();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.tap.as_fd())
    }
}

fn write(tap: BorrowedFd<'_>, frame: &[u8], offload: Offload) -> Result<(), Errno> {
    let header = header(frame, offload);
    let parts = [IoSlice::new(&header), IoSlice::new(frame)];
    rustix::io::writev(tap, &parts).map(drop)
}

/// What a virtio-net header leaves to do. Kinds of segmentation that were not asked for do not
/// come.
fn parse(header: &[u8; HEADER]) -> Offload {
    let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let checksum = (header[0] & NEEDS_CHECKSUM != 0).then(|| (word(6), word(8)));
    let segment = (header[1] & !GSO_ECN != GSO_NONE).then(|| word(4));
    Offload { checksum, segment }
}

/// The virtio-net header of a frame.
fn header(frame: &[u8], offload: Offload) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let mut set = |at: usize, value: u16| {
        header[at..at + 2].copy_from_slice(&value.to_le_bytes());
    };
    let Some((start, offset)) = offload.checksum else {
        return header;
    };
    set(6, start);
    set(8, offset);
    let tcp = frame.get(usize::from(start)..).unwrap_or_default();
    let is_udp = usize::from(offset) == UDP_CHECKSUM;
    if let Some(size) = offload.segment {
        let own = match tcp.get(12) {
            _ if is_udp => UDP_HEADER as u16,
            byte => byte.map_or(20, |byte| u16::from(byte >> 4) * 4),
        };
        set(2, start + own);
        set(4, size);
    }
    header[0] = NEEDS_CHECKSUM;
    if offload.segment.is_some() && is_udp {
        header[1] = GSO_UDP;
    } else if offload.segment.is_some() {
        let is_v6 = frame.get(12..14) == Some(&[0x86, 0xdd])
            || frame.get(12..14) == Some(&[0x81, 0x00]) && frame.get(16..18) == Some(&[0x86, 0xdd]);
        header[1] = if is_v6 { GSO_TCP6 } else { GSO_TCP4 };
        if tcp.get(TCP_FLAGS).is_some_and(|flags| flags & CWR != 0) {
            header[1] |= GSO_ECN;
        }
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::samples;

    #[test]
    fn a_header_says_what_is_left_to_do() {
        for (v6, tag, kind) in [(false, None, 1), (true, None, 4), (true, Some(5), 4)] {
            let frame = samples::tcp(v6, tag, 1, &samples::bytes(3000));
            let start = frame.len() as u16 - 3020;
            let offload = Offload {
                checksum: Some((start, 16)),
                segment: Some(1000),
            };
            let header = header(&frame, offload);
            assert_eq!(header[..2], [1, kind]);
            assert_eq!(u16::from_le_bytes([header[2], header[3]]), start + 20);
            assert_eq!(parse(&header), offload);
        }
        for (v6, start) in [(false, 34), (true, 54)] {
            let frame = samples::udp(v6, None, &samples::bytes(3000));
            let offload = Offload {
                checksum: Some((start, 6)),
                segment: Some(1000),
            };
            let header = header(&frame, offload);
            assert_eq!(header[..4], [1, 5, start as u8 + 8, 0]);
            assert_eq!(parse(&header), offload);
        }
        assert_eq!(header(&[0; 60], Offload::default()), [0; HEADER]);
    }
}
