//! The memory functions that the runtime brings do what C's do, overlaps included.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::hint::black_box;
use unikernel::println;

unikernel::entry!(main);

const SIZE: usize = 200;

fn pattern() -> [u8; SIZE] {
    core::array::from_fn(|i| (i as u8).wrapping_mul(37))
}

fn main() {
    for length in 0..100 {
        for (from, to) in [(0, 100), (10, 13), (13, 10), (50, 50), (7, 8), (8, 7)] {
            let mut bytes = black_box(pattern());
            bytes.copy_within(from..from + length, to);
            for (i, byte) in bytes.iter().enumerate() {
                let moved = (to..to + length).contains(&i);
                let expected = pattern()[if moved { from + i - to } else { i }];
                assert_eq!(
                    *byte, expected,
                    "copy {length} from {from} to {to}, byte {i}"
                );
            }
        }
        let mut bytes = black_box(pattern());
        bytes[3..3 + length].fill(0xaa);
        let filled = bytes
            .iter()
            .zip(pattern())
            .filter(|(a, b)| **a != *b)
            .count();
        assert!(filled <= length && bytes[3 + length] == pattern()[3 + length]);
        for differs in 0..length {
            let mut other = pattern();
            other[differs] ^= 0x80;
            let order = black_box(&pattern()[..length]).cmp(black_box(&other[..length]));
            let expected = pattern()[differs].cmp(&other[differs]);
            assert_eq!(order, expected, "compare {length}, byte {differs}");
        }
        assert!(black_box(&pattern()[..length]) == black_box(&pattern()[..length]));
    }
    println!("SUCCESS");
}
