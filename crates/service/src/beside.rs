//! What has its turns beside the stack: applications in other images, which links join.

use crate::below::{FAULTS_SAID, queues_bytes};
use crate::{Net, Service, Stream};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use device::Netif;
use link_sockets::{Allowed, Orphans, Own};
use unikernel::{Instant, println};

/// What has its turns beside the stack.
pub trait Beside {
    /// Takes in what has come, a bounded part of it; whether there was something.
    fn receive(&mut self) -> bool;

    /// Sends what is to be sent, and for which there is room; whether nobody need look again before
    /// something else happens.
    fn send(&mut self) -> bool;

    /// When somebody has to look again at the latest.
    fn deadline(&self) -> Option<Instant> {
        None
    }
}

/// All of them; an appliance adds what it has.
pub type Besides = Rc<RefCell<Vec<Box<dyn Beside>>>>;

/// Sockets of the stack, for an application in the image at the other end of a link.
pub struct Server {
    sockets: link_sockets::Server<Net>,
    own: Rc<RefCell<Vec<Own>>>,
}

impl Server {
    /// Over this port, one of so many links. Among the orphans are those of the application.
    pub fn new(
        port: Box<dyn Netif>,
        service: &Service,
        orphans: Orphans<Stream>,
        allowed: Allowed,
        links: usize,
    ) -> Self {
        let sockets = (service.net.clone(), service.spawner.clone(), orphans);
        let memory = queues_bytes() / links.max(1);
        Self {
            sockets: link_sockets::Server::new(port, sockets, allowed, memory, session()),
            own: service.own.clone(),
        }
    }
}

impl Beside for Server {
    fn receive(&mut self) -> bool {
        let any = self.sockets.receive();
        self.sockets.tell(&self.own.borrow());
        if let Some((link, count, fault)) = self.sockets.take_fault()
            && count <= FAULTS_SAID
        {
            println!("{link}: the image there breaks the rules, its sockets are reset: {fault}");
        }
        any
    }

    fn send(&mut self) -> bool {
        self.sockets.flush();
        true
    }
}

/// A number that no image has had before: it is no secret.
pub fn session() -> u64 {
    unikernel::wall().as_nanos() as u64 ^ unikernel::monotonic().0.rotate_left(32)
}
