//! What a host does for the port of a link, where the host is this process.

use super::nanoseconds;
use crate::reactor;
use device::Netif;
use linux::call::again;
use ports::{Errno, Handle, Host, Instant, Network, TapPort};
use rustix::event::epoll::Event;
use rustix::time::ClockId;
use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};

/// This process as a host.
pub(super) struct Machine {
    epoll: OwnedFd,
    /// The data of this end's bell there.
    bell: u64,
    /// What is in the set stays open with this.
    _own_bell: OwnedFd,
    /// What rings the other end.
    peer_bell: OwnedFd,
    say: fn(&str),
    /// Events of the set; a buffer of the caller's.
    events: RefCell<Vec<Event>>,
    /// Whether the set was looked at since that buffer was lent.
    has_looked: Cell<bool>,
    failed: Cell<Option<rustix::io::Errno>>,
}

impl Machine {
    pub fn new(
        (epoll, bell): (OwnedFd, u64),
        [own_bell, peer_bell]: [OwnedFd; 2],
        say: fn(&str),
    ) -> Self {
        Self {
            epoll,
            bell,
            _own_bell: own_bell,
            peer_bell,
            say,
            events: RefCell::default(),
            has_looked: Cell::new(false),
            failed: Cell::new(None),
        }
    }

    /// Wakes the other end up.
    pub fn ring(&self) {
        // Where the counter is full, it was rung already.
        let _ = again(|| rustix::io::write(&self.peer_bell, &1_u64.to_ne_bytes()));
    }

    /// Takes a buffer for events, until [`Self::take_back`].
    pub fn lend(&self, mut events: Vec<Event>) {
        events.clear();
        self.events.replace(events);
        self.has_looked.set(false);
    }

    /// The events since then, and what the kernel has said if it told none. The set was looked at
    /// once at least.
    pub fn take_back(&self) -> (Vec<Event>, Option<rustix::io::Errno>) {
        if !self.has_looked.get() {
            self.look(Some(Instant::PAST));
        }
        (self.events.take(), self.failed.take())
    }

    /// Waits for events of the set. A signal ends it: whoever has a handler looks what it has done.
    fn look(&self, deadline: Option<Instant>) {
        self.has_looked.set(true);
        let now = Instant(self.monotonic());
        let mut events = self.events.borrow_mut();
        let waited = reactor::wait(self.epoll.as_fd(), deadline, now, &mut events);
        if let Err(errno) = waited {
            self.failed.set(Some(errno));
        }
        events.retain(|event| event.data.u64() != self.bell);
    }
}

impl Host for Machine {
    fn handle(&self, _: usize, descriptor: i32) -> Handle {
        Handle(descriptor)
    }

    fn read(&self, _: Handle, _: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::NOT_SUPPORTED)
    }

    fn write(&self, _: Handle, _: &[u8]) -> Result<usize, Errno> {
        Err(Errno::NOT_SUPPORTED)
    }

    fn send(&self, _: Handle, _: &[u8]) -> Result<usize, Errno> {
        Err(Errno::NOT_SUPPORTED)
    }

    fn receive(&self, _: Handle, _: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::NOT_SUPPORTED)
    }

    fn pread(&self, _: Handle, _: &mut [u8], _: u64) -> Result<usize, Errno> {
        Err(Errno::NOT_SUPPORTED)
    }

    fn pwrite(&self, _: Handle, _: &[u8], _: u64) -> Result<usize, Errno> {
        Err(Errno::NOT_SUPPORTED)
    }

    fn sync(&self, _: Handle) -> Result<usize, Errno> {
        Err(Errno::NOT_SUPPORTED)
    }

    fn discard(&self, _: Handle, _: u64, _: u64) -> Result<usize, Errno> {
        Err(Errno::NOT_SUPPORTED)
    }

    fn print(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let text = String::from_utf8_lossy(bytes);
        text.lines().for_each(self.say);
        Ok(bytes.len())
    }

    fn kick(&self) {}

    fn ring(&self, _: usize, _: i32) {
        Self::ring(self);
    }

    fn wait(&self, deadline: Option<Instant>, _: Option<Handle>) -> u64 {
        self.look(deadline);
        0
    }

    fn monotonic(&self) -> u64 {
        nanoseconds(ClockId::Monotonic)
    }

    fn wall(&self) -> u64 {
        nanoseconds(ClockId::Realtime)
    }

    /// Of no use to a port over a link.
    fn ticks(&self) -> u64 {
        self.monotonic()
    }

    fn exit(&self, status: i32) -> ! {
        std::process::exit(status)
    }

    fn tap(&'static self, network: Network) -> Box<dyn Netif> {
        Box::new(TapPort::new(self, network))
    }
}
