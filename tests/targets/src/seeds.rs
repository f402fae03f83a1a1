//! What the targets start from.

use crate::each::conntrack::{LEFT_BYTES, LEFT_FLOWS};
use crate::each::model;
use abi::doorbell;
use link_sockets::message::{Message, Reason, What};
use models::MODELS;
use net::tcp::connection::{Agreed, Greeted};
use net::tcp::identity::Ends;
use net::tcp::seq::Seq;
use net::tcp::{Config, Connection, Opening, vault};
use nf::conntrack::{self, Class, Conntrack};
use ports::Instant;
use std::net::SocketAddr;
use vfio_user::{
    CapabilityHeader, DeviceInfo, DmaMap, DmaUnmap, IrqInfo, IrqSet, RegionAccess, RegionInfo,
    TypeCapability, Version, capability, command, irq, irq_set_flag, region,
};
use vmm::ioregionfd::wire::{Command, Direction};
use zerocopy::IntoBytes;

const MANIFEST: &[u8] = br#"{ "type": "solo5.manifest", "version": 1, "devices": [
    { "name": "private", "type": "NET_BASIC" },
    { "name": "disk", "type": "BLOCK_BASIC" } ] }
"#;

const PCI_MANIFEST: &[u8] = br#"{ "type": "solo5.manifest", "version": 1, "dma_size": 16777216,
    "devices": [ { "name": "pci0", "type": "PCI_BASIC", "class": 2, "subclass": 0, "progif": 0,
    "vendor": 32902, "device_id": 4347, "bus_master_enable": true, "map_bar0": true } ] }
"#;

const DEFAULT: &str = include_str!("../../../unikernels/firewall/rules/default.nft");
const IPV6: &str = include_str!("../../../unikernels/firewall/rules/ipv6.nft");
/// Rules, each with what is expected of it.
const RULES: [&str; 3] = [
    include_str!("../../../crates/nf/src/nft/tests/accepted.txt"),
    include_str!("../../../crates/nf/src/nft/tests/unsupported.txt"),
    include_str!("../../../crates/nf/src/nft/tests/refused.txt"),
];

/// No byte of a disk is changed, and each step is done once.
const WRITTEN: &[u8] = &[
    0, 0, 1, 5, 1, 1, 9, 2, 3, 3, 3, 4, 0, 4, 6, 0, 5, 1, 5, 6, 0, 0, 7, 3, 0, 5, 3, 2,
];

/// An input that is as it should be.
pub struct Seed {
    /// The target that it is for.
    pub target: &'static str,
    /// Its name, one of a file.
    pub name: String,
    /// What is fed.
    pub bytes: Vec<u8>,
}

/// A client that chooses a disk, reads, writes, flushes, trims, writes zeroes, and goes.
fn client_of_disk(structured: bool) -> Vec<u8> {
    let mut sent = b"\0\0\0\x03".to_vec();
    if structured {
        sent.extend(b"IHAVEOPT\0\0\0\x08\0\0\0\0");
    }
    sent.extend(b"IHAVEOPT\0\0\0\x07\0\0\0\x0a\0\0\0\x04disk\0\0");
    for (flags, command, offset, length) in [
        (0u16, 0u16, 512u64, 40_960u32),
        (1, 1, 1024, 512),
        (0, 3, 0, 0),
        (0, 4, 4096, 4096),
        (2, 6, 8192, 1024),
        (0, 2, 0, 0),
    ] {
        sent.extend(0x2560_9513u32.to_be_bytes());
        sent.extend(flags.to_be_bytes());
        sent.extend(command.to_be_bytes());
        sent.extend(u64::from(command).to_be_bytes());
        sent.extend(offset.to_be_bytes());
        sent.extend(length.to_be_bytes());
        if command == 1 {
            sent.resize(sent.len() + length as usize, 7);
        }
    }
    sent
}

/// All of them.
pub fn all() -> Vec<Seed> {
    let seed = |(target, name, bytes): (_, &str, _)| Seed {
        target,
        name: name.to_owned(),
        bytes,
    };
    let single = [
        ("conntrack", "opening", flow()),
        ("conntrack", "left", left()),
        ("router", "opening", flow()),
        ("router", "answered", translated()),
        (
            "frame",
            "tcp",
            [&[0; 12], &ADDRESSES[..], &tcp(SYN)].concat(),
        ),
        ("hypercall", "each", hypercalls()),
        ("fs_ext2", "steps", WRITTEN.to_vec()),
        ("fs_fat", "steps", WRITTEN.to_vec()),
        ("fs_iso", "walk", vec![0]),
        ("image", "sample", image::sample::sample()),
        ("ioregionfd", "write", write_of_status()),
        ("link_sockets", "stack", served()),
        ("link_sockets", "application", serving()),
        ("manifest", "devices", MANIFEST.to_vec()),
        ("manifest", "pci", PCI_MANIFEST.to_vec()),
        ("net", "greeting", greeting()),
        ("tcp", "vault", vault()),
        ("vfio_user_client", "attached", attached()),
        ("nbd", "simple", client_of_disk(false)),
        ("nbd", "structured", client_of_disk(true)),
        ("zone", "question", QUESTION.to_vec()),
    ];
    let models = (0..).zip(MODELS).flat_map(|(number, model)| {
        [
            ("vfio_user_server", model.name, driven(number)),
            ("model", model.name, brought_up(number)),
        ]
    });
    single
        .into_iter()
        .chain(models)
        .map(seed)
        .chain(rules())
        .collect()
}

/// Frames of a link that carries sockets: for each whom it is for, its length, and its messages.
fn said(to: u8, messages: &[(u32, What<'_>)]) -> Vec<u8> {
    let frame = |(socket, what): &(u32, What<'_>)| {
        let message = Message::new(*socket, *what);
        let mut bytes = vec![0; message.size()];
        message.put(&mut bytes).expect("it fits");
        [&[to, bytes.len() as u8], &bytes[..]].concat()
    };
    messages.iter().flat_map(frame).collect()
}

/// What a stack says to an application that listens, connects and takes datagrams.
fn served() -> Vec<u8> {
    let (local, peer) = (at(7), Some(at(99)));
    let opened = |peer| What::Opened {
        local,
        peer,
        window: 1000,
    };
    let datagram = What::Datagram {
        remote: at(99),
        local: local.ip(),
        bytes: b"datagram",
    };
    let said_of = [
        (0, opened(None)),
        (2, opened(peer)),
        (2, What::Data(b"hello")),
        (2, What::Credit(5)),
        (1, opened(None)),
        (1, datagram),
        (3, opened(peer)),
        (3, What::Data(b"world")),
        (3, What::End),
        (3, What::Acknowledged),
        (2, What::Failed(Reason::Reset)),
        (2, What::Closed),
    ];
    said(0, &said_of)
}

/// What an application says to a stack.
fn serving() -> Vec<u8> {
    let window = 1000;
    let datagram = What::Datagram {
        remote: at(9),
        local: at(9).ip(),
        bytes: b"datagram",
    };
    let bind = What::Bind {
        local: at(9),
        peer: None,
        window,
    };
    let said_of = [
        (
            0,
            What::Listen {
                local: at(80),
                backlog: 2,
            },
        ),
        (
            1,
            What::Accept {
                listener: 0,
                window,
            },
        ),
        (
            2,
            What::Connect {
                remote: at(80),
                window,
            },
        ),
        (3, bind),
        (3, datagram),
        (2, What::NoDelay(true)),
        (2, What::Data(b"hello")),
        (2, What::End),
        (2, What::Ask),
        (1, What::Data(b"world")),
        (1, What::Credit(5)),
        (1, What::Close),
        (3, What::Join([224, 0, 0, 9].into())),
        (3, What::Close),
        (2, What::Abort),
        (0, What::Close),
    ];
    said(1, &said_of)
}

fn at(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

/// Both addresses of Ethernet.
const ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 9];
/// Flags of TCP.
const SYN: u8 = 2;
const ACK: u8 = 16;
/// Asks for an address of `www.example.org`.
const QUESTION: &[u8] = b"\0\x07\0\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03org\0\0\x01\0\x01";

/// A segment from port 80 of 10.0.0.9 to port 7 of 10.0.0.1, as it lies behind both addresses of
/// Ethernet.
fn tcp(flags: u8) -> Vec<u8> {
    let mut bytes = vec![8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
    bytes.extend([10, 0, 0, 9, 10, 0, 0, 1, 0, 80, 0, 7]);
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes
}

/// Two segments of a connection: for each its length, the time before it, and that it is accepted.
fn flow() -> Vec<u8> {
    let segments = [SYN, ACK].map(|flags| {
        let frame = [&ADDRESSES[..], &tcp(flags)].concat();
        [&[frame.len() as u8, 1, 0], &frame[..]].concat()
    });
    segments.concat()
}

/// A datagram that a client sends, an answer, and an error about it: for each its length, the time
/// before it, and the port that it comes in by.
fn translated() -> Vec<u8> {
    let packet = |source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]| {
        let mut header = vec![
            0x45,
            0,
            0,
            20 + payload.len() as u8,
            0,
            7,
            0,
            0,
            64,
            protocol,
            0,
            0,
        ];
        header.extend([source, destination].concat());
        let sum: u32 = header
            .chunks(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        [&header, payload].concat()
    };
    let (client, router, server) = ([10, 0, 0, 2], [192, 0, 2, 1], [198, 51, 100, 1]);
    let asked = packet(router, server, 17, &[9, 9, 0, 53, 0, 8, 0, 0]);
    let packets = [
        (0, packet(client, server, 17, &[9, 9, 0, 53, 0, 8, 0, 0])),
        (1, packet(server, router, 17, &[0, 53, 9, 9, 0, 8, 0, 0])),
        (
            1,
            packet(
                server,
                router,
                1,
                &[&[3, 3, 0, 0, 0, 0, 0, 0], &asked[..]].concat(),
            ),
        ),
    ];
    let frames = packets.map(|(port, packet)| {
        let frame = [&ADDRESSES[..], &[8, 0], &packet].concat();
        [&[frame.len() as u8, 1, port], &frame[..]].concat()
    });
    frames.concat()
}

/// A table with an open connection and an unanswered datagram, and a segment behind it.
fn left() -> Vec<u8> {
    let mut bytes = b"OBflows\0".to_vec();
    bytes.extend([conntrack::VERSION, LEFT_FLOWS as u32].as_bytes());
    bytes.resize(LEFT_BYTES, 0);
    bytes[64 + 4] = 2;
    let flow = |protocol, status, class, ended: u32| {
        let mut record = [0; 120];
        record[..12].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 0x34, 0x12, 80, 0]);
        record[12..24].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1, 80, 0, 0x34, 0x12]);
        record[26] = protocol;
        record[118] = status;
        record[119] = class as u8 | if status & 4 == 0 { 0 } else { 0x10 };
        record[40..44].copy_from_slice(&ended.to_ne_bytes());
        record
    };
    let mut open = flow(6, 2 | 4 | 8, Class::Established, 1 << 22);
    // What TCP has come to: established, and both sides were heard.
    open[68 + 35] = 3;
    open[68 + 8] = 1;
    open[68 + 24] = 1;
    let asked = flow(17, 8, Class::Udp, 100);
    bytes[64 + 576..][..240].copy_from_slice(&[open, asked].concat());
    let taken = Conntrack::take_up_copy(&bytes, &[5; 16], 0);
    assert_eq!(
        taken.map(|(_, taken)| (taken.flows, taken.refused)),
        Some((2, None))
    );
    let frame = [&ADDRESSES[..], &tcp(ACK)].concat();
    [bytes, vec![frame.len() as u8, 1], frame].concat()
}

/// A connection is opened and confirmed: for each segment its length, the time before it, and that
/// its numbers (the second time) and checksums are put right.
fn greeting() -> Vec<u8> {
    let segments = [(SYN, 4), (ACK, 6)].map(|(flags, right)| {
        let packet = tcp(flags);
        [&[packet.len() as u8, 1, right], &packet[..]].concat()
    });
    segments.concat()
}

/// What becomes of a write to the status of a virtio device.
fn write_of_status() -> Vec<u8> {
    let command = Command {
        direction: Direction::Write,
        bytes: 4,
        wants_answer: true,
        user_data: 0x54,
        offset: 0x70 - 0x54,
        data: 15,
    };
    command.encode().to_vec()
}

/// A vault with places for two connections and eight buffers of 100 bytes, in which one has 100
/// bytes to send, the first at number 1001.
fn vault() -> Vec<u8> {
    let agreed = Agreed {
        opening: Opening {
            iss: Seq(1000),
            stamp_offset: 7,
            mss: 1460,
        },
        irs: Seq(5000),
        peer_mss: 1460,
        peer_scale: Some(7),
        sack: true,
        peer_stamp: Some(9),
    };
    let now = Instant(1 << 40);
    let mut connection = Connection::accept(Config::default(), &agreed, Greeted::Unknown, now);
    connection.queue(100);
    let saved = connection.save().expect("it is open");
    let end = |port| SocketAddr::from(([10, 0, 0, 1], port));
    let ends = Ends::new(end(80), end(5));
    let mut bytes = b"OBvault\0".to_vec();
    let words = |bytes: &mut Vec<u8>, words: &[u32]| bytes.extend(words.as_bytes());
    words(&mut bytes, &[vault::VERSION, 2, 100, 8]);
    bytes.resize(64, 0);
    words(&mut bytes, &[1]);
    bytes.extend(saved.as_bytes().iter().chain(ends.as_bytes()));
    bytes.resize(64 + 2 * 256, 0);
    // Whose stream, from which number on, where, how long.
    words(&mut bytes, &[1, 1001, 34, 60]);
    words(&mut bytes, &[1, 1061, 40, 50]);
    let labels = bytes.len() - 2 * 16 + 8 * 16;
    bytes.resize(labels.next_multiple_of(64) + 8 * 100 + 64, 0);
    let shape = vault::Shape {
        connections: 2,
        buffer_size: 100,
    };
    let contents = vault::inspect(&bytes, shape).expect("it is a vault");
    assert_eq!((contents.connections.len(), contents.refused.len()), (1, 0));
    bytes
}

/// The answers by which a device is attached: for each how, length, payload.
fn attached() -> Vec<u8> {
    let page = TypeCapability {
        header: CapabilityHeader {
            id: capability::TYPE,
            version: 1,
            next: 0,
        },
        kind: doorbell::REGION_KIND,
        subtype: doorbell::REGION_SUBTYPE,
    };
    let info = DeviceInfo {
        argsz: 16,
        flags: 3,
        regions: 10,
        irqs: 5,
    };
    let region = |index, flags, size| RegionInfo {
        argsz: 48,
        flags,
        index,
        cap_offset: 32,
        size,
        offset: 0,
    };
    let access = |offset, count| RegionAccess {
        offset,
        region: region::CONFIG,
        count,
    };
    let msix = IrqInfo {
        argsz: 16,
        flags: 9,
        index: irq::MSIX,
        count: 1,
    };
    let answers: [(u8, Vec<u8>); 9] = [
        (0, Version { major: 0, minor: 1 }.as_bytes().to_vec()),
        (0, info.as_bytes().to_vec()),
        (
            0,
            [access(0, 4).as_bytes(), &[0x86, 0x80, 0xfb, 0x10]].concat(),
        ),
        (0, [access(8, 4).as_bytes(), &[1, 0, 0, 2]].concat()),
        (0, vec![]),
        (0, access(4, 0).as_bytes().to_vec()),
        (0, region(0, 3, 0x8_0000).as_bytes().to_vec()),
        (
            2,
            [region(9, 15, 4096).as_bytes(), page.as_bytes()].concat(),
        ),
        (0, msix.as_bytes().to_vec()),
    ];
    let bytes = answers.iter().flat_map(|(how, payload)| {
        let start = [*how, payload.len() as u8];
        start.into_iter().chain(payload.iter().copied())
    });
    bytes.collect()
}

/// The number of a model, and commands that a driver's side gives: for each number, flags, length,
/// descriptors, payload.
fn driven(model: u8) -> Vec<u8> {
    let commands = commands();
    let bytes = commands.iter().flat_map(|(number, descriptor, payload)| {
        let start = [*number as u8, 0, payload.len() as u8, *descriptor, NONE];
        start.into_iter().chain(payload.iter().copied())
    });
    std::iter::once(model).chain(bytes).collect()
}

/// The number of a model, and what brings a card up: both rings at the beginning of memory, a
/// buffer for a frame, and a frame. The registers of one card are written in all of them.
fn brought_up(model: u8) -> Vec<u8> {
    const RX_RING: u32 = model::IOVA as u32;
    const TX_RING: u32 = RX_RING + 0x1000;
    const BUFFER: u64 = model::IOVA + 0x4000;
    let memory = [
        (0, BUFFER),
        // Of an RTL8139: the device has it, the last of its ring, 1536 bytes.
        (8, 0xc000_0600),
        (0x10, BUFFER),
        (0x1000, BUFFER),
        (0x1008, 0x0b00_003c),
        (0x4000, 0x0002_0100_0000_0002),
    ];
    // Width, offset, value: the RTL8139, then Intel's.
    let registers = [
        (2, 0xe0, 0x63),
        (4, 0xe4, RX_RING + 0x100),
        (4, 0x20, TX_RING),
        (4, 0x44, 0xf),
        (1, 0x37, 0xc),
        (1, 0xd9, 0x40),
        (4, 0x00, 0x4000_0241),
        (4, 0x2800, RX_RING),
        (4, 0x2808, 128),
        (4, 0x3800, TX_RING),
        (4, 0x3808, 128),
        (4, 0x0100, 0x801a),
        (4, 0x0400, 0xa),
        (4, 0x2818, 7),
        (4, 0x3818, 1),
        (4, 0x00d0, 0xff),
    ];
    let mut bytes = vec![model, 0];
    for (offset, value) in memory {
        bytes.push(model::step::MEMORY);
        bytes.extend_from_slice(&u16::to_le_bytes(offset));
        bytes.extend_from_slice(&u64::to_le_bytes(value));
    }
    for (width, offset, value) in registers {
        bytes.extend_from_slice(&[model::step::WRITE, 0, width]);
        bytes.extend_from_slice(&u32::to_le_bytes(offset));
        bytes.extend_from_slice(&u64::from(value).to_le_bytes());
    }
    bytes.extend_from_slice(&[model::step::POLL; 4]);
    bytes
}

/// A command without a descriptor.
const NONE: u8 = 4;

/// What is said of interrupts: vectors and the pin get an event, and the pin is unmasked.
fn events() -> [IrqSet; 3] {
    let vectors = IrqSet {
        argsz: 20,
        flags: irq_set_flag::EVENTFD | irq_set_flag::TRIGGER,
        index: irq::MSIX,
        start: 0,
        count: 1,
    };
    let pin = IrqSet {
        index: irq::INTX,
        ..vectors
    };
    let unmask = IrqSet {
        flags: irq_set_flag::NONE | irq_set_flag::UNMASK,
        ..pin
    };
    [vectors, pin, unmask]
}

/// The commands: number, descriptor, payload.
fn commands() -> [(u16, u8, Vec<u8>); 12] {
    let write = |region, offset, bytes: &[u8]| {
        let access = RegionAccess {
            offset,
            region,
            count: bytes.len() as u32,
        };
        [access.as_bytes(), bytes].concat()
    };
    let map = DmaMap {
        argsz: 32,
        flags: 3,
        offset: 0,
        address: 1 << 40,
        size: 1 << 20,
    };
    let [vectors, pin, unmask] = events();
    let read = RegionAccess {
        offset: 8,
        region: 0,
        count: 4,
    };
    let unmap = DmaUnmap {
        argsz: 24,
        flags: 0,
        address: 1 << 40,
        size: 1 << 20,
    };
    let page = RegionInfo {
        argsz: 48,
        index: region::COUNT,
        ..RegionInfo::default()
    };
    [
        (
            command::DEVICE_GET_INFO,
            NONE,
            DeviceInfo::default().as_bytes().to_vec(),
        ),
        (
            command::DEVICE_GET_REGION_INFO,
            NONE,
            page.as_bytes().to_vec(),
        ),
        (
            command::DEVICE_GET_IRQ_INFO,
            NONE,
            IrqInfo::default().as_bytes().to_vec(),
        ),
        (
            command::REGION_WRITE,
            NONE,
            write(region::CONFIG, 4, &[7, 0]),
        ),
        (command::DMA_MAP, 0, map.as_bytes().to_vec()),
        (command::DEVICE_SET_IRQS, 2, vectors.as_bytes().to_vec()),
        (command::DEVICE_SET_IRQS, 2, pin.as_bytes().to_vec()),
        (command::DEVICE_SET_IRQS, NONE, unmask.as_bytes().to_vec()),
        (command::REGION_WRITE, NONE, write(0, 0, &[0, 0, 0, 4])),
        (command::REGION_READ, NONE, read.as_bytes().to_vec()),
        (command::DMA_UNMAP, NONE, unmap.as_bytes().to_vec()),
        (command::DEVICE_RESET, NONE, vec![]),
    ]
}

/// Each hypercall once: port, argument, what the argument says (handle or address, and so on).
fn hypercalls() -> Vec<u8> {
    const ARGUMENT: u32 = 0x1000;
    let words: [[u64; 5]; 8] = [
        [0; 5],
        [0x2000, 0, 0, 0, 0],
        [1_000, 0, 0, 0, 0],
        [2, 512, 0x2000, 512, 0],
        [2, 512, 0x2000, 512, 0],
        [1, 0x2000, 64, 0, 0],
        [1, 0x2000, 64, 0, 0],
        [0x2000, 3, 0, 0, 0],
    ];
    let mut bytes = Vec::new();
    for (number, words) in (1..).zip(words) {
        bytes.extend_from_slice(&(abi::hvt::CALL_PORT + number).to_le_bytes());
        bytes.extend_from_slice(&ARGUMENT.to_le_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    bytes
}

/// Rule files, and rules of the unit tests.
fn rules() -> Vec<Seed> {
    let seed = |name: String, text: &str| Seed {
        target: "rules_parse",
        name,
        bytes: text.as_bytes().to_vec(),
    };
    let lines = RULES.iter().flat_map(|rules| rules.lines());
    let lines = lines.enumerate().map(|(number, line)| {
        let rule = line.split(" => ").next().unwrap_or(line);
        let text = format!("table bridge t {{\n\tchain c {{\n\t\t{rule}\n\t}}\n}}\n");
        seed(format!("rule{number}"), &text)
    });
    let files = [("default", DEFAULT), ("ipv6", IPV6)];
    let files = files.map(|(name, text)| seed(name.to_owned(), text));
    files.into_iter().chain(lines).collect()
}
