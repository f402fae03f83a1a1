//! The ring of a disk.

use super::{Nonsense, Rings, give_up, outcome};
use crate::host::Errno;
use crate::hvt;
use abi::ring::{Client, Operation, Request, asleep, waiting};

/// Most bytes of one transfer.
pub(crate) const TRANSFER_BYTES_MAX: usize = 1 << 30;

/// The ring of a disk.
pub(crate) struct Disk {
    name: &'static str,
    client: Client<'static>,
}

impl Disk {
    pub(super) fn new(name: &'static str, client: Client<'static>) -> Self {
        Self { name, client }
    }

    /// Reads from `offset`, at most [`TRANSFER_BYTES_MAX`] bytes.
    pub(crate) fn read(
        &mut self,
        rings: &Rings,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, Errno> {
        let address = bytes.as_mut_ptr().expose_provenance();
        self.transfer(rings, Operation::Read, offset, address, bytes.len())
    }

    /// Writes to `offset`, at most [`TRANSFER_BYTES_MAX`] bytes.
    pub(crate) fn write(
        &mut self,
        rings: &Rings,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, Errno> {
        let address = bytes.as_ptr().expose_provenance();
        self.transfer(rings, Operation::Write, offset, address, bytes.len())
    }

    fn transfer(
        &mut self,
        rings: &Rings,
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
        if rings.sleep.sleepers.host_waits() & asleep::IDLE != 0 {
            hvt::kick();
        }
        loop {
            match self.take(length) {
                Ok(None) => self.sleep(rings),
                Ok(Some(result)) => return result,
                Err(nonsense) => give_up(self.name, nonsense),
            }
        }
    }

    fn take(&mut self, length: usize) -> Result<Option<Result<usize, Errno>>, Nonsense> {
        let result = self.client.take()?;
        result.map(|result| outcome(result, length)).transpose()
    }

    /// Sleeps until the host has answered, or anything else has happened.
    fn sleep(&mut self, rings: &Rings) {
        let client = &mut self.client;
        // A jump is found by whoever takes the result.
        let is_over = || client.has_result().unwrap_or(true);
        let others = rings.sleep.until(None, waiting::RECEIVE, is_over);
        let before = rings.pending.get().unwrap_or(0);
        rings.pending.set(Some(before | others));
    }
}
