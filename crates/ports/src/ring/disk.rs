//! A disk over a ring: any number of blocks in one transfer.

use super::{Nonsense, Rings, give_up, outcome};
use crate::disk::Transfer;
use crate::host::Errno;
use crate::runtime::Runtime;
use abi::ring::{Client, Operation, Request, asleep, waiting};

/// Most bytes of one transfer.
const TRANSFER_BYTES_MAX: usize = 1 << 30;

/// The ring of a disk.
pub(crate) struct RingDisk {
    runtime: &'static Runtime,
    rings: &'static Rings,
    name: &'static str,
    client: Client<'static>,
}

impl Transfer for RingDisk {
    fn bytes_max(&self, block_size: usize, _: u64) -> usize {
        TRANSFER_BYTES_MAX / block_size * block_size
    }

    fn discard_bytes_max(&self, block_size: usize, _: u64) -> u64 {
        (TRANSFER_BYTES_MAX / block_size * block_size) as u64
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        let address = bytes.as_mut_ptr().expose_provenance();
        self.transfer(Operation::Read, offset, address, bytes.len())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let address = bytes.as_ptr().expose_provenance();
        self.transfer(Operation::Write, offset, address, bytes.len())
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.transfer(Operation::Flush, 0, 0, 0).map(drop)
    }

    fn discard(&mut self, offset: u64, length: u64) -> Result<(), Errno> {
        let discarded = self.transfer(Operation::Discard, offset, 0, length as usize);
        discarded.map(drop)
    }
}

impl RingDisk {
    pub(super) fn new(
        runtime: &'static Runtime,
        rings: &'static Rings,
        name: &'static str,
        client: Client<'static>,
    ) -> Self {
        Self {
            runtime,
            rings,
            name,
            client,
        }
    }

    /// Has the host read or write there, and waits until it has.
    fn transfer(
        &mut self,
        operation: Operation,
        offset: u64,
        address: usize,
        length: usize,
    ) -> Result<usize, Errno> {
        let request = Request {
            address: address as u64,
            length: length as u32,
            operation,
            offset,
        };
        // The ring is empty, for each transfer is waited for.
        if !self.client.write(request) {
            return Err(Errno::AGAIN);
        }
        self.client.post();
        if self.rings.sleep.sleepers.host_waits() & asleep::IDLE != 0 {
            self.rings.host.kick();
        }
        loop {
            match self.take(length) {
                Ok(None) => self.sleep(),
                Ok(Some(result)) => return result,
                Err(nonsense) => give_up(self.runtime, self.name, nonsense),
            }
        }
    }

    fn take(&mut self, length: usize) -> Result<Option<Result<usize, Errno>>, Nonsense> {
        let result = self.client.take()?;
        result.map(|result| outcome(result, length)).transpose()
    }

    /// Sleeps until the host has answered, or anything else has happened.
    fn sleep(&mut self) {
        let client = &mut self.client;
        // A jump is found by whoever takes the result.
        let is_over = || client.has_result().unwrap_or(true);
        let others = self.rings.sleep.until(None, waiting::RECEIVE, is_over);
        let before = self.rings.pending.get().unwrap_or(0);
        self.rings.pending.set(Some(before | others));
    }
}
