//! The Intel 82599 (8086:10fb), a 10 Gb/s NIC, with one receive and one transmit queue.
//!
//! Keep the datasheet open: Intel 82599 10 GbE Controller Datasheet, document 331520-001, revision
//! 3.0, November 2014. Section numbers in this folder refer to it. Read in this order:
//!
//! | file | what | sections |
//! |---|---|---|
//! | `init` | reset and bring-up, step by step; filters | 4.6.3, 4.6.7, 4.6.8, 7.1.1 |
//! | `link` | the link | 4.6.4, 10.5.4 |
//! | `rx` | receiving, frames that were coalesced too | 7.1, 7.11 |
//! | `tx` | sending | 7.2.3 |
//! | `offload` | checksums and segmentation | 7.2.4, 7.2.5 |
//! | `stats` | statistics | 8.2.3.23 |
//! | `checkup` | what a checkup looks at | 8.2.3.22.8 |
//! | `wait` | bounded waits while the device is brought up | |
//! | `registers` | all registers | 8.2.3 |
//! | `descriptor` | descriptors | 7.1.6, 7.2.3.2 |
//!
//! **A frame's way.** Each receive descriptor has a buffer of the pool, lent to the device. When
//! the device says that one is done, its frame goes into the batch and a fresh buffer into its
//! place. The frame is handed to another port, or to this one's transmit ring, which keeps it until
//! the device says that it is sent, and drops it: it is back in its pool. Nothing is copied.
//!
//! **Coalescing.** A device that may ([`Config::coalesce`]) writes TCP segments that follow each
//! other into one buffer, as one frame. What it says of them is checked against the headers, and
//! becomes what a sender leaves to be cut: the next device does that, or a port in software.
//!
//! **A device that lies.** What the device can write is read once and checked; which buffer belongs
//! to which descriptor, and whose turn it is, the driver knows from memory of its own. After a lie
//! the device is not asked again before [`Driver::tend`] has reset it.
//!
//! **Recovery.** `tend` resets a device that lied, that hangs or that is gone (all ones), in two
//! steps without waiting: the reset in one call, the bring-up in the next. When it is given up, see
//! [`recovery`](crate::net::recovery).

mod checkup;
mod config;
mod descriptor;
mod init;
mod link;
mod offload;
#[cfg(any(test, feature = "puppet"))]
pub mod puppet;
mod registers;
mod rx;
mod stats;
#[cfg(test)]
mod tests;
mod tx;
mod wait;

pub use config::{AddressFilter, Config};
pub use stats::Statistics;

use crate::net::recovery::{Recovery, Remedy};
use crate::net::{self, Error, Lie, Resources, Started};
use alloc::boxed::Box;
use core::mem;
use descriptor::RX_BUFFER_BYTES;
use device::{BATCH_FRAMES_MAX, Batch, HEADROOM, Nic, NicCounts, Offloads, Pool, Sent};
use hw::{DmaArena, Mmio};
use init::Rings;
use registers::{ALL_ONES, BAR_BYTES, SRRCTL_BUFFER_BYTES_MAX, STATUS};
use rx::Receiver;
use tx::Transmitter;
use wait::{Wait, no_wait, poll};

/// Vendor ID of Intel.
pub const VENDOR: u16 = 0x8086;
/// Device ID of the 82599.
pub const DEVICE: u16 = 0x10fb;

/// The line of the table of drivers.
pub(super) const DRIVER: net::Driver = net::Driver {
    vendor: VENDOR,
    device: DEVICE,
    name: "ixgbe",
    start,
    examination: Some(checkup::EXAMINATION),
};

/// Descriptors of each ring.
pub const RING: usize = 512;
/// Buffers of the pool: what both rings can hold, and a batch on either side.
pub const BUFFERS: usize = 2 * RING + 2 * BATCH_FRAMES_MAX;
/// Size of a buffer of the pool, in bytes, for an MTU of 1500.
pub const BUFFER_BYTES: usize = HEADROOM + RX_BUFFER_BYTES;
/// Descriptors of each ring where frames are coalesced: fewer, since their buffers are large.
pub const COALESCED_RING: usize = 256;
/// Buffers of the pool in that case.
pub const COALESCED_BUFFERS: usize = 2 * COALESCED_RING + 2 * BATCH_FRAMES_MAX;
/// Size of one: as large as the device can fill.
pub const COALESCED_BUFFER_BYTES: usize = HEADROOM + SRRCTL_BUFFER_BYTES_MAX;
/// DMA memory that all of that takes, in bytes: buffers at cache lines, rings at pages.
pub const COALESCED_DMA_BYTES: usize =
    COALESCED_BUFFERS * COALESCED_BUFFER_BYTES.next_multiple_of(64) + 4 * 4096;

/// Brings the device up to forward all frames. Received ones are coalesced if the DMA memory
/// suffices, here and for the devices that are to come: who takes their ports from the table can
/// pass large frames on.
fn start(resources: Resources<'_>) -> Result<Started, Error> {
    let Resources {
        bar0,
        arena,
        others,
        mtu,
        clock,
        ..
    } = resources;
    if arena.left() / (1 + others) >= COALESCED_DMA_BYTES {
        let pool = Pool::dma(arena, COALESCED_BUFFERS, COALESCED_BUFFER_BYTES)?;
        let config = Config {
            mtu,
            ..Config::COALESCE
        };
        let nic = Driver::<COALESCED_RING, COALESCED_RING>::new(bar0, arena, pool, config, clock)?;
        let nic = Box::new(nic);
        return Ok(Started { nic, pool });
    }
    let config = Config {
        mtu,
        ..Config::FORWARD
    };
    let pool = Pool::dma(arena, BUFFERS, HEADROOM + init::buffer_bytes(mtu)?)?;
    let nic = Box::new(<Driver>::new(bar0, arena, pool, config, clock)?);
    Ok(Started { nic, pool })
}

/// What the device is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// It lied; the next `tend` resets it.
    Faulty,
    /// Since then.
    Resetting(u64),
    GivenUp,
}

/// The driver, with rings of `RX` and `TX` descriptors, powers of two.
pub struct Driver<const RX: usize = RING, const TX: usize = RING> {
    bar: Mmio,
    config: Config,
    mac: [u8; 6],
    receiver: Receiver<RX>,
    transmitter: Transmitter<TX>,
    state: State,
    /// Speed of the link; `None` while it is down or the device does not run.
    link: Option<u32>,
    counts: NicCounts,
    statistics: Statistics,
    recovery: Recovery,
}

impl<const RX: usize, const TX: usize> Driver<RX, TX> {
    /// Resets the device behind `bar0` and brings it up. Received frames lie in buffers of `pool`,
    /// which should have [`BUFFERS`] of [`BUFFER_BYTES`] in DMA memory; the rings are taken from
    /// `arena`. `clock` tells the monotonic time in nanoseconds.
    ///
    /// # Errors
    /// [`Error`], within some seconds.
    pub fn new(
        bar0: Mmio,
        arena: &mut DmaArena,
        pool: Pool,
        config: Config,
        clock: impl Fn() -> u64,
    ) -> Result<Self, Error> {
        let wait = &mut wait::by(clock);
        const { assert!(RX >= 32 && RX <= 4096 && TX <= 4096) };
        if bar0.len() < BAR_BYTES {
            return Err(Error::Bar {
                wanted: BAR_BYTES,
                found: bar0.len(),
            });
        }
        if bar0.read(STATUS) == ALL_ONES {
            return Err(Error::Gone);
        }
        config.check()?;
        init::reset(&bar0, wait);
        wait(init::RESET_NANOSECONDS);
        let mut driver = Self {
            receiver: Receiver::new(arena, pool, &config)?,
            transmitter: Transmitter::new(arena)?,
            bar: bar0,
            config,
            mac: [0; 6],
            state: State::Running,
            link: None,
            counts: NicCounts::default(),
            statistics: Statistics::default(),
            recovery: Recovery::default(),
        };
        driver.bring_up(wait)?;
        Ok(driver)
    }

    /// Changes which frames are received. What comes meanwhile may be lost. A device that does not
    /// halt is reset by the next [`Nic::tend`], and one that does not run now will know.
    ///
    /// # Errors
    /// [`Error::VlanStrip`], and nothing has changed.
    pub fn set_filter(&mut self, filter: AddressFilter) -> Result<(), Error> {
        let before = mem::replace(&mut self.config.filter, filter);
        if let Err(error) = self.config.check() {
            self.config.filter = before;
            return Err(error);
        }
        let running = self.state == State::Running;
        if running && init::change_filter(&self.bar, &self.config.filter).is_err() {
            self.link = None;
            self.state = State::Faulty;
        }
        Ok(())
    }

    /// What the device has counted, as of the last [`Nic::tend`].
    pub fn statistics(&self) -> Statistics {
        Statistics {
            rx_bad_checksum: self.receiver.bad_checksum,
            ..self.statistics
        }
    }

    /// 4.6.3, behind the reset.
    fn bring_up(&mut self, wait: Wait<'_>) -> Result<(), Error> {
        let mut reset = None;
        poll(wait, init::READY_NANOSECONDS, || {
            reset = init::reset_done(&self.bar);
            reset.is_some()
        });
        let reset = reset.ok_or(Error::Timeout("CTRL.RST, the device is reset"))?;
        self.receiver.offer_all();
        self.transmitter.clear(&reset);
        let rings = Rings {
            receive: self.receiver.ring().iova(),
            receive_len: RX,
            transmit: self.transmitter.ring().iova(),
            transmit_len: TX,
            buffer: self.receiver.buffer_bytes(),
        };
        self.mac = init::configure(&self.bar, &self.config, rings, wait)?;
        self.link = link::speed(&self.bar);
        Ok(())
    }

    /// Counts a reset and begins it, or gives the device up.
    fn begin_reset(&mut self, now: u64) {
        self.link = None;
        match self.recovery.failed(now) {
            Remedy::GiveUp => self.give_up(),
            Remedy::Reset => {
                self.counts.resets += 1;
                init::reset(&self.bar, &mut no_wait);
                self.state = State::Resetting(now);
            }
        }
    }

    /// The device is left alone. What it has it keeps: nobody knows whether it still reads and
    /// writes there.
    fn give_up(&mut self) {
        self.counts.given_up = true;
        self.state = State::GivenUp;
    }

    fn end_reset(&mut self, now: u64) {
        self.recovery.comes_up(now);
        match self.bring_up(&mut no_wait) {
            Ok(()) => self.state = State::Running,
            Err(_) => self.begin_reset(now),
        }
    }

    /// Whether the device is still to be relied on.
    fn is_sound(&mut self, now: u64) -> bool {
        if self.bar.read(STATUS) == ALL_ONES {
            return false;
        }
        self.link = link::speed(&self.bar);
        self.statistics.collect(&self.bar, &mut self.counts);
        self.transmitter.reclaim_rest();
        if self.receiver.is_stuck() {
            self.counts.rx_lie += 1;
            return false;
        }
        let pending = self.transmitter.pending().filter(|_| self.link.is_some());
        !self.recovery.hangs(now, pending)
    }
}

impl<const RX: usize, const TX: usize> Nic for Driver<RX, TX> {
    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn mtu(&self) -> usize {
        self.config.mtu
    }

    fn offloads(&self) -> Offloads {
        Offloads {
            checksum: true,
            tso: true,
            uso: false,
        }
    }

    fn link(&self) -> Option<u32> {
        self.link
    }

    fn receive(&mut self, batch: &mut Batch) {
        if self.state != State::Running {
            return;
        }
        let received = self.receiver.receive(&self.bar, batch, &mut self.counts);
        if received == Err(Lie) {
            self.counts.rx_lie += 1;
            self.link = None;
            self.state = State::Faulty;
        }
    }

    fn transmit(&mut self, batch: &mut Batch) -> Sent {
        // There is none while the device does not run.
        if self.link.is_none() {
            return net::link_down(batch, &mut self.counts);
        }
        self.transmitter
            .transmit(&self.bar, batch, &mut self.counts)
    }

    fn arm(&mut self) -> bool {
        if self.state != State::Running {
            return false;
        }
        init::arm(&self.bar);
        self.receiver.is_ready()
    }

    fn tend(&mut self, now: u64) {
        match self.state {
            State::Running => {
                if !self.is_sound(now) {
                    self.begin_reset(now);
                }
            }
            State::Faulty => self.begin_reset(now),
            State::Resetting(since) => {
                let time = now.saturating_sub(since);
                let busy =
                    || init::reset_done(&self.bar).is_none() && self.bar.read(STATUS) != ALL_ONES;
                let waits = time < init::READY_NANOSECONDS && busy();
                if time >= init::RESET_NANOSECONDS && !waits {
                    self.end_reset(now);
                }
            }
            State::GivenUp => {}
        }
    }

    fn needs_tend(&self) -> bool {
        match self.state {
            State::GivenUp => false,
            State::Running => self.link.is_none() || self.transmitter.pending().is_some(),
            State::Faulty | State::Resetting(_) => true,
        }
    }

    fn counts(&self) -> &NicCounts {
        &self.counts
    }
}

impl<const RX: usize, const TX: usize> Drop for Driver<RX, TX> {
    /// The device is stopped, and keeps what it has: nobody waits until it has done so.
    fn drop(&mut self) {
        init::reset(&self.bar, &mut no_wait);
    }
}
