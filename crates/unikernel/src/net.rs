//! A network port: a tap or macvtap that the host attached, with or without virtio-net headers, or
//! a NIC with a driver of the image's own.

mod nic;

use crate::boot::{Attached, DeviceError, boot, pool, ring_room};
use crate::counters::{Counter, counter};
use crate::host::{self, Errno, Handle};
use crate::ledger::{Ledger, Sent};
use crate::ring::{self, Buffers};
use abi::capture::Fate;
use abi::extension::device_flag;
use abi::manifest::Device;
use abi::share::{COUNTERS_PER_PORT, PortCounter};
use alloc::rc::Rc;
use device::ethernet::{HEADER_SIZE, link_header_size};
use device::{BATCH_FRAMES_MAX, Batch, Frame, Netif, NicHandle, Offloads, WaitHandle, virtio};

/// Reads in a row that may fail before the port counts as gone: a device that the host reports as
/// ready for ever and that never yields a frame would keep the guest spinning.
const READ_ERRORS_MAX: u32 = 1000;

/// Receptions in a row that must find a frame before a port reads on until it finds none.
///
/// To read once more and find nothing costs a frame's way through as much as any call. Where frames
/// come one by one it is left out: a port takes one frame and leaves it to `wait`, which must be
/// called anyway, to say whether there are more.
const STREAK_MIN: u32 = 8;

/// A network port of the manifest.
pub struct Port {
    ledger: Ledger,
    link: Link,
    index: u8,
    mac: [u8; 6],
    mtu: usize,
    offloads: Offloads,
    /// What frames are received into; whether they carry virtio-net headers, and with them
    /// deferred checksums and TSO.
    buffers: Buffers,
    /// Longest frame that is received, virtio-net header left out.
    receive_max: usize,
    read_errors: u32,
    /// Receptions in a row that found a frame.
    streak: u32,
    /// Whether the host captures what was received last.
    captured: bool,
}

/// How frames come and go.
enum Link {
    /// By a call each.
    Calls(Handle),
    /// Through rings.
    Rings(Rc<ring::Net>),
    /// By a driver of the image's own.
    Nic(NicHandle<Ledger>),
}

impl Port {
    pub(crate) fn new(attached: Attached) -> Result<Self, DeviceError> {
        let Some(Device::Net { mac, mtu }) = attached.entry.device() else {
            return Err(DeviceError::OtherKind);
        };
        let pool = pool();
        let receive_max = device::FRAME_BYTES_MAX.min(pool.frame_bytes_max() - 1);
        let buffers = Buffers {
            pool,
            most: ring_room(),
            bytes: receive_max + 1,
            virtio: attached.flags & device_flag::VIRTIO_NET_HEADER != 0,
        };
        let index = attached.index;
        let ledger = Ledger::new(index, attached.entry.name().unwrap_or(""));
        let rings = boot().rings.as_ref();
        let rings = rings.filter(|_| attached.flags & device_flag::RING != 0);
        let link = match rings.and_then(|rings| rings.net(index, ledger, buffers)) {
            Some(rings) => Link::Rings(rings),
            None => Link::Calls(attached.handle),
        };
        Ok(Self {
            ledger,
            link,
            index,
            mac,
            mtu: usize::from(mtu),
            offloads: Offloads {
                checksum: buffers.virtio,
                tso: buffers.virtio,
            },
            buffers,
            receive_max,
            read_errors: 0,
            streak: 0,
            captured: false,
        })
    }

    /// Its name in the manifest.
    pub fn name(&self) -> &'static str {
        self.ledger.name
    }

    /// The counter of this number in the port's block, for what the appliance itself counts:
    /// numbers from [`abi::share::PORT_APPLIANCE`] to [`COUNTERS_PER_PORT`].
    pub fn counter(&self, number: usize) -> Counter {
        counter(usize::from(self.index) * COUNTERS_PER_PORT + number)
    }

    /// Says in captures what became of a frame that this port received since the last
    /// [`crate::wait`] and that the appliance drops: which of the port's counters counted it, or
    /// which rule dropped it. The frame begins where it began when it was received.
    #[inline]
    pub fn dropped(&self, frame: &Frame, fate: Fate) {
        if self.captured {
            boot().capture.dropped(frame.bytes(), fate);
        }
    }

    #[inline]
    fn count(&self, what: PortCounter, amount: u64) {
        self.ledger.count(what, amount);
    }

    /// One frame from the host. `None`: there is none, or there is no buffer for it.
    #[inline]
    fn receive_frame(&mut self) -> Option<Received> {
        let (mut frame, read) = match &self.link {
            Link::Nic(_) => return None,
            Link::Rings(rings) => rings.receive()?,
            Link::Calls(handle) => {
                let Some(mut frame) = self.buffers.room() else {
                    self.count(PortCounter::NoBuffer, 1);
                    return None;
                };
                let read = host::read(*handle, frame.bytes_mut());
                (frame, read)
            }
        };
        match read {
            Ok(length) => {
                self.read_errors = 0;
                frame.truncate(length);
                Some(self.check(frame))
            }
            Err(Errno::AGAIN) => None,
            Err(errno) => {
                self.read_failed(errno);
                None
            }
        }
    }

    /// Checks length and virtio-net header of a frame that was just read.
    #[inline]
    fn check(&self, mut frame: Frame) -> Received {
        let mut header = [0; virtio::HEADER_SIZE];
        if self.buffers.virtio {
            if let Some(bytes) = frame.bytes().first_chunk() {
                header = *bytes;
            }
            if !frame.pop_front(virtio::HEADER_SIZE) {
                frame.truncate(0);
                return Received::Drop(PortCounter::RxRunt, frame);
            }
        }
        if frame.len() < HEADER_SIZE {
            return Received::Drop(PortCounter::RxRunt, frame);
        }
        if frame.len() > self.receive_max {
            return Received::Drop(PortCounter::RxTooLong, frame);
        }
        match virtio::parse(&header, frame.bytes()) {
            Ok(offload) => {
                frame.set_offload(offload);
                Received::Frame(frame)
            }
            Err(_) => Received::Drop(PortCounter::RxBadHeader, frame),
        }
    }

    #[cold]
    fn read_failed(&mut self, errno: Errno) {
        self.count(PortCounter::RxError, 1);
        self.read_errors += 1;
        if errno == Errno::BAD_STATE || self.read_errors > READ_ERRORS_MAX {
            self.ledger.gone(errno);
        }
    }

    /// Sends a frame whose MTU has been checked.
    #[inline]
    fn write(&self, mut frame: Frame) -> Sent {
        let length = frame.len() as u64;
        if self.buffers.virtio {
            let header = virtio::emit(frame.offload());
            match frame.push_front(virtio::HEADER_SIZE) {
                Some(room) => room.copy_from_slice(&header),
                None => return self.ledger.refused(Errno::NO_BUFFERS),
            }
        } else if !self.offloads.checksum {
            frame.offload().complete_checksum(frame.bytes_mut());
        }
        let handle = match &self.link {
            Link::Nic(nic) => return nic.stage(frame).into(),
            Link::Rings(rings) => return rings.send(frame),
            Link::Calls(handle) => *handle,
        };
        match host::write(handle, frame.bytes()) {
            Ok(_) => Sent::one(length),
            Err(errno) => self.ledger.refused(errno),
        }
    }

    /// Cuts a frame into segments, which leave with complete checksums.
    #[cold]
    fn write_segments(&self, frame: Frame, gso: device::Gso) -> Sent {
        self.count(PortCounter::TxSegmented, 1);
        let mut sent = Sent::default();
        let Some(mut segments) = device::segments(frame.bytes(), gso) else {
            return self.ledger.lost(PortCounter::TxRefused);
        };
        loop {
            let Some(mut segment) = self.buffers.pool.alloc(gso.segment_bytes()) else {
                sent.add(self.ledger.lost(PortCounter::NoBuffer));
                break;
            };
            let Some(length) = segments.next(segment.bytes_mut()) else {
                break;
            };
            segment.truncate(length);
            sent.add(self.write(segment));
        }
        sent
    }

    /// Sends one frame, whatever it takes.
    #[inline]
    fn send_frame(&self, frame: Frame) -> Sent {
        let limit = self.mtu + link_header_size(frame.bytes());
        let wire_length = match frame.offload().gso {
            None => frame.len(),
            Some(gso) => gso.segment_bytes().min(frame.len()),
        };
        if wire_length > limit {
            return self.ledger.lost(PortCounter::TxTooBig);
        }
        match frame.offload().gso {
            Some(gso) if !self.offloads.tso => self.write_segments(frame, gso),
            _ => self.write(frame),
        }
    }

    /// Captures a received frame, with the reason if it was dropped here.
    #[cold]
    fn capture_received(&self, frame: &Frame, reason: Option<PortCounter>) {
        let capture = &boot().capture;
        let position = capture.received(self.index, frame.bytes());
        match (position, reason) {
            (None, _) => self.count(PortCounter::CaptureLost, 1),
            (Some(position), Some(reason)) => capture.amend(position, reason.into()),
            (Some(_), None) => {}
        }
    }

    /// Captures a frame as it is handed over, sends it, and captures what became of it; where the
    /// host says that later, through rings, or a NIC has no room, it counts as sent.
    #[cold]
    fn capture_sent(&self, frame: Frame) -> Sent {
        let capture = &boot().capture;
        let position = capture.transmitted(self.index, frame.bytes());
        let sent = self.send_frame(frame);
        match (position, sent.lost) {
            (None, _) => self.count(PortCounter::CaptureLost, 1),
            (Some(position), Some(reason)) => capture.amend(position, reason.into()),
            (Some(_), None) => {}
        }
        sent
    }
}

enum Received {
    Frame(Frame),
    Drop(PortCounter, Frame),
}

impl Netif for Port {
    fn name(&self) -> &str {
        self.ledger.name
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    fn offloads(&self) -> Offloads {
        self.offloads
    }

    fn alloc(&mut self, len: usize) -> Option<Frame> {
        if len > self.max_frame() {
            return None;
        }
        self.buffers.pool.alloc(len)
    }

    fn receive(&mut self, batch: &mut Batch) {
        if let Link::Nic(_) = self.link {
            return self.receive_from_nic(batch);
        }
        let (mut frames, mut bytes) = (0, 0);
        // A dropped frame counts against the batch too, so that garbage cannot hold the loop.
        let most = match self.link {
            Link::Calls(_) if self.streak < STREAK_MIN => 1,
            _ => BATCH_FRAMES_MAX,
        };
        self.streak = self.streak.saturating_add(1);
        self.captured = boot().capture.wants(self.index);
        for _ in 0..most {
            if batch.is_full() {
                break;
            }
            match self.receive_frame() {
                None => {
                    self.streak = 0;
                    break;
                }
                Some(Received::Drop(reason, frame)) => {
                    self.count(reason, 1);
                    if self.captured {
                        self.capture_received(&frame, Some(reason));
                    }
                }
                Some(Received::Frame(frame)) => {
                    if self.captured {
                        self.capture_received(&frame, None);
                    }
                    frames += 1;
                    bytes += frame.len() as u64;
                    let _ = batch.push(frame);
                }
            }
        }
        if let Link::Rings(rings) = &self.link
            && !rings.offer()
        {
            self.count(PortCounter::NoBuffer, 1);
        }
        self.count(PortCounter::RxFrames, frames);
        self.count(PortCounter::RxBytes, bytes);
    }

    fn transmit(&mut self, batch: &mut Batch) {
        if let Link::Nic(_) = self.link {
            return self.transmit_to_nic(batch);
        }
        let mut sent = Sent::default();
        if let Link::Rings(rings) = &self.link {
            rings.finish_sent();
        }
        let captured = boot().capture.wants(self.index);
        for frame in batch.drain() {
            sent.add(match captured {
                true => self.capture_sent(frame),
                false => self.send_frame(frame),
            });
        }
        self.ledger.sent(&sent);
        if let Link::Rings(rings) = &self.link {
            rings.post_sent();
        }
    }

    fn wait_handle(&self) -> WaitHandle {
        WaitHandle(self.index)
    }
}

const _: () = assert!(device::HEADROOM >= virtio::HEADER_SIZE);
