//! What an image is made of, on the host's side.
//!
//! | module | what |
//! |---|---|
//! | [`manifest`] | the manifest's JSON, the source of all that an image may touch |
//! | [`note`] | the bytes of the ELF notes that carry manifest and ABI |
//! | [`script`] | the linker script that lays an image out and emits its notes |
//! | [`appliance()`] | the whole `build.rs` of an appliance |
//! | [`Image`] | the checked reading of an image |
//! | [`retarget()`] | turns the image for one host into that for another |
//! | [`give_manifest()`] | has an image ask for what another manifest says |
//!
//! A plain `cargo build --release` in the folder of an appliance makes an image: its `build.rs` is
//! `fn main() { image::appliance() }`, and its manifest lies beside it as `manifest.json`.

#![forbid(unsafe_code)]

mod appliance;
mod elf_file;
mod error;
pub mod manifest;
pub mod note;
mod parse;
mod requests;
mod rules;
#[cfg(any(test, feature = "sample"))]
pub mod sample;
pub mod script;
mod segment;

pub use appliance::{appliance, appliance_from, appliance_from_with_rules, appliance_with_rules};
pub use elf_file::PROGRAM_HEADERS_MAX;
pub use error::{ImageError, RequestError, SegmentError};
pub use manifest::Manifest;
pub use parse::{Image, give_manifest, retarget};
pub use rules::built_in_rules;
pub use segment::{Rights, Segment};
