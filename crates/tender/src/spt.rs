//! From a command line to a running guest: check, attach, map, jail, jump.

use crate::attach::{self, Attached};
use crate::jail::{self, Grants};
use crate::options::{Host, Options};
use crate::sys::descriptor;
use crate::sys::memory::Filling;
use crate::sys::personality::read_implies_exec;
use crate::sys::signal;
use crate::{boot, check, memory, share};
use abi::extension::host_flag;
use abi::manifest::{Device, Entry};
use abi::note::Target;
use abi::spt::{BOOT_INFO, EPOLL_TIMER};
use image::{Image, ImageError};
use rustix::event::epoll;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use rustix::process::Signal;
use rustix::time::{TimerfdClockId, TimerfdFlags};
use std::convert::Infallible;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::{fmt, io};
use zerocopy::IntoBytes;

/// Why a guest was not started.
#[derive(Debug)]
pub enum Error {
    /// The image cannot be read.
    Open(PathBuf, io::Error),
    /// The image is no file, or larger than one can be.
    NoFile(PathBuf),
    /// The image is none.
    Image(PathBuf, ImageError),
    /// The image is for another host.
    Target(PathBuf, Target),
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
    /// The personality makes readable memory executable.
    ReadImpliesExec,
    /// The shared file is none.
    Share(share::Error),
    /// The jail cannot be closed.
    Jail(jail::Error),
    /// What the kernel says about a step.
    System(&'static str, io::Error),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(path, error) => {
                write!(
                    f,
                    "{path:?}: {error}; name an image, as made by: outboard build"
                )
            }
            Self::NoFile(path) => write!(
                f,
                "{path:?} is no file of up to {} MiB; name an image, as made by: outboard build",
                IMAGE_BYTES_MAX >> 20
            ),
            Self::Image(path, error) => {
                write!(
                    f,
                    "{path:?}: {error}; make the image anew with: outboard build"
                )
            }
            Self::Target(path, target) => write!(
                f,
                "{path:?} is an image for {}; start one for spt, as made by: outboard build",
                target.name()
            ),
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
            Self::ReadImpliesExec => write!(
                f,
                "readable memory would be executable here; start it with: setarch --reset-personality"
            ),
            Self::Share(error) => error.fmt(f),
            Self::Jail(error) => error.fmt(f),
            Self::System(step, error) => write!(f, "{step}: {error}; is this Linux 5.9 or later?"),
        }
    }
}

fn system(step: &'static str) -> impl Fn(Errno) -> Error {
    move |error| Error::System(step, error.into())
}

/// Starts the image that `options` name. If all goes well, this process becomes the guest.
///
/// # Errors
/// Why it could not be started; nothing is left behind then.
pub fn start(options: &Options) -> Result<Infallible, Error> {
    die_with(options.parent)?;
    signal::reset_pipe();
    descriptor::open_standard().map_err(|error| Error::System("/dev/null", error))?;
    if read_implies_exec() {
        return Err(Error::ReadImpliesExec);
    }
    let (file, bytes, image) = load(&options.image)?;
    let pairs = check::pair(&image.entries, options).map_err(Error::Check)?;
    let command_line = boot::command_line(&options.arguments).map_err(Error::CommandLine)?;
    let boot_bytes = boot::size(image.entries.len(), &command_line);
    let process = options.host == Host::Process;
    let plan = memory::plan(
        segments(&image),
        image.end,
        options.memory_bytes,
        boot_bytes,
        process,
    )
    .map_err(Error::TooSmall)?;
    let mut guest = claim(options)?;
    for segment in &plan.copied {
        put(&mut guest, segment.addresses.start, segment.bytes(&bytes))?;
    }
    drop(bytes);

    let features = image.extension.map_or(0, |extension| extension.features);
    let attachments = attach::attach(&pairs, options, features).map_err(Error::Attach)?;
    let attached = &attachments.devices;
    let (epoll, timer) = wait_set(attached)?;
    let counters = options
        .share
        .as_ref()
        .map(share::open)
        .transpose()
        .map_err(Error::Share)?;

    let facts = boot::Facts {
        memory: options.memory_bytes,
        image_end: image.end,
        epoll_fd: epoll.as_raw_fd(),
        timer_fd: timer.as_raw_fd(),
    };
    let area = boot::area(facts, &manifest(&image.entries, attached), &command_line);
    put(&mut guest, BOOT_INFO, &area)?;
    if let Some(extension) = image.extension {
        let flags = if process { host_flag::PROCESS } else { 0 };
        let counters = counters.filter(|_| features & abi::extension::feature::COUNTERS != 0);
        let info = boot::host_info(flags, counters, attached);
        put(&mut guest, extension.host_info, info.as_bytes())?;
    }
    let ready = guest.finish(&plan.regions, &file);
    let ready = ready.map_err(|error| Error::System("guest memory cannot be protected", error))?;
    if !process {
        let grants = grants(attached, &epoll, &timer);
        let filter = jail::compile(&jail::rules(&grants), options.share.is_some());
        let filter = std::mem::ManuallyDrop::new(filter.map_err(Error::Jail)?);
        jail::close(&grants, &filter).map_err(Error::Jail)?;
    }
    ready.enter(image.entry, BOOT_INFO)
}

fn die_with(parent: Option<i32>) -> Result<(), Error> {
    let Some(parent) = parent else { return Ok(()) };
    let set = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    set.map_err(system("no signal at the parent's end"))?;
    // The parent may have ended before the signal was asked for.
    let actual = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if actual == parent {
        Ok(())
    } else {
        Err(Error::Parent(parent))
    }
}

/// The descriptor that the guest waits on, and the timer in it. A network is known by its index in
/// the manifest.
fn wait_set(attached: &[Attached]) -> Result<(OwnedFd, OwnedFd), Error> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("no epoll"))?;
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags);
    let timer = timer.map_err(system("no timer"))?;
    let add = |fd: &OwnedFd, data| {
        let data = epoll::EventData::new_u64(data);
        epoll::add(&epoll, fd, data, epoll::EventFlags::IN).map_err(system("cannot wait"))
    };
    add(&timer, EPOLL_TIMER)?;
    for net in attached
        .iter()
        .filter(|device| matches!(device.device, Device::Net { .. }))
    {
        add(&net.fd, net.index as u64)?;
    }
    Ok((epoll, timer))
}

fn claim(options: &Options) -> Result<Filling, Error> {
    let memory = options.memory_bytes;
    Filling::claim(memory).map_err(|error| Error::Memory(memory >> 20, error))
}

/// The manifest as the guest sees it, with what was attached.
fn manifest(entries: &[Entry], attached: &[Attached]) -> Vec<Entry> {
    let mut manifest = entries.to_vec();
    for device in attached {
        manifest[device.index].attach(device.device, device.fd.as_raw_fd());
    }
    manifest
}

fn grants(attached: &[Attached], epoll: &OwnedFd, timer: &OwnedFd) -> Grants {
    let devices = attached
        .iter()
        .map(|device| (device.fd.as_raw_fd(), device.device));
    Grants {
        epoll_fd: epoll.as_raw_fd(),
        timer_fd: timer.as_raw_fd(),
        devices: devices.collect(),
    }
}

/// Largest file that is taken for an image, in bytes.
const IMAGE_BYTES_MAX: u64 = 256 << 20;

/// Reads the image and checks that it is one for this host.
fn load(path: &Path) -> Result<(File, Vec<u8>, Image), Error> {
    let open = |error| Error::Open(path.to_owned(), error);
    // NONBLOCK: a FIFO of this name must not hold the start up.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(file.map_err(|error| open(error.into()))?);
    let metadata = file.metadata().map_err(open)?;
    if !metadata.is_file() || metadata.len() > IMAGE_BYTES_MAX {
        return Err(Error::NoFile(path.to_owned()));
    }
    let mut bytes = vec![0; metadata.len() as usize];
    file.read_exact_at(&mut bytes, 0).map_err(open)?;
    let image = Image::parse(&bytes).map_err(|error| Error::Image(path.to_owned(), error))?;
    if image.target != Target::Spt {
        return Err(Error::Target(path.to_owned(), image.target));
    }
    Ok((file, bytes, image))
}

fn segments(image: &Image) -> Vec<memory::Segment> {
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

/// Copies `bytes` to `address`.
fn put(guest: &mut Filling, address: u64, bytes: &[u8]) -> Result<(), Error> {
    let outside = || Error::System("guest memory", io::ErrorKind::InvalidData.into());
    let place = guest
        .bytes(address, bytes.len() as u64)
        .ok_or_else(outside)?;
    place.copy_from_slice(bytes);
    Ok(())
}
