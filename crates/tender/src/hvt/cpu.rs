//! The processor as a guest finds it: 64-bit mode, SSE, flat segments, interrupts off (Intel SDM
//! volume 3, 10.8.5), and what CPUID tells it.

use crate::memory::Gpa;
use abi::hvt::BOOT_INFO;
use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2, kvm_regs, kvm_segment, kvm_sregs};
use kvm_ioctls::Kvm;

/// CR0: protected mode, numeric errors as exceptions, read-only also for the kernel, paging.
const CR0: u64 = 1 << 0 | 1 << 4 | 1 << 5 | 1 << 16 | 1 << 31;
/// CR4: physical address extension, SSE, SSE's exceptions.
const CR4: u64 = 1 << 5 | 1 << 9 | 1 << 10;
/// EFER: long mode, enabled and active, and no-execute.
const EFER: u64 = 1 << 8 | 1 << 10 | 1 << 11;
/// Bit 1 of the flags is always set.
const RFLAGS: u64 = 1 << 1;

/// Guest-physical address of the first descriptor table, which no guest can reach by accident. One
/// that loads segment registers brings its own.
pub const GDT: Gpa = Gpa::new(0x1000);
/// Its descriptors: none, code, data; flat, ring 0.
pub const GDT_ENTRIES: [u64; 3] = [0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff];
/// Selector of the code segment.
pub const CODE: u16 = 8;
/// Selector of all other segments.
pub const DATA: u16 = 16;

fn segment(selector: u16, kind: u8) -> kvm_segment {
    let code = selector == CODE;
    kvm_segment {
        base: 0,
        limit: 0xffff_ffff,
        selector,
        type_: kind,
        present: 1,
        dpl: 0,
        db: u8::from(!code),
        s: 1,
        l: u8::from(code),
        g: 1,
        ..kvm_segment::default()
    }
}

/// Segments and control registers, over what KVM has set up; `page_tables` is the root.
pub fn special_registers(sregs: &mut kvm_sregs, page_tables: Gpa) {
    let data = segment(DATA, 3);
    sregs.cs = segment(CODE, 11);
    (sregs.ss, sregs.ds, sregs.es, sregs.fs, sregs.gs) = (data, data, data, data, data);
    // VM entry asks for a busy task segment (Intel SDM volume 3, 26.3.1.2).
    sregs.tr = kvm_segment {
        type_: 11,
        present: 1,
        ..kvm_segment::default()
    };
    sregs.ldt = kvm_segment {
        unusable: 1,
        ..kvm_segment::default()
    };
    sregs.gdt.base = GDT.number();
    sregs.gdt.limit = (size_of_val(&GDT_ENTRIES) - 1) as u16;
    sregs.idt.base = 0;
    sregs.idt.limit = 0;
    (sregs.cr0, sregs.cr3, sregs.cr4, sregs.efer) = (CR0, page_tables.number(), CR4, EFER);
}

/// The other registers: at `entry`, with the stack at the top of memory as after a call.
pub fn registers(entry: u64, memory: u64) -> kvm_regs {
    kvm_regs {
        rip: entry,
        rflags: RFLAGS,
        rsp: memory - 8,
        rdi: BOOT_INFO,
        ..kvm_regs::default()
    }
}

/// What a guest may know of a leaf of CPUID: masks of eax, ebx, ecx and edx.
struct Leaf {
    function: u32,
    index: u32,
    masks: [u32; 4],
}

const fn leaf(function: u32, index: u32, masks: [u32; 4]) -> Leaf {
    Leaf {
        function,
        index,
        masks,
    }
}

const ALL: u32 = u32::MAX;

/// What a guest is told of its processor; all else reads as zero. No virtualisation (VMX, SVM), no
/// power or performance monitoring, no local APIC, nothing of KVM's own, for there is neither
/// interrupt nor timer.
const LEAVES: &[Leaf] = &[
    // Vendor and highest leaf.
    leaf(0, 0, [ALL, ALL, ALL, ALL]),
    // Family; cache line of CLFLUSH and nothing of the APIC; SSE3, PCLMULQDQ, SSSE3, FMA, CX16,
    // SSE4.1, SSE4.2, MOVBE, POPCNT, AES, XSAVE, AVX, F16C, RDRAND, hypervisor; FPU, TSC, MSR, PAE,
    // CX8, PGE, CMOV, PAT, CLFSH, MMX, FXSR, SSE, SSE2.
    leaf(1, 0, [ALL, 0x0000_ff00, 0xf6d8_3203, 0x0781_a171]),
    // BMI1, AVX2, BMI2, ERMS, RDSEED, ADX, CLFLUSHOPT, SHA, AVX-512; VAES and relatives; FSRM.
    leaf(7, 0, [0, 0xf1ad_0329, 0x0000_5f42, 0x0000_0010]),
    // Which states XSAVE saves, and where.
    leaf(13, 0, [ALL, ALL, ALL, ALL]),
    leaf(13, 1, [0x0000_000f, ALL, ALL, ALL]),
    leaf(13, 2, [ALL, ALL, ALL, ALL]),
    leaf(13, 5, [ALL, ALL, ALL, ALL]),
    leaf(13, 6, [ALL, ALL, ALL, ALL]),
    leaf(13, 7, [ALL, ALL, ALL, ALL]),
    // Frequencies of the time-stamp counter and the processor.
    leaf(0x15, 0, [ALL, ALL, ALL, 0]),
    leaf(0x16, 0, [ALL, ALL, ALL, 0]),
    leaf(0x8000_0000, 0, [ALL, ALL, ALL, ALL]),
    // LAHF, LZCNT, SSE4A, PREFETCHW; SYSCALL, no-execute, large pages, RDTSCP, long mode.
    leaf(0x8000_0001, 0, [ALL, 0, 0x0000_0161, 0x2c10_0800]),
    // The processor's name.
    leaf(0x8000_0002, 0, [ALL, ALL, ALL, ALL]),
    leaf(0x8000_0003, 0, [ALL, ALL, ALL, ALL]),
    leaf(0x8000_0004, 0, [ALL, ALL, ALL, ALL]),
    // Caches, as AMD tells.
    leaf(0x8000_0005, 0, [ALL, ALL, ALL, ALL]),
    leaf(0x8000_0006, 0, [ALL, ALL, ALL, ALL]),
    // Whether the time-stamp counter is invariant.
    leaf(0x8000_0007, 0, [0, 0, 0, 1 << 8]),
    // Widths of addresses.
    leaf(ADDRESS_WIDTHS, 0, [0x0000_ffff, 0, 0, 0]),
];

/// The leaf with the widths of addresses.
const ADDRESS_WIDTHS: u32 = 0x8000_0008;
/// Bits of a physical address if the processor does not say.
const ADDRESS_BITS_DEFAULT: u32 = 36;

/// Bits of a guest-physical address on a processor of which a guest is told this (AMD APM volume 3,
/// E.4.7).
pub fn address_bits(cpuid: &[kvm_cpuid_entry2]) -> u32 {
    let widths = cpuid.iter().find(|leaf| leaf.function == ADDRESS_WIDTHS);
    match widths.map_or(0, |leaf| leaf.eax & 0xff) {
        0 => ADDRESS_BITS_DEFAULT,
        bits => bits,
    }
}

/// What a guest is shown on this machine.
///
/// # Errors
/// What KVM says.
pub fn supported(kvm: &Kvm) -> Result<Vec<kvm_cpuid_entry2>, kvm_ioctls::Error> {
    let supported = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)?;
    Ok(shown(supported.as_slice()))
}

/// Of what KVM can show, what a guest is shown.
pub fn shown(supported: &[kvm_cpuid_entry2]) -> Vec<kvm_cpuid_entry2> {
    let shown = supported.iter().filter_map(|entry| {
        let leaf = LEAVES
            .iter()
            .find(|leaf| (leaf.function, leaf.index) == (entry.function, entry.index))?;
        let [eax, ebx, ecx, edx] = leaf.masks;
        Some(kvm_cpuid_entry2 {
            eax: entry.eax & eax,
            ebx: entry.ebx & ebx,
            ecx: entry.ecx & ecx,
            edx: entry.edx & edx,
            ..*entry
        })
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything(function: u32, index: u32) -> kvm_cpuid_entry2 {
        kvm_cpuid_entry2 {
            function,
            index,
            eax: ALL,
            ebx: ALL,
            ecx: ALL,
            edx: ALL,
            ..kvm_cpuid_entry2::default()
        }
    }

    fn shown_of(function: u32) -> kvm_cpuid_entry2 {
        shown(&[everything(function, 0)])[0]
    }

    #[test]
    fn no_guest_is_told_of_virtualisation() {
        const VMX: u32 = 1 << 5;
        const SVM: u32 = 1 << 2;
        assert_eq!(shown_of(1).ecx & VMX, 0);
        assert_eq!(shown_of(0x8000_0001).ecx & SVM, 0);
        for hidden in [10, 0x4000_0000, 0x4000_0001, 0x8000_000a, 0x8000_001f] {
            assert!(shown(&[everything(hidden, 0)]).is_empty(), "{hidden:#x}");
        }
    }

    #[test]
    fn no_guest_is_told_of_an_apic_or_of_timers() {
        const X2APIC: u32 = 1 << 21;
        const TSC_DEADLINE: u32 = 1 << 24;
        const OSXSAVE: u32 = 1 << 27;
        const APIC: u32 = 1 << 9;
        assert_eq!(shown_of(1).ecx & (X2APIC | TSC_DEADLINE | OSXSAVE), 0);
        assert_eq!(shown_of(1).edx & APIC, 0);
    }

    #[test]
    fn the_width_of_addresses_is_what_the_processor_says() {
        let said = |eax| kvm_cpuid_entry2 {
            eax,
            ..everything(ADDRESS_WIDTHS, 0)
        };
        assert_eq!(address_bits(&[everything(1, 0), said(0x0000_3027)]), 39);
        assert_eq!(address_bits(&[said(0x0000_3000)]), 36);
        assert_eq!(address_bits(&[]), 36);
    }

    #[test]
    fn what_compilers_assume_is_there() {
        // Of x86-64: TSC, MSR, PAE, CX8, CMOV, FXSR, SSE, SSE2; SYSCALL, NX, long mode.
        let base = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 8 | 1 << 15 | 1 << 24 | 1 << 25 | 1 << 26;
        assert_eq!(shown_of(1).edx & base, base);
        let extended = 1 << 11 | 1 << 20 | 1 << 29;
        assert_eq!(shown_of(0x8000_0001).edx & extended, extended);
        const RDRAND: u32 = 1 << 30;
        assert_ne!(shown_of(1).ecx & RDRAND, 0);
    }

    #[test]
    fn a_guest_begins_as_its_abi_says() {
        let registers = registers(0x10_0000, 16 << 20);
        assert_eq!((registers.rsp + 8) % 16, 0);
        assert_eq!(registers.rdi, BOOT_INFO);
        let mut sregs = kvm_sregs::default();
        special_registers(&mut sregs, Gpa::new(0x2_0000));
        assert_eq!((sregs.cr3, sregs.cs.l, sregs.cs.db), (0x2_0000, 1, 0));
    }
}
