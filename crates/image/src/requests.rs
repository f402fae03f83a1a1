//! The PCIe devices, the DMA memory and the regions of an image, as its extension note asks for
//! them.

use crate::error::RequestError;
use abi::extension::Descriptor;
use abi::link;
use abi::manifest::Entry;
use abi::manifest::kind::BLOCK_BASIC;
use abi::pci::{BARS, DEVICES_MAX, DMA_BYTES_MAX, DMA_GRANULE, INDICES_MAX, Request, request_flag};
use abi::region::{self, REGIONS_MAX, kind};
use abi::ring::lanes;
use zerocopy::FromBytes;

/// What an extension note asks for.
#[derive(Default)]
pub struct Requests {
    pub pci: Vec<Request>,
    pub regions: Vec<region::Request>,
}

/// What an image with the Solo5 devices `entries` asks for; `bytes` are what follows the descriptor
/// in its note.
pub fn parse(
    descriptor: &Descriptor,
    bytes: &[u8],
    entries: &[Entry],
) -> Result<Requests, RequestError> {
    let dma_bytes = descriptor.dma_bytes;
    if dma_bytes > DMA_BYTES_MAX || !dma_bytes.is_multiple_of(DMA_GRANULE) {
        return Err(RequestError::DmaBytes(dma_bytes));
    }
    let (count, region_count) = (descriptor.pci as usize, descriptor.regions as usize);
    if count > DEVICES_MAX || entries.len() + count > INDICES_MAX {
        return Err(RequestError::Count(descriptor.pci));
    }
    if region_count > REGIONS_MAX || entries.len() + count + region_count > INDICES_MAX {
        return Err(RequestError::RegionCount(descriptor.regions));
    }
    let (pci, rest) = table::<Request>(bytes, count)?;
    let (regions, _) = table::<region::Request>(rest, region_count)?;
    let mut names: Vec<&str> = entries.iter().filter_map(Entry::name).collect();
    for (i, request) in pci.iter().enumerate() {
        check(request).map_err(|cause| cause(i))?;
        let name = request.name().ok_or(RequestError::Name(i))?;
        if names.contains(&name) {
            return Err(RequestError::Duplicate(i));
        }
        names.push(name);
    }
    for (i, request) in regions.iter().enumerate() {
        let name = request.name().ok_or(RequestError::RegionName(i))?;
        // The queue of a disk has its disk's.
        match request.kind {
            kind::QUEUE if !has_disk(entries, name) => return Err(RequestError::RegionDisk(i)),
            kind::QUEUE if has_queue(&regions[..i], name) => {
                return Err(RequestError::RegionDuplicate(i));
            }
            kind::QUEUE => {}
            _ if names.contains(&name) => return Err(RequestError::RegionDuplicate(i)),
            _ => names.push(name),
        }
        check_region(request).map_err(|cause| cause(i))?;
    }
    Ok(Requests { pci, regions })
}

/// The first `count` values of `bytes`, and what follows them.
fn table<T: FromBytes>(bytes: &[u8], count: usize) -> Result<(Vec<T>, &[u8]), RequestError> {
    let cut = bytes.split_at_checked(count * size_of::<T>());
    let (table, rest) = cut.ok_or(RequestError::Truncated)?;
    let chunks = table.chunks_exact(size_of::<T>());
    let values = chunks.filter_map(|chunk| T::read_from_bytes(chunk).ok());
    Ok((values.collect(), rest))
}

fn check(request: &Request) -> Result<(), fn(usize) -> RequestError> {
    if request.bars >> BARS != 0 {
        Err(RequestError::Bars)
    } else if request.flags & !request_flag::BUS_MASTER != 0 {
        Err(RequestError::Flags)
    } else {
        Ok(())
    }
}

fn has_disk(entries: &[Entry], name: &str) -> bool {
    let mut disks = entries.iter().filter(|entry| entry.kind == BLOCK_BASIC);
    disks.any(|disk| disk.name() == Some(name))
}

fn has_queue(regions: &[region::Request], name: &str) -> bool {
    let mut queues = regions.iter().filter(|region| region.kind == kind::QUEUE);
    queues.any(|queue| queue.name() == Some(name))
}

fn check_region(request: &region::Request) -> Result<(), fn(usize) -> RequestError> {
    let bytes = u64::from(request.bytes);
    let fits = match request.kind {
        kind::LINK | kind::SOCKETS => link::is_file(bytes),
        kind::STATE => region::is_state(bytes),
        kind::QUEUE => lanes::is_region(bytes),
        _ => return Err(RequestError::RegionKind),
    };
    match fits {
        true => Ok(()),
        false => Err(RequestError::RegionBytes),
    }
}
