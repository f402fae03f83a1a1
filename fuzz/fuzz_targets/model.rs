//! A driver does whatever it likes with a software device.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fuzz::model::run(input));
