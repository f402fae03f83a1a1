//! Intel 82574L, which QEMU's `e1000e` is a model of.
//!
//! Keep the datasheet open: Intel 82574 GbE Controller Family Datasheet, document 317694, revision
//! 3.4, June 2014. Section numbers in this folder refer to it. Read in this order:
//!
//! | file | what | sections |
//! |---|---|---|
//! | `init` | reset and bring-up, step by step | 4.6, 7.4 |
//! | `link` | the link | 10.2.2.2 |
//! | `rx` | receiving | 7.1.8 |
//! | `tx` | sending | 7.2.4 |
//! | `offload` | checksums | 7.2 |
//! | `descriptor` | descriptors | 7.1, 7.2 |
//! | `stats` | statistics | 10.2.7 |
//! | `checkup` | what a checkup looks at | 10.2.5 |
//! | `registers` | all registers | 10 |
//!
//! There is no `wait`: a step that brings the device up never waits, and is taken again with the
//! next look at the clock, at the start as well as in [`Nic::tend`].
//!
//! One receive and one transmit queue, buffers of 2 KiB, MTU 1500. Checksums of TCP and UDP are
//! left to the device. Segmentation is not, and is done in software by the port: the device cannot
//! be told that only the first segment of a packet carries CWR (RFC 3168).
//!
//! **Interrupts.** A cause stays in ICR until it is cleared, and while it is there no other message
//! is sent for it (7.4). [`Nic::arm`] clears the causes and looks at the ring again; between two
//! calls of it there is at most one message for frames and one for the link. No cause is cleared
//! when a message is sent, so that it is the same with MSI and MSI-X.
//!
//! **Trouble.** A device that writes what cannot be, that has frames to send and does not, or whose
//! registers read all ones, is reset; when it is given up, see [`recovery`](crate::net::recovery).
//! Its frames go back to their pools when it says that the reset is done, and never if it does not,
//! nor when the driver is dropped.

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

pub use config::Config;
pub use descriptor::RX_BUFFER_BYTES;

use crate::net::recovery::{Recovery, Remedy};
use crate::net::{self, Error, Resources, Started};
use alloc::boxed::Box;
use device::ethernet::{HEADER_SIZE, VLAN_TAG_SIZE};
use device::{BATCH_FRAMES_MAX, Batch, HEADROOM, Nic, NicCounts, Offloads, Pool, Sent};
use hw::{DmaArena, Done, Mmio};
use registers::{ALL_ONES, BAR_BYTES, RDT, STATUS, TDT};
use rx::Receiver;
use tx::Transmitter;

/// Vendor ID of Intel.
pub const VENDOR: u16 = 0x8086;
/// Device ID of the 82574L.
pub const DEVICE: u16 = 0x10d3;

/// The line of the table of drivers.
pub(super) const DRIVER: net::Driver = net::Driver {
    vendor: VENDOR,
    device: DEVICE,
    name: "e1000e",
    start,
    examination: Some(checkup::EXAMINATION),
};

/// Descriptors of each ring.
pub const RING: usize = 256;
/// Buffers of the pool: what both rings can hold, and a batch on either side.
pub const BUFFERS: usize = 2 * RING + 2 * BATCH_FRAMES_MAX;
/// Size of a buffer of the pool, in bytes.
pub const BUFFER_BYTES: usize = HEADROOM + RX_BUFFER_BYTES;

/// Largest payload of a frame, in bytes: without RCTL.LPE longer frames are discarded.
const MTU: usize = 1500;

/// Steps of a reset that can be taken one right after the other: to stop, and to reset.
const STEPS: usize = 2;
/// What a device that stays in reset fails to report.
const RESET_ENDS: &str = "CTRL.RST and EEC.Auto_RD, the device is reset";

/// Looks at the device while it starts; more only if the clock stands still.
const LOOKS_MAX: usize = 10_000_000;

/// Brings the device up to forward all frames.
fn start(resources: Resources<'_>) -> Result<Started, Error> {
    let Resources {
        bar0,
        arena,
        mtu,
        clock,
        ..
    } = resources;
    if mtu != MTU {
        return Err(Error::Mtu(mtu));
    }
    let pool = Pool::dma(arena, BUFFERS, BUFFER_BYTES)?;
    let nic = Box::new(<Driver>::new(bar0, arena, pool, Config::FORWARD, clock)?);
    Ok(Started { nic, pool })
}

/// What the device is doing. Times are those of entering the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// It is not set up, or lied; the next step stops it.
    Faulty,
    /// Told to end its requests.
    Stopping(u64),
    /// Told to reset itself.
    Resetting(u64),
    GivenUp,
}

/// The driver of one device, with rings of `RX` and `TX` descriptors, powers of two.
pub struct Driver<const RX: usize = RING, const TX: usize = RING> {
    bar: Mmio,
    config: Config,
    mac: [u8; 6],
    receiver: Receiver<RX>,
    transmitter: Transmitter<TX>,
    state: State,
    /// Speed of the link; `None` while it is down or the device does not run.
    link: Option<u32>,
    /// Firmware has to wait for the PHY.
    holds_phy: bool,
    counts: NicCounts,
    recovery: Recovery,
}

impl<const RX: usize, const TX: usize> Driver<RX, TX> {
    /// Brings the device up. Received frames lie in buffers of `pool`, which should have
    /// [`BUFFERS`] of [`BUFFER_BYTES`] in DMA memory; the rings are taken from `arena`. `clock`
    /// tells the monotonic time in nanoseconds.
    ///
    /// # Errors
    /// [`Error`], within half a second.
    pub fn new(
        bar0: Mmio,
        arena: &mut DmaArena,
        pool: Pool,
        config: Config,
        clock: impl Fn() -> u64,
    ) -> Result<Self, Error> {
        if bar0.len() < BAR_BYTES {
            return Err(Error::Bar {
                wanted: BAR_BYTES,
                found: bar0.len(),
            });
        }
        let found = pool.frame_bytes_max();
        if found < RX_BUFFER_BYTES {
            let wanted = RX_BUFFER_BYTES;
            return Err(Error::BufferSize { wanted, found });
        }
        let reachable = |frame| hw::Reachable::iova(&frame).is_some();
        if !pool.alloc(RX_BUFFER_BYTES).is_some_and(reachable) {
            return Err(Error::Buffers);
        }
        let mut driver = Self {
            receiver: Receiver::new(arena, pool)?,
            transmitter: Transmitter::new(arena, MTU + HEADER_SIZE + VLAN_TAG_SIZE)?,
            bar: bar0,
            config,
            mac: [0; 6],
            state: State::Faulty,
            link: None,
            holds_phy: false,
            counts: NicCounts::default(),
            recovery: Recovery::default(),
        };
        driver.start(clock)?;
        Ok(driver)
    }

    /// From wherever the device is to where it runs.
    fn start(&mut self, clock: impl Fn() -> u64) -> Result<(), Error> {
        for _ in 0..LOOKS_MAX {
            if self.state == State::Running {
                return Ok(());
            }
            self.step(clock())?;
        }
        Err(Error::Timeout(RESET_ENDS))
    }

    /// One step of the way from wherever the device is to where it runs (4.6). Never waits: the
    /// caller comes again.
    fn step(&mut self, now: u64) -> Result<(), Error> {
        match self.state {
            State::Faulty => {
                init::stop(&self.bar);
                self.state = State::Stopping(now);
            }
            State::Stopping(since) => {
                let time = now.saturating_sub(since);
                if init::is_stopped(&self.bar) || time > init::STOP_NANOSECONDS {
                    init::reset(&self.bar);
                    self.state = State::Resetting(now);
                }
            }
            State::Resetting(since) => {
                let time = now.saturating_sub(since);
                if time < init::SETTLE_NANOSECONDS {
                    return Ok(());
                }
                if let Some(reset) = init::reset_done(&self.bar)? {
                    self.recovery.comes_up(now);
                    self.bring_up(&reset)?;
                    self.state = State::Running;
                } else if time > init::RESET_NANOSECONDS {
                    return Err(Error::Timeout(RESET_ENDS));
                }
            }
            State::Running | State::GivenUp => {}
        }
        Ok(())
    }

    /// From a reset that has ended to a device that runs, in the order of 4.6.
    fn bring_up(&mut self, reset: &Done) -> Result<(), Error> {
        self.receiver.clear(reset);
        self.transmitter.clear(reset);
        self.mac = init::configure(&self.bar)?;
        self.holds_phy = init::wake_phy(&self.bar);
        init::receive(&self.bar, self.receiver.ring(), &self.config);
        self.receiver.fill(&mut self.counts);
        self.bar.write(RDT, self.receiver.tail());
        init::transmit(&self.bar, self.transmitter.ring());
        init::interrupts(&self.bar);
        self.link = link::speed(self.bar.read(STATUS));
        Ok(())
    }

    /// The device is not to be relied on: it is stopped now, and reset by the next [`Nic::tend`].
    #[cold]
    fn distrust(&mut self) {
        init::stop(&self.bar);
        self.link = None;
        self.state = State::Faulty;
    }

    /// Counts a reset and begins it, or gives the device up.
    #[cold]
    fn begin_reset(&mut self, now: u64) {
        self.distrust();
        match self.recovery.failed(now) {
            Remedy::GiveUp => self.give_up(),
            Remedy::Reset => {
                self.counts.resets += 1;
                self.state = State::Stopping(now);
            }
        }
    }

    /// Takes the next steps of a reset, or begins anew.
    fn go_on(&mut self, now: u64) {
        for _ in 0..STEPS {
            if self.step(now).is_err() {
                return self.begin_reset(now);
            }
        }
    }

    /// The device is left alone. What it has it keeps: nobody knows whether it still reads and
    /// writes there.
    fn give_up(&mut self) {
        self.counts.given_up = true;
        self.state = State::GivenUp;
    }

    /// Whether the device is still to be relied on.
    fn is_sound(&mut self, now: u64) -> bool {
        let status = self.bar.read(STATUS);
        if status == ALL_ONES {
            return false;
        }
        self.link = link::speed(status);
        self.holds_phy = self.holds_phy && !init::leave_phy(&self.bar);
        stats::collect(&self.bar, &mut self.counts);
        if self.receiver.is_starved() && self.receiver.fill(&mut self.counts) {
            self.bar.write(RDT, self.receiver.tail());
        }
        self.transmitter.reclaim();
        if self.receiver.is_stuck() {
            self.counts.rx_lie += 1;
            return false;
        }
        let pending = self.transmitter.pending().filter(|_| self.link.is_some());
        !self.recovery.hangs(now, pending)
    }
}

impl<const RX: usize, const TX: usize> Drop for Driver<RX, TX> {
    /// The device is stopped, and keeps what it has: nobody waits until it has done so.
    fn drop(&mut self) {
        init::stop(&self.bar);
    }
}

impl<const RX: usize, const TX: usize> Nic for Driver<RX, TX> {
    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn mtu(&self) -> usize {
        MTU
    }

    fn offloads(&self) -> Offloads {
        Offloads {
            checksum: true,
            tso: false,
            uso: false,
        }
    }

    fn link(&self) -> Option<u32> {
        self.link
    }

    fn receive(&mut self, batch: &mut Batch) {
        if self.state != State::Running {
            self.counts.polls_idle += 1;
            return;
        }
        if self.receiver.receive(batch, &mut self.counts).is_err() {
            return self.distrust();
        }
        if self.receiver.refill(&mut self.counts) {
            self.bar.write(RDT, self.receiver.tail());
        }
    }

    fn transmit(&mut self, batch: &mut Batch) -> Sent {
        if self.link.is_none() {
            return net::link_down(batch, &mut self.counts);
        }
        self.transmitter.reclaim();
        let sent = self.transmitter.transmit(batch, &mut self.counts);
        if sent.frames != 0 {
            self.bar.write(TDT, self.transmitter.tail());
        }
        sent
    }

    fn arm(&mut self) -> bool {
        if self.state != State::Running {
            return false;
        }
        self.transmitter.reclaim();
        if self.receiver.fill(&mut self.counts) {
            self.bar.write(RDT, self.receiver.tail());
        }
        if !init::arm(&self.bar) {
            self.distrust();
            return false;
        }
        self.receiver.is_ready()
    }

    fn tend(&mut self, now: u64) {
        match self.state {
            State::Running => {
                if !self.is_sound(now) {
                    self.begin_reset(now);
                }
            }
            State::Faulty => {
                self.begin_reset(now);
                self.go_on(now);
            }
            State::Stopping(_) | State::Resetting(_) => self.go_on(now),
            State::GivenUp => {}
        }
    }

    fn needs_tend(&self) -> bool {
        match self.state {
            State::GivenUp => false,
            State::Running => {
                let waits = self.receiver.is_starved() || self.transmitter.pending().is_some();
                self.link.is_none() || waits
            }
            _ => true,
        }
    }

    fn counts(&self) -> &NicCounts {
        &self.counts
    }
}
