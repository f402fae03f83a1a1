//! A network that the host attached: what its ports share, whether frames come and go by calls or
//! through rings. Frames may carry virtio-net headers, and with them deferred checksums, TSO, and
//! USO where the host takes it.

use crate::DeviceError;
use crate::devices::Attached;
use crate::host::{Errno, Handle};
use crate::ledger::Ledger;
use crate::mtu::Mtu;
use crate::port::{Port, Received};
use crate::runtime::Runtime;
use abi::extension::device_flag;
use abi::manifest::Device;
use abi::share::PortCounter;
use core::cell::Cell;
use device::{Frame, Offloads, Pool, virtio};

/// A network of the manifest, with all that a port needs but the way to the host.
pub struct Network {
    pub(crate) port: Port,
    pub(crate) handle: Handle,
    pub(crate) buffers: Buffers,
    /// Reads in a row that failed.
    read_errors: Cell<u32>,
}

/// What frames of a network are received into.
#[derive(Clone, Copy)]
pub(crate) struct Buffers {
    pub(crate) pool: Pool,
    /// Those to take before: of the port to which the frames go.
    pub(crate) before: Option<Pool>,
    /// Longest frame that is received, in bytes, virtio-net header left out.
    pub(crate) frame_bytes_max: usize,
    /// Whether there is such a header.
    pub(crate) virtio: bool,
}

impl Buffers {
    /// An empty buffer for a frame and its header, one byte longer than any frame, so that a frame
    /// that is too long is noticed.
    #[inline]
    pub(crate) fn take(&self) -> Option<Frame> {
        let bytes = self.frame_bytes_max + 1;
        let before = self.before.and_then(|pool| pool.alloc(bytes));
        let mut frame = before.or_else(|| self.pool.alloc(bytes))?;
        if self.virtio {
            frame.push_front(virtio::HEADER_SIZE)?;
        }
        Some(frame)
    }

    /// Bytes in front of each frame.
    pub(crate) fn header_bytes(&self) -> usize {
        if self.virtio { virtio::HEADER_SIZE } else { 0 }
    }
}

impl Network {
    pub(crate) fn new(runtime: &'static Runtime, attached: &Attached) -> Result<Self, DeviceError> {
        let Some(Device::Net { mac, mtu }) = attached.entry.device() else {
            return Err(DeviceError::OtherKind);
        };
        let pool = runtime.pool();
        let virtio = attached.flags & device_flag::VIRTIO_NET_HEADER != 0;
        Ok(Self {
            port: Port {
                ledger: Ledger::new(runtime, attached.index, attached.entry.name().unwrap_or("")),
                mac,
                mtu: Mtu::of_network(mtu, &runtime.share, attached.index),
                offloads: Offloads {
                    checksum: virtio,
                    tso: virtio,
                    uso: virtio && attached.flags & device_flag::UDP_SEGMENTATION != 0,
                },
                pool,
            },
            handle: attached.handle,
            buffers: Buffers {
                pool,
                before: None,
                frame_bytes_max: device::FRAME_BYTES_MAX.min(pool.frame_bytes_max() - 1),
                virtio,
            },
            read_errors: Cell::new(0),
        })
    }

    /// What came of reading into a buffer that [`Buffers::take`] made. `None`: there was no frame.
    #[inline]
    pub(crate) fn received(
        &self,
        mut buffer: Frame,
        read: Result<usize, Errno>,
    ) -> Option<Received> {
        match read {
            // A descriptor whose other end is closed reads nothing for ever, and is always ready.
            Ok(0) => self.failed(Errno::PIPE),
            Ok(length) => {
                self.read_errors.set(0);
                buffer.truncate(length);
                return Some(self.check(buffer));
            }
            Err(Errno::AGAIN) => {}
            Err(errno) => self.failed(errno),
        }
        None
    }

    #[cold]
    fn failed(&self, errno: Errno) {
        let errors = self.read_errors.get() + 1;
        self.read_errors.set(errors);
        self.port.ledger.read_failed(errno, errors);
    }

    /// Checks length and virtio-net header of a frame that was just read, and takes the header off.
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
        if frame.len() > self.buffers.frame_bytes_max {
            return Received::Drop(PortCounter::RxTooLong, frame);
        }
        Received::of(frame, &header)
    }

    /// Makes of a frame what the host is given: with a virtio-net header, or with its checksum
    /// completed. `false` if the frame has no headroom for the header.
    #[inline]
    pub(crate) fn encode(&self, frame: &mut Frame) -> bool {
        if !self.buffers.virtio {
            frame.offload().complete_checksum(frame.bytes_mut());
            return true;
        }
        let header = virtio::emit(frame.offload());
        let front = frame.push_front(virtio::HEADER_SIZE);
        front.map(|front| front.copy_from_slice(&header)).is_some()
    }
}

const _: () = assert!(device::HEADROOM >= virtio::HEADER_SIZE);
