//! Makes a hypercall that its arguments describe: a port, then the words of the argument from
//! address 0 of a page of its own on. A word `self` is the address of that page; `at` and a number
//! instead of words passes that number as the address.

#![no_std]
#![no_main]

use core::arch::asm;
use unikernel::println;

unikernel::entry!(main);

#[repr(C, align(4096))]
struct Page([u64; 512]);

fn number(text: &str) -> u64 {
    let digits = text.strip_prefix("0x");
    let parsed = match digits {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.expect("a number")
}

fn main() {
    let mut words = unikernel::arguments();
    let port = number(words.next().expect("a port"));
    let mut page = Page([0; 512]);
    let own = (&raw mut page).expose_provenance() as u64;
    let mut address = own;
    let mut count = 0;
    while let Some(word) = words.next() {
        match word {
            "at" => address = number(words.next().expect("an address")),
            "self" => page.0[count] = own,
            word => page.0[count] = number(word),
        }
        count += 1;
    }
    // SAFETY: the host may write to the page; if it writes elsewhere, that is what is tested.
    unsafe { asm!("out dx, eax", in("dx") port as u16, in("eax") address as u32) };
    let page = core::hint::black_box(&page);
    println!("returned: {:x?}", &page.0[..5]);
}
