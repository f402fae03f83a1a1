//! Reset and bring-up (3.1.1), in steps that never wait.

use super::{Error, Transport, feature};

// Bits of the device status (2.1).
/// The driver has noticed the device.
const ACKNOWLEDGE: u8 = 1 << 0;
/// The driver knows how to drive it.
const DRIVER: u8 = 1 << 1;
/// The driver drives it.
const DRIVER_OK: u8 = 1 << 2;
/// The driver has accepted features.
const FEATURES_OK: u8 = 1 << 3;
/// The device has failed, and works again only behind a reset.
const DEVICE_NEEDS_RESET: u8 = 1 << 6;
/// What a register reads that is not there.
const GONE: u8 = u8::MAX;

/// Step 1: begins a reset. The device has no buffer any more once
/// [`Transport::reset_done`] says that it is over (2.4.2).
pub fn begin<T: Transport>(transport: &T) {
    transport.set_status(0);
}

/// Steps 2 to 6: `choose` says which of the features that are offered the driver accepts; those
/// that it returns. The device has just been reset.
///
/// # Errors
/// If the device lacks what is `needed`, is gone, or refuses.
pub fn negotiate<T: Transport>(
    transport: &T,
    needed: u64,
    choose: impl FnOnce(u64) -> u64,
) -> Result<u64, Error> {
    transport.set_status(ACKNOWLEDGE);
    transport.set_status(ACKNOWLEDGE | DRIVER);
    let offered = transport.features();
    let needed = needed | feature::VERSION_1 | transport.needed();
    let missing = needed & !offered;
    if missing != 0 {
        return Err(Error::Features(missing));
    }
    let accepted = offered & (needed | feature::COMMON | choose(offered));
    transport.accept(accepted);
    transport.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK);
    match transport.status() {
        GONE => Err(Error::Gone),
        status if status & FEATURES_OK == 0 => Err(Error::Refused),
        _ => Ok(accepted),
    }
}

/// Step 8: the device is live, its queues are set up.
pub fn run<T: Transport>(transport: &T) {
    transport.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK);
}

/// Whether the device is there, works, and has not been reset behind the driver's back.
pub fn is_alive<T: Transport>(transport: &T) -> bool {
    let status = transport.status();
    status != GONE && status & DEVICE_NEEDS_RESET == 0 && status & DRIVER_OK != 0
}
