use super::*;
use crate::client::{PATIENCE, Refused};
use crate::{Dma, Identity, Msix, Violations};
use ::vfio_user::{
    DeviceInfo, DmaMap, DmaUnmap, Header, IrqInfo, IrqSet, RegionAccess, RegionInfo,
    TypeCapability, Version, command, dma_flag, irq, irq_set_flag, region, region_flag,
};
use abi::doorbell;
use hw::sim::View;
use proptest::collection::vec;
use proptest::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::thread;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const IOVA: u64 = 1 << 40;
const MEMORY: u64 = 2 << 20;
const SCRATCH: u64 = 4;
const DOORBELL: u64 = 0x18;

/// Doubles the word at the I/O address that its doorbell names, and interrupts.
#[derive(Default)]
struct Doubler {
    scratch: u32,
    bell: u32,
    rung: Vec<u32>,
    faults: u32,
    resets: u32,
    raised: u64,
    asserts: bool,
    violations: Violations,
}

impl Device for Doubler {
    fn identity(&self) -> Identity {
        Identity {
            vendor: 0x1234,
            device: 0x11e8,
            class: [0xff, 0, 0],
            revision: 1,
            bars: [0x1000, 0, 0, 0, 0, 0],
            msix: Msix {
                capability: 0x40,
                vectors: 2,
                bar: 0,
                table: 0x800,
                pending: 0xc00,
            },
            pin: true,
            ..Identity::default()
        }
    }

    fn read(&mut self, _: u8, offset: u64, bytes: &mut [u8]) {
        let value = match offset {
            SCRATCH => self.scratch,
            DOORBELL => self.bell,
            _ => u32::MAX,
        };
        bytes.fill(0xff);
        let len = bytes.len().min(4);
        bytes[..len].copy_from_slice(&value.to_le_bytes()[..len]);
    }

    fn write(&mut self, _: u8, offset: u64, bytes: &[u8]) {
        let Some(value) = bytes.first_chunk().map(|four| u32::from_le_bytes(*four)) else {
            return;
        };
        match offset {
            SCRATCH => self.scratch = value,
            DOORBELL => {
                self.bell = value;
                self.rung.push(value);
            }
            _ => {}
        }
    }

    fn reset(&mut self) {
        *self = Self {
            resets: self.resets + 1,
            faults: self.faults,
            ..Self::default()
        };
    }

    fn poll(&mut self, dma: &dyn Dma, _: Duration) -> Progress {
        let count = self.rung.len() as u32;
        for offset in self.rung.drain(..) {
            let iova = IOVA + u64::from(offset);
            let doubled = dma
                .load(iova)
                .and_then(|word| dma.store(iova, word.wrapping_mul(2)));
            self.faults += u32::from(doubled.is_err());
            self.raised |= 1;
        }
        Progress {
            received: 0,
            transmitted: count,
        }
    }

    fn take_interrupts(&mut self) -> u64 {
        std::mem::take(&mut self.raised)
    }

    fn asserts_pin(&self) -> bool {
        self.asserts
    }

    fn doorbells(&self) -> &'static [usize] {
        &[DOORBELL as usize]
    }

    fn violations(&self) -> &Violations {
        &self.violations
    }
}

fn memory() -> OwnedFd {
    let file = memfd_create("dma", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, MEMORY).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    file
}

/// A session without a socket.
struct Client {
    device: Doubler,
    session: Session,
    reply: Vec<u8>,
}

impl Client {
    fn new() -> Self {
        let mut device = Doubler::default();
        let session = Session::new(&mut device).unwrap();
        let mut client = Self {
            device,
            session,
            reply: vec![0; PAYLOAD_MAX],
        };
        let version = Version { major: 0, minor: 9 };
        let bytes = client
            .say(command::VERSION, version.as_bytes(), vec![])
            .unwrap();
        assert_eq!(client.reply[..4], [0, 0, 1, 0]);
        let json = &client.reply[4..bytes];
        assert_eq!(
            json.iter().position(|byte| *byte == 0),
            Some(json.len() - 1)
        );
        client
    }

    fn say(
        &mut self,
        number: u16,
        payload: &[u8],
        descriptors: Vec<OwnedFd>,
    ) -> Result<usize, Refused> {
        let header = Header::command(1, number, payload.len());
        let answer = self.session.command(
            &mut self.device,
            &header,
            payload,
            descriptors,
            &mut self.reply,
        )?;
        Ok(answer.payload)
    }

    fn ask<T: IntoBytes + FromBytes + zerocopy::Immutable>(
        &mut self,
        number: u16,
        payload: &T,
    ) -> Result<T, Refused> {
        self.say(number, payload.as_bytes(), vec![])?;
        Ok(T::read_from_prefix(&self.reply).unwrap().0)
    }

    fn read(&mut self, region: u32, offset: u64, count: u32) -> Result<Vec<u8>, Refused> {
        let access = RegionAccess {
            offset,
            region,
            count,
        };
        let bytes = self.say(command::REGION_READ, access.as_bytes(), vec![])?;
        Ok(self.reply[16..bytes].to_vec())
    }

    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        let access = RegionAccess {
            offset,
            region,
            count: bytes.len() as u32,
        };
        let payload = [access.as_bytes(), bytes].concat();
        self.say(command::REGION_WRITE, &payload, vec![])
            .map(|_| ())
    }

    fn enable(&mut self) {
        self.write(region::CONFIG, 4, &[6, 0]).unwrap();
    }

    fn map(&mut self, file: OwnedFd) -> Result<(), Refused> {
        let map = DmaMap {
            argsz: 32,
            flags: dma_flag::READ | dma_flag::WRITE,
            offset: 0,
            address: IOVA,
            size: MEMORY,
        };
        self.say(command::DMA_MAP, map.as_bytes(), vec![file])
            .map(|_| ())
    }

    fn poll(&mut self) {
        self.session.poll(&mut self.device, Duration::ZERO);
    }
}

#[test]
fn the_device_says_what_it_is() {
    let mut client = Client::new();
    let info = client
        .ask(command::DEVICE_GET_INFO, &DeviceInfo::new_zeroed())
        .unwrap();
    assert_eq!(
        (info.flags, info.regions, info.irqs),
        (3, region::COUNT + 1, 5)
    );
    for (index, size) in [(0, 0x1000), (1, 0), (region::ROM, 0), (region::CONFIG, 256)] {
        let asked = RegionInfo {
            index,
            ..RegionInfo::default()
        };
        let info = client.ask(command::DEVICE_GET_REGION_INFO, &asked).unwrap();
        assert_eq!(
            (info.size, info.flags),
            (size, if size == 0 { 0 } else { 3 })
        );
    }
    for (index, count) in [(irq::INTX, 1), (irq::MSI, 0), (irq::MSIX, 2)] {
        let asked = IrqInfo {
            index,
            ..IrqInfo::default()
        };
        assert_eq!(
            client
                .ask(command::DEVICE_GET_IRQ_INFO, &asked)
                .unwrap()
                .count,
            count
        );
    }
    assert_eq!(
        client.read(region::CONFIG, 0, 4).unwrap(),
        [0x34, 0x12, 0xe8, 0x11]
    );
}

#[test]
fn registers_answer_only_while_memory_space_is_on() {
    let mut client = Client::new();
    client.write(0, SCRATCH, &[1, 2, 3, 4]).unwrap();
    assert_eq!(client.read(0, SCRATCH, 4).unwrap(), [0xff; 4]);
    client.enable();
    client.write(0, SCRATCH, &[1, 2, 3, 4]).unwrap();
    assert_eq!(client.read(0, SCRATCH, 4).unwrap(), [1, 2, 3, 4]);
    let resets = client.device.resets;
    client.say(command::DEVICE_RESET, &[], vec![]).unwrap();
    assert_eq!(client.device.resets, resets + 1);
    assert_eq!(client.read(0, SCRATCH, 4).unwrap(), [0xff; 4]);
}

#[test]
fn the_device_reaches_memory_while_it_is_bus_master() {
    let mut client = Client::new();
    let file = memory();
    let view = View::of_file(file.as_fd(), 0, MEMORY, IOVA, true).unwrap();
    let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    client.map(file).unwrap();
    let set = IrqSet {
        argsz: 20,
        flags: irq_set_flag::EVENTFD | irq_set_flag::TRIGGER,
        index: irq::MSIX,
        start: 0,
        count: 1,
    };
    let ours = event.try_clone().unwrap();
    client
        .say(command::DEVICE_SET_IRQS, set.as_bytes(), vec![ours])
        .unwrap();
    view.store(IOVA + 64, 21).unwrap();
    client.write(region::CONFIG, 4, &[2, 0]).unwrap();
    client.write(0, DOORBELL, &[64, 0, 0, 0]).unwrap();
    client.poll();
    assert_eq!((view.load(IOVA + 64), client.device.faults), (Ok(21), 1));
    client.enable();
    client.write(0, DOORBELL, &[64, 0, 0, 0]).unwrap();
    client.poll();
    assert_eq!((view.load(IOVA + 64), client.device.faults), (Ok(42), 1));
    let mut count = [0; 8];
    rustix::io::read(&event, &mut count).unwrap();
    assert_eq!(u64::from_le_bytes(count), 2);
    let unmap = DmaUnmap {
        argsz: 24,
        flags: 0,
        address: IOVA,
        size: MEMORY,
    };
    client.ask(command::DMA_UNMAP, &unmap).unwrap();
    assert!(matches!(
        client.ask(command::DMA_UNMAP, &unmap),
        Err(Refused::NotMapped)
    ));
    client.write(0, DOORBELL, &[72, 0, 0, 0]).unwrap();
    client.poll();
    assert_eq!(client.device.faults, 2);
}

#[test]
fn a_pin_masks_itself_and_is_signalled_again_while_it_is_asserted() {
    let mut client = Client::new();
    let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let set = |flags, count| IrqSet {
        argsz: 20,
        flags,
        index: irq::INTX,
        start: 0,
        count,
    };
    let trigger = set(irq_set_flag::EVENTFD | irq_set_flag::TRIGGER, 1);
    let unmask = set(irq_set_flag::NONE | irq_set_flag::UNMASK, 1);
    let mask = set(irq_set_flag::NONE | irq_set_flag::MASK, 1);
    let off = set(irq_set_flag::NONE | irq_set_flag::TRIGGER, 0);
    let happened = || rustix::io::read(&event, &mut [0; 8]).is_ok();
    let say = |client: &mut Client, set: &IrqSet, descriptors| {
        client.say(command::DEVICE_SET_IRQS, set.as_bytes(), descriptors)
    };
    client.device.asserts = true;
    let ours = event.try_clone().unwrap();
    say(&mut client, &trigger, vec![ours]).unwrap();
    assert!(happened(), "it is asserted already");
    client.poll();
    assert!(!happened(), "it has masked itself");
    say(&mut client, &unmask, vec![]).unwrap();
    assert!(happened(), "it is asserted still");
    client.device.asserts = false;
    say(&mut client, &unmask, vec![]).unwrap();
    say(&mut client, &mask, vec![]).unwrap();
    client.device.asserts = true;
    client.poll();
    assert!(!happened(), "the client has masked it");
    // Interrupt Disable.
    client.write(region::CONFIG, 4, &[6, 4]).unwrap();
    say(&mut client, &unmask, vec![]).unwrap();
    assert!(!happened());
    client.enable();
    assert!(happened());
    say(&mut client, &off, vec![]).unwrap();
    say(&mut client, &unmask, vec![]).unwrap();
    assert!(!happened(), "there is no event any more");
    let second = IrqSet { start: 1, ..unmask };
    assert!(matches!(
        say(&mut client, &second, vec![]),
        Err(Refused::Range)
    ));
    let both = set(
        irq_set_flag::NONE | irq_set_flag::MASK | irq_set_flag::UNMASK,
        1,
    );
    assert!(matches!(
        say(&mut client, &both, vec![]),
        Err(Refused::Flags(_))
    ));
    let (_, pipe) = std::io::pipe().unwrap();
    let said = say(&mut client, &trigger, vec![pipe.into()]);
    assert!(matches!(said, Err(Refused::NotEvent)));
}

fn page(client: &mut Client) -> View {
    let asked = RegionInfo {
        argsz: 48,
        index: region::COUNT,
        ..RegionInfo::default()
    };
    let info = client.ask(command::DEVICE_GET_REGION_INFO, &asked).unwrap();
    assert_eq!((info.argsz, info.cap_offset, info.size), (48, 32, 4096));
    assert_eq!(info.flags, 3 | region_flag::MMAP | region_flag::CAPS);
    let kind = TypeCapability::read_from_bytes(&client.reply[32..48]).unwrap();
    assert_eq!(
        (kind.kind, kind.subtype),
        (doorbell::REGION_KIND, doorbell::REGION_SUBTYPE)
    );
    let file = client.session.doorbells_file().unwrap();
    View::of_file(file, info.offset, info.size, 0, true).unwrap()
}

#[test]
fn doorbells_in_the_page_stay_in_order_with_messages() {
    let mut client = Client::new();
    client.enable();
    let page = page(&mut client);
    let at = |word: usize| word as u64 * 8;
    assert_eq!(page.load(at(doorbell::MAGIC_WORD)), Ok(doorbell::magic(1)));
    assert_eq!(page.load(at(doorbell::offset_word(0))), Ok(DOORBELL));
    page.store(at(doorbell::value_word(0)), 7).unwrap();
    client.read(0, SCRATCH, 4).unwrap();
    assert_eq!(client.device.rung, [7]);
    // A value that was seen is no news; a reset shows in the page.
    client.read(0, SCRATCH, 4).unwrap();
    assert_eq!(client.device.rung, [7]);
    client.say(command::DEVICE_RESET, &[], vec![]).unwrap();
    assert_eq!(page.load(at(doorbell::value_word(0))), Ok(0));
    // Asleep, it looks once more.
    page.store(at(doorbell::value_word(0)), 8).unwrap();
    assert!(client.session.sleep(&mut client.device));
    assert_eq!(page.load(at(doorbell::ASLEEP_WORD)), Ok(1));
    client.session.wake();
    assert_eq!(page.load(at(doorbell::ASLEEP_WORD)), Ok(0));
    assert!(!client.session.sleep(&mut client.device));
}

#[test]
fn ranges_outside_of_a_region_are_refused() {
    let mut client = Client::new();
    client.enable();
    for (region, offset, count) in [
        (0, 0x1000, 1),
        (0, 0xffd, 4),
        (0, u64::MAX, 1),
        (0, 0, 0),
        (0, 0, u32::MAX),
        (1, 0, 1),
        (region::CONFIG, 253, 4),
        (region::COUNT, 0, 8),
    ] {
        let read = client.read(region, offset, count);
        assert!(
            matches!(read, Err(Refused::Range)),
            "{region} {offset:#x} {count}"
        );
    }
    assert!(matches!(client.read(99, 0, 4), Err(Refused::Index(99))));
    assert!(client.write(0, 0xffd, &[0; 4]).is_err());
    // More or fewer bytes than it says.
    let access = RegionAccess {
        offset: 0,
        region: 0,
        count: 4,
    };
    for bytes in [3, 5] {
        let payload = [access.as_bytes(), &[0; 8][..bytes]].concat();
        let said = client.say(command::REGION_WRITE, &payload, vec![]);
        assert!(matches!(said, Err(Refused::Size(_))));
    }
}

#[test]
fn memory_that_could_harm_is_refused() {
    let mut client = Client::new();
    let (pipe, _) = std::io::pipe().unwrap();
    assert!(matches!(client.map(pipe.into()), Err(Refused::Unsealed)));
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let unsealed = memfd_create("dma", flags).unwrap();
    ftruncate(&unsealed, MEMORY).unwrap();
    fcntl_add_seals(&unsealed, SealFlags::GROW).unwrap();
    let again = unsealed.try_clone().unwrap();
    assert!(matches!(client.map(again), Err(Refused::Unsealed)));
    let mut trusting = Client::new();
    trusting.session.accept_unsealed();
    trusting.map(unsealed.try_clone().unwrap()).unwrap();
    trusting.enable();
    let (pipe, _) = std::io::pipe().unwrap();
    assert!(trusting.map(pipe.into()).is_err());
    for (bytes, is_lost) in [(MEMORY, false), (0, true)] {
        ftruncate(&unsealed, bytes).unwrap();
        trusting.write(0, DOORBELL, &[64, 0, 0, 0]).unwrap();
        trusting.poll();
        assert_eq!(trusting.session.is_lost(), is_lost, "{bytes} bytes");
    }
    let small = memory();
    ftruncate(&small, MEMORY * 2).unwrap();
    client.map(small).unwrap();
    assert!(matches!(client.map(memory()), Err(Refused::Overlap)));
    let map = |address, size, flags| DmaMap {
        argsz: 32,
        flags,
        offset: 0,
        address,
        size,
    };
    let said = |client: &mut Client, map: DmaMap| {
        client
            .say(command::DMA_MAP, map.as_bytes(), vec![memory()])
            .unwrap_err()
    };
    assert!(matches!(
        said(&mut client, map(0, MEMORY + 4096, 3)),
        Refused::Range
    ));
    assert!(matches!(
        said(&mut client, map(u64::MAX - 4095, 8192, 3)),
        Refused::Range
    ));
    assert!(matches!(
        said(&mut client, map(0, 4096, 2)),
        Refused::Flags(2)
    ));
    assert!(matches!(
        said(&mut client, map(0, 1 << 40, 3)),
        Refused::TooMuchMemory
    ));
    let none = client.say(command::DMA_MAP, map(0, 4096, 3).as_bytes(), vec![]);
    assert!(matches!(none, Err(Refused::Descriptors(0))));
    // No more than so many mappings.
    let mut kept = 1;
    while client
        .say(
            command::DMA_MAP,
            map(kept << 20, 4096, 3).as_bytes(),
            vec![memory()],
        )
        .is_ok()
    {
        kept += 1;
    }
    assert_eq!(kept, 64);
}

#[test]
fn only_events_can_be_signalled() {
    let mut client = Client::new();
    let set = |start, count, flags| IrqSet {
        argsz: 20,
        flags,
        index: irq::MSIX,
        start,
        count,
    };
    let events = irq_set_flag::EVENTFD | irq_set_flag::TRIGGER;
    let (_, pipe) = std::io::pipe().unwrap();
    let mut said = |set: IrqSet, descriptors| {
        client
            .say(command::DEVICE_SET_IRQS, set.as_bytes(), descriptors)
            .unwrap_err()
    };
    assert!(matches!(
        said(set(0, 1, events), vec![pipe.into()]),
        Refused::NotEvent
    ));
    assert!(matches!(said(set(1, 2, events), vec![]), Refused::Range));
    assert!(matches!(
        said(set(u32::MAX, 1, events), vec![]),
        Refused::Range
    ));
    assert!(matches!(said(set(0, 1, 1 << 9), vec![]), Refused::Flags(_)));
    let event = eventfd(0, EventfdFlags::empty()).unwrap();
    assert!(matches!(
        said(set(0, 2, events), vec![event]),
        Refused::Descriptors(1)
    ));
    // An event whose counter is full keeps nobody waiting.
    let full = eventfd(0, EventfdFlags::empty()).unwrap();
    rustix::io::write(&full, &(u64::MAX - 1).to_le_bytes()).unwrap();
    client
        .say(
            command::DEVICE_SET_IRQS,
            set(0, 1, events).as_bytes(),
            vec![full],
        )
        .unwrap();
    client.device.raised = 1;
    client.poll();
}

#[test]
fn who_one_is_comes_first_and_once() {
    let mut device = Doubler::default();
    let mut session = Session::new(&mut device).unwrap();
    let mut reply = vec![0; PAYLOAD_MAX];
    let mut say = |number, payload: &[u8]| {
        let header = Header::command(0, number, payload.len());
        session
            .command(&mut device, &header, payload, vec![], &mut reply)
            .map(|_| ())
    };
    assert!(matches!(
        say(command::DEVICE_RESET, &[]),
        Err(Refused::Order(_))
    ));
    assert!(matches!(
        say(command::VERSION, &[1, 0, 0, 0]),
        Err(Refused::Version(1))
    ));
    assert!(matches!(say(command::VERSION, &[0]), Err(Refused::Size(1))));
    say(command::VERSION, &[0, 0, 0, 0]).unwrap();
    assert!(matches!(
        say(command::VERSION, &[0, 0, 0, 0]),
        Err(Refused::Order(_))
    ));
    assert!(matches!(say(99, &[]), Err(Refused::Unknown(99))));
}

/// Bytes as they stand in commands, and any.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0u8), 0..16u8, any::<u8>()]
}

proptest! {
    /// Nothing that a client says makes the server panic, or answer more than fits.
    #[test]
    fn random_commands_are_answered(
        messages in vec((0u16..18, any::<u32>(), vec(byte(), 0..64), 0..3), 0..40)
    ) {
        let mut client = Client::new();
        for (number, flags, payload, descriptors) in messages {
            let header = Header::command(0, number, payload.len());
            let header = Header { flags: flags & 0x10, ..header };
            let descriptors = (0..descriptors).map(|_| memory()).collect();
            let Client { device, session, reply } = &mut client;
            if let Ok(answer) = session.command(device, &header, &payload, descriptors, reply) {
                prop_assert!(answer.payload <= PAYLOAD_MAX);
            }
            session.poll(device, Duration::ZERO);
        }
    }
}

/// Stops when told so; counts refusals.
struct Quiet(std::sync::Arc<std::sync::atomic::AtomicBool>);

impl Around<Doubler> for Quiet {
    fn turn(&mut self, _: &mut Doubler) -> ControlFlow<()> {
        if self.0.load(std::sync::atomic::Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn refused(&mut self, _: &'static str, _: &Refused) {}
}

#[test]
fn a_client_that_vanishes_makes_room_for_the_next() {
    let path = std::env::temp_dir().join(format!("outboard-models-{}", std::process::id()));
    let server = Server::bind(&path).unwrap();
    assert!(Server::bind(&path).is_err(), "somebody listens");
    let stop = std::sync::Arc::default();
    let mut around = Quiet(std::sync::Arc::clone(&stop));
    let serving = thread::spawn(move || {
        let mut device = Doubler::default();
        let mut ends = Vec::new();
        loop {
            match server.serve(&mut device, &[], &mut around) {
                End::Stopped => return (ends, device.resets),
                end => ends.push(end.to_string()),
            }
        }
    });
    let version = Header::command(1, command::VERSION, 4);
    let mut buffer = vec![0; PAYLOAD_MAX];
    for _ in 0..3 {
        let socket = Socket::connect(&path, PATIENCE).unwrap();
        socket.send(&version, &[&[0, 0, 1, 0]], &[]).unwrap();
        let reply = socket.receive(&mut buffer).unwrap();
        assert_eq!(reply.header.answers(&version), Ok(None));
        let read = Header::command(2, command::REGION_READ, 16);
        let access = RegionAccess {
            offset: 0,
            region: region::CONFIG,
            count: 2,
        };
        socket.send(&read, &[access.as_bytes()], &[]).unwrap();
        let reply = socket.receive(&mut buffer).unwrap();
        assert_eq!((reply.payload, &buffer[16..18]), (18, &[0x34, 0x12][..]));
        // Half a message, and gone.
        socket
            .send(&Header::command(3, command::VERSION, 4), &[], &[])
            .unwrap();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let (ends, resets) = serving.join().unwrap();
    assert!(
        ends.len() >= 2 && ends.iter().all(|end| end.contains("within a message")),
        "{ends:?}"
    );
    assert!(resets >= 4 && !path.exists());
    // The socket of one that was killed is no obstacle.
    drop(UnixListener::bind(&path).unwrap());
    drop(Server::bind(&path).unwrap());
}
