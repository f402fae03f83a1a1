//! The console: text for whoever started the guest.

use crate::host::{self, Errno};
use core::fmt;

/// Attempts at one piece of text; a console that takes nothing must not hold the guest up.
const WRITE_ATTEMPTS_MAX: usize = 100;

/// Writes bytes to the console. What it does not take is lost.
pub fn write_console(mut bytes: &[u8]) {
    for _ in 0..WRITE_ATTEMPTS_MAX {
        if bytes.is_empty() {
            return;
        }
        match host::print(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTERRUPTED | Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}

/// A line's worth of text on its way, so that one `println!` is one write.
#[doc(hidden)]
pub struct Line {
    bytes: [u8; 256],
    used: usize,
}

impl Line {
    /// Writes formatted text.
    pub fn print(arguments: fmt::Arguments<'_>) {
        let mut line = Self {
            bytes: [0; 256],
            used: 0,
        };
        let _ = fmt::Write::write_fmt(&mut line, arguments);
        line.flush();
    }

    fn flush(&mut self) {
        write_console(&self.bytes[..self.used]);
        self.used = 0;
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.as_bytes().chunks(self.bytes.len()) {
            if piece.len() > self.bytes.len() - self.used {
                self.flush();
            }
            self.bytes[self.used..self.used + piece.len()].copy_from_slice(piece);
            self.used += piece.len();
        }
        Ok(())
    }
}

#[doc(hidden)]
pub fn print(arguments: fmt::Arguments<'_>) {
    Line::print(arguments);
}

/// Prints to the console.
#[macro_export]
macro_rules! print {
    ($($argument:tt)*) => { $crate::__print(format_args!($($argument)*)) };
}

/// Prints to the console, with a newline.
#[macro_export]
macro_rules! println {
    () => { $crate::__print(format_args!("\n")) };
    ($($argument:tt)*) => { $crate::__print(format_args!("{}\n", format_args!($($argument)*))) };
}
