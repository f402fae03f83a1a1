//! A machine while it is set up for its guest, step by step.

use super::cpu;
use super::error::{Error, from_kvm, step};
use super::paging::{Builder as PageTables, Rights};
use super::ring_service::RingService;
use super::windows::{self, Placed};
use crate::attach::region::Region;
use crate::attach::{Attached, Attachments};
use crate::boot;
use crate::memory::{Gpa, Segment};
use crate::share::SharedFile;
use crate::start::{self, Resources, Start, put};
use crate::sys::machine::{Machine, Running};
use abi::extension::{HostInfo, device_flag, feature};
use abi::hvt::{BOOT_INFO, BootInfo, MEMORY_BYTES_MAX};
use abi::note::Target;
use abi::region::BELL_PORT;
use abi::share::{BASE, CONTROL_OFFSET};
use abi::{IMAGE_BASE, PAGE_SIZE, ring};
use image::Image;
use kvm_bindings::kvm_cpuid_entry2;
use kvm_ioctls::Kvm;
use std::io;
use std::ops::Range;
use zerocopy::IntoBytes;

/// Where page tables lie.
pub const TABLES: Range<Gpa> = Gpa::new(0x2_0000)..Gpa::new(IMAGE_BASE);
/// The first memory slot of KVM's for windows; those before it are memory and the shared file, and
/// some are left.
const WINDOW_SLOTS: u32 = 8;
/// Least heap that a guest is started with, in bytes: the stack of Solo5's images needs some.
const HEAP_BYTES_MIN: u64 = 64 << 10;

/// What a guest may do with its data.
const DATA: Rights = Rights {
    write: true,
    execute: false,
    uncached: false,
};

/// A machine with the image in its memory.
#[derive(Debug)]
pub struct Setup<'a> {
    start: &'a Start<'a>,
    machine: Machine,
    memory_bytes: u64,
    cpuid: Vec<kvm_cpuid_entry2>,
    /// Bits of the processor's physical addresses.
    address_bits: u32,
}

impl<'a> Setup<'a> {
    /// Makes the machine and copies the image into its memory.
    ///
    /// # Errors
    /// The first step that fails.
    pub fn new(start: &'a Start<'a>) -> Result<Self, Error> {
        let Start { options, image, .. } = *start;
        let memory_bytes = memory_size(options.memory_bytes, image.end)?;
        let kvm = Kvm::new().map_err(|error| Error::no_kvm(from_kvm(error)))?;
        let huge = options.huge_pages;
        let machine = Machine::new(&kvm, memory_bytes as usize, huge);
        let mut machine =
            machine.map_err(|error| Error::Machine(memory_bytes >> 20, huge, error))?;
        let segments: Vec<_> = image.segments.iter().map(Segment::of).collect();
        start.fill(&mut machine, &segments)?;
        let cpuid = cpu::supported(&kvm).map_err(step("CPUID"))?;
        let address_bits = cpu::address_bits(&cpuid);
        Ok(Self {
            start,
            machine,
            memory_bytes,
            cpuid,
            address_bits,
        })
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Lends the shared file to the guest, if there is one.
    ///
    /// # Errors
    /// It lies too high for the processor, or KVM refuses.
    pub fn lend_share(&self, resources: &Resources) -> Result<(), Error> {
        let (Some(share), Some(mapped)) = (&resources.share, &resources.mapped) else {
            return Ok(());
        };
        let what = "the file that it shares with its host";
        windows::reach(what, Gpa::new(BASE + share.size), self.address_bits)?;
        let lent = mapped.lend(&self.machine, share.size);
        lent.map_err(|error| Error::Step("the shared file", error))
    }

    /// Rings for the devices, if the image understands them and the processor's addresses reach
    /// them: the image gets along without.
    ///
    /// # Errors
    /// The step that failed.
    pub fn rings(&self, resources: &Resources) -> Result<Option<RingService>, Error> {
        let understands = (self.start.image.extension)
            .is_some_and(|extension| extension.features & feature::RINGS != 0);
        let reached = windows::reach(
            "rings",
            Gpa::new(ring::BASE + ring::BYTES),
            self.address_bits,
        )
        .is_ok();
        if !understands || !reached || resources.attachments.devices.is_empty() {
            return Ok(None);
        }
        RingService::attach(&self.machine, resources).map(Some)
    }

    /// Writes into guest memory what the guest is told. Returns the bytes that it takes from
    /// [`BOOT_INFO`] on.
    ///
    /// # Errors
    /// The step that failed.
    pub fn hand_over(
        &mut self,
        resources: &Resources,
        command_line: &[u8],
        has_rings: bool,
    ) -> Result<u64, Error> {
        let Start { options, image, .. } = *self.start;
        let frequency = self.machine.vcpu().get_tsc_khz();
        let frequency = frequency.map_err(step("TSC frequency"))?;
        let info = |mft, cmdline| BootInfo {
            mem_size: self.memory_bytes,
            kernel_end: image.end,
            cpu_cycle_freq: u64::from(frequency) * 1000,
            cmdline,
            mft,
            ..BootInfo::default()
        };
        let manifest = resources.manifest(&image.entries);
        let boot = boot::handed_over(BOOT_INFO, info, &manifest, command_line);
        put(&mut self.machine, Gpa::new(BOOT_INFO), &boot)?;
        if let Some(extension) = image.extension {
            let attached = &resources.attachments;
            let flags = boot::flags(options);
            let shared = resources.shared();
            let (devices, pci, regions) = (&attached.devices, &attached.pci, &attached.regions);
            let info = boot::host_info(flags, shared, devices, pci, regions, start::seed()?);
            let info = if has_rings {
                with_rings(info, &attached.devices)
            } else {
                info
            };
            put(
                &mut self.machine,
                Gpa::new(extension.host_info),
                info.as_bytes(),
            )?;
            if let Some(address) = image.target_address {
                put(
                    &mut self.machine,
                    Gpa::new(address),
                    &(Target::Hvt as u32).to_le_bytes(),
                )?;
            }
        }
        Ok(boot.len() as u64)
    }

    /// Lends the guest what its PCIe devices share with it, and makes its page tables. `boot_bytes`
    /// is what [`Self::hand_over`] returned.
    ///
    /// # Errors
    /// The step that failed.
    pub fn tables(
        &self,
        resources: &Resources,
        boot_bytes: u64,
        has_rings: bool,
    ) -> Result<PageTables, Error> {
        let Start { options, image, .. } = *self.start;
        let attached = &resources.attachments;
        let placed = lend(&self.machine, attached, self.address_bits)?;
        bells(&self.machine, &attached.regions)?;
        if options.verbose {
            start::say(&placed);
        }
        let share = resources.share.as_ref();
        let mut tables = map(image, self.memory_bytes, boot_bytes, share, &placed)?;
        if has_rings {
            tables.map(
                ring::BASE..ring::BASE + ring::BYTES,
                Gpa::new(ring::BASE),
                DATA,
            )?;
        }
        Ok(tables)
    }

    /// Sets the guest's processor up, with page tables that [`Self::tables`] made.
    ///
    /// # Errors
    /// The step that failed.
    pub fn prepare(&mut self, tables: &PageTables) -> Result<(), Error> {
        let image = self.start.image;
        let registers = cpu::registers(image.entry, self.memory_bytes);
        prepare(&mut self.machine, &self.cpuid, tables, registers)
    }

    /// Goes on to where the guest can run. It may name addresses in the DMA memory too.
    pub fn start(self, resources: &Resources) -> Running {
        let arena = resources.attachments.pci.dma.as_ref();
        self.machine.start(arena.map(|arena| &arena.window))
    }
}

/// Tells the image of its rings, which all of its devices have.
fn with_rings(mut info: HostInfo, devices: &[Attached]) -> HostInfo {
    info.rings = ring::BASE;
    info.rings_bytes = ring::BYTES;
    for device in devices {
        info.devices[device.index] |= device_flag::RING;
    }
    info
}

/// The size of guest memory, in bytes: `memory`, if the image fits and a guest can have so much.
fn memory_size(memory: u64, image_end: u64) -> Result<u64, Error> {
    if memory > MEMORY_BYTES_MAX {
        return Err(Error::TooMuch(memory >> 20));
    }
    let needed = image_end.saturating_add(HEAP_BYTES_MIN);
    if needed > memory {
        return Err(Error::TooLittle(memory >> 20, needed.div_ceil(1 << 20)));
    }
    Ok(memory)
}

/// Lends BARs, DMA memory, links and states to the guest, a memory slot for each.
fn lend<'a>(
    machine: &Machine,
    attached: &'a Attachments,
    bits: u32,
) -> Result<Vec<Placed<'a>>, Error> {
    let placed = windows::place(&attached.pci, &attached.regions, bits)?;
    for (
        slot,
        Placed {
            window, physical, ..
        },
    ) in (WINDOW_SLOTS..).zip(&placed)
    {
        let lent = window.lend(machine, slot, *physical);
        lent.map_err(|error| Error::Step("memory that it shares", error))?;
    }
    Ok(placed)
}

/// Lets the guest ring the other ends of its links, and the processes that serve its disks.
fn bells(machine: &Machine, regions: &[Region]) -> Result<(), Error> {
    for (number, region) in (0..).zip(regions) {
        let Some(bell) = region.other_bell() else {
            continue;
        };
        let rung = machine.ring_by_port(BELL_PORT, number, bell);
        rung.map_err(|error| Error::Step("the bell of a link", error))?;
    }
    Ok(())
}

/// Puts page tables and descriptors into guest memory and sets the processor up.
///
/// # Errors
/// The step that failed.
pub fn prepare(
    machine: &mut Machine,
    cpuid: &[kvm_cpuid_entry2],
    tables: &PageTables,
    registers: kvm_bindings::kvm_regs,
) -> Result<(), Error> {
    for (address, table) in tables.tables() {
        put(machine, address, table.as_bytes())?;
    }
    put(machine, cpu::GDT, cpu::GDT_ENTRIES.as_bytes())?;
    let shown = kvm_bindings::CpuId::from_entries(cpuid);
    let shown = shown.map_err(|_| Error::Step("CPUID", io::ErrorKind::InvalidData.into()))?;
    let vcpu = machine.vcpu();
    vcpu.set_cpuid2(&shown).map_err(step("CPUID"))?;
    let mut sregs = vcpu.get_sregs().map_err(step("registers"))?;
    cpu::special_registers(&mut sregs, tables.root());
    vcpu.set_sregs(&sregs).map_err(step("registers"))?;
    vcpu.set_regs(&registers).map_err(step("registers"))
}

/// Page tables with exactly the rights that the image asks for.
fn map(
    image: &Image,
    memory: u64,
    boot_bytes: u64,
    share: Option<&SharedFile>,
    windows: &[Placed<'_>],
) -> Result<PageTables, Error> {
    let mut tables = PageTables::new(TABLES)?;
    let mut same =
        |range: Range<u64>, rights| tables.map(range.clone(), Gpa::new(range.start), rights);
    let boot_end = (BOOT_INFO + boot_bytes).next_multiple_of(PAGE_SIZE);
    same(BOOT_INFO..boot_end, Rights::default())?;
    for segment in &image.segments {
        let pages = segment.address / PAGE_SIZE * PAGE_SIZE..segment.pages_end();
        let rights = Rights {
            write: segment.rights.write,
            execute: segment.rights.execute,
            uncached: false,
        };
        same(pages, rights)?;
    }
    same(image.end..memory, DATA)?;
    if let Some(share) = share {
        let written = share.size.min(CONTROL_OFFSET as u64);
        same(BASE..BASE + written, DATA)?;
        same(BASE + written..BASE + share.size, Rights::default())?;
    }
    for placed in windows {
        let start = placed.window.address();
        let rights = Rights {
            uncached: placed.registers,
            write: placed.window.is_writable(),
            ..DATA
        };
        let addresses = start..start + placed.window.bytes();
        let mapped = tables.map(addresses, placed.physical, rights);
        mapped.map_err(|error| Error::Windows(windows.len(), error))?;
    }
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_holds_the_image_and_a_heap() {
        const MIB: u64 = 1 << 20;
        assert!(matches!(memory_size(4 * MIB, 3 * MIB), Ok(bytes) if bytes == 4 * MIB));
        let least = 3 * MIB + HEAP_BYTES_MIN;
        assert!(matches!(memory_size(least, 3 * MIB), Ok(bytes) if bytes == least));
        let short = memory_size(least - 1, 3 * MIB);
        assert!(matches!(short, Err(Error::TooLittle(3, 4))), "{short:?}");
        let much = memory_size(MEMORY_BYTES_MAX + 1, 3 * MIB);
        assert!(matches!(much, Err(Error::TooMuch(_))), "{much:?}");
        let no_end = memory_size(MIB, u64::MAX);
        assert!(matches!(no_end, Err(Error::TooLittle(1, _))), "{no_end:?}");
    }

    #[test]
    fn each_device_with_a_ring_is_told_so() {
        let fd = || std::os::fd::OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let device = abi::manifest::Device::Net {
            mac: [2; 6],
            mtu: 1500,
        };
        let attached = |index| Attached {
            index,
            device,
            fd: fd(),
            flags: 0,
        };
        let mut info = HostInfo::ZERO;
        info.devices[3] = device_flag::VIRTIO_NET_HEADER;
        let info = with_rings(info, &[attached(1), attached(3)]);
        assert_eq!((info.rings, info.rings_bytes), (ring::BASE, ring::BYTES));
        let both = device_flag::RING | device_flag::VIRTIO_NET_HEADER;
        assert_eq!(info.devices[..4], [0, device_flag::RING, 0, both]);
    }
}
