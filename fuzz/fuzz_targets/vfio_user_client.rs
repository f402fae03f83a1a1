#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| targets::feed("vfio_user_client", input));
