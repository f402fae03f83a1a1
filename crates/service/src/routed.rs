//! A router: a stack over its ports, and in front of it a gate that sends packets on.

use crate::below::{self, Below};
use crate::{Net, Service, Start, serve};
use abi::sockets::Record;
use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use filter::Gate;
use net::dhcp::{Change, Lease};
use ports::inquiry::Listed;
use routing::{Ports, Router};
use unikernel::{Instant, Ready, println};

/// Runs the router `name`, as [`crate::run`] runs an appliance: beside its tasks, it sends on the
/// packets that come to it for others. Rules are the host's (`--rules`), or else `built_in`.
///
/// If the manifest names a state called [`filter::STATE`], connections are kept there, and the
/// counters of rules.
pub fn route<F>(name: &str, help: &str, built_in: &str, main: impl FnOnce(Service) -> F) -> i32
where
    F: Future<Output = i32> + 'static,
{
    let (secret, start) = match Start::read(name, help) {
        Ok(read) => read,
        Err(status) => return status,
    };
    let opened = match start.open() {
        Ok(opened) => opened,
        Err(status) => return status,
    };
    let gate = match Gate::start(unikernel::runtime(), "", built_in, unikernel::seed) {
        Ok(gate) => gate,
        Err(error) => {
            println!("{name}: {error}");
            return abi::exit::FAILURE;
        }
    };
    let mut said = start.addresses();
    said.extend(gate.said().map(|said| format!("{name}: {said}")));
    let ports = Ports::new(opened, gate);
    let of_stack = ports.of_stack().into_iter().zip(&start.options.ports);
    let tcp = below::tcp(secret, start.key);
    let stack = below::stack(of_stack.collect(), tcp, Vec::new());
    let stack = Rc::new(RefCell::new(stack));
    let router = Router::new(ports, stack.clone());
    serve(
        router,
        Net::Stack(net::socket::Net::new(stack)),
        start,
        said,
        main,
    )
}

impl Below for Router {
    fn receive(&mut self, now: Instant, _: Ready) -> bool {
        Self::receive(self, now)
    }

    fn changes(&mut self) -> Vec<(usize, Change)> {
        self.stack.changes()
    }

    fn lease(&mut self) -> Option<Lease> {
        self.stack.lease()
    }

    fn counts(&self, show: &mut dyn FnMut(&'static str, u64)) {
        Self::counts(self, show);
    }

    fn list(&self, from: u64, take: &mut dyn FnMut(&Record) -> bool) -> Listed {
        Below::list(&self.stack, from, take)
    }

    fn send(&mut self) -> bool {
        Self::send(self)
    }

    fn deadline(&self) -> Instant {
        Below::deadline(&self.stack)
    }

    fn has_left(&self) -> bool {
        self.stack.has_left()
    }
}
