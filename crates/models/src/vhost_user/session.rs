//! What one front end has: each message of its becomes an answer, whatever it says.

use super::message::{
    Config, Header, InflightFile, PROTOCOL_FEATURES, Region, RingAddress, RingState, flag,
    protocol, request,
};
use super::ring::Ring;
use crate::client::memory::{Memory, Range};
use crate::client::{Refused, event};
use crate::device::Progress;
use crate::misbehaviour::Misbehaviour;
use crate::virtio::inflight::{self, Inflight};
use crate::virtio::net;
use crate::virtio::queue::Resumed;
use crate::virtio::{State, VirtioDevice, feature};
use crate::{Dma, Violations};
use hw::sim::View;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most bytes behind the header of a message: eight regions and their count, or a configuration.
pub const PAYLOAD_MAX: usize = 512;
/// Regions of memory in one message.
const REGIONS_MAX: usize = 8;
/// Regions that are added one by one.
const SLOTS: u64 = 32;
/// Most bytes of a configuration that are read or written at once ("Virtio device config space").
const CONFIG_MAX: usize = 256;
/// In the number of a queue that comes with a descriptor: that none does, and the queue's number.
const NO_DESCRIPTOR: u64 = 1 << 8;
const INDEX: u64 = 0xff;
/// Offset of the index in the device area (virtio 2.7.8).
const USED_INDEX: u64 = 2;
/// Pages of a memory file.
const PAGE: u64 = 4096;

/// What the front end gets for a message.
#[derive(Debug)]
pub enum Answer {
    /// Nothing, or whether it went well if it asked for that.
    Done,
    /// So many bytes of the buffer.
    Bytes(usize),
    /// The same, and a descriptor.
    File(usize, OwnedFd),
}

/// A device, and the front end that it has now.
pub struct BackEnd<D> {
    state: State<D>,
    /// Features that were settled on last; `None` before.
    features: Option<u64>,
    protocol: u64,
    memory: Memory,
    regions: Vec<Region>,
    rings: Vec<Ring>,
    /// The file in which inflight chains are noted.
    inflight: Option<(OwnedFd, InflightFile)>,
}

impl<D: VirtioDevice> BackEnd<D> {
    /// A device that has no front end.
    pub fn new(device: D, misbehaviour: &Misbehaviour) -> Self {
        let state = State::new(device, 0, misbehaviour);
        let rings = (0..state.queue_count()).map(|_| Ring::default()).collect();
        Self {
            state,
            features: None,
            protocol: 0,
            memory: Memory::default(),
            regions: Vec::new(),
            rings,
            inflight: None,
        }
    }

    /// Takes memory that is not sealed against shrinking from now on: a front end that shrinks it
    /// ends its session.
    pub fn accept_unsealed(&mut self) {
        self.memory.unsealed = true;
    }

    /// The front end is gone: all that it gave is let go of, and the device is as it was at first.
    pub fn disconnect(&mut self) {
        self.state.reset();
        self.features = None;
        self.protocol = 0;
        self.regions.clear();
        self.memory.clear();
        self.rings.fill_with(Ring::default);
        self.inflight = None;
    }

    /// What the driver did wrong since the device was made.
    pub fn violations(&self) -> &Violations {
        self.state.violations()
    }

    /// What becomes readable when something comes in that the device should be polled for.
    pub fn wire_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.state.device_ref().wire_descriptor()
    }

    /// Whether the front end has taken memory away that it had lent.
    pub fn is_lost(&self) -> bool {
        self.memory.is_lost() || self.state.is_lost()
    }

    /// Whether there is a queue whose driver gives no notifications.
    pub fn must_look(&self) -> bool {
        self.rings
            .iter()
            .any(|ring| ring.runs && ring.kick.is_none())
    }

    /// What becomes readable when the driver notifies a queue.
    pub fn kicks(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let kicks = self.rings.iter().filter(|ring| ring.runs);
        kicks.filter_map(|ring| ring.kick.as_ref().map(AsFd::as_fd))
    }

    /// Notifications up to now are seen by the next poll.
    pub fn hear(&mut self) {
        for kick in self.rings.iter().filter_map(|ring| ring.kick.as_ref()) {
            event::drain(kick);
        }
    }

    /// Lets the device work and signals its interrupts.
    pub fn poll(&mut self, now: Duration) -> Progress {
        self.state.look();
        let progress = self.state.poll(&self.memory, now);
        let mut interrupts = self.state.take_queue_interrupts();
        while interrupts != 0 {
            let number = interrupts.trailing_zeros() as usize;
            interrupts &= interrupts - 1;
            if let Some(call) = self.rings.get(number).and_then(|ring| ring.call.as_ref()) {
                event::signal(call);
            }
        }
        // That the configuration changed is for a channel of the protocol that is not used here; a
        // queue that is broken has its own event.
        if self.state.take_config_interrupt() {
            self.tell_of_broken();
        }
        progress
    }

    fn tell_of_broken(&self) {
        for (number, ring) in (0..).zip(&self.rings) {
            let broken = self
                .state
                .queue(number)
                .is_some_and(|queue| queue.is_broken());
            if let Some(error) = ring.error.as_ref().filter(|_| broken) {
                event::signal(error);
            }
        }
    }

    /// Does what a message says; an answer comes into `reply`.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn message(
        &mut self,
        header: &Header,
        payload: &[u8],
        descriptors: Vec<OwnedFd>,
        reply: &mut [u8; PAYLOAD_MAX],
    ) -> Result<Answer, Refused> {
        let takes_descriptors = matches!(
            header.request,
            request::SET_MEM_TABLE
                | request::SET_VRING_KICK
                | request::SET_VRING_CALL
                | request::SET_VRING_ERR
                | request::SET_INFLIGHT_FD
                | request::ADD_MEM_REG
                | request::REM_MEM_REG
        );
        if !takes_descriptors && !descriptors.is_empty() {
            return Err(Refused::Descriptors(descriptors.len()));
        }
        match header.request {
            request::GET_FEATURES => Ok(number(reply, self.offered() | PROTOCOL_FEATURES)),
            request::GET_PROTOCOL_FEATURES => Ok(number(reply, self.protocol_offered())),
            request::GET_QUEUE_NUM => {
                let queues = self.state.device_ref().queue_sets();
                Ok(number(reply, queues.into()))
            }
            request::GET_MAX_MEM_SLOTS => Ok(number(reply, SLOTS)),
            request::GET_VRING_BASE => self.stop_ring(payload, reply),
            request::GET_CONFIG => self.read_config(payload, reply),
            request::GET_INFLIGHT_FD => self.make_inflight(payload, reply),
            other => {
                self.set(other, payload, descriptors)?;
                Ok(Answer::Done)
            }
        }
    }

    fn set(&mut self, what: u32, payload: &[u8], files: Vec<OwnedFd>) -> Result<(), Refused> {
        match what {
            request::SET_OWNER => Ok(()),
            request::RESET_OWNER | request::RESET_DEVICE => {
                self.rings.fill_with(Ring::default);
                self.state.reset();
                self.features = None;
                Ok(())
            }
            request::SET_FEATURES => self.set_features(exact(payload)?),
            request::SET_PROTOCOL_FEATURES => {
                let features: u64 = exact(payload)?;
                let more = features & !self.protocol_offered();
                if more != 0 {
                    return Err(Refused::Flags(more as u32));
                }
                self.protocol = features;
                Ok(())
            }
            request::SET_MEM_TABLE => self.set_memory(payload, &files),
            request::ADD_MEM_REG => {
                let (_, region) = slot(payload)?;
                let [file] = one(files)?;
                self.add_region(region, file.as_fd())
            }
            request::REM_MEM_REG => {
                let (_, region) = slot(payload)?;
                self.remove_region(&region)
            }
            request::SET_VRING_NUM => {
                let RingState { index, number } = exact(payload)?;
                self.unused_ring(index)?.size = u16::try_from(number).unwrap_or(0);
                Ok(())
            }
            request::SET_VRING_BASE => {
                let RingState { index, number } = exact(payload)?;
                let number = u16::try_from(number).map_err(|_| Refused::Range)?;
                self.unused_ring(index)?.base = number;
                Ok(())
            }
            request::SET_VRING_ADDR => {
                let address: RingAddress = exact(payload)?;
                self.unused_ring(address.index)?.address = Some(address);
                Ok(())
            }
            request::SET_VRING_ENABLE => {
                let RingState { index, number } = exact(payload)?;
                self.ring(index.into())?.enabled = number != 0;
                self.follow(index as u16)
            }
            request::SET_VRING_KICK | request::SET_VRING_CALL | request::SET_VRING_ERR => {
                self.set_event(what, exact(payload)?, files)
            }
            request::SET_CONFIG => self.write_config(payload),
            request::SET_INFLIGHT_FD => {
                let [file] = one(files)?;
                self.set_inflight(inflight_file(payload)?, file)
            }
            other => Err(Refused::Unknown(other)),
        }
    }

    /// Features of virtio that are offered.
    fn offered(&self) -> u64 {
        let offered = |select| u64::from(self.state.offered_features(select));
        // A reset of one queue goes through messages of its own.
        (offered(0) | offered(1) << 32) & !feature::RING_RESET
    }

    /// Features of the protocol that are offered. The configuration of a network card is the front
    /// end's. Slots are not for one either: QEMU 7.2 would add the same memory for each pair.
    fn protocol_offered(&self) -> u64 {
        match self.state.device_ref().id() {
            net::ID => protocol::ALL & !(protocol::CONFIG | protocol::CONFIGURE_MEM_SLOTS),
            _ => protocol::ALL,
        }
    }

    fn set_features(&mut self, features: u64) -> Result<(), Refused> {
        if self.features == Some(features) {
            return Ok(());
        }
        if self.rings.iter().any(|ring| ring.runs) {
            let rule = "features must not change while queues run";
            return Err(Refused::Order(rule));
        }
        let more = features & !(self.offered() | PROTOCOL_FEATURES);
        if more != 0 || !self.state.settle(features & !PROTOCOL_FEATURES) {
            self.features = None;
            return Err(Refused::Flags(more as u32));
        }
        self.features = Some(features);
        Ok(())
    }

    fn set_memory(&mut self, payload: &[u8], files: &[OwnedFd]) -> Result<(), Refused> {
        let wrong = Refused::Size(payload.len());
        let Ok((count, rest)) = <[u32; 2]>::read_from_prefix(payload) else {
            return Err(wrong);
        };
        let count = count[0] as usize;
        if count > REGIONS_MAX || rest.len() != count * size_of::<Region>() {
            return Err(wrong);
        }
        if files.len() != count {
            return Err(Refused::Descriptors(files.len()));
        }
        self.memory.clear();
        self.regions.clear();
        for (bytes, file) in rest.chunks_exact(size_of::<Region>()).zip(files) {
            self.add_region(exact(bytes)?, file.as_fd())?;
        }
        Ok(())
    }

    fn add_region(&mut self, region: Region, file: BorrowedFd<'_>) -> Result<(), Refused> {
        let end = region.user.checked_add(region.bytes);
        if end.is_none() {
            return Err(Refused::Range);
        }
        let range = Range {
            offset: region.offset,
            iova: region.guest,
            bytes: region.bytes,
            writable: true,
        };
        self.memory.map(file, range)?;
        self.memory.bus_master = true;
        self.regions.push(region);
        Ok(())
    }

    fn remove_region(&mut self, region: &Region) -> Result<(), Refused> {
        let same = |other: &Region| {
            (other.guest, other.bytes, other.user) == (region.guest, region.bytes, region.user)
        };
        let place = self.regions.iter().position(same);
        let place = place.ok_or(Refused::NotMapped)?;
        self.regions.swap_remove(place);
        self.memory.unmap(region.guest, region.bytes)
    }

    /// Where the driver finds what the front end finds at an address.
    fn guest_address(&self, user: u64) -> Option<u64> {
        self.regions.iter().find_map(|region| {
            let offset = user.checked_sub(region.user)?;
            (offset < region.bytes).then(|| region.guest.checked_add(offset))?
        })
    }

    fn ring(&mut self, index: u64) -> Result<&mut Ring, Refused> {
        let ring = usize::try_from(index)
            .ok()
            .and_then(|index| self.rings.get_mut(index));
        ring.ok_or(Refused::Index(index as u32))
    }

    fn unused_ring(&mut self, index: u32) -> Result<&mut Ring, Refused> {
        let ring = self.ring(index.into())?;
        match ring.runs {
            true => Err(Refused::Order("a queue that runs must be stopped first")),
            false => Ok(ring),
        }
    }

    fn set_event(
        &mut self,
        what: u32,
        number: u64,
        mut files: Vec<OwnedFd>,
    ) -> Result<(), Refused> {
        let index = number & INDEX;
        let file = files.pop();
        if !files.is_empty() || file.is_some() == (number & NO_DESCRIPTOR != 0) {
            return Err(Refused::Descriptors(
                files.len() + usize::from(file.is_some()),
            ));
        }
        if let Some(file) = &file {
            event::check(file)?;
        }
        let ring = self.ring(index)?;
        match what {
            request::SET_VRING_CALL => ring.call = file,
            request::SET_VRING_ERR => ring.error = file,
            _ => {
                ring.kick = file;
                ring.kicked = true;
                return self.follow(index as u16);
            }
        }
        Ok(())
    }

    /// Starts a queue, if all is there that it takes, or stops it, if the front end disabled it.
    fn follow(&mut self, number: u16) -> Result<(), Refused> {
        let ring = self.ring(number.into())?;
        let (runs, kicked, enabled) = (ring.runs, ring.kicked, ring.enabled);
        let with_protocol = self
            .features
            .is_some_and(|all| all & PROTOCOL_FEATURES != 0);
        let is_on = kicked && (enabled || !with_protocol);
        match (is_on, runs) {
            (true, false) => self.start_ring(number),
            (false, true) => {
                let next = self.state.stop_queue(number).unwrap_or(0);
                let ring = self.ring(number.into())?;
                (ring.runs, ring.base) = (false, next);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn start_ring(&mut self, number: u16) -> Result<(), Refused> {
        if self.features.is_none() {
            return Err(Refused::Order(
                "features come before the first notification",
            ));
        }
        let ring = &self.rings[usize::from(number)];
        let (size, base) = (ring.size, ring.base);
        let address = ring.address;
        let address = address.ok_or(Refused::Order("a queue has an address before it starts"))?;
        let guest = |user| self.guest_address(user).ok_or(Refused::NotMapped);
        let used = guest(address.used)?;
        let outside = |_| Refused::Queue("the areas of a queue must lie in the memory");
        let written = self.memory.load16(used + USED_INDEX).map_err(outside)?;
        let mut from = Resumed {
            size,
            descriptors: guest(address.descriptors)?,
            available: guest(address.available)?,
            used,
            next: base,
            written,
            inflight: None,
        };
        if let Some((at_file, file)) = &self.inflight {
            if number >= file.queues || file.size < size {
                let rule = "the memory of inflight chains must have room for the queue";
                return Err(Refused::Queue(rule));
            }
            let at = u64::from(number) * inflight::bytes(file.size);
            let view = self.map_inflight(at_file.as_fd(), file)?;
            let had = Inflight::open(view, at, file.size, written);
            let had = had.map_err(Refused::Queue)?;
            // Whoever does not know what was taken before names what is used.
            from.next = written.wrapping_add(had.left_over());
            from.inflight = Some(Box::new(had));
        }
        self.state
            .resume_queue(number, from)
            .map_err(Refused::Queue)?;
        self.rings[usize::from(number)].runs = true;
        Ok(())
    }

    fn stop_ring(
        &mut self,
        payload: &[u8],
        reply: &mut [u8; PAYLOAD_MAX],
    ) -> Result<Answer, Refused> {
        let RingState { index, .. } = exact(payload)?;
        let ring = self.ring(index.into())?;
        let (runs, base) = (ring.runs, ring.base);
        let next = match runs {
            true => self.state.stop_queue(index as u16).unwrap_or(base),
            false => base,
        };
        let ring = self.ring(index.into())?;
        *ring = Ring {
            base: next,
            enabled: ring.enabled,
            ..Ring::default()
        };
        let number = next.into();
        Ok(Answer::Bytes(put(reply, &RingState { index, number })))
    }

    fn read_config(
        &mut self,
        payload: &[u8],
        reply: &mut [u8; PAYLOAD_MAX],
    ) -> Result<Answer, Refused> {
        let (config, _) = config(payload)?;
        let start = put(reply, &config);
        let bytes = &mut reply[start..start + config.bytes as usize];
        self.state.read_config(config.offset as usize, bytes);
        Ok(Answer::Bytes(start + config.bytes as usize))
    }

    fn write_config(&mut self, payload: &[u8]) -> Result<(), Refused> {
        let (config, bytes) = config(payload)?;
        self.state.write_config(config.offset as usize, bytes);
        Ok(())
    }

    /// Makes the memory that inflight chains are noted in, for as many queues as are asked for.
    fn make_inflight(
        &mut self,
        payload: &[u8],
        reply: &mut [u8; PAYLOAD_MAX],
    ) -> Result<Answer, Refused> {
        let asked = inflight_file(payload)?;
        if usize::from(asked.queues) > self.rings.len() || !asked.size.is_power_of_two() {
            return Err(Refused::Range);
        }
        let bytes = inflight::bytes(asked.size) * u64::from(asked.queues.max(1));
        let bytes = bytes.next_multiple_of(PAGE);
        let file = sealed(bytes).map_err(Refused::Map)?;
        let answer = InflightFile {
            bytes,
            offset: 0,
            padding: 0,
            ..asked
        };
        put(reply, &answer);
        Ok(Answer::File(payload.len(), file))
    }

    fn set_inflight(&mut self, file: InflightFile, from: OwnedFd) -> Result<(), Refused> {
        if self.rings.iter().any(|ring| ring.runs) {
            return Err(Refused::Order("a queue that runs must be stopped first"));
        }
        let needed = inflight::bytes(file.size) * u64::from(file.queues);
        if file.bytes < needed || usize::from(file.queues) > self.rings.len() {
            return Err(Refused::Range);
        }
        // Whether it can be mapped is known before a queue starts.
        self.map_inflight(from.as_fd(), &file)?;
        self.inflight = Some((from, file));
        Ok(())
    }

    /// The memory of inflight chains, for one queue.
    fn map_inflight(&self, from: BorrowedFd<'_>, file: &InflightFile) -> Result<View, Refused> {
        let mut lent = Memory::default();
        lent.unsealed = self.memory.unsealed;
        let range = Range {
            offset: file.offset,
            iova: 0,
            bytes: file.bytes,
            writable: true,
        };
        lent.map(from, range)?;
        lent.into_view().ok_or(Refused::NotMapped)
    }

    /// Whether the front end is to be told how a message went that has no answer of its own.
    pub fn acknowledges(&self, header: &Header) -> bool {
        header.flags & flag::NEED_REPLY != 0 && self.protocol & protocol::REPLY_ACK != 0
    }
}

/// A file of zeros that nobody can make shorter.
fn sealed(bytes: u64) -> std::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("outboard-inflight", flags)?;
    ftruncate(&file, bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

fn number(reply: &mut [u8; PAYLOAD_MAX], value: u64) -> Answer {
    Answer::Bytes(put(reply, &value))
}

/// Puts a structure in front: its size.
pub(super) fn put<T: IntoBytes + Immutable>(reply: &mut [u8; PAYLOAD_MAX], value: &T) -> usize {
    let bytes = value.as_bytes();
    reply[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}

/// A payload that is one structure.
fn exact<T: FromBytes + KnownLayout + Immutable>(payload: &[u8]) -> Result<T, Refused> {
    T::read_from_bytes(payload).map_err(|_| Refused::Size(payload.len()))
}

/// A region behind eight bytes that mean nothing.
fn slot(payload: &[u8]) -> Result<(u64, Region), Refused> {
    let wrong = |_| Refused::Size(payload.len());
    let (padding, rest) = u64::read_from_prefix(payload).map_err(wrong)?;
    Ok((padding, exact(rest)?))
}

/// The only descriptor.
fn one(files: Vec<OwnedFd>) -> Result<[OwnedFd; 1], Refused> {
    let count = files.len();
    files.try_into().map_err(|_| Refused::Descriptors(count))
}

/// A range of the configuration, and as many bytes.
fn config(payload: &[u8]) -> Result<(Config, &[u8]), Refused> {
    let wrong = Refused::Size(payload.len());
    let Ok((config, bytes)) = Config::read_from_prefix(payload) else {
        return Err(wrong);
    };
    if bytes.len() > CONFIG_MAX || bytes.len() != config.bytes as usize {
        return Err(wrong);
    }
    if config.offset as usize + bytes.len() > CONFIG_MAX {
        return Err(Refused::Range);
    }
    Ok((config, bytes))
}

/// The structure may end with its last field, or with what fills it up.
fn inflight_file(payload: &[u8]) -> Result<InflightFile, Refused> {
    const SHORT: usize = size_of::<InflightFile>() - size_of::<u32>();
    let mut bytes = [0; size_of::<InflightFile>()];
    match payload.len() {
        len @ (SHORT | 24) => bytes[..len].copy_from_slice(payload),
        len => return Err(Refused::Size(len)),
    }
    exact(&bytes)
}
