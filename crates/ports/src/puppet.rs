//! A host, the file that it shares and its rings, all of which do what a test says.

use crate::buffers::BUFFER_BYTES;
use crate::clock::Instant;
use crate::devices::Devices;
use crate::host::{Errno, Handle, Host};
use crate::link::LinkMemory;
use crate::network::Network;
use crate::queue::QueueMemory;
use crate::regions::Regions;
use crate::ring::Rings;
use crate::runtime::{Parts, Runtime};
use crate::share::{HostWord, SharedFile};
use crate::state::StateMemory;
use crate::tap::TapPort;
use abi::extension::HostInfo;
use abi::inquiry::{ANSWER_OFFSET, ASK_OFFSET, Answer, Ask, DETAILS_OFFSET, Subject};
use abi::link::{HEAD_BYTES, file_bytes};
use abi::manifest::{Device, Entry, kind, name_field};
use abi::pci::{CLASS_NETWORK, Info, Request, info_flag};
use abi::region;
use abi::ring::lanes::DATA_OFFSET;
use abi::ring::{Server, WORDS};
use abi::share::{
    BYTES, CAPTURE_OFFSET, CAPTURE_RING_OFFSET, CONTROL_OFFSET, COUNTERS_PER_PORT, CaptureRecord,
    Control, LEAVE_OFFSET, MTUS_OFFSET, PortCounter, REVALIDATE_OFFSET, REVALIDATED_OFFSET,
    RULE_COUNTERS_OFFSET, RULES_BYTES_MAX, RULES_MAX, RULES_OFFSET, RULES_STATUS_OFFSET,
    RuleCounter, RulesStatus,
};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};
use device::{Netif, Pool};
use hw::DmaArena;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::string::{String, ToString};
use zerocopy::{FromBytes, IntoBytes};

const WORD: usize = size_of::<u64>();
/// Bytes of the disk that the host has.
const DISK_BYTES: usize = 8192;
/// Where the buffers of the disk with a queue begin, of an image without other regions.
pub const QUEUE_DATA: u64 = region::own_address(0) + DATA_OFFSET;

/// A host that does what a test says.
#[derive(Default)]
pub struct Puppet {
    /// What reads of networks find, one after the other; then there is nothing.
    pub reads: RefCell<VecDeque<Result<Vec<u8>, Errno>>>,
    /// What becomes of the next writes to networks; then they are taken.
    pub refusals: RefCell<VecDeque<Option<Errno>>>,
    /// What was written to networks and sent to devices, and to which.
    pub written: RefCell<Vec<(Handle, Vec<u8>)>>,
    /// What waits answer, one after the other; then nothing is ready.
    pub ready: RefCell<VecDeque<u64>>,
    /// Deadlines of the waits.
    pub waits: RefCell<Vec<Option<Instant>>>,
    /// What those waited on.
    pub sets: RefCell<Vec<Option<Handle>>>,
    /// What happens while somebody waits.
    pub meanwhile: RefCell<Option<Box<dyn FnMut()>>>,
    /// What was printed.
    pub console: RefCell<Vec<u8>>,
    /// What becomes of the next writes to the console.
    pub prints: RefCell<VecDeque<Result<usize, Errno>>>,
    /// The monotonic clock.
    pub now: Cell<u64>,
    /// How far the clock goes on each time that it is read.
    pub step: Cell<u64>,
    /// How often the host was woken.
    pub kicks: Cell<u32>,
    /// The links whose other ends were woken, by the numbers of their regions.
    pub rung: RefCell<Vec<usize>>,
    /// The disk; bytes beyond its end are not there.
    pub disk: RefCell<Vec<u8>>,
    /// Lengths of the transfers of the disk.
    pub transfers: RefCell<Vec<usize>>,
    /// How many of them had a buffer that begins within a page.
    pub unaligned: Cell<usize>,
    /// How often the disk was flushed.
    pub syncs: Cell<usize>,
    /// What of the disk was discarded: offsets and lengths.
    pub discards: RefCell<Vec<(u64, u64)>>,
    /// Whether it cannot be.
    pub never_discards: Cell<bool>,
}

/// How a guest ended.
struct Ended(i32);

impl Puppet {
    /// What was printed.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.console.borrow()).to_string()
    }

    fn next_read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let read = self.reads.borrow_mut().pop_front();
        let bytes = read.unwrap_or(Err(Errno::AGAIN))?;
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn note_transfer(&self, buffer: &[u8]) {
        self.transfers.borrow_mut().push(buffer.len());
        let is_aligned = buffer.as_ptr().addr().is_multiple_of(4096);
        self.unaligned
            .set(self.unaligned.get() + usize::from(!is_aligned));
    }

    fn next_write(&self, device: Handle, bytes: &[u8]) -> Result<usize, Errno> {
        if let Some(Some(errno)) = self.refusals.borrow_mut().pop_front() {
            return Err(errno);
        }
        self.written.borrow_mut().push((device, bytes.to_vec()));
        Ok(bytes.len())
    }
}

impl Host for Puppet {
    fn handle(&self, _: usize, descriptor: i32) -> Handle {
        Handle(descriptor)
    }

    fn read(&self, _: Handle, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.next_read(buffer)
    }

    fn write(&self, device: Handle, bytes: &[u8]) -> Result<usize, Errno> {
        self.next_write(device, bytes)
    }

    fn send(&self, device: Handle, bytes: &[u8]) -> Result<usize, Errno> {
        self.next_write(device, bytes)
    }

    fn receive(&self, _: Handle, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.next_read(buffer)
    }

    fn pread(&self, _: Handle, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.note_transfer(buffer);
        let disk = self.disk.borrow();
        let bytes = disk.get(offset as usize..).unwrap_or_default();
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn pwrite(&self, _: Handle, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
        self.note_transfer(bytes);
        let mut disk = self.disk.borrow_mut();
        let place = disk
            .get_mut(offset as usize..)
            .and_then(|d| d.get_mut(..bytes.len()));
        place.ok_or(Errno::IO)?.copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn sync(&self, _: Handle) -> Result<usize, Errno> {
        self.syncs.set(self.syncs.get() + 1);
        Ok(0)
    }

    fn discard(&self, _: Handle, offset: u64, length: u64) -> Result<usize, Errno> {
        self.discards.borrow_mut().push((offset, length));
        if self.never_discards.get() {
            return Err(Errno::NOT_SUPPORTED);
        }
        let mut disk = self.disk.borrow_mut();
        let place = disk
            .get_mut(offset as usize..)
            .and_then(|d| d.get_mut(..length as usize));
        place.ok_or(Errno::INVALID)?.fill(0);
        Ok(0)
    }

    fn print(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let next = self.prints.borrow_mut().pop_front();
        let taken = next.unwrap_or(Ok(bytes.len()))?;
        self.console.borrow_mut().extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn kick(&self) {
        self.kicks.set(self.kicks.get() + 1);
    }

    fn ring(&self, number: usize, _: i32) {
        self.rung.borrow_mut().push(number);
    }

    fn wait(&self, deadline: Option<Instant>, set: Option<Handle>) -> u64 {
        self.waits.borrow_mut().push(deadline);
        self.sets.borrow_mut().push(set);
        if let Some(meanwhile) = &mut *self.meanwhile.borrow_mut() {
            meanwhile();
        }
        if let Some(Instant(at)) = deadline {
            self.now.set(self.now.get().max(at));
        }
        self.ready.borrow_mut().pop_front().unwrap_or(0)
    }

    fn monotonic(&self) -> u64 {
        self.now.set(self.now.get() + self.step.get());
        self.now.get()
    }

    fn wall(&self) -> u64 {
        self.now.get()
    }

    fn ticks(&self) -> u64 {
        self.now.get()
    }

    fn exit(&self, status: i32) -> ! {
        resume_unwind(Box::new(Ended(status)))
    }

    fn tap(&'static self, network: Network) -> Box<dyn Netif> {
        Box::new(TapPort::new(self, network))
    }
}

/// The status with which `run` ends the guest; `None` if it does not.
pub fn ended(run: impl FnOnce()) -> Option<i32> {
    let end = catch_unwind(AssertUnwindSafe(run)).err()?;
    match end.downcast::<Ended>() {
        Ok(ended) => Some(ended.0),
        Err(panic) => resume_unwind(panic),
    }
}

/// The image that a test wants.
pub struct Setup {
    /// Networks and disks, in the order of the manifest: name, properties, flags.
    pub devices: Vec<(&'static str, Device, u32)>,
    /// Network cards that the image drives itself.
    pub cards: Vec<&'static str>,
    /// Links, with as many slots at each end.
    pub links: Vec<(&'static str, usize)>,
    /// Whether the other ends may see what is not for them.
    pub open: bool,
    /// Whether they carry sockets.
    pub carry_sockets: bool,
    /// States, and their memory.
    pub states: Vec<(&'static str, StateMemory)>,
    /// The disk that has a queue, and what its buffers lie in: from [`QUEUE_DATA`] on.
    pub queue: Option<(&'static str, DmaArena)>,
    /// Whether the host has rings.
    pub rings: bool,
    /// Whether the shared file has texts of rules.
    pub rules: bool,
    /// What the host waits on for all but networks.
    pub quiet: Option<Handle>,
    /// Packet buffers.
    pub buffers: usize,
    /// The byte that packet buffers are full of.
    pub fill: u8,
    /// The command line.
    pub command_line: &'static str,
    /// Whether the heap has so many bytes.
    pub has_room: fn(usize) -> bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            devices: vec![],
            cards: vec![],
            links: vec![],
            open: false,
            carry_sockets: false,
            states: vec![],
            queue: None,
            rings: false,
            rules: false,
            quiet: None,
            buffers: 128,
            fill: 0,
            command_line: "",
            has_room: |_| true,
        }
    }
}

/// A runtime, its host, and what the host sees of it.
pub struct Scene {
    /// The runtime.
    pub runtime: &'static Runtime,
    /// Its host.
    pub host: &'static Puppet,
    guest: &'static [AtomicU64],
    control: &'static [HostWord],
    rings: &'static [AtomicU64],
    /// The words that the queue of a disk shares with whoever serves it.
    queue: &'static [AtomicU64],
    /// Links as the images at the other ends have them.
    far: Vec<Far>,
}

/// An end of a link as the other image has it: the words of its own file, and the header of the
/// one that the runtime writes.
#[derive(Clone, Copy)]
pub struct Far {
    /// What the other image writes.
    pub own: &'static [AtomicU64],
    /// What it reads.
    pub peer: &'static [AtomicU64],
}

/// Memory of states behind so many links, and what is asked for and told.
fn state_memory(
    states: Vec<(&'static str, StateMemory)>,
    links: usize,
    host_info: &mut HostInfo,
) -> (Vec<Option<StateMemory>>, Vec<region::Request>) {
    let mut memory: Vec<_> = (0..links).map(|_| None).collect();
    let mut requests = vec![];
    for ((name, state), info) in states.into_iter().zip(&mut host_info.regions[links..]) {
        let bytes = abi::state::HEAD_BYTES + state.body.len();
        info.own_bytes = bytes as u64;
        requests.push(region::Request {
            name: name_field(name).expect("a name"),
            kind: region::kind::STATE,
            bytes: bytes as u32,
        });
        memory.push(Some(state));
    }
    (memory, requests)
}

/// Memory of links with these names and so many slots, what is asked for and told, and the other
/// ends.
fn link_memory(
    links: &[(&'static str, usize)],
    (kind, open): (u32, bool),
    host_info: &mut HostInfo,
) -> (Vec<Option<LinkMemory>>, Vec<region::Request>, Vec<Far>) {
    let (mut memory, mut requests, mut far) = (vec![], vec![], vec![]);
    for ((name, slots), info) in links.iter().zip(&mut host_info.regions) {
        let bytes = file_bytes(*slots);
        (info.own_bytes, info.peer_bytes, info.mac) = (bytes, bytes, [2; 6]);
        info.open = open.into();
        let (own, peer) = (words(HEAD_BYTES), words(bytes as usize));
        let slots = vec![0; bytes as usize - HEAD_BYTES].leak();
        memory.push(Some(LinkMemory { own, slots, peer }));
        requests.push(region::Request {
            name: name_field(name).expect("a name"),
            kind,
            bytes: bytes as u32,
        });
        far.push(Far {
            own: peer,
            peer: own,
        });
    }
    (memory, requests, far)
}

/// Memory of the queue of the disk with this name, behind the other regions, and what is asked for
/// and told.
fn queue_memory(
    (name, arena): (&'static str, DmaArena),
    words: &'static [AtomicU64],
    regions: &mut Vec<region::Request>,
    host_info: &mut HostInfo,
) -> Vec<Option<QueueMemory>> {
    let (number, start) = (regions.len(), region::own_address(regions.len()));
    let bytes = DATA_OFFSET + arena.left() as u64;
    host_info.regions[number].own_bytes = bytes;
    regions.push(region::Request {
        name: name_field(name).expect("a name"),
        kind: region::kind::QUEUE,
        bytes: bytes as u32,
    });
    let mut memory: Vec<_> = (0..number).map(|_| None).collect();
    memory.push(Some(QueueMemory {
        words,
        arena,
        start,
    }));
    memory
}

fn words(bytes: usize) -> &'static [AtomicU64] {
    let words: Vec<_> = (0..bytes / WORD).map(|_| AtomicU64::new(0)).collect();
    words.leak()
}

impl Setup {
    /// One network with this MTU and these flags, whose name is `net` and whose index is 1.
    pub fn network(mtu: u16, flags: u32) -> Self {
        let device = Device::Net { mac: [2; 6], mtu };
        Self {
            devices: vec![("net", device, flags)],
            ..Self::default()
        }
    }

    fn entries(&self) -> &'static [Entry] {
        let mut entries = vec![Entry::RESERVED];
        for (descriptor, (name, device, _)) in (10..).zip(&self.devices) {
            let kind = match device {
                Device::Net { .. } => kind::NET_BASIC,
                Device::Block { .. } => kind::BLOCK_BASIC,
                Device::Sockets => kind::SOCKETS,
            };
            let mut entry = Entry::new(name, kind).expect("a name");
            entry.attach(*device, descriptor);
            entries.push(entry);
        }
        entries.leak()
    }

    fn requests(&self) -> &'static [Request] {
        let requests = self.cards.iter().map(|name| Request {
            name: name_field(name).expect("a name"),
            class: CLASS_NETWORK,
            subclass: 0,
            progif: 0,
            bars: 1,
            vendor: 0x8086,
            device: 0x10fb,
            flags: 0,
        });
        requests.collect::<Vec<_>>().leak()
    }

    /// Starts it.
    pub fn start(mut self) -> Scene {
        let host: &'static Puppet = Box::leak(Box::new(Puppet {
            disk: RefCell::new(vec![0; DISK_BYTES]),
            ..Puppet::default()
        }));
        let guest = words(CONTROL_OFFSET);
        let end = if self.rules {
            BYTES as usize
        } else {
            RULES_OFFSET
        };
        let control = (CONTROL_OFFSET..end).step_by(WORD);
        let control = &*control.map(|_| HostWord::zero()).collect::<Vec<_>>().leak();
        let rings = words(if self.rings { WORDS * WORD } else { 0 });
        let mut host_info = HostInfo::ZERO;
        for (flags, (_, _, wanted)) in host_info.devices[1..].iter_mut().zip(&self.devices) {
            *flags = *wanted;
        }
        for info in &mut host_info.pci[..self.cards.len()] {
            info.flags = info_flag::ATTACHED;
        }
        let kind = match self.carry_sockets {
            true => region::kind::SOCKETS,
            false => region::kind::LINK,
        };
        let (links, mut regions, far) = link_memory(&self.links, (kind, self.open), &mut host_info);
        let states = core::mem::take(&mut self.states);
        let (states, more) = state_memory(states, links.len(), &mut host_info);
        regions.extend(more);
        let queue = words(if self.queue.is_some() {
            WORDS * WORD
        } else {
            0
        });
        let queues = self
            .queue
            .take()
            .map(|disk| queue_memory(disk, queue, &mut regions, &mut host_info));
        let memory = vec![self.fill; self.buffers * BUFFER_BYTES].leak();
        let others = host_info.pci[0] != Info::ZERO;
        let runtime = Runtime::new(Parts {
            host,
            share: SharedFile::new(guest, control),
            rings: Rings::new(rings, host, others),
            regions: Regions {
                links,
                states,
                queues: queues.unwrap_or_default(),
            },
            devices: Devices::new(self.entries(), self.requests(), regions.leak(), &host_info),
            pool: Pool::new(memory, BUFFER_BYTES),
            command_line: self.command_line,
            has_room: self.has_room,
            quiet: self.quiet,
            sleepless: false,
        });
        Scene {
            runtime: Box::leak(Box::new(runtime)),
            host,
            guest,
            control,
            rings,
            queue,
            far,
        }
    }
}

impl Scene {
    /// A counter of the port with this index.
    pub fn counted(&self, index: usize, what: PortCounter) -> u64 {
        let number = index * COUNTERS_PER_PORT + what as usize;
        self.runtime.counter(number).get()
    }

    /// The host's end of the queue with this number.
    pub fn server(&self, queue: usize) -> Server<'static> {
        let rings = abi::ring::Rings::new(self.rings).expect("there are rings");
        rings.server(queue).expect("there is such a queue")
    }

    /// The host's end of a lane of the disk with a queue.
    pub fn lane(&self, lane: usize) -> Server<'static> {
        let rings = abi::ring::Rings::new(self.queue).expect("a disk has a queue");
        rings.server(lane).expect("there is such a lane")
    }

    /// A word of that queue.
    pub fn queue_word(&self, word: usize) -> &'static AtomicU64 {
        &self.queue[word]
    }

    /// A word of the rings.
    pub fn ring_word(&self, word: usize) -> &'static AtomicU64 {
        &self.rings[word]
    }

    /// The other end of the link with this number.
    pub fn far(&self, number: usize) -> Far {
        self.far[number]
    }

    fn say(&self, field: usize, value: u64) {
        self.control[field / WORD].store(value);
    }

    /// The host says that the network with this index has this MTU by now.
    pub fn set_mtu(&self, index: usize, mtu: u64) {
        self.say(MTUS_OFFSET - CONTROL_OFFSET + index * WORD, mtu);
    }

    /// The host wants the guest to leave.
    pub fn leave(&self) {
        self.say(LEAVE_OFFSET - CONTROL_OFFSET, 1);
    }

    /// The host captures frames of these ports, so many bytes of each.
    pub fn capture(&self, ports: u64, snap: u64) {
        self.say(offset_of!(Control, capture_ports), ports);
        self.say(offset_of!(Control, capture_snap), snap);
    }

    /// The host has taken captures up to this position.
    pub fn captures_taken(&self, position: u64) {
        self.say(offset_of!(Control, capture_tail), position);
    }

    /// The host asks about this, from this place in its list on.
    pub fn ask(&self, number: u64, subject: Subject, from: u64) {
        let first = (ASK_OFFSET - CONTROL_OFFSET) / WORD;
        self.control[first + offset_of!(Ask, from) / WORD].store(from);
        self.control[first + offset_of!(Ask, subject) / WORD].store(subject as u64);
        self.control[first].store(number);
    }

    /// What the host is about to ask in particular.
    pub fn details(&self, bytes: &[u8]) {
        let first = (DETAILS_OFFSET - CONTROL_OFFSET) / WORD;
        let (words, _) = bytes.as_chunks::<WORD>();
        for (word, bytes) in self.control[first..].iter().zip(words) {
            word.store(u64::from_ne_bytes(*bytes));
        }
    }

    /// The answer that the host sees, and its records.
    pub fn answer<Record: FromBytes>(&self) -> (Answer, Vec<Record>) {
        let words = self.guest[ANSWER_OFFSET / WORD..RULES_STATUS_OFFSET / WORD].iter();
        let bytes: Vec<u8> = words
            .flat_map(|word| word.load(Ordering::Acquire).to_ne_bytes())
            .collect();
        let (answer, rest) = Answer::read_from_prefix(&bytes).unwrap();
        let records = rest.chunks_exact(size_of::<Record>());
        let records = records.map(|bytes| Record::read_from_bytes(bytes).unwrap());
        (answer, records.take(answer.count as usize).collect())
    }

    /// Captures that the host sees.
    pub fn captures(&self) -> Vec<(CaptureRecord, Vec<u8>)> {
        let head = self.guest[CAPTURE_OFFSET / WORD].load(Ordering::Acquire);
        let ring = &self.guest[CAPTURE_RING_OFFSET / WORD..];
        let ring = ring[..head as usize / WORD].iter();
        let bytes: Vec<u8> = ring
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .collect();
        let (mut rest, mut records) = (bytes.as_slice(), vec![]);
        while let Ok((record, behind)) = CaptureRecord::read_from_prefix(rest) {
            let captured = record.captured as usize;
            records.push((record, behind[..captured].to_vec()));
            rest = &behind[captured.next_multiple_of(WORD)..];
        }
        records
    }

    /// The host offers this text in this slot, which claims to have so many bytes.
    pub fn offer_bytes(&self, generation: u64, slot: u64, text: &[u8], length: u64) {
        let first = (RULES_OFFSET - CONTROL_OFFSET + slot as usize * RULES_BYTES_MAX) / WORD;
        for (word, bytes) in self.control.iter().skip(first).zip(text.chunks(WORD)) {
            let mut padded = [0; WORD];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(padded));
        }
        self.offer_slot(generation, slot, length);
    }

    /// The host offers these rules.
    pub fn offer(&self, generation: u64, slot: u64, text: &str) {
        self.offer_bytes(generation, slot, text.as_bytes(), text.len() as u64);
    }

    /// The rules of this generation are to end connections that they would not let begin.
    pub fn revalidate(&self, generation: u64) {
        self.say(REVALIDATE_OFFSET - CONTROL_OFFSET, generation);
    }

    /// The last generation that the guest says it did that with.
    pub fn revalidated(&self) -> u64 {
        self.guest[REVALIDATED_OFFSET / WORD].load(Ordering::Relaxed)
    }

    /// The host names this slot, whether there is one or not, and so many bytes in it.
    pub fn offer_slot(&self, generation: u64, slot: u64, length: u64) {
        self.say(offset_of!(Control, slot), slot);
        self.say(offset_of!(Control, length), length);
        self.say(offset_of!(Control, generation), generation);
    }

    /// What the guest says of its rules.
    pub fn status(&self) -> RulesStatus {
        let mut status = RulesStatus::default();
        let words = self.guest[RULES_STATUS_OFFSET / WORD..].iter();
        let fields = status.as_mut_bytes().chunks_mut(WORD);
        for (field, word) in fields.zip(words) {
            field.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        status
    }

    /// Frames and bytes that this rule has counted.
    pub fn rule_counted(&self, slot: usize, rule: usize) -> (u64, u64) {
        let counter = slot * RULES_MAX + rule;
        let first = (RULE_COUNTERS_OFFSET + counter * size_of::<RuleCounter>()) / WORD;
        let word = |at: usize| self.guest[at].load(Ordering::Relaxed);
        (word(first), word(first + 1))
    }
}
