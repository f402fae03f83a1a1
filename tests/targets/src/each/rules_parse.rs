//! Rules in nft's language: what parses prints as a text that parses to the same file, and what
//! does not has a place in the text and a message.

use nf::nft::{Limits, parse};

pub fn feed(input: &[u8]) {
    let text = input.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    match parse(text, &Limits::DEFAULT) {
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
    }
}
