//! What lies where in guest memory, decided before anything is mapped.
//!
//! | addresses | what | rights |
//! |---|---|---|
//! | below [`BOOT_INFO`] | nothing, so that a null pointer faults | none |
//! | from [`BOOT_INFO`] | boot information, manifest, command line | read |
//! | from [`IMAGE_BASE`] | the segments of the image | theirs |
//! | from the end of the image | heap, and stack from the top downwards | read, write |

use abi::spt::BOOT_INFO;
use abi::{GUEST_BASE, IMAGE_BASE, PAGE_SIZE};
use rustix::mm::ProtFlags;
use std::fmt;
use std::ops::Range;

/// Least heap that a guest is started with, in bytes: its stack needs some.
pub const HEAP_BYTES_MIN: u64 = 64 << 10;

/// A segment of the image, as the image's reader has checked it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Guest addresses that hold it; not empty, and above those of the segment before it.
    pub addresses: Range<u64>,
    /// Where its bytes begin in the file.
    pub file_offset: u64,
    /// How many bytes of the file it holds; what follows them is zero.
    pub file_size: u64,
    /// What the guest may do there; never both write and execute.
    pub rights: ProtFlags,
}

impl Segment {
    /// A segment, as the image's reader describes it.
    pub fn of(segment: &image::Segment) -> Self {
        let image::Rights {
            read,
            write,
            execute,
        } = segment.rights;
        let mut rights = ProtFlags::empty();
        rights.set(ProtFlags::READ, read);
        rights.set(ProtFlags::WRITE, write);
        rights.set(ProtFlags::EXEC, execute);
        Self {
            addresses: segment.address..segment.end(),
            file_offset: segment.file_offset as u64,
            file_size: segment.file_size as u64,
            rights,
        }
    }
}

/// Guest memory as it will be when the guest starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// All of guest memory in ascending order, without gaps; page-aligned.
    pub regions: Vec<Region>,
    /// The segments whose bytes are copied from the file.
    pub copied: Vec<Segment>,
}

/// A run of pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Guest addresses.
    pub addresses: Range<u64>,
    /// What the guest may do there.
    pub rights: ProtFlags,
    /// Where the file is mapped from, if it is mapped instead of copied.
    pub file_offset: Option<u64>,
}

/// The image does not fit into guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSmall {
    /// Size of guest memory, in bytes.
    memory: u64,
    /// Least size that would do, in bytes.
    needed: u64,
}

impl std::error::Error for TooSmall {}

impl fmt::Display for TooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, needed } = self;
        if *needed > abi::share::BASE {
            return write!(
                f,
                "the image asks for memory up to {needed:#x}, and no guest has any above {:#x}; \
                 build it anew",
                abi::share::BASE
            );
        }
        write!(
            f,
            "the image does not fit into {} MiB of memory; give it at least --mem={}",
            memory >> 20,
            needed.div_ceil(1 << 20)
        )
    }
}

/// Lays out a guest of `memory` bytes. `boot_bytes` are those from [`BOOT_INFO`] on, `end` is that
/// of the image. With `map_files`, segments that are not written are mapped from the file where its
/// layout allows, so that debuggers and profilers know whose code it is; the file must then not
/// change while the guest runs.
///
/// # Errors
/// If `memory` does not hold the image and [`HEAP_BYTES_MIN`].
pub fn plan(
    segments: Vec<Segment>,
    end: u64,
    memory: u64,
    boot_bytes: u64,
    map_files: bool,
) -> Result<Plan, TooSmall> {
    let needed = end.saturating_add(HEAP_BYTES_MIN);
    if needed > memory {
        return Err(TooSmall { memory, needed });
    }
    let mut regions = Regions {
        list: Vec::with_capacity(2 * segments.len() + 5),
        end: GUEST_BASE,
    };
    let boot = BOOT_INFO..page_up(BOOT_INFO + boot_bytes);
    debug_assert!(
        boot.end <= IMAGE_BASE,
        "boot information has a longest command line"
    );
    regions.push(boot, ProtFlags::READ, None);
    let mut copied = Vec::with_capacity(segments.len());
    for segment in segments {
        let first = page_down(segment.addresses.start);
        let pages = first..page_up(segment.addresses.end);
        let mapped = (map_files && can_be_mapped(&segment))
            .then(|| segment.file_offset - (segment.addresses.start - first));
        regions.push(pages, segment.rights, mapped);
        if mapped.is_none() && segment.file_size > 0 {
            copied.push(segment);
        }
    }
    regions.push(end..memory, ProtFlags::READ | ProtFlags::WRITE, None);
    Ok(Plan {
        regions: regions.list,
        copied,
    })
}

/// The writable regions at the end of guest memory: stack, data and heap, whatever the image.
pub fn writable_end(regions: &[Region]) -> Range<u64> {
    let end = regions.last().map_or(0, |last| last.addresses.end);
    let writable = ProtFlags::READ | ProtFlags::WRITE;
    let run = regions.iter().rev();
    let run = run.take_while(|region| region.rights == writable && region.file_offset.is_none());
    // Regions have no gaps.
    run.last().map_or(end, |first| first.addresses.start)..end
}

/// The regions that can be read, in their order: all but the gaps.
pub fn readable(regions: &[Region]) -> Vec<Range<u64>> {
    let readable = |region: &&Region| region.rights.contains(ProtFlags::READ);
    let regions = regions.iter().filter(readable);
    regions.map(|region| region.addresses.clone()).collect()
}

/// Collects regions and fills the gaps between them.
struct Regions {
    list: Vec<Region>,
    end: u64,
}

impl Regions {
    fn push(&mut self, addresses: Range<u64>, rights: ProtFlags, file_offset: Option<u64>) {
        if self.end < addresses.start {
            let addresses = self.end..addresses.start;
            self.list.push(Region {
                addresses,
                rights: ProtFlags::empty(),
                file_offset: None,
            });
        }
        self.end = addresses.end;
        self.list.push(Region {
            addresses,
            rights,
            file_offset,
        });
    }
}

/// Whether the file's pages can stand for the segment's: same place in a page, nothing zeroed
/// behind, never written.
fn can_be_mapped(segment: &Segment) -> bool {
    let size = segment.addresses.end - segment.addresses.start;
    size == segment.file_size
        && !segment.rights.contains(ProtFlags::WRITE)
        && segment.file_offset % PAGE_SIZE == segment.addresses.start % PAGE_SIZE
}

fn page_down(address: u64) -> u64 {
    address & !(PAGE_SIZE - 1)
}

fn page_up(address: u64) -> u64 {
    address.next_multiple_of(PAGE_SIZE)
}

#[cfg(test)]
mod tests;
