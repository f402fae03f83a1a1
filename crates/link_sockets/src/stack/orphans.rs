//! Connections of the image before this one, until the application that has the other end of each
//! says so.

use crate::message::WINDOW_MAX;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use core::cell::RefCell;
use core::net::SocketAddr;
use core::time::Duration;
use net::socket::{Kept, Marks, Sockets, Stream};

/// What an application says of a connection that it wants to go on with.
pub struct Resume {
    /// Its name.
    pub name: u64,
    /// The number of the byte behind the last one that it has sent.
    pub written: u32,
    /// The number of the byte behind the last one that it has.
    pub read: u32,
    /// Its window.
    pub window: u32,
    /// What is left of that.
    pub left: u32,
}

impl Resume {
    /// Takes what the application has as read; where the connection is then, or `None` if the
    /// application cannot be where it says.
    pub fn reach(&self, kept: &mut dyn Kept) -> Option<Marks> {
        let (_, marks) = kept.marks()?;
        let missing = self.written.wrapping_sub(marks.written);
        let read = self.read.wrapping_sub(marks.read);
        if missing > WINDOW_MAX || read > WINDOW_MAX {
            return None;
        }
        kept.pass(read as usize);
        let (_, marks) = kept.marks()?;
        (marks.read == self.read).then_some(marks)
    }
}

/// Connections of the image before this one that nobody has asked for yet, by their names. Whoever
/// knows a name had that connection.
pub struct Orphans<T>(Rc<RefCell<All<T>>>);

struct All<T> {
    named: BTreeMap<u64, T>,
    /// Applications that have not said anything yet.
    silent: usize,
}

impl<T> Clone for Orphans<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Stream> Orphans<T> {
    /// All that the image before has left, to so many applications. Those that it did not keep are
    /// dropped. Until each application has said where it listens, or for that long, nobody is
    /// refused.
    pub fn new(
        sockets: &impl Sockets<Stream = T>,
        applications: usize,
        patience: Duration,
    ) -> Self {
        sockets.listened_within(patience);
        let all = core::iter::from_fn(|| sockets.taken_up());
        let named = all.filter_map(|mut stream| {
            let (name, _) = stream.kept()?.marks()?;
            Some((name, stream))
        });
        let all = All {
            named: named.collect(),
            silent: applications,
        };
        Self(Rc::new(RefCell::new(all)))
    }

    /// An application has said something, for the first time.
    pub(super) fn heard(&self, sockets: &impl Sockets) {
        let mut all = self.0.borrow_mut();
        all.silent = all.silent.saturating_sub(1);
        if all.silent == 0 {
            sockets.listened_within(Duration::ZERO);
        }
    }

    /// The connection with this name.
    pub(super) fn take(&self, name: u64) -> Option<T> {
        self.0.borrow_mut().named.remove(&name)
    }

    /// Connections to where an application listens: it has asked for those that it knows, and was
    /// not told of these.
    pub(super) fn take_at(&self, local: SocketAddr) -> VecDeque<T> {
        let is_there = |_: &u64, stream: &mut T| {
            let at = stream.local();
            at.port() == local.port() && (local.ip().is_unspecified() || at.ip() == local.ip())
        };
        let mut all = self.0.borrow_mut();
        let found = all.named.extract_if(.., is_there);
        found.map(|(_, stream)| stream).collect()
    }

    /// Resets all that nobody has asked for; how many.
    pub fn reset(&self) -> usize {
        let named = core::mem::take(&mut self.0.borrow_mut().named);
        let count = named.len();
        named.into_values().for_each(Stream::abort);
        count
    }
}
