//! A terminal that shows one page and hears keys (ECMA-48; termios(3)).
//!
//! Four escape sequences and one call of termios are all that this takes, so no crate does it: the
//! smallest one would bring ten others.

use super::view::Size;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGTERM, SIGWINCH};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Another page, without a cursor (DECSET 1049, DECTCEM of xterm's control sequences).
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// The page that there was before, and the cursor.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// The cursor to the upper left corner (CUP), and all behind what follows cleared (ED).
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BEHIND: &str = "\x1b[J";
/// The size of a terminal that does not say: a VT100's.
const SIZE: Size = Size {
    rows: 24,
    columns: 80,
};
/// What an interrupt character is in a raw terminal.
const CONTROL_C: u8 = 3;

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To see it again.
    Again,
    /// This key was pressed.
    Key(u8),
    /// To end.
    End,
}

/// A terminal, until this is dropped.
#[derive(Debug)]
pub struct Screen {
    before: Termios,
    ends: Arc<AtomicBool>,
}

impl Screen {
    /// Takes the terminal that is standard input and standard output.
    ///
    /// # Errors
    /// They are none, or the kernel refuses.
    pub fn enter() -> io::Result<Self> {
        let stdin = rustix::stdio::stdin();
        let before = tcgetattr(stdin)?;
        let ends = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&ends))?;
        }
        // Another size ends the wait for a key, and nothing more.
        signal_hook::flag::register(SIGWINCH, Arc::new(AtomicBool::new(false)))?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin, OptionalActions::Now, &raw)?;
        let screen = Self { before, ends };
        show(ENTER)?;
        Ok(screen)
    }

    /// How large it is at the moment.
    pub fn size(&self) -> Size {
        let size = tcgetwinsize(rustix::stdio::stdout()).ok();
        let size = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
        size.map_or(SIZE, |size| Size {
            rows: size.ws_row.into(),
            columns: size.ws_col.into(),
        })
    }

    /// Shows a page, whose lines end in CR and LF.
    ///
    /// # Errors
    /// The terminal has gone.
    pub fn show(&self, page: &str) -> io::Result<()> {
        let page = page.replace("\r\n", &format!("{CLEAR_LINE}\r\n"));
        show(&format!("{HOME}{page}{CLEAR_LINE}{CLEAR_BEHIND}"))
    }

    /// Waits for a key.
    ///
    /// # Errors
    /// The terminal has gone.
    pub fn wait(&self, time: Duration) -> io::Result<Wish> {
        if self.ends.load(Ordering::Relaxed) {
            return Ok(Wish::End);
        }
        let stdin = rustix::stdio::stdin();
        let time = Timespec::try_from(time).ok();
        let mut wanted = [PollFd::new(&stdin, PollFlags::IN)];
        match rustix::event::poll(&mut wanted, time.as_ref()) {
            Ok(0) => return Ok(Wish::Again),
            Err(Errno::INTR) if self.ends.load(Ordering::Relaxed) => return Ok(Wish::End),
            Err(Errno::INTR) => return Ok(Wish::Again),
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut key = [0];
        match rustix::io::read(stdin, &mut key) {
            Ok(0) => Ok(Wish::End),
            Ok(_) if key[0] == CONTROL_C => Ok(Wish::End),
            Ok(_) => Ok(Wish::Key(key[0])),
            Err(Errno::INTR | Errno::AGAIN) => Ok(Wish::Again),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Whatever fails here, there is no terminal to say so on.
        let _ = show(LEAVE);
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.before);
    }
}

fn show(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
