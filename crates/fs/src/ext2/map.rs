//! Inodes, and where the blocks of each lie.

use super::layout::{DIRECT, FORMAT_FILE, FORMAT_LINK, GROUP_INODE_TABLE, INODE, Inode, ROOT};
use super::{Core, Error, failed};
use alloc::vec;
use bytes::Bytes;

/// The largest file of a file system that does not know larger ones.
const SMALL_FILE_MAX: u64 = i32::MAX as u64;
/// `h_refcount` of a block of attributes (the kernel's ext4 documentation, "Extended Attributes").
const ATTRIBUTES_SHARED: u64 = 4;

/// Blocks that are looked for at once.
const RUN_MAX: usize = 128;

/// The way to a block: a slot of the inode, and one of each block of pointers.
struct Way {
    slots: [u32; 4],
    len: usize,
}

impl Core {
    /// Whether a block is one that a file can have.
    pub(super) fn check_block(&self, block: u32) -> Result<(), Error> {
        let range = self.geometry.first + 1..self.geometry.blocks;
        let is_one = range.contains(&block).then_some(());
        is_one.ok_or(Error::Damaged("a block does not lie on the disk"))
    }

    fn inode_at(&self, number: u32) -> Result<u64, Error> {
        let geometry = self.geometry;
        let is_one = number == ROOT || (geometry.first_inode..=geometry.inodes).contains(&number);
        if !is_one {
            return Err(Error::Damaged("a name leads to no inode"));
        }
        let (group, index) = (
            (number - 1) / geometry.group_inodes,
            (number - 1) % geometry.group_inodes,
        );
        let table = self.read(geometry.descriptor(group) + GROUP_INODE_TABLE)?;
        let table = geometry.at(u32::from_le_bytes(table));
        Ok(table + u64::from(index) * u64::from(geometry.inode_size))
    }

    pub(super) fn inode(&self, number: u32) -> Result<Inode, Error> {
        let bytes: [u8; INODE] = self.read(self.inode_at(number)?)?;
        let inode = Inode { number, bytes };
        match inode.links() {
            0 => Err(Error::Damaged("a name leads to a removed inode")),
            _ => Ok(inode),
        }
    }

    pub(super) fn store(&mut self, inode: &Inode) -> Result<(), Error> {
        let at = self.inode_at(inode.number)?;
        self.write(at, &inode.bytes)
    }

    /// Stores an inode that was not used before: what others have behind it is 0.
    pub(super) fn store_new(&mut self, inode: &Inode) -> Result<(), Error> {
        let at = self.inode_at(inode.number)?;
        let behind = vec![0; self.geometry.inode_size as usize - INODE];
        self.write(at + INODE as u64, &behind)?;
        self.write(at, &inode.bytes)
    }

    fn way(&self, index: u64) -> Result<Way, Error> {
        let each = u64::from(self.geometry.block / 4);
        if index < DIRECT {
            let slots = [index as u32, 0, 0, 0];
            return Ok(Way { slots, len: 1 });
        }
        let (mut rest, mut span) = (index - DIRECT, each);
        for depth in 1..=3 {
            if rest < span {
                let mut slots = [DIRECT as u32 + depth - 1, 0, 0, 0];
                for slot in slots[1..=depth as usize].iter_mut() {
                    span /= each;
                    *slot = (rest / span) as u32;
                    rest %= span;
                }
                let len = depth as usize + 1;
                return Ok(Way { slots, len });
            }
            rest -= span;
            span *= each;
        }
        Err(Error::TooLarge)
    }

    fn pointer_at(&self, block: u32, slot: u32) -> u64 {
        self.geometry.at(block) + 4 * u64::from(slot)
    }

    /// The block of a file; none where it has a hole.
    pub(super) fn find(&self, inode: &Inode, index: u64) -> Result<Option<u32>, Error> {
        Ok(self.find_run(inode, index, 1)?.0)
    }

    /// The same, and how many blocks from this one on, of `most`, follow each other on the disk, or
    /// are part of the hole.
    fn find_run(
        &self,
        inode: &Inode,
        index: u64,
        most: usize,
    ) -> Result<(Option<u32>, usize), Error> {
        if inode.has_extents() {
            return self.find_extent(inode, index, most);
        }
        let way = self.way(index)?;
        let last = way.slots[way.len - 1];
        let mut pointers = [0; 4 * RUN_MAX];
        let (start, slots) = match way.len {
            1 => (0, DIRECT as u32),
            _ => (self.pointers_of(inode, &way)?, self.geometry.block / 4),
        };
        let count = most.clamp(1, RUN_MAX).min((slots - last) as usize);
        let pointers = &mut pointers[..4 * count];
        if way.len == 1 {
            pointers.copy_from_slice(&inode.pointers()[4 * last as usize..][..4 * count]);
        } else if start == 0 {
            return Ok((None, count));
        } else {
            let at = self.pointer_at(start, last);
            self.volume.read(at, pointers).map_err(failed)?;
        }
        let word = |bytes: &[u8]| {
            bytes
                .first_chunk()
                .map_or(0, |word| u32::from_le_bytes(*word))
        };
        let mut pointers = pointers.chunks_exact(4).map(word);
        let first = pointers.next().unwrap_or(0);
        let step = u32::from(first != 0);
        let mut run = 1;
        while run < count && pointers.next() == first.checked_add(step * run as u32) {
            run += 1;
        }
        if first == 0 {
            return Ok((None, run));
        }
        self.check_block(first)?;
        self.check_block(first + run as u32 - 1)?;
        Ok((Some(first), run))
    }

    /// The block of pointers that leads to a block of a file; 0 where it has a hole.
    fn pointers_of(&self, inode: &Inode, way: &Way) -> Result<u32, Error> {
        let mut block = inode.pointer(way.slots[0] as usize);
        for slot in &way.slots[1..way.len - 1] {
            if block == 0 {
                return Ok(0);
            }
            self.check_block(block)?;
            block = u32::from_le_bytes(self.read(self.pointer_at(block, *slot))?);
        }
        match block {
            0 => Ok(0),
            block => self.check_block(block).map(|()| block),
        }
    }

    /// The block of a file, which is made of zeroes if there is none. The caller stores the inode.
    pub(super) fn make(&mut self, inode: &mut Inode, index: u64) -> Result<u32, Error> {
        let way = self.way(index)?;
        let mut block = inode.pointer(way.slots[0] as usize);
        if block == 0 {
            block = self.blank(inode, way.len > 1)?;
            inode.set_pointer(way.slots[0] as usize, block);
        }
        for (level, slot) in way.slots[1..way.len].iter().enumerate() {
            self.check_block(block)?;
            let at = self.pointer_at(block, *slot);
            block = u32::from_le_bytes(self.read(at)?);
            if block == 0 {
                // Whoever checks a folder takes its last block for its end.
                block = self.blank(inode, level + 2 < way.len || inode.is_folder())?;
                self.write(at, &block.to_le_bytes())?;
            }
        }
        self.check_block(block)?;
        Ok(block)
    }

    /// A block of zeroes, next to the last that was taken. Where it is one of pointers, the disk
    /// has the zeroes before anything leads there.
    fn blank(&mut self, inode: &mut Inode, is_ordered: bool) -> Result<u32, Error> {
        let block = self.take_block(self.near)?;
        self.near = block + 1;
        let zeroes = vec![0; self.geometry.block as usize];
        self.write(self.geometry.at(block), &zeroes)?;
        if is_ordered {
            self.order()?;
        }
        self.add_sectors(inode, 1);
        Ok(block)
    }

    fn add_sectors(&self, inode: &mut Inode, blocks: i32) {
        let each = (self.geometry.block / 512) as i32;
        inode.set_sectors(inode.sectors().saturating_add_signed(blocks * each));
    }

    /// Frees the blocks of a file behind the first `keep`. The caller stores the inode.
    pub(super) fn cut(&mut self, inode: &mut Inode, keep: u64) -> Result<(), Error> {
        self.visited = 0;
        let each = u64::from(self.geometry.block / 4);
        let (mut start, mut span) = (0, 1);
        for slot in 0..=DIRECT as usize + 2 {
            let depth = slot.saturating_sub(DIRECT as usize - 1);
            if depth > 0 {
                span *= each;
            }
            let block = inode.pointer(slot);
            if block != 0 && keep < start + span {
                let keep = keep.saturating_sub(start);
                if self.cut_branch(inode, block, depth, keep)? {
                    inode.set_pointer(slot, 0);
                }
            }
            start += span;
        }
        Ok(())
    }

    /// Frees what a block of `depth` leads to behind the first `keep`; whether the block goes, too.
    fn cut_branch(
        &mut self,
        inode: &mut Inode,
        block: u32,
        depth: usize,
        keep: u64,
    ) -> Result<bool, Error> {
        self.check_block(block)?;
        self.visited += 1;
        if self.visited > self.geometry.blocks {
            return Err(Error::Damaged("the blocks of a file lead in a circle"));
        }
        if depth > 0 {
            let each = u64::from(self.geometry.block / 4);
            let span = each.pow(depth as u32 - 1);
            for slot in keep / span..each {
                let at = self.pointer_at(block, slot as u32);
                let child = u32::from_le_bytes(self.read(at)?);
                let keep = keep.saturating_sub(slot * span);
                if child != 0 && keep < span && self.cut_branch(inode, child, depth - 1, keep)? {
                    self.write(at, &[0; 4])?;
                }
            }
        }
        if keep == 0 {
            self.free_block(block)?;
            self.add_sectors(inode, -1);
        }
        Ok(keep == 0)
    }

    pub(super) fn read_file(
        &self,
        inode: &Inode,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, Error> {
        let count = inode.size().saturating_sub(offset).min(bytes.len() as u64) as usize;
        let block = u64::from(self.geometry.block);
        let (mut at, mut rest) = (offset, &mut bytes[..count]);
        while !rest.is_empty() {
            let skipped = at % block;
            let most = (skipped as usize + rest.len()).div_ceil(block as usize);
            let (found, run) = self.find_run(inode, at / block, most)?;
            let size = rest.len().min(run * block as usize - skipped as usize);
            let (part, behind) = rest.split_at_mut(size);
            match found {
                Some(found) => {
                    let place = self.geometry.at(found) + skipped;
                    self.volume.read(place, part).map_err(failed)?;
                }
                None => part.fill(0),
            }
            (at, rest) = (at + size as u64, behind);
        }
        Ok(count)
    }

    /// The same with what others may hold as well: all of it, where it lies in one piece.
    pub(super) fn share_file(
        &self,
        inode: &Inode,
        offset: u64,
        most: usize,
    ) -> Result<Bytes, Error> {
        let count = inode.size().saturating_sub(offset).min(most as u64) as usize;
        let block = u64::from(self.geometry.block);
        let skipped = offset % block;
        let blocks = (skipped as usize + count).div_ceil(block as usize);
        if blocks > 0
            && let (Some(found), run) = self.find_run(inode, offset / block, blocks)?
            && run == blocks
        {
            let place = self.geometry.at(found) + skipped;
            return self.volume.share(place, count).map_err(failed);
        }
        let mut bytes = vec![0; count];
        self.read_file(inode, offset, &mut bytes)?;
        Ok(bytes.into())
    }

    /// Writes to a file, and stores its inode.
    pub(super) fn write_file(
        &mut self,
        inode: &mut Inode,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let end = offset.checked_add(bytes.len() as u64);
        let end = end.ok_or(Error::TooLarge)?;
        self.check_size(end)?;
        if offset > inode.size() {
            self.clear_tail(inode)?;
        }
        let block = u64::from(self.geometry.block);
        let (mut at, mut rest) = (offset, bytes);
        let mut result = Ok(());
        while !rest.is_empty() {
            let skipped = at % block;
            let (part, behind) = rest.split_at(rest.len().min((block - skipped) as usize));
            let written = self
                .make(inode, at / block)
                .and_then(|found| self.write(self.geometry.at(found) + skipped, part));
            if written.is_err() {
                result = written;
                break;
            }
            (at, rest) = (at + part.len() as u64, behind);
        }
        if at > offset {
            inode.set_size(inode.size().max(at));
        }
        inode.set_modified(self.now());
        self.store(inode)?;
        result
    }

    pub(super) fn set_file_len(&mut self, inode: &mut Inode, len: u64) -> Result<(), Error> {
        self.check_size(len)?;
        let old = inode.size();
        if len > old {
            self.clear_tail(inode)?;
        }
        inode.set_size(len);
        // What was freed of it stays free where the rest of it cannot be found.
        let cut = match len < old {
            true => self
                .cut(inode, len.div_ceil(u64::from(self.geometry.block)))
                .and_then(|()| self.clear_tail(inode)),
            false => Ok(()),
        };
        inode.set_modified(self.now());
        self.store(inode)?;
        cut
    }

    /// Whether a file can have as many bytes as it says.
    pub(super) fn check_file(&self, inode: &Inode) -> Result<(), Error> {
        let blocks = inode.size().div_ceil(self.geometry.block.into());
        match inode.has_extents() {
            true if blocks <= u64::from(u32::MAX) => Ok(()),
            true => Err(Error::TooLarge),
            false => self.check_size(inode.size()),
        }
    }

    fn check_size(&self, size: u64) -> Result<(), Error> {
        if size > SMALL_FILE_MAX && !self.geometry.has_large {
            return Err(Error::TooLarge);
        }
        self.way(
            size.div_ceil(u64::from(self.geometry.block))
                .saturating_sub(1),
        )?;
        Ok(())
    }

    /// What lies behind the end in the last block is 0.
    fn clear_tail(&mut self, inode: &Inode) -> Result<(), Error> {
        let block = u64::from(self.geometry.block);
        let skipped = inode.size() % block;
        if skipped > 0
            && let Some(found) = self.find(inode, inode.size() / block)?
        {
            let zeroes = vec![0; (block - skipped) as usize];
            self.write(self.geometry.at(found) + skipped, &zeroes)?;
        }
        Ok(())
    }

    /// Whether a link lies in its inode.
    pub(super) fn is_inline(&self, inode: &Inode) -> bool {
        let attributes = match inode.attributes() {
            0 => 0,
            _ => self.geometry.block / 512,
        };
        inode.format() == FORMAT_LINK && inode.sectors() == attributes
    }

    /// One name less leads there: without any, it is gone.
    pub(super) fn unlink(&mut self, mut inode: Inode) -> Result<(), Error> {
        // A folder names itself.
        let last = if inode.is_folder() { 2 } else { 1 };
        if inode.links() > last {
            inode.set_links(inode.links() - 1);
            return self.store(&inode);
        }
        inode.set_links(0);
        inode.set_removed(self.now().max(1));
        let is_folder = inode.is_folder();
        let has_blocks = is_folder
            || inode.format() == FORMAT_FILE
            || inode.format() == FORMAT_LINK && !self.is_inline(&inode);
        // What was freed of it stays free where the rest of it cannot be found.
        let cut = match has_blocks {
            true => self.cut(&mut inode, 0),
            false => Ok(()),
        };
        let freed = self.free_attributes(&inode);
        inode.set_size(0);
        self.store(&inode)?;
        self.free_inode(inode.number, is_folder)?;
        cut.and(freed)
    }

    /// Files share a block of attributes, which says how many do.
    fn free_attributes(&mut self, inode: &Inode) -> Result<(), Error> {
        let block = inode.attributes();
        if block == 0 {
            return Ok(());
        }
        self.check_block(block)?;
        let at = self.geometry.at(block) + ATTRIBUTES_SHARED;
        match u32::from_le_bytes(self.read(at)?) {
            0 | 1 => self.free_block(block),
            shared => self.write(at, &(shared - 1).to_le_bytes()),
        }
    }
}
