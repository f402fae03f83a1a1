//! Registers of a device that is another process: each access is a message and its answer, but for
//! doorbells, which lie in a shared page where the device has one. A message is about one register
//! of 8, 16 or 32 bits, and a doorbell has 32.
//!
//! That process is hostile. It may answer wrongly, late or never, and write into the page whatever
//! it likes: each answer is checked. No wait is longer than the socket's timeout, which the tender
//! has set, and none begins once an answer has taken [`PATIENCE`] from its first byte on. A device
//! that has not answered as it must is not asked again: all of its registers read all ones, as
//! those of one that was pulled out, and its driver gives it up.

use crate::host::{Errno, Handle};
use crate::runtime::Runtime;
use abi::doorbell::{ASLEEP_WORD, MAGIC_WORD, WORDS, count, offset_word, value_word};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use core::time::Duration;
use hw::Registers;
use vfio_user::{Deadline, PATIENCE, RegisterRead, RegisterValue, ReplyError, Width, reply_bytes};
use zerocopy::IntoBytes;

/// Doorbells beyond this offset go by message, in bytes: it bounds the table of them.
const DOORBELL_OFFSET_MAX: u64 = 64 << 10;
/// What a register reads that is not there.
const NOTHING: u32 = u32::MAX;

/// Why a device is not asked any more.
enum Failure {
    /// It has ended.
    Gone,
    /// It has not answered in time.
    Silent,
    /// The kernel refuses, for this reason.
    System(Errno),
    /// The answer is none.
    Reply(ReplyError),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => write!(f, "it has ended"),
            Self::Silent => write!(f, "it does not answer"),
            Self::System(errno) => write!(f, "errno {}", errno.0),
            Self::Reply(error) => error.fmt(f),
        }
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::AGAIN => Self::Silent,
            Errno::PIPE | Errno::RESET => Self::Gone,
            errno => Self::System(errno),
        }
    }
}

/// The connection to a device; its BARs share it.
pub struct Connection {
    runtime: &'static Runtime,
    socket: Handle,
    index: usize,
    id: Cell<u16>,
    lost: Cell<bool>,
    doorbells: Option<Doorbells>,
}

impl Connection {
    /// The connection to the device with this index, with its page of doorbells if it has one.
    pub fn new(
        runtime: &'static Runtime,
        socket: Handle,
        index: usize,
        page: Option<&'static [AtomicU64; WORDS]>,
    ) -> Self {
        Self {
            runtime,
            socket,
            index,
            id: Cell::new(0),
            lost: Cell::new(false),
            doorbells: page.and_then(Doorbells::new),
        }
    }

    fn next_id(&self) -> u16 {
        let id = self.id.get().wrapping_add(1);
        self.id.set(id);
        id
    }

    /// Says once that the device is lost; the run ends if nobody is there any more.
    #[cold]
    fn lose(&self, failure: &Failure) {
        self.lost.set(true);
        if let Failure::Gone = failure {
            self.runtime.device_gone(self.index);
        }
        let name = self.runtime.devices.pci_name(self.index);
        self.runtime.print(format_args!(
            "outboard: device {name}: asked no more: {failure}\n"
        ));
    }

    fn send(&self, message: &[u8]) -> Result<(), Failure> {
        // A stream takes all of so short a message, or nothing.
        loop {
            match self.runtime.host.send(self.socket, message) {
                Ok(sent) if sent == message.len() => return Ok(()),
                Ok(_) => return Err(Failure::Silent),
                Err(Errno::INTERRUPTED) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends a message, and puts the answer to `command` into `reply`; its length in bytes.
    fn exchange<const MOST: usize>(
        &self,
        message: &[u8],
        command: &vfio_user::Header,
        reply: &mut [u8; MOST],
    ) -> Result<usize, Failure> {
        self.send(message)?;
        let mut filled = 0;
        let mut deadline = None;
        // Each turn but interrupted ones adds a byte at least.
        loop {
            let wanted = reply_bytes(command, &reply[..filled], MOST).map_err(Failure::Reply)?;
            if wanted.is_some_and(|wanted| filled >= wanted) {
                return Ok(filled);
            }
            // Answers come whole: who sends one in parts shall not gain a timeout by each.
            if filled > 0 {
                let now = Duration::from_nanos(self.runtime.host.monotonic());
                let deadline = *deadline.get_or_insert(Deadline::new(now, PATIENCE));
                deadline.left(now).ok_or(Failure::Silent)?;
            }
            let end = wanted.unwrap_or(MOST);
            match self
                .runtime
                .host
                .receive(self.socket, &mut reply[filled..end])
            {
                Ok(0) => return Err(Failure::Gone),
                Ok(more) => filled += more,
                Err(Errno::INTERRUPTED) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn read(&self, bar: u32, offset: usize, width: Width) -> Result<u32, Failure> {
        let read = RegisterRead::new(self.next_id(), bar, offset as u64, width);
        let mut reply = [0; size_of::<RegisterValue>()];
        let filled = self.exchange(read.as_bytes(), &read.header, &mut reply)?;
        read.value(&reply[..filled]).map_err(Failure::Reply)
    }

    fn write(&self, bar: u32, offset: usize, width: Width, value: u32) -> Result<(), Failure> {
        let write = RegisterValue::write(self.next_id(), bar, offset as u64, width, value);
        let mut reply = [0; size_of::<RegisterRead>()];
        let header = write.header;
        let filled = self.exchange(write.message(), &header, &mut reply)?;
        write.written(&reply[..filled]).map_err(Failure::Reply)
    }
}

/// A BAR of such a device.
pub struct Bar {
    /// The connection to the device.
    pub connection: Rc<Connection>,
    /// Which BAR.
    pub number: u32,
    /// Its size in bytes.
    pub bytes: usize,
}

impl Bar {
    /// The doorbell at this offset, if it is one.
    #[inline]
    fn doorbell(&self, offset: usize) -> Option<&'static AtomicU64> {
        let doorbells = self
            .connection
            .doorbells
            .as_ref()
            .filter(|_| self.number == 0)?;
        doorbells.at(offset)
    }

    /// Reads a register by message.
    fn ask(&self, offset: usize, width: Width) -> u32 {
        let read = self.connection.read(self.number, offset, width);
        self.finish(read).unwrap_or(NOTHING)
    }

    /// Writes a register by message.
    fn tell(&self, offset: usize, width: Width, value: u32) {
        let written = self.connection.write(self.number, offset, width, value);
        self.finish(written);
    }

    /// What came of an access.
    fn finish<T>(&self, result: Result<T, Failure>) -> Option<T> {
        result
            .map_err(|failure| self.connection.lose(&failure))
            .ok()
    }
}

impl Registers for Bar {
    fn len(&self) -> usize {
        self.bytes
    }

    fn read32(&self, offset: usize) -> u32 {
        if self.connection.lost.get() {
            return NOTHING;
        }
        if let Some(doorbell) = self.doorbell(offset) {
            return doorbell.load(Ordering::Acquire) as u32;
        }
        self.ask(offset, Width::Word)
    }

    #[inline]
    fn write32(&self, offset: usize, value: u32) {
        if self.connection.lost.get() {
            return;
        }
        let Some(doorbell) = self.doorbell(offset) else {
            return self.tell(offset, Width::Word, value);
        };
        doorbell.store(u64::from(value), Ordering::Release);
        // Either this look sees that the device sleeps, or its last look sees the doorbell.
        fence(Ordering::SeqCst);
        if self
            .connection
            .doorbells
            .as_ref()
            .is_some_and(Doorbells::asleep)
        {
            let sent = self.connection.send(RegisterRead::wake().as_bytes());
            self.finish(sent);
        }
    }

    fn read_narrow(&self, offset: usize, bytes: usize) -> u32 {
        let width = Width::of(bytes).filter(|_| !self.connection.lost.get());
        width.map_or(NOTHING, |width| self.ask(offset, width))
    }

    fn write_narrow(&self, offset: usize, bytes: usize, value: u32) {
        let width = Width::of(bytes).filter(|_| !self.connection.lost.get());
        if let Some(width) = width {
            self.tell(offset, width, value);
        }
    }
}

/// A page of doorbells.
struct Doorbells {
    page: &'static [AtomicU64; WORDS],
    /// For each 32-bit register up to the last doorbell: the doorbell's number and one, or 0.
    table: Vec<u8>,
}

impl Doorbells {
    /// What the page says of itself is read once, here.
    fn new(page: &'static [AtomicU64; WORDS]) -> Option<Self> {
        let count = count(page[MAGIC_WORD].load(Ordering::Acquire))?;
        let mut table = vec![];
        for n in 0..count {
            let offset = page[offset_word(n)].load(Ordering::Relaxed);
            if offset.is_multiple_of(4) && offset < DOORBELL_OFFSET_MAX {
                let place = (offset / 4) as usize;
                table.resize(table.len().max(place + 1), 0);
                table[place] = n as u8 + 1;
            }
        }
        Some(Self { page, table })
    }

    #[inline]
    fn at(&self, offset: usize) -> Option<&'static AtomicU64> {
        let number = *self.table.get(offset / 4)?;
        Some(&self.page[value_word(usize::from(number.checked_sub(1)?))])
    }

    #[inline]
    fn asleep(&self) -> bool {
        self.page[ASLEEP_WORD].load(Ordering::Relaxed) != 0
    }
}

const _: () = assert!(abi::doorbell::COUNT_MAX <= u8::MAX as usize);
