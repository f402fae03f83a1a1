//! Commands of a disk, and what it answers (SPC-4, and SBC-3 for blocks), checked.

use crate::usb::Error;

/// Bytes of a command, at most.
pub const BYTES_MAX: usize = 16;
/// Bytes of what INQUIRY answers, and REQUEST SENSE, and MODE SENSE, as much as is asked for.
pub const INQUIRY_BYTES: u32 = 36;
pub const SENSE_BYTES: u32 = 18;
pub const MODE_BYTES: u32 = 192;
pub const CAPACITY_BYTES: u32 = 8;
pub const CAPACITY_LONG_BYTES: u32 = 32;
pub const PAGE_BYTES: u32 = 64;
/// What UNMAP tells: a header, and one range.
pub const UNMAP_BYTES: u32 = 24;
/// Blocks that the driver can use, in bytes.
const BLOCK_BYTES: [u32; 4] = [512, 1024, 2048, 4096];
/// The kind of device that has blocks at random.
const DISK: u8 = 0;
/// Pages of a device's own (SPC-4, 7.8; SBC-3, 6.5): how much at once, and how blocks are kept.
pub const PAGE_LIMITS: u8 = 0xb0;
pub const PAGE_PROVISIONING: u8 = 0xb2;
/// The page of modes that is about the cache (SBC-3, 6.4.5).
const MODE_CACHE: u8 = 8;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its bytes, and how many there are.
    pub bytes: [u8; BYTES_MAX],
    pub length: u8,
    /// Bytes of its data.
    pub data: u32,
    /// Whether its data go to the disk.
    pub is_write: bool,
}

impl Command {
    const fn of(bytes: [u8; BYTES_MAX], length: u8, data: u32) -> Self {
        Self {
            bytes,
            length,
            data,
            is_write: false,
        }
    }

    /// A command of 6 bytes, the fifth of which says how much it may answer.
    const fn short(opcode: u8, page: u8, data: u32) -> Self {
        let mut bytes = [0; BYTES_MAX];
        (bytes[0], bytes[2], bytes[4]) = (opcode, page, data as u8);
        Self::of(bytes, 6, data)
    }

    pub const fn test_unit_ready() -> Self {
        Self::short(0x00, 0, 0)
    }

    pub const fn request_sense() -> Self {
        Self::short(0x03, 0, SENSE_BYTES)
    }

    pub const fn inquiry() -> Self {
        Self::short(0x12, 0, INQUIRY_BYTES)
    }

    /// A page of what the device says of itself (INQUIRY with EVPD).
    pub const fn page(page: u8) -> Self {
        let mut command = Self::short(0x12, page, PAGE_BYTES);
        command.bytes[1] = 1;
        command
    }

    /// All modes.
    pub const fn mode_sense() -> Self {
        Self::short(0x1a, 0x3f, MODE_BYTES)
    }

    pub const fn read_capacity() -> Self {
        let mut bytes = [0; BYTES_MAX];
        bytes[0] = 0x25;
        Self::of(bytes, 10, CAPACITY_BYTES)
    }

    pub const fn read_capacity_long() -> Self {
        let mut bytes = [0; BYTES_MAX];
        (bytes[0], bytes[1], bytes[13]) = (0x9e, 0x10, CAPACITY_LONG_BYTES as u8);
        Self::of(bytes, 16, CAPACITY_LONG_BYTES)
    }

    /// What was written before survives a loss of power when it is done (all blocks).
    pub const fn synchronize_cache() -> Self {
        let mut bytes = [0; BYTES_MAX];
        bytes[0] = 0x35;
        Self::of(bytes, 10, 0)
    }

    /// Nobody needs the blocks that its data tell.
    pub const fn unmap() -> Self {
        let mut bytes = [0; BYTES_MAX];
        (bytes[0], bytes[8]) = (0x42, UNMAP_BYTES as u8);
        Self {
            is_write: true,
            ..Self::of(bytes, 10, UNMAP_BYTES)
        }
    }

    /// Reads or writes blocks, `data` bytes of them.
    #[inline]
    pub fn transfer(is_write: bool, block: u64, blocks: u16, data: u32) -> Self {
        let mut bytes = [0; BYTES_MAX];
        let (opcode, length) = match u32::try_from(block) {
            Ok(block) => {
                bytes[2..6].copy_from_slice(&block.to_be_bytes());
                bytes[7..9].copy_from_slice(&blocks.to_be_bytes());
                (if is_write { 0x2a } else { 0x28 }, 10)
            }
            Err(_) => {
                bytes[2..10].copy_from_slice(&block.to_be_bytes());
                bytes[12..14].copy_from_slice(&blocks.to_be_bytes());
                (if is_write { 0x8a } else { 0x88 }, 16)
            }
        };
        bytes[0] = opcode;
        Self {
            is_write,
            ..Self::of(bytes, length, data)
        }
    }
}

/// What UNMAP tells of blocks that nobody needs (SBC-3, 5.28.2), as words of memory.
pub fn unmap_list(block: u64, blocks: u32) -> [u64; 3] {
    let header = [0, UNMAP_BYTES as u8 - 2, 0, 16, 0, 0, 0, 0];
    [
        u64::from_le_bytes(header),
        block.swap_bytes(),
        blocks.swap_bytes().into(),
    ]
}

/// Why a command failed (SPC-4, 4.5): key, and additional code with its qualifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    pub key: u8,
    pub code: u8,
    pub qualifier: u8,
}

impl Sense {
    /// Of what REQUEST SENSE answered.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn of(answer: &[u8]) -> Result<Self, Error> {
        match *answer {
            // Fixed format, and the other one.
            [
                0x70 | 0xf0,
                _,
                key,
                _,
                _,
                _,
                _,
                _,
                _,
                _,
                _,
                _,
                code,
                qualifier,
                ..,
            ] => Ok(Self {
                key: key & 0xf,
                code,
                qualifier,
            }),
            [0x72, key, code, qualifier, ..] => Ok(Self {
                key: key & 0xf,
                code,
                qualifier,
            }),
            _ => Err(Error::Config("why a command failed")),
        }
    }

    /// Key and code in one number.
    pub fn number(self) -> u16 {
        u16::from(self.key) << 8 | u16::from(self.code)
    }

    /// What is to be done about it.
    pub fn means(self) -> Meaning {
        match (self.key, self.code) {
            // NO SENSE and RECOVERED ERROR: it was done.
            (0 | 1, _) => Meaning::Done,
            // NOT READY: no medium; getting ready; or it must be told to.
            (2, 0x3a) => Meaning::Taken,
            (2, 0x04) => Meaning::Later,
            // UNIT ATTENTION: another medium; or it lost power, or was reset.
            (6, 0x28 | 0x3a) => Meaning::Taken,
            (6, 0x29) => Meaning::Restarted,
            (6, _) => Meaning::Again,
            // DATA PROTECT.
            (7, _) => Meaning::Protected,
            _ => Meaning::Failed,
        }
    }
}

/// What is to be done about a command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing: it was done.
    Done,
    /// It is tried again, now or later.
    Again,
    Later,
    /// The same, and what was not flushed is lost.
    Restarted,
    /// The medium is another one, or none.
    Taken,
    /// It is not to be written.
    Protected,
    /// It is over.
    Failed,
}

/// Whether what INQUIRY answered is of a disk.
///
/// # Errors
/// [`Error`], if it is none.
pub fn check_inquiry(answer: &[u8]) -> Result<[u8; INQUIRY_BYTES as usize], Error> {
    let bytes = answer.first_chunk().copied();
    let bytes: [u8; INQUIRY_BYTES as usize] = bytes.ok_or(Error::Config("what INQUIRY asks"))?;
    match bytes[0] {
        DISK => Ok(bytes),
        _ => Err(Error::Lacks("another kind of device than a disk")),
    }
}

/// The last block, and bytes of each, as READ CAPACITY answers; `None` if more blocks than that
/// can say.
///
/// # Errors
/// [`Error`], if it cannot be, or the driver cannot use such blocks.
pub fn capacity(answer: &[u8]) -> Result<Option<(u64, usize)>, Error> {
    let [a, b, c, d, e, f, g, h, ..] = *answer else {
        return Err(Error::Config("how many blocks it has"));
    };
    let last = u32::from_be_bytes([a, b, c, d]);
    if last == u32::MAX {
        return Ok(None);
    }
    let size = block_size(u32::from_be_bytes([e, f, g, h]))?;
    Ok(Some((last.into(), size)))
}

/// The same of the long command, and whether blocks can be of no use to anybody.
///
/// # Errors
/// As above.
pub fn capacity_long(answer: &[u8]) -> Result<(u64, usize, bool), Error> {
    let wrong = Error::Config("how many blocks it has");
    let bytes: [u8; 15] = answer.first_chunk().copied().ok_or(wrong)?;
    let (last, rest) = bytes.split_first_chunk::<8>().ok_or(wrong)?;
    let (size, rest) = rest.split_first_chunk::<4>().ok_or(wrong)?;
    let last = u64::from_be_bytes(*last);
    let size = block_size(u32::from_be_bytes(*size))?;
    // Bytes of all of them are a number as well.
    match last < u64::MAX / 2 / size as u64 {
        true => Ok((last, size, rest[2] & 0x80 != 0)),
        false => Err(wrong),
    }
}

fn block_size(bytes: u32) -> Result<usize, Error> {
    let size = BLOCK_BYTES.into_iter().find(|size| *size == bytes);
    size.map(|size| size as usize)
        .ok_or(Error::Lacks("blocks of an odd size"))
}

/// What the modes say: whether it is not to be written, and whether what was written may be lost
/// until it is flushed, if they say so (SPC-4, 7.5; SBC-3, 6.4.5).
pub fn modes(answer: &[u8]) -> (bool, Option<bool>) {
    let [_, _, specific, descriptors, rest @ ..] = answer else {
        return (false, None);
    };
    let read_only = specific & 0x80 != 0;
    let mut rest = rest.get(usize::from(*descriptors)..).unwrap_or_default();
    while let [page, length, content @ ..] = rest {
        if page & 0x7f == MODE_CACHE {
            return (read_only, content.first().map(|bits| bits & 1 << 2 != 0));
        }
        rest = content.get(usize::from(*length)..).unwrap_or_default();
    }
    (read_only, None)
}

/// Blocks of one UNMAP, at most, by the page of limits; 0 if there is none.
pub fn unmap_blocks(answer: &[u8]) -> u32 {
    let is_page = answer.get(1) == Some(&PAGE_LIMITS);
    let field = answer.get(20..24).and_then(|field| field.first_chunk());
    match (is_page, field) {
        (true, Some(field)) => u32::from_be_bytes(*field),
        _ => 0,
    }
}

/// Whether it has UNMAP, by the page of provisioning.
pub fn unmaps(answer: &[u8]) -> bool {
    matches!(*answer, [_, PAGE_PROVISIONING, _, _, _, bits, ..] if bits & 0x80 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn commands_are_those_of_the_specification() {
        let read = Command::transfer(false, 0x1234_5678, 0x9abc, 512);
        let wanted = [0x28, 0, 0x12, 0x34, 0x56, 0x78, 0, 0x9a, 0xbc, 0];
        assert_eq!((&read.bytes[..10], read.length), (&wanted[..], 10));
        let write = Command::transfer(true, 0x1_0000_0002, 3, 0);
        let wanted = [0x8a, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0];
        assert_eq!((write.bytes, write.length), (wanted, 16));
        let [header, block, blocks] = unmap_list(0x0102, 0x03).map(u64::to_le_bytes);
        assert_eq!(header, [0, 22, 0, 16, 0, 0, 0, 0]);
        assert_eq!(
            (block, blocks),
            ([0, 0, 0, 0, 0, 0, 1, 2], [0, 0, 0, 3, 0, 0, 0, 0])
        );
    }

    #[test]
    fn what_a_disk_says_of_itself_is_believed_if_it_can_be() {
        let long = [&[0; 6][..], &[1, 2], &[0, 0, 16, 0], &[0, 0, 0x80]].concat();
        assert_eq!(capacity_long(&long), Ok((0x102, 4096, true)));
        assert!(capacity_long(&[0xff; 32]).is_err());
        assert_eq!(capacity(&[0, 0, 1, 0, 0, 0, 2, 0]), Ok(Some((256, 512))));
        assert_eq!(capacity(&[0xff; 8]), Ok(None));
        for size in [0_u32, 1, 513, 8192] {
            let answer = [&[0, 0, 0, 9][..], &size.to_be_bytes()].concat();
            assert!(capacity(&answer).is_err());
        }
        let answer = [
            0, 0, 0x80, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0x88, 10, 4,
        ];
        assert_eq!(modes(&answer), (true, Some(true)));
        assert_eq!(modes(&answer[..16]), (true, None));
        assert_eq!(modes(&[0, 0, 0, 255, 8, 2, 4]), (false, None));
        let mut page = [0; 64];
        (page[1], page[23]) = (PAGE_LIMITS, 9);
        assert_eq!((unmap_blocks(&page), unmap_blocks(&page[..22])), (9, 0));
        assert!(unmaps(&[0, PAGE_PROVISIONING, 0, 4, 0, 0x80]) && !unmaps(&page));
    }

    #[test]
    fn why_a_command_failed_is_read_from_both_formats() {
        let mut fixed = [0; 18];
        (fixed[0], fixed[2], fixed[12], fixed[13]) = (0x70, 0xe6, 0x29, 1);
        let sense = Sense::of(&fixed).unwrap();
        assert_eq!((sense.number(), sense.means()), (0x629, Meaning::Restarted));
        assert_eq!(Sense::of(&[0x72, 6, 0x29, 1]), Ok(sense));
        assert!(Sense::of(&fixed[..13]).is_err() && Sense::of(&[]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_something_or_an_error(bytes: Vec<u8>) {
            let _ = (modes(&bytes), unmap_blocks(&bytes), unmaps(&bytes));
            let _ = (Sense::of(&bytes), check_inquiry(&bytes));
            if let Ok((last, size, _)) = capacity_long(&bytes) {
                assert!((last + 1).checked_mul(size as u64).is_some());
            }
        }
    }
}
