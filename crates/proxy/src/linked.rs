//! Sockets of a stack in an image, over a link.

use crate::link::End;
use crate::run::Below;
use link_sockets::{Net, Table};
use ports::Instant;
use rustix::event::epoll::Event;
use std::cell::RefCell;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

/// An end of a link, and the sockets of the stack at the other one.
pub struct Linked {
    end: End,
    table: Rc<RefCell<Table>>,
    faults: u64,
}

/// How often it is said that the stack breaks the rules, so that one that does nothing else does not
/// fill the console.
const FAULTS_SAID: u64 = 100;

impl Linked {
    /// At this end. What has arrived may take so many bytes.
    ///
    /// # Errors
    /// The end was used already.
    pub fn new(end: End, memory: usize) -> Result<Self, ports::DeviceError> {
        Ok(Self {
            table: Rc::new(RefCell::new(end.table(memory)?)),
            end,
            faults: 0,
        })
    }

    /// The stack's sockets.
    pub fn net(&self) -> Net {
        Net::new(self.table.clone())
    }

    /// Tells the other end that this one ends, and ends this process.
    pub fn exit(&self, status: i32) -> ! {
        self.end.exit(status)
    }
}

impl Below for Linked {
    fn receive(&mut self, now: Instant) -> bool {
        let mut table = self.table.borrow_mut();
        let any = table.receive(now);
        while let Some(fault) = table.take_fault() {
            self.faults += 1;
            if self.faults <= FAULTS_SAID {
                eprintln!("outboard-proxy: the stack was cut off: {fault}");
            }
        }
        any
    }

    fn flush(&mut self) {
        self.table.borrow_mut().flush();
    }

    fn deadline(&self) -> Instant {
        self.table.borrow().deadline()
    }

    fn wait(
        &mut self,
        _: BorrowedFd<'_>,
        deadline: Option<Instant>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        self.end.wait(deadline, events).map(drop)
    }
}
