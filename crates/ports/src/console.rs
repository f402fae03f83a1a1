//! The console: text for whoever started the guest.

use crate::host::{Errno, Host};
use core::fmt;

/// Attempts at one piece of text: a console that takes nothing must not stop the guest.
const WRITE_ATTEMPTS_MAX: usize = 100;
/// Bytes that are collected before they are written.
const LINE_BYTES: usize = 256;

/// Writes bytes to the console. What it does not take is lost.
pub fn write(host: &dyn Host, mut bytes: &[u8]) {
    for _ in 0..WRITE_ATTEMPTS_MAX {
        if bytes.is_empty() {
            return;
        }
        match host.print(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTERRUPTED | Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}

/// Writes formatted text to the console, in one piece if it has the length of a line.
pub fn print(host: &dyn Host, arguments: fmt::Arguments<'_>) {
    let mut line = Line {
        host,
        bytes: [0; LINE_BYTES],
        used: 0,
    };
    let _ = fmt::Write::write_fmt(&mut line, arguments);
    line.flush();
}

/// Text that was formatted and not written yet.
struct Line<'a> {
    host: &'a dyn Host,
    bytes: [u8; LINE_BYTES],
    used: usize,
}

impl Line<'_> {
    fn flush(&mut self) {
        write(self.host, &self.bytes[..self.used]);
        self.used = 0;
    }
}

impl fmt::Write for Line<'_> {
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
