//! ACPI tables: by them a stock kernel finds the interrupt controllers, the serial line, the PCI
//! bus, and virtio's devices that are not on it. The command line, which could name those, is not
//! asked by Debian's kernel.
//!
//! Sections are those of ACPI 6.5. The machine has no power management ("hardware-reduced", 4.1).

use crate::layout::{
    ACPI, DEVICE_IRQ, IO_APIC, LOCAL_APIC, PCI_MEMORY, PCI_PORTS, SERIAL, SERIAL_IRQ, SERIAL_PORTS,
    window,
};
use crate::options::{self, Bus};
use crate::pci;
use acpi_tables::Aml;
use acpi_tables::aml::{
    AddressSpace, AddressSpaceCacheable, Device, EISAName, IO, Interrupt, Memory32Fixed, Name,
    Package, PackageBuilder, Path, ResourceTemplate, Scope,
};
use acpi_tables::fadt::{FADTBuilder, Flags};
use acpi_tables::madt::{
    EnabledStatus, IoApic, LocalInterruptController, MADT, ProcessorLocalApic,
};
use acpi_tables::rsdp::Rsdp;
use acpi_tables::sdt::Sdt;
use acpi_tables::xsdt::XSDT;
use models::virtio::mmio;

const OEM: [u8; 6] = *b"OUTBRD";
const TABLE: [u8; 8] = *b"VMM     ";
const REVISION: u32 = 1;
/// Bytes of the header of each table (5.2.6), and its revision in the one of devices (5.2.11.1).
const HEADER_BYTES: u32 = 36;
const DSDT_REVISION: u8 = 2;
/// Tables begin at multiples of this.
const ALIGN: usize = 16;
/// `IAPC_BOOT_ARCH`: there is no VGA (5.2.9.3). Nor is a keyboard's controller said to be there.
const NO_VGA: u16 = 1 << 2;
const IO_APIC_ID: u8 = 1;

/// All tables, to lie at [`ACPI`], for these devices.
pub fn tables(devices: &[options::Device]) -> Vec<u8> {
    let mut bytes = vec![0; Rsdp::len().next_multiple_of(ALIGN)];
    let dsdt = append(&mut bytes, &dsdt(devices));
    let mut fadt = FADTBuilder::new(OEM, TABLE, REVISION)
        .dsdt_64(dsdt)
        .flag(Flags::HwReducedAcpi)
        .flag(Flags::PwrButton)
        .flag(Flags::SlpButton);
    fadt.iapc_boot_arch = NO_VGA.into();
    let fadt = append(&mut bytes, &encode(&fadt.finalize()));
    let controller = LocalInterruptController::Address(LOCAL_APIC);
    let mut madt = MADT::new(OEM, TABLE, REVISION, controller);
    madt.add_structure(ProcessorLocalApic::new(0, 0, EnabledStatus::Enabled));
    madt.add_structure(IoApic::new(IO_APIC_ID, IO_APIC, 0));
    let madt = append(&mut bytes, &encode(&madt));
    let mut xsdt = XSDT::new(OEM, TABLE, REVISION);
    xsdt.add_entry(fadt);
    xsdt.add_entry(madt);
    let xsdt = append(&mut bytes, &encode(&xsdt));
    let rsdp = encode(&Rsdp::new(OEM, xsdt));
    bytes[..rsdp.len()].copy_from_slice(&rsdp);
    bytes
}

/// Puts a table behind the others; its address.
fn append(bytes: &mut Vec<u8>, table: &[u8]) -> u64 {
    bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
    let address = ACPI + bytes.len() as u64;
    bytes.extend(table);
    address
}

fn encode(table: &dyn Aml) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.to_aml_bytes(&mut bytes);
    bytes
}

/// The devices (5.2.11.1): the serial line, the bridge to the PCI bus, and those of virtio's that
/// are not behind that, which Linux knows as `LNRO0005`.
fn dsdt(devices: &[options::Device]) -> Vec<u8> {
    let mut definitions = serial();
    definitions.extend(bridge());
    for (number, device) in devices.iter().enumerate() {
        if device.bus == Bus::Mmio {
            definitions.extend(virtio(number));
        }
    }
    let header = (*b"DSDT", HEADER_BYTES, DSDT_REVISION);
    let mut table = Sdt::new(header.0, header.1, header.2, OEM, TABLE, REVISION);
    table.append_slice(&definitions);
    table.as_slice().to_vec()
}

fn serial() -> Vec<u8> {
    let name = EISAName::new("PNP0501");
    let ports = IO::new(SERIAL, SERIAL, 1, SERIAL_PORTS as u8);
    device("COM1", 0, &name, &ports, SERIAL_IRQ)
}

fn virtio(number: usize) -> Vec<u8> {
    // Its address is below 4 GiB, as are all windows.
    let window = Memory32Fixed::new(true, window(number) as u32, mmio::BYTES as u32);
    let path = format!("V{number:03}");
    let irq = DEVICE_IRQ + number as u32;
    device(&path, number as u8, &"LNRO0005", &window, irq)
}

/// The bridge: the ports that it takes, what is behind it, and to which interrupt the pin of each
/// device there leads (6.2.13). None of these is behind a link that could be changed.
fn bridge() -> Vec<u8> {
    let mechanism = IO::new(pci::ADDRESS, pci::ADDRESS, 1, 2 * pci::PORT_BYTES as u8);
    let bus = AddressSpace::<u16>::new_bus_number(0, 0);
    let (first, last) = (PCI_PORTS.start as u16, (PCI_PORTS.end - 1) as u16);
    let ports = AddressSpace::<u16>::new_io(first, last, None);
    let (first, last) = (PCI_MEMORY.start as u32, (PCI_MEMORY.end - 1) as u32);
    let cache = AddressSpaceCacheable::NotCacheable;
    let memory = AddressSpace::<u32>::new_memory(cache, true, first, last, None);
    let resources = ResourceTemplate::new(vec![&bus, &mechanism, &ports, &memory]);
    let mut routes = PackageBuilder::new();
    for (device, irq) in pci::pins() {
        let functions = u32::from(device) << 16 | 0xffff;
        let pin_a: u8 = 0;
        let no_link: u8 = 0;
        routes.add_element(&Package::new(vec![&functions, &pin_a, &no_link, &irq]));
    }
    let parts = [
        Name::new("_HID".into(), &EISAName::new("PNP0A03")),
        Name::new("_UID".into(), &0_u8),
        Name::new("_BBN".into(), &0_u8),
        Name::new("_CRS".into(), &resources),
        Name::new("_PRT".into(), &routes),
    ];
    let children = parts.iter().map(|part| part as &dyn Aml).collect();
    let device = Device::new(Path::new("PCI0"), children);
    encode(&Scope::new("_SB_".into(), vec![&device]))
}

/// A device below `\_SB` (5.3.1), with an interrupt that is an edge and nobody else's.
fn device(path: &str, number: u8, id: &dyn Aml, place: &dyn Aml, irq: u32) -> Vec<u8> {
    let interrupt = Interrupt::new(true, true, false, false, irq);
    let resources = ResourceTemplate::new(vec![place, &interrupt]);
    let parts = [
        Name::new("_HID".into(), id),
        Name::new("_UID".into(), &number),
        Name::new("_CRS".into(), &resources),
    ];
    let children = parts.iter().map(|part| part as &dyn Aml).collect();
    let device = Device::new(Path::new(path), children);
    encode(&Scope::new("_SB_".into(), vec![&device]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{ACPI_END, DEVICES_MAX};

    fn number(bytes: &[u8], at: u64, len: usize) -> u64 {
        let at = (at - ACPI) as usize;
        let mut word = [0; 8];
        word[..len].copy_from_slice(&bytes[at..at + len]);
        u64::from_le_bytes(word)
    }

    /// The bytes of a table, whose sum is zero.
    fn table(bytes: &[u8], at: u64) -> &[u8] {
        let begin = (at - ACPI) as usize;
        let len = number(bytes, at + 4, 4) as usize;
        let table = &bytes[begin..begin + len];
        let sum = table.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        assert_eq!(sum, 0);
        table
    }

    /// From table to table, as the kernel goes.
    #[test]
    fn tables_lead_to_the_devices() {
        let of_bus = |bus| {
            let device = options::Device {
                name: "entropy".into(),
                kind: options::Kind::Rng,
                bus,
                access: options::Access::Exit,
                posted: false,
                busy: false,
            };
            vec![device; DEVICES_MAX]
        };
        let (mmio, pci) = (of_bus(Bus::Mmio), of_bus(Bus::Pci));
        for (devices, windows) in [(&[][..], 0), (&mmio, mmio.len()), (&pci, 0)] {
            let bytes = tables(devices);
            assert!(ACPI + bytes.len() as u64 <= ACPI_END);
            assert_eq!(&bytes[..8], b"RSD PTR ");
            let xsdt = number(&bytes, ACPI + 24, 8);
            assert_eq!(&table(&bytes, xsdt)[..4], b"XSDT");
            let fadt = number(&bytes, xsdt + 36, 8);
            assert_eq!(&table(&bytes, fadt)[..4], b"FACP");
            assert_eq!(number(&bytes, fadt + 112, 4), 1 << 20 | 1 << 5 | 1 << 4);
            let madt = number(&bytes, xsdt + 44, 8);
            let madt = table(&bytes, madt);
            assert_eq!((&madt[..4], madt.len()), (&b"APIC"[..], 44 + 8 + 12));
            let dsdt = number(&bytes, fadt + 140, 8);
            let dsdt = table(&bytes, dsdt);
            assert_eq!(&dsdt[..4], b"DSDT");
            let found = dsdt.windows(8).filter(|part| part == b"LNRO0005");
            assert_eq!(found.count(), windows);
        }
    }

    #[test]
    fn the_bridge_says_what_is_behind_it() {
        let bytes = bridge();
        let memory = [
            0, 0, 0, 0xd0, 0xff, 0xff, 0xff, 0xd0, 0, 0, 0, 0, 0, 0, 0, 1,
        ];
        let ports = [0, 0xc0, 0xff, 0xcf, 0, 0, 0, 0x10];
        // The third device: its pin A leads to interrupt 18.
        let route = [4, 0x0c, 0xff, 0xff, 3, 0, 0, 0, 0x0a, 18];
        for part in [&memory[..], &ports, &route] {
            assert!(bytes.windows(part.len()).any(|bytes| bytes == part));
        }
    }

    #[test]
    fn a_device_says_where_it_is() {
        let bytes = virtio(1);
        let window = [0x86, 9, 0, 1, 0, 0x10, 0, 0xc0, 0, 2, 0, 0];
        assert!(bytes.windows(window.len()).any(|part| part == window));
        let interrupt = [0x89, 6, 0, 0b0011, 1, 17, 0, 0, 0];
        assert!(bytes.windows(interrupt.len()).any(|part| part == interrupt));
    }
}
