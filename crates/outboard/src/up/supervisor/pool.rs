//! The descriptors that components are handed: opened or made once, and the same ones for each
//! instance. So a neighbour sees no cable pulled.

use super::{Managed, Supervisor, say};
use crate::up::component::Component;
use crate::up::handed::{self, Handed, PROXY};
use crate::up::machine::{Event, State};
use crate::up::program::SLOTS;
use crate::up::spare;
use abi::link::{file_bytes, slots};
use abi::region::{Request, kind};
use abi::state::{COPIES, COPY_WORDS, Header, Mark, word};
use image::Image;
use linux::{link, memory, tap};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tender::{attach, load};
use zerocopy::IntoBytes;

impl Supervisor {
    /// Opens the taps of a component that are not open, or were deleted since, and makes its links
    /// and states.
    pub(super) fn fill_pool(&mut self, index: usize, now: Duration) -> Result<(), String> {
        let component = self.all[index].component().clone();
        if component.handed().all(|what| self.has_tap(&what)) {
            return Ok(());
        }
        let image = image(&component)?;
        for device in &component.devices {
            let Some(what) = device.handed(&component.name) else {
                continue;
            };
            let asked = |kind| asked(&component, image.as_ref(), kind, &device.name);
            match &what {
                Handed::Tap(_) if self.has_tap(&what) => {}
                Handed::Tap(name) => {
                    let extension = image.as_ref().and_then(|image| image.extension);
                    let features = extension.map_or(0, |extension| extension.features);
                    let tap = attach::open_tap(name, features)
                        .map_err(|why| format!("tap:{name}: {why}"))?;
                    self.pool.insert(what, vec![tap]);
                }
                Handed::Side { .. } => self.join(what, asked(kind::LINK)?, now)?,
                Handed::State { .. } => self.keep(what, asked(kind::STATE)?)?,
            }
        }
        Ok(())
    }

    /// Whether something to be handed over is there as it was.
    pub(super) fn has(&self, what: &Handed) -> bool {
        match what {
            Handed::Tap(_) => self.has_tap(what),
            Handed::Side { .. } => self.is_joined(what),
            Handed::State { .. } => self.pool.contains_key(what),
        }
    }

    /// Whether another image of a component would be handed what its own one has.
    pub(super) fn fits(&self, component: &Component) -> Result<(), String> {
        let image = image(component)?;
        for device in &component.devices {
            let Some(what) = device.handed(&component.name) else {
                continue;
            };
            let kind = match what {
                Handed::Tap(_) => continue,
                Handed::Side { .. } => kind::LINK,
                Handed::State { .. } => kind::STATE,
            };
            let asked = asked(component, image.as_ref(), kind, &device.name)?;
            let kept = self.pool.get(&what);
            if kind == kind::STATE {
                understands(component, kept, &device.name)?;
            }
            let has = bytes_of(kept);
            if has.is_some_and(|has| has != asked) {
                return Err(format!(
                    "{} asks for {asked} bytes as {}, and has {}; name it in the file and type: \
                     outboard restart {}",
                    component.image.display(),
                    device.name,
                    has.unwrap_or_default(),
                    component.name
                ));
            }
        }
        Ok(())
    }

    /// Whether it is a tap that is open and still there.
    fn has_tap(&self, what: &Handed) -> bool {
        let open = self.pool.get(what).and_then(|open| open.first());
        let interface = open.and_then(|tap| tap::interface(tap.as_fd()).ok());
        what.tap()
            .is_some_and(|name| interface.is_some_and(|found| found.name == name))
    }

    /// Whether the pool has both ends of each of a component's links.
    pub(super) fn has_links(&self, component: &Component) -> bool {
        let mut sides = component.handed().filter(|what| what.other().is_some());
        sides.all(|side| self.is_joined(&side))
    }

    /// Makes the memory of a state, unless there is some of that size already.
    fn keep(&mut self, state: Handed, bytes: u64) -> Result<(), String> {
        let had = bytes_of(self.pool.get(&state));
        if had == Some(bytes) {
            return Ok(());
        }
        let Handed::State { owner, name } = &state else {
            return Ok(());
        };
        let made = memory::sealed("state", bytes);
        let made = made.map_err(|why| format!("state.{name}: {why}; see `ulimit -n`"))?;
        if let Some(had) = had {
            let what = format!(
                "state.{name} begins anew: it had {had} bytes, and the image asks for {bytes}"
            );
            say(owner, what);
        }
        self.pool.insert(state, vec![made]);
        Ok(())
    }

    fn is_joined(&self, side: &Handed) -> bool {
        let other = side.other().and_then(|other| self.pool.get(&other));
        match (self.pool.get(side), other) {
            (Some(side), Some(other)) => handed::is_link(side, other),
            _ => false,
        }
    }

    /// Makes the link of which this is an end, with so many bytes at this end, unless it is made
    /// already. Who runs at the other end of the one before it is started again.
    fn join(&mut self, side: Handed, bytes: u64, now: Duration) -> Result<(), String> {
        if bytes_of(self.pool.get(&side)) == Some(bytes) && self.is_joined(&side) {
            return Ok(());
        }
        let Some(other @ Handed::Side { link, end, .. }) = &side.other() else {
            return Ok(());
        };
        let others = |one: &Managed| one.name() == *end;
        let peer = self.all.iter().position(others);
        let others_bytes = match peer {
            _ if end == PROXY => file_bytes(SLOTS),
            None => return Err(format!("link:{link}: there is no {end}")),
            Some(peer) => {
                let component = self.all[peer].component();
                let mut devices = component.devices.iter();
                let device = devices.find(|device| device.link() == Some(link));
                let device =
                    device.ok_or_else(|| format!("link:{link}: {end} has no end of it"))?;
                let image = image(component)?;
                asked(component, image.as_ref(), kind::LINK, &device.name)?
            }
        };
        let sides = link::make([bytes, others_bytes].map(slots));
        let sides = sides.map_err(|why| format!("link:{link}: {why}; see `ulimit -n`"))?;
        let [own, others] = sides.map(handed::descriptors);
        self.pool.insert(side.clone(), own);
        self.pool.insert(other.clone(), others);
        let Some(peer) = peer else {
            self.dismiss(link);
            return Ok(());
        };
        // It was handed the former one.
        self.give_spare(peer, spare::Event::Drop, now);
        if let State::Starting { .. } | State::Up { .. } = self.all[peer].machine.state() {
            say(end, format_args!("link:{link} was made anew"));
            self.give(peer, Event::Restart, now);
        }
        Ok(())
    }
}

/// The size of the memory that an end of a link, or a state, writes.
fn bytes_of(kept: Option<&Vec<OwnedFd>>) -> Option<u64> {
    memory::sealed_bytes(kept?.first()?.as_fd())
}

/// Whether the image of a component can take up what lies in the state of this name. One that does
/// not say so is believed.
fn understands(
    component: &Component,
    kept: Option<&Vec<OwnedFd>>,
    name: &str,
) -> Result<(), String> {
    let Some(kept) = kept.and_then(|kept| layout_of(kept)) else {
        return Ok(());
    };
    let path = component.image.display();
    let bytes = std::fs::read(&component.image).map_err(|why| format!("{path}: {why}"))?;
    match Mark::find(&bytes, name) {
        Some(layout) if layout != kept => Err(format!(
            "{path} does not understand what state.{name} holds (layout {kept:#x}; it has \
             {layout:#x}); to begin anew, name it in the file and type: outboard restart {}",
            component.name
        )),
        _ => Ok(()),
    }
}

/// The layout of what an image has left in a state, if that is sound.
fn layout_of(kept: &[OwnedFd]) -> Option<u64> {
    let memory = kept.first()?;
    let copies = (0..COPIES as u64).map(|copy| {
        let mut words = [0; word::COUNT];
        let offset = copy * (COPY_WORDS * size_of::<u64>()) as u64;
        // A copy that cannot be read is none.
        let read = rustix::io::pread(memory, words.as_mut_bytes(), offset);
        match read {
            Ok(count) if count == size_of_val(&words) => words,
            _ => [0; word::COUNT],
        }
    });
    Header::newest(copies).map(|(_, header)| header.layout)
}

/// The image of a component; none of a program.
fn image(component: &Component) -> Result<Option<Image>, String> {
    if component.program.is_some() {
        return Ok(None);
    }
    let opened = load::open(&component.image);
    let (_, image) = opened.map_err(|why| format!("{}: {why}", component.image.display()))?;
    Ok(Some(image))
}

/// How many bytes the image asks for at its end of a link, or for a state; a program has a link's.
fn asked(
    component: &Component,
    image: Option<&Image>,
    kind: u32,
    name: &str,
) -> Result<u64, String> {
    let Some(image) = image else {
        return Ok(file_bytes(SLOTS));
    };
    // What a link carries is between the two images.
    let of_kind = |region: &&Request| match kind {
        kind::LINK => region.is_link(),
        _ => region.kind == kind,
    };
    let mut regions = image.regions.iter().filter(of_kind);
    let found = regions.find(|region| region.name() == Some(name));
    let found = found.map(|region| u64::from(region.bytes));
    let path = component.image.display();
    found.ok_or_else(|| match kind {
        kind::LINK => format!("{path}: no link is called {name}"),
        _ => format!("{path}: no state is called {name}"),
    })
}
