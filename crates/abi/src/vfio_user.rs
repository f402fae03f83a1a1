//! The vfio-user protocol, version 0.1: how a PCI device in one process is used by another, over a
//! Unix stream socket (libvfio-user `docs/vfio-user.rst`, QEMU `docs/interop/vfio-user.rst`).
//!
//! The driver's side is the client: it sends commands, the device's side answers each. All numbers
//! are little-endian, as on the machines that Outboard runs on. Whatever comes from the other side
//! is hostile: numbers stay numbers here, and whoever reads them checks them.

use core::fmt;
use core::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the protocol. A greater minor number may only add to it.
pub const MAJOR: u16 = 0;
/// See [`MAJOR`].
pub const MINOR: u16 = 1;

/// How long a device may take for an answer, and either side for a message that it has begun.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// When a message must be complete, in however many parts it comes or goes. Times are those of a
/// clock that does not go back; whoever waits passes them in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Duration);

impl Deadline {
    /// For a message for which there is so much `patience` from `now` on.
    pub const fn new(now: Duration, patience: Duration) -> Self {
        Self(now.saturating_add(patience))
    }

    /// How long may still be waited for it; `None` if no longer.
    pub fn left(self, now: Duration) -> Option<Duration> {
        self.0.checked_sub(now).filter(|left| !left.is_zero())
    }
}

/// Commands ("Commands" in the specification).
pub mod command {
    /// [`super::Version`] and what both sides can do, as JSON.
    pub const VERSION: u16 = 1;
    /// [`super::DmaMap`], with the descriptor of the memory.
    pub const DMA_MAP: u16 = 2;
    /// [`super::DmaUnmap`].
    pub const DMA_UNMAP: u16 = 3;
    /// [`super::DeviceInfo`].
    pub const DEVICE_GET_INFO: u16 = 4;
    /// [`super::RegionInfo`], answered with capabilities and a descriptor.
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    /// [`super::IrqInfo`].
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    /// [`super::IrqSet`], with descriptors of events.
    pub const DEVICE_SET_IRQS: u16 = 8;
    /// [`super::RegionAccess`], answered with the bytes behind it.
    pub const REGION_READ: u16 = 9;
    /// [`super::RegionAccess`] and the bytes behind it.
    pub const REGION_WRITE: u16 = 10;
    /// Nothing.
    pub const DEVICE_RESET: u16 = 13;
}

/// Name of a command, for whoever reads an error.
pub const fn command_name(number: u16) -> &'static str {
    match number {
        command::VERSION => "VERSION",
        command::DMA_MAP => "DMA_MAP",
        command::DMA_UNMAP => "DMA_UNMAP",
        command::DEVICE_GET_INFO => "DEVICE_GET_INFO",
        command::DEVICE_GET_REGION_INFO => "DEVICE_GET_REGION_INFO",
        command::DEVICE_GET_IRQ_INFO => "DEVICE_GET_IRQ_INFO",
        command::DEVICE_SET_IRQS => "DEVICE_SET_IRQS",
        command::REGION_READ => "REGION_READ",
        command::REGION_WRITE => "REGION_WRITE",
        command::DEVICE_RESET => "DEVICE_RESET",
        _ => "an unknown command",
    }
}

/// What every message begins with.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Header {
    /// Chosen by whoever commands, repeated in the reply.
    pub id: u16,
    /// A number of [`command`].
    pub command: u16,
    /// Size of the message in bytes, this header included.
    pub bytes: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// In a reply with [`flag::ERROR`]: an error number of Linux, or 0.
    pub error: u32,
}

/// Bits of [`Header::flags`].
pub mod flag {
    /// Mask of the type: 0 is a command.
    pub const TYPE: u32 = 0xf;
    /// The type of a reply.
    pub const REPLY: u32 = 1;
    /// The command wants no reply.
    pub const NO_REPLY: u32 = 1 << 4;
    /// The command failed; nothing follows the header.
    pub const ERROR: u32 = 1 << 5;
}

/// Size of [`Header`].
pub const HEADER_BYTES: usize = size_of::<Header>();

/// What is wrong with the header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The size is less than the header's, or more than the receiver takes: size and most.
    Size(u32, usize),
    /// It is a reply where a command is due, or the other way round.
    Type(u32),
    /// The reply belongs to another command: its id and command.
    Other(u16, u16),
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(bytes, most) => {
                write!(
                    f,
                    "a message of {bytes} bytes, not {HEADER_BYTES} to {most}"
                )
            }
            Self::Type(flags) => write!(f, "a message of the wrong type, flags {flags:#x}"),
            Self::Other(id, command) => {
                let name = command_name(*command);
                write!(
                    f,
                    "a reply to something else, {name} (command {command}, id {id})"
                )
            }
        }
    }
}

impl core::error::Error for HeaderError {}

impl Header {
    /// That of a command with `payload` bytes behind the header.
    pub const fn command(id: u16, command: u16, payload: usize) -> Self {
        Self {
            id,
            command,
            bytes: (HEADER_BYTES + payload) as u32,
            flags: 0,
            error: 0,
        }
    }

    /// That of the reply to this command, with `payload` bytes behind the header.
    pub const fn reply(&self, payload: usize) -> Self {
        Self {
            bytes: (HEADER_BYTES + payload) as u32,
            flags: flag::REPLY,
            error: 0,
            ..*self
        }
    }

    /// That of the reply that the command failed.
    pub const fn refusal(&self, errno: u32) -> Self {
        Self {
            bytes: HEADER_BYTES as u32,
            flags: flag::REPLY | flag::ERROR,
            error: errno,
            ..*self
        }
    }

    /// Bytes behind the header, if the message has at most `most` in all.
    ///
    /// # Errors
    /// If the size is none.
    pub fn payload(&self, most: usize) -> Result<usize, HeaderError> {
        let bytes = self.bytes as usize;
        if !(HEADER_BYTES..=most).contains(&bytes) {
            return Err(HeaderError::Size(self.bytes, most));
        }
        Ok(bytes - HEADER_BYTES)
    }

    /// Whether this is the reply to `command`: `Ok(Some)` is the error number of one that failed.
    ///
    /// # Errors
    /// If it is something else.
    pub fn answers(&self, command: &Self) -> Result<Option<u32>, HeaderError> {
        if self.flags & flag::TYPE != flag::REPLY {
            return Err(HeaderError::Type(self.flags));
        }
        if (self.id, self.command) != (command.id, command.command) {
            return Err(HeaderError::Other(self.id, self.command));
        }
        Ok((self.flags & flag::ERROR != 0).then_some(self.error))
    }
}

/// What [`command::VERSION`] carries both ways; JSON, ended by a NUL, may follow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Version {
    /// [`MAJOR`].
    pub major: u16,
    /// [`MINOR`], or less in a reply.
    pub minor: u16,
}

/// Memory that the device may reach from now on. It has no reply but the header.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DmaMap {
    /// Size of this structure.
    pub argsz: u32,
    /// Bits of [`dma_flag`].
    pub flags: u32,
    /// Where it begins in the file of the descriptor, in bytes.
    pub offset: u64,
    /// The I/O address of its first byte.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// Bits of [`DmaMap::flags`].
pub mod dma_flag {
    /// The device may read it.
    pub const READ: u32 = 1 << 0;
    /// The device may write it.
    pub const WRITE: u32 = 1 << 1;
}

/// Memory that the device may no longer reach, as it was mapped. The reply repeats it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DmaUnmap {
    /// Most bytes of the reply.
    pub argsz: u32,
    /// Zero.
    pub flags: u32,
    /// As in [`DmaMap::address`].
    pub address: u64,
    /// As in [`DmaMap::size`].
    pub size: u64,
}

/// What the device is; in a command all but `argsz` is zero.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DeviceInfo {
    /// Most bytes of the reply; in the reply: bytes that there are.
    pub argsz: u32,
    /// Bits of [`device_flag`].
    pub flags: u32,
    /// Number of regions.
    pub regions: u32,
    /// Number of kinds of interrupts.
    pub irqs: u32,
}

/// Bits of [`DeviceInfo::flags`].
pub mod device_flag {
    /// [`super::command::DEVICE_RESET`] works.
    pub const RESET: u32 = 1 << 0;
    /// It is a PCI device.
    pub const PCI: u32 = 1 << 1;
}

/// Indices of the regions of a PCI device (Linux `vfio.h`); BAR n is region n.
pub mod region {
    /// The expansion ROM.
    pub const ROM: u32 = 6;
    /// Configuration space.
    pub const CONFIG: u32 = 7;
    /// Registers of VGA.
    pub const VGA: u32 = 8;
    /// How many every PCI device has; those of a device's own come behind.
    pub const COUNT: u32 = 9;
}

/// Indices of the kinds of interrupts of a PCI device (Linux `vfio.h`).
pub mod irq {
    /// Pins.
    pub const INTX: u32 = 0;
    /// MSI.
    pub const MSI: u32 = 1;
    /// MSI-X.
    pub const MSIX: u32 = 2;
    /// How many kinds there are.
    pub const COUNT: u32 = 5;
}

/// A region; in a command all but `argsz` and `index` is zero.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RegionInfo {
    /// Most bytes of the reply; in the reply: bytes that there are, with capabilities.
    pub argsz: u32,
    /// Bits of [`region_flag`].
    pub flags: u32,
    /// Which region.
    pub index: u32,
    /// Where the first capability begins, from the beginning of this structure; or 0.
    pub cap_offset: u32,
    /// Size in bytes.
    pub size: u64,
    /// Where it begins in the file of the descriptor.
    pub offset: u64,
}

/// Bits of [`RegionInfo::flags`].
pub mod region_flag {
    /// It can be read.
    pub const READ: u32 = 1 << 0;
    /// It can be written.
    pub const WRITE: u32 = 1 << 1;
    /// It can be mapped, by the descriptor that comes with the reply.
    pub const MMAP: u32 = 1 << 2;
    /// Capabilities follow.
    pub const CAPS: u32 = 1 << 3;
}

/// A capability of a region (Linux `vfio.h`, `vfio_info_cap_header`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CapabilityHeader {
    /// A number of [`capability`].
    pub id: u16,
    /// 1.
    pub version: u16,
    /// Where the next one begins, from the beginning of [`RegionInfo`]; or 0.
    pub next: u32,
}

/// Values of [`CapabilityHeader::id`].
pub mod capability {
    /// Only parts of the region can be mapped.
    pub const SPARSE_MMAP: u16 = 1;
    /// [`super::TypeCapability`]: what a device's own region is.
    pub const TYPE: u16 = 2;
}

/// What a device's own region is (Linux `vfio.h`, `vfio_region_info_cap_type`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct TypeCapability {
    /// With [`capability::TYPE`].
    pub header: CapabilityHeader,
    /// Who says what the subtype means.
    pub kind: u32,
    /// What it is.
    pub subtype: u32,
}

/// A kind of interrupts; in a command all but `argsz` and `index` is zero.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct IrqInfo {
    /// Size of this structure.
    pub argsz: u32,
    /// Bits of [`irq_info_flag`].
    pub flags: u32,
    /// Which kind.
    pub index: u32,
    /// How many there are.
    pub count: u32,
}

/// Bits of [`IrqInfo::flags`].
pub mod irq_info_flag {
    /// An event can be signalled.
    pub const EVENTFD: u32 = 1 << 0;
    /// The number of interrupts in use cannot change without disabling all of them.
    pub const NO_RESIZE: u32 = 1 << 3;
}

/// What happens on interrupts.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct IrqSet {
    /// Size of this structure and of the data behind it.
    pub argsz: u32,
    /// Bits of [`irq_set_flag`].
    pub flags: u32,
    /// Which kind.
    pub index: u32,
    /// The first one of it.
    pub start: u32,
    /// How many; 0 with [`irq_set_flag::NONE`] switches all of this kind off.
    pub count: u32,
}

/// Bits of [`IrqSet::flags`]: what comes with it, and what it is for.
pub mod irq_set_flag {
    /// No data.
    pub const NONE: u32 = 1 << 0;
    /// A byte for each interrupt.
    pub const BOOL: u32 = 1 << 1;
    /// A descriptor of an event for each interrupt, or none at all to take them away.
    pub const EVENTFD: u32 = 1 << 2;
    /// Mask the interrupt.
    pub const MASK: u32 = 1 << 3;
    /// Unmask it.
    pub const UNMASK: u32 = 1 << 4;
    /// Let the event be signalled by the interrupt.
    pub const TRIGGER: u32 = 1 << 5;
}

/// Bytes of a region; in a write the bytes follow, and in the reply of a read.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RegionAccess {
    /// The first byte.
    pub offset: u64,
    /// Which region.
    pub region: u32,
    /// How many bytes.
    pub count: u32,
}

/// The message that reads a 32-bit register.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Read32 {
    /// With [`command::REGION_READ`].
    pub header: Header,
    /// The register.
    pub access: RegionAccess,
}

/// The message that writes a 32-bit register, and the reply to [`Read32`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, packed(4))]
pub struct Value32 {
    /// With [`command::REGION_WRITE`], or of the reply.
    pub header: Header,
    /// The register.
    pub access: RegionAccess,
    /// What it holds, or is to hold.
    pub value: u32,
}

impl Read32 {
    /// Reads the register at `offset` of `region`.
    pub const fn new(id: u16, region: u32, offset: u64) -> Self {
        Self {
            header: Header::command(id, command::REGION_READ, size_of::<RegionAccess>()),
            access: RegionAccess {
                offset,
                region,
                count: 4,
            },
        }
    }
}

impl Read32 {
    /// Reads nothing that matters, and wants no answer.
    pub const fn wake() -> Self {
        let read = Self::new(0, region::CONFIG, 0);
        Self {
            header: Header {
                flags: flag::NO_REPLY,
                ..read.header
            },
            ..read
        }
    }
}

/// What is wrong with the reply to a register's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// It has more or fewer bytes than it must.
    Size,
    /// Its header is wrong.
    Header(HeaderError),
    /// It is about other bytes than was asked for.
    Access,
    /// The device refuses, with this error number.
    Refused(u32),
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size => write!(f, "a reply of the wrong size"),
            Self::Header(error) => error.fmt(f),
            Self::Access => write!(f, "a reply about another register"),
            Self::Refused(errno) => write!(f, "it refuses (errno {errno})"),
        }
    }
}

/// How many bytes the reply to a register's message has of which these are the first; `None` while
/// that cannot be said.
///
/// # Errors
/// If the reply is none to `command`, or longer than `most`.
pub fn reply_bytes(
    command: &Header,
    reply: &[u8],
    most: usize,
) -> Result<Option<usize>, ReplyError> {
    let Ok((header, _)) = Header::read_from_prefix(reply) else {
        return Ok(None);
    };
    let refused = header.answers(command).map_err(ReplyError::Header)?;
    if let Some(errno) = refused {
        return Err(ReplyError::Refused(errno));
    }
    let payload = header.payload(most).map_err(ReplyError::Header)?;
    Ok(Some(HEADER_BYTES + payload))
}

impl Read32 {
    /// What the register holds, by this reply.
    ///
    /// # Errors
    /// If it is none to this command.
    pub fn value(&self, reply: &[u8]) -> Result<u32, ReplyError> {
        reply_bytes(&self.header, reply, size_of::<Value32>())?;
        let reply = Value32::read_from_bytes(reply).map_err(|_| ReplyError::Size)?;
        if { reply.access } != self.access {
            return Err(ReplyError::Access);
        }
        Ok(reply.value)
    }
}

impl Value32 {
    /// Whether this reply says that the register was written.
    ///
    /// # Errors
    /// If it does not.
    pub fn written(&self, reply: &[u8]) -> Result<(), ReplyError> {
        let header = self.header;
        reply_bytes(&header, reply, size_of::<Read32>())?;
        Read32::read_from_bytes(reply).map_err(|_| ReplyError::Size)?;
        Ok(())
    }

    /// Writes `value` to the register at `offset` of `region`.
    pub const fn write(id: u16, region: u32, offset: u64, value: u32) -> Self {
        Self {
            header: Header::command(id, command::REGION_WRITE, size_of::<RegionAccess>() + 4),
            access: RegionAccess {
                offset,
                region,
                count: 4,
            },
            value,
        }
    }
}

const _: () = assert!(size_of::<Header>() == 16 && size_of::<Version>() == 4);
const _: () = assert!(size_of::<DmaMap>() == 32 && size_of::<DmaUnmap>() == 24);
const _: () = assert!(size_of::<DeviceInfo>() == 16 && size_of::<RegionInfo>() == 32);
const _: () = assert!(size_of::<CapabilityHeader>() == 8 && size_of::<TypeCapability>() == 16);
const _: () = assert!(size_of::<IrqInfo>() == 16 && size_of::<IrqSet>() == 20);
const _: () = assert!(size_of::<RegionAccess>() == 16);
const _: () = assert!(size_of::<Read32>() == 32 && size_of::<Value32>() == 36);

pub mod doorbell {
    //! A page of doorbells: Outboard's addition to the protocol.
    //!
    //! A mapped page of real registers would trap nothing and lose the order of everything in it.
    //! So what is shared is not a page of the BAR but a region of the device's own, which holds
    //! doorbells alone: registers of BAR 0 of which only the last write matters, and not when the
    //! device learns of it. All else goes by message; the device looks at its doorbells before it
    //! obeys one, so doorbells stay in order with messages, and only among themselves lose it.
    //!
    //! The page is of 64-bit words: [`MAGIC_WORD`], [`ASLEEP_WORD`], and from [`FIRST_WORD`] on two
    //! for each doorbell, its offset in BAR 0 and its value. The device writes offsets once, before
    //! the page is mapped, and values when other registers have changed them; the driver's side
    //! writes values. When the device stops looking it sets the word [`ASLEEP_WORD`], looks once
    //! more, and sleeps; a driver's side that finds it set, behind a fence after its write, sends
    //! [`super::Read32::wake`], a message of which only the arrival matters.

    /// Type of the region: that of a PCI vendor (Linux `vfio.h`), of the number that is none.
    pub const REGION_KIND: u32 = 1 << 31 | 0xffff;
    /// Subtype of the region, "OBDB".
    pub const REGION_SUBTYPE: u32 = u32::from_le_bytes(*b"OBDB");
    /// Size of the page in bytes.
    pub const PAGE_BYTES: usize = 4096;
    /// Words of the page.
    pub const WORDS: usize = PAGE_BYTES / 8;
    /// Holds [`magic`].
    pub const MAGIC_WORD: usize = 0;
    /// 1 while the device does not look.
    pub const ASLEEP_WORD: usize = 1;
    /// Offset of the first doorbell.
    pub const FIRST_WORD: usize = 2;
    /// Most doorbells.
    pub const COUNT_MAX: usize = (WORDS - FIRST_WORD) / 2;

    /// What the first word of a page of `count` doorbells holds.
    pub const fn magic(count: usize) -> u64 {
        (count as u64) << 32 | REGION_SUBTYPE as u64
    }

    /// How many doorbells a page has that begins with this word.
    pub const fn count(word: u64) -> Option<usize> {
        let count = (word >> 32) as usize;
        if word as u32 == REGION_SUBTYPE && count <= COUNT_MAX {
            Some(count)
        } else {
            None
        }
    }

    /// The word that holds the offset of doorbell `n`.
    pub const fn offset_word(n: usize) -> usize {
        FIRST_WORD + 2 * n
    }

    /// The word that holds the value of doorbell `n`.
    pub const fn value_word(n: usize) -> usize {
        FIRST_WORD + 2 * n + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn a_register_is_read_with_the_bytes_of_the_specification() {
        let read = Read32::new(7, 0, 0x1018);
        let expected = [
            7, 0, 9, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x18, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            0, 4, 0, 0, 0,
        ];
        assert_eq!(read.as_bytes(), expected);
        let write = Value32::write(8, 1, 4, 0x0102_0304);
        assert_eq!(write.as_bytes()[..8], [8, 0, 10, 0, 36, 0, 0, 0]);
        assert_eq!(write.as_bytes()[24..], [1, 0, 0, 0, 4, 0, 0, 0, 4, 3, 2, 1]);
    }

    #[test]
    fn a_deadline_is_one_for_all_parts() {
        let second = Duration::from_secs(1);
        let deadline = Deadline::new(5 * second, PATIENCE);
        assert_eq!(deadline.left(5 * second), Some(PATIENCE));
        assert_eq!(deadline.left(6 * second), Some(PATIENCE - second));
        for late in [5 * second + PATIENCE, 8 * second, Duration::MAX] {
            assert_eq!(deadline.left(late), None);
        }
        let never = Deadline::new(Duration::MAX, PATIENCE);
        assert_eq!(never.left(Duration::ZERO), Some(Duration::MAX));
    }

    #[test]
    fn a_reply_is_told_from_everything_else() {
        let command = Header::command(3, command::DEVICE_RESET, 0);
        assert_eq!(command.reply(0).answers(&command), Ok(None));
        assert_eq!(command.refusal(22).answers(&command), Ok(Some(22)));
        assert_eq!(command.answers(&command), Err(HeaderError::Type(0)));
        let other = Header::command(4, command::DEVICE_RESET, 0).reply(0);
        let wrong = other.answers(&command).unwrap_err();
        assert_eq!(wrong, HeaderError::Other(4, command::DEVICE_RESET));
    }

    #[test]
    fn a_register_is_believed_only_if_it_was_asked_for() {
        let read = Read32::new(7, 0, 0x1018);
        let right = Value32 {
            header: read.header.reply(20),
            access: read.access,
            value: 5,
        };
        assert_eq!(read.value(right.as_bytes()), Ok(5));
        assert_eq!(read.value(&right.as_bytes()[..35]), Err(ReplyError::Size));
        assert_eq!(read.value(&[]), Err(ReplyError::Size));
        let other = Read32::new(7, 0, 0x1014);
        assert_eq!(other.value(right.as_bytes()), Err(ReplyError::Access));
        let late = Read32::new(8, 0, 0x1018).value(right.as_bytes());
        let late =
            late.map_err(|error| matches!(error, ReplyError::Header(HeaderError::Other(7, 9))));
        assert_eq!(late, Err(true));
        let refused = read.header.refusal(22);
        assert_eq!(read.value(refused.as_bytes()), Err(ReplyError::Refused(22)));
        let long = Value32 {
            header: Header {
                bytes: 37,
                ..right.header
            },
            ..right
        };
        let long = read.value(long.as_bytes());
        assert_eq!(long, Err(ReplyError::Header(HeaderError::Size(37, 36))));
        let write = Value32::write(9, 0, 4, 1);
        let done = Read32 {
            header: Header { ..write.header }.reply(16),
            access: read.access,
        };
        assert_eq!(write.written(done.as_bytes()), Ok(()));
        assert!(write.written(right.as_bytes()).is_err());
    }

    #[test]
    fn sizes_have_both_bounds() {
        let sized = |bytes| {
            Header {
                bytes,
                ..Header::default()
            }
            .payload(64)
        };
        assert_eq!((sized(16), sized(64)), (Ok(0), Ok(48)));
        for bytes in [0, 15, 65, u32::MAX] {
            assert_eq!(sized(bytes), Err(HeaderError::Size(bytes, 64)));
        }
    }

    #[test]
    fn a_page_says_how_many_doorbells_it_has() {
        for count in [0, 1, doorbell::COUNT_MAX] {
            assert_eq!(doorbell::count(doorbell::magic(count)), Some(count));
        }
        assert_eq!(
            doorbell::count(doorbell::magic(doorbell::COUNT_MAX + 1)),
            None
        );
        assert_eq!(doorbell::count(0), None);
        assert!(doorbell::value_word(doorbell::COUNT_MAX - 1) < doorbell::WORDS);
    }
}
