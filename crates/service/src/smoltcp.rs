//! Over a port: smoltcp's sockets.

use crate::below::Below;
use crate::{Net, Service, Start, serve};
use abi::sockets::Record;
use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use net::address::Prefix;
use net::dhcp::{Change, Lease};
use ports::inquiry::Listed;
use smoltcp_sockets::Stack;
use unikernel::{Instant, Ready, println};

/// The part of the image's memory that the queues of all connections may hold. Each connection
/// takes all that it may ever need at once.
const QUEUES_PART: u64 = 2;

/// Over smoltcp's sockets on the port, in place of our stack.
pub fn on_port<F>(secret: [u8; 16], start: Start<'_>, main: impl FnOnce(Service) -> F) -> i32
where
    F: Future<Output = i32> + 'static,
{
    let name = start.name;
    let [name_of_port] = start.ports[..] else {
        println!("{name}: smoltcp's sockets have one port; build without service/smoltcp");
        return abi::exit::FAILURE;
    };
    // One for each port.
    let options = &start.options.ports[0];
    let port = match appliance::port_of_mtu(name_of_port, options.mtu) {
        Ok(port) => port,
        Err(error) => {
            println!("{name}: {error}");
            return abi::exit::FAILURE;
        }
    };
    let memory = usize::try_from(unikernel::memory_bytes() / QUEUES_PART).unwrap_or(usize::MAX);
    let (random, now) = ([secret, start.key], unikernel::monotonic());
    let stack = match Stack::new(port, options, memory, random, now) {
        Ok(stack) => Rc::new(RefCell::new(stack)),
        Err(error) => {
            println!("{name}: {error}");
            return abi::exit::FAILURE;
        }
    };
    let net = smoltcp_sockets::Net::new(stack.clone());
    let on = |own: &Prefix<_>| {
        let (address, bits) = (own.address(), own.bits());
        format!("{name}: {address}/{bits} on {name_of_port}, by smoltcp")
    };
    let said = options.ipv4.iter().map(on).collect();
    serve(stack, Net::Stack(net), start, said, main)
}

impl Below for Rc<RefCell<Stack>> {
    fn receive(&mut self, now: Instant, _: Ready) -> bool {
        self.borrow_mut().receive(now)
    }

    /// There is no DHCP: [`smoltcp_sockets::Refused::Dhcp`].
    fn changes(&mut self) -> Vec<(usize, Change)> {
        Vec::new()
    }

    /// As above.
    fn lease(&mut self) -> Option<Lease> {
        None
    }

    /// smoltcp counts nothing.
    fn counts(&self, _: &mut dyn FnMut(&'static str, u64)) {}

    /// Its sockets lack most of what a record holds.
    fn list(&self, _: u64, _: &mut dyn FnMut(&Record) -> bool) -> Listed {
        Listed::default()
    }

    fn send(&mut self) -> bool {
        self.borrow_mut().send()
    }

    fn deadline(&self) -> Instant {
        self.borrow().deadline()
    }

    fn has_left(&self) -> bool {
        self.borrow().has_left()
    }
}
