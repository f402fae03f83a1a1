//! The virtio network device (5.1), with one receive and one transmit queue.
//!
//! Keep the specification open: [`virtio`] says which, and what the drivers of all
//! virtio devices share. Read in this order:
//!
//! | file | what | sections |
//! |---|---|---|
//! | `init` | what is negotiated, and what the device says of itself | 5.1.3, 5.1.5 |
//! | `link` | the link | 5.1.4 |
//! | `rx` | receiving, large frames too | 5.1.6.3, 5.1.6.4 |
//! | `tx` | sending, and what is left to the device | 5.1.6.2 |
//! | `registers` | configuration, features and queues | 5.1.2 to 5.1.4 |
//! | `config` | how the device is to be set up | |
//!
//! There is no `descriptor`, for the queues are those of all virtio devices; no `offload`, for what
//! is left to the device is what ports leave to each other (`device::virtio`); no `wait`, for a
//! step that brings the device up never waits; no `stats`, for the device counts nothing.
//!
//! **A frame's way.** Each receive descriptor has a buffer of the pool, lent to the device. What
//! comes back is the frame, with the header in its headroom. The transmit queue puts its own header
//! there. Nothing is copied, but for a frame that a device spreads over several buffers, though
//! each one could hold it.
//!
//! **Large frames.** A device that may ([`Config::large`]) hands TCP segments on as one frame of up
//! to 64 KiB. What it leaves to be done is checked against the headers (`device::virtio`).
//!
//! **Interrupts and doorbells.** With event indices, [`Nic::arm`] names the buffer whose use is to
//! interrupt, once, and the device names the one that it wants to be told of. The transmit queue
//! never interrupts.
//!
//! **Which frames.** A device that no control queue tells anything receives all frames, as
//! forwarders need it.
//!
//! **Trouble.** A device that writes what cannot be, that has frames to send and does not, that
//! says that it needs a reset, or whose registers read all ones, is reset; when it is given up, see
//! [`recovery`](crate::net::recovery). Its frames go back to their pools when it says that the
//! reset is done, and never if it does not, nor when the driver is dropped.

mod config;
mod init;
mod link;
#[cfg(any(test, feature = "puppet"))]
pub mod puppet;
mod registers;
mod rx;
#[cfg(test)]
mod tests;
mod tx;

pub use config::Config;

use crate::net::recovery::{Recovery, Remedy};
use crate::net::{self, Error, Resources, Started};
use crate::virtio::queue::SIZE_MAX;
use crate::virtio::{self, Lie, PCI_DEVICE_BASE, Transport};
use alloc::boxed::Box;
use device::{
    BATCH_FRAMES_MAX, Batch, FRAME_BYTES_MAX, HEADROOM, Nic, NicCounts, Offloads, Pool, Sent,
};
use hw::{DmaArena, Done};
use init::{Agreement, MTU_MAX, MTU_MIN};
use registers::CONFIG_BYTES;
use rx::{Receiver, frame_bytes};
use tx::Transmitter;

/// Vendor ID of virtio devices.
pub const VENDOR: u16 = virtio::VENDOR;
/// The kind of device (5.1.1).
pub const KIND: u16 = 1;
/// PCI device ID.
pub const DEVICE: u16 = PCI_DEVICE_BASE + KIND;

/// The line of the table of drivers.
pub(super) const DRIVER: net::Driver = net::Driver {
    vendor: VENDOR,
    device: DEVICE,
    name: "virtio-net",
    start,
    examination: None,
};

/// Descriptors of each ring.
pub const RING: usize = SIZE_MAX;
/// Buffers of the pool: what both rings can hold, and a batch on either side.
pub const BUFFERS: usize = 2 * RING + 2 * BATCH_FRAMES_MAX;
/// Size of a buffer of the pool, in bytes, for an MTU of 1500.
pub const BUFFER_BYTES: usize = HEADROOM + 2048;
/// Descriptors of each ring where frames are large: fewer, since their buffers are large.
pub const LARGE_RING: usize = 128;
/// Buffers of the pool in that case.
pub const LARGE_BUFFERS: usize = 2 * LARGE_RING + 2 * BATCH_FRAMES_MAX;
/// Size of one: as large as a frame can be.
pub const LARGE_BUFFER_BYTES: usize = HEADROOM + FRAME_BYTES_MAX;
/// DMA memory that all of that takes, in bytes: buffers at cache lines, rings at pages.
pub const LARGE_DMA_BYTES: usize =
    LARGE_BUFFERS * LARGE_BUFFER_BYTES.next_multiple_of(64) + 6 * 4096;

/// Brings the device up to forward all frames. Received ones are large if the DMA memory suffices,
/// here and for the devices that are to come: who takes their ports from the table can pass large
/// frames on.
fn start(resources: Resources<'_>) -> Result<Started, Error> {
    let Resources {
        virtio: transport,
        arena,
        others,
        mtu,
        clock,
        ..
    } = resources;
    if !(MTU_MIN..=MTU_MAX).contains(&mtu) {
        return Err(Error::Mtu(mtu));
    }
    let transport = transport.ok_or(virtio::Error::NoCapabilities)?;
    transport.check(KIND, CONFIG_BYTES)?;
    if arena.left() / (1 + others) >= LARGE_DMA_BYTES {
        let pool = Pool::dma(arena, LARGE_BUFFERS, LARGE_BUFFER_BYTES)?;
        let config = Config {
            mtu,
            ..Config::LARGE
        };
        let nic = Driver::<_, LARGE_RING>::new(transport, arena, pool, config, clock)?;
        let nic = Box::new(nic);
        return Ok(Started { nic, pool });
    }
    let buffer_bytes = BUFFER_BYTES.max(HEADROOM + frame_bytes(mtu));
    let pool = Pool::dma(arena, BUFFERS, buffer_bytes)?;
    let config = Config {
        mtu,
        ..Config::FORWARD
    };
    let nic = Driver::<_, RING>::new(transport, arena, pool, config, clock)?;
    let nic = Box::new(nic);
    Ok(Started { nic, pool })
}

/// What the device is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// It is not set up, or lied; the next `tend` resets it.
    Faulty,
    /// Since then.
    Resetting(u64),
    GivenUp,
}

/// The driver, with rings of `N` descriptors, a power of two.
pub struct Driver<T: Transport, const N: usize = RING> {
    transport: T,
    config: Config,
    agreement: Agreement,
    receiver: Receiver<N>,
    transmitter: Transmitter<N>,
    state: State,
    /// Speed of the link; `None` while it is down or the device does not run.
    link: Option<u32>,
    counts: NicCounts,
    recovery: Recovery,
}

impl<T: Transport, const N: usize> Driver<T, N> {
    /// Brings the device up. Received frames lie in buffers of `pool`, which should have
    /// [`BUFFERS`] of [`BUFFER_BYTES`] in DMA memory; the rings are taken from `arena`. `clock`
    /// tells the monotonic time in nanoseconds.
    ///
    /// # Errors
    /// [`Error`], within some seconds.
    pub fn new(
        transport: T,
        arena: &mut DmaArena,
        pool: Pool,
        config: Config,
        clock: impl Fn() -> u64,
    ) -> Result<Self, Error> {
        let mut driver = Self {
            receiver: Receiver::new(arena, pool, &config)?,
            transmitter: Transmitter::new(arena)?,
            transport,
            config,
            agreement: Agreement {
                features: 0,
                mac: [0; 6],
                mtu: 0,
            },
            state: State::Faulty,
            link: None,
            counts: NicCounts::default(),
            recovery: Recovery::default(),
        };
        driver.start(clock)?;
        Ok(driver)
    }

    /// From wherever the device is to where it runs.
    fn start(&mut self, clock: impl Fn() -> u64) -> Result<(), Error> {
        let reset = virtio::reset(&self.transport, clock)?;
        self.bring_up(&reset)?;
        self.state = State::Running;
        Ok(())
    }

    /// From a reset that has ended to a device that runs, in the order of 3.1.1 and 5.1.5.
    fn bring_up(&mut self, reset: &Done) -> Result<(), Error> {
        self.transmitter.clear(reset);
        let transport = &self.transport;
        let agreement = init::agree(transport, &self.config, self.receiver.frame_bytes_max())?;
        self.receiver.set_up(transport, agreement.features)?;
        let offloads = agreement.offloads();
        self.transmitter
            .set_up(transport, agreement.features, offloads)?;
        virtio::run(transport);
        self.receiver.offer_all(transport);
        self.link = link::speed(transport, agreement.features);
        self.agreement = agreement;
        Ok(())
    }

    /// The device is not to be relied on: it is reset by the next [`Nic::tend`].
    #[cold]
    fn distrust(&mut self) {
        self.counts.rx_lie += 1;
        self.link = None;
        self.state = State::Faulty;
    }

    /// Counts a reset and begins it, or gives the device up.
    #[cold]
    fn begin_reset(&mut self, now: u64) {
        self.link = None;
        match self.recovery.failed(now) {
            Remedy::GiveUp => self.give_up(),
            Remedy::Reset => {
                self.counts.resets += 1;
                virtio::begin(&self.transport);
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

    /// Brings a device up whose reset is over, or waits for that.
    fn go_on(&mut self, now: u64, since: u64) {
        let Some(reset) = self.transport.reset_done() else {
            if now.saturating_sub(since) > virtio::RESET_NANOSECONDS {
                self.begin_reset(now);
            }
            return;
        };
        self.recovery.comes_up(now);
        match self.bring_up(&reset) {
            Ok(()) => self.state = State::Running,
            Err(_) => self.begin_reset(now),
        }
    }

    /// Whether the device is still to be relied on.
    fn is_sound(&mut self, now: u64) -> bool {
        if !virtio::is_alive(&self.transport) {
            return false;
        }
        self.link = link::speed(&self.transport, self.agreement.features);
        if self.transmitter.reclaim().is_err() {
            self.counts.rx_lie += 1;
            return false;
        }
        let pending = self.transmitter.pending().filter(|_| self.link.is_some());
        !self.recovery.hangs(now, pending)
    }
}

impl<T: Transport, const N: usize> Nic for Driver<T, N> {
    fn mac(&self) -> [u8; 6] {
        self.agreement.mac
    }

    fn mtu(&self) -> usize {
        self.agreement.mtu
    }

    fn offloads(&self) -> Offloads {
        self.agreement.offloads()
    }

    fn link(&self) -> Option<u32> {
        self.link
    }

    fn receive(&mut self, batch: &mut Batch) {
        if self.state != State::Running {
            return;
        }
        let received = self
            .receiver
            .receive(&self.transport, batch, &mut self.counts);
        if received == Err(Lie) {
            self.distrust();
        }
    }

    fn transmit(&mut self, batch: &mut Batch) -> Sent {
        // There is none while the device does not run.
        if self.link.is_none() {
            return net::link_down(batch, &mut self.counts);
        }
        let sent = self
            .transmitter
            .transmit(&self.transport, batch, &mut self.counts);
        sent.unwrap_or_else(|Lie| {
            self.distrust();
            net::link_down(batch, &mut self.counts)
        })
    }

    fn arm(&mut self) -> bool {
        if self.state != State::Running {
            return false;
        }
        self.receiver.arm()
    }

    fn tend(&mut self, now: u64) {
        match self.state {
            State::Running => {
                if !self.is_sound(now) {
                    self.begin_reset(now);
                }
            }
            State::Faulty => self.begin_reset(now),
            State::Resetting(since) => self.go_on(now, since),
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

impl<T: Transport, const N: usize> Drop for Driver<T, N> {
    /// The device is reset, and keeps what it has: nobody waits until it has done so.
    fn drop(&mut self) {
        virtio::begin(&self.transport);
    }
}
