//! Reads and writes registers of a network controller: each argument is an offset to be read, or
//! OFFSET=VALUE to be written, in hexadecimal.

#![no_std]
#![no_main]

use hw::Register;
use unikernel::println;

unikernel::entry!(main);

fn main() {
    let device = unikernel::pci("nic").expect("it is attached");
    let registers = device.bar(0).expect("BAR 0 is in the manifest");
    let number = |text: &str| u32::from_str_radix(text, 16).expect("hexadecimal");
    for argument in unikernel::arguments() {
        match argument.split_once('=') {
            Some((offset, value)) => {
                registers.write(Register::at(number(offset) as usize), number(value));
            }
            None => {
                let value = registers.read(Register::at(number(argument) as usize));
                println!("{argument}: {value:x}");
            }
        }
    }
}
