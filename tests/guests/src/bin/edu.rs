//! Drives QEMU's teaching device `edu` (its documentation: docs/specs/edu.rst), and asks it for
//! what it may not do. The argument says what.

#![no_std]
#![no_main]

use abi::pci::bar_address;
use hw::{Direction, DmaArena, DmaBuf, FromDevice, InFlight, Iova, Mmio, Register, ToDevice};
use unikernel::{Instant, PciDevice, monotonic, println};

unikernel::entry!(main);

const IDENTIFICATION: Register = Register::at(0x00);
const LIVENESS: Register = Register::at(0x04);
const FACTORIAL: Register = Register::at(0x08);
const STATUS: Register = Register::at(0x20);
const INTERRUPT_RAISE: Register = Register::at(0x60);
const INTERRUPT_ACKNOWLEDGE: Register = Register::at(0x64);
const DMA_SOURCE: usize = 0x80;
const DMA_DESTINATION: usize = 0x88;
const DMA_COUNT: usize = 0x90;
const DMA_COMMAND: Register = Register::at(0x98);

const COMPUTING: u32 = 1;
const START: u32 = 1;
const FROM_DEVICE: u32 = 2;
/// The device's own memory.
const DEVICE_MEMORY: u64 = 0x4_0000;
/// What it copies at once; QEMU gives up at the device's last byte.
const BYTES: usize = 2048;
/// Longer than anything here takes, in nanoseconds.
const PATIENCE: u64 = 10_000_000_000;

struct Edu {
    device: PciDevice,
    registers: Mmio,
}

fn main() -> i32 {
    let device = match unikernel::pci("edu") {
        Ok(device) => device,
        Err(error) => {
            println!("FAILURE: {error}");
            return 1;
        }
    };
    if unikernel::pci("edu").is_ok() {
        println!("FAILURE: handed out twice");
        return 1;
    }
    let registers = device.bar(0).expect("BAR 0 is in the manifest");
    let edu = Edu { device, registers };
    let mut arguments = unikernel::arguments();
    let done = match arguments.next() {
        Some("identify") => edu.identify(),
        Some("interrupt") => edu.interrupt(),
        Some("dma") => edu.copy(),
        Some("escape") => edu.escape(arguments.next()),
        Some("other-bar") => edu.other_bar(),
        Some("sleep") => unikernel::wait(None).is_empty(),
        other => panic!("{other:?}"),
    };
    println!("{}", if done { "SUCCESS" } else { "FAILURE" });
    i32::from(!done)
}

impl Edu {
    fn identify(&self) -> bool {
        let registers = &self.registers;
        let identification = registers.read(IDENTIFICATION);
        registers.write(LIVENESS, 0x1234_5678);
        registers.write(FACTORIAL, 10);
        let computed = until(|| registers.read(STATUS) & COMPUTING == 0);
        println!(
            "identification {identification:#x}, {} bytes, 10! = {}",
            registers.len(),
            registers.read(FACTORIAL)
        );
        let alive = registers.read(LIVENESS) == !0x1234_5678;
        identification & 0xffff == 0xed
            && alive
            && computed
            && registers.read(FACTORIAL) == 3_628_800
    }

    /// Interrupts wake a sleeper up, one that came before no less, and each anew.
    fn interrupt(&self) -> bool {
        let handle = self.device.wait_handle().expect("it is a bus master");
        let soon = Some(Instant(monotonic().0 + 50_000_000));
        if !unikernel::wait(soon).is_empty() {
            println!("an interrupt that nobody raised");
            return false;
        }
        for round in 1..=3 {
            self.registers.write(INTERRUPT_RAISE, round);
            let late = Some(Instant(monotonic().0 + PATIENCE));
            if !unikernel::wait(late).contains(handle) {
                println!("no interrupt in round {round}");
                return false;
            }
            self.registers.write(INTERRUPT_ACKNOWLEDGE, round);
        }
        true
    }

    /// Memory goes into the device and comes back elsewhere.
    fn copy(&self) -> bool {
        let mut arena = unikernel::dma().expect("the manifest asks for DMA memory");
        if unikernel::dma().is_some() {
            println!("handed out twice");
            return false;
        }
        let mut from = buffer(&mut arena);
        for (n, byte) in from.bytes_mut().iter_mut().enumerate() {
            *byte = (n * 7 + n / 256) as u8;
        }
        let (from, source) = lend::<ToDevice>(from);
        let (to, destination) = lend::<FromDevice>(buffer(&mut arena));
        println!("{source} to {destination}");
        if !self.dma(source.raw(), DEVICE_MEMORY, START)
            || !self.dma(DEVICE_MEMORY, destination.raw(), START | FROM_DEVICE)
        {
            return false;
        }
        let done = self.registers.shows(DMA_COMMAND, START, 0);
        done.is_some_and(|done| from.buffer().bytes() == to.done(&done).bytes())
    }

    /// The device is told to write what it holds to an address that is not the arena's.
    fn escape(&self, address: Option<&str>) -> bool {
        let mut arena = unikernel::dma().expect("the manifest asks for DMA memory");
        let mut from = buffer(&mut arena);
        from.bytes_mut().fill(0x66);
        let (_lent, source) = lend::<ToDevice>(from);
        let digits = address.and_then(|address| address.strip_prefix("0x"));
        let digits = digits.expect("an address");
        let victim = u64::from_str_radix(digits, 16).expect("a number");
        self.dma(source.raw(), DEVICE_MEMORY, START)
            && self.dma(DEVICE_MEMORY, victim, START | FROM_DEVICE)
    }

    /// Reads where a BAR would be that the manifest does not name.
    fn other_bar(&self) -> bool {
        if self.device.bar(1).is_some() {
            return false;
        }
        let address = core::ptr::with_exposed_provenance::<u32>(bar_address(0, 1) as usize);
        // SAFETY: none; the promise is that this faults.
        let word = unsafe { address.read_volatile() };
        println!("read {word:#x}");
        false
    }

    /// Has the device copy, and waits until it has.
    fn dma(&self, source: u64, destination: u64, command: u32) -> bool {
        self.write64(DMA_SOURCE, source);
        self.write64(DMA_DESTINATION, destination);
        self.write64(DMA_COUNT, BYTES as u64);
        self.registers.write(DMA_COMMAND, command);
        until(|| self.registers.read(DMA_COMMAND) & START == 0)
    }

    /// These registers take an address in one write alone.
    fn write64(&self, offset: usize, value: u64) {
        let address = bar_address(0, 0) as usize + offset;
        let register = core::ptr::with_exposed_provenance_mut::<u64>(address);
        // SAFETY: a register of the device, in BAR 0, which is mapped for ever.
        unsafe { register.write_volatile(value) };
    }
}

fn buffer(arena: &mut DmaArena) -> DmaBuf {
    arena.buf(BYTES, 4096).expect("there is enough")
}

fn lend<D: Direction>(buffer: DmaBuf) -> (InFlight<DmaBuf, D>, Iova) {
    InFlight::lend(buffer).expect("devices reach it")
}

fn until(done: impl Fn() -> bool) -> bool {
    let deadline = monotonic().0 + PATIENCE;
    while !done() {
        if monotonic().0 > deadline {
            return false;
        }
    }
    true
}
