//! The link: 10.2.2.2. The MAC follows the PHY, which negotiates by itself (4.6.3).

use super::registers::*;

/// Speed of the link in Mb/s, from what [`STATUS`] says; `None` while it is down.
pub fn speed(status: u32) -> Option<u32> {
    let up = status & STATUS_LU != 0;
    up.then(|| [10, 100, 1000, 1000][(status >> STATUS_SPEED_SHIFT & 3) as usize])
}
