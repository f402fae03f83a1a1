//! A port over a driver of the image's own.

use crate::ledger::{Ledger, Outcome};
use crate::mtu::Mtu;
use crate::port::Port;
use crate::runtime::Runtime;
use crate::schedule::{NicHandle, Observer};
use abi::share::PortCounter;
use alloc::boxed::Box;
use device::ethernet::{HEADER_SIZE, VLAN_TAG_SIZE};
use device::{
    Batch, FRAME_BYTES_MAX, Frame, Netif, Nic, NicCounts, Offload, Offloads, Pool, Sent, WaitHandle,
};

/// A PCIe device that is a port, with its driver.
pub struct Card {
    /// Its index among all devices.
    pub index: u8,
    /// Its name in the manifest.
    pub name: &'static str,
    /// Whether it can interrupt.
    pub interrupts: bool,
    /// The driver.
    pub driver: Box<dyn Nic>,
    /// What the driver receives frames into.
    pub pool: Pool,
}

/// A port over a driver of the image's own.
pub struct NicPort {
    port: Port,
    nic: NicHandle<Ledger>,
}

impl NicPort {
    /// The port of this card. Its index is below 64.
    pub fn new(runtime: &'static Runtime, card: Card) -> Self {
        let ledger = Ledger::new(runtime, card.index, card.name);
        let port = Port {
            ledger,
            mac: card.driver.mac(),
            mtu: Mtu::fixed(card.driver.mtu()),
            offloads: card.driver.offloads(),
            pool: card.pool,
        };
        let nics = &runtime.nics;
        let nic = nics.add(card.index, card.driver, card.interrupts, ledger);
        Self { port, nic }
    }

    /// Drops what is too short for an Ethernet header, from frame number `first` on; how many bytes
    /// that were.
    #[cold]
    fn drop_runts(&self, first: usize, batch: &mut Batch) -> u64 {
        let (mut number, mut bytes) = (0, 0);
        batch.retain(|frame| {
            let keep = number < first || frame.len() >= HEADER_SIZE;
            number += 1;
            if !keep {
                self.port.ledger.count(PortCounter::RxRunt, 1);
                bytes += frame.len() as u64;
            }
            keep
        });
        bytes
    }

    /// Whether the NIC takes this frame as it is: within the MTU without looking at its VLAN tag,
    /// and with no more left to do than the NIC can.
    #[inline]
    fn goes_as_it_is(&self, frame: &Frame) -> bool {
        let offload = frame.offload();
        frame.len() <= self.port.mtu.get() + HEADER_SIZE
            && offload.gso.is_none()
            && (offload.checksum.is_none() || self.port.offloads.checksum)
    }

    /// Sends frames that may be too big, or are to be cut, or that the host wants to see.
    #[cold]
    fn transmit_one_by_one(&self, batch: &mut Batch) -> Outcome {
        let mut outcome = self.port.transmit(batch, &mut |mut frame| {
            if !self.port.offloads.checksum {
                let offload = frame.offload();
                offload.complete_checksum(frame.bytes_mut());
                // What is done must not be done again.
                let checksum = None;
                frame.set_offload(Offload {
                    checksum,
                    ..offload
                });
            }
            self.nic.stage(frame).into()
        });
        outcome.add(self.nic.flush().into());
        outcome
    }
}

impl Netif for NicPort {
    fn name(&self) -> &str {
        self.port.ledger.name
    }

    fn mac(&self) -> [u8; 6] {
        self.port.mac
    }

    fn mtu(&self) -> usize {
        self.port.mtu.get()
    }

    fn offloads(&self) -> Offloads {
        self.port.offloads
    }

    /// No more than fits a buffer of the driver's, however much the NIC would cut.
    fn max_frame(&self) -> usize {
        let most = if self.port.offloads.tso {
            FRAME_BYTES_MAX
        } else {
            self.port.mtu.get() + HEADER_SIZE + VLAN_TAG_SIZE
        };
        most.min(self.port.pool.frame_bytes_max())
    }

    fn alloc(&mut self, len: usize) -> Option<Frame> {
        self.port.alloc(len, self.max_frame())
    }

    fn receive(&mut self, batch: &mut Batch) {
        let Port { ledger, .. } = &self.port;
        let captured = ledger.runtime.capture.wants_received(ledger.index);
        let before = batch.len();
        if self.nic.receive(batch) == 0 {
            return;
        }
        let (mut bytes, mut runts) = (0, false);
        for frame in batch.iter().skip(before) {
            bytes += frame.len() as u64;
            runts |= frame.len() < HEADER_SIZE;
            if captured {
                let runt = (frame.len() < HEADER_SIZE).then_some(PortCounter::RxRunt);
                self.port.capture_received(frame, runt);
            }
        }
        if runts {
            bytes -= self.drop_runts(before, batch);
        }
        ledger.received((batch.len() - before) as u64, bytes);
    }

    fn transmit(&mut self, batch: &mut Batch) {
        let captured = self.port.wants_capture();
        let outcome = if !captured && batch.iter().all(|frame| self.goes_as_it_is(frame)) {
            self.nic.transmit(batch).into()
        } else {
            self.transmit_one_by_one(batch)
        };
        self.port.ledger.sent(&outcome);
    }

    fn wait_handle(&self) -> WaitHandle {
        self.port.wait_handle()
    }
}

impl From<Sent> for Outcome {
    fn from(sent: Sent) -> Self {
        Self {
            frames: sent.frames,
            bytes: sent.bytes,
            lost: None,
        }
    }
}

impl Observer for Ledger {
    fn counted(&self, counts: &NicCounts) {
        Self::counted(self, counts);
    }

    fn link(&self, speed: Option<u32>) {
        let Self { runtime, name, .. } = self;
        match speed {
            Some(0) => runtime.print(format_args!("outboard: port {name}: link up\n")),
            Some(speed) => runtime.print(format_args!(
                "outboard: port {name}: link up, {speed} Mb/s\n"
            )),
            None => runtime.print(format_args!("outboard: port {name}: link down\n")),
        }
    }

    fn given_up(&self) {
        self.runtime.print(format_args!(
            "outboard: port {}: resets do not help, the NIC is given up\n",
            self.name
        ));
    }
}
