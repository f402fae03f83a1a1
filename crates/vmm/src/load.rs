//! Kernel, RAM disk and command line in guest memory, by Linux's boot protocol
//! (`Documentation/x86/boot.rst`).

use crate::acpi;
use crate::layout::{ACPI, COMMAND_LINE, COMMAND_LINE_BYTES_MAX, HIGH, LOW_END, ZERO_PAGE};
use crate::options::Options;
use linux_loader::bootparam::{boot_e820_entry, boot_params, setup_header};
use linux_loader::configurator::linux::LinuxBootConfigurator;
use linux_loader::configurator::{BootConfigurator, BootParams};
use linux_loader::loader::KernelLoader;
use linux_loader::loader::bzimage::BzImage;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

/// Memory of the guest, which this process and its children have, too.
pub type Memory = GuestMemoryMmap<()>;

/// What a Linux without a keyboard has to be told. `reboot=k` resets by the
/// keyboard's controller, which ends the machine.
const WORDS: &str = "console=ttyS0 reboot=k panic=1 i8042.noaux i8042.nomux \
                     i8042.dumbkbd no_timer_check";
/// The 64-bit entry lies so far behind the beginning of the kernel (boot.rst, "64-bit boot
/// protocol").
const ENTRY_64: u64 = 0x200;
/// `XLF_KERNEL_64` of `xloadflags`: there is such an entry.
const KERNEL_64: u16 = 1;
/// `type_of_loader`: one that has no number.
const LOADER: u8 = 0xff;
/// Kinds of memory in the map (`E820_TYPE_RAM`).
const RAM: u32 = 1;
const PAGE: u64 = 0x1000;

/// Why a guest cannot be loaded.
#[derive(Debug)]
pub enum Error {
    /// A file that cannot be read.
    File(PathBuf, io::Error),
    /// A file that is no kernel of Linux's, or does not fit into memory.
    Kernel(PathBuf, String),
    /// A kernel for 32 bits, or an old one.
    NoEntry(PathBuf),
    /// The kernel needs so many bytes of memory.
    TooLittle(u64),
    /// A RAM disk that does not fit beside the kernel.
    Initrd(PathBuf),
    /// The command line has so many bytes.
    CommandLine(usize),
    /// A write to guest memory that failed, which is a mistake of this program's.
    Memory(String),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Kernel(path, why) => write!(
                f,
                "{}: {why}; --kernel takes a bzImage, such as /boot/vmlinuz",
                path.display()
            ),
            Self::NoEntry(path) => write!(
                f,
                "{}: the kernel has no 64-bit entry; take one for x86-64",
                path.display()
            ),
            Self::TooLittle(bytes) => write!(
                f,
                "the kernel needs {} MiB; give it more by --mem=MIB",
                bytes.div_ceil(1 << 20)
            ),
            Self::Initrd(path) => write!(
                f,
                "{}: the RAM disk does not fit beside the kernel; give more by --mem=MIB",
                path.display()
            ),
            Self::CommandLine(bytes) => write!(
                f,
                "the command line has {bytes} bytes, and Linux takes {}; shorten --append",
                COMMAND_LINE_BYTES_MAX - 1
            ),
            Self::Memory(why) => write!(f, "guest memory: {why}; report this as a bug"),
        }
    }
}

/// Where the guest begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(pub u64);

/// Loads what `options` name into `memory`.
///
/// # Errors
/// The first thing that does not fit.
pub fn load(memory: &Memory, options: &Options) -> Result<Entry, Error> {
    let path = &options.kernel;
    let mut file = open(path)?;
    let high = GuestAddress(HIGH);
    let loaded = BzImage::load(memory, None, &mut file, Some(high))
        .map_err(|error| Error::Kernel(path.clone(), error.to_string()))?;
    let mut header = loaded
        .setup_header
        .ok_or_else(|| Error::NoEntry(path.clone()))?;
    if header.xloadflags & KERNEL_64 == 0 {
        return Err(Error::NoEntry(path.clone()));
    }
    let kernel = loaded.kernel_load.0;
    // The kernel unpacks itself to where it prefers to lie, and needs so much there.
    let begin = kernel.max(header.pref_address);
    let end = begin.saturating_add(header.init_size.into());
    let end = end.max(loaded.kernel_end);
    if end > options.memory_bytes {
        return Err(Error::TooLittle(end));
    }
    if let Some(path) = &options.initrd {
        let last = options
            .memory_bytes
            .min(u64::from(header.initrd_addr_max) + 1);
        let (address, bytes) = load_initrd(memory, path, end..last)?;
        header.ramdisk_image = address;
        header.ramdisk_size = bytes;
    }
    let line = command_line(&options.append)?;
    memory
        .write_slice(&line, GuestAddress(COMMAND_LINE))
        .map_err(mistake)?;
    memory
        .write_slice(&acpi::tables(&options.devices), GuestAddress(ACPI))
        .map_err(mistake)?;
    header.type_of_loader = LOADER;
    header.cmd_line_ptr = COMMAND_LINE as u32;
    header.cmdline_size = line.len() as u32;
    let parameters = parameters(header, options.memory_bytes);
    let parameters = BootParams::new(&parameters, GuestAddress(ZERO_PAGE));
    LinuxBootConfigurator::write_bootparams(&parameters, memory).map_err(mistake)?;
    Ok(Entry(kernel + ENTRY_64))
}

fn mistake(error: impl fmt::Display) -> Error {
    Error::Memory(error.to_string())
}

fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|error| Error::File(path.to_path_buf(), error))
}

/// Puts a RAM disk at the end of `free` addresses; its address and size.
fn load_initrd(
    memory: &Memory,
    path: &Path,
    free: std::ops::Range<u64>,
) -> Result<(u32, u32), Error> {
    let failed = |error| Error::File(path.to_path_buf(), error);
    let too_large = || Error::Initrd(path.to_path_buf());
    let mut file = open(path)?;
    let bytes = file.metadata().map_err(failed)?.len();
    let address = free.end.checked_sub(bytes).ok_or_else(too_large)? & !(PAGE - 1);
    if address < free.start {
        return Err(too_large());
    }
    let size = u32::try_from(bytes).map_err(|_| too_large())?;
    memory
        .read_exact_volatile_from(GuestAddress(address), &mut file, bytes as usize)
        .map_err(|error| failed(io::Error::other(error)))?;
    Ok((u32::try_from(address).map_err(|_| too_large())?, size))
}

/// The command line with its NUL.
fn command_line(append: &str) -> Result<Vec<u8>, Error> {
    let mut line = WORDS.as_bytes().to_vec();
    if !append.is_empty() {
        line.push(b' ');
        line.extend(append.as_bytes());
    }
    line.push(0);
    match line.len() <= COMMAND_LINE_BYTES_MAX {
        true => Ok(line),
        false => Err(Error::CommandLine(line.len() - 1)),
    }
}

/// The zero page: the kernel's own header, and where memory is.
fn parameters(header: setup_header, memory_bytes: u64) -> boot_params {
    let mut parameters = boot_params {
        hdr: header,
        acpi_rsdp_addr: ACPI,
        ..Default::default()
    };
    for (number, (begin, end)) in [(0, LOW_END), (HIGH, memory_bytes)].into_iter().enumerate() {
        parameters.e820_table[number] = boot_e820_entry {
            addr: begin,
            size: end - begin,
            r#type: RAM,
        };
        parameters.e820_entries += 1;
    }
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_ends_with_a_nul_and_has_a_limit() {
        let line = command_line("quiet").unwrap();
        assert!(line.starts_with(b"console=ttyS0 ") && line.ends_with(b" quiet\0"));
        assert!(command_line("").unwrap().ends_with(b"check\0"));
        let room = COMMAND_LINE_BYTES_MAX - WORDS.len() - 2;
        assert_eq!(
            command_line(&"x".repeat(room)).unwrap().len(),
            COMMAND_LINE_BYTES_MAX
        );
        assert!(command_line(&"x".repeat(room + 1)).is_err());
    }

    #[test]
    fn memory_has_a_hole_below_one_mib() {
        let parameters = parameters(setup_header::default(), 64 << 20);
        assert_eq!(parameters.e820_entries, 2);
        let map = parameters.e820_table;
        let ranges = [map[0], map[1]].map(|entry| (entry.addr, entry.size, entry.r#type));
        assert_eq!(ranges, [(0, LOW_END, RAM), (HIGH, 63 << 20, RAM)]);
    }

    /// Files that are no kernel end in an error that names them.
    #[test]
    fn what_is_no_kernel_is_named() {
        let memory = Memory::from_ranges(&[(GuestAddress(0), 64 << 20)]).unwrap();
        let options = |kernel: &str| Options {
            kernel: kernel.into(),
            initrd: None,
            memory_bytes: 64 << 20,
            append: String::new(),
            devices: Vec::new(),
            statistics: false,
        };
        for kernel in ["/nowhere", "/proc/self/exe", "/dev/null"] {
            let error = load(&memory, &options(kernel)).unwrap_err().to_string();
            assert!(error.starts_with(kernel), "{error}");
        }
    }
}
