//! What is written to the kernel's files so that a device goes from one driver to another:
//! `sysfs-bus-pci` of its ABI documentation. What they say is read in `linux`.

use super::Address;
use linux::pci::sysfs::Tree;
use std::path::PathBuf;
use std::{fs, io};

/// A file of the kernel's that could not be written.
#[derive(Debug)]
pub struct Refused {
    /// Which one.
    pub path: PathBuf,
    /// What the kernel says.
    pub error: io::Error,
}

/// Names the one driver that may have a device; an empty line lets all have it.
///
/// # Errors
/// The path, and what the kernel says.
pub fn set_override(tree: &Tree, address: Address, driver: &str) -> Result<(), Refused> {
    write(tree.folder(address).join("driver_override"), driver)
}

/// Has a driver let go of a device.
///
/// # Errors
/// The path, and what the kernel says.
pub fn unbind(tree: &Tree, driver: &str, address: Address) -> Result<(), Refused> {
    write(
        tree.driver_folder(driver).join("unbind"),
        &address.to_string(),
    )
}

/// Has a driver take a device that it would not take by itself.
///
/// # Errors
/// The path, and what the kernel says.
pub fn bind(tree: &Tree, driver: &str, address: Address) -> Result<(), Refused> {
    write(
        tree.driver_folder(driver).join("bind"),
        &address.to_string(),
    )
}

/// Has the kernel look for a driver for a device.
///
/// # Errors
/// The path, and what the kernel says.
pub fn probe(tree: &Tree, address: Address) -> Result<(), Refused> {
    write(tree.probe_file(), &address.to_string())
}

/// Writes to a file, and makes none: all of these are the kernel's.
fn write(path: PathBuf, text: &str) -> Result<(), Refused> {
    let written = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|error| Refused { path, error })
}
