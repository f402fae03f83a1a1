//! Admin commands (Base 2.0, 5).

use super::Nvme;
use super::command::Command;
use super::identify::{self, ALL_NAMESPACES, NAMESPACE};
use super::queue::{Completions, IO_QUEUES, Submissions};
use super::registers::ENTRIES_MAX;
use super::status::{Failure, Status};
use super::transfer::{PAGE, walk};
use crate::dma::Dma;

/// Opcodes (figure 138).
mod opcode {
    pub const DELETE_SUBMISSIONS: u8 = 0x00;
    pub const CREATE_SUBMISSIONS: u8 = 0x01;
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const DELETE_COMPLETIONS: u8 = 0x04;
    pub const CREATE_COMPLETIONS: u8 = 0x05;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0a;
    pub const EVENT: u8 = 0x0c;
}

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Became {
    /// It is done, with this in dword 0.
    Done(u32),
    /// It waits for something to happen.
    Waits,
}

/// Dword 11 of both commands that create a queue: physically contiguous; interrupts enabled.
const CONTIGUOUS: u32 = 1 << 0;
const INTERRUPTS: u32 = 1 << 1;
/// Abort: the command was not aborted (5.1).
const NOT_ABORTED: u32 = 1;
/// Logs that there are: errors, health, firmware slots (figure 202).
const LOG_ERRORS: u8 = 1;
const LOG_HEALTH: u8 = 2;
const LOG_FIRMWARE: u8 = 3;
/// Bytes of the log of health.
const HEALTH_BYTES: usize = 512;
/// Most bytes of a log that are returned; behind the log they are zeros.
const LOG_BYTES_MAX: u64 = PAGE;

impl Nvme {
    /// Does an admin command.
    pub(crate) fn administer(
        &mut self,
        command: &Command,
        dma: &dyn Dma,
    ) -> Result<Became, Failure> {
        match command.opcode() {
            opcode::DELETE_SUBMISSIONS => self.delete_submissions(command),
            opcode::CREATE_SUBMISSIONS => self.create_submissions(command),
            opcode::DELETE_COMPLETIONS => self.delete_completions(command),
            opcode::CREATE_COMPLETIONS => self.create_completions(command),
            opcode::GET_LOG_PAGE => self.log(command, dma),
            opcode::IDENTIFY => self.identify(command, dma),
            opcode::ABORT => Ok(self.abort(command)),
            opcode::SET_FEATURES => {
                let (id, value) = (command.dword(10) as u8, command.dword(11));
                self.features.set(id, value).map(Became::Done)
            }
            opcode::GET_FEATURES => {
                let dword = command.dword(10);
                let answer = self.features.get(dword as u8, dword >> 8 & 0b111);
                answer.map(Became::Done)
            }
            opcode::EVENT => self.await_event(command),
            _ => Err(Failure::Said(Status::INVALID_OPCODE)),
        }
    }

    /// The number of a queue that a command names, one for I/O.
    fn number(command: &Command) -> Result<usize, Failure> {
        let number = usize::from(command.halves(10).0);
        let rule = "QID must be that of an I/O queue (5.5, 5.6)";
        match number {
            1..=IO_QUEUES => Ok(number),
            _ => Err(Failure::Rule(Status::INVALID_QUEUE, rule)),
        }
    }

    /// Where a queue lies that is to be created, and how many entries it has.
    fn ring(command: &Command) -> Result<(u64, u32), Failure> {
        let size = u32::from(command.halves(10).1) + 1;
        if !(2..=ENTRIES_MAX).contains(&size) {
            let rule = "QSIZE must be between 1 and CAP.MQES (5.5, 5.6)";
            return Err(Failure::Rule(Status::INVALID_QUEUE_SIZE, rule));
        }
        if command.dword(11) & CONTIGUOUS == 0 {
            let rule = "PC must be 1 where CAP.CQR is (5.5, 5.6)";
            return Err(Failure::Rule(Status::INVALID_FIELD, rule));
        }
        let [base, _] = command.pointers();
        if base % PAGE != 0 {
            let rule = "a queue must begin at a page (5.5, 5.6)";
            return Err(Failure::Rule(Status::PRP_OFFSET, rule));
        }
        Ok((base, size))
    }

    fn create_completions(&mut self, command: &Command) -> Result<Became, Failure> {
        let number = Self::number(command)?;
        let (base, size) = Self::ring(command)?;
        if self.completions[number].is_some() {
            let rule = "there must be no completion queue of that number (5.5)";
            return Err(Failure::Rule(Status::INVALID_QUEUE, rule));
        }
        self.check_entry_sizes()?;
        let vector = command.halves(11).1;
        if vector >= super::VECTORS {
            let rule = "IV must be a vector that there is (5.5)";
            return Err(Failure::Rule(Status::INVALID_VECTOR, rule));
        }
        let vector = (command.dword(11) & INTERRUPTS != 0).then_some(vector);
        self.completions[number] = Some(Completions::new(base, size, vector));
        Ok(Became::Done(0))
    }

    fn create_submissions(&mut self, command: &Command) -> Result<Became, Failure> {
        let number = Self::number(command)?;
        let (base, size) = Self::ring(command)?;
        if self.submissions[number].is_some() {
            let rule = "there must be no submission queue of that number (5.6)";
            return Err(Failure::Rule(Status::INVALID_QUEUE, rule));
        }
        self.check_entry_sizes()?;
        let completions = usize::from(command.halves(11).1);
        let exists = self
            .completions
            .get(completions)
            .is_some_and(Option::is_some);
        if completions == 0 || !exists {
            let rule = "CQID must be an I/O completion queue that exists (5.6)";
            return Err(Failure::Rule(Status::INVALID_COMPLETION_QUEUE, rule));
        }
        self.submissions[number] = Some(Submissions::new(base, size, completions));
        Ok(Became::Done(0))
    }

    fn delete_submissions(&mut self, command: &Command) -> Result<Became, Failure> {
        let number = Self::number(command)?;
        if self.submissions[number].take().is_none() {
            let rule = "QID must be a submission queue that exists (5.8)";
            return Err(Failure::Rule(Status::INVALID_QUEUE, rule));
        }
        self.hung.retain(|(queue, _)| *queue != number);
        Ok(Became::Done(0))
    }

    fn delete_completions(&mut self, command: &Command) -> Result<Became, Failure> {
        let number = Self::number(command)?;
        if self.completions[number].is_none() {
            let rule = "QID must be a completion queue that exists (5.7)";
            return Err(Failure::Rule(Status::INVALID_QUEUE, rule));
        }
        let mut users = self.submissions.iter().flatten();
        if users.any(|queue| queue.completions == number) {
            let rule = "its submission queues must be deleted first (5.7)";
            return Err(Failure::Rule(Status::INVALID_DELETION, rule));
        }
        self.completions[number] = None;
        Ok(Became::Done(0))
    }

    fn identify(&mut self, command: &Command, dma: &dyn Dma) -> Result<Became, Failure> {
        let number = command.namespace();
        let page = match command.dword(10) as u8 {
            0x00 => match number {
                0 => return Err(Failure::Said(Status::INVALID_NAMESPACE)),
                number => self.identify_namespace(number),
            },
            0x01 => self.identify_controller(),
            0x02 if number < ALL_NAMESPACES - 1 => self.identify_namespaces(number),
            0x03 if number == NAMESPACE => self.identify_descriptors(),
            0x02 | 0x03 => return Err(Failure::Said(Status::INVALID_NAMESPACE)),
            _ => return Err(Failure::Said(Status::INVALID_FIELD)),
        };
        self.copy(command, &page, dma)
    }

    /// Writes what a command returns to where its data lie.
    fn copy(&mut self, command: &Command, bytes: &[u8], dma: &dyn Dma) -> Result<Became, Failure> {
        walk(
            command.pointers(),
            bytes.len() as u64,
            dma,
            &mut self.pieces,
        )?;
        let mut rest = bytes;
        for piece in &self.pieces {
            let (here, behind) = rest.split_at(piece.bytes);
            dma.write(piece.iova, here)?;
            rest = behind;
        }
        Ok(Became::Done(0))
    }

    /// Get Log Page (5.16).
    fn log(&mut self, command: &Command, dma: &dyn Dma) -> Result<Became, Failure> {
        let mut log = vec![0; identify::BYTES];
        match command.dword(10) as u8 {
            // No error has happened.
            LOG_ERRORS => {}
            LOG_HEALTH => log[..HEALTH_BYTES].copy_from_slice(&health()),
            // The first slot is active, and has what Identify says.
            LOG_FIRMWARE => log[0] = 1,
            _ => return Err(Failure::Said(Status::INVALID_LOG)),
        }
        let count = u64::from(command.halves(10).1) | u64::from(command.halves(11).0) << 16;
        let bytes = 4 * (count + 1);
        let offset = u64::from(command.dword(12)) | u64::from(command.dword(13)) << 32;
        if bytes > LOG_BYTES_MAX || offset != 0 {
            return Err(Failure::Said(Status::INVALID_FIELD));
        }
        self.copy(command, &log[..bytes as usize], dma)
    }

    /// Abort (5.1): of commands that hang.
    fn abort(&mut self, command: &Command) -> Became {
        let (queue, id) = command.halves(10);
        let wanted = (usize::from(queue), id);
        let Some(place) = self.hung.iter().position(|hung| *hung == wanted) else {
            return Became::Done(NOT_ABORTED);
        };
        self.hung.remove(place);
        self.aborted.push(wanted);
        Became::Done(0)
    }

    /// Asynchronous Event Request (5.2): nothing ever happens here that is reported.
    fn await_event(&mut self, _: &Command) -> Result<Became, Failure> {
        if self.events > identify::EVENTS {
            let rule = "there must be no more of these than AERL says (5.2)";
            return Err(Failure::Rule(Status::TOO_MANY_EVENTS, rule));
        }
        self.events += 1;
        Ok(Became::Waits)
    }
}

/// The log of health (5.16.1.3): all is well.
fn health() -> [u8; HEALTH_BYTES] {
    let mut log = [0; HEALTH_BYTES];
    // 27 degrees Celsius in kelvins; spare blocks in percent, and how few are too few.
    log[1..3].copy_from_slice(&300u16.to_le_bytes());
    log[3..5].copy_from_slice(&[100, 10]);
    log
}
