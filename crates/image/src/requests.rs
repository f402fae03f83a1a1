//! The PCIe devices and the DMA memory of an image, as its extension note asks for them.

use crate::error::RequestError;
use abi::extension::Descriptor;
use abi::manifest::Entry;
use abi::pci::{BARS, DEVICES_MAX, DMA_BYTES_MAX, DMA_GRANULE, INDICES_MAX, Request, request_flag};
use zerocopy::FromBytes;

/// The PCIe devices of an image with the Solo5 devices `entries`; `bytes` are what follows the
/// descriptor in its note.
pub fn parse(
    descriptor: &Descriptor,
    bytes: &[u8],
    entries: &[Entry],
) -> Result<Vec<Request>, RequestError> {
    let dma_bytes = descriptor.dma_bytes;
    if dma_bytes > DMA_BYTES_MAX || !dma_bytes.is_multiple_of(DMA_GRANULE) {
        return Err(RequestError::DmaBytes(dma_bytes));
    }
    let count = descriptor.pci as usize;
    if count > DEVICES_MAX || entries.len() + count > INDICES_MAX {
        return Err(RequestError::Count(descriptor.pci));
    }
    let table = bytes
        .get(..count * size_of::<Request>())
        .ok_or(RequestError::Truncated)?;
    let chunks = table.chunks_exact(size_of::<Request>());
    let requests: Vec<_> = chunks
        .filter_map(|chunk| Request::read_from_bytes(chunk).ok())
        .collect();
    for (i, request) in requests.iter().enumerate() {
        check(request).map_err(|cause| cause(i))?;
        let same = |name: Option<&str>| name == request.name();
        if entries.iter().any(|e| same(e.name())) || requests[..i].iter().any(|r| same(r.name())) {
            return Err(RequestError::Duplicate(i));
        }
    }
    Ok(requests)
}

fn check(request: &Request) -> Result<(), fn(usize) -> RequestError> {
    if request.name().is_none() {
        Err(RequestError::Name)
    } else if request.bars >> BARS != 0 {
        Err(RequestError::Bars)
    } else if request.flags & !request_flag::BUS_MASTER != 0 {
        Err(RequestError::Flags)
    } else {
        Ok(())
    }
}
