//! What the tender told the guest at the start, and the runtime that is made of it.

use crate::heap;
use crate::host::{self, HostKind, Start};
use crate::share;
use abi::extension::{HOST_INFO_MAGIC, HostInfo, VERSION, host_flag};
use abi::manifest::{ENTRIES_MAX, Entry, Header, kind};
use abi::pci::Info;
use core::cell::{Cell, OnceCell, RefCell, UnsafeCell};
use device::Pool;
use hw::DmaArena;
use ports::buffers::{self, BUFFER_BYTES, BUFFERS};
use ports::{Devices, Handle, Parts, Rings, Runtime};

pub(crate) struct Boot {
    pub(crate) runtime: Runtime,
    pub(crate) dma: RefCell<Option<DmaArena>>,
    /// Random bytes of the tender's, until somebody has taken them.
    seed: Cell<Option<[u8; 32]>>,
    host: HostKind,
    memory_bytes: u64,
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
/// To be called once, with what [`crate::host::begin`] returned for this target.
pub(crate) unsafe fn init(target: abi::note::Target, start: &Start) {
    // SAFETY: the area is a static of this image; volatile, since the tender wrote it.
    let host_info = unsafe { HOST_INFO.0.get().read_volatile() };
    let known = host_info.magic == HOST_INFO_MAGIC && host_info.version == VERSION;
    let host_info = if known { host_info } else { HostInfo::ZERO };
    // SAFETY: `mft` points to a header and as many entries as it says (caller).
    let entries = unsafe { manifest(start.manifest) };
    // SAFETY: `cmdline` points to a string ended by NUL (caller).
    let command_line = unsafe { core::ffi::CStr::from_ptr(start.command_line as *const _) };
    let (requests, regions) = crate::pci::requests();
    let networks = entries.iter().filter(|entry| entry.kind == kind::NET_BASIC);
    let links = regions.iter().filter(|region| region.is_link());
    let wanted = buffers::wanted(networks.count() + links.count(), host_info.rings != 0);
    // SAFETY: the tender mapped what it says at that address, for the guest's lifetime; this runs
    // once.
    let mut dma = unsafe { crate::pci::arena(host_info.dma) };
    let reachable = dma
        .as_ref()
        .map_or(0, |dma| buffers::in_dma(wanted, dma.left(), requests.len()));
    let plain = if reachable == 0 { wanted } else { 0 };
    let arena_bytes = |free| buffers::arena_bytes(plain, free);
    // SAFETY: all memory behind the image belongs to nobody yet, and this runs once.
    let arena = unsafe { heap::init(start.memory_end as usize, arena_bytes) };
    let shared = dma.as_mut().filter(|_| reachable > 0);
    let shared = shared.and_then(|dma| Pool::dma(dma, reachable, BUFFER_BYTES).ok());
    let starved = wanted > 0 && reachable == 0 && dma.is_some();
    // SAFETY: the tender mapped what it says at that address, for the guest's lifetime.
    let share = unsafe { share::file(&host_info) };
    // SAFETY: as above.
    let rings = unsafe { share::rings(&host_info) };
    let others = host_info.pci[0] != Info::ZERO;
    // SAFETY: as above; `ports::regions` asks for each number once.
    let own = |number, bytes, head| unsafe { share::own(number, bytes, head) };
    // SAFETY: as above.
    let peer = |number, bytes| unsafe { share::peer(number, bytes) };
    // SAFETY: as above; it is asked once for each number.
    let queue = |number, bytes| unsafe { share::queue(number, bytes) };
    let memory = ports::regions(regions, &host_info.regions, own, peer, queue);
    let runtime = Runtime::new(Parts {
        host: host::host(),
        share,
        rings: rings.and_then(|words| Rings::new(words, host::host(), others)),
        regions: memory,
        devices: Devices::new(entries, requests, regions, &host_info),
        pool: shared.unwrap_or_else(|| Pool::new(arena, BUFFER_BYTES)),
        command_line: command_line.to_str().unwrap_or(""),
        has_room: heap::has_room,
        quiet: (host_info.quiet_fd != 0).then_some(Handle(host_info.quiet_fd)),
        sleepless: host_info.flags & host_flag::SLEEPLESS != 0,
    });
    let _ = BOOT.0.set(Boot {
        runtime,
        dma: RefCell::new(dma),
        seed: Cell::new(known.then_some(host_info.seed)),
        host: match target {
            abi::note::Target::Hvt => HostKind::Hvt,
            _ if host_info.flags & host_flag::PROCESS != 0 => HostKind::Process,
            abi::note::Target::Spt => HostKind::Spt,
        },
        memory_bytes: start.memory_end,
    });
    if starved {
        crate::println!(
            "outboard: dma_size in manifest.json leaves no room for packet buffers: what comes \
             from a tap cannot be sent by a NIC; {} more bytes would do",
            BUFFERS * BUFFER_BYTES
        );
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

/// Random bytes, from which the image makes its secrets: from the tender, once, or from the
/// processor. `None` if neither has any.
pub fn seed() -> Option<[u8; 32]> {
    boot().seed.take().or_else(host::random)
}

pub(crate) fn boot() -> &'static Boot {
    match BOOT.0.get() {
        Some(boot) => boot,
        None => panic!("used before the runtime started"),
    }
}

/// What ports of the image's own and layers above ports need of the image.
#[inline]
pub fn runtime() -> &'static Runtime {
    &boot().runtime
}

/// The host that this image runs on.
pub fn host() -> HostKind {
    boot().host
}

/// The whole command line; empty if there is none.
pub fn command_line() -> &'static str {
    runtime().command_line
}

/// The command line's words.
pub fn arguments() -> impl Iterator<Item = &'static str> {
    command_line().split_ascii_whitespace()
}

/// Size of guest memory in bytes.
pub fn memory_bytes() -> u64 {
    boot().memory_bytes
}
