//! A manifest's JSON becomes entries that an image may carry, or a reason of one line.
#![no_main]

use image::{manifest, note};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| match manifest::from_json(bytes) {
    Ok(entries) => {
        // What a build writes, a tender reads: behind the note's header and its padding.
        let note = note::manifest_note(&entries);
        let descriptor = &note[abi::note::SOLO5_HEADER_SIZE + abi::note::MANIFEST_PAD..];
        let read = abi::manifest::parse(descriptor).expect("what a build writes is valid");
        assert!(read.eq(entries));
    }
    Err(reason) => assert!(!reason.to_string().contains(char::is_control)),
});
