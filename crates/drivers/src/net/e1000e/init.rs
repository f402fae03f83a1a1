//! Reset and bring-up, in the order of section 4.6. Nothing waits here: see [`super::Driver`].

use super::config::Config;
use super::registers::*;
use super::stats;
use crate::net::Error;
use hw::{DmaRing, Done, Mmio, Register};

/// How long the device may take to end its own requests before it is reset all the same, in
/// nanoseconds (3.1.3.10: master disable).
pub const STOP_NANOSECONDS: u64 = 20_000_000;
/// Shortest time from a reset to the next access, in nanoseconds.
pub const SETTLE_NANOSECONDS: u64 = 1_000_000;
/// Longest time that a reset takes, in nanoseconds: the EEPROM is read meanwhile.
pub const RESET_NANOSECONDS: u64 = 200_000_000;

/// The causes of interrupts: those of MSI, and those of MSI-X.
pub const CAUSES: u32 = CAUSE_RXT0 | CAUSE_LSC | CAUSE_RXQ0 | CAUSE_OTHER;

/// Ends all that the device does by itself. Not all devices take a reset as an end of it.
pub fn stop(bar: &Mmio) {
    bar.write(IMC, u32::MAX);
    bar.write(RCTL, 0);
    bar.write(TCTL, 0);
    bar.change(CTRL, CTRL_GIO_MASTER_DISABLE, 0);
}

/// Whether the device has no request of its own under way.
pub fn is_stopped(bar: &Mmio) -> bool {
    bar.read(STATUS) & STATUS_GIO_MASTER_ENABLE == 0
}

/// 10.2.2.1: software reset.
pub fn reset(bar: &Mmio) {
    bar.change(CTRL, CTRL_RST, 0);
}

/// The device's word that the last reset is over: it uses no memory now, and has read its EEPROM.
///
/// # Errors
/// If the device is gone.
pub fn reset_done(bar: &Mmio) -> Result<Option<Done>, Error> {
    let done = bar.shows(CTRL, CTRL_RST, 0);
    let eeprom = bar.read(EEC);
    if eeprom == ALL_ONES && done.is_none() && bar.read(CTRL) == ALL_ONES {
        return Err(Error::Gone);
    }
    Ok(done.filter(|_| eeprom & EEC_AUTO_RD != 0))
}

/// From a reset that has ended to a device that knows how it is to work; its address.
pub fn configure(bar: &Mmio) -> Result<[u8; 6], Error> {
    // 4.6.1: no interrupts, which the reset has enabled perhaps.
    bar.write(IMC, u32::MAX);
    general(bar);
    // 10.2.7: statistics begin at zero; reading clears them.
    stats::clear(bar);
    station(bar)
}

/// General configuration, flow control off; 4.6.3: the MAC follows the PHY, which negotiates by
/// itself.
fn general(bar: &Mmio) {
    for register in [FCAL, FCAH, FCT, FCTTV] {
        bar.write(register, 0);
    }
    bar.change(GCR, GCR_RESERVED_SET, 0);
    bar.change(GCR2, GCR2_COMPLETIONS, 0);
    bar.change(CTRL_EXT, CTRL_EXT_DRV_LOAD, 0);
    let flow = CTRL_RFCE | CTRL_TFCE;
    let clear = CTRL_FRCDPX | CTRL_FRCSPD | CTRL_GIO_MASTER_DISABLE | flow | CTRL_VME;
    bar.change(CTRL, CTRL_SLU, clear);
}

/// Switches the PHY on: Linux switches it off when it lets the card go, and no reset of the MAC
/// changes that. Returns whether the PHY is to be left once it knows; firmware that has it keeps it
/// awake.
pub fn wake_phy(bar: &Mmio) -> bool {
    bar.change(EXTCNF_CTRL, EXTCNF_CTRL_MDIO_SW, 0);
    let ours = bar.read(EXTCNF_CTRL) & EXTCNF_CTRL_MDIO_SW != 0;
    if ours {
        bar.write(MDIC, MDIC_WRITE_CONTROL | PHY_CONTROL);
    }
    ours
}

/// Leaves the PHY to firmware, if the last access is over; whether it is.
pub fn leave_phy(bar: &Mmio) -> bool {
    let over = bar.read(MDIC) & MDIC_READY != 0;
    if over {
        bar.change(EXTCNF_CTRL, 0, EXTCNF_CTRL_MDIO_SW);
    }
    over
}

/// The MAC address, which the device has read from its EEPROM.
fn station(bar: &Mmio) -> Result<[u8; 6], Error> {
    let [a, b, c, d] = bar.read(RAL).to_le_bytes();
    let high = bar.read(RAH);
    let [e, f, ..] = high.to_le_bytes();
    let mac = [a, b, c, d, e, f];
    let group = a & 1 != 0;
    if high & RAH_AV == 0 || group || mac == [0; 6] {
        return Err(Error::Mac(mac));
    }
    Ok(mac)
}

/// 4.6.5: receive initialization, but for the tail, which moves once receiving is enabled.
pub fn receive<const W: usize, const N: usize>(bar: &Mmio, ring: &DmaRing<W, N>, config: &Config) {
    for n in 1..RA_COUNT {
        bar.write(RAH.nth(n, RA_STRIDE), 0);
        bar.write(RAL.nth(n, RA_STRIDE), 0);
    }
    for n in 0..MTA_COUNT {
        bar.write(MTA.nth(n, 4), 0);
    }
    for register in [FCRTL, FCRTH, RDTR, RADV, RXCSUM] {
        bar.write(register, 0);
    }
    bar.write(RFCTL, RFCTL_EXSTEN);
    bar.write(RXDCTL, XDCTL_GRAN | XDCTL_WTHRESH_1);
    place(bar, ring, [RDBAL, RDBAH, RDLEN, RDH, RDT]);
    let unicast = if config.promiscuous { RCTL_UPE } else { 0 };
    bar.write(RCTL, RCTL_EN | RCTL_BAM | RCTL_SECRC | RCTL_MPE | unicast);
}

/// 4.6.6: transmit initialization.
pub fn transmit<const W: usize, const N: usize>(bar: &Mmio, ring: &DmaRing<W, N>) {
    bar.write(TXDCTL, XDCTL_GRAN | XDCTL_WTHRESH_1 | XDCTL_COUNT_DESC);
    place(bar, ring, [TDBAL, TDBAH, TDLEN, TDH, TDT]);
    bar.write(TIPG, TIPG_VALUE);
    bar.write(TCTL, TCTL_EN | TCTL_PSP | TCTL_CT | TCTL_COLD_FULL_DUPLEX);
}

/// Tells the device where a ring is, and that it is empty.
fn place<const W: usize, const N: usize>(bar: &Mmio, ring: &DmaRing<W, N>, to: [Register; 5]) {
    let [base_low, base_high, length, head, tail] = to;
    let (low, high) = ring.iova().halves();
    bar.write(base_low, low);
    bar.write(base_high, high);
    bar.write(length, DmaRing::<W, N>::BYTES as u32);
    bar.write(head, 0);
    bar.write(tail, 0);
}

/// 7.4: all causes go to the first vector, unthrottled, for [`arm`] sees to the rate.
pub fn interrupts(bar: &Mmio) {
    for register in [ITR, EITR, EIAC] {
        bar.write(register, 0);
    }
    bar.write(IVAR, IVAR_RXQ0_VALID | IVAR_OTHER_VALID);
    bar.write(ICR, u32::MAX);
    bar.write(IMS, CAUSES);
}

/// Lets the next frame interrupt, and returns whether the device is there. What it wrote to memory
/// before it saw the write is there when a read comes back (PCI Express Base, 2.4.1). A frame that
/// comes later sets its cause anew.
pub fn arm(bar: &Mmio) -> bool {
    bar.write(ICR, CAUSES);
    bar.read(STATUS) != ALL_ONES
}
