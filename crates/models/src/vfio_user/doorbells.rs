//! The page of doorbells (see [`abi::doorbell`]), on the device's side.
//!
//! What stands in the page is the other side's word, so nothing is ever read from it but values of
//! doorbells, each of which the device would have to bear as a message too.

use crate::Device;
use abi::doorbell::{
    ASLEEP_WORD, COUNT_MAX, MAGIC_WORD, PAGE_BYTES, magic, offset_word, value_word,
};
use hw::sim::View;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

struct Doorbell {
    offset: u64,
    /// What stood in the page last.
    seen: u64,
}

/// The page, and what was seen in it.
pub(super) struct Doorbells {
    file: OwnedFd,
    page: View,
    doorbells: Vec<Doorbell>,
    asleep: bool,
}

/// Where a word lies in the page.
fn place(word: usize) -> u64 {
    (word * size_of::<u64>()) as u64
}

fn register(device: &mut dyn Device, offset: u64) -> u64 {
    let mut value = [0; 4];
    device.read(0, offset, &mut value);
    u64::from(u32::from_le_bytes(value))
}

impl Doorbells {
    /// A page for the doorbells of `device`; `None` if it has none, or more than fit.
    pub(super) fn new(device: &mut dyn Device) -> io::Result<Option<Self>> {
        let offsets = device.doorbells();
        if offsets.is_empty() || offsets.len() > COUNT_MAX {
            return Ok(None);
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("doorbells", flags)?;
        ftruncate(&file, PAGE_BYTES as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let page = View::of_file(file.as_fd(), 0, PAGE_BYTES as u64, 0, true)?;
        let doorbell = |offset: &usize| Doorbell {
            offset: *offset as u64,
            seen: 0,
        };
        let mut doorbells = Self {
            file,
            page,
            doorbells: offsets.iter().map(doorbell).collect(),
            asleep: false,
        };
        for (n, offset) in offsets.iter().enumerate() {
            doorbells.store(offset_word(n), *offset as u64);
        }
        doorbells.store(MAGIC_WORD, magic(offsets.len()));
        doorbells.refresh(device);
        Ok(Some(doorbells))
    }

    /// The file of the page.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn store(&self, word: usize, value: u64) {
        // Every word is within the page.
        let _ = self.page.store(place(word), value);
    }

    fn load(&self, word: usize) -> u64 {
        self.page.load(place(word)).unwrap_or(0)
    }

    /// Tells the device what was written since the last look; whether anything was.
    pub(super) fn look(&mut self, device: &mut dyn Device) -> bool {
        let mut any = false;
        for n in 0..self.doorbells.len() {
            let value = self.load(value_word(n));
            let doorbell = &mut self.doorbells[n];
            if value != doorbell.seen {
                doorbell.seen = value;
                device.write(0, doorbell.offset, &(value as u32).to_le_bytes());
                any = true;
            }
        }
        any
    }

    /// Writes into the page what the registers hold, after something else than a doorbell may have
    /// changed them. The driver's side waits for an answer meanwhile, so nothing of its is lost.
    pub(super) fn refresh(&mut self, device: &mut dyn Device) {
        for n in 0..self.doorbells.len() {
            let value = register(device, self.doorbells[n].offset);
            if value != self.doorbells[n].seen {
                self.doorbells[n].seen = value;
                self.store(value_word(n), value);
            }
        }
    }

    /// Says that nobody looks from now on, and looks once more: whether there was something, so
    /// that nobody must sleep.
    pub(super) fn sleep(&mut self, device: &mut dyn Device) -> bool {
        if !self.asleep {
            self.asleep = true;
            self.store(ASLEEP_WORD, 1);
        }
        // Either this look sees what the other side wrote, or that one sees the word.
        fence(Ordering::SeqCst);
        self.look(device)
    }

    /// Says that somebody looks.
    pub(super) fn wake(&mut self) {
        if self.asleep {
            self.asleep = false;
            self.store(ASLEEP_WORD, 0);
        }
    }
}
