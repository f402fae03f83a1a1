//! The way to the disk: through the controller's ports in order, and through hubs and hubs behind
//! them. What is no disk is left alone, and has no address.

use super::context::{Place, Speed};
use super::descriptor::{self, DEVICE_BYTES, Described, Identity, Storage};
use super::error::Error;
use super::host::{ANSWER_BYTES, Device, HUBS_MAX, Host, LEVELS};
use super::hub::Hub;
use super::wait::{MILLISECOND, late};

/// How long what is connected may take to be so behind a reset, in nanoseconds, and how often it
/// is looked for.
const CONNECT_NANOSECONDS: u64 = 500 * MILLISECOND;
const ROUNDS: usize = 5;
/// How long is looked for a disk, at most, however many devices there are, in nanoseconds.
const FIND_NANOSECONDS: u64 = 30_000 * MILLISECOND;

/// The ports on the way to a device, that of the controller first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    ports: [u8; LEVELS],
    length: usize,
}

/// A disk that was found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub device: Device,
    pub identity: Identity,
    pub storage: Storage,
    pub way: Way,
    hubs: [Option<Hub>; HUBS_MAX],
}

/// Where the search is: hubs on the way, and the ports that were taken.
struct Search {
    hubs: [Option<Hub>; HUBS_MAX],
    depth: usize,
    ports: [u8; LEVELS],
}

/// What a device is.
enum Seen {
    Disk(Identity, Storage),
    Hub(Hub),
}

impl Search {
    /// The next port where the search is; `None` behind the last one.
    fn next(&mut self, roots: u8, only: Option<&Way>) -> Option<u8> {
        let most = match self.depth.checked_sub(1) {
            None => roots,
            Some(hub) => self.hubs[hub].map_or(0, |hub| hub.ports),
        };
        let here = &mut self.ports[self.depth];
        while *here < most {
            *here += 1;
            let depth = self.depth;
            if only.is_none_or(|way| depth < way.length && way.ports[depth] == *here) {
                return Some(*here);
            }
        }
        None
    }

    /// The hub that the search is at; `None` for the controller.
    fn hub(&self) -> Option<Hub> {
        self.hubs[self.depth.checked_sub(1)?]
    }

    /// Where a device at this port is.
    fn place(&self, port: u8, speed: Speed) -> Place {
        let Some(Hub { device: hub, .. }) = self.hub() else {
            return Place {
                root: port,
                route: 0,
                depth: 0,
                translator: None,
                speed,
            };
        };
        let translator = match (speed, hub.place.speed) {
            (Speed::Full | Speed::Low, Speed::High) => Some((hub.slot, port)),
            (Speed::Full | Speed::Low, _) => hub.place.translator,
            _ => None,
        };
        Place {
            root: hub.place.root,
            route: hub.place.route | u32::from(port) << (4 * hub.place.depth),
            depth: self.depth,
            translator,
            speed,
        }
    }

    fn way(&self) -> Way {
        let mut ports = self.ports;
        ports[self.depth + 1..].fill(0);
        Way {
            ports,
            length: self.depth + 1,
        }
    }
}

impl Host {
    /// Finds the first disk, or the one that is where the way leads.
    ///
    /// # Errors
    /// [`Error::NoDisk`], or why the one there cannot be used.
    pub async fn find(&mut self, only: Option<&Way>) -> Result<Found, Error> {
        self.power();
        let mut why = Error::NoDisk;
        for _ in 0..ROUNDS {
            self.sleep(CONNECT_NANOSECONDS).await;
            let mut search = Search {
                hubs: [None; HUBS_MAX],
                depth: 0,
                ports: [0; LEVELS],
            };
            match self.search(&mut search, only).await {
                Ok(found) => return Ok(found),
                Err(Error::NoDisk) => {}
                Err(error) if error.is_local() && only.is_some() => why = error,
                Err(error) => return Err(error),
            }
        }
        Err(why)
    }

    async fn search(&mut self, search: &mut Search, only: Option<&Way>) -> Result<Found, Error> {
        let mut why = Error::NoDisk;
        let since = self.now();
        loop {
            if late(since, self.now(), FIND_NANOSECONDS) {
                return Err(Error::Timeout("a disk, it is found"));
            }
            let Some(port) = search.next(self.ports(), only) else {
                let Some(hub) = search.hub() else {
                    return Err(why);
                };
                self.release(&hub.device).await?;
                search.depth -= 1;
                continue;
            };
            match self.visit(search, port).await {
                Ok(None) => {}
                Ok(Some((device, Seen::Disk(identity, storage)))) => {
                    return Ok(Found {
                        device,
                        identity,
                        storage,
                        way: search.way(),
                        hubs: search.hubs,
                    });
                }
                Ok(Some((_, Seen::Hub(hub)))) => {
                    search.hubs[search.depth] = Some(hub);
                    search.depth += 1;
                    search.ports[search.depth] = 0;
                }
                Err(error) if error.is_local() => {
                    if only.is_some() {
                        why = error;
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// What is at a port; `None` if it is of no use.
    async fn visit(&mut self, search: &Search, port: u8) -> Result<Option<(Device, Seen)>, Error> {
        let speed = match search.hub() {
            None => self.take_port(port).await?,
            Some(hub) => hub.take_port(self, port).await?,
        };
        // Neither disks nor hubs are as slow.
        let Some(speed) = speed.filter(|speed| *speed != Speed::Low) else {
            return Ok(None);
        };
        let device = self.address(search.place(port, speed)).await?;
        match self.look(&device).await {
            Ok(Some(seen)) => Ok(Some((device, seen))),
            Ok(None) => {
                self.release(&device).await?;
                Ok(None)
            }
            Err(error) if error.is_local() => {
                self.release(&device).await?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// What a device is; `None` if it is of no use.
    async fn look(&mut self, device: &Device) -> Result<Option<Seen>, Error> {
        let speed = device.place.speed;
        self.control(device, descriptor::request(Described::Device, 8))
            .await?;
        let packet = descriptor::control_packet(speed, &self.answer)?;
        if packet != speed.first_packet() {
            self.set_packet(device, packet).await?;
        }
        let wanted = descriptor::request(Described::Device, DEVICE_BYTES as u16);
        self.control(device, wanted).await?;
        let identity = Identity::of(&self.answer)?;
        let wanted = descriptor::request(Described::Configuration, ANSWER_BYTES as u16);
        self.control(device, wanted).await?;
        if identity.is_hub() {
            if device.place.depth == HUBS_MAX {
                return Ok(None);
            }
            let configuration = descriptor::configuration(&self.answer)?;
            let hub = Hub::open(self, *device, configuration).await?;
            return Ok(Some(Seen::Hub(hub)));
        }
        let storage = descriptor::storage(speed, &self.answer)?;
        Ok(Some(Seen::Disk(identity, storage)))
    }

    /// Whether a disk was taken out since it was found. A hub that does not answer says nothing.
    ///
    /// # Errors
    /// [`Error`], if the controller cannot go on.
    pub async fn is_unplugged(&mut self, found: &Found) -> Result<bool, Error> {
        let [root, others @ ..] = found.way.ports;
        if self.has_lost(root) {
            return Ok(true);
        }
        for (hub, port) in found.hubs.iter().flatten().zip(others) {
            match hub.has_lost(self, port).await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) if error.is_local() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}
