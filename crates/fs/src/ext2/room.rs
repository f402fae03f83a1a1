//! Which blocks and inodes are free, and what the super block says of it all.

use super::layout::{
    CLEAN, FREE_BLOCKS, FREE_INODES, GROUP_BLOCK_BITMAP, GROUP_FOLDERS, GROUP_FREE_BLOCKS,
    GROUP_FREE_INODES, GROUP_INODE_BITMAP, STATE, WRITTEN,
};
use super::{Core, Error, failed};
use alloc::vec;
use core::mem;

/// Most blocks that wait to be free.
const FREED_MAX: usize = 1 << 16;

impl Core {
    pub(super) fn read<const N: usize>(&self, at: u64) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.volume.read(at, &mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    /// Changes bytes of the file system. Before the first change, the disk says that it is not
    /// clean.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        if self.is_clean {
            self.volume.write(STATE, &[0, 0]).map_err(failed)?;
            self.is_clean = false;
            self.volume.flush().map_err(failed)?;
        }
        self.volume.write(at, bytes).map_err(failed)
    }

    /// What was written so far is on the disk before what is written from now on.
    pub(super) fn order(&self) -> Result<(), Error> {
        self.volume.flush().map_err(failed)
    }

    /// Has all of it outlive a power cut, and the disk say that it is clean.
    pub(super) fn sync(&mut self) -> Result<(), Error> {
        if self.is_clean {
            return self.order();
        }
        self.settle()?;
        let now = self.now().to_le_bytes();
        self.write(WRITTEN, &now)?;
        self.order()?;
        if !self.is_damaged {
            self.write(STATE, &CLEAN.to_le_bytes())?;
            self.is_clean = true;
            self.order()?;
        }
        Ok(())
    }

    fn add_word(&mut self, at: u64, add: i32) -> Result<(), Error> {
        let word = u32::from_le_bytes(self.read(at)?);
        self.write(at, &word.saturating_add_signed(add).to_le_bytes())
    }

    fn add_half(&mut self, group: u32, field: u64, add: i16) -> Result<(), Error> {
        let at = self.geometry.descriptor(group) + field;
        let half = u16::from_le_bytes(self.read(at)?);
        self.write(at, &half.saturating_add_signed(add).to_le_bytes())
    }

    /// Whose bitmap it is.
    fn bitmap(&self, group: u32, field: u64) -> Result<u64, Error> {
        let at = self.geometry.descriptor(group) + field;
        Ok(self.geometry.at(u32::from_le_bytes(self.read(at)?)))
    }

    /// The first bit of a bitmap that is not set, of those in a range.
    fn clear_bit(&self, bitmap: u64, from: u32, end: u32) -> Result<Option<u32>, Error> {
        let mut bytes = vec![0; self.geometry.block as usize];
        self.volume.read(bitmap, &mut bytes).map_err(failed)?;
        let mut at = from;
        while at < end {
            let byte = bytes.get(at as usize / 8).copied().unwrap_or(u8::MAX) >> (at % 8);
            match byte.trailing_ones() {
                // Those above were shifted in.
                ones if at % 8 + ones >= 8 => at = (at / 8 + 1) * 8,
                ones => {
                    at += ones;
                    return Ok((at < end).then_some(at));
                }
            }
        }
        Ok(None)
    }

    /// Changes a bit; whether it was as it is now.
    fn change_bit(&mut self, bitmap: u64, bit: u32, is_set: bool) -> Result<bool, Error> {
        let at = bitmap + u64::from(bit / 8);
        let [byte] = self.read(at)?;
        let mask = 1 << (bit % 8);
        let new = if is_set { byte | mask } else { byte & !mask };
        self.write(at, &[new])?;
        Ok(new == byte)
    }

    /// Takes a block, the next to `near` that is free.
    pub(super) fn take_block(&mut self, near: u32) -> Result<u32, Error> {
        match self.find_block(near)? {
            Some(block) => Ok(block),
            // Those that wait may be free now.
            None if !self.freed.is_empty() => {
                self.settle()?;
                self.find_block(near)?.ok_or(Error::NoSpace)
            }
            None => Err(Error::NoSpace),
        }
    }

    fn find_block(&mut self, near: u32) -> Result<Option<u32>, Error> {
        let geometry = self.geometry;
        let near = near.clamp(geometry.first, geometry.blocks - 1) - geometry.first;
        let (first, from) = (near / geometry.group_blocks, near % geometry.group_blocks);
        // The first group comes again at the end, for what lies before `near`.
        for turn in 0..=geometry.groups {
            let group = (first + turn) % geometry.groups;
            let free = geometry.descriptor(group) + GROUP_FREE_BLOCKS;
            if u16::from_le_bytes(self.read(free)?) == 0 {
                continue;
            }
            let start = geometry.first + group * geometry.group_blocks;
            let end = (geometry.blocks - start).min(geometry.group_blocks);
            let from = if turn == 0 { from } else { 0 };
            let bitmap = self.bitmap(group, GROUP_BLOCK_BITMAP)?;
            if let Some(bit) = self.clear_bit(bitmap, from, end)? {
                self.change_bit(bitmap, bit, true)?;
                self.add_half(group, GROUP_FREE_BLOCKS, -1)?;
                self.add_word(FREE_BLOCKS, -1)?;
                return Ok(Some(start + bit));
            }
        }
        Ok(None)
    }

    /// A block is free, once the disk knows that nobody has it any more: what is written to it by
    /// whoever has it next must not be found by who had it.
    pub(super) fn free_block(&mut self, block: u32) -> Result<(), Error> {
        self.check_block(block)?;
        self.freed.push(block);
        match self.freed.len() < FREED_MAX {
            true => Ok(()),
            false => self.settle(),
        }
    }

    /// What waited is free.
    fn settle(&mut self) -> Result<(), Error> {
        if self.freed.is_empty() {
            return Ok(());
        }
        self.order()?;
        let mut was_free = false;
        for block in mem::take(&mut self.freed) {
            let index = block - self.geometry.first;
            let group = index / self.geometry.group_blocks;
            let bitmap = self.bitmap(group, GROUP_BLOCK_BITMAP)?;
            match self.change_bit(bitmap, index % self.geometry.group_blocks, false)? {
                true => was_free = true,
                false => {
                    self.add_half(group, GROUP_FREE_BLOCKS, 1)?;
                    self.add_word(FREE_BLOCKS, 1)?;
                }
            }
        }
        match was_free {
            true => Err(Error::Damaged("two files had the same block")),
            false => Ok(()),
        }
    }

    /// Takes an inode, in the group of its folder if there is one.
    pub(super) fn take_inode(&mut self, folder: u32, is_folder: bool) -> Result<u32, Error> {
        let geometry = self.geometry;
        let first = (folder - 1) / geometry.group_inodes;
        for turn in 0..geometry.groups {
            let group = (first + turn) % geometry.groups;
            let start = group * geometry.group_inodes;
            // Those below have their own meaning.
            let from = (geometry.first_inode - 1).saturating_sub(start);
            let bitmap = self.bitmap(group, GROUP_INODE_BITMAP)?;
            if let Some(bit) = self.clear_bit(bitmap, from, geometry.group_inodes)? {
                self.change_bit(bitmap, bit, true)?;
                self.add_half(group, GROUP_FREE_INODES, -1)?;
                self.add_word(FREE_INODES, -1)?;
                if is_folder {
                    self.add_half(group, GROUP_FOLDERS, 1)?;
                }
                return Ok(start + bit + 1);
            }
        }
        Err(Error::NoSpace)
    }

    pub(super) fn free_inode(&mut self, inode: u32, is_folder: bool) -> Result<(), Error> {
        let index = inode - 1;
        let group = index / self.geometry.group_inodes;
        let bitmap = self.bitmap(group, GROUP_INODE_BITMAP)?;
        if self.change_bit(bitmap, index % self.geometry.group_inodes, false)? {
            return Err(Error::Damaged("a name led to a free inode"));
        }
        self.add_half(group, GROUP_FREE_INODES, 1)?;
        self.add_word(FREE_INODES, 1)?;
        if is_folder {
            self.add_half(group, GROUP_FOLDERS, -1)?;
        }
        Ok(())
    }
}
