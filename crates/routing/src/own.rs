//! Ports that a router and its stack share: what the stack sends is judged as packets of the
//! router's own.

use crate::packet::{is_from_nobody, is_ip};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use device::{Batch, Frame, Netif, Offloads, WaitHandle};
use filter::Gate;
use nf::router::Local;

/// A port that several have.
pub(crate) type Shared = Rc<RefCell<Box<dyn Netif>>>;

/// Who judges packets.
pub(crate) struct Judge {
    pub(crate) gate: Gate,
    /// The router's addresses at each port.
    pub(crate) locals: Vec<Local>,
}

/// A router's ports, and its rules.
pub struct Ports {
    pub(crate) ports: Vec<Shared>,
    pub(crate) judge: Rc<RefCell<Judge>>,
}

impl Ports {
    /// These ports, whose packets the gate judges.
    pub fn new(ports: Vec<Box<dyn Netif>>, mut gate: Gate) -> Self {
        ports.iter().for_each(|port| gate.add(&**port));
        let judge = Judge {
            gate,
            locals: alloc::vec![Local::default(); ports.len()],
        };
        let shared = |port| Rc::new(RefCell::new(port));
        Self {
            ports: ports.into_iter().map(shared).collect(),
            judge: Rc::new(RefCell::new(judge)),
        }
    }

    /// The ports as the router's stack has them, in their order.
    pub fn of_stack(&self) -> Vec<Box<dyn Netif>> {
        let ports = self.ports.iter().enumerate();
        let own = ports.map(|(number, port)| {
            let own: Box<dyn Netif> = Box::new(Own {
                name: port.borrow().name().into(),
                mac: port.borrow().mac(),
                wait_handle: port.borrow().wait_handle(),
                port: port.clone(),
                judge: self.judge.clone(),
                number,
            });
            own
        });
        own.collect()
    }
}

/// A port as the stack has it.
struct Own {
    name: String,
    mac: [u8; 6],
    wait_handle: WaitHandle,
    port: Shared,
    judge: Rc<RefCell<Judge>>,
    number: usize,
}

impl Netif for Own {
    fn name(&self) -> &str {
        &self.name
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn mtu(&self) -> usize {
        self.port.borrow().mtu()
    }

    fn offloads(&self) -> Offloads {
        self.port.borrow().offloads()
    }

    fn max_frame(&self) -> usize {
        self.port.borrow().max_frame()
    }

    fn alloc(&mut self, len: usize) -> Option<Frame> {
        self.port.borrow_mut().alloc(len)
    }

    fn receive(&mut self, batch: &mut Batch) {
        self.port.borrow_mut().receive(batch);
        self.judge.borrow().gate.look_ahead(batch);
    }

    fn transmit(&mut self, batch: &mut Batch) {
        let judge = &mut *self.judge.borrow_mut();
        let local = judge.locals.get(self.number).copied().unwrap_or_default();
        // Whoever has no address yet asks for one before all rules, as Linux's clients of DHCP do.
        // None would be there for what rules make of it.
        batch.retain(|frame| {
            let is_free = !is_ip(frame) || is_from_nobody(frame);
            is_free || judge.gate.sends(frame, self.number, local)
        });
        self.port.borrow_mut().transmit(batch);
    }

    fn wait_handle(&self) -> WaitHandle {
        self.wait_handle
    }
}
