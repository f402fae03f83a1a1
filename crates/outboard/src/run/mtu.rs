//! The monitor's eye on the MTUs of its guest's networks: a guest in a jail learns them by the
//! shared file alone.

use crate::share::SharedFile;
use abi::manifest::ENTRIES_MAX;
use abi::share::MTUS_OFFSET;
use linux::mtu::Watch;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, pwrite};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::{self, sleep};
use std::time::Duration;
use tender::options::Options;
use tender::{attach, load};

/// After a change, others have so long to come with it: whoever makes and deletes interfaces by the
/// thousand does not keep the monitor busy.
const PAUSE: Duration = Duration::from_millis(10);

/// A network of the guest's: its index in the manifest, and its interface.
struct Watched {
    index: usize,
    watch: Watch,
    /// What the guest was told.
    told: i32,
}

/// Tells the guest that was started with `options` by the tender `tender` what MTUs its networks
/// have, whenever that changes, until what this returns is dropped. Best effort: without it the
/// guest keeps those of the start.
pub fn watch(share: &SharedFile, options: &Options, tender: u32) -> Option<OwnedFd> {
    if options.nets.is_empty() {
        return None;
    }
    let (end, watching) = pipe_with(PipeFlags::CLOEXEC).ok()?;
    let share = share.as_fd().try_clone_to_owned().ok()?;
    let options = options.clone();
    // A thread of its own also because it may have to enter another namespace.
    let body = move || {
        let mut all = watched(&options, tender);
        while !all.is_empty() {
            for one in &mut all {
                let _ = tell(&share, one);
            }
            if !changes(&all, &end) {
                break;
            }
            sleep(PAUSE);
        }
    };
    thread::Builder::new().name("mtu".into()).spawn(body).ok()?;
    Some(watching)
}

/// The networks of the manifest that have an interface here.
fn watched(options: &Options, tender: u32) -> Vec<Watched> {
    // Of an image that cannot be read, the tender complains.
    let Ok((_, image)) = load::open(&options.image) else {
        return Vec::new();
    };
    let index = |name: &str| {
        let mut networks = image.networks();
        let (index, _) = networks.find(|(_, other)| *other == name)?;
        (index < ENTRIES_MAX).then_some(index)
    };
    let watched = |(name, watch): (String, Watch)| {
        Some(Watched {
            index: index(&name)?,
            watch,
            told: 0,
        })
    };
    let watches = attach::watches(options, tender).into_iter();
    watches.filter_map(watched).collect()
}

/// Tells the guest the MTU of one network, if it does not know it.
fn tell(share: &OwnedFd, one: &mut Watched) -> Result<(), Errno> {
    // An interface that is not there yet, or no more, has none.
    let mtu = one.watch.mtu().unwrap_or(0);
    let word = u64::from(u16::try_from(mtu).unwrap_or(0));
    if mtu != one.told && word != 0 {
        let place = MTUS_OFFSET + one.index * size_of::<u64>();
        pwrite(share, &word.to_ne_bytes(), place as u64)?;
        one.told = mtu;
    }
    Ok(())
}

/// Waits until something has changed; `false` at the end.
fn changes(all: &[Watched], end: &OwnedFd) -> bool {
    let watches = all.iter().map(|one| PollFd::new(&one.watch, PollFlags::IN));
    let mut ends: Vec<_> = watches.collect();
    ends.push(PollFd::new(end, PollFlags::IN));
    match poll(&mut ends, None) {
        Ok(_) | Err(Errno::INTR) => ends.last().is_some_and(|end| end.revents().is_empty()),
        Err(_) => false,
    }
}
