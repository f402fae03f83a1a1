//! The link: 4.6.4, and 10.5.4 for the register that the firmware uses too.

use super::registers::*;
use super::wait::{Wait, poll};
use hw::Mmio;

/// For the semaphore of the other port's driver (10.5.4).
const SMBI_NANOSECONDS: u64 = 10_000_000;
/// For the firmware's (10.5.4).
const SWESMBI_NANOSECONDS: u64 = 3_000_000_000;

/// 4.6.4.2: applies what the EEPROM says of the medium (10G serial, backplane or parallel: the
/// board knows, a driver does not) and negotiates anew. Nobody waits for the link: see [`speed`].
///
/// If firmware or the other port hold the register, the link stays as the reset has started it.
pub fn start(bar: &Mmio, wait: Wait<'_>) {
    // Linux's driver leaves the laser off when it gives the card away.
    bar.change(ESDP, 0, ESDP_SDP3);
    if take(bar, wait) {
        bar.change(AUTOC, AUTOC_RESTART_AN, 0);
        give_back(bar, wait);
    }
}

/// 10.5.4: both semaphores, then the bit of the MAC's registers.
fn take(bar: &Mmio, wait: Wait<'_>) -> bool {
    if !lock(bar, wait) {
        return false;
    }
    let sync = bar.read(SW_FW_SYNC);
    let free = sync & (SW_FW_SYNC_SW_MAC | SW_FW_SYNC_FW_MAC) == 0;
    if free {
        bar.write(SW_FW_SYNC, sync | SW_FW_SYNC_SW_MAC);
    }
    unlock(bar);
    free
}

fn give_back(bar: &Mmio, wait: Wait<'_>) {
    // A semaphore that is not had any more leaves nothing better to do.
    let locked = lock(bar, wait);
    bar.change(SW_FW_SYNC, 0, SW_FW_SYNC_SW_MAC);
    if locked {
        unlock(bar);
    }
}

fn lock(bar: &Mmio, wait: Wait<'_>) -> bool {
    let mine = poll(wait, SMBI_NANOSECONDS, || bar.read(SWSM) & SWSM_SMBI == 0);
    if !mine {
        return false;
    }
    let locked = poll(wait, SWESMBI_NANOSECONDS, || {
        bar.change(SWSM, SWSM_SWESMBI, 0);
        bar.read(SWSM) & SWSM_SWESMBI != 0
    });
    if !locked {
        bar.change(SWSM, 0, SWSM_SMBI);
    }
    locked
}

fn unlock(bar: &Mmio) {
    bar.change(SWSM, 0, SWSM_SWESMBI | SWSM_SMBI);
}

/// 8.2.3.22.20: speed of the link in Mb/s, `None` while it is down. A link that went down and came
/// back reads as down once.
pub fn speed(bar: &Mmio) -> Option<u32> {
    let links = bar.read(LINKS);
    if links == ALL_ONES || links & LINKS_UP == 0 {
        return None;
    }
    match links >> LINKS_SPEED_SHIFT & 3 {
        1 => Some(100),
        2 => Some(1_000),
        3 => Some(10_000),
        _ => None,
    }
}
