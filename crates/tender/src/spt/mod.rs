//! The hosts `spt` and `process`: the tender maps guest memory into its own address space, closes
//! the jail (on `spt` only) and becomes the guest.

pub mod probe;
pub(crate) mod signal;

use crate::attach::region;
use crate::boot;
use crate::core_file::CoreFile;
use crate::jail::{self, Granted, Grants};
use crate::memory::{self, Gpa, Plan, Segment};
use crate::options::Host;
use crate::share;
use crate::start::{self, Error, Resources, Start, Step, announce, put};
use crate::sys::memory::Filling;
use abi::extension::host_flag;
use abi::note::Target;
use abi::spt::BOOT_INFO;
use std::convert::Infallible;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use zerocopy::IntoBytes;

/// Starts an image. If all goes well, this process becomes the guest.
///
/// # Errors
/// Why it could not be started; nothing is left behind then.
pub fn run(start: &Start<'_>) -> Result<Infallible, Error> {
    let Start { options, image, .. } = *start;
    if options.huge_pages {
        return Err(Error::OnlyHvt);
    }
    let jailed = options.host != Some(Host::Process);
    let pairs = start.pairs()?;
    let command_line = start.command_line()?;
    let plan = plan(start, jailed, &command_line)?;
    let memory = options.memory_bytes;
    let guest = Filling::claim(memory);
    let mut guest = guest.map_err(|error| Error::Memory(memory >> 20, error))?;
    start.fill(&mut guest, &plan.copied)?;
    start.stand_by()?;
    let resources = start.resources(&pairs)?;
    hand_over(&mut guest, start, jailed, &resources, &command_line)?;
    let ready = guest.finish(&plan.regions, start.file);
    let ready = ready.map_err(|error| Error::System(Step::Protect, error))?;
    let core_file = start.core_file()?;
    let unshared = match (&resources.mapped, &core_file) {
        (None, Some(_)) => Some(share::anonymous().map_err(Error::Share)?),
        _ => None,
    };
    let mapped = resources.mapped.as_ref().or(unshared.as_ref());
    if let Some(mapped) = mapped {
        let reported = mapped.report_quit().map_err(share::Error::Handlers);
        reported.map_err(Error::Share)?;
        if core_file.is_some() {
            mapped.ask_for_panics();
        }
    }
    announce(start, &resources);
    if jailed {
        let mut grants = grants(&resources);
        let descriptor = |core: &CoreFile| (core.file.as_raw_fd(), memory);
        grants.core_file = core_file.as_ref().map(descriptor);
        close_jail(&ManuallyDrop::new(grants), mapped.is_some())?;
    }
    ready.enter(image.entry, BOOT_INFO, core_file)
}

/// What will lie where. Without a jail, code is mapped from the file where that is possible.
fn plan(start: &Start<'_>, jailed: bool, command_line: &[u8]) -> Result<Plan, Error> {
    let Start { options, image, .. } = *start;
    let boot_bytes = boot::size(image.entries.len(), command_line);
    let segments = image.segments.iter().map(Segment::of).collect();
    let plan = memory::plan(
        segments,
        image.end,
        options.memory_bytes,
        boot_bytes,
        !jailed,
    );
    plan.map_err(Error::TooSmall)
}

/// Writes into guest memory what the guest is told: its host, boot information, and what images
/// that know Outboard look for.
fn hand_over(
    guest: &mut Filling,
    start: &Start<'_>,
    jailed: bool,
    resources: &Resources,
    command_line: &[u8],
) -> Result<(), Error> {
    let Start { options, image, .. } = *start;
    if let (true, Some(address)) = (image.target != Target::Spt, image.target_address) {
        put(
            guest,
            Gpa::new(address),
            &(Target::Spt as u32).to_le_bytes(),
        )?;
    }
    let facts = boot::Facts {
        memory: options.memory_bytes,
        image_end: image.end,
        epoll_fd: resources.epoll.as_raw_fd(),
        timer_fd: resources.timer.as_raw_fd(),
    };
    let area = boot::area(facts, &resources.manifest(&image.entries), command_line);
    put(guest, Gpa::new(BOOT_INFO), &area)?;
    if let Some(extension) = image.extension {
        let process = if jailed { 0 } else { host_flag::PROCESS };
        let attached = &resources.attachments;
        let mut info = boot::host_info(
            process | boot::flags(options),
            resources.shared(),
            &attached.devices,
            &attached.pci,
            &attached.regions,
            start::seed()?,
        );
        // Only here can a tap be read into the memory of a link.
        let links = attached.regions.iter().map(|region| region.link.as_ref());
        for (info, link) in info.regions.iter_mut().zip(links) {
            info.open = link.is_some_and(|link| link.open).into();
        }
        info.quiet_fd = resources.quiet.as_ref().map_or(0, AsRawFd::as_raw_fd);
        put(guest, Gpa::new(extension.host_info), info.as_bytes())?;
    }
    Ok(())
}

/// What the guest may use of `resources`, by number.
fn grants(resources: &Resources) -> Grants {
    let devices = resources.attachments.devices.iter();
    let regions = &resources.attachments.regions;
    let held = resources.attachments.pci.held();
    Grants {
        epoll_fd: resources.epoll.as_raw_fd(),
        quiet_fd: resources.quiet.as_ref().map(AsRawFd::as_raw_fd),
        timer_fd: resources.timer.as_raw_fd(),
        event_fd: resources.event.as_ref().map(AsRawFd::as_raw_fd),
        held: held.chain(region::held(regions)).collect(),
        bells: regions
            .iter()
            .filter_map(|region| Some(region.other_bell()?.as_raw_fd()))
            .collect(),
        sockets: resources.attachments.pci.sockets().collect(),
        devices: devices.map(Granted::of).collect(),
        core_file: None,
    }
}

/// Closes the jail around this process. A forbidden call raises a signal if `reported`, for the
/// handler that writes it down; otherwise the kernel ends the process.
fn close_jail(grants: &Grants, reported: bool) -> Result<(), Error> {
    let filter = jail::compile(&jail::rules(grants), reported).map_err(Error::Jail)?;
    // Once the jail is closed, freeing memory may be a forbidden call.
    let filter = ManuallyDrop::new(filter);
    jail::close(grants, &filter).map_err(Error::Jail)
}
