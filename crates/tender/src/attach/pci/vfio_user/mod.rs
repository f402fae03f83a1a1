//! Software devices, by vfio-user: all that is asked of the process that is one, in order.
//!
//! It is introduced, compared with the manifest and reset; its BARs are mapped if it lends them
//! whole, and are otherwise reached by message, with its doorbells in a page that it shares if it
//! has one ([`abi::doorbell`]). Once all devices are attached it is given the DMA memory
//! and the event of its interrupt, and may become bus master.
//!
//! The process is hostile, and of the tender it can only waste [`PATIENCE`] a command: sizes and
//! descriptors that come with an answer are checked, and memory of its is mapped only if it cannot
//! make it shorter.

use super::{
    Arena, BarProblem, COMMAND, COMMAND_BUS_MASTER, COMMAND_MEMORY, COMMAND_NO_PIN, Device, Reason,
    virtio,
};
use crate::sys::window::Window;
use abi::PAGE_SIZE;
use abi::doorbell;
use abi::pci::{BAR_BYTES_MAX, BARS, Request, Virtio, bar_address, info_flag, request_flag};
use linux::descriptor;
use linux::pci::{Class, Identity};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FsWord, SealFlags, fcntl_get_seals, fstat, fstatfs};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use vfio_user::socket::{Error as MessageError, MESSAGE_BYTES_MAX, Received, Socket, passed};
use vfio_user::{
    DeviceInfo, DmaMap, HEADER_BYTES, Header, IrqInfo, IrqSet, MAJOR, MINOR, PATIENCE,
    RegionAccess, RegionInfo, TypeCapability, Version, capability, command, command_name,
    device_flag, dma_flag, irq, irq_set_flag, region, region_flag,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Regions of a device's own that are looked at.
const OWN_REGIONS_MAX: u32 = 8;
/// What `fstatfs` says of memory files of ordinary pages (`include/uapi/linux/magic.h`).
const TMPFS_MAGIC: FsWord = 0x0102_1994;
/// What this side can do, ended by a NUL.
const CAPABILITIES: &[u8] = b"{\"capabilities\":{\"max_msg_fds\":8}}\0";

/// What is wrong with a process that is to be a device.
#[derive(Debug)]
pub enum Problem {
    /// Nobody listens at the socket.
    Connect(io::Error),
    /// There is no answer to a command.
    Message(&'static str, MessageError),
    /// It refuses a command, with this error number.
    Refused(&'static str, u32),
    /// The answer to a command has more or fewer bytes than it must.
    Size(&'static str),
    /// It speaks another version of the protocol.
    Version(u16, u16),
    /// It is no PCI device that can be reset.
    Kind,
    /// It has no MSI-X, by which a guest could wait for it.
    NoInterrupt,
    /// A bus master without DMA memory, in the manifest.
    NoDma,
    /// Here no descriptor can be had.
    Event(io::Error),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(
                f,
                "{error}; start the device first, as in: outboard model 82599 --socket=PATH &"
            ),
            Self::Message(command, error) => write!(
                f,
                "{command}: {error}; is the process there a vfio-user device, and without another \
                 client?"
            ),
            Self::Refused(command, errno) => {
                let error = io::Error::from_raw_os_error(errno.cast_signed());
                write!(f, "it refuses {command}: {error}; see what it says itself")
            }
            Self::Size(command) => write!(
                f,
                "{command}: an answer of the wrong size; is the process there a vfio-user device?"
            ),
            Self::Version(major, minor) => write!(
                f,
                "it speaks version {major}.{minor} of vfio-user, not {MAJOR}.{MINOR}; take another"
            ),
            Self::Kind => write!(f, "it is no PCI device that can be reset; take another"),
            Self::NoInterrupt => write!(
                f,
                "it has no MSI-X, by which a guest could wait for it; take another"
            ),
            Self::NoDma => write!(
                f,
                "the manifest makes it a bus master and has no DMA memory; add dma_size to \
                 manifest.json"
            ),
            Self::Event(error) => write!(f, "no event for its interrupt: {error}"),
        }
    }
}

/// A device that is attached but for memory and its right to be bus master.
#[derive(Debug)]
pub struct Opened {
    client: Client,
    event: Option<OwnedFd>,
}

/// How long a process may take to listen at its socket.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// How often that is tried.
const START_PAUSE: Duration = Duration::from_millis(20);

/// Connects to the process that listens at `path`, which may have been started a moment ago.
fn connect_to(path: &Path) -> io::Result<Socket> {
    let deadline = Instant::now() + START_PATIENCE;
    let mut said = false;
    loop {
        match Socket::connect(path, PATIENCE) {
            Err(error) if is_early(&error) && Instant::now() < deadline => {}
            result => return result,
        }
        if !said {
            said = true;
            crate::start::say(&[format_args!(
                "waiting up to {} s until a device listens at {}",
                START_PATIENCE.as_secs(),
                path.display().to_string().escape_debug()
            )]);
        }
        thread::sleep(START_PAUSE);
    }
}

/// Whether an error is one of those before a socket is there, and before somebody listens at it.
fn is_early(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(
        kind,
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// Connects to the process that listens at `path`, or takes the connection that the parent has
/// passed, if the path is `@` and the number of its descriptor.
///
/// # Errors
/// Nobody listens, or there is no such descriptor.
pub fn connect(path: &Path) -> Result<Socket, Reason> {
    let socket = match passed(path) {
        Some(number) => descriptor::adopt(number).and_then(|fd| Socket::new(fd, PATIENCE)),
        None => connect_to(path),
    };
    Ok(socket.map_err(Problem::Connect)?)
}

/// Attaches the device at the other end of `socket` as PCIe device `number` of the image.
///
/// # Errors
/// The first thing that speaks against it.
pub fn attach(
    number: usize,
    request: &Request,
    socket: Socket,
) -> Result<(Device, Opened), Reason> {
    let mut client = Client::new(socket);
    client.introduce()?;
    let asked = DeviceInfo {
        argsz: size_of::<DeviceInfo>() as u32,
        ..DeviceInfo::default()
    };
    let info = client.ask(command::DEVICE_GET_INFO, &asked)?;
    let both = device_flag::PCI | device_flag::RESET;
    if info.flags & both != both || info.regions < region::COUNT || info.irqs <= irq::MSIX {
        return Err(Problem::Kind.into());
    }
    client.compare(request)?;
    client.call(command::DEVICE_RESET, &[], &[])?;
    let set = COMMAND_MEMORY | COMMAND_NO_PIN;
    client.set_command(set)?;
    let mut device = Device::attached();
    client.bars(number, request, &mut device)?;
    if virtio::is_virtio(request) {
        device.info.virtio = client.structures()?;
    }
    if device.info.flags & info_flag::MESSAGE != 0 {
        let own = info.regions.min(region::COUNT + OWN_REGIONS_MAX);
        device.doorbells = client.doorbells(number, region::COUNT..own)?;
        if device.doorbells.is_some() {
            device.info.flags |= info_flag::DOORBELLS;
        }
    }
    // A message-signalled interrupt is a write by the device: only a bus master has one.
    let bus_master = request.flags & request_flag::BUS_MASTER != 0;
    let event = bus_master.then(|| client.event()).transpose()?;
    if event.is_some() {
        device.info.flags |= info_flag::INTERRUPT;
    }
    Ok((device, Opened { client, event }))
}

impl Opened {
    /// Gives the device the memory and its event, if it is to be bus master, and `device` the
    /// connection.
    ///
    /// # Errors
    /// What the device has against it.
    pub fn start(mut self, device: &mut Device, arena: Option<&Arena>) -> Result<(), Reason> {
        if let Some(event) = self.event {
            let arena = arena.ok_or(Problem::NoDma)?;
            self.client.map(arena)?;
            self.client.trigger(event.as_fd())?;
            self.client
                .set_command(COMMAND_MEMORY | COMMAND_NO_PIN | COMMAND_BUS_MASTER)?;
            device.event = Some(event);
        }
        device.socket = Some(self.client.socket.into());
        Ok(())
    }
}

impl From<Problem> for Reason {
    fn from(problem: Problem) -> Self {
        Self::Software(problem)
    }
}

/// The connection, and room for an answer.
#[derive(Debug)]
struct Client {
    socket: Socket,
    id: u16,
    reply: Vec<u8>,
}

impl Client {
    fn new(socket: Socket) -> Self {
        Self {
            socket,
            id: 0,
            reply: vec![0; MESSAGE_BYTES_MAX - HEADER_BYTES],
        }
    }

    /// Sends a command and waits for the answer: its bytes, and the descriptors that came with it.
    fn call(
        &mut self,
        number: u16,
        parts: &[&[u8]],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(&[u8], Vec<OwnedFd>), Problem> {
        let name = command_name(number);
        self.id = self.id.wrapping_add(1);
        let bytes = parts.iter().map(|part| part.len()).sum();
        let header = Header::command(self.id, number, bytes);
        let message = |error| Problem::Message(name, error);
        self.socket
            .send(&header, parts, descriptors)
            .map_err(message)?;
        let Received {
            header: answer,
            payload,
            descriptors,
        } = self.socket.receive(&mut self.reply).map_err(message)?;
        let refused = answer.answers(&header);
        match refused.map_err(|error| message(MessageError::Header(error)))? {
            Some(errno) => Err(Problem::Refused(name, errno)),
            None => Ok((&self.reply[..payload], descriptors)),
        }
    }

    /// The same for a command whose answer is as long as itself.
    fn ask<T: FromBytes + IntoBytes + Immutable>(
        &mut self,
        number: u16,
        asked: &T,
    ) -> Result<T, Problem> {
        let (reply, _) = self.call(number, &[asked.as_bytes()], &[])?;
        T::read_from_bytes(reply).map_err(|_| Problem::Size(command_name(number)))
    }

    fn introduce(&mut self) -> Result<(), Problem> {
        let ours = Version {
            major: MAJOR,
            minor: MINOR,
        };
        let (reply, _) = self.call(command::VERSION, &[ours.as_bytes(), CAPABILITIES], &[])?;
        // What it can do is of no importance: nothing here needs more than every device can.
        let theirs = Version::read_from_prefix(reply);
        let (theirs, _) = theirs.map_err(|_| Problem::Size(command_name(command::VERSION)))?;
        if theirs.major != MAJOR || theirs.minor > MINOR {
            return Err(Problem::Version(theirs.major, theirs.minor));
        }
        Ok(())
    }

    /// Bytes of the configuration space.
    fn config<const N: usize>(&mut self, offset: u64) -> Result<[u8; N], Problem> {
        let access = RegionAccess {
            offset,
            region: region::CONFIG,
            count: N as u32,
        };
        let (reply, _) = self.call(command::REGION_READ, &[access.as_bytes()], &[])?;
        let bytes = reply.strip_prefix(access.as_bytes());
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or(Problem::Size(command_name(command::REGION_READ)))
    }

    fn set_command(&mut self, value: u16) -> Result<(), Problem> {
        let access = RegionAccess {
            offset: COMMAND,
            region: region::CONFIG,
            count: 2,
        };
        let parts = [access.as_bytes(), &value.to_le_bytes()];
        self.call(command::REGION_WRITE, &parts, &[]).map(|_| ())
    }

    /// Compares the device with what the manifest asks for.
    fn compare(&mut self, request: &Request) -> Result<(), Reason> {
        let [vendor0, vendor1, device0, device1] = self.config(0)?;
        let [_, progif, subclass, class] = self.config(8)?;
        let found = Identity {
            vendor: u16::from_le_bytes([vendor0, vendor1]),
            device: u16::from_le_bytes([device0, device1]),
            class: Class::new(class, subclass, progif),
        };
        let wanted = Identity {
            vendor: request.vendor,
            device: request.device,
            class: Class::new(request.class, request.subclass, request.progif),
        };
        if found != wanted {
            return Err(Reason::Identity(wanted, found));
        }
        Ok(())
    }

    /// A region, what is behind it in the answer, and its file.
    fn region(&mut self, index: u32) -> Result<(RegionInfo, Vec<u8>, Option<OwnedFd>), Problem> {
        let asked = RegionInfo {
            argsz: self.reply.len() as u32,
            index,
            ..RegionInfo::default()
        };
        let number = command::DEVICE_GET_REGION_INFO;
        let (reply, descriptors) = self.call(number, &[asked.as_bytes()], &[])?;
        let wrong = || Problem::Size(command_name(number));
        let (info, rest) = RegionInfo::read_from_prefix(reply).map_err(|_| wrong())?;
        if info.index != index {
            return Err(wrong());
        }
        Ok((info, rest.to_vec(), descriptors.into_iter().next()))
    }

    /// Maps the BARs that the image asks for, all of them or none.
    fn bars(
        &mut self,
        number: usize,
        request: &Request,
        device: &mut Device,
    ) -> Result<(), Reason> {
        let mut lent = Vec::new();
        let mut all = true;
        for bar in (0..BARS).filter(|bar| request.bars & 1 << bar != 0) {
            let (info, _, file) = self.region(bar as u32)?;
            let rights = region_flag::READ | region_flag::WRITE;
            if info.size == 0 || info.flags & rights != rights {
                return Err(Reason::Bar(bar, BarProblem::Missing));
            }
            if info.size > BAR_BYTES_MAX {
                return Err(Reason::Bar(bar, BarProblem::TooLarge(info.size)));
            }
            device.info.bar_bytes[bar] = info.size;
            match file.filter(|file| is_whole(&info) && is_lasting(file, info.offset, info.size)) {
                Some(file) => lent.push((bar, info, file)),
                None => all = false,
            }
        }
        if !all {
            device.info.flags |= info_flag::MESSAGE;
            return Ok(());
        }
        for (bar, info, file) in lent {
            let bytes = info.size.next_multiple_of(PAGE_SIZE);
            let window = Window::map(&file, info.offset, bar_address(number, bar), bytes);
            let refused = |error| Reason::Bar(bar, BarProblem::Refused(error));
            device.windows.push(window.map_err(refused)?);
        }
        Ok(())
    }

    /// The structures of a virtio device. Its addresses are those of the memory that it is given,
    /// whatever it says of that.
    fn structures(&mut self) -> Result<Virtio, Reason> {
        let config = self.config(0)?;
        let mut bars = [0; BARS];
        for (number, bytes) in (0..).zip(&mut bars) {
            *bytes = self.region(number)?.0.size;
        }
        let found = virtio::structures(&config, &bars);
        if found.common.bytes == 0 {
            return Err(Reason::Virtio(virtio::Problem::Legacy));
        }
        Ok(found)
    }

    /// Maps the page of doorbells, if one of these regions is one.
    fn doorbells(
        &mut self,
        number: usize,
        regions: std::ops::Range<u32>,
    ) -> Result<Option<Window>, Problem> {
        for index in regions {
            let (info, rest, file) = self.region(index)?;
            let file = file.filter(|file| is_lasting(file, info.offset, info.size));
            let (Some(file), true) = (file, is_doorbells(&info, &rest)) else {
                continue;
            };
            // All that it can do is spare messages.
            let page = Window::map(&file, info.offset, bar_address(number, 0), PAGE_SIZE);
            return Ok(page.ok());
        }
        Ok(None)
    }

    /// An event for the first interrupt, which the device does not have yet.
    fn event(&mut self) -> Result<OwnedFd, Problem> {
        let asked = IrqInfo {
            argsz: size_of::<IrqInfo>() as u32,
            index: irq::MSIX,
            ..IrqInfo::default()
        };
        let info = self.ask(command::DEVICE_GET_IRQ_INFO, &asked)?;
        if info.count == 0 {
            return Err(Problem::NoInterrupt);
        }
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        eventfd(0, flags).map_err(|error| Problem::Event(error.into()))
    }

    fn trigger(&mut self, event: BorrowedFd<'_>) -> Result<(), Problem> {
        let set = IrqSet {
            argsz: size_of::<IrqSet>() as u32,
            flags: irq_set_flag::EVENTFD | irq_set_flag::TRIGGER,
            index: irq::MSIX,
            start: 0,
            count: 1,
        };
        self.call(command::DEVICE_SET_IRQS, &[set.as_bytes()], &[event])
            .map(|_| ())
    }

    fn map(&mut self, arena: &Arena) -> Result<(), Problem> {
        let map = DmaMap {
            argsz: size_of::<DmaMap>() as u32,
            flags: dma_flag::READ | dma_flag::WRITE,
            offset: 0,
            address: arena.iova.number(),
            size: arena.window.bytes(),
        };
        let memory = [arena.memory.as_fd()];
        self.call(command::DMA_MAP, &[map.as_bytes()], &memory)
            .map(|_| ())
    }
}

/// Whether all of a region can be mapped.
fn is_whole(info: &RegionInfo) -> bool {
    info.flags & (region_flag::MMAP | region_flag::CAPS) == region_flag::MMAP
}

/// Whether a region, with what stands behind it in the answer, is a page of doorbells.
fn is_doorbells(info: &RegionInfo, rest: &[u8]) -> bool {
    let both = region_flag::MMAP | region_flag::CAPS;
    let at = (info.cap_offset as usize).checked_sub(size_of::<RegionInfo>());
    let kind = at.and_then(|at| TypeCapability::read_from_prefix(rest.get(at..)?).ok());
    info.flags & both == both
        && info.size == doorbell::PAGE_BYTES as u64
        && kind.is_some_and(|(kind, _)| {
            let known = (doorbell::REGION_KIND, doorbell::REGION_SUBTYPE);
            kind.header.id == capability::TYPE && (kind.kind, kind.subtype) == known
        })
}

/// Whether a file has these bytes, cannot become shorter, and has zeros where a hole is punched
/// into it, as one in large pages has not: so nobody who maps them faults.
fn is_lasting(file: &OwnedFd, offset: u64, bytes: u64) -> bool {
    // First: other kinds of file have no seals, and to ask for their size may take for ever.
    if !fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
        return false;
    }
    let ordinary = fstatfs(file).is_ok_and(|system| system.f_type == TMPFS_MAGIC);
    let size = fstat(file).map_or(0, |stat| stat.st_size.cast_unsigned());
    ordinary && offset.checked_add(bytes).is_some_and(|end| end <= size)
}

#[cfg(test)]
mod tests;
