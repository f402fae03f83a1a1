//! Intel 82574L, which QEMU's `e1000e` is a model of.
//!
//! To read with the 82574 GbE Controller Family Datasheet open; numbers in comments are its
//! sections. `registers` transcribes what is used of chapter 10, `descriptor` the formats of 7.1
//! and 7.2, `rx` and `tx` are the two rings. Here: bringing the device up in the order of 4.6, and
//! what keeps it up.
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
//! **Trouble.** A device that writes what cannot be, or that has frames to send and does not, is
//! reset, and given up when that does not help. Its frames go back to their pools when it says that
//! the reset is done, and never if it does not, nor when the driver is dropped. Registers that read
//! all ones: the device is gone.

mod descriptor;
#[cfg(any(test, feature = "puppet"))]
pub mod puppet;
mod registers;
mod rx;
mod stats;
#[cfg(test)]
mod tests;
mod tx;

pub use descriptor::RX_BUFFER_BYTES;

use core::fmt;
use device::ethernet::{HEADER_SIZE, VLAN_TAG_SIZE};
use device::{BATCH_FRAMES_MAX, Batch, HEADROOM, Nic, NicCounts, Offloads, Pool, Sent};
use hw::{DmaArena, DmaRing, Mmio, OutOfDma, Register};
use registers as reg;
use rx::Receive;
use tx::Transmit;

/// Vendor ID of Intel.
pub const VENDOR: u16 = 0x8086;
/// Device ID of the 82574L.
pub const DEVICE: u16 = 0x10d3;

/// Descriptors of each ring.
pub const RING: usize = 256;
/// Buffers of the pool: what both rings can hold, and a batch on either side.
pub const BUFFERS: usize = 2 * RING + 2 * BATCH_FRAMES_MAX;
/// Size of a buffer of the pool, in bytes.
pub const BUFFER_BYTES: usize = HEADROOM + RX_BUFFER_BYTES;

/// Largest payload of a frame, in bytes: without RCTL.LPE longer frames are discarded.
const MTU: usize = 1500;

/// What a register reads where there is no device.
const GONE: u32 = u32::MAX;
/// The causes of interrupts: those of MSI, and those of MSI-X.
const CAUSES: u32 = reg::cause::RXT0 | reg::cause::LSC | reg::cause::RXQ0 | reg::cause::OTHER;

/// How long the device may take to end its own requests before it is reset all the same, in
/// nanoseconds (3.1.3.10: master disable).
const STOP_NANOSECONDS: u64 = 20_000_000;
/// Shortest time from a reset to the next access, in nanoseconds.
const SETTLE_NANOSECONDS: u64 = 1_000_000;
/// Longest time that a reset takes, in nanoseconds: the EEPROM is read meanwhile.
const RESET_NANOSECONDS: u64 = 200_000_000;
/// Steps of a reset that can be taken one right after the other: to stop, and to reset.
const STEPS: usize = 2;
/// Looks at the device while it starts; more only if the clock stands still.
const LOOKS_MAX: usize = 10_000_000;
/// How long frames may wait to be sent while the link is up, in nanoseconds, before the device
/// counts as hung.
const HANG_NANOSECONDS: u64 = 2_000_000_000;
/// Resets in a row that are tried.
const RESETS_MAX: u32 = 5;
/// How long a device must have run for its resets to be forgotten, in nanoseconds.
const RECOVERED_NANOSECONDS: u64 = 10_000_000_000;

/// Which frames are received. Forwarders need all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All, whoever they are for (promiscuous).
    None,
    /// Those for the device's own address, multicast and broadcast.
    Own,
}

/// Why a device cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// BAR 0 is not that of an 82574L: its bytes.
    Bar(usize),
    /// All registers read all ones.
    Gone,
    /// The reset does not end.
    Reset,
    /// No MAC address, or one of a group.
    Address,
    /// Buffers of the pool are too small, or devices cannot reach them.
    Pool,
    /// No room for the rings.
    Dma(OutOfDma),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bar(bytes) => write!(
                f,
                "e1000e: BAR 0 has {bytes} bytes instead of {}: set map_bar0 in manifest.json",
                reg::BAR_BYTES
            ),
            Self::Gone => f.write_str("e1000e: all registers read all ones: no device is there"),
            Self::Reset => f.write_str("e1000e: the device does not come out of its reset"),
            Self::Address => f.write_str("e1000e: the EEPROM holds no MAC address"),
            Self::Pool => f.write_str("e1000e: packet buffers are too small or not DMA memory"),
            Self::Dma(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Error {}

impl From<OutOfDma> for Error {
    fn from(error: OutOfDma) -> Self {
        Self::Dma(error)
    }
}

/// What the device is at. Times are those of entering the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To be stopped: something is wrong with it.
    Failed,
    /// Told to end its requests.
    Stopping(u64),
    /// Told to reset itself.
    Resetting(u64),
    Running(u64),
    GivenUp,
}

/// The driver of one device, with rings of `RX` and `TX` descriptors, powers of two.
pub struct Driver<const RX: usize = RING, const TX: usize = RING> {
    bar: Mmio,
    filter: Filter,
    state: State,
    receive: Receive<RX>,
    transmit: Transmit<TX>,
    mac: [u8; 6],
    link: Option<u32>,
    /// Resets in a row.
    resets: u32,
    /// When the device was last seen to have sent more than before, and how much; none since it had
    /// nothing to send.
    progress: Option<(u64, usize)>,
    counts: NicCounts,
}

impl<const RX: usize, const TX: usize> Driver<RX, TX> {
    /// Brings the device up. Received frames lie in buffers of `pool`, which should have
    /// [`BUFFERS`] of [`BUFFER_BYTES`] in DMA memory; the rings are taken from `arena`. `clock`
    /// tells the monotonic time in nanoseconds.
    ///
    /// # Errors
    /// [`Error`], within half a second.
    pub fn new(
        bar: Mmio,
        arena: &mut DmaArena,
        pool: Pool,
        filter: Filter,
        clock: impl Fn() -> u64,
    ) -> Result<Self, Error> {
        if bar.len() < reg::BAR_BYTES {
            return Err(Error::Bar(bar.len()));
        }
        let reachable = |frame| hw::Reachable::iova(&frame).is_some();
        if !pool.alloc(RX_BUFFER_BYTES).is_some_and(reachable) {
            return Err(Error::Pool);
        }
        let mut driver = Self {
            bar,
            filter,
            state: State::Failed,
            receive: Receive::new(arena, pool)?,
            transmit: Transmit::new(arena, MTU + HEADER_SIZE + VLAN_TAG_SIZE)?,
            mac: [0; 6],
            link: None,
            resets: 0,
            progress: None,
            counts: NicCounts::default(),
        };
        driver.start(clock)?;
        Ok(driver)
    }

    /// From wherever the device is to where it runs.
    fn start(&mut self, clock: impl Fn() -> u64) -> Result<(), Error> {
        for _ in 0..LOOKS_MAX {
            match self.state {
                State::Running(_) => return Ok(()),
                State::GivenUp => return Err(Error::Gone),
                _ => self.step(clock())?,
            }
        }
        Err(Error::Reset)
    }

    /// Not inlined, for bringing the device up reads and writes much, and seldom.
    #[inline(never)]
    fn read(&self, register: Register) -> u32 {
        self.bar.read(register)
    }

    /// As [`Self::read`].
    #[inline(never)]
    fn write(&self, register: Register, value: u32) {
        self.bar.write(register, value);
    }

    /// One step of the way from wherever the device is to where it runs (4.6). Never waits: the
    /// caller comes again.
    fn step(&mut self, now: u64) -> Result<(), Error> {
        match self.state {
            State::Failed => {
                self.stop();
                self.state = State::Stopping(now);
            }
            State::Stopping(since) => {
                let stopped = self.read(reg::STATUS) & reg::status::GIO_MASTER_ENABLE == 0;
                if stopped || now.saturating_sub(since) > STOP_NANOSECONDS {
                    // 10.2.2.1: software reset.
                    self.bar.change(reg::CTRL, reg::ctrl::RST, 0);
                    self.state = State::Resetting(now);
                }
            }
            State::Resetting(since) => {
                let time = now.saturating_sub(since);
                if time < SETTLE_NANOSECONDS {
                    return Ok(());
                }
                let control = self.read(reg::CTRL);
                let eeprom = self.read(reg::EEC);
                if control == GONE && eeprom == GONE {
                    self.give_up();
                } else if control & reg::ctrl::RST == 0 && eeprom & reg::eec::AUTO_RD != 0 {
                    self.bring_up(now)?;
                } else if time > RESET_NANOSECONDS {
                    return Err(Error::Reset);
                }
            }
            State::Running(_) | State::GivenUp => {}
        }
        Ok(())
    }

    /// Ends all that the device does by itself. Not all devices take a reset as an end of it.
    fn stop(&self) {
        self.write(reg::IMC, u32::MAX);
        self.write(reg::RCTL, 0);
        self.write(reg::TCTL, 0);
        self.bar.change(reg::CTRL, reg::ctrl::GIO_MASTER_DISABLE, 0);
    }

    /// From a reset that has ended to a device that runs, in the order of 4.6.
    fn bring_up(&mut self, now: u64) -> Result<(), Error> {
        self.receive.clear();
        self.transmit.clear();
        // 4.6.1: no interrupts, which the reset has enabled perhaps.
        self.write(reg::IMC, u32::MAX);
        self.configure();
        // 10.2.7: statistics begin at zero; reading clears them.
        stats::clear(&self.bar);
        self.mac = self.address()?;
        self.start_receive();
        self.start_transmit();
        self.route_interrupts();
        self.link = link(self.read(reg::STATUS));
        self.progress = None;
        self.state = State::Running(now);
        Ok(())
    }

    /// General configuration, flow control off; 4.6.3: the MAC follows the PHY, which negotiates by
    /// itself.
    fn configure(&self) {
        for register in [reg::FCAL, reg::FCAH, reg::FCT, reg::FCTTV] {
            self.write(register, 0);
        }
        self.bar.change(reg::GCR, reg::gcr::RESERVED_SET, 0);
        self.bar.change(reg::CTRL_EXT, reg::ctrl_ext::DRV_LOAD, 0);
        use reg::ctrl::{FRCDPX, FRCSPD, GIO_MASTER_DISABLE, RFCE, SLU, TFCE, VME};
        let clear = FRCDPX | FRCSPD | GIO_MASTER_DISABLE | RFCE | TFCE | VME;
        self.bar.change(reg::CTRL, SLU, clear);
    }

    /// The MAC address, which the device has read from its EEPROM.
    fn address(&self) -> Result<[u8; 6], Error> {
        let [a, b, c, d] = self.read(reg::RAL).to_le_bytes();
        let high = self.read(reg::RAH);
        let [e, f, ..] = high.to_le_bytes();
        let mac = [a, b, c, d, e, f];
        let group = a & 1 != 0;
        if high & reg::rah::AV == 0 || group || mac == [0; 6] {
            return Err(Error::Address);
        }
        Ok(mac)
    }

    /// 4.6.5: receive initialization.
    fn start_receive(&mut self) {
        for n in 1..reg::RA_COUNT {
            self.write(reg::RAH.nth(n, reg::RA_STRIDE), 0);
            self.write(reg::RAL.nth(n, reg::RA_STRIDE), 0);
        }
        for n in 0..reg::MTA_COUNT {
            self.write(reg::MTA.nth(n, 4), 0);
        }
        self.write(reg::FCRTL, 0);
        self.write(reg::FCRTH, 0);
        self.write(reg::RDTR, 0);
        self.write(reg::RADV, 0);
        self.write(reg::RXCSUM, 0);
        self.write(reg::RFCTL, reg::rfctl::EXSTEN);
        self.write(reg::RXDCTL, reg::xdctl::GRAN | reg::xdctl::WTHRESH_1);
        let place = [reg::RDBAL, reg::RDBAH, reg::RDLEN, reg::RDH, reg::RDT];
        self.place(self.receive.ring(), place);
        let filter = match self.filter {
            Filter::None => reg::rctl::UPE | reg::rctl::MPE,
            Filter::Own => reg::rctl::MPE,
        };
        let control = reg::rctl::EN | reg::rctl::BAM | reg::rctl::SECRC | filter;
        self.write(reg::RCTL, control);
        // The tail moves once receiving is enabled.
        self.receive.fill(&mut self.counts);
        self.write(reg::RDT, self.receive.tail());
    }

    /// 4.6.6: transmit initialization.
    fn start_transmit(&self) {
        let write_back = reg::xdctl::GRAN | reg::xdctl::WTHRESH_1 | reg::xdctl::COUNT_DESC;
        self.write(reg::TXDCTL, write_back);
        let place = [reg::TDBAL, reg::TDBAH, reg::TDLEN, reg::TDH, reg::TDT];
        self.place(self.transmit.ring(), place);
        self.write(reg::TIPG, reg::TIPG_VALUE);
        use reg::tctl::{COLD_FULL_DUPLEX, CT, EN, PSP};
        self.write(reg::TCTL, EN | PSP | CT | COLD_FULL_DUPLEX);
    }

    /// Tells the device where a ring is, and that it is empty.
    fn place<const W: usize, const N: usize>(&self, ring: &DmaRing<W, N>, to: [Register; 5]) {
        let [base_low, base_high, length, head, tail] = to;
        let (low, high) = ring.iova().halves();
        self.write(base_low, low);
        self.write(base_high, high);
        self.write(length, DmaRing::<W, N>::BYTES as u32);
        self.write(head, 0);
        self.write(tail, 0);
    }

    /// 7.4: all causes go to the first vector, unthrottled, for `arm` sees to the rate.
    fn route_interrupts(&self) {
        self.write(reg::ITR, 0);
        self.write(reg::EITR, 0);
        self.write(reg::EIAC, 0);
        let vectors = reg::ivar::RXQ0_VALID | reg::ivar::OTHER_VALID;
        self.write(reg::IVAR, vectors);
        self.write(reg::ICR, u32::MAX);
        self.write(reg::IMS, CAUSES);
    }

    /// Something is wrong: the device is reset, or given up if that was tried often enough.
    #[cold]
    fn fail(&mut self) {
        self.stop();
        self.link = None;
        if self.resets == RESETS_MAX {
            self.give_up();
        } else {
            self.resets += 1;
            self.counts.resets += 1;
            self.state = State::Failed;
        }
    }

    /// The device is left alone. What it has it keeps: nobody knows whether it still writes there.
    #[cold]
    fn give_up(&mut self) {
        self.stop();
        self.link = None;
        self.counts.given_up = true;
        self.state = State::GivenUp;
    }

    /// Looks after a device that runs.
    fn watch(&mut self, since: u64, now: u64) {
        let status = self.read(reg::STATUS);
        if status == GONE {
            return self.give_up();
        }
        self.link = link(status);
        stats::collect(&self.bar, &mut self.counts);
        if now.saturating_sub(since) > RECOVERED_NANOSECONDS {
            self.resets = 0;
        }
        if self.receive.is_starved() && self.receive.fill(&mut self.counts) {
            self.write(reg::RDT, self.receive.tail());
        }
        self.transmit.reclaim();
        let done = self.transmit.done();
        let busy = self.transmit.is_busy() && self.link.is_some();
        match self.progress {
            Some((last, was_done)) if busy && done == was_done => {
                if now.saturating_sub(last) > HANG_NANOSECONDS {
                    self.fail();
                }
            }
            _ => self.progress = Some((now, done)),
        }
    }
}

impl<const RX: usize, const TX: usize> Drop for Driver<RX, TX> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Speed of the link in Mb/s, if it is up (10.2.2.2).
fn link(status: u32) -> Option<u32> {
    let up = status & reg::status::LU != 0;
    up.then(|| [10, 100, 1000, 1000][(status >> reg::status::SPEED_SHIFT & 3) as usize])
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
        }
    }

    fn link(&self) -> Option<u32> {
        self.link
    }

    fn receive(&mut self, batch: &mut Batch) {
        if !matches!(self.state, State::Running(_)) {
            self.counts.polls_idle += 1;
            return;
        }
        if self.receive.take(batch, &mut self.counts).is_err() {
            return self.fail();
        }
        if self.receive.refill(&mut self.counts) {
            self.bar.write(reg::RDT, self.receive.tail());
        }
    }

    fn transmit(&mut self, batch: &mut Batch) -> Sent {
        if self.link.is_none() {
            self.counts.tx_link_down += batch.drain().count() as u64;
            return Sent::default();
        }
        self.transmit.reclaim();
        if !self.transmit.is_busy() {
            self.progress = None;
        }
        let sent = self.transmit.put(batch, &mut self.counts);
        if sent.frames != 0 {
            self.bar.write(reg::TDT, self.transmit.tail());
        }
        sent
    }

    fn arm(&mut self) -> bool {
        if !matches!(self.state, State::Running(_)) {
            return false;
        }
        self.transmit.reclaim();
        if self.receive.fill(&mut self.counts) {
            self.bar.write(reg::RDT, self.receive.tail());
        }
        self.bar.write(reg::ICR, CAUSES);
        // What the device wrote to memory before it saw the write is there when a read comes back
        // (PCI Express Base, 2.4.1). A frame that comes later sets its cause anew.
        if self.bar.read(reg::STATUS) == GONE {
            self.give_up();
            return false;
        }
        self.receive.pending()
    }

    fn tend(&mut self, now: u64) {
        match self.state {
            State::Running(since) => self.watch(since, now),
            _ => {
                for _ in 0..STEPS {
                    if self.step(now).is_err() {
                        self.fail();
                    }
                }
            }
        }
    }

    fn needs_tend(&self) -> bool {
        match self.state {
            State::GivenUp => false,
            State::Running(_) => {
                self.link.is_none() || self.transmit.is_busy() || self.receive.is_starved()
            }
            _ => true,
        }
    }

    fn counts(&self) -> &NicCounts {
        &self.counts
    }
}
