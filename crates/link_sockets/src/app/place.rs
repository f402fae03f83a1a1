//! A socket of the application's.

use crate::app::kept::Kept;
use crate::arrived::{self, Datagram};
use crate::fault::Fault;
use crate::message::What;
use crate::window::{Credit, Window, datagram_cost};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::task::Waker;
use net::socket::Error;
use net::tcp::connection::Failure;
use net::tcp::socket::Error as Failed;
use ports::Instant;

/// The peer does not want it.
const REFUSED: Error = Error::Failed(Failed::Failed(Failure::Refused));

/// What kind of fault it is, of whichever socket.
type Broken = fn(u32) -> Fault;

/// What a socket is.
#[derive(Default)]
pub enum Kind {
    /// None.
    #[default]
    Free,
    /// It waits for connections.
    Listener {
        /// How many may wait in the stack.
        backlog: u32,
        /// Those that nobody has asked for yet.
        ready: VecDeque<u32>,
        /// How many have a number and have not come.
        offered: usize,
    },
    /// The next connection of a listener.
    Accepted {
        /// The listener.
        listener: u32,
    },
    /// A connection.
    Stream,
    /// It takes and sends datagrams.
    Datagrams {
        /// Those that have come.
        queue: VecDeque<Datagram>,
        /// Groups that it is in.
        groups: Vec<IpAddr>,
        /// The peer does not listen.
        is_refused: bool,
    },
}

impl Kind {
    pub fn listener(backlog: u32) -> Self {
        Self::Listener {
            backlog,
            ready: VecDeque::new(),
            offered: 0,
        }
    }

    /// Whether it is a connection, or is to be one.
    pub fn connects(&self) -> bool {
        matches!(self, Self::Accepted { .. } | Self::Stream)
    }

    pub fn datagrams() -> Self {
        Self::Datagrams {
            queue: VecDeque::new(),
            groups: Vec::new(),
            is_refused: false,
        }
    }
}

/// A socket, or none.
pub struct Place {
    pub kind: Kind,
    /// The stack was told of it, and has not closed it.
    pub is_known: bool,
    /// The stack has opened it.
    pub is_open: bool,
    /// Nobody has it any more.
    pub is_dropped: bool,
    /// The stack was told to reset it.
    pub is_aborted: bool,
    /// No more is to be written.
    pub is_shut: bool,
    /// No more will come.
    pub has_ended: bool,
    pub failed: Option<Error>,
    pub local: SocketAddr,
    pub peer: Option<SocketAddr>,
    pub window: Window,
    pub credit: Credit,
    pub arrived: arrived::Stream,
    /// What outlives the stack.
    pub kept: Option<Kept>,
    /// How the connection is to be, of which each stack is told.
    pub wishes: [Option<What<'static>>; 2],
    /// How often the stack was asked whether all was acknowledged, and has answered.
    pub asked: u64,
    pub answered: u64,
    /// Until when it waits for a stack.
    pub until: Instant,
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
    pub asker: Option<Waker>,
}

impl Default for Place {
    fn default() -> Self {
        let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Self::new(Kind::Free, local, None, Window::new(0), Instant::PAST)
    }
}

impl Place {
    pub fn new(
        kind: Kind,
        local: SocketAddr,
        peer: Option<SocketAddr>,
        window: Window,
        until: Instant,
    ) -> Self {
        Self {
            kind,
            is_known: false,
            is_open: false,
            is_dropped: false,
            is_aborted: false,
            is_shut: false,
            has_ended: false,
            failed: None,
            local,
            peer,
            window,
            credit: Credit::default(),
            arrived: arrived::Stream::default(),
            kept: None,
            wishes: [None; 2],
            asked: 0,
            answered: 0,
            until,
            reader: None,
            writer: None,
            asker: None,
        }
    }

    /// Until when it waits for a stack, if it is a connection that does.
    pub fn patient_until(&self) -> Option<Instant> {
        let is_new = !self.is_open && self.failed.is_none();
        let waits = matches!(self.kind, Kind::Stream) && !self.is_known;
        (waits && (is_new || self.outlives())).then_some(self.until)
    }

    /// It does not go on.
    pub fn fail(&mut self, why: Error) {
        self.failed.get_or_insert(why);
        [&mut self.reader, &mut self.writer, &mut self.asker]
            .into_iter()
            .for_each(wake);
    }

    /// How many bytes the stack has room for now.
    pub fn left(&self) -> usize {
        match self.is_behind() {
            true => 0,
            false => self.credit.left(),
        }
    }

    /// These bytes of a message, which is shorter than 64 KiB, are sent.
    pub fn wrote(&mut self, bytes: &[u8]) {
        self.credit.spend(bytes.len() as u32);
        if let Some(kept) = &mut self.kept {
            kept.wrote(bytes);
        }
    }

    /// Datagrams are taken and sent anew, by another stack.
    pub fn begin_anew(&mut self) {
        self.is_open = false;
        self.window = Window::of_datagrams(self.window.size());
        self.credit = Credit::default();
        if let Kind::Datagrams { queue, .. } = &mut self.kind {
            queue.clear();
        }
    }

    /// What it holds is not wanted any more; connections that nobody has asked for.
    pub fn let_go(&mut self) -> VecDeque<u32> {
        self.arrived = arrived::Stream::default();
        match &mut self.kind {
            Kind::Listener { ready, .. } => core::mem::take(ready),
            Kind::Datagrams { queue, .. } => {
                queue.clear();
                VecDeque::new()
            }
            _ => VecDeque::new(),
        }
    }

    /// Bytes of a connection have come.
    pub fn data(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let is_one = matches!(self.kind, Kind::Stream) && self.is_open && !self.has_ended;
        if !is_one {
            return Err(Fault::State);
        }
        // A message is shorter than 64 KiB.
        if !self.window.came(bytes.len() as u32) {
            return Err(Fault::Overrun);
        }
        if !self.is_dropped {
            self.arrived.push(bytes);
            wake(&mut self.reader);
        }
        Ok(())
    }

    /// No more will come.
    pub fn end(&mut self) -> Result<(), Broken> {
        let is_one = matches!(self.kind, Kind::Stream) && self.is_open;
        if !is_one || core::mem::replace(&mut self.has_ended, true) {
            return Err(Fault::State);
        }
        wake(&mut self.reader);
        Ok(())
    }

    /// A datagram has come.
    pub fn datagram(&mut self, datagram: Datagram) -> Result<(), Broken> {
        let Kind::Datagrams { queue, .. } = &mut self.kind else {
            return Err(Fault::State);
        };
        if !self.window.came(datagram_cost(datagram.bytes.len())) {
            return Err(Fault::Overrun);
        }
        if !self.is_dropped {
            queue.push_back(datagram);
            wake(&mut self.reader);
        }
        Ok(())
    }

    /// The peer of datagrams does not listen.
    pub fn refuse(&mut self) -> Result<(), Broken> {
        let Kind::Datagrams { is_refused, .. } = &mut self.kind else {
            return Err(Fault::State);
        };
        *is_refused = true;
        wake(&mut self.reader);
        Ok(())
    }

    /// Why datagrams do not go on; that the peer does not listen is said once.
    pub fn failure(&mut self) -> Option<Error> {
        let refused = match &mut self.kind {
            Kind::Datagrams { is_refused, .. } => core::mem::take(is_refused),
            _ => false,
        };
        self.failed.or(refused.then_some(REFUSED))
    }

    pub fn pop_datagram(&mut self) -> Option<Datagram> {
        match &mut self.kind {
            Kind::Datagrams { queue, .. } => queue.pop_front(),
            _ => None,
        }
    }
}

/// Whoever waits goes on.
pub fn wake(waiting: &mut Option<Waker>) {
    if let Some(waker) = waiting.take() {
        waker.wake();
    }
}
