//! Panics: message and place are printed, the status is 255.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

unikernel::entry!(main);

fn main() {
    let text = unikernel::arguments().next();
    panic!("this guest panics on purpose: {text:?}");
}
