//! The fields of `LINK` and `STATE`.

use abi::PAGE_SIZE;
use abi::link::{SLOTS_MAX, file_bytes};
use abi::manifest::name_field;
use abi::region::{REGION_BYTES_MAX, Request, is_state, kind};
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

/// A region of at most [`REGION_BYTES_MAX`] bytes.
fn request(name: &str, kind: u32, bytes: u64) -> Result<Request, Option<String>> {
    let name = name_field(name).ok_or(None)?;
    let bytes = bytes as u32;
    Ok(Request { name, kind, bytes })
}
