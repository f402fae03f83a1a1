//! Rules in nft's language: what parses prints as a text that parses to the same file, and what
//! does not has a place in the text and a message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nf::nft::{Limits, parse};

fuzz_target!(|text: &str| match parse(text, &Limits::DEFAULT) {
    Ok(file) => {
        let printed = file.to_string();
        match parse(&printed, &Limits::DEFAULT) {
            Ok(again) => assert_eq!(again, file),
            Err(error) => panic!("{}", error.render("printed", &printed)),
        }
    }
    Err(error) => {
        assert!(error.span.start <= error.span.end && error.span.end as usize <= text.len());
        let shown = error.render("text", text).to_string();
        assert!(!shown.contains(|it: char| it.is_control() && it != '\n'));
    }
});
