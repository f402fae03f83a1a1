//! Two BARs of one PCI device, beside a second PCI device, a network and DMA memory: QEMU's
//! `ivshmem-plain` (docs/specs/ivshmem-spec.rst), whose BAR 2 is memory, and `edu`.

#![no_std]
#![no_main]

use abi::pci::bar_address;
use hw::Register;
use unikernel::println;

unikernel::entry!(main);

/// Of BAR 0 of the first device: a register that keeps what is written.
const INTERRUPT_MASK: Register = Register::at(0);
/// Of the second device: answers with the complement of what was written.
const LIVENESS: Register = Register::at(0x04);
/// What is taken of the DMA memory.
const DMA_BYTES: usize = 4096;
const WORD: usize = size_of::<u32>();

fn main() -> i32 {
    let first = unikernel::pci("first").expect("it is attached");
    let second = unikernel::pci("second").expect("it is attached");
    let lan = unikernel::net("lan").expect("it is attached");
    let registers = first.bar(0).expect("the manifest maps BAR 0");
    let memory = first.bar(2).expect("the manifest maps BAR 2");
    let other = second.bar(0).expect("the manifest maps BAR 0");
    let last = Register::at(memory.len() - WORD);

    registers.write(INTERRUPT_MASK, 0x1111);
    memory.write(Register::at(0), 0x2222);
    memory.write(last, 0x3333);
    other.write(LIVENESS, 0x4444);
    let kept = registers.read(INTERRUPT_MASK) == 0x1111
        && memory.read(Register::at(0)) == 0x2222
        && memory.read(last) == 0x3333
        && other.read(LIVENESS) == !0x4444;

    let not_mapped = [1, 3, 4, 5].iter().all(|bar| first.bar(*bar).is_none());
    let placed = at(bar_address(0, 2)) == 0x2222 && at(bar_address(1, 0) + 4) == !0x4444;
    // Buffers for frames lie in it too.
    let dma = unikernel::dma().is_some_and(|mut arena| arena.buf(DMA_BYTES, DMA_BYTES).is_ok());
    let net = lan.name() == "lan" && lan.mtu() == 1500;
    println!("kept {kept}, none else {not_mapped}, placed {placed}, dma {dma}, net {net}");
    let good = kept && not_mapped && placed && dma && net;
    println!("{}", if good { "SUCCESS" } else { "FAILURE" });
    i32::from(!good)
}

/// The word at an address of the ABI's.
fn at(address: u64) -> u32 {
    let place = core::ptr::with_exposed_provenance::<u32>(address as usize);
    // SAFETY: the tender has mapped the BAR that begins there, as `main` has seen; a register of a
    // device is any 32 bits.
    unsafe { place.read_volatile() }
}
