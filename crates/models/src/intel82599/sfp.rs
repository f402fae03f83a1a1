//! The module in the card's cage: an SFP+ for 10GBASE-SR, as its memories tell (SFF-8472).

use super::i2c::{MEMORY_BYTES, Memory};

/// Addresses of seven bits: what the module is, and what it measures (SFF-8472, 4.1).
const IDENTITY: u8 = 0xa0 >> 1;
const DIAGNOSTICS: u8 = 0xa2 >> 1;

/// Bytes of the identity that are not zero (SFF-8472, table 4-1), but for text and sums.
const BYTES: [(usize, u8); 16] = [
    (0, 0x03),  // an SFP
    (1, 0x04),  // that is told by its memory
    (2, 0x07),  // a connector LC
    (3, 0x10),  // 10GBASE-SR
    (11, 0x06), // 64B/66B
    (12, 103),  // 10.3 GBd, in units of 100 MBd
    (16, 8),    // 80 m of OM2, in units of 10 m
    (17, 3),    // 30 m of OM1
    (19, 30),   // 300 m of OM3
    (60, 0x03), // 850 nm, in two bytes
    (61, 0x52),
    (65, 0x1a),  // TX_DISABLE, TX_FAULT, LOS
    (92, 0x68),  // diagnostics, calibrated, of average power
    (93, 0xe0),  // alarms, soft TX_DISABLE and TX_FAULT
    (94, 0x05),  // SFF-8472, revision 11.0
    (128, 0xff), // the maker's own
];
/// Text, padded with spaces: vendor, part, revision, serial number, date.
const TEXT: [(usize, usize, &[u8]); 5] = [
    (20, 16, b"OUTBOARD"),
    (40, 16, b"SOFTWARE-SR"),
    (56, 4, b"1"),
    (68, 16, b"1"),
    (84, 8, b"200101"),
];
/// Sums of what comes before them: bytes from, to, and the place (SFF-8472, 8.13 and 9.3).
const IDENTITY_SUMS: [(usize, usize); 2] = [(0, 63), (64, 95)];
const DIAGNOSTICS_SUMS: [(usize, usize); 1] = [(0, 95)];

/// A quantity that is measured (SFF-8472, 9.6): limits of alarms and warnings, highest alarm first
/// and then lowest, and its value, all in units of two bytes.
type Quantity = ([u16; 4], u16);
/// Degrees of 1/256, voltage of 0.1 mV, bias current of 2 uA, and power of 0.1 uW that goes out and
/// comes in.
const QUANTITIES: [Quantity; 5] = [
    ([75 << 8, 0xfb00, 70 << 8, 0], 35 << 8),
    ([36_300, 29_700, 34_650, 31_350], 33_000),
    ([5_250, 1_250, 5_000, 1_500], 3_000),
    ([10_000, 1_000, 7_943, 1_585], 5_000),
    ([10_000, 500, 7_943, 794], 5_000),
];
/// Where limits begin, and where values do.
const LIMITS: usize = 0;
const VALUES: usize = 96;
/// Constants of a module that is calibrated (SFF-8472, 9.7): slopes of one.
const SLOPES: [(usize, u8); 6] = [
    (68, 0x3f), // 1.0 as a float
    (69, 0x80),
    (76, 1),
    (80, 1),
    (84, 1),
    (88, 1),
];

/// What the module's memories hold.
pub(crate) fn memories() -> [Memory; 2] {
    [(IDENTITY, identity()), (DIAGNOSTICS, diagnostics())]
}

fn identity() -> [u8; MEMORY_BYTES] {
    let mut bytes = [0; MEMORY_BYTES];
    for (at, value) in BYTES {
        bytes[at] = value;
    }
    for (at, len, text) in TEXT {
        bytes[at..at + len].fill(b' ');
        bytes[at..at + text.len()].copy_from_slice(text);
    }
    sum(&mut bytes, &IDENTITY_SUMS);
    bytes
}

fn diagnostics() -> [u8; MEMORY_BYTES] {
    let mut bytes = [0; MEMORY_BYTES];
    for (at, value) in SLOPES {
        bytes[at] = value;
    }
    for (number, (limits, value)) in QUANTITIES.iter().enumerate() {
        for (place, limit) in limits.iter().enumerate() {
            let at = LIMITS + 8 * number + 2 * place;
            bytes[at..at + 2].copy_from_slice(&limit.to_be_bytes());
        }
        let at = VALUES + 2 * number;
        bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
    sum(&mut bytes, &DIAGNOSTICS_SUMS);
    bytes
}

/// Puts the low bytes of sums behind what they are of.
fn sum(bytes: &mut [u8; MEMORY_BYTES], sums: &[(usize, usize)]) {
    for &(from, to) in sums {
        bytes[to] = bytes[from..to]
            .iter()
            .fold(0, |sum, byte| sum.wrapping_add(*byte));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adds_up(bytes: &[u8], from: usize, to: usize) -> bool {
        let sum: u32 = bytes[from..to].iter().copied().map(u32::from).sum();
        bytes[to] == sum as u8 && sum > 0
    }

    #[test]
    fn the_module_says_what_it_is() {
        let [(address, bytes), _] = memories();
        assert_eq!(address, 0x50);
        assert_eq!((bytes[0], bytes[3], bytes[6]), (3, 0x10, 0));
        assert_eq!(&bytes[20..36], b"OUTBOARD        ");
        assert_eq!(bytes[37..40], [0; 3], "no vendor has this number");
        assert!(adds_up(&bytes, 0, 63) && adds_up(&bytes, 64, 95));
    }

    #[test]
    fn what_it_measures_is_within_its_limits() {
        let [_, (address, bytes)] = memories();
        assert_eq!(address, 0x51);
        assert!(adds_up(&bytes, 0, 95));
        let word = |at: usize| i32::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        // Degrees alone have a sign.
        let signed = |at: usize| i32::from(i16::from_be_bytes([bytes[at], bytes[at + 1]]));
        for number in 0..5 {
            let read = |at| if number == 0 { signed(at) } else { word(at) };
            let [high, low, warn_high, warn_low] =
                std::array::from_fn(|place| read(8 * number + 2 * place));
            let value = read(96 + 2 * number);
            let is_in_order = [low, warn_low, value, warn_high, high].is_sorted();
            assert!(
                is_in_order,
                "{number}: {low} {warn_low} {value} {warn_high} {high}"
            );
        }
    }
}
