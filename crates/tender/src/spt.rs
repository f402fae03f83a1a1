//! From a command line to a running guest: check, attach, map, jail, jump.

use crate::attach;
use crate::jail::{self, Grants};
use crate::memory::Memory;
use crate::options::{Host, Options};
use crate::sys::memory::Filling;
use crate::sys::process;
use crate::world::World;
use crate::{boot, check, load, memory, rules, share};
use abi::extension::host_flag;
use abi::note::Target;
use abi::spt::BOOT_INFO;
use image::Image;
use rustix::mm::ProtFlags;
use std::convert::Infallible;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::{fmt, io};
use zerocopy::IntoBytes;

/// Why a guest was not started.
#[derive(Debug)]
pub enum Error {
    /// The image cannot be used.
    Load(PathBuf, load::Error),
    /// Manifest and command line differ.
    Check(check::Error),
    /// A device cannot be attached.
    Attach(attach::Error),
    /// The guest's arguments are too long.
    CommandLine(boot::CommandLineTooLong),
    /// Too little memory for the image.
    TooSmall(memory::TooSmall),
    /// Guest memory cannot be had: its size in MiB.
    Memory(u64, io::Error),
    /// The parent has ended, or is another process than the user says.
    Parent(i32),
    /// The shared file is none.
    Share(share::Error),
    /// The rules cannot be given to the guest.
    Rules(PathBuf, rules::Error),
    /// The jail cannot be closed.
    Jail(jail::Error),
    /// What the kernel says about a step.
    System(&'static str, io::Error),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(path, error) => write!(f, "{path:?}: {error}"),
            Self::Check(error) => error.fmt(f),
            Self::Attach(error) => error.fmt(f),
            Self::CommandLine(error) => error.fmt(f),
            Self::TooSmall(error) => error.fmt(f),
            Self::Memory(mib, error) => {
                write!(
                    f,
                    "no {mib} MiB of guest memory: {error}; give a smaller --mem=MIB"
                )
            }
            Self::Parent(pid) => write!(
                f,
                "--die-with-parent={pid}: the parent is another process or has ended; give its \
                 process id"
            ),
            Self::Share(error) => error.fmt(f),
            Self::Rules(path, error) => write!(f, "--rules={}: {error}", path.display()),
            Self::Jail(error) => error.fmt(f),
            Self::System(step, error) => write!(f, "{step}: {error}; is this Linux 5.9 or later?"),
        }
    }
}

/// Starts `image`, which is in `file`, as `options` say. If all goes well, this process becomes the
/// guest.
///
/// # Errors
/// Why it could not be started; nothing is left behind then.
pub fn start(options: &Options, file: &File, image: &Image) -> Result<Infallible, Error> {
    let path = &options.image;
    let pairs = check::pair(&image.entries, &image.pci, options).map_err(Error::Check)?;
    let command_line = boot::command_line(&options.arguments).map_err(Error::CommandLine)?;
    let boot_bytes = boot::size(image.entries.len(), &command_line);
    let process = options.host == Some(Host::Process);
    let plan = memory::plan(
        segments(image),
        image.end,
        options.memory_bytes,
        boot_bytes,
        process,
    )
    .map_err(Error::TooSmall)?;
    let mut guest = claim(options)?;
    fill(&mut guest, &plan.copied, file).map_err(|error| Error::Load(path.clone(), error))?;

    if let (true, Some(address)) = (image.target != Target::Spt, image.target_address) {
        put(&mut guest, address, &(Target::Spt as u32).to_le_bytes())?;
    }
    let world = World::open(image, &pairs, options)?;
    let attached = &world.attachments;

    let facts = boot::Facts {
        memory: options.memory_bytes,
        image_end: image.end,
        epoll_fd: world.epoll.as_raw_fd(),
        timer_fd: world.timer.as_raw_fd(),
    };
    let area = boot::area(facts, &world.manifest(&image.entries), &command_line);
    put(&mut guest, BOOT_INFO, &area)?;
    if let Some(extension) = image.extension {
        let process = if process { host_flag::PROCESS } else { 0 };
        let flags = process | boot::flags(options);
        let info = boot::host_info(flags, world.shared(), &attached.devices, &attached.pci);
        put(&mut guest, extension.host_info, info.as_bytes())?;
    }
    let ready = guest.finish(&plan.regions, file);
    let ready = ready.map_err(|error| Error::System("guest memory cannot be protected", error))?;
    if !process {
        let grants = grants(&world);
        let filter = jail::compile(&jail::rules(&grants), options.share.is_some());
        let filter = std::mem::ManuallyDrop::new(filter.map_err(Error::Jail)?);
        jail::close(&grants, &filter).map_err(Error::Jail)?;
    }
    ready.enter(image.entry, BOOT_INFO)
}

pub(crate) fn die_with(parent: Option<i32>) -> Result<(), Error> {
    let Some(parent) = parent else { return Ok(()) };
    process::die_with(parent).map_err(|_| Error::Parent(parent))
}

fn claim(options: &Options) -> Result<Filling, Error> {
    let memory = options.memory_bytes;
    Filling::claim(memory).map_err(|error| Error::Memory(memory >> 20, error))
}

fn grants(world: &World) -> Grants {
    let devices = world.attachments.devices.iter();
    Grants {
        epoll_fd: world.epoll.as_raw_fd(),
        timer_fd: world.timer.as_raw_fd(),
        event_fd: world.event.as_ref().map(AsRawFd::as_raw_fd),
        held: world.attachments.pci.held().collect(),
        sockets: world.attachments.pci.sockets().collect(),
        devices: devices.map(|d| (d.fd.as_raw_fd(), d.device)).collect(),
    }
}

pub(crate) fn segments(image: &Image) -> Vec<memory::Segment> {
    let segment = |segment: &image::Segment| memory::Segment {
        addresses: segment.address..segment.end(),
        file_offset: segment.file_offset as u64,
        file_size: segment.file_size as u64,
        rights: rights(segment.rights),
    };
    image.segments.iter().map(segment).collect()
}

fn rights(rights: image::Rights) -> ProtFlags {
    let mut flags = ProtFlags::empty();
    flags.set(ProtFlags::READ, rights.read);
    flags.set(ProtFlags::WRITE, rights.write);
    flags.set(ProtFlags::EXEC, rights.execute);
    flags
}

/// Copies the segments from the file to where the guest expects them.
pub(crate) fn fill(
    guest: &mut impl Memory,
    segments: &[memory::Segment],
    file: &File,
) -> Result<(), load::Error> {
    for segment in segments {
        // The plan lies inside of guest memory, so there is always such a place.
        let place = guest.bytes(segment.addresses.start, segment.file_size);
        let read = file.read_exact_at(place.unwrap_or_default(), segment.file_offset);
        read.map_err(load::Error::Read)?;
    }
    Ok(())
}

/// Copies `bytes` to `address`.
pub(crate) fn put(guest: &mut impl Memory, address: u64, bytes: &[u8]) -> Result<(), Error> {
    let outside = || Error::System("guest memory", io::ErrorKind::InvalidData.into());
    let place = guest
        .bytes(address, bytes.len() as u64)
        .ok_or_else(outside)?;
    place.copy_from_slice(bytes);
    Ok(())
}
