//! Bring-up, in the order of section 4.6.3. Each wait is a bounded poll.

use super::config::{AddressFilter, Config};
use super::descriptor::DESCRIPTOR_BYTES;
use super::registers::*;
use super::wait::{Wait, no_wait, poll};
use crate::net::Error;
use hw::{Done, Iova, Mmio, Register};

/// After a reset (4.6.3.2), in nanoseconds.
pub const RESET_NANOSECONDS: u64 = 10_000_000;
/// From setting a reset bit until the device may be touched again (8.2.3.1.1).
const RESET_QUIET_NANOSECONDS: u64 = 1_000_000;
/// Between the two resets of a device that does not end its requests (5.2.5.3.2): more than 1 us.
const SECOND_RESET_NANOSECONDS: u64 = 2_000;
/// How long its buffers are cleared in that case (5.2.5.3.2).
const FLUSH_NANOSECONDS: u64 = 20_000;
/// For requests to memory that are under way; the datasheet gives no time.
const MASTER_DISABLE_NANOSECONDS: u64 = 100_000_000;
/// For the end of a reset, the EEPROM, DMA, queues and the receive path; the datasheet gives no
/// times.
pub const READY_NANOSECONDS: u64 = 1_000_000_000;

/// Bytes of the receive packet buffer that stay free for what is under way when a pause is asked
/// for: the threshold has to be set although nobody is asked to pause (4.6.3.2).
const FCRTH_SPARE: u32 = 0x6000;
const RECEIVE_BUFFER_BYTES: u32 = 512 << 10;

/// Bytes of the checksum of a frame.
const CRC_BYTES: usize = 4;
/// Bytes of an Ethernet header.
const ETHERNET_BYTES: usize = 14;
/// Two tags.
const TAGS_BYTES: usize = 8;
/// Above this, frames are jumbos.
const STANDARD_MTU: usize = 1500;
/// Largest frame (1.3): 15.5 KiB.
const FRAME_BYTES_MAX: usize = 15_872;

/// Rings and buffers, as the device is told.
#[derive(Clone, Copy)]
pub struct Rings {
    pub receive: Iova,
    pub receive_len: usize,
    pub transmit: Iova,
    pub transmit_len: usize,
    /// Bytes of a receive buffer.
    pub buffer: usize,
}

/// Bytes of a receive buffer for frames of `mtu` that come as they are: what the device may write,
/// tags included.
pub fn buffer_bytes(mtu: usize) -> Result<usize, Error> {
    let frame = mtu.saturating_add(ETHERNET_BYTES + TAGS_BYTES + CRC_BYTES);
    if mtu == 0 || frame > FRAME_BYTES_MAX {
        return Err(Error::Mtu(mtu));
    }
    Ok(frame
        .next_multiple_of(SRRCTL_BUFFER_UNIT)
        .max(2 * SRRCTL_BUFFER_UNIT))
}

/// 4.6.3.1: no interrupts while the device is set up.
fn disable_interrupts(bar: &Mmio) {
    bar.write(EIMC, EIMC_ALL);
    for n in 0..2 {
        bar.write(EIMC_EX.nth(n, 4), ALL_ONES);
    }
}

/// 5.2.5.3.2: lets requests to memory end, then 4.2.1.6 and 4.2.1.7: device and link reset. The
/// device may be touched again after [`RESET_NANOSECONDS`].
pub fn reset(bar: &Mmio, wait: Wait<'_>) {
    disable_interrupts(bar);
    bar.change(RXDCTL, 0, RXDCTL_ENABLE);
    bar.change(TXDCTL, 0, TXDCTL_ENABLE);
    bar.change(CTRL, CTRL_MASTER_DISABLE, 0);
    let quiet = poll(wait, MASTER_DISABLE_NANOSECONDS, || {
        bar.read(STATUS) & STATUS_MASTER_ENABLE == 0
    });
    if !quiet {
        // The data path is flushed, with nothing coming in or going out, and the reset done twice.
        bar.change(HLREG0, HLREG0_LPBK, 0);
        bar.change(RXCTRL, 0, RXCTRL_RXEN);
        bar.change(GCR_EXT, GCR_EXT_BUFFERS_CLEAR, 0);
        wait(FLUSH_NANOSECONDS);
        bar.change(GCR_EXT, 0, GCR_EXT_BUFFERS_CLEAR);
        bar.change(HLREG0, 0, HLREG0_LPBK);
        bar.change(CTRL, CTRL_RST | CTRL_LRST, 0);
        wait(SECOND_RESET_NANOSECONDS);
    }
    bar.change(CTRL, CTRL_RST | CTRL_LRST, 0);
    wait(RESET_QUIET_NANOSECONDS);
}

/// The device's word that the last reset is over: it uses no memory now.
pub fn reset_done(bar: &Mmio) -> Option<Done> {
    bar.shows(CTRL, CTRL_RST | CTRL_LRST, 0)
}

/// Everything after the reset, to the queues and their tails; returns the station's address. The
/// rings have to be filled before.
pub fn configure(
    bar: &Mmio,
    config: &Config,
    rings: Rings,
    wait: Wait<'_>,
) -> Result<[u8; 6], Error> {
    // 4.6.3.1 once more, for the reset has set the mask to its default.
    disable_interrupts(bar);
    bar.change(CTRL, 0, CTRL_MASTER_DISABLE);
    no_flow_control(bar);
    ready(
        wait,
        bar,
        EEC,
        EEC_AUTO_RD,
        "EEC.Auto_RD, the EEPROM is read",
    )?;
    ready(
        wait,
        bar,
        RDRXCTL,
        RDRXCTL_DMA_DONE,
        "RDRXCTL.DMAIDONE, DMA is ready",
    )?;
    let mac = station(bar)?;
    super::link::start(bar, wait);
    // 4.6.5: the counters are cleared by being read.
    super::stats::clear(bar);
    receive(bar, config);
    transmit(bar, rings);
    transmit_queue(bar, wait)?;
    // Coalescing goes by the throttle of the queue's vector, so that it comes first.
    interrupts(bar, config);
    receive_queue(bar, config, rings, wait)?;
    receive_path(bar, wait)?;
    bar.change(CTRL_EXT, CTRL_EXT_DRV_LOAD, 0);
    // The last step of 4.6.3 lets interrupts through; here that is `arm`.
    Ok(mac)
}

/// Polls a register until `bits` are set.
fn ready(
    wait: Wait<'_>,
    bar: &Mmio,
    register: Register,
    bits: u32,
    what: &'static str,
) -> Result<(), Error> {
    let mut last = 0;
    let set = poll(wait, READY_NANOSECONDS, || {
        last = bar.read(register);
        last == ALL_ONES || last & bits == bits
    });
    match (set, last) {
        (_, ALL_ONES) => Err(Error::Gone),
        (true, _) => Ok(()),
        (false, _) => Err(Error::Timeout(what)),
    }
}

/// Writes `count` registers, 4 bytes apart.
fn fill(bar: &Mmio, first: Register, count: usize, value: u32) {
    for n in 0..count {
        bar.write(first.nth(n, 4), value);
    }
}

/// 4.6.3.2: without flow control. A neighbour that pauses us would stop a firewall, and one that
/// we pause would stop what else it forwards.
fn no_flow_control(bar: &Mmio) {
    fill(bar, FCTTV, 4, 0);
    fill(bar, FCRTL, 8, 0);
    bar.write(FCRTH, RECEIVE_BUFFER_BYTES - FCRTH_SPARE);
    fill(bar, FCRTH.nth(1, 4), 7, 0);
    bar.write(FCRTV, 0);
    bar.write(FCCFG, 0);
    bar.write(MFLCN, MFLCN_DPF);
}

/// 8.2.3.7.8: the first receive address is the EEPROM's.
fn station(bar: &Mmio) -> Result<[u8; 6], Error> {
    let [a, b, c, d] = bar.read(RAL).to_le_bytes();
    let [e, f, ..] = bar.read(RAH).to_le_bytes();
    let mac = [a, b, c, d, e, f];
    // Not a group's, and not zero (IEEE 802, 8.2).
    if a & 1 == 0 && mac != [0; 6] {
        Ok(mac)
    } else {
        Err(Error::Mac(mac))
    }
}

/// 4.6.7: tables, filters and offloads, of the whole port.
fn receive(bar: &Mmio, config: &Config) {
    // 8.2.3.7.1: filters are changed with the receiver off.
    bar.change(RXCTRL, 0, RXCTRL_RXEN);
    bar.change(RAH, RAH_AV, 0);
    // Tables that no reset clears.
    fill(bar, PFUTA, 128, 0);
    fill(bar, VFTA, 128, 0);
    fill(bar, PFVLVF, 64, 0);
    fill(bar, PFVLVFB, 128, 0);
    fill(bar, FTQF, 128, 0);
    fill(bar, ETQF, 8, 0);

    bar.write(VLNCTRL, VLNCTRL_VET);
    filter(bar, &config.filter);
    bar.write(MCSTCTRL, MCSTCTRL_MFE);
    // Checksums of TCP and UDP are looked at for every frame; the rest is about fragments and RSS.
    bar.write(RXCSUM, 0);
    bar.write(MRQC, 0);
    // RSCFRSTSIZE is zero, unlike its default, and CRCStrip agrees with HLREG0.
    bar.change(
        RDRXCTL,
        RDRXCTL_CRC_STRIP | RDRXCTL_SET,
        RDRXCTL_RSC_FIRST_SIZE,
    );
    coalesce(bar, config);

    // 4.6.11.3.4: neither DCB nor virtualization. One packet buffer, one traffic class.
    bar.write(RXPBSIZE, RXPBSIZE_ALL);
    fill(bar, RXPBSIZE.nth(1, 4), 7, 0);
    bar.write(RTRUP2TC, 0);

    // HLREG0 belongs to both directions: 4.6.8 begins with it.
    let mut set = HLREG0_TXCRCEN | HLREG0_RXCRCSTRP | HLREG0_TXPADEN;
    let frame = config.mtu + ETHERNET_BYTES + CRC_BYTES;
    if config.mtu > STANDARD_MTU {
        set |= HLREG0_JUMBOEN;
    }
    bar.change(HLREG0, set, HLREG0_JUMBOEN);
    bar.change(MAXFRS, (frame as u32) << 16, 0xffff_0000);
}

/// 4.6.7.2.1: what coalescing needs of the whole port. A frame without payload is left alone: who
/// forwards has to pass on each acknowledgement, and could not make two of one.
fn coalesce(bar: &Mmio, config: &Config) {
    if config.coalesce {
        bar.change(RFCTL, 0, RFCTL_RSC_DIS);
        bar.change(RSCDBU, RSCDBU_ACK_DIS, 0);
        bar.change(PSRTYPE, PSRTYPE_TCP, 0);
    } else {
        bar.change(RFCTL, RFCTL_RSC_DIS, 0);
    }
}

/// 7.1.1.1: which frames are received, with the receiver off.
fn filter(bar: &Mmio, filter: &AddressFilter) {
    fill(bar, MTA, 128, 0);
    fill(bar, MPSAR, 256, 0);
    // There is one pool; the EEPROM's address leads there.
    bar.write(MPSAR, 1);
    (1..ADDRESSES).for_each(|n| bar.write(RAH.nth(n, 8), 0));
    let promiscuous = match filter {
        AddressFilter::None => FCTRL_MPE | FCTRL_UPE,
        AddressFilter::Own(addresses) => accept(bar, addresses),
    };
    bar.write(FCTRL, FCTRL_BAM | promiscuous);
}

/// The same of a device that runs: 4.6.7, its end, the other way round and then as there. It is
/// not waited for.
pub fn change_filter(bar: &Mmio, to: &AddressFilter) -> Result<(), Error> {
    halt(bar, &mut no_wait)?;
    bar.change(RXCTRL, 0, RXCTRL_RXEN);
    filter(bar, to);
    resume(bar);
    Ok(())
}

/// Accepts what is for these addresses; what is to be set of [`FCTRL`] for those that the tables
/// have no room for.
fn accept(bar: &Mmio, addresses: &[[u8; 6]]) -> u32 {
    let is_group = |address: &&[u8; 6]| address[0] & 1 != 0;
    let groups = addresses.iter().filter(is_group);
    groups.for_each(|group| accept_group(bar, group));
    let mut stations = addresses.iter().filter(|address| !is_group(address));
    for (n, address) in (1..ADDRESSES).zip(&mut stations) {
        accept_station(bar, n, address);
    }
    match stations.next() {
        Some(_) => FCTRL_UPE,
        None => 0,
    }
}

/// 8.2.3.7.8 and 8.2.3.7.9: the address with this number leads to the one pool.
fn accept_station(bar: &Mmio, n: usize, &[a, b, c, d, e, f]: &[u8; 6]) {
    bar.write(RAL.nth(n, 8), u32::from_le_bytes([a, b, c, d]));
    bar.write(RAH.nth(n, 8), u32::from_le_bytes([e, f, 0, 0]) | RAH_AV);
    bar.write(MPSAR.nth(2 * n, 4), 1);
}

/// 7.1.1.1: bits 47:36 of the address choose a bit of the table.
fn accept_group(bar: &Mmio, group: &[u8; 6]) {
    let hash = usize::from(group[4] >> 4) | usize::from(group[5]) << 4;
    bar.change(MTA.nth(hash / 32, 4), 1 << (hash % 32), 0);
}

/// 4.6.8: DMA of the whole port.
fn transmit(bar: &Mmio, rings: Rings) {
    bar.change(DMATXCTL, 0, DMATXCTL_TE);
    bar.write(DTXTCPFLGL, DTXTCPFLGL_MASKS);
    bar.write(DTXTCPFLGH, DTXTCPFLGH_MASK);
    bar.change(RTTDCS, RTTDCS_ARBDIS, 0);
    // 4.6.11.3.4 again.
    bar.write(DTXMXSZRQ, DTXMXSZRQ_MAX);
    bar.write(TXPBSIZE, TXPBSIZE_ALL);
    fill(bar, TXPBSIZE.nth(1, 4), 7, 0);
    bar.write(TXPBTHRESH, TXPBTHRESH_ALL);
    fill(bar, TXPBTHRESH.nth(1, 4), 7, 0);
    bar.write(MTQC, 0);
    // The queue may have had a rate of its own.
    bar.write(RTTDQSEL, 0);
    bar.write(RTTBCNRC, 0);
    bar.change(RTTDCS, 0, RTTDCS_ARBDIS);

    let registers = [TDBAL, TDBAH, TDLEN, TDH, TDT];
    place(bar, rings.transmit, rings.transmit_len, registers);
}

/// Tells the device where a ring of `len` descriptors is, and that it is empty.
fn place(bar: &Mmio, ring: Iova, len: usize, to: [Register; 5]) {
    let [base_low, base_high, length, head, tail] = to;
    let (low, high) = ring.halves();
    bar.write(base_low, low);
    bar.write(base_high, high);
    bar.write(length, (len * DESCRIPTOR_BYTES) as u32);
    bar.write(head, 0);
    bar.write(tail, 0);
}

/// 4.6.8, once per queue: the tail moves once the queue says that it works.
fn transmit_queue(bar: &Mmio, wait: Wait<'_>) -> Result<(), Error> {
    bar.write(TXDCTL, TXDCTL_THRESHOLDS);
    bar.change(DMATXCTL, DMATXCTL_TE, 0);
    bar.change(TXDCTL, TXDCTL_ENABLE, 0);
    ready(
        wait,
        bar,
        TXDCTL,
        TXDCTL_ENABLE,
        "TXDCTL.ENABLE, the transmit queue works",
    )
}

/// 4.6.7, once per queue. The ring is full of buffers already.
fn receive_queue(bar: &Mmio, config: &Config, rings: Rings, wait: Wait<'_>) -> Result<(), Error> {
    let registers = [RDBAL, RDBAH, RDLEN, RDH, RDT];
    place(bar, rings.receive, rings.receive_len, registers);
    // A queue without buffers must not hold up what else is in the packet buffer.
    let units = (rings.buffer / SRRCTL_BUFFER_UNIT) as u32;
    let buffers = units | SRRCTL_HEADER_DEFAULT;
    bar.write(SRRCTL, buffers | SRRCTL_DESCTYPE_ADVANCED | SRRCTL_DROP_EN);
    // 4.6.7.2.2: a coalesced frame is one buffer's.
    let coalesce = if config.coalesce { RSCCTL_ENABLE } else { 0 };
    bar.write(RSCCTL, coalesce);
    let strip = if config.vlan_strip { RXDCTL_VME } else { 0 };
    bar.write(RXDCTL, RXDCTL_ENABLE | strip);
    ready(
        wait,
        bar,
        RXDCTL,
        RXDCTL_ENABLE,
        "RXDCTL.ENABLE, the receive queue works",
    )?;
    bar.write(RDT, (rings.receive_len - 1) as u32);
    Ok(())
}

/// Halts the receive path (4.6.7).
fn halt(bar: &Mmio, wait: Wait<'_>) -> Result<(), Error> {
    bar.change(SECRXCTRL, SECRXCTRL_RX_DIS, 0);
    ready(
        wait,
        bar,
        SECRXSTAT,
        SECRXSTAT_READY,
        "SECRXSTAT.SECRX_RDY, the receive path is empty",
    )
}

/// Switches the receiver on, whose path is halted, and lets frames in.
fn resume(bar: &Mmio) {
    bar.change(RXCTRL, RXCTRL_RXEN, 0);
    bar.change(SECRXCTRL, 0, SECRXCTRL_RX_DIS);
}

/// 4.6.7, its end: the receiver is switched on with its path halted.
fn receive_path(bar: &Mmio, wait: Wait<'_>) -> Result<(), Error> {
    halt(bar, wait)?;
    resume(bar);
    bar.change(CTRL_EXT, CTRL_EXT_NS_DIS, 0);
    bar.change(DCA_RXCTRL, 0, DCA_RXCTRL_CLEAR);
    Ok(())
}

/// 4.6.6 and 7.3.4: receive queue 0 is the only cause. An interrupt masks it, so that the next one
/// comes once it has been asked for.
fn interrupts(bar: &Mmio, config: &Config) {
    bar.write(IVAR, IVAR_RX0_TO_0);
    bar.write(IVAR_MISC, 0);
    // No throttle: who sleeps is woken by the first frame. But coalescing ends by it.
    let (delay, throttle) = match config.coalesce {
        true => (GPIE_RSC_DELAY, EITR_COALESCE),
        false => (0, 0),
    };
    let modes = GPIE_MULTIPLE_MSIX | GPIE_EIAME | GPIE_PBA_SUPPORT;
    bar.write(GPIE, modes | delay);
    bar.write(EIAC, CAUSE_RX);
    bar.write(EIAM, CAUSE_RX);
    bar.write(EITR, throttle);
    bar.write(EICR, EIMC_ALL);
}

/// Lets the next frame interrupt. What came before is forgotten, so the ring has to be looked at
/// once more; the read makes sure that the device has seen both writes by then.
pub fn arm(bar: &Mmio) {
    bar.write(EICR, CAUSE_RX);
    bar.write(EIMS, CAUSE_RX);
    bar.read(EIMS);
}
