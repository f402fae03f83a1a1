//! What one client has: each message of its becomes a reply, whatever it says.

use super::Interrupts;
use super::doorbells::Doorbells;
use super::pin::Pin;
use crate::client::Refused;
use crate::client::memory::{Memory, Range};
use crate::config::{self, ConfigSpace, Seen};
use crate::{Device, Identity, Progress};
use ::vfio_user::socket::MESSAGE_BYTES_MAX;
use ::vfio_user::{
    CapabilityHeader, DeviceInfo, DmaMap, DmaUnmap, HEADER_BYTES, Header, IrqInfo, IrqSet, MAJOR,
    MINOR, RegionAccess, RegionInfo, TypeCapability, Version, capability, command, device_flag,
    dma_flag, flag, irq, irq_info_flag, region, region_flag,
};
use abi::doorbell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Most bytes behind the header of a reply.
pub const PAYLOAD_MAX: usize = MESSAGE_BYTES_MAX - HEADER_BYTES;
/// Most bytes of a region in one message.
const DATA_MAX: usize = 4096;
/// What this side can do, ended by a NUL.
const CAPABILITIES: &[u8] = b"{\"capabilities\":{\"max_msg_fds\":8,\"max_data_xfer_size\":4096,\
    \"max_dma_maps\":64,\"pgsizes\":4096}}\0";
/// The region of doorbells, behind those that every PCI device has.
const DOORBELLS: u32 = region::COUNT;

/// An answer: so many bytes of the buffer, and whether the file of the doorbells goes with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Bytes behind the header.
    pub payload: usize,
    /// Whether [`Session::doorbells_file`] goes with it.
    pub with_doorbells: bool,
}

/// A client's view of the device.
pub struct Session {
    identity: Identity,
    introduced: bool,
    config: ConfigSpace,
    memory: Memory,
    interrupts: Interrupts,
    pin: Pin,
    doorbells: Option<Doorbells>,
}

fn exact<T: FromBytes>(payload: &[u8]) -> Result<T, Refused> {
    T::read_from_bytes(payload).map_err(|_| Refused::Size(payload.len()))
}

fn prefix<T: FromBytes>(payload: &[u8]) -> Result<(T, &[u8]), Refused> {
    T::read_from_prefix(payload).map_err(|_| Refused::Size(payload.len()))
}

/// Puts `value` at `at` of the buffer; all answers fit.
fn put(reply: &mut [u8], at: usize, value: &(impl IntoBytes + Immutable + ?Sized)) -> usize {
    let bytes = value.as_bytes();
    reply[at..at + bytes.len()].copy_from_slice(bytes);
    at + bytes.len()
}

fn none(descriptors: &[OwnedFd]) -> Result<(), Refused> {
    match descriptors.len() {
        0 => Ok(()),
        count => Err(Refused::Descriptors(count)),
    }
}

impl Session {
    /// What a client finds that has just come: the device as after a reset.
    ///
    /// # Errors
    /// If there is no memory for doorbells.
    pub fn new(device: &mut dyn Device) -> io::Result<Self> {
        device.reset();
        let identity = device.identity();
        Ok(Self {
            identity,
            introduced: false,
            config: ConfigSpace::new(&identity),
            memory: Memory::default(),
            interrupts: Interrupts::new(identity.msix.vectors),
            pin: Pin::new(identity.pin),
            doorbells: Doorbells::new(device)?,
        })
    }

    /// Takes memory that is not sealed against becoming shorter. A client that shortens it ends its
    /// session, by the guard that there is for pages that go away.
    pub fn accept_unsealed(&mut self) {
        self.memory.unsealed = true;
    }

    /// Does what a command says; `reply` has [`PAYLOAD_MAX`] bytes.
    ///
    /// # Errors
    /// Why it is refused, which changed nothing.
    pub fn command(
        &mut self,
        device: &mut dyn Device,
        header: &Header,
        payload: &[u8],
        descriptors: Vec<OwnedFd>,
        reply: &mut [u8],
    ) -> Result<Answer, Refused> {
        if header.flags & !flag::NO_REPLY != 0 {
            return Err(Refused::Flags(header.flags));
        }
        if self.introduced == (header.command == command::VERSION) {
            return Err(Refused::Order("VERSION comes first, and once"));
        }
        // What was written to doorbells before this message was sent is known before it is obeyed.
        self.look(device);
        let answer = self.obey(device, header, payload, descriptors, reply);
        self.follow_pin(device);
        answer
    }

    fn obey(
        &mut self,
        device: &mut dyn Device,
        header: &Header,
        payload: &[u8],
        descriptors: Vec<OwnedFd>,
        reply: &mut [u8],
    ) -> Result<Answer, Refused> {
        let answer = |payload| Answer {
            payload,
            with_doorbells: false,
        };
        match header.command {
            command::DMA_MAP => return self.map(payload, &descriptors).map(|()| answer(0)),
            command::DEVICE_SET_IRQS => {
                let (set, data) = prefix::<IrqSet>(payload)?;
                let done = match set.index {
                    irq::INTX => self.pin.set(&set, data, descriptors),
                    _ => self.interrupts.set(&set, data, descriptors),
                };
                return done.map(|()| answer(0));
            }
            _ => none(&descriptors)?,
        }
        match header.command {
            command::VERSION => self.introduce(payload, reply).map(answer),
            command::DMA_UNMAP => self.unmap(payload, reply).map(answer),
            command::DEVICE_GET_INFO => self.device_info(payload, reply).map(answer),
            command::DEVICE_GET_REGION_INFO => self.region_info(payload, reply),
            command::DEVICE_GET_IRQ_INFO => self.irq_info(payload, reply).map(answer),
            command::REGION_READ => self.read(device, payload, reply).map(answer),
            command::REGION_WRITE => self.write(device, payload, reply).map(answer),
            command::DEVICE_RESET => self.reset(device, payload).map(|()| answer(0)),
            other => Err(Refused::Unknown(other.into())),
        }
    }

    /// Whether the client has said who it is.
    pub fn is_introduced(&self) -> bool {
        self.introduced
    }

    /// The file of the page of doorbells.
    pub fn doorbells_file(&self) -> Option<BorrowedFd<'_>> {
        self.doorbells.as_ref().map(Doorbells::file)
    }

    fn introduce(&mut self, payload: &[u8], reply: &mut [u8]) -> Result<usize, Refused> {
        // What the client can do is of no importance: nothing here needs more than every one can.
        let (version, _) = prefix::<Version>(payload)?;
        if version.major != MAJOR {
            return Err(Refused::Version(version.major));
        }
        self.introduced = true;
        let minor = version.minor.min(MINOR);
        let end = put(reply, 0, &Version { minor, ..version });
        Ok(put(reply, end, CAPABILITIES))
    }

    fn map(&mut self, payload: &[u8], descriptors: &[OwnedFd]) -> Result<(), Refused> {
        let map = exact::<DmaMap>(payload)?;
        // Memory that comes without a descriptor would have to be asked for byte by byte.
        let [file] = descriptors else {
            return Err(Refused::Descriptors(descriptors.len()));
        };
        if map.flags & !(dma_flag::READ | dma_flag::WRITE) != 0 || map.flags & dma_flag::READ == 0 {
            return Err(Refused::Flags(map.flags));
        }
        let range = Range {
            offset: map.offset,
            iova: map.address,
            bytes: map.size,
            writable: map.flags & dma_flag::WRITE != 0,
        };
        self.memory.map(file.as_fd(), range)
    }

    fn unmap(&mut self, payload: &[u8], reply: &mut [u8]) -> Result<usize, Refused> {
        let unmap = exact::<DmaUnmap>(payload)?;
        if unmap.flags != 0 {
            return Err(Refused::Flags(unmap.flags));
        }
        self.memory.unmap(unmap.address, unmap.size)?;
        Ok(put(reply, 0, &unmap))
    }

    fn device_info(&self, payload: &[u8], reply: &mut [u8]) -> Result<usize, Refused> {
        exact::<DeviceInfo>(payload)?;
        let info = DeviceInfo {
            argsz: size_of::<DeviceInfo>() as u32,
            flags: device_flag::PCI | device_flag::RESET,
            regions: region::COUNT + u32::from(self.doorbells.is_some()),
            irqs: irq::COUNT,
        };
        Ok(put(reply, 0, &info))
    }

    /// Size of a region in bytes; 0 for one that every PCI device may have and this has not.
    fn region_bytes(&self, index: u32) -> Result<u64, Refused> {
        match index {
            0..6 => Ok(self.identity.bars[index as usize]),
            region::CONFIG => Ok(config::BYTES as u64),
            region::ROM | region::VGA => Ok(0),
            DOORBELLS if self.doorbells.is_some() => Ok(doorbell::PAGE_BYTES as u64),
            _ => Err(Refused::Index(index)),
        }
    }

    fn region_info(&self, payload: &[u8], reply: &mut [u8]) -> Result<Answer, Refused> {
        let asked = exact::<RegionInfo>(payload)?;
        let size = self.region_bytes(asked.index)?;
        let rights = region_flag::READ | region_flag::WRITE;
        let mut info = RegionInfo {
            argsz: size_of::<RegionInfo>() as u32,
            flags: if size == 0 { 0 } else { rights },
            index: asked.index,
            size,
            ..RegionInfo::default()
        };
        if asked.index != DOORBELLS {
            return Ok(Answer {
                payload: put(reply, 0, &info),
                with_doorbells: false,
            });
        }
        info.argsz += size_of::<TypeCapability>() as u32;
        info.flags |= region_flag::MMAP | region_flag::CAPS;
        let fits = asked.argsz >= info.argsz;
        info.cap_offset = if fits {
            size_of::<RegionInfo>() as u32
        } else {
            0
        };
        let mut end = put(reply, 0, &info);
        if fits {
            let id = capability::TYPE;
            let kind = TypeCapability {
                header: CapabilityHeader {
                    id,
                    version: 1,
                    next: 0,
                },
                kind: doorbell::REGION_KIND,
                subtype: doorbell::REGION_SUBTYPE,
            };
            end = put(reply, end, &kind);
        }
        Ok(Answer {
            payload: end,
            with_doorbells: true,
        })
    }

    fn irq_info(&self, payload: &[u8], reply: &mut [u8]) -> Result<usize, Refused> {
        let asked = exact::<IrqInfo>(payload)?;
        let (count, kind) = match asked.index {
            irq::INTX => (
                self.pin.count(),
                irq_info_flag::MASKABLE | irq_info_flag::AUTOMASKED,
            ),
            irq::MSIX => (u32::from(self.interrupts.count()), irq_info_flag::NO_RESIZE),
            index if index < irq::COUNT => (0, 0),
            index => return Err(Refused::Index(index)),
        };
        let flags = irq_info_flag::EVENTFD | kind;
        let info = IrqInfo {
            argsz: size_of::<IrqInfo>() as u32,
            flags: if count == 0 { 0 } else { flags },
            index: asked.index,
            count,
        };
        Ok(put(reply, 0, &info))
    }

    /// The bytes of a region that a command is about, all of which are there.
    fn range(&self, access: &RegionAccess) -> Result<std::ops::Range<usize>, Refused> {
        let bytes = self.region_bytes(access.region)?;
        let end = access.offset.checked_add(u64::from(access.count));
        let end = end.filter(|end| *end <= bytes).ok_or(Refused::Range)?;
        if !(1..=DATA_MAX).contains(&(access.count as usize)) || access.region == DOORBELLS {
            return Err(Refused::Range);
        }
        Ok(access.offset as usize..end as usize)
    }

    fn read(
        &mut self,
        device: &mut dyn Device,
        payload: &[u8],
        reply: &mut [u8],
    ) -> Result<usize, Refused> {
        let access = exact::<RegionAccess>(payload)?;
        let range = self.range(&access)?;
        let start = put(reply, 0, &access);
        let bytes = &mut reply[start..start + range.len()];
        match access.region {
            region::CONFIG => {
                self.look_through_window(device, &range, false);
                bytes.copy_from_slice(self.config.read(range));
            }
            bar if self.config.answers(bar) => device.read(bar as u8, access.offset, bytes),
            _ => bytes.fill(0xff),
        }
        Ok(start + access.count as usize)
    }

    fn write(
        &mut self,
        device: &mut dyn Device,
        payload: &[u8],
        reply: &mut [u8],
    ) -> Result<usize, Refused> {
        let (access, bytes) = prefix::<RegionAccess>(payload)?;
        let range = self.range(&access)?;
        if bytes.len() != range.len() {
            return Err(Refused::Size(payload.len()));
        }
        match access.region {
            region::CONFIG => {
                self.config.write(range.start, bytes);
                self.memory.bus_master = self.config.bus_master();
                self.look_through_window(device, &range, true);
            }
            bar if self.config.answers(bar) => {
                device.write(bar as u8, access.offset, bytes);
                self.refresh(device);
            }
            _ => {}
        }
        Ok(put(reply, 0, &RegionAccess { count: 0, ..access }))
    }

    /// If `range` of configuration space has data of a window to the BARs: reads there what it
    /// shows, or writes what is in it.
    fn look_through_window(
        &mut self,
        device: &mut dyn Device,
        range: &std::ops::Range<usize>,
        written: bool,
    ) {
        let Some(Seen { bar, offset, bytes }) = self.config.seen(range) else {
            return;
        };
        if written {
            device.write(bar, offset, &self.config.shown()[..bytes]);
            self.refresh(device);
        } else {
            let mut shown = [0; config::WINDOW_DATA_BYTES];
            device.read(bar, offset, &mut shown[..bytes]);
            self.config.show(&shown[..bytes]);
        }
    }

    fn reset(&mut self, device: &mut dyn Device, payload: &[u8]) -> Result<(), Refused> {
        if !payload.is_empty() {
            return Err(Refused::Size(payload.len()));
        }
        device.reset();
        self.config = ConfigSpace::new(&self.identity);
        self.memory.bus_master = false;
        self.pin.reset();
        self.refresh(device);
        Ok(())
    }

    fn refresh(&mut self, device: &mut dyn Device) {
        if let Some(doorbells) = &mut self.doorbells {
            doorbells.refresh(device);
        }
    }

    fn look(&mut self, device: &mut dyn Device) -> bool {
        let doorbells = self.doorbells.as_mut();
        doorbells.is_some_and(|doorbells| doorbells.look(device))
    }

    /// Lets the device work and signals its interrupts.
    pub fn poll(&mut self, device: &mut dyn Device, now: Duration) -> Progress {
        self.look(device);
        let progress = device.poll(&self.memory, now);
        self.interrupts.signal(device.take_interrupts());
        self.follow_pin(device);
        progress
    }

    fn follow_pin(&mut self, device: &dyn Device) {
        self.pin
            .follow(device.asserts_pin() && self.config.pin_enabled());
    }

    /// Whether the client has taken memory away that it had lent.
    pub fn is_lost(&self) -> bool {
        self.memory.is_lost()
    }

    /// Says in the page of doorbells that nobody looks, and looks once more: whether there was
    /// something.
    pub fn sleep(&mut self, device: &mut dyn Device) -> bool {
        let doorbells = self.doorbells.as_mut();
        doorbells.is_some_and(|doorbells| doorbells.sleep(device))
    }

    /// Says there that somebody looks again.
    pub fn wake(&mut self) {
        if let Some(doorbells) = &mut self.doorbells {
            doorbells.wake();
        }
    }
}
