//! What the tender told the guest, and who holds which device.

use crate::capture::Capture;
use crate::heap;
use crate::host::{self, Handle, Told};
use crate::ledger::Ledger;
use crate::println;
use crate::ring::Rings;
use crate::share::Share;
use abi::extension::{HOST_INFO_MAGIC, HostInfo, VERSION, host_flag};
use abi::manifest::{ENTRIES_MAX, Entry, Header};
use abi::pci::{self, CLASS_NETWORK, DMA_GRANULE};
use core::cell::{Cell, OnceCell, RefCell, UnsafeCell};
use device::{BATCH_FRAMES_MAX, FRAME_BYTES_MAX, HEADROOM, Nics, Pool};
use hw::DmaArena;

/// Where an image runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// A plain process, for debugging.
    Process,
    /// A sandboxed process.
    Spt,
    /// A virtual machine.
    Hvt,
}

/// Why a device is not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// The manifest has no device of this name.
    NotInManifest,
    /// The manifest has this device as another kind.
    OtherKind,
    /// It was handed out already.
    Taken,
    /// The tender knows nothing of it: Solo5's own attach no PCIe devices.
    NotAttached,
}

impl core::fmt::Display for DeviceError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NotInManifest => "no device of this name: add it to manifest.json",
            Self::OtherKind => "manifest.json has this device as another kind",
            Self::Taken => "this device was handed out already",
            Self::NotAttached => "this tender attaches no PCI devices: start it with outboard run",
        })
    }
}

impl core::error::Error for DeviceError {}

/// Bytes of a packet buffer: the largest frame with its headroom and one byte by which a longer
/// one is noticed, in whole cache lines. The number of lines is odd, so that the first lines of
/// successive buffers, all that small frames touch, fall into different sets of the cache.
const BUFFER_BYTES: usize = 16 * 4096 + 3 * 64;
const _: () = assert!(HEADROOM + FRAME_BYTES_MAX < BUFFER_BYTES);

/// Packet buffers wanted: a full batch, the segments of one frame, and some for appliances to keep.
const BUFFERS: usize = BATCH_FRAMES_MAX + 64;

/// Packet buffers wanted beyond that for each network with rings: what the host has at a time.
const RING_BUFFERS: usize = 2 * BATCH_FRAMES_MAX;

/// The part of guest memory that packet buffers may take at most: one half.
const ARENA_SHARE: usize = 2;

/// DMA memory that is left to each driver, in bytes.
const DRIVER_BYTES: usize = DMA_GRANULE as usize;

/// A device that was handed out.
pub(crate) struct Attached {
    pub(crate) entry: &'static Entry,
    pub(crate) handle: Handle,
    pub(crate) index: u8,
    pub(crate) flags: u32,
}

pub(crate) struct Boot {
    pub(crate) share: Share,
    pub(crate) capture: Capture,
    pub(crate) rings: Option<Rings>,
    pub(crate) nics: Nics<Ledger>,
    host: Host,
    memory_bytes: u64,
    command_line: &'static str,
    pub(crate) entries: &'static [Entry],
    /// The PCIe devices that the image asks for; device `n` has the index behind the entries' plus
    /// `n`.
    pub(crate) requests: &'static [pci::Request],
    flags: [u32; ENTRIES_MAX],
    /// What the tender told of them, and the DMA memory.
    pub(crate) pci: [pci::Info; pci::DEVICES_MAX],
    pub(crate) dma: RefCell<Option<DmaArena>>,
    pool: Pool,
    taken: Cell<u64>,
}

struct Shared(OnceCell<Boot>);
// SAFETY: a unikernel has one thread, and no signal or interrupt handler runs guest code.
unsafe impl Sync for Shared {}
static BOOT: Shared = Shared(OnceCell::new());

/// The area that Outboard's tender fills in before the guest starts; its address is in the
/// extension note.
#[repr(transparent)]
struct HostInfoArea(UnsafeCell<HostInfo>);
// SAFETY: it is written before the guest's only thread starts, and only read afterwards.
unsafe impl Sync for HostInfoArea {}
#[unsafe(export_name = "outboard_host_info")]
static HOST_INFO: HostInfoArea = HostInfoArea(UnsafeCell::new(HostInfo::ZERO));

/// Reads what the tender left and sets up heap and packet buffers.
///
/// # Safety
/// To be called once, with what [`host::begin`] returned.
pub(crate) unsafe fn init(told: &Told) {
    // SAFETY: the area is a static of this image; volatile, since the tender wrote it.
    let host_info = unsafe { HOST_INFO.0.get().read_volatile() };
    let known = host_info.magic == HOST_INFO_MAGIC && host_info.version == VERSION;
    let host_info = if known { host_info } else { HostInfo::ZERO };
    // SAFETY: `mft` points to a header and as many entries as it says (caller).
    let entries = unsafe { manifest(told.manifest) };
    // SAFETY: `cmdline` points to a string ended by NUL (caller).
    let command_line = unsafe { core::ffi::CStr::from_ptr(told.command_line as *const _) };
    let nets = entries
        .iter()
        .filter(|entry| entry.kind == abi::manifest::kind::NET_BASIC)
        .count();
    let wanted = match (nets, host_info.rings) {
        (0, _) => 0,
        (_, 0) => BUFFERS,
        (nets, _) => BUFFERS + nets * RING_BUFFERS,
    };
    let requests = crate::pci::requests();
    // SAFETY: the tender mapped what it says at that address, for the guest's lifetime; this runs
    // once.
    let mut dma = unsafe { crate::pci::arena(host_info.dma) };
    let reachable = dma
        .as_ref()
        .map_or(0, |dma| dma_buffers(dma.left(), requests.len()).min(wanted));
    let plain = if reachable == 0 { wanted } else { 0 };
    // SAFETY: all memory behind the image belongs to nobody yet, and this runs once.
    let arena = unsafe { heap::init(told.memory_end as usize, |free| arena_bytes(plain, free)) };
    let shared = dma.as_mut().filter(|_| reachable > 0);
    let shared = shared.and_then(|dma| Pool::dma(dma, reachable, BUFFER_BYTES).ok());
    // SAFETY: the tender mapped what it says at that address, for the guest's lifetime.
    let share = unsafe { Share::new(&host_info) };
    let capture = Capture::new(&share);
    // SAFETY: as above.
    let rings = unsafe { Rings::new(&host_info) };
    let boot = Boot {
        share,
        capture,
        rings,
        nics: Nics::new(nets, host_info.flags & host_flag::SLEEPLESS != 0),
        host: if host::is_hvt() {
            Host::Hvt
        } else if host_info.flags & host_flag::PROCESS != 0 {
            Host::Process
        } else {
            Host::Spt
        },
        memory_bytes: told.memory_end,
        command_line: command_line.to_str().unwrap_or(""),
        entries,
        flags: host_info.devices,
        requests,
        pci: host_info.pci,
        pool: shared.unwrap_or_else(|| Pool::new(arena, BUFFER_BYTES)),
        dma: RefCell::new(dma),
        taken: Cell::new(0),
    };
    let starved = wanted > 0 && reachable == 0 && boot.dma.borrow().is_some();
    let _ = BOOT.0.set(boot);
    if starved {
        println!(
            "outboard: dma_size in manifest.json leaves no room for packet buffers: what comes \
             from a tap cannot be sent by a NIC; {} more bytes would do",
            BUFFERS * BUFFER_BYTES
        );
    }
}

/// Bytes of the packet arena when `free` bytes of memory are left behind the image.
fn arena_bytes(wanted: usize, free: usize) -> usize {
    (free / ARENA_SHARE / BUFFER_BYTES).min(wanted) * BUFFER_BYTES
}

/// Packet buffers that fit into `bytes` of DMA memory beside what the drivers of so many devices
/// take; none if that is too few to be of use.
fn dma_buffers(bytes: usize, devices: usize) -> usize {
    let buffers = bytes.saturating_sub(devices * DRIVER_BYTES) / BUFFER_BYTES;
    if buffers < BATCH_FRAMES_MAX {
        0
    } else {
        buffers
    }
}

/// # Safety
/// `address` is that of a manifest header followed by as many entries as it says, for ever.
unsafe fn manifest(address: u64) -> &'static [Entry] {
    // SAFETY: see above.
    let header = unsafe { (address as *const Header).read() };
    let count = (header.entries as usize).min(ENTRIES_MAX);
    let first = (address + size_of::<Header>() as u64) as *const Entry;
    // SAFETY: see above; tenders place the header 8-byte aligned, and so the entries.
    unsafe { core::slice::from_raw_parts(first, count) }
}

/// Runs `closure` unless the guest ends before the runtime has started.
pub(crate) fn if_started(closure: impl FnOnce(&'static Boot)) {
    if let Some(boot) = BOOT.0.get() {
        closure(boot);
    }
}

pub(crate) fn boot() -> &'static Boot {
    match BOOT.0.get() {
        Some(boot) => boot,
        None => panic!("used before the runtime started"),
    }
}

/// Packet buffers of all ports.
pub(crate) fn pool() -> Pool {
    boot().pool
}

/// How many of them a network's ring may keep for frames that are to come: all networks together
/// half of them, so that there are some to send.
pub(crate) fn ring_room() -> usize {
    let entries = boot().entries.iter();
    let nets = entries.filter(|entry| entry.kind == abi::manifest::kind::NET_BASIC);
    let share = boot().pool.count() / (2 * nets.count().max(1));
    share.min(BATCH_FRAMES_MAX)
}

/// Hands out the device of this name.
pub(crate) fn take(name: &str) -> Result<Attached, DeviceError> {
    let boot = boot();
    let index = (1..boot.entries.len())
        .find(|i| boot.entries[*i].name() == Some(name))
        .ok_or(DeviceError::NotInManifest)?;
    mark_taken(index)?;
    Ok(Attached {
        entry: &boot.entries[index],
        handle: host::handle(index, &boot.entries[index]),
        index: index as u8,
        flags: boot.flags[index],
    })
}

/// Whether the manifest has a network or a disk of this name.
pub(crate) fn is_entry(name: &str) -> bool {
    let mut entries = boot().entries.iter();
    entries.any(|entry| entry.name() == Some(name))
}

/// Remembers that the device with this index was handed out.
pub(crate) fn mark_taken(index: usize) -> Result<(), DeviceError> {
    let taken = &boot().taken;
    let bit = 1 << index;
    if taken.get() & bit != 0 {
        return Err(DeviceError::Taken);
    }
    taken.set(taken.get() | bit);
    Ok(())
}

/// How many PCIe devices of the manifest nobody has asked for yet: who takes DMA memory leaves as
/// much to each of them.
pub fn pci_left() -> usize {
    let boot = boot();
    let handed_out = boot.taken.get() >> boot.entries.len();
    boot.requests.len() - handed_out.count_ones() as usize
}

/// The host that this image runs on.
pub fn host() -> Host {
    boot().host
}

/// The whole command line; empty if there is none.
pub fn command_line() -> &'static str {
    boot().command_line
}

/// The command line's words.
pub fn arguments() -> impl Iterator<Item = &'static str> {
    boot().command_line.split_ascii_whitespace()
}

/// Size of guest memory in bytes.
pub fn memory_bytes() -> u64 {
    boot().memory_bytes
}

/// Names of the network ports as rules count them: the networks of the manifest, in its order, then
/// PCIe devices of that class.
pub fn networks() -> impl Iterator<Item = &'static str> {
    let entries = boot().entries.iter();
    let networks = entries.filter(|entry| entry.kind == abi::manifest::kind::NET_BASIC);
    let requests = boot().requests.iter();
    let nics = requests.filter(|request| request.class == CLASS_NETWORK);
    networks
        .filter_map(Entry::name)
        .chain(nics.filter_map(pci::Request::name))
}

/// Number of devices: entries of the manifest, the reserved first one included, and PCIe devices.
pub fn device_count() -> usize {
    boot().entries.len() + boot().requests.len()
}
