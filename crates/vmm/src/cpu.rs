//! The processor as Linux finds it: CPUID, model-specific registers, and the registers of its
//! 64-bit entry (`Documentation/x86/boot.rst`, "64-bit boot protocol"). Sections are those of
//! Intel's SDM, volume 3, where no other document is named.

use crate::layout::{GDT, PAGE_TABLES, STACK, ZERO_PAGE};
use crate::load::{Entry, Memory};
use kvm_bindings::{
    CpuId, KVM_MAX_CPUID_ENTRIES, Msrs, kvm_fpu, kvm_lapic_state, kvm_msr_entry, kvm_regs,
    kvm_segment,
};
use kvm_ioctls::{Kvm, VcpuFd};
use std::fmt;
use std::io;
use vm_memory::{Bytes, GuestAddress};

/// CPUID leaf 1, ECX: the local APIC's timer takes deadlines; there is a hypervisor.
const ECX_TSC_DEADLINE: u32 = 1 << 24;
const ECX_HYPERVISOR: u32 = 1 << 31;
/// CPUID leaf 1, EBX: the number of the local APIC, and how many processors the package has.
const EBX_APIC_SHIFT: u32 = 24;
const EBX_COUNT_SHIFT: u32 = 16;
const EBX_CLFLUSH: u32 = 0xff00;
/// Model-specific registers (SDM volume 4, table 2-2).
const MSR_SYSENTER: [u32; 3] = [0x174, 0x175, 0x176];
const MSR_MISC_ENABLE: u32 = 0x1a0;
const MSR_MTRR_DEFAULT: u32 = 0x2ff;
const MSR_SYSCALL: [u32; 4] = [0xc000_0081, 0xc000_0082, 0xc000_0083, 0xc000_0084];
const MSR_KERNEL_GS_BASE: u32 = 0xc000_0102;
const MISC_FAST_STRING: u64 = 1;
/// MTRRs are on, and memory that none names is write-back (11.11.2.1).
const MTRR_ON_WRITE_BACK: u64 = 1 << 11 | 6;
/// Control registers (2.5) and EFER (2.2.1): long mode, with paging.
const CR0_PE_ET_PG: u64 = 1 | 1 << 4 | 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LME_LMA: u64 = 1 << 8 | 1 << 10;
/// Entries of page tables (4.5.4): present, writable; a page of 2 MiB.
const PRESENT_WRITABLE: u64 = 0b11;
const LARGE: u64 = 1 << 7;
/// Selectors that the boot protocol asks for: `__BOOT_CS`, `__BOOT_DS`, and a task behind them.
const CODE: u16 = 0x10;
const DATA: u16 = 0x18;
const TASK: u16 = 0x20;
/// Types of segments (3.4.5.1, 3.5): code that can be read, data that can be written, a busy task.
const TYPE_CODE: u8 = 11;
const TYPE_DATA: u8 = 3;
const TYPE_TASK: u8 = 11;
/// Lines of the local APIC (10.5.1): the external interrupt controller, and NMIs.
const LINT0: usize = 0x350;
const LINT1: usize = 0x360;
const DELIVERY_EXTERNAL: u32 = 7 << 8;
const DELIVERY_NMI: u32 = 4 << 8;
/// The FPU after FNINIT (8.1.5), and MXCSR after a reset (10.2.3 of volume 1).
const FPU_CONTROL: u16 = 0x37f;
const MXCSR: u32 = 0x1f80;

/// A step that KVM refused.
#[derive(Debug)]
pub struct Error {
    step: &'static str,
    error: io::Error,
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KVM refuses {}: {}", self.step, self.error)
    }
}

fn refused(step: &'static str) -> impl Fn(kvm_ioctls::Error) -> Error {
    move |error| Error {
        step,
        error: error.into(),
    }
}

/// Makes the only processor one that begins Linux at `entry`.
///
/// # Errors
/// The first step that KVM refuses.
pub fn prepare(kvm: &Kvm, vcpu: &VcpuFd, memory: &Memory, entry: Entry) -> Result<(), Error> {
    let supported = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES);
    let mut cpuid = supported.map_err(refused("to say what processors it has"))?;
    alone(&mut cpuid);
    vcpu.set_cpuid2(&cpuid).map_err(refused("CPUID"))?;
    set_msrs(vcpu)?;
    let fpu = kvm_fpu {
        fcw: FPU_CONTROL,
        mxcsr: MXCSR,
        ..Default::default()
    };
    vcpu.set_fpu(&fpu).map_err(refused("the FPU"))?;
    set_registers(vcpu, entry)?;
    set_system_registers(vcpu, memory)?;
    let mut apic = vcpu.get_lapic().map_err(refused("the local APIC"))?;
    set_line(&mut apic, LINT0, DELIVERY_EXTERNAL);
    set_line(&mut apic, LINT1, DELIVERY_NMI);
    vcpu.set_lapic(&apic).map_err(refused("the local APIC"))
}

/// What KVM says is of the processor that asked: this one is the first and only one of its package.
fn alone(cpuid: &mut CpuId) {
    for entry in cpuid.as_mut_slice() {
        match entry.function {
            1 => {
                entry.ecx |= ECX_TSC_DEADLINE | ECX_HYPERVISOR;
                entry.ebx =
                    (entry.ebx & (0xff | EBX_CLFLUSH)) | 1 << EBX_COUNT_SHIFT | 0 << EBX_APIC_SHIFT;
            }
            // The number of the processor, where leaves say how many there are.
            0xb | 0x1f => entry.edx = 0,
            _ => {}
        }
    }
}

fn set_msrs(vcpu: &VcpuFd) -> Result<(), Error> {
    let zero = MSR_SYSENTER
        .into_iter()
        .chain(MSR_SYSCALL)
        .chain([MSR_KERNEL_GS_BASE])
        .map(|index| (index, 0));
    let entries: Vec<kvm_msr_entry> = zero
        .chain([
            (MSR_MISC_ENABLE, MISC_FAST_STRING),
            (MSR_MTRR_DEFAULT, MTRR_ON_WRITE_BACK),
        ])
        .map(|(index, data)| kvm_msr_entry {
            index,
            data,
            ..Default::default()
        })
        .collect();
    let count = entries.len();
    let refuses = |error| Error {
        step: "model-specific registers",
        error,
    };
    let msrs = Msrs::from_entries(&entries)
        .map_err(|error| refuses(io::Error::other(format!("{error:?}"))))?;
    let set = vcpu
        .set_msrs(&msrs)
        .map_err(refused("model-specific registers"))?;
    match set == count {
        true => Ok(()),
        false => Err(refuses(io::Error::other(format!(
            "number {set} of {count}"
        )))),
    }
}

/// The 64-bit entry takes the zero page in RSI, and interrupts that are off.
fn set_registers(vcpu: &VcpuFd, entry: Entry) -> Result<(), Error> {
    let registers = kvm_regs {
        rflags: 2,
        rip: entry.0,
        rsp: STACK,
        rbp: STACK,
        rsi: ZERO_PAGE,
        ..Default::default()
    };
    vcpu.set_regs(&registers).map_err(refused("registers"))
}

fn set_system_registers(vcpu: &VcpuFd, memory: &Memory) -> Result<(), Error> {
    let mistake = |error: vm_memory::GuestMemoryError| Error {
        step: "tables in guest memory",
        error: io::Error::other(error),
    };
    let code = segment(CODE, TYPE_CODE);
    let data = segment(DATA, TYPE_DATA);
    let task = segment(TASK, TYPE_TASK);
    let null = kvm_segment::default();
    for (number, segment) in [null, null, code, data, task].iter().enumerate() {
        let address = GuestAddress(GDT + 8 * number as u64);
        memory
            .write_obj(descriptor(segment), address)
            .map_err(mistake)?;
    }
    for (offset, entry) in page_tables() {
        let address = GuestAddress(PAGE_TABLES + offset);
        memory.write_obj(entry, address).map_err(mistake)?;
    }
    let mut registers = vcpu.get_sregs().map_err(refused("system registers"))?;
    registers.cs = code;
    for register in [
        &mut registers.ds,
        &mut registers.es,
        &mut registers.fs,
        &mut registers.gs,
        &mut registers.ss,
    ] {
        *register = data;
    }
    registers.tr = task;
    registers.gdt.base = GDT;
    registers.gdt.limit = 5 * 8 - 1;
    registers.idt.base = 0;
    registers.idt.limit = 0;
    registers.cr0 = CR0_PE_ET_PG;
    registers.cr3 = PAGE_TABLES;
    registers.cr4 = CR4_PAE;
    registers.efer = EFER_LME_LMA;
    vcpu.set_sregs(&registers)
        .map_err(refused("system registers"))
}

/// One of all addresses, for ring 0.
fn segment(selector: u16, type_: u8) -> kvm_segment {
    let is_code = selector == CODE;
    kvm_segment {
        base: 0,
        limit: u32::MAX,
        selector,
        type_,
        present: 1,
        dpl: 0,
        db: u8::from(!is_code && selector != TASK),
        s: u8::from(selector != TASK),
        l: u8::from(is_code),
        g: 1,
        ..Default::default()
    }
}

/// What a segment is in the table (3.4.5); its base is 0.
fn descriptor(segment: &kvm_segment) -> u64 {
    if segment.present == 0 {
        return 0;
    }
    let flags = u64::from(segment.type_)
        | u64::from(segment.s) << 4
        | u64::from(segment.dpl) << 5
        | u64::from(segment.present) << 7
        | u64::from(segment.l) << 13
        | u64::from(segment.db) << 14
        | u64::from(segment.g) << 15;
    // The limit counts pages, if `g` is set: its upper four bits lie between the flags.
    0xffff | 0xf << 48 | flags << 40
}

/// Entries that map the first GiB to itself, by their offsets: three levels, pages of 2 MiB.
fn page_tables() -> impl Iterator<Item = (u64, u64)> {
    let upper = [
        (0, (PAGE_TABLES + 0x1000) | PRESENT_WRITABLE),
        (0x1000, (PAGE_TABLES + 0x2000) | PRESENT_WRITABLE),
    ];
    let pages = (0..512).map(|page| (0x2000 + 8 * page, page << 21 | PRESENT_WRITABLE | LARGE));
    upper.into_iter().chain(pages)
}

/// Sets the delivery mode of a line; KVM's registers are bytes.
fn set_line(apic: &mut kvm_lapic_state, register: usize, delivery: u32) {
    for (at, byte) in delivery.to_le_bytes().into_iter().enumerate() {
        apic.regs[register + at] = byte.cast_signed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beside those of Linux's own `GDT_ENTRY_INIT` for its boot segments.
    #[test]
    fn descriptors_are_linuxs() {
        assert_eq!(descriptor(&segment(CODE, TYPE_CODE)), 0x00af_9b00_0000_ffff);
        assert_eq!(descriptor(&segment(DATA, TYPE_DATA)), 0x00cf_9300_0000_ffff);
        assert_eq!(descriptor(&kvm_segment::default()), 0);
    }

    #[test]
    fn page_tables_map_a_gibibyte() {
        let all: Vec<_> = page_tables().collect();
        assert_eq!(all.len(), 514);
        assert_eq!(all[513], (0x2ff8, 511 << 21 | 0x83));
    }

    #[test]
    fn the_processor_is_alone() {
        let mut entry = kvm_bindings::kvm_cpuid_entry2 {
            function: 1,
            ebx: 0x0304_0855,
            ..Default::default()
        };
        entry.ecx = 1;
        let mut cpuid = CpuId::from_entries(&[entry]).unwrap();
        alone(&mut cpuid);
        let entry = cpuid.as_slice()[0];
        assert_eq!(entry.ebx, 0x0001_0855);
        assert_eq!(entry.ecx, 1 | 1 << 24 | 1 << 31);
    }
}
