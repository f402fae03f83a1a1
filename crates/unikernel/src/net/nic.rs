//! A port over a driver of the image's own.

use super::{Link, Port};
use crate::boot::boot;
use crate::ledger::{Ledger, Sent};
use crate::pci::PciDevice;
use crate::println;
use crate::ring::Buffers;
use abi::share::PortCounter;
use alloc::boxed::Box;
use device::ethernet::HEADER_SIZE;
use device::{BATCH_FRAMES_MAX, Batch, Frame, Nic, NicCounts, Observer, Pool};

impl Port {
    /// The port of a PCIe device with its driver, whose received frames come from `pool`.
    pub fn over(device: PciDevice, driver: Box<dyn Nic>, pool: Pool) -> Self {
        let index = device.index();
        let ledger = Ledger::new(index, device.name());
        let (mac, mtu, offloads) = (driver.mac(), driver.mtu(), driver.offloads());
        let interrupts = device.wait_handle().is_some();
        let receive_max = pool.frame_bytes_max();
        Self {
            ledger,
            link: Link::Nic(boot().nics.add(index, driver, interrupts, ledger)),
            index,
            mac,
            mtu,
            offloads,
            buffers: Buffers {
                pool,
                most: BATCH_FRAMES_MAX,
                bytes: receive_max,
                virtio: false,
            },
            receive_max,
            read_errors: 0,
            streak: 0,
            captured: false,
        }
    }

    #[inline]
    pub(super) fn receive_from_nic(&mut self, batch: &mut Batch) {
        let Link::Nic(nic) = &self.link else { return };
        self.captured = boot().capture.wants(self.index);
        let before = batch.len();
        if nic.receive(batch) == 0 {
            return;
        }
        let (mut bytes, mut runts) = (0, false);
        for frame in batch.iter().skip(before) {
            bytes += frame.len() as u64;
            runts |= frame.len() < HEADER_SIZE;
            if self.captured {
                let runt = (frame.len() < HEADER_SIZE).then_some(PortCounter::RxRunt);
                self.capture_received(frame, runt);
            }
        }
        if runts {
            bytes -= self.drop_runts(before, batch);
        }
        self.count(PortCounter::RxFrames, (batch.len() - before) as u64);
        self.count(PortCounter::RxBytes, bytes);
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
                self.count(PortCounter::RxRunt, 1);
                bytes += frame.len() as u64;
            }
            keep
        });
        bytes
    }

    #[inline]
    pub(super) fn transmit_to_nic(&mut self, batch: &mut Batch) {
        let Link::Nic(nic) = &self.link else { return };
        let captured = boot().capture.wants(self.index);
        let sent = if !captured && batch.iter().all(|frame| self.goes_as_it_is(frame)) {
            nic.transmit(batch).into()
        } else {
            self.transmit_one_by_one(batch, captured)
        };
        self.ledger.sent(&sent);
    }

    /// Whether the NIC takes this frame as it is: within the MTU without looking at its VLAN tag,
    /// and with no more left to do than the NIC can.
    #[inline]
    fn goes_as_it_is(&self, frame: &Frame) -> bool {
        let offload = frame.offload();
        frame.len() <= self.mtu + HEADER_SIZE
            && offload.gso.is_none()
            && (offload.checksum.is_none() || self.offloads.checksum)
    }

    /// Sends frames that may be too big, or to be cut, or that the host wants to see.
    #[cold]
    fn transmit_one_by_one(&self, batch: &mut Batch, captured: bool) -> Sent {
        let mut sent = Sent::default();
        for frame in batch.drain() {
            sent.add(match captured {
                true => self.capture_sent(frame),
                false => self.send_frame(frame),
            });
        }
        if let Link::Nic(nic) = &self.link {
            sent.add(nic.flush().into());
        }
        sent
    }
}

impl From<device::Sent> for Sent {
    fn from(sent: device::Sent) -> Self {
        Self {
            frames: sent.frames,
            bytes: sent.bytes,
            lost: None,
        }
    }
}

impl Observer for Ledger {
    fn counted(&self, counts: &NicCounts) {
        for (what, amount) in [
            (PortCounter::RxError, counts.rx_error),
            (PortCounter::RxLie, counts.rx_lie),
            (PortCounter::RxMissed, counts.rx_missed),
            (PortCounter::NoBuffer, counts.no_buffer),
            (PortCounter::TxNoRoom, counts.tx_no_room),
            (PortCounter::TxLinkDown, counts.tx_link_down),
            (PortCounter::TxRefused, counts.tx_refused),
            (PortCounter::PollsBusy, counts.polls_busy),
            (PortCounter::PollsIdle, counts.polls_idle),
            (PortCounter::NicResets, counts.resets),
            (PortCounter::NicGivenUp, counts.given_up.into()),
        ] {
            self.count(what, amount);
        }
    }

    fn link(&self, speed: Option<u32>) {
        match speed {
            Some(speed) => println!("outboard: port {}: link up, {speed} Mb/s", self.name),
            None => println!("outboard: port {}: link down", self.name),
        }
    }

    fn given_up(&self) {
        println!(
            "outboard: port {}: resets do not help, the NIC is given up",
            self.name
        );
    }
}
