//! What the tender hands over: boot information, manifest and command line, in this order, from
//! [`BOOT_INFO`] on; and what it tells images that know Outboard.

use crate::attach::Attached;
use crate::attach::pci::Pci;
use crate::attach::region::{self, Region};
use crate::options::Options;
use abi::COMMAND_LINE_BYTES_MAX;
use abi::extension::{self, HostInfo};
use abi::manifest::{ENTRIES_MAX, Entry, Header, VERSION, size_of_manifest};
use abi::spt::{BOOT_INFO, BootInfo};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use zerocopy::{Immutable, IntoBytes};

/// The guest's arguments are longer than the command line of a guest can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandLineTooLong(
    /// Their length in bytes.
    usize,
);

impl std::error::Error for CommandLineTooLong {}

impl fmt::Display for CommandLineTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the guest's arguments take {} bytes; shorten them to {COMMAND_LINE_BYTES_MAX}",
            self.0
        )
    }
}

/// All arguments joined by one space.
///
/// # Errors
/// If they are too long together.
pub fn command_line(arguments: &[OsString]) -> Result<Vec<u8>, CommandLineTooLong> {
    let parts: Vec<&[u8]> = arguments
        .iter()
        .map(|argument| argument.as_bytes())
        .collect();
    let line = parts.join(&b' ');
    if line.len() > COMMAND_LINE_BYTES_MAX {
        return Err(CommandLineTooLong(line.len()));
    }
    Ok(line)
}

/// Size of what [`area`] makes, in bytes.
pub fn size(entries: usize, command_line: &[u8]) -> u64 {
    (size_of::<BootInfo>() + size_of_manifest(entries) + command_line.len() + 1) as u64
}

/// The numbers of the boot information that are not addresses of its own parts.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Size of guest memory in bytes.
    pub memory: u64,
    /// End of the image.
    pub image_end: u64,
    /// The epoll descriptor.
    pub epoll_fd: i32,
    /// The timer descriptor.
    pub timer_fd: i32,
}

/// The bytes from [`BOOT_INFO`] on.
pub fn area(facts: Facts, manifest: &[Entry], command_line: &[u8]) -> Vec<u8> {
    let info = |mft, cmdline| BootInfo {
        mem_size: facts.memory,
        kernel_end: facts.image_end,
        cmdline,
        mft,
        epoll_fd: facts.epoll_fd,
        timer_fd: facts.timer_fd,
    };
    handed_over(BOOT_INFO, info, manifest, command_line)
}

/// Boot information of any host, and behind it the manifest and the command line, to whose
/// addresses it points: `info` is given both. All of it lies at `address`.
pub fn handed_over<I: IntoBytes + Immutable>(
    address: u64,
    info: impl FnOnce(u64, u64) -> I,
    manifest: &[Entry],
    command_line: &[u8],
) -> Vec<u8> {
    let mft = address + size_of::<I>() as u64;
    let cmdline = mft + size_of_manifest(manifest.len()) as u64;
    let header = Header {
        version: VERSION,
        entries: manifest.len() as u32,
    };
    let mut bytes = Vec::with_capacity((cmdline - address) as usize + command_line.len() + 1);
    bytes.extend_from_slice(info(mft, cmdline).as_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(manifest.as_bytes());
    bytes.extend_from_slice(command_line);
    bytes.push(0);
    bytes
}

/// Bits of [`extension::host_flag`] that the options ask for, wherever the guest runs.
pub fn flags(options: &Options) -> u32 {
    match options.sleepless {
        true => extension::host_flag::SLEEPLESS,
        false => 0,
    }
}

/// What an image with Outboard's extension is told. `flags` are bits of
/// [`extension::host_flag`], `share` are address and size of the shared file, `seed` is random.
pub fn host_info(
    flags: u32,
    share: Option<(u64, u64)>,
    attached: &[Attached],
    pci: &Pci,
    regions: &[Region],
    seed: [u8; 32],
) -> HostInfo {
    let mut devices = [0; ENTRIES_MAX];
    for device in attached {
        devices[device.index] = device.flags;
    }
    let (share, share_bytes) = share.unwrap_or_default();
    HostInfo {
        magic: extension::HOST_INFO_MAGIC,
        version: extension::VERSION,
        flags,
        share,
        share_bytes,
        devices,
        dma: pci.dma(),
        pci: pci.infos(),
        seed,
        regions: region::infos(regions),
        ..HostInfo::ZERO
    }
}

#[cfg(test)]
mod tests;
