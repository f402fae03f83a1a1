//! Over whichever transport the image finds when it runs.

use super::mmio::Mmio;
use super::pci::Pci;
use super::transport::{Bell, Rings};
use super::{Error, Transport};
use hw::{Done, Register, Width};

/// One transport or the other. What a driver does at work is to ring doorbells: one question more.
#[derive(Clone)]
pub enum Either {
    /// Structures in BARs.
    Pci(Pci),
    /// A window of registers.
    Mmio(Mmio),
}

/// Passes a call on.
macro_rules! pass {
    ($either:expr, $transport:ident => $call:expr) => {
        match $either {
            Either::Pci($transport) => $call,
            Either::Mmio($transport) => $call,
        }
    };
}

impl Transport for Either {
    fn check(&self, kind: u16, config_bytes: usize) -> Result<(), Error> {
        pass!(self, transport => transport.check(kind, config_bytes))
    }

    fn needed(&self) -> u64 {
        pass!(self, transport => transport.needed())
    }

    fn status(&self) -> u8 {
        pass!(self, transport => transport.status())
    }

    fn set_status(&self, status: u8) {
        pass!(self, transport => transport.set_status(status));
    }

    fn reset_done(&self) -> Option<Done> {
        pass!(self, transport => transport.reset_done())
    }

    fn features(&self) -> u64 {
        pass!(self, transport => transport.features())
    }

    fn accept(&self, features: u64) {
        pass!(self, transport => transport.accept(features));
    }

    fn queue_size_max(&self, queue: u16) -> u16 {
        pass!(self, transport => transport.queue_size_max(queue))
    }

    fn set_up(&self, queue: u16, rings: Rings, interrupts: bool) -> Result<Bell, Error> {
        pass!(self, transport => transport.set_up(queue, rings, interrupts))
    }

    #[inline]
    fn notify(&self, bell: Bell) {
        pass!(self, transport => transport.notify(bell));
    }

    fn config<F: Width>(&self, field: Register<F>) -> F {
        pass!(self, transport => transport.config(field))
    }

    fn generation(&self) -> u32 {
        pass!(self, transport => transport.generation())
    }
}
