//! What a task has of its socket, which may be gone at any time.

use super::entry::{Entry, Kind, Wish};
use super::{Shared, reason};
use crate::arrived::Datagram;
use crate::message::{Message, Reason, What};
use crate::window::datagram_cost;
use crate::wire::Wire;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::poll_fn;
use core::net::{IpAddr, SocketAddr};
use core::task::{Context, Poll};
use net::socket::{Ends, Error, Marks, Sockets};
use net::udp::RUN_MAX;

/// A socket of the application's.
pub struct Handle<S: Sockets> {
    pub server: Rc<RefCell<Shared<S>>>,
    pub number: u32,
    pub key: u64,
}

impl<S: Sockets> Clone for Handle<S> {
    fn clone(&self) -> Self {
        Self {
            server: self.server.clone(),
            number: self.number,
            key: self.key,
        }
    }
}

/// What datagrams are to do next.
pub enum Outgoing {
    /// To leave.
    Send(Vec<Datagram>),
    /// To be taken from a group.
    Join(IpAddr),
    /// No longer.
    Leave(IpAddr),
    /// To end.
    Close,
}

/// To whom a datagram goes.
enum Room {
    Now,
    Later,
    Never,
}

impl<S: Sockets> Handle<S> {
    /// Does something with the socket; `None` if it is gone.
    pub fn with<T>(&self, work: impl FnOnce(&mut Entry, &mut Wire) -> T) -> Option<T> {
        let mut shared = self.server.borrow_mut();
        let Shared { entries, wire, .. } = &mut *shared;
        let entry = entries.get_mut(self.number as usize)?.as_mut();
        let entry = entry.filter(|entry| entry.key == self.key)?;
        Some(work(entry, wire))
    }

    fn say(&self, what: What<'static>) {
        let message = Message::new(self.number, what);
        self.with(|_, wire| wire.say(&message));
    }

    /// It is open.
    pub fn opened(&self, local: SocketAddr, peer: Option<SocketAddr>) {
        let number = self.number;
        self.with(|entry, wire| {
            // A listener has none, and the message has to have one.
            let window = entry.window.size().max(1);
            let what = What::Opened {
                local,
                peer,
                window,
            };
            wire.say(&Message::new(number, what));
        });
    }

    /// It outlives this image, and the next one will know it by this name.
    pub fn keep(&self, name: u64, marks: Marks) {
        let Marks { written, read } = marks;
        let what = What::Kept {
            name,
            written,
            read,
        };
        self.with(|entry, _| entry.unconfirmed = Some(0));
        self.say(what);
    }

    /// A connection of the image before goes on from here.
    pub fn resumed(&self, marks: Marks) {
        let number = self.number;
        self.with(|entry, wire| {
            entry.unconfirmed = Some(0);
            let (written, window) = (marks.written, entry.window.size());
            wire.say(&Message::new(number, What::Resumed { written, window }));
        });
    }

    /// How many bytes more the application has, of a connection that outlives this image; `None`
    /// if it is to be closed, or is gone.
    pub fn confirmed(&self, context: &Context<'_>) -> Option<u32> {
        let confirmed = self.with(|entry, _| {
            entry.reader = Some(context.waker().clone());
            (!entry.closes()).then(|| core::mem::take(&mut entry.confirmed))
        });
        confirmed.flatten()
    }

    /// It cannot be had, or does not go on.
    pub fn fail(&self, why: Reason) {
        let number = self.number;
        self.with(|entry, wire| {
            if !entry.has_failed {
                entry.fail();
                wire.say(&Message::new(number, What::Failed(why)));
            }
        });
    }

    /// As above.
    pub fn fail_by(&self, error: Error) {
        self.fail(reason(error));
    }

    /// The peer sends no more.
    pub fn end(&self) {
        self.say(What::End);
    }

    /// The peer of datagrams does not listen.
    pub fn refused(&self) {
        self.say(What::Refused);
    }

    /// All was acknowledged.
    pub fn acknowledged(&self) {
        self.with(|entry, _| entry.answered());
        self.say(What::Acknowledged);
    }

    /// Nothing is left of it.
    pub fn closed(&self) {
        if self.with(|_, _| ()).is_some() {
            self.server.borrow_mut().release(self.number);
        }
    }

    /// So many bytes of what has come were taken.
    pub fn taken(&self, count: u32) {
        let number = self.number;
        self.with(|entry, wire| {
            if let Some(room) = entry.window.taken(count)
                && !entry.has_failed
            {
                wire.say(&Message::new(number, What::Credit(room)));
            }
        });
    }

    /// Waits until it is to be closed, or is gone.
    pub async fn closing(&self) {
        self.until(Entry::closes, |entry| &mut entry.reader).await;
    }

    /// Waits until it is to be reset, or is gone.
    pub async fn aborting(&self) {
        self.until(Entry::aborts, |entry| &mut entry.writer).await;
    }

    async fn until(
        &self,
        is: impl Fn(&Entry) -> bool,
        waker: impl Fn(&mut Entry) -> &mut Option<core::task::Waker>,
    ) {
        poll_fn(|context| {
            let waits = self.with(|entry, _| match is(entry) {
                true => false,
                false => {
                    *waker(entry) = Some(context.waker().clone());
                    true
                }
            });
            match waits {
                Some(true) => Poll::Pending,
                Some(false) | None => Poll::Ready(()),
            }
        })
        .await;
    }

    /// What the application wants of a connection next: to reset it, if it is gone.
    pub async fn wish(&self) -> Wish {
        poll_fn(|context| {
            let wish = self.with(|entry, _| {
                let wish = entry.wish();
                if wish.is_none() {
                    entry.writer = Some(context.waker().clone());
                }
                wish
            });
            match wish {
                Some(Some(wish)) => Poll::Ready(wish),
                Some(None) => Poll::Pending,
                None => Poll::Ready(Wish::Abort),
            }
        })
        .await
    }

    /// Waits until a listener's next connection has a number; `false` if it is to be closed.
    pub async fn has_offer(&self) -> bool {
        let has = |entry: &Entry| match &entry.kind {
            Kind::Listener { offers } => !offers.is_empty() || entry.closes(),
            _ => true,
        };
        self.until(has, |entry| &mut entry.reader).await;
        self.with(|entry, _| !entry.closes()).unwrap_or(false)
    }

    /// The socket of a listener's next connection.
    pub fn take_offer(&self) -> Option<Self> {
        let (number, key) = self.with(|entry, _| match &mut entry.kind {
            Kind::Listener { offers } => offers.pop_front(),
            _ => None,
        })??;
        let server = self.server.clone();
        let offered = Self {
            server,
            number,
            key,
        };
        offered.with(|entry, _| entry.kind = Kind::Stream)?;
        Some(offered)
    }

    /// Gives a listener back the number of a connection that could not be.
    pub fn give_back(&self, listener: &Self) {
        let (number, key, of) = (self.number, self.key, listener.number);
        self.with(|entry, _| entry.kind = Kind::Offered { listener: of });
        listener.with(|entry, _| {
            if let Kind::Listener { offers } = &mut entry.kind {
                offers.push_front((number, key));
            }
        });
    }

    /// Sends bytes to the application, as it has room; `false` if it does not want them any more.
    pub async fn deliver(&self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let sent = poll_fn(|context| self.poll_deliver(bytes, context)).await;
            match sent {
                Some(count) => bytes = &bytes[count..],
                None => return false,
            }
        }
        true
    }

    /// The same with what fits at once: how many bytes were sent.
    pub fn poll_deliver(&self, bytes: &[u8], context: &Context<'_>) -> Poll<Option<usize>> {
        let sent = self.with(|entry, wire| {
            if entry.closes() {
                return Some(None);
            }
            let left = entry.credit.left();
            if left == 0 {
                entry.reader = Some(context.waker().clone());
                return None;
            }
            let count = bytes.len().min(left);
            let count = count.min(wire.room(count));
            let message = Message::new(self.number, What::Data(&bytes[..count]));
            if count == 0 || !wire.put(&message) {
                wire.wait_for_room(context);
                return None;
            }
            // A piece is shorter than 64 KiB.
            entry.sent(count as u32);
            Some(Some(count))
        });
        match sent {
            Some(Some(sent)) => Poll::Ready(sent),
            Some(None) => Poll::Pending,
            None => Poll::Ready(None),
        }
    }

    /// Sends a datagram to the application once it has room. One that it never has room for is
    /// lost.
    pub async fn deliver_datagram(&self, bytes: &[u8], ends: Ends) {
        let what = What::Datagram {
            remote: ends.from,
            local: ends.to,
            bytes,
        };
        let message = Message::new(self.number, what);
        let cost = datagram_cost(bytes.len());
        poll_fn(|context| {
            let room = self.with(|entry, wire| {
                if bytes.len() > wire.datagram_max() || !entry.credit.holds(cost) {
                    return Room::Never;
                }
                if entry.credit.left() < cost as usize {
                    entry.reader = Some(context.waker().clone());
                    return Room::Later;
                }
                if wire.room(message.size()) == 0 || !wire.put(&message) {
                    wire.wait_for_room(context);
                    return Room::Later;
                }
                entry.credit.spend(cost);
                Room::Now
            });
            match room {
                Some(Room::Later) => Poll::Pending,
                Some(Room::Now | Room::Never) | None => Poll::Ready(()),
            }
        })
        .await;
    }

    /// What datagrams are to do next.
    pub async fn outgoing(&self) -> Outgoing {
        poll_fn(|context| {
            let next = self.with(|entry, _| {
                let closes = entry.closes();
                let Kind::Datagrams { queue, groups } = &mut entry.kind else {
                    return Some(Outgoing::Close);
                };
                if let Some((group, joins)) = groups.pop_front() {
                    return Some(match joins {
                        true => Outgoing::Join(group),
                        false => Outgoing::Leave(group),
                    });
                }
                if !queue.is_empty() {
                    let count = queue.len().min(RUN_MAX);
                    return Some(Outgoing::Send(queue.drain(..count).collect()));
                }
                if closes {
                    return Some(Outgoing::Close);
                }
                entry.writer = Some(context.waker().clone());
                None
            });
            match next {
                Some(Some(next)) => Poll::Ready(next),
                Some(None) => Poll::Pending,
                None => Poll::Ready(Outgoing::Close),
            }
        })
        .await
    }
}
