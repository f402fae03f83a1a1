//! Sockets of a stack in an image, over a link.

use crate::link::End;
use crate::reactor::Reactor;
use crate::run::{BELOW, Below};
use link_sockets::{Net, Own, Table};
use ports::Instant;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use std::cell::RefCell;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;

/// An end of a link, and the sockets of the stack at the other one.
pub struct Linked {
    end: End,
    table: Rc<RefCell<Table>>,
    faults: u64,
    /// Who has lent the end, if it was.
    lender: Option<OwnedFd>,
}

/// What the set says of a lender.
const LENDER: u64 = BELOW + 1;

/// How often it is said that the stack breaks the rules, so that one that does nothing else does
/// not fill the console.
const FAULTS_SAID: u64 = 100;

/// What is said when the lender wants the end back.
const TAKEN_BACK: &str = "the system of the link has ended or begun anew; start the program again";

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
            lender: None,
        })
    }

    /// The stack's sockets.
    pub fn net(&self) -> Net {
        Net::new(self.table.clone())
    }

    /// The end is this process's until something is to be read from `lender`: its end, above all.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn lent_by(&mut self, lender: OwnedFd, reactor: &Reactor) -> io::Result<()> {
        let data = EventData::new_u64(LENDER);
        epoll::add(reactor.epoll(), &lender, data, EventFlags::IN)?;
        self.lender = Some(lender);
        Ok(())
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

    fn has_left(&self) -> bool {
        self.table.borrow().has_left()
    }

    fn own(&self, show: &mut dyn FnMut(&[Own])) {
        show(self.table.borrow().own());
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
        self.end.wait(deadline, events)?;
        match events.iter().any(|event| event.data.u64() == LENDER) {
            true => Err(io::Error::other(TAKEN_BACK)),
            false => Ok(()),
        }
    }
}
