//! What the tender told the guest, and who holds which device.

use crate::capture::Capture;
use crate::heap;
use crate::host::{self, Handle, Told};
use crate::ring::Rings;
use crate::share::Share;
use abi::extension::{HOST_INFO_MAGIC, HostInfo, VERSION, host_flag};
use abi::manifest::{ENTRIES_MAX, Entry, Header};
use abi::pci::{self, Dma};
use core::cell::{Cell, OnceCell, UnsafeCell};
use device::{BATCH_FRAMES_MAX, FRAME_BYTES_MAX, HEADROOM, Pool};

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
    host: Host,
    memory_bytes: u64,
    command_line: &'static str,
    entries: &'static [Entry],
    flags: [u32; ENTRIES_MAX],
    /// What the tender told of PCIe devices, and the DMA memory until it is handed out.
    pub(crate) pci: [pci::Info; pci::DEVICES_MAX],
    pub(crate) dma: Cell<Dma>,
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
    // SAFETY: all memory behind the image belongs to nobody yet, and this runs once.
    let arena = unsafe { heap::init(told.memory_end as usize, |free| arena_bytes(wanted, free)) };
    // SAFETY: the tender mapped what it says at that address, for the guest's lifetime.
    let share = unsafe { Share::new(&host_info) };
    let capture = Capture::new(&share);
    // SAFETY: as above.
    let rings = unsafe { Rings::new(&host_info) };
    let boot = Boot {
        share,
        capture,
        rings,
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
        pci: host_info.pci,
        dma: Cell::new(host_info.dma),
        pool: Pool::new(arena, BUFFER_BYTES),
        taken: Cell::new(0),
    };
    let _ = BOOT.0.set(boot);
}

/// Bytes of the packet arena when `free` bytes of memory are left behind the image.
fn arena_bytes(wanted: usize, free: usize) -> usize {
    (free / ARENA_SHARE / BUFFER_BYTES).min(wanted) * BUFFER_BYTES
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
    let share = boot().pool.count() / (2 * networks().count().max(1));
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

/// Names of the manifest's network devices, in its order.
pub fn networks() -> impl Iterator<Item = &'static str> {
    let entries = boot().entries.iter();
    let networks = entries.filter(|entry| entry.kind == abi::manifest::kind::NET_BASIC);
    networks.filter_map(Entry::name)
}

/// Number of entries in the manifest, the reserved first one included.
pub fn entry_count() -> usize {
    boot().entries.len()
}
