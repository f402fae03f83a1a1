//! Where things lie on the disk (the kernel's ext4 documentation, "Super Block", "Block Group
//! Descriptors", "Index Nodes"), as far as ext2 has them.

use crate::volume::Volume;

/// Where the super block lies, and its size.
pub(super) const SUPER_BLOCK: u64 = 1024;
const SUPER_BLOCK_SIZE: usize = 1024;

/// Fields of the super block that are changed.
pub(super) const FREE_BLOCKS: u64 = SUPER_BLOCK + 0xc;
pub(super) const FREE_INODES: u64 = SUPER_BLOCK + 0x10;
pub(super) const WRITTEN: u64 = SUPER_BLOCK + 0x30;
pub(super) const STATE: u64 = SUPER_BLOCK + 0x3a;

/// `s_state`: it was left clean.
pub(super) const CLEAN: u16 = 1;

/// Features of which a writer must know (`s_feature_incompat`, `s_feature_ro_compat`), as far as
/// this one does: kinds in folders; fewer copies of the super block, and files over 2 GiB.
const FILETYPE: u32 = 0x2;
const SPARSE_SUPER: u32 = 0x1;
const LARGE_FILE: u32 = 0x2;
/// `s_feature_compat`: there is a journal. Who writes beside it makes it lie.
const HAS_JOURNAL: u32 = 0x4;

/// The same of features that only who reads meets: extents, 64 bits, groups whose tables lie
/// together, a seed for checksums.
const READ: u32 = FILETYPE | 0x40 | BITS_64 | 0x200 | 0x2000;
/// Descriptors of groups are longer.
const BITS_64: u32 = 0x80;

/// Bytes of a group's descriptor, and fields of it.
const DESCRIPTOR: u32 = 32;
pub(super) const GROUP_BLOCK_BITMAP: u64 = 0;
pub(super) const GROUP_INODE_BITMAP: u64 = 4;
pub(super) const GROUP_INODE_TABLE: u64 = 8;
pub(super) const GROUP_FREE_BLOCKS: u64 = 12;
pub(super) const GROUP_FREE_INODES: u64 = 14;
pub(super) const GROUP_FOLDERS: u64 = 16;

/// Most groups: those of 4 KiB blocks make a disk of 8 TiB of so many.
const GROUPS_MAX: u32 = 1 << 16;
/// The largest block that is written here: a page.
const LOG_BLOCK_SIZE_MAX: u32 = 2;

/// The inode of the root, and the first that is no one's by itself.
pub(super) const ROOT: u32 = 2;
const FIRST_INODE: u32 = 11;

/// What of the super block never changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// Bytes of a block.
    pub block: u32,
    pub blocks: u32,
    /// The block with the super block.
    pub first: u32,
    pub inodes: u32,
    pub group_blocks: u32,
    pub group_inodes: u32,
    pub groups: u32,
    pub inode_size: u32,
    pub first_inode: u32,
    /// Whether folders say of what kind a name is.
    pub has_kinds: bool,
    /// Whether files may be larger than 2 GiB.
    pub has_large: bool,
    /// Bytes of a group's descriptor.
    descriptor_size: u32,
    /// Whether nothing is there that a writer does not know.
    is_written: bool,
}

impl Geometry {
    /// That of a file system that is read here: without features that are not known, and with sizes
    /// that fit the volume.
    pub(super) fn read(volume: &Volume) -> Option<Self> {
        let mut bytes = [0; SUPER_BLOCK_SIZE];
        volume.read(SUPER_BLOCK, &mut bytes).ok()?;
        let half = |at: usize| {
            bytes[at..]
                .first_chunk()
                .map_or(0, |b| u16::from_le_bytes(*b))
        };
        let word = |at: usize| {
            bytes[at..]
                .first_chunk()
                .map_or(0, |b| u32::from_le_bytes(*b))
        };
        let (revision, log) = (word(0x4c), word(0x18));
        let (compatible, incompatible, read_only) = (word(0x5c), word(0x60), word(0x64));
        let is_known = half(0x38) == 0xef53
            && revision <= 1
            && incompatible & !READ == 0
            && log <= LOG_BLOCK_SIZE_MAX;
        if !is_known {
            return None;
        }
        let is_written = compatible & HAS_JOURNAL == 0
            && incompatible & !FILETYPE == 0
            && read_only & !(SPARSE_SUPER | LARGE_FILE) == 0
            && half(0x3a) == CLEAN
            && word(0x1c) == log;
        // The upper halves of numbers of blocks are those of larger disks, which are another's.
        let descriptor_size = match incompatible & BITS_64 {
            0 => DESCRIPTOR,
            _ if word(0x150) != 0 => return None,
            _ => half(0xfe).into(),
        };
        let (inode_size, first_inode) = match revision {
            0 => (128, FIRST_INODE),
            _ => (u32::from(half(0x58)), word(0x54)),
        };
        let (blocks, first, group_blocks) = (word(0x4), word(0x14), word(0x20));
        if group_blocks == 0 {
            return None;
        }
        let found = Self {
            block: 1024 << log,
            blocks,
            first,
            inodes: word(0x0),
            group_blocks,
            group_inodes: word(0x28),
            groups: blocks.checked_sub(first)?.div_ceil(group_blocks),
            inode_size,
            first_inode,
            has_kinds: incompatible & FILETYPE != 0,
            has_large: read_only & LARGE_FILE != 0,
            descriptor_size,
            is_written,
        };
        found.is_sound(volume).then_some(found)
    }

    /// Whether it is one that is written here, too.
    pub(super) fn is_written(&self) -> bool {
        self.is_written
    }

    fn is_sound(&self, volume: &Volume) -> bool {
        let bits = 8 * self.block;
        self.descriptor_size.is_power_of_two()
            && (DESCRIPTOR..=1024).contains(&self.descriptor_size)
            && self.first == u32::from(self.block == 1024)
            && u64::from(self.blocks) * u64::from(self.block) <= volume.size()
            && (1..=GROUPS_MAX).contains(&self.groups)
            && self.group_blocks <= bits
            && (1..=bits).contains(&self.group_inodes)
            && self.groups.checked_mul(self.group_inodes) == Some(self.inodes)
            && self.inode_size.is_power_of_two()
            && (128..=self.block).contains(&self.inode_size)
            && (FIRST_INODE..self.inodes).contains(&self.first_inode)
            && (0..self.groups).all(|group| self.has_sound_group(volume, group))
    }

    /// Whether a group's bitmaps and inodes lie on the volume, behind the descriptors.
    fn has_sound_group(&self, volume: &Volume, group: u32) -> bool {
        let mut bytes = [0; 12];
        let descriptor = self.descriptor(group);
        if volume.read(descriptor, &mut bytes).is_err() {
            return false;
        }
        let table = u64::from(self.group_inodes) * u64::from(self.inode_size);
        let table = table.div_ceil(u64::from(self.block));
        let sizes = [
            (GROUP_BLOCK_BITMAP, 1),
            (GROUP_INODE_BITMAP, 1),
            (GROUP_INODE_TABLE, table),
        ];
        sizes.into_iter().all(|(at, size)| {
            let word = bytes[at as usize..].first_chunk();
            let start = u64::from(word.map_or(0, |word| u32::from_le_bytes(*word)));
            start * u64::from(self.block) > descriptor && start + size <= u64::from(self.blocks)
        })
    }

    /// Where a group's descriptor lies.
    pub(super) fn descriptor(&self, group: u32) -> u64 {
        self.at(self.first + 1) + u64::from(group) * u64::from(self.descriptor_size)
    }

    /// Where a block lies.
    pub(super) fn at(&self, block: u32) -> u64 {
        u64::from(block) * u64::from(self.block)
    }
}

/// Bytes of an inode that all have.
pub(super) const INODE: usize = 128;
/// Blocks that an inode names itself, and those of pointers to others.
pub(super) const DIRECT: u64 = 12;

const FORMAT: u16 = 0xf000;
pub(super) const FORMAT_FILE: u16 = 0x8000;
pub(super) const FORMAT_FOLDER: u16 = 0x4000;
pub(super) const FORMAT_LINK: u16 = 0xa000;
/// `i_flags`: the folder has an index, which only who knows it keeps right.
const FLAG_INDEX: u32 = 0x1000;
/// `i_flags`: the pointers are extents.
const FLAG_EXTENTS: u32 = 0x8_0000;
/// `i_flags`: immutable, or to be appended to alone.
const FLAGS_FIXED: u32 = 0x30;

/// An inode, as it lies there.
#[derive(Clone)]
pub(super) struct Inode {
    pub number: u32,
    pub bytes: [u8; INODE],
}

impl Inode {
    /// A new one.
    pub(super) fn new(number: u32, mode: u16, links: u16, now: u32) -> Self {
        let mut inode = Self {
            number,
            bytes: [0; INODE],
        };
        inode.bytes[0..2].copy_from_slice(&mode.to_le_bytes());
        inode.set_links(links);
        for at in [8, 12] {
            inode.set_word(at, now);
        }
        inode.set_modified(now);
        inode
    }

    fn half(&self, at: usize) -> u16 {
        let half = self.bytes[at..].first_chunk();
        half.map_or(0, |half| u16::from_le_bytes(*half))
    }

    fn word(&self, at: usize) -> u32 {
        let word = self.bytes[at..].first_chunk();
        word.map_or(0, |word| u32::from_le_bytes(*word))
    }

    fn set_word(&mut self, at: usize, word: u32) {
        self.bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }

    pub(super) fn format(&self) -> u16 {
        self.half(0) & FORMAT
    }

    pub(super) fn is_folder(&self) -> bool {
        self.format() == FORMAT_FOLDER
    }

    pub(super) fn size(&self) -> u64 {
        // A folder's upper half is an access list of its own.
        let high = match self.format() {
            FORMAT_FILE => self.word(108),
            _ => 0,
        };
        u64::from(high) << 32 | u64::from(self.word(4))
    }

    pub(super) fn set_size(&mut self, size: u64) {
        self.set_word(4, size as u32);
        if self.format() == FORMAT_FILE {
            self.set_word(108, (size >> 32) as u32);
        }
    }

    pub(super) fn modified(&self) -> u32 {
        self.word(16)
    }

    pub(super) fn set_modified(&mut self, now: u32) {
        self.set_word(12, now);
        self.set_word(16, now);
    }

    pub(super) fn set_removed(&mut self, now: u32) {
        self.set_word(20, now);
    }

    pub(super) fn links(&self) -> u16 {
        self.half(26)
    }

    pub(super) fn set_links(&mut self, links: u16) {
        self.bytes[26..28].copy_from_slice(&links.to_le_bytes());
    }

    /// Sectors of 512 bytes that it takes.
    pub(super) fn sectors(&self) -> u32 {
        self.word(28)
    }

    pub(super) fn set_sectors(&mut self, sectors: u32) {
        self.set_word(28, sectors);
    }

    pub(super) fn has_extents(&self) -> bool {
        self.word(32) & FLAG_EXTENTS != 0
    }

    pub(super) fn is_fixed(&self) -> bool {
        self.word(32) & FLAGS_FIXED != 0
    }

    /// Says that there is no index; whether there was one.
    pub(super) fn drop_index(&mut self) -> bool {
        let flags = self.word(32);
        self.set_word(32, flags & !FLAG_INDEX);
        flags & FLAG_INDEX != 0
    }

    pub(super) fn pointer(&self, slot: usize) -> u32 {
        self.word(40 + 4 * slot)
    }

    /// All pointers, or what a short symbolic link names in their place.
    pub(super) fn pointers(&self) -> &[u8] {
        &self.bytes[40..100]
    }

    pub(super) fn set_pointer(&mut self, slot: usize, block: u32) {
        self.set_word(40 + 4 * slot, block);
    }

    /// The block of attributes, 0 if there is none.
    pub(super) fn attributes(&self) -> u32 {
        self.word(104)
    }
}
