//! What the disk is like: asked once it is found, and again behind each reset (SBC-3, SPC-4).

use super::scsi::{self, Command, INQUIRY_BYTES, Meaning};
use super::transport::{TRANSFER_NANOSECONDS, Transport};
use crate::usb::Error;
use crate::usb::descriptor::{self, Described, Identity};
use crate::usb::tree::{Found, Way};
use crate::usb::wait::{MILLISECOND, late};

/// How long a disk may take to get ready, in nanoseconds, and how often it is asked.
pub const READY_NANOSECONDS: u64 = 30_000 * MILLISECOND;
pub const ASK_NANOSECONDS: u64 = 100 * MILLISECOND;
/// Bytes of a text that tells a disk from others of its kind, as many as are compared.
const SERIAL_BYTES: usize = 128;
/// Bytes of one UNMAP, at most.
const UNMAP_BYTES_MAX: u64 = 1 << 30;
/// Which request a disk has many units by (Bulk-Only Transport, 3.2), answered by one byte.
const GET_MAX_LUN: [u8; 4] = [0xa1, 0xfe, 0, 0];

/// A disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    pub block_size: usize,
    /// Bytes, whole blocks.
    pub capacity: u64,
    pub read_only: bool,
    /// Whether what was written may be lost until it is flushed.
    pub has_cache: bool,
    /// SYNCHRONIZE CACHE.
    pub flushes: bool,
    /// Bytes of one UNMAP, whole blocks; 0 if there is none.
    pub unmap_bytes: u64,
    way: Way,
    identity: Identity,
    inquiry: [u8; INQUIRY_BYTES as usize],
    serial: [u8; SERIAL_BYTES],
}

impl Transport {
    /// Brings the disk up that was found.
    ///
    /// # Errors
    /// [`Error`], if it is none, or does not get ready.
    pub async fn open(&mut self, found: &Found) -> Result<Disk, Error> {
        self.device = found.device;
        let storage = found.storage;
        self.host
            .set_pipes(&found.device, [storage.out, storage.into])
            .await?;
        let request = descriptor::set_configuration(storage.configuration);
        self.host.control(&found.device, request).await?;
        let serial = self.serial(found).await?;
        // What it says is of no use: the first unit is taken. Some want to be asked.
        let [kind, request, low, high] = GET_MAX_LUN;
        let request = [kind, request, low, high, storage.interface, 0, 1, 0];
        match self.host.control(&found.device, request).await {
            Ok(()) | Err(Error::Stalled) => {}
            Err(error) => return Err(error),
        }
        self.must("INQUIRY", Command::inquiry()).await?;
        let inquiry = scsi::check_inquiry(&self.answer)?;
        self.ready().await?;
        let (block_size, capacity, thin) = self.capacity().await?;
        let (read_only, cache) = match self.may(Command::mode_sense()).await? {
            true => scsi::modes(&self.answer),
            false => (false, None),
        };
        let flushes = self.may(Command::synchronize_cache()).await?;
        Ok(Disk {
            block_size,
            capacity,
            read_only,
            // One that does not say may have one.
            has_cache: cache.unwrap_or(true),
            flushes,
            unmap_bytes: match thin && !read_only {
                true => self.unmap_bytes(block_size).await?,
                false => 0,
            },
            way: found.way,
            identity: found.identity,
            inquiry,
            serial,
        })
    }

    /// The text that tells the disk from others of its kind; none is all zeroes.
    async fn serial(&mut self, found: &Found) -> Result<[u8; SERIAL_BYTES], Error> {
        let mut serial = [0; SERIAL_BYTES];
        let index = found.identity.serial();
        if index == 0 {
            return Ok(serial);
        }
        let request = descriptor::request(Described::Text(index), SERIAL_BYTES as u16);
        match self.host.control(&found.device, request).await {
            Ok(()) => {
                for (byte, said) in serial.iter_mut().zip(&self.host.answer) {
                    *byte = *said;
                }
                Ok(serial)
            }
            Err(Error::Stalled) => Ok(serial),
            Err(error) => Err(error),
        }
    }

    /// Waits until the disk is ready.
    async fn ready(&mut self) -> Result<(), Error> {
        let since = self.host.now();
        loop {
            if self.is_ready().await? {
                return Ok(());
            }
            let sense = self.sense().await?;
            let refused = Error::Sense {
                command: "to be ready",
                sense: sense.number(),
            };
            match sense.means() {
                Meaning::Done => return Ok(()),
                // Behind a reset, the first command fails and says so.
                Meaning::Again | Meaning::Restarted | Meaning::Later => {}
                // A reader of cards says so of a card that was there all the time.
                Meaning::Taken if sense.key == 6 => {}
                Meaning::Taken => return Err(Error::Lacks("no medium")),
                Meaning::Protected | Meaning::Failed => return Err(refused),
            }
            if late(since, self.host.now(), READY_NANOSECONDS) {
                return Err(refused);
            }
            self.host.sleep(ASK_NANOSECONDS).await;
        }
    }

    /// Bytes of a block, bytes of all of them, and whether blocks can be of no use to anybody.
    async fn capacity(&mut self) -> Result<(usize, u64, bool), Error> {
        self.must("READ CAPACITY(10)", Command::read_capacity())
            .await?;
        let short = scsi::capacity(&self.answer)?;
        // Many sticks do not know the long one; then the short one must do.
        let long = match self.may(Command::read_capacity_long()).await? {
            true => Some(scsi::capacity_long(&self.answer)?),
            false => None,
        };
        match (short, long) {
            (Some((last, size)), None) => Ok((size, (last + 1) * size as u64, false)),
            (Some(short), Some((last, size, _))) if short != (last, size) => {
                Err(Error::Config("how many blocks it has"))
            }
            (_, Some((last, size, thin))) => Ok((size, (last + 1) * size as u64, thin)),
            (None, None) => Err(Error::Config("how many blocks it has")),
        }
    }

    /// Bytes of one UNMAP; 0 if there is none.
    async fn unmap_bytes(&mut self, block_size: usize) -> Result<u64, Error> {
        let offers = self.may(Command::page(scsi::PAGE_PROVISIONING)).await?;
        if !(offers && scsi::unmaps(&self.answer)) {
            return Ok(0);
        }
        if !self.may(Command::page(scsi::PAGE_LIMITS)).await? {
            return Ok(0);
        }
        let bytes = u64::from(scsi::unmap_blocks(&self.answer)) * block_size as u64;
        Ok(bytes.min(UNMAP_BYTES_MAX) / block_size as u64 * block_size as u64)
    }

    /// Has the disk carry a command out that every disk has.
    async fn must(&mut self, name: &'static str, command: Command) -> Result<(), Error> {
        const TRIES: usize = 3;
        let mut last = 0;
        for _ in 0..TRIES {
            if self.ask(command, TRANSFER_NANOSECONDS).await? {
                return Ok(());
            }
            // Reading why takes it away.
            last = self.sense().await?.number();
        }
        Err(Error::Sense {
            command: name,
            sense: last,
        })
    }

    /// Whether the disk carries out a command that not every disk has.
    async fn may(&mut self, command: Command) -> Result<bool, Error> {
        if self.ask(command, TRANSFER_NANOSECONDS).await? {
            return Ok(true);
        }
        self.sense().await?;
        Ok(false)
    }
}
