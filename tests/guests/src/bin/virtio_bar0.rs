//! Fills a virtio disk, and asks a virtio source of entropy for bytes; the registers of both lie in
//! BAR 0.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

unikernel::entry!(main);

fn main() {
    let mut source = match appliance::entropy("entropy") {
        Ok(source) => source,
        Err(error) => panic!("{error}"),
    };
    guests::draw(|bytes| source.fill(bytes).expect("random bytes"));
    let mut disk = appliance::disk("disk").expect("disk");
    guests::fill_and_compare(&mut *disk);
}
