//! The MP table: Intel's MultiProcessor Specification 1.4, by which a kernel without ACPI finds the
//! interrupt controllers.

use crate::layout::{IO_APIC, LOCAL_APIC, MP_TABLE};
use zerocopy::{Immutable, IntoBytes};

/// Version 1.4, in both structures.
const SPECIFICATION: u8 = 4;
/// Versions of the controllers, as KVM's registers say them.
const LOCAL_APIC_VERSION: u8 = 0x14;
const IO_APIC_VERSION: u8 = 0x11;
const IO_APIC_ID: u8 = 1;
/// Lines of the I/O APIC that have an interrupt of the ISA bus.
const LINES: u8 = 16;
/// All processors, in entries of local interrupts.
const EVERY_APIC: u8 = 0xff;

/// Entry types (sections 4.3.1 to 4.3.5).
const PROCESSOR: u8 = 0;
const BUS: u8 = 1;
const IO_APIC_ENTRY: u8 = 2;
const IO_INTERRUPT: u8 = 3;
const LOCAL_INTERRUPT: u8 = 4;

/// Kinds of interrupts (table 4-10).
const VECTORED: u8 = 0;
const NMI: u8 = 1;
const EXTERNAL: u8 = 3;

/// The floating pointer (section 4.1).
#[derive(IntoBytes, Immutable)]
#[repr(C, packed)]
struct FloatingPointer {
    signature: [u8; 4],
    table: u32,
    /// In units of 16 bytes.
    length: u8,
    specification: u8,
    checksum: u8,
    features: [u8; 5],
}

/// The header of the table (section 4.2).
#[derive(IntoBytes, Immutable)]
#[repr(C, packed)]
struct Header {
    signature: [u8; 4],
    length: u16,
    specification: u8,
    checksum: u8,
    maker: [u8; 8],
    product: [u8; 12],
    oem_table: u32,
    oem_length: u16,
    entries: u16,
    local_apic: u32,
    extended_length: u16,
    extended_checksum: u8,
    reserved: u8,
}

/// The table and what points to it, to lie at [`MP_TABLE`].
pub fn table() -> Vec<u8> {
    let mut entries: Vec<Vec<u8>> = Vec::new();
    // Enabled, and the one that boots (section 4.3.1); signature and features say nothing.
    let mut processor = vec![PROCESSOR, 0, LOCAL_APIC_VERSION, 0b11];
    processor.resize(20, 0);
    entries.push(processor);
    entries.push([&[BUS, 0][..], b"ISA   "].concat());
    let address = IO_APIC.to_le_bytes();
    entries.push(
        [
            &[IO_APIC_ENTRY, IO_APIC_ID, IO_APIC_VERSION, 1][..],
            &address,
        ]
        .concat(),
    );
    // Polarity and trigger as the bus has them: an edge.
    for line in 0..LINES {
        entries.push(vec![
            IO_INTERRUPT,
            VECTORED,
            0,
            0,
            0,
            line,
            IO_APIC_ID,
            line,
        ]);
    }
    entries.push(vec![LOCAL_INTERRUPT, EXTERNAL, 0, 0, 0, 0, 0, 0]);
    entries.push(vec![LOCAL_INTERRUPT, NMI, 0, 0, 0, 0, EVERY_APIC, 1]);

    let count = entries.len() as u16;
    let entries = entries.concat();
    let pointer_bytes = size_of::<FloatingPointer>();
    let length = size_of::<Header>() + entries.len();
    let header = Header {
        signature: *b"PCMP",
        length: length as u16,
        specification: SPECIFICATION,
        checksum: 0,
        maker: *b"OUTBOARD",
        product: *b"VMM         ",
        oem_table: 0,
        oem_length: 0,
        entries: count,
        local_apic: LOCAL_APIC,
        extended_length: 0,
        extended_checksum: 0,
        reserved: 0,
    };
    let mut configuration = [header.as_bytes(), &entries].concat();
    configuration[7] = complement(&configuration);
    let mut pointer = FloatingPointer {
        signature: *b"_MP_",
        table: MP_TABLE as u32 + pointer_bytes as u32,
        length: (pointer_bytes / 16) as u8,
        specification: SPECIFICATION,
        checksum: 0,
        features: [0; 5],
    };
    pointer.checksum = complement(pointer.as_bytes());
    [pointer.as_bytes(), &configuration].concat()
}

/// What makes the sum of all bytes 0.
fn complement(bytes: &[u8]) -> u8 {
    bytes
        .iter()
        .fold(0_u8, |sum, byte| sum.wrapping_add(*byte))
        .wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::LOW_END;

    /// As Linux's arch/x86/kernel/mpparse.c reads it.
    #[test]
    fn the_table_is_whole() {
        let table = table();
        assert!(MP_TABLE + table.len() as u64 <= LOW_END);
        let (pointer, configuration) = table.split_at(16);
        assert_eq!(&pointer[..4], b"_MP_");
        assert_eq!(pointer[8], 1, "paragraphs");
        assert_eq!(complement(pointer), 0);
        let at = u32::from_le_bytes(pointer[4..8].try_into().unwrap());
        assert_eq!(u64::from(at), MP_TABLE + 16);
        assert_eq!(&configuration[..4], b"PCMP");
        let length = u16::from_le_bytes([configuration[4], configuration[5]]);
        assert_eq!(usize::from(length), configuration.len());
        assert_eq!(complement(configuration), 0);

        let mut rest = &configuration[44..];
        let mut kinds = [0; 5];
        while let Some(kind) = rest.first() {
            kinds[usize::from(*kind)] += 1;
            rest = &rest[if *kind == PROCESSOR { 20 } else { 8 }..];
        }
        assert_eq!(kinds, [1, 1, 1, 16, 2]);
        let entries = u16::from_le_bytes([configuration[34], configuration[35]]);
        assert_eq!(entries, 21);
    }
}
