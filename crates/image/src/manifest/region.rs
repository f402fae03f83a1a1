//! The fields of `LINK` and `STATE`, and of a disk.

use abi::PAGE_SIZE;
use abi::link::{SLOTS_MAX, file_bytes};
use abi::manifest::name_field;
use abi::region::{REGION_BYTES_MAX, Request, is_state, kind};
use abi::ring::lanes;
use serde::Deserialize;

/// Slots of a link whose declaration does not say how many: two full batches.
pub const SLOTS: u64 = 128;

/// An end of a link.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    pub name: String,
    slots: Option<u64>,
    #[serde(default)]
    carries: Carries,
}

/// What a link carries.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Carries {
    /// An Ethernet's frames.
    #[default]
    Frames,
    /// Sockets.
    Sockets,
}

/// Memory that outlives the image.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    pub name: String,
    /// In bytes.
    size: u64,
}

/// A disk of the host's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    pub name: String,
    /// Bytes for the buffers of requests in flight.
    queue: Option<u64>,
}

impl Link {
    /// The end as an image asks for it.
    ///
    /// # Errors
    /// What is wrong with a field, without the link's name; `None` if it is the name.
    pub fn request(&self) -> Result<Request, Option<String>> {
        let slots = self.slots.unwrap_or(SLOTS);
        if !(1..=SLOTS_MAX as u64).contains(&slots) {
            return Err(Some(format!(
                "\"slots\" is {slots}; write a number from 1 to {SLOTS_MAX}"
            )));
        }
        let kind = match self.carries {
            Carries::Frames => kind::LINK,
            Carries::Sockets => kind::SOCKETS,
        };
        request(&self.name, kind, file_bytes(slots as usize))
    }
}

impl State {
    /// The memory as an image asks for it.
    ///
    /// # Errors
    /// What is wrong with a field, without the memory's name; `None` if it is the name.
    pub fn request(&self) -> Result<Request, Option<String>> {
        let size = self.size;
        if !is_state(size) {
            return Err(Some(format!(
                "\"size\" is {size}; write a multiple of {PAGE_SIZE} up to {REGION_BYTES_MAX}"
            )));
        }
        request(&self.name, kind::STATE, size)
    }
}

impl Block {
    /// The memory of its requests in flight as an image asks for it, if it has several.
    ///
    /// # Errors
    /// What is wrong with a field, without the disk's name; `None` if it is the name.
    pub fn queue(&self) -> Result<Option<Request>, Option<String>> {
        let Some(buffers) = self.queue else {
            return Ok(None);
        };
        let Some(bytes) = lanes::region_bytes(buffers) else {
            let most = REGION_BYTES_MAX - lanes::DATA_OFFSET;
            return Err(Some(format!(
                "\"queue\" is {buffers}; write a multiple of {PAGE_SIZE} up to {most}"
            )));
        };
        request(&self.name, kind::QUEUE, bytes).map(Some)
    }
}

/// A region of at most [`REGION_BYTES_MAX`] bytes.
fn request(name: &str, kind: u32, bytes: u64) -> Result<Request, Option<String>> {
    let name = name_field(name).ok_or(None)?;
    let bytes = bytes as u32;
    Ok(Request { name, kind, bytes })
}
