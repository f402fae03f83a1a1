//! The host `hvt`: check, attach, load, make a virtual machine, jail, serve its hypercalls.
//!
//! | guest-physical addresses | what | mapped for the guest |
//! |---|---|---|
//! | below [`BOOT_INFO`] | descriptor table | no, so that a null pointer faults |
//! | from [`BOOT_INFO`] | boot information, manifest, command line | read |
//! | from 0x20000 | page tables | no |
//! | from [`IMAGE_BASE`] | the segments of the image | their rights |
//! | from the end of the image | heap, and the stack of Solo5's images | read, write |
//! | [`BASE`] | the shared file, if there is one | as on `spt` |
//! | [`ring::BASE`] | the rings, if the image understands them | read, write |
//! | see `windows` | BARs of PCIe devices, and DMA memory | read, write; BARs uncached |
//!
//! Virtual and physical addresses are the same, but for windows where the processor has too few
//! bits for that.

mod call;
mod complaint;
mod core;
mod cpu;
mod ending;
mod jail;
mod paging;
pub mod probe;
mod queues;
mod statistics;
mod windows;
mod worker;

use self::core::Core;
use self::jail::Kept;
use self::statistics::Statistics;
use self::worker::Rung;
use crate::attach::Attached;
use crate::attach::pci::Pci;
use crate::options::Options;
use crate::share::Share;
use crate::spt::put;
use crate::sys::machine::{Exit, Machine, Running};
use crate::sys::process;
use crate::sys::stop::Stop;
use crate::world::{self, World};
use crate::{boot, check, spt};
use abi::extension::{HostInfo, device_flag, feature};
use abi::hvt::{BOOT_INFO, BootInfo, MEMORY_BYTES_MAX};
use abi::note::Target;
use abi::share::{BASE, CONTROL_OFFSET};
use abi::{IMAGE_BASE, PAGE_SIZE, ring};
use call::{Calls, Outcome};
use complaint::Complaint;
use ending::Ending;
use image::Image;
use kvm_bindings::kvm_cpuid_entry2;
use kvm_ioctls::Kvm;
use paging::{Builder, Rights};
use std::convert::Infallible;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};
use windows::{Narrow, Placed};
use zerocopy::IntoBytes;

pub use self::core::remove_empty as remove_empty_core;
pub use call::{Calls as Hypercalls, Violation};
pub use queues::{Done, Queues};

/// Where page tables lie.
const TABLES: Range<u64> = 0x2_0000..IMAGE_BASE;
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

/// Why a guest was not started.
#[derive(Debug)]
pub enum Error {
    /// A part that all hosts share.
    Common(spt::Error),
    /// KVM cannot be opened.
    Kvm(io::Error),
    /// More memory than a guest of `hvt` can have, in MiB.
    TooMuch(u64),
    /// Less memory than the image needs: both in MiB.
    TooLittle(u64, u64),
    /// The machine cannot be made: how much memory in MiB, whether in huge pages.
    Machine(u64, bool, io::Error),
    /// The processor's physical addresses have too few bits.
    Narrow(Narrow),
    /// Guest memory cannot be mapped for it.
    Paging(paging::Error),
    /// So many windows of PCI devices cannot.
    Windows(usize, paging::Error),
    /// A step that KVM refused.
    Step(&'static str, io::Error),
    /// No core file can be made in this folder.
    Core(PathBuf, io::Error),
    /// The jail cannot be closed.
    Jail(crate::jail::Error),
}

impl std::error::Error for Error {}

impl From<spt::Error> for Error {
    fn from(error: spt::Error) -> Self {
        Self::Common(error)
    }
}

impl From<Narrow> for Error {
    fn from(narrow: Narrow) -> Self {
        Self::Narrow(narrow)
    }
}

impl From<paging::Error> for Error {
    fn from(error: paging::Error) -> Self {
        Self::Paging(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Common(error) => error.fmt(f),
            Self::Kvm(error) => match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => write!(
                    f,
                    "/dev/kvm: {error}; load kvm_intel or kvm_amd, allow virtualisation in the \
                     firmware, or start the image with --host=spt"
                ),
                Some(libc::EACCES | libc::EPERM) => write!(
                    f,
                    "/dev/kvm: {error}; type: sudo usermod -aG kvm $USER, and log in again"
                ),
                _ => write!(f, "/dev/kvm: {error}; start the image with --host=spt"),
            },
            Self::TooMuch(mib) => write!(
                f,
                "--mem={mib}: a guest of hvt has at most {} MiB",
                MEMORY_BYTES_MAX >> 20
            ),
            Self::TooLittle(mib, needed) => write!(
                f,
                "the image does not fit into {mib} MiB of memory; give it at least --mem={needed}"
            ),
            Self::Machine(mib, true, error) => write!(
                f,
                "no {mib} MiB in pages of 2 MiB: {error}; type: sudo sysctl vm.nr_hugepages={}, or \
                 leave --hugepages away",
                mib.div_ceil(2)
            ),
            Self::Machine(mib, false, error) => write!(
                f,
                "no virtual machine of {mib} MiB: {error}; give a smaller --mem=MIB, or start the \
                 image with --host=spt"
            ),
            Self::Narrow(narrow) => narrow.fmt(f),
            Self::Paging(error) => write!(
                f,
                "the image cannot be mapped: {error}; start it with --host=spt"
            ),
            Self::Windows(count, error) => write!(
                f,
                "the {count} mappings of its PCI devices cannot be made: {error}; map fewer BARs \
                 (map_bar in manifest.json), or start the image with --host=spt"
            ),
            Self::Step(step, error) => {
                write!(f, "KVM, {step}: {error}; start the image with --host=spt")
            }
            Self::Core(folder, error) => write!(
                f,
                "--dumpcore={}: {error}; name a folder that you may write to",
                folder.display()
            ),
            Self::Jail(error) => error.fmt(f),
        }
    }
}

/// Starts `image`, which is in `file`, as `options` say, serves it until it ends, and ends with its
/// exit status.
///
/// # Errors
/// Why it could not be started; nothing is left behind then.
pub fn run(options: &Options, file: &File, image: &Image) -> Result<Infallible, Error> {
    let pairs = check::pair(&image.entries, &image.pci, options).map_err(spt::Error::Check)?;
    let command_line = boot::command_line(&options.arguments).map_err(spt::Error::CommandLine)?;
    let memory = memory_size(options.memory_bytes, image.end)?;
    let kvm = Kvm::new().map_err(|error| Error::Kvm(from_kvm(error)))?;
    let machine = Machine::new(&kvm, memory as usize, options.huge_pages);
    let mut machine =
        machine.map_err(|error| Error::Machine(memory >> 20, options.huge_pages, error))?;
    spt::fill(&mut machine, &spt::segments(image), file)
        .map_err(|error| spt::Error::Load(options.image.clone(), error))?;

    let world = World::open(image, &pairs, options)?;
    let cpuid = cpu::supported(&kvm).map_err(step("CPUID"))?;
    let bits = cpu::address_bits(&cpuid);
    if let (Some(share), Some(mapped)) = (&world.share, &world.mapped) {
        windows::reach(
            "the file that it shares with its host",
            BASE + share.size,
            bits,
        )?;
        let lent = mapped.lend(&machine, share.size);
        lent.map_err(|error| Error::Step("the shared file", error))?;
    }
    let features = image
        .extension
        .as_ref()
        .map_or(0, |extension| extension.features);
    let features = match windows::reach("rings", ring::BASE + ring::BYTES, bits) {
        Ok(()) => features,
        // It gets along without.
        Err(_) => features & !feature::RINGS,
    };
    let rings = Rung::attach(&machine, features, &world)?;

    let frequency = machine
        .vcpu()
        .get_tsc_khz()
        .map_err(step("TSC frequency"))?;
    let manifest = world.manifest(&image.entries);
    let info = |mft, cmdline| BootInfo {
        mem_size: memory,
        kernel_end: image.end,
        cpu_cycle_freq: u64::from(frequency) * 1000,
        cmdline,
        mft,
        ..BootInfo::default()
    };
    let boot = boot::handed_over(BOOT_INFO, info, &manifest, &command_line);
    put(&mut machine, BOOT_INFO, &boot)?;
    let attached = &world.attachments;
    if let Some(extension) = image.extension {
        let info = boot::host_info(
            boot::flags(options),
            world.shared(),
            &attached.devices,
            &attached.pci,
        );
        let info = if rings.is_some() {
            with_rings(info, &attached.devices)
        } else {
            info
        };
        put(&mut machine, extension.host_info, info.as_bytes())?;
        if let Some(address) = image.target_address {
            put(&mut machine, address, &(Target::Hvt as u32).to_le_bytes())?;
        }
    }
    let windows = lend(&machine, &attached.pci, bits)?;
    if options.verbose {
        world::say(&windows);
    }
    let mut tables = map(
        image,
        memory,
        boot.len() as u64,
        world.share.as_ref(),
        &windows,
    )?;
    if rings.is_some() {
        tables.map(ring::BASE..ring::BASE + ring::BYTES, ring::BASE, DATA)?;
    }
    let registers = cpu::registers(image.entry, memory);
    prepare(&mut machine, &cpuid, &tables, registers)?;
    drop(kvm);
    let shared = world.share.is_some();
    let mut pci = world.attachments.pci;
    let calls: &'static Calls = Box::leak(Box::new(Calls {
        devices: world.attachments.devices,
        pci: !pci.devices.is_empty(),
        sockets: sockets(&mut pci, image.entries.len()),
        epoll: world.epoll,
        timer: world.timer,
    }));
    // The first reading looks for the kernel's page with the clock, which the jail does not allow.
    call::wall_time();
    let mut machine = machine.start(pci.dma.as_ref().map(|arena| &arena.window));
    let core = options.dump_core.as_deref().map(core_file).transpose()?;
    let counted = shared && rings.is_some();
    // Without them, an old kernel for instance, nobody is told.
    let statistics = counted.then(|| machine.statistics().ok().and_then(Statistics::new));
    let statistics = statistics.flatten();
    let stop = rings.is_some().then(|| Stop::new(machine.vcpu_fd()));
    let stop = stop.transpose().map_err(step_of("its signal mask"))?;
    let kept = Kept {
        stop: stop.map(Stop::numbers),
        statistics: statistics.as_ref().map(Statistics::descriptor),
        grants: calls.grants(world.event.as_ref(), pci.held()),
        vcpu: machine.vcpu().as_raw_fd(),
        core: core.as_ref().map(|core| core.file.as_raw_fd()),
        worker: rings.as_ref().map(Rung::descriptors),
    };
    let violated = move |violation| process::end(Ending::Violated(violation).say(shared));
    static COMPLAINT: Complaint = Complaint::new();
    let start = || match (rings, stop) {
        (Some(rings), Some(stop)) => {
            let memory = machine.memory().clone();
            let told = (&COMPLAINT, stop);
            rings.start(&calls.devices, memory, statistics, told, violated)
        }
        _ => Ok(()),
    };
    jail::close(&kept, start).map_err(Error::Jail)?;
    let ending = serve(&mut machine, calls, &COMPLAINT);
    if let Some(core) = &core {
        ending.leave(core, &machine);
    }
    process::end(ending.conclude(&machine, shared, &options.image))
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

fn core_file(folder: &Path) -> Result<Core, Error> {
    Core::create(folder).map_err(|error| Error::Core(folder.to_owned(), error))
}

/// Serves the guest until it ends, or there is a complaint.
fn serve(machine: &mut Running, calls: &Calls, complaint: &Complaint) -> Ending {
    loop {
        let exit = match machine.run() {
            Ok(exit) => exit,
            Err(error) if calls.pci && error.raw_os_error() == Some(libc::EFAULT) => {
                return Ending::Taken;
            }
            Err(error) => return Ending::Host(error),
        };
        match exit {
            Exit::Port(port, argument) => match calls.handle(machine.memory(), port, argument) {
                Ok(Outcome::Continue) => {}
                Ok(Outcome::Halt(status, trap)) => return Ending::Halted(status, trap),
                Err(violation) => return Ending::Violated(violation),
            },
            Exit::Interrupted => {
                // First, or a complaint that comes in between would interrupt nothing.
                Stop::take(Duration::ZERO);
                if let Some(violation) = complaint.take() {
                    return Ending::Violated(violation);
                }
            }
            exit => {
                let rip = machine.vcpu().get_regs().map_or(0, |regs| regs.rip);
                return Ending::Stopped(exit, rip);
            }
        }
    }
}

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

/// The connections to devices that are processes, by the devices' indices.
fn sockets(pci: &mut Pci, entries: usize) -> Vec<(usize, OwnedFd)> {
    let sockets = pci.take_sockets().into_iter();
    sockets
        .map(|(number, socket)| (entries + number, socket))
        .collect()
}

/// Lends BARs and DMA memory to the guest, a memory slot for each.
fn lend<'a>(machine: &Machine, pci: &'a Pci, bits: u32) -> Result<Vec<Placed<'a>>, Error> {
    let placed = windows::place(pci, bits)?;
    for (
        slot,
        Placed {
            window, physical, ..
        },
    ) in (WINDOW_SLOTS..).zip(&placed)
    {
        let lent = window.lend(machine, slot, *physical);
        lent.map_err(|error| Error::Step("memory of a PCI device", error))?;
    }
    Ok(placed)
}

/// Puts page tables and descriptors into guest memory and sets the processor up.
fn prepare(
    machine: &mut Machine,
    cpuid: &[kvm_cpuid_entry2],
    tables: &Builder,
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
    share: Option<&Share>,
    windows: &[Placed<'_>],
) -> Result<Builder, Error> {
    let mut tables = Builder::new(TABLES)?;
    let mut same = |range: Range<u64>, rights| tables.map(range.clone(), range.start, rights);
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
            ..DATA
        };
        let addresses = start..start + placed.window.bytes();
        let mapped = tables.map(addresses, placed.physical, rights);
        mapped.map_err(|error| Error::Windows(windows.len(), error))?;
    }
    Ok(tables)
}

fn from_kvm(error: kvm_ioctls::Error) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}

fn step_of(step: &'static str) -> impl Fn(io::Error) -> Error {
    move |error| Error::Step(step, error)
}

fn step(step: &'static str) -> impl Fn(kvm_ioctls::Error) -> Error {
    move |error| Error::Step(step, from_kvm(error))
}
