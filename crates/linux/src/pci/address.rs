//! Where a PCI device is plugged in.

use std::fmt;
use std::str::FromStr;

/// The address of a PCI device as the kernel writes it, `0000:01:00.0`: domain, bus, device and
/// function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// Devices of a bus.
const DEVICES: u8 = 32;
/// Functions of a device.
const FUNCTIONS: u8 = 8;

impl FromStr for Address {
    type Err = ();

    /// Reads `DOMAIN:BUS:DEVICE.FUNCTION`, or without `DOMAIN:`, which is then 0.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (slot, function) = text.split_once('.').ok_or(())?;
        let (bus, device) = slot.rsplit_once(':').ok_or(())?;
        let (domain, bus) = bus.split_once(':').unwrap_or(("0000", bus));
        let address = Self {
            domain: hexadecimal(domain, 4..=8)?,
            bus: hexadecimal(bus, 2..=2)?.try_into().map_err(|_| ())?,
            device: hexadecimal(device, 2..=2)?.try_into().map_err(|_| ())?,
            function: hexadecimal(function, 1..=1)?.try_into().map_err(|_| ())?,
        };
        (address.device < DEVICES && address.function < FUNCTIONS)
            .then_some(address)
            .ok_or(())
    }
}

/// A number of so many digits, which `from_str_radix` alone would let have a sign.
fn hexadecimal(text: &str, digits: std::ops::RangeInclusive<usize>) -> Result<u32, ()> {
    let good = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    good.then(|| u32::from_str_radix(text, 16).ok())
        .flatten()
        .ok_or(())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        // Padded as a whole, so that it fits into columns.
        f.pad(&format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_domain_may_be_left_away() {
        let parse = |text: &str| text.parse::<Address>().map(|address| address.to_string());
        assert_eq!(parse("0000:01:00.0").unwrap(), "0000:01:00.0");
        assert_eq!(parse("3f:1F.7").unwrap(), "0000:3f:1f.7");
        assert_eq!(parse("10000:01:00.0").unwrap(), "10000:01:00.0");
    }

    #[test]
    fn nonsense_is_no_address() {
        for text in [
            "",
            "eth0",
            "01:00",
            "01.0",
            "1:00.0",
            "01:20.0",
            "01:00.8",
            "+1:00.0",
            "01:00.00",
            "000:01:00.0",
            "0:0:01:00.0",
            "0000:01:00.0/../..",
        ] {
            assert_eq!(text.parse::<Address>(), Err(()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(domain: u32, bus: u8, device in 0..32u8, function in 0..8u8) {
            let address = Address { domain, bus, device, function };
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn no_text_panics(text in ".{0,16}") {
            let _ = text.parse::<Address>();
        }
    }
}
