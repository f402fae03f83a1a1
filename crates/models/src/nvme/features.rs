//! Features (Base 2.0, 5.27.1): what is set is what is got.

use super::queue::IO_QUEUES;
use super::status::{Failure, Status};

/// Volatile Write Cache (5.27.1.4), Number of Queues (5.27.1.5).
const CACHE: u8 = 0x06;
const QUEUES: u8 = 0x07;
/// The others that there are, which do nothing here: arbitration, power, temperature, error
/// recovery, coalescing and vectors of interrupts, atomicity, events.
const HELD: [u8; 8] = [0x01, 0x02, 0x04, 0x05, 0x08, 0x09, 0x0a, 0x0b];
const COUNT: usize = 0x0c;
/// What Get Features asks for (5.15): the current value, the default, what is saved, and what can
/// be done with it: it can be changed.
const SELECT_CURRENT: u32 = 0;
const SELECT_DEFAULT: u32 = 1;
const SELECT_SUPPORTED: u32 = 3;
const CHANGEABLE: u32 = 1 << 2;
/// How many queues of each kind there are, less one, in both halves.
const ALL_QUEUES: u32 = (IO_QUEUES as u32 - 1) * 0x1_0001;

/// The values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Features([u32; COUNT]);

impl Default for Features {
    fn default() -> Self {
        let mut values = [0; COUNT];
        values[usize::from(CACHE)] = 1;
        values[usize::from(QUEUES)] = ALL_QUEUES;
        // The temperature that is too high, in kelvins.
        values[4] = 343;
        Self(values)
    }
}

impl Features {
    fn known(id: u8) -> Result<usize, Failure> {
        match id == CACHE || id == QUEUES || HELD.contains(&id) {
            true => Ok(id.into()),
            false => Err(Failure::Said(Status::INVALID_FIELD)),
        }
    }

    /// Sets one; what the command returns.
    pub(crate) fn set(&mut self, id: u8, value: u32) -> Result<u32, Failure> {
        let place = Self::known(id)?;
        if id == QUEUES {
            if value as u16 == u16::MAX || value >> 16 == u32::from(u16::MAX) {
                let rule = "no more than 65535 queues can be asked for (5.27.1.5)";
                return Err(Failure::Rule(Status::INVALID_FIELD, rule));
            }
            // There are as many as there are, whatever is asked for.
            return Ok(ALL_QUEUES);
        }
        self.0[place] = value;
        Ok(0)
    }

    /// Gets one.
    pub(crate) fn get(&self, id: u8, select: u32) -> Result<u32, Failure> {
        let place = Self::known(id)?;
        match select {
            SELECT_CURRENT => Ok(self.0[place]),
            SELECT_DEFAULT => Ok(Self::default().0[place]),
            SELECT_SUPPORTED => Ok(CHANGEABLE),
            _ => Err(Failure::Said(Status::INVALID_FIELD)),
        }
    }

    /// Whether what is written may be lost until it is flushed.
    pub(crate) fn has_cache(&self) -> bool {
        self.0[usize::from(CACHE)] & 1 != 0
    }
}
