//! What a guest is lent, whatever its host: devices, something to wait on, the shared file.

use super::{Error, Step};
use crate::attach::pci::{self, Pci};
use crate::attach::region::Region;
use crate::attach::{self, Attached, Attachments};
use crate::check::Pairs;
use crate::options::Options;
use crate::rules;
use crate::share::{self, SharedFile};
use crate::sys::fault::Shared;
use abi::extension::{EPOLL_GONE, EPOLL_SHARE, feature};
use abi::manifest::{Device, Entry};
use abi::spt::EPOLL_TIMER;
use image::Image;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{TimerfdClockId, TimerfdFlags};
use std::fmt;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};

/// All that a guest is lent.
#[derive(Debug)]
pub struct Resources {
    /// Its devices.
    pub attachments: Attachments,
    /// What it waits on: networks by their index in the manifest, the timer, the event.
    pub epoll: OwnedFd,
    /// The same without the networks, for a guest that has links: what it waits on while it has no
    /// room for frames.
    pub quiet: Option<OwnedFd>,
    /// The timer in both.
    pub timer: OwnedFd,
    /// What becomes readable when the host has changed the shared file.
    pub event: Option<OwnedFd>,
    /// The shared file, mapped, with the rules that the guest begins with.
    pub share: Option<SharedFile>,
    /// Where it is mapped.
    pub mapped: Option<Shared>,
}

/// Says lines that `--verbose` asked for.
pub fn say<L: fmt::Display>(lines: &[L]) {
    for line in lines {
        // Who closed standard error does not want to know.
        let _ = writeln!(std::io::stderr(), "outboard-tender: {line}");
    }
}

impl Resources {
    /// Opens what `options` name for `image`.
    ///
    /// # Errors
    /// The first thing that cannot be had.
    pub fn open(image: &Image, pairs: &Pairs<'_>, options: &Options) -> Result<Self, Error> {
        let features = image.extension.map_or(0, |extension| extension.features);
        let attachments = attach::attach(pairs, options, image).map_err(Error::Attach)?;
        if options.verbose {
            say(&pci::report(&attachments.pci, &pairs.pci));
        }
        let (epoll, timer) = wait_set(&attachments.devices)?;
        interrupts(&attachments.pci, image.entries.len(), &epoll)?;
        let first = image.entries.len() + image.pci.len();
        bells(&attachments.regions, first, &epoll)?;
        let quiet = quiet_set(&attachments, image.entries.len(), first, &timer)?;
        let event = event(options, features, [&epoll].into_iter().chain(&quiet))?;
        let share = options.share.as_ref().map(share::open).transpose();
        let (share, mapped) = share.map_err(Error::Share)?.unzip();
        if let Some(path) = &options.rules {
            let given = rules::give(path, features, share.as_ref());
            given.map_err(|error| Error::Rules(path.clone(), error))?;
        }
        Ok(Self {
            attachments,
            epoll,
            quiet,
            timer,
            event,
            share,
            mapped,
        })
    }

    /// The manifest as the guest sees it, with what was attached.
    pub fn manifest(&self, entries: &[Entry]) -> Vec<Entry> {
        let mut manifest = entries.to_vec();
        for device in &self.attachments.devices {
            manifest[device.index].attach(device.device, device.fd.as_raw_fd());
        }
        manifest
    }

    /// Address and size of the shared file, for the guest.
    pub fn shared(&self) -> Option<(u64, u64)> {
        let share = self.share.as_ref()?;
        Some((abi::share::BASE, share.size))
    }
}

fn system(step: Step) -> impl Fn(Errno) -> Error {
    move |error| Error::System(step, error.into())
}

/// The descriptor that the guest waits on, and the timer in it. Networks, and sockets of the
/// host's, are known by their index in the manifest.
///
/// # Errors
/// [`Error::System`] with the step that the kernel refused.
pub fn wait_set(attached: &[Attached]) -> Result<(OwnedFd, OwnedFd), Error> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags);
    let timer = timer.map_err(system(Step::Timer))?;
    Ok((set_of(&timer, attached.iter())?, timer))
}

/// What a guest waits on for the timer and these devices.
fn set_of<'a>(
    timer: &OwnedFd,
    attached: impl Iterator<Item = &'a Attached>,
) -> Result<OwnedFd, Error> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system(Step::Epoll))?;
    let add = |fd: &OwnedFd, data| {
        let data = epoll::EventData::new_u64(data);
        epoll::add(&epoll, fd, data, epoll::EventFlags::IN).map_err(system(Step::Wait))
    };
    add(timer, EPOLL_TIMER)?;
    for device in attached {
        match device.device {
            Device::Net { .. } | Device::Sockets => add(&device.fd, device.index as u64)?,
            Device::Block { .. } => {}
        }
    }
    Ok(epoll)
}

/// What a guest that has links waits on while no network may wake it up; `None` for one that has
/// no links, or no networks.
fn quiet_set(
    attachments: &Attachments,
    entries: usize,
    first: usize,
    timer: &OwnedFd,
) -> Result<Option<OwnedFd>, Error> {
    let is_network = |attached: &&Attached| matches!(attached.device, Device::Net { .. });
    let has_link = attachments.regions.iter().any(|one| one.link.is_some());
    if !has_link || !attachments.devices.iter().any(|one| is_network(&one)) {
        return Ok(None);
    }
    let others = attachments.devices.iter().filter(|one| !is_network(one));
    let quiet = set_of(timer, others)?;
    interrupts(&attachments.pci, entries, &quiet)?;
    bells(&attachments.regions, first, &quiet)?;
    Ok(Some(quiet))
}

/// Puts the events of interrupts into the wait set, by the devices' numbers behind the `entries` of
/// the manifest, and the end of processes that are devices. All are edge-triggered: the guest reads
/// none.
///
/// # Errors
/// [`Error::System`] with the step that the kernel refused.
pub fn interrupts(pci: &Pci, entries: usize, epoll: &OwnedFd) -> Result<(), Error> {
    for (number, device) in pci.devices.iter().enumerate() {
        if let Some(event) = &device.event {
            let data = epoll::EventData::new_u64((entries + number) as u64);
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(epoll, event, data, flags).map_err(system(Step::Wait))?;
        }
        if let Some(socket) = &device.socket {
            let data = epoll::EventData::new_u64(EPOLL_GONE + (entries + number) as u64);
            let flags = epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
            epoll::add(epoll, socket, data, flags).map_err(system(Step::Wait))?;
        }
    }
    Ok(())
}

/// Puts the events by which the other ends of links, and processes that serve disks, wake the guest
/// up into the wait set, by the numbers of the regions, of which region 0 would have `first`; and
/// the end of those processes. They are edge-triggered, as above.
fn bells(regions: &[Region], first: usize, epoll: &OwnedFd) -> Result<(), Error> {
    for (number, region) in (first..).zip(regions) {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let add = |event: &OwnedFd, data| {
            let data = epoll::EventData::new_u64(data);
            epoll::add(epoll, event, data, flags).map_err(system(Step::Wait))
        };
        if let Some(bell) = region.bell() {
            add(bell, number as u64)?;
        }
        if let Some(queue) = &region.queue {
            add(&queue.server, EPOLL_GONE + number as u64)?;
        }
    }
    Ok(())
}

/// Puts the event of the shared file into the wait sets of a guest that looks for it. It is
/// edge-triggered, for the guest cannot read it: each time that somebody writes, the guest wakes
/// up once.
fn event<'a>(
    options: &Options,
    features: u32,
    sets: impl Iterator<Item = &'a OwnedFd>,
) -> Result<Option<OwnedFd>, Error> {
    let looks_for_it = features & (feature::RULES | feature::CAPTURE) != 0;
    let Some(location) = options.event.as_ref().filter(|_| looks_for_it) else {
        return Ok(None);
    };
    let event = share::open_event(location).map_err(Error::Share)?;
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    let failed =
        |error: Errno| Error::Share(share::Error::Event(share::name(location), error.into()));
    for set in sets {
        let data = epoll::EventData::new_u64(EPOLL_SHARE);
        epoll::add(set, &event, data, flags).map_err(failed)?;
    }
    Ok(Some(event))
}
