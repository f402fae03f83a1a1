//! Ends with the status that its argument names.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

unikernel::entry!(main);

fn main() -> i32 {
    let argument = unikernel::arguments().next();
    argument.and_then(|text| text.parse().ok()).unwrap_or(0)
}
