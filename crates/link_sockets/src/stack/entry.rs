//! A socket as the stack's end knows it: what the application has said of it and no task has done.

use crate::arrived::{self, Datagram};
use crate::fault::Fault;
use crate::message::What;
use crate::window::{Credit, Window, datagram_cost};
use alloc::collections::VecDeque;
use bytes::Bytes;
use core::net::IpAddr;
use core::task::Waker;
use core::time::Duration;

/// Wishes about groups that no task has heeded yet.
const GROUPS_MAX: usize = 64;

/// What kind of fault it is, of whichever socket.
pub type Broken = fn(u32) -> Fault;

/// What a socket is.
pub enum Kind {
    /// It waits for connections.
    Listener {
        /// Numbers and keys of sockets for those that come.
        offers: VecDeque<(u32, u64)>,
    },
    /// The next connection of a listener.
    Offered {
        /// The listener.
        listener: u32,
    },
    /// A connection, or what is to be one.
    Stream,
    /// It takes and sends datagrams.
    Datagrams {
        /// Those that are to leave.
        queue: VecDeque<Datagram>,
        /// Groups that it is to be in, or not.
        groups: VecDeque<(IpAddr, bool)>,
    },
}

impl Kind {
    pub fn listener() -> Self {
        Self::Listener {
            offers: VecDeque::new(),
        }
    }

    pub fn datagrams() -> Self {
        Self::Datagrams {
            queue: VecDeque::new(),
            groups: VecDeque::new(),
        }
    }
}

/// What the application wants of a connection next.
pub enum Wish {
    /// To send these bytes.
    Send(Bytes),
    /// Whether small pieces leave at once.
    NoDelay(bool),
    /// After how much silence the peer is asked whether it is there.
    KeepAlive(Option<Duration>),
    /// To send no more.
    End,
    /// To know when all was acknowledged.
    Ask,
    /// To close it.
    Close,
    /// To reset it.
    Abort,
}

/// A socket.
pub struct Entry {
    /// What tells it from those that had its number before.
    pub key: u64,
    pub kind: Kind,
    /// What may come from the application.
    pub window: Window,
    /// Bytes of memory that it has beside that.
    pub buffer: u32,
    /// What may be sent to it.
    pub credit: Credit,
    pub has_failed: bool,
    /// Of a connection that outlives this image: bytes that were sent to the application, and that
    /// it has not said that it has.
    pub unconfirmed: Option<u32>,
    /// Bytes of which it has said so.
    pub confirmed: u32,
    arrived: arrived::Stream,
    no_delay: Option<bool>,
    keep_alive: Option<Option<Duration>>,
    /// The application sends no more, and the peer has been told.
    has_ended: bool,
    end_is_told: bool,
    /// The application waits for an answer, and a task works on it.
    is_asked: bool,
    is_asking: bool,
    /// It is to be closed; to be reset, if so.
    closes: Option<bool>,
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
}

impl Entry {
    pub fn new(key: u64, kind: Kind, window: u32) -> Self {
        Self {
            key,
            kind,
            window: Window::new(0),
            buffer: 0,
            credit: Credit::new(window),
            has_failed: false,
            unconfirmed: None,
            confirmed: 0,
            arrived: arrived::Stream::default(),
            no_delay: None,
            keep_alive: None,
            has_ended: false,
            end_is_told: false,
            is_asked: false,
            is_asking: false,
            closes: None,
            reader: None,
            writer: None,
        }
    }

    /// Bytes of memory that are kept for it.
    pub fn memory(&self) -> u32 {
        self.window.size() + self.buffer
    }

    /// Its tasks go on.
    pub fn wake(&mut self) {
        let wakers = [&mut self.reader, &mut self.writer];
        wakers
            .into_iter()
            .filter_map(Option::take)
            .for_each(Waker::wake);
    }

    fn wake_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    /// Whether it is to be closed or reset.
    pub fn closes(&self) -> bool {
        self.closes.is_some()
    }

    /// Whether it is to be reset.
    pub fn aborts(&self) -> bool {
        self.closes == Some(true)
    }

    /// It is to be closed, or reset.
    pub fn close(&mut self, abort: bool) -> Result<(), Broken> {
        if self.closes.is_some() {
            return Err(Fault::State);
        }
        self.closes = Some(abort);
        self.wake();
        Ok(())
    }

    /// The next connection is to have this number.
    pub fn offer(&mut self, number: u32, key: u64) -> Result<(), Broken> {
        let Kind::Listener { offers } = &mut self.kind else {
            return Err(Fault::State);
        };
        // There are not more of them than sockets.
        offers.push_back((number, key));
        self.wake();
        Ok(())
    }

    /// And now it is not.
    pub fn withdraw(&mut self, key: u64) {
        if let Kind::Listener { offers } = &mut self.kind {
            offers.retain(|(_, offered)| *offered != key);
        }
    }

    /// So many bytes are on their way to the application.
    pub fn sent(&mut self, count: u32) {
        self.credit.spend(count);
        if let Some(unconfirmed) = &mut self.unconfirmed {
            *unconfirmed += count;
        }
    }

    /// The application has so many of them.
    fn has(&mut self, count: u32) -> Result<(), Broken> {
        let left = self.unconfirmed.ok_or(Fault::State as Broken)?;
        self.unconfirmed = Some(left.checked_sub(count).ok_or(Fault::Credit as Broken)?);
        self.confirmed += count;
        self.wake();
        Ok(())
    }

    /// Does what the application says.
    pub fn heed(&mut self, what: &What<'_>) -> Result<(), Broken> {
        if self.closes.is_some() {
            return Err(Fault::State);
        }
        match (*what, &mut self.kind) {
            (What::Have(count), Kind::Stream) => return self.has(count),
            (What::Credit(count), Kind::Stream | Kind::Datagrams { .. }) => {
                if !self.credit.give(count) {
                    return Err(Fault::Credit);
                }
                self.wake();
                return Ok(());
            }
            (What::Data(bytes), Kind::Stream) if !self.has_ended => {
                // A message is shorter than 64 KiB.
                if !self.window.came(bytes.len() as u32) {
                    return Err(Fault::Overrun);
                }
                if !self.has_failed {
                    self.arrived.push(bytes);
                }
            }
            (What::End, Kind::Stream) if !self.has_ended => self.has_ended = true,
            (What::Ask, Kind::Stream) if !self.is_asked => self.is_asked = true,
            (What::NoDelay(is), Kind::Stream) => self.no_delay = Some(is),
            (What::KeepAlive(idle), Kind::Stream) => self.keep_alive = Some(idle),
            (What::Datagram { bytes, .. }, Kind::Datagrams { .. })
                if !self.window.came(datagram_cost(bytes.len())) =>
            {
                return Err(Fault::Overrun);
            }
            (
                What::Datagram {
                    remote,
                    local,
                    bytes,
                },
                Kind::Datagrams { queue, .. },
            ) => {
                let bytes = Bytes::copy_from_slice(bytes);
                queue.push_back(Datagram {
                    remote,
                    local,
                    bytes,
                });
            }
            (What::Join(group), Kind::Datagrams { groups, .. }) if groups.len() < GROUPS_MAX => {
                groups.push_back((group, true));
            }
            (What::Leave(group), Kind::Datagrams { groups, .. }) if groups.len() < GROUPS_MAX => {
                groups.push_back((group, false));
            }
            (
                What::Data(_)
                | What::End
                | What::Ask
                | What::NoDelay(_)
                | What::KeepAlive(_)
                | What::Datagram { .. }
                | What::Join(_)
                | What::Leave(_)
                | What::Have(_)
                | What::Credit(_),
                _,
            ) => return Err(Fault::State),
            _ => return Err(|_| Fault::Kind),
        }
        self.wake_writer();
        Ok(())
    }

    /// What a connection is to do next, in the order in which the application has said so.
    pub fn wish(&mut self) -> Option<Wish> {
        if self.aborts() {
            return Some(Wish::Abort);
        }
        if let Some(is) = self.no_delay.take() {
            return Some(Wish::NoDelay(is));
        }
        if let Some(idle) = self.keep_alive.take() {
            return Some(Wish::KeepAlive(idle));
        }
        if let Some(bytes) = self.arrived.pop() {
            return Some(Wish::Send(bytes));
        }
        if self.has_ended && !core::mem::replace(&mut self.end_is_told, true) {
            return Some(Wish::End);
        }
        if self.closes.is_some() {
            return Some(Wish::Close);
        }
        if self.is_asked && !core::mem::replace(&mut self.is_asking, true) {
            return Some(Wish::Ask);
        }
        None
    }

    /// The application has its answer, and may ask again.
    pub fn answered(&mut self) {
        self.is_asked = false;
        self.is_asking = false;
    }

    /// It does not go on: what was to be sent never will be.
    pub fn fail(&mut self) {
        self.has_failed = true;
        self.arrived = arrived::Stream::default();
        self.wake();
    }
}
