//! Ports of a PC: the serial line, and the keyboard's controller, by which the guest resets itself.

use crate::layout::{SERIAL, SERIAL_PORTS};
use rustix::stdio;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use vm_superio::serial::NoEvents;
use vm_superio::{Serial, Trigger};
use vmm_sys_util::eventfd::EventFd;

/// The keyboard's controller: data, and commands or status.
const KEYBOARD: u16 = 0x60;
const KEYBOARD_COMMAND: u16 = 0x64;
/// Pulses the line that resets the processor.
const RESET: u8 = 0xfe;
/// Bytes of the line's queue.
const QUEUE: usize = 64;

/// An interrupt, raised by an event of the kernel's.
#[derive(Debug)]
pub struct Interrupt(EventFd);

impl Interrupt {
    /// That of `event`.
    pub fn new(event: EventFd) -> Self {
        Self(event)
    }
}

impl Trigger for Interrupt {
    type E = io::Error;

    fn trigger(&self) -> io::Result<()> {
        self.0.write(1)
    }
}

/// Standard output, without a buffer that would have to be allocated.
#[derive(Debug)]
pub struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(stdio::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a write to a port asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To go on.
    Nothing,
    /// To reset the machine.
    Reset,
}

/// The serial line, which the processor and the thread of standard input share.
pub struct Console(Mutex<Serial<Interrupt, NoEvents, Output>>);

impl Console {
    /// One whose interrupt is this. What it will ever allocate, it allocates now.
    pub fn new(interrupt: Interrupt) -> Self {
        let mut serial = Serial::new(interrupt, Output);
        let full = serial.enqueue_raw_bytes(&[0; QUEUE]);
        for _ in 0..full.unwrap_or(0) {
            serial.read(0);
        }
        Self(Mutex::new(serial))
    }

    /// Puts bytes into its queue, as many as fit: how many those were.
    pub fn type_in(&self, bytes: &[u8]) -> usize {
        // Without room there is an error, and with a broken event nobody to tell.
        self.serial().enqueue_raw_bytes(bytes).unwrap_or(0)
    }

    /// Reads a port of the machine; one that nobody has reads as ones.
    pub fn read(&self, port: u16, data: &mut [u8]) {
        data.fill(0xff);
        match (serial_register(port), data) {
            (Some(register), [byte]) => *byte = self.serial().read(register),
            // No key, and room for commands.
            (None, [byte]) if [KEYBOARD, KEYBOARD_COMMAND].contains(&port) => *byte = 0,
            _ => {}
        }
    }

    /// Writes to a port of the machine.
    pub fn write(&self, port: u16, data: &[u8]) -> Wish {
        match (serial_register(port), data) {
            (Some(register), [byte]) => {
                // Output that nobody reads any more is lost, as on a line without a terminal.
                let _ = self.serial().write(register, *byte);
                Wish::Nothing
            }
            (None, [RESET]) if port == KEYBOARD_COMMAND => Wish::Reset,
            _ => Wish::Nothing,
        }
    }

    /// A thread that panicked has left the line as it was between two bytes.
    fn serial(&self) -> MutexGuard<'_, Serial<Interrupt, NoEvents, Output>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serial_register(port: u16) -> Option<u8> {
    let register = port.checked_sub(SERIAL)?;
    (register < SERIAL_PORTS).then_some(register as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console() -> Console {
        Console::new(Interrupt::new(EventFd::new(0).unwrap()))
    }

    #[test]
    fn what_is_typed_is_read_in_order_and_no_more_than_fits() {
        let console = console();
        assert_eq!(console.type_in(&[7; 100]), QUEUE);
        assert_eq!(console.type_in(b"x"), 0);
        let mut byte = [0];
        for _ in 0..QUEUE {
            console.read(SERIAL, &mut byte);
            assert_eq!(byte, [7]);
        }
        assert_eq!(console.type_in(b"ab"), 2);
        console.read(SERIAL, &mut byte);
        assert_eq!(byte, [b'a']);
    }

    #[test]
    fn the_keyboard_resets_and_nobodys_ports_read_as_ones() {
        let console = console();
        assert_eq!(console.write(KEYBOARD_COMMAND, &[RESET]), Wish::Reset);
        assert_eq!(console.write(KEYBOARD_COMMAND, &[0xd1]), Wish::Nothing);
        assert_eq!(console.write(0x80, &[RESET]), Wish::Nothing);
        let mut bytes = [0; 4];
        console.read(0xcf8, &mut bytes);
        assert_eq!(bytes, [0xff; 4]);
        console.read(SERIAL, &mut bytes);
        assert_eq!(bytes, [0xff; 4], "a register has one byte");
        let mut byte = [1];
        console.read(KEYBOARD_COMMAND, &mut byte);
        assert_eq!(byte, [0]);
    }
}
