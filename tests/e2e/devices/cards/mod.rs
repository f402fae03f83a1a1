//! Images that drive cards themselves: two of the lab's, behind its IOMMU, each wired to another
//! card, which Linux's own driver has, in a network of its own.
//!
//! ```text
//!   near (e1000e, Linux) === card [ guest ] card === far (e1000e, Linux)
//! ```
//!
//! The guests' cards are of one kind in a run of the lab ([`Kind`]).

mod ip;

use super::checkup;
use crate::commands::up::cards::OnCards;
use crate::harness::build::Images;
use crate::harness::frames;
use crate::harness::process::{Running, run, start};
use crate::harness::programs::{self, Sender};
use crate::harness::temporary::TemporaryFile;
use crate::services::{OUR_SIDE, router, stock};
use abi::share::{COUNTERS_OFFSET, COUNTERS_PER_PORT, PORT_COUNTERS, PortCounter};
use etherparse::{PacketBuilder, VlanId};
use libtest_mimic::{Completion, Failed, Trial};
use linux::netlink::Netlink;
use linux::packet::PacketSocket;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use testbed::segment::{Address, Segment};

const DEVICES: &str = "/sys/bus/pci/devices";
const INTERFACES: &str = "/sys/class/net";
/// The addresses that QEMU gives to the four cards that `xtask` wires: a guest's and Linux's on the
/// first wire, and on the second.
const MACS: [&str; 4] = [
    "52:54:00:12:34:56",
    "52:54:00:12:34:57",
    "52:54:00:12:34:58",
    "52:54:00:12:34:59",
];
/// QEMU's name for the wire's end at the guest's first card.
const FIRST_WIRE: &str = "n0";
/// What is written to this port is typed into QEMU's monitor; see `xtask`.
const MONITOR_PORT: u64 = 0xf6;
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// One for each host: who has spoken to a tap remembers its MAC address for a while.
const BEHIND_A_TAP: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 9, 0, 3), Ipv4Addr::new(10, 9, 0, 4)];
/// Indices of the ports, for counters: there is nothing else in the manifest.
const PRIVATE: usize = 1;
const PUBLIC: usize = 2;
const ACCEPT: &str = "table bridge t { chain c { type filter hook forward priority 0; policy \
                      accept; }\n}";
const HOSTS: [&str; 2] = ["spt", "hvt"];
/// How long something may take that should happen: all instructions are interpreted here.
const PATIENCE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);
/// Bytes that are sent each way.
const BULK: usize = 256 << 10;
/// How often a component is killed.
const KILLS: usize = 3;
/// The router's address on the first wire.
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 9);
/// Bytes that say that somebody is there.
const PING: usize = 64;

/// The test that runs a program which may not be installed.
const IPERF3: &str = "iperf3 sends both ways";
/// Tests whose guests are made for one kind of card.
const EXAMINED: &str = "the doctor finds a card in order";
const MIXED: &str = "frames go from a card to a tap and back";
const SOCKETS: &str = "sockets over a link come from a stack on a card";
const ROUTED: &str = "the router translates between two cards";

/// The variable in which `xtask` says what the guests' cards are.
const CARDS: &str = "OUTBOARD_CARDS";

/// What the guests' cards are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// QEMU's e1000e, as Linux's.
    Intel,
    /// QEMU's virtio-net-pci. No driver of Linux's is there for it.
    Virtio,
}

impl Kind {
    fn of_this_run() -> Self {
        match std::env::var(CARDS).as_deref() {
            Ok("virtio") => Self::Virtio,
            _ => Self::Intel,
        }
    }

    /// How the images that drive them are called, behind the appliance's name.
    fn variant(self) -> &'static str {
        match self {
            Self::Intel => "-nic",
            Self::Virtio => "-virtio",
        }
    }

    /// What the image says of the link. QEMU's virtio devices do not know how fast it is.
    fn link_up(self) -> &'static str {
        match self {
            Self::Intel => "port private: link up, 1000 Mb/s",
            Self::Virtio => "port private: link up\n",
        }
    }

    /// Whether there is an image of this appliance, or a guest, for them.
    fn has(self, name: &str) -> bool {
        match self {
            Self::Intel => true,
            Self::Virtio => ["echo", "iperf3"].contains(&name),
        }
    }
}

type Test = fn(&Images, &Cards, &str) -> Result<(), Failed>;

const TESTS: [(&str, Test); 13] = [
    (EXAMINED, examined),
    ("TCP passes between two cards", tcp),
    ("ping loses nothing", ping),
    (IPERF3, iperf3),
    ("a tagged frame of full length keeps its tag", tagged),
    (
        "a guest with nothing to do sleeps, or polls if told to",
        idle,
    ),
    ("a cable is pulled and plugged in", cable),
    (
        "a guest is killed under load, and another one starts",
        killed,
    ),
    (
        "a component is killed under load, and the next run has its cards",
        component,
    ),
    (MIXED, mixed),
    (ROUTED, ip::routed),
    (SOCKETS, ip::sockets),
    ("the reflector sends back what it gets", reflected),
];

pub fn trials(images: &'static Images) -> Vec<Trial> {
    let why = "drives cards that only the lab has (the stage `lab` runs it)";
    let missing = (!images.are_prebuilt()).then_some(why);
    let no_iperf3 = programs::missing(&["iperf3"]);
    let of_host = |host: &'static str| {
        TESTS.map(|(name, test)| {
            let is_for_intel = [EXAMINED, MIXED, ROUTED, SOCKETS].contains(&name);
            let intel_alone = is_for_intel && Kind::of_this_run() != Kind::Intel;
            let missing = missing
                .or(no_iperf3.filter(|_| name == IPERF3))
                .or(intel_alone.then_some("its guest drives e1000e"));
            Trial::ignorable_test(format!("cards::{name}, on {host}"), move || match missing {
                Some(why) => Ok(Completion::ignored_with(why)),
                None => {
                    test(images, &*Cards::acquire()?, host)?;
                    Ok(Completion::Completed)
                }
            })
        })
    };
    let services = |host| services(images, missing, host);
    let trials = HOSTS.into_iter().flat_map(of_host);
    trials.chain(HOSTS.into_iter().flat_map(services)).collect()
}

/// Appliances that speak TCP/IP, on the first card.
fn services(
    images: &'static Images,
    missing: Option<&'static str>,
    host: &'static str,
) -> [Trial; stock::USES.len()] {
    stock::USES.each_ref().map(|used| {
        let kind = Kind::of_this_run();
        let no_image = (!kind.has(used.name)).then_some("there is no such image for these cards");
        let missing = missing.or(used.missing()).or(no_image);
        let name = format!("cards::stock::{}, on {host}", used.name);
        Trial::ignorable_test(name, move || match missing {
            Some(why) => Ok(Completion::ignored_with(why)),
            None => {
                let cards = Cards::acquire()?;
                let card = (kind.variant(), cards.guests[0].as_str());
                stock::on_card(images, host, card, &cards.near, used)?;
                Ok(Completion::Completed)
            }
        })
    })
}

/// The cards, for one test at a time.
struct Cards {
    kind: Kind,
    /// PCI addresses of those that are bound for guests.
    guests: [String; 2],
    near: Segment,
    far: Segment,
}

impl Cards {
    fn acquire() -> Result<MutexGuard<'static, Self>, Failed> {
        static CARDS: OnceLock<Result<Mutex<Cards>, String>> = OnceLock::new();
        let cards = CARDS.get_or_init(|| {
            let cards = Self::find().map_err(|failed| format!("{:?}", failed.message()))?;
            Ok(Mutex::new(cards))
        });
        let cards = cards.as_ref().map_err(String::as_str)?;
        Ok(cards.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn find() -> Result<Self, Failed> {
        let kind = Kind::of_this_run();
        let [first, near, second, far] = MACS.map(interface);
        let segment = |interface: String, ips: &[Ipv4Addr]| -> Result<Segment, Failed> {
            let segment = Segment::new()?;
            Netlink::open()?.move_to(&interface, segment.as_fd())?;
            // QEMU makes IP fragments of what it should make segments of.
            segment.netlink(|netlink| netlink.set_segments_max(&interface, 1))?;
            for ip in ips {
                segment.configure(&interface, address(*ip))?;
            }
            Ok(segment)
        };
        let guests = match kind {
            Kind::Intel => [
                bound(&of_interface(&first?)?)?,
                bound(&of_interface(&second?)?)?,
            ],
            Kind::Virtio => {
                let [first, second] = virtio_devices()?;
                [bound(&first)?, bound(&second)?]
            }
        };
        let near = segment(near?, &[NEAR, OUR_SIDE])?;
        let far = segment(far?, &[FAR, router::SERVER])?;
        for (segment, gateway) in [(&near, ROUTER), (&far, router::PUBLIC)] {
            segment.netlink(|netlink| netlink.add_gateway(gateway.into()))?;
        }
        Ok(Self {
            kind,
            guests,
            near,
            far,
        })
    }
}

fn address(ip: Ipv4Addr) -> Address {
    Address {
        ip,
        prefix: 24,
        mtu: 1500,
    }
}

/// The name of the interface with this MAC address.
fn interface(mac: &str) -> Result<String, Failed> {
    for entry in fs::read_dir(INTERFACES)? {
        let entry = entry?;
        if fs::read_to_string(entry.path().join("address"))?.trim() == mac {
            return Ok(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Err(format!("no interface has the address {mac}").into())
}

/// The folder of the device behind an interface.
fn of_interface(interface: &str) -> Result<PathBuf, Failed> {
    Ok(fs::canonicalize(format!(
        "{INTERFACES}/{interface}/device"
    ))?)
}

/// The folders of the two virtio network devices, in the order of their addresses.
fn virtio_devices() -> Result<[PathBuf; 2], Failed> {
    let mut found = Vec::new();
    for entry in fs::read_dir(DEVICES)? {
        let device = entry?.path();
        let id = |name| fs::read_to_string(device.join(name));
        if id("vendor")?.trim() == "0x1af4" && id("device")?.trim() == "0x1041" {
            found.push(device);
        }
    }
    found.sort();
    found
        .try_into()
        .map_err(|_| "not two virtio devices".into())
}

/// Binds a device to `vfio-pci`; its PCI address.
fn bound(device: &Path) -> Result<String, Failed> {
    let address = device.file_name().ok_or("a device has an address")?;
    let address = address.to_string_lossy().into_owned();
    fs::write(device.join("driver_override"), "vfio-pci")?;
    if device.join("driver").exists() {
        fs::write(device.join("driver/unbind"), &address)?;
    }
    fs::write(format!("{DEVICES}/../drivers_probe"), &address)?;
    Ok(address)
}

/// A guest, with counters.
struct Guest {
    share: TemporaryFile,
    running: Running,
}

impl Guest {
    fn start(
        images: &Images,
        host: &str,
        devices: &[String],
        image: PathBuf,
        arguments: &[&str],
    ) -> Result<Self, Failed> {
        let share = TemporaryFile::new("share", abi::share::BYTES)?;
        let mut command = Command::new(images.program("outboard-tender"));
        command
            .args(["--mem=64", &format!("--host={host}")])
            .arg(format!("--share={}", share.path.display()))
            .args(devices)
            .arg("--")
            .arg(image)
            .args(arguments);
        let running = start(&mut command)?;
        Ok(Self { share, running })
    }

    /// The firewall between the two cards, which lets everything pass.
    fn firewall(
        images: &Images,
        cards: &Cards,
        host: &str,
        options: &[&str],
    ) -> Result<Self, Failed> {
        Self::firewall_with(images, cards, host, options, ACCEPT)
    }

    /// The same with rules.
    fn firewall_with(
        images: &Images,
        cards: &Cards,
        host: &str,
        options: &[&str],
        rules: &str,
    ) -> Result<Self, Failed> {
        let [private, public] = &cards.guests;
        let mut devices = vec![
            format!("--pci:private={private}"),
            format!("--pci:public={public}"),
        ];
        devices.extend(options.iter().map(|option| (*option).to_owned()));
        let image = images.appliance("firewall", cards.kind.variant());
        Self::start(images, host, &devices, image, &[rules])
    }

    fn counter(&self, port: usize, what: PortCounter) -> Result<u64, Failed> {
        self.number(port, what as usize)
    }

    fn number(&self, port: usize, number: usize) -> Result<u64, Failed> {
        let mut bytes = [0; 8];
        let number = port * COUNTERS_PER_PORT + number;
        let offset = (COUNTERS_OFFSET + number * bytes.len()) as u64;
        File::open(&self.share.path)?.read_exact_at(&mut bytes, offset)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// The counters of both ports that are not zero, by name.
    fn blocks(&self) -> Result<Vec<(usize, &'static str, u64)>, Failed> {
        let mut blocks = Vec::new();
        for port in [PRIVATE, PUBLIC] {
            for (number, name) in PORT_COUNTERS.into_iter().enumerate() {
                blocks.push((port, name, self.number(port, number)?));
            }
        }
        blocks.retain(|(_, _, count)| *count != 0);
        Ok(blocks)
    }

    /// Looks at its NIC that found frames, and that found none.
    fn polls(&self) -> Result<u64, Failed> {
        let busy = self.counter(PRIVATE, PortCounter::PollsBusy)?;
        Ok(busy + self.counter(PRIVATE, PortCounter::PollsIdle)?)
    }

    /// Nothing was wrong with the NIC of this port.
    fn expect_sound(&self, port: usize) -> Result<(), Failed> {
        for what in [
            PortCounter::RxLie,
            PortCounter::RxError,
            PortCounter::TxRefused,
            PortCounter::NicResets,
            PortCounter::NicGivenUp,
        ] {
            let count = self.counter(port, what)?;
            if count != 0 {
                return Err(format!("port {port} counted {count} {what:?}").into());
            }
        }
        Ok(())
    }

    /// Ends it; what it said.
    fn end(self, signal: Signal) -> Result<String, Failed> {
        self.running.signal(signal);
        Ok(self.running.finish()?.stdout)
    }
}

/// Waits until something is so.
fn until(what: &str, mut is: impl FnMut() -> Result<bool, Failed>) -> Result<(), Failed> {
    let deadline = Instant::now() + PATIENCE;
    while !is()? {
        if Instant::now() > deadline {
            return Err(format!("{what}: not in {} s", PATIENCE.as_secs()).into());
        }
        thread::sleep(POLL);
    }
    Ok(())
}

/// Interrupts of the guests' cards so far.
fn interrupts() -> Result<u64, Failed> {
    let text = fs::read_to_string("/proc/interrupts")?;
    let lines = text.lines().filter(|line| line.contains("vfio-msi"));
    let counts = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(counts.sum())
}

/// Accesses of devices that the IOMMU has stopped, by the kernel's log.
fn faults() -> Result<usize, Failed> {
    let log = run(&mut Command::new("dmesg"))?.stdout;
    let stopped = |line: &&str| line.contains("DMAR") && line.contains("fault addr");
    Ok(log.lines().filter(stopped).count())
}

/// A connection between two segments; the guest may still have to start.
fn connect(from: &Segment, to: &Segment, ip: Ipv4Addr) -> Result<[TcpStream; 2], Failed> {
    let listener = to.run(|| TcpListener::bind((ip, 0)))?;
    listener.set_nonblocking(true)?;
    let target = listener.local_addr()?;
    let once = Duration::from_secs(3);
    let mut connected = None;
    until("a connection", || {
        connected = from.run(|| TcpStream::connect_timeout(&target, once)).ok();
        Ok(connected.is_some())
    })?;
    let mut accepted = None;
    until("its other end", || {
        accepted = listener.accept().ok();
        Ok(accepted.is_some())
    })?;
    let (Some(near), Some((far, _))) = (connected, accepted) else {
        return Err("not connected".into());
    };
    far.set_nonblocking(false)?;
    for end in [&near, &far] {
        end.set_read_timeout(Some(PATIENCE))?;
        end.set_write_timeout(Some(PATIENCE))?;
    }
    Ok([near, far])
}

/// Sends so many bytes and compares what comes.
fn transfer(mut from: &TcpStream, mut to: &TcpStream, bytes: usize) -> Result<(), Failed> {
    let sent: Vec<u8> = (0..bytes)
        .map(|number| ((number * number) >> 7) as u8)
        .collect();
    let mut received = vec![0; bytes];
    thread::scope(|scope| {
        let sending = scope.spawn(|| from.write_all(&sent));
        to.read_exact(&mut received)?;
        sending.join().map_err(|_| "the sender panicked")??;
        (sent == received)
            .then_some(())
            .ok_or_else(|| Failed::from("other bytes came"))
    })
}

/// TCP through the guest.
fn both_ways(
    guest: &Guest,
    [from, to]: [&Segment; 2],
    ip: Ipv4Addr,
    bytes: usize,
) -> Result<(), Failed> {
    let transfers = || {
        let [near, far] = connect(from, to, ip)?;
        transfer(&near, &far, bytes)?;
        transfer(&far, &near, bytes)
    };
    transfers().map_err(|failed: Failed| match guest.blocks() {
        Ok(blocks) => format!("{:?}; counters: {blocks:?}", failed.message()).into(),
        Err(_) => failed,
    })
}

/// It takes its image's host itself, so that it is the same on each.
fn examined(images: &Images, cards: &Cards, _host: &str) -> Result<(), Failed> {
    let ended = checkup::examine(images, &cards.guests[0], "", &[])?;
    checkup::expect_good(&ended)
}

fn tcp(images: &Images, cards: &Cards, host: &str) -> Result<(), Failed> {
    let guest = Guest::firewall(images, cards, host, &[])?;
    both_ways(&guest, [&cards.near, &cards.far], FAR, BULK)?;
    if interrupts()? == 0 {
        return Err("no card has interrupted".into());
    }
    for port in [PRIVATE, PUBLIC] {
        guest.expect_sound(port)?;
        let bytes = guest.counter(port, PortCounter::RxBytes)?;
        if bytes < BULK as u64 {
            return Err(format!("port {port} received {bytes} bytes only").into());
        }
    }
    Ok(())
}

fn ping(images: &Images, cards: &Cards, host: &str) -> Result<(), Failed> {
    let guest = Guest::firewall(images, cards, host, &[])?;
    // So that it is there, and both ends know each other's address.
    both_ways(&guest, [&cards.near, &cards.far], FAR, PING)?;
    programs::ping(&cards.near, FAR)?;
    programs::ping(&cards.far, NEAR)
}

fn iperf3(images: &Images, cards: &Cards, host: &str) -> Result<(), Failed> {
    let guest = Guest::firewall(images, cards, host, &[])?;
    both_ways(&guest, [&cards.near, &cards.far], FAR, PING)?;
    for sender in [Sender::Client, Sender::Server] {
        programs::iperf3(&cards.near, &cards.far, FAR, sender)?;
    }
    for port in [PRIVATE, PUBLIC] {
        guest.expect_sound(port)?;
    }
    Ok(())
}

/// A frame with a tag for no VLAN, which Linux takes as if it had none; the rules let nothing else
/// pass.
fn tagged(images: &Images, cards: &Cards, host: &str) -> Result<(), Failed> {
    const RULES: &str = "table bridge t { chain c { type filter hook forward priority 0; policy \
                         drop; vlan id 0 accept; }\n}";
    const PORT: u16 = 4242;
    let payload = frames::payload(1500 - 28);
    let [_, near, _, far] = MACS.map(mac);
    let builder = PacketBuilder::ethernet2(near?, far?)
        .single_vlan(VlanId::ZERO)
        .ipv4(NEAR.octets(), FAR.octets(), 64)
        .udp(PORT, PORT);
    let mut frame = Vec::with_capacity(builder.size(payload.len()));
    builder.write(&mut frame, &payload)?;
    let guest = Guest::firewall_with(images, cards, host, &[], RULES)?;
    let (name, _) = card(&cards.near)?;
    let sender = cards.near.run(|| PacketSocket::open(&name))?;
    let receiver = cards.far.run(|| UdpSocket::bind((FAR, PORT)))?;
    receiver.set_nonblocking(true)?;
    let mut received = vec![0; frame.len()];
    until("a tagged frame", || {
        sender.send(&frame)?;
        Ok(receiver
            .recv(&mut received)
            .is_ok_and(|len| received[..len] == payload))
    })?;
    for port in [PRIVATE, PUBLIC] {
        guest.expect_sound(port)?;
    }
    // A frame that was sent once more may be counted between the two.
    until("frames that were counted whole", || {
        let sent = guest.counter(PUBLIC, PortCounter::TxFrames)?;
        let bytes = guest.counter(PUBLIC, PortCounter::TxBytes)?;
        Ok(sent > 0 && bytes == sent * frame.len() as u64)
    })
}

/// A MAC address in words.
fn mac(text: &str) -> Result<[u8; 6], Failed> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let bytes: Vec<_> = bytes.collect::<Result<_, _>>()?;
    bytes.try_into().map_err(|_| "six bytes".into())
}

fn idle(images: &Images, cards: &Cards, host: &str) -> Result<(), Failed> {
    // Without IPv6 nobody says anything by himself once the addresses are known.
    let polls_in_a_second = |guest: &Guest| -> Result<u64, Failed> {
        let before = guest.polls()?;
        thread::sleep(Duration::from_secs(1));
        Ok(guest.polls()? - before)
    };
    let guest = Guest::firewall(images, cards, host, &[])?;
    both_ways(&guest, [&cards.near, &cards.far], FAR, PING)?;
    until("sleep", || Ok(polls_in_a_second(&guest)? < 20))?;
    guest.end(Signal::KILL)?;

    let guest = Guest::firewall(images, cards, host, &["--poll=busy"])?;
    both_ways(&guest, [&cards.near, &cards.far], FAR, PING)?;
    until("polling", || Ok(polls_in_a_second(&guest)? > 1000))
}

/// Types a line into QEMU's monitor.
pub fn monitor(line: &str) -> Result<(), Failed> {
    let port = fs::OpenOptions::new().write(true).open("/dev/port")?;
    for byte in line.bytes().chain([b'\n']) {
        port.write_all_at(&[byte], MONITOR_PORT)?;
    }
    Ok(())
}

fn cable(images: &Images, cards: &Cards, host: &str) -> Result<(), Failed> {
    let guest = Guest::firewall(images, cards, host, &[])?;
    both_ways(&guest, [&cards.near, &cards.far], FAR, BULK)?;
    monitor(&format!("set_link {FIRST_WIRE} off"))?;
    let socket = cards.far.run(|| UdpSocket::bind((FAR, 0)))?;
    let pulled = until("frames that cannot be sent", || {
        socket.send_to(b"anybody?", (NEAR, 9))?;
        Ok(guest.counter(PRIVATE, PortCounter::TxLinkDown)? > 0)
    });
    monitor(&format!("set_link {FIRST_WIRE} on"))?;
    pulled?;
    both_ways(&guest, [&cards.near, &cards.far], FAR, BULK)?;
    guest.expect_sound(PRIVATE)?;
    let said = guest.end(Signal::KILL)?;
    for line in ["port private: link down", cards.kind.link_up()] {
        if !said.contains(line) {
            return Err(format!("the guest did not say {line:?}: {said}").into());
        }
    }
    Ok(())
}

/// Sends without end, until its connection has one.
fn flood(near: TcpStream) -> thread::JoinHandle<()> {
    thread::spawn(move || while (&near).write_all(&[7; 4096]).is_ok() {})
}

fn killed(images: &Images, cards: &Cards, host: &str) -> Result<(), Failed> {
    let guest = Guest::firewall(images, cards, host, &[])?;
    let [near, far] = connect(&cards.near, &cards.far, FAR)?;
    let flood = flood(near);
    let mut some = vec![0; BULK];
    (&far).read_exact(&mut some)?;
    let before = faults()?;
    guest.end(Signal::KILL)?;
    // Its card was reset before its memory was taken away from it.
    if faults()? != before {
        return Err("the card reached for memory that it no longer had".into());
    }

    let guest = Guest::firewall(images, cards, host, &[])?;
    let again = both_ways(&guest, [&cards.near, &cards.far], FAR, BULK);
    // What nobody has read is lost, which resets the connection.
    drop(far);
    flood.join().map_err(|_| "the flood panicked")?;
    again?;
    guest.expect_sound(PRIVATE)?;
    guest.expect_sound(PUBLIC)
}

/// Connections outlive the driver: they end in Linux on either side.
fn component(images: &Images, cards: &Cards, host: &str) -> Result<(), Failed> {
    let system = OnCards::start(images, host, cards.kind.variant(), &cards.guests)?;
    let [near, far] = connect(&cards.near, &cards.far, FAR)?;
    let flood = flood(near);
    let mut some = vec![0; BULK];
    (&far).read_exact(&mut some)?;
    let before = faults()?;
    for _ in 0..KILLS {
        system.kill()?;
        (&far).read_exact(&mut some)?;
    }
    drop(far);
    flood.join().map_err(|_| "the flood panicked")?;
    system.down()?;
    match faults()? == before {
        true => Ok(()),
        false => Err("a card reached for memory that it no longer had".into()),
    }
}

/// A tap that carries virtio-net headers: what comes from there is TCP in large frames, with
/// checksums left to the card.
fn mixed(images: &Images, cards: &Cards, host: &str) -> Result<(), Failed> {
    let segment = Segment::new()?;
    let behind = BEHIND_A_TAP[usize::from(host == "hvt")];
    let tap: OwnedFd = segment.tap("tap", true, address(behind))?.into_fd();
    rustix::io::fcntl_setfd(&tap, rustix::io::FdFlags::empty())?;
    let devices = [
        format!("--pci:left={}", cards.guests[0]),
        format!("--net:right=@{}", tap.as_raw_fd()),
    ];
    let guest = Guest::start(
        images,
        host,
        &devices,
        images.guest("nic_repeater"),
        &[ACCEPT],
    )?;
    both_ways(&guest, [&cards.near, &segment], behind, BULK)?;
    // The network comes first, then PCI devices.
    let (right, left) = (1, 2);
    guest.expect_sound(left)?;
    let cut = guest.counter(left, PortCounter::TxSegmented)?;
    let back = guest.counter(right, PortCounter::TxBytes)?;
    if cut == 0 || back < BULK as u64 {
        return Err(format!("{cut} frames were cut, {back} bytes went to the tap").into());
    }
    Ok(())
}

fn reflected(images: &Images, cards: &Cards, host: &str) -> Result<(), Failed> {
    let nic = format!("--pci:nic={}", cards.guests[0]);
    // The manifest of the reflector is that of an e1000e.
    let variant = match cards.kind {
        Kind::Intel => "",
        Kind::Virtio => "-virtio",
    };
    let image = images.appliance("reflector", variant);
    let guest = Guest::start(images, host, &[nic], image, &[ACCEPT])?;
    // To all in the subnet, for nobody there would answer a question for an address.
    let socket = cards.near.run(|| UdpSocket::bind((NEAR, 0)))?;
    socket.set_broadcast(true)?;
    let all = Ipv4Addr::from_bits(NEAR.to_bits() | 0xff);
    let frames = 50;
    let before = received(&cards.near)?;
    until("frames that come back", || {
        socket.send_to(b"who is there?", (all, 9))?;
        Ok(received(&cards.near)? >= before + frames)
    })?;
    let taken = guest.counter(1, PortCounter::RxFrames)?;
    guest.expect_sound(1)?;
    (taken >= frames)
        .then_some(())
        .ok_or_else(|| format!("the reflector has seen {taken} frames").into())
}

/// The name of the card in this segment, and its counters.
fn card(segment: &Segment) -> Result<(String, String), Failed> {
    let text = segment.run(|| fs::read_to_string("/proc/thread-self/net/dev"))?;
    let card = text
        .lines()
        .rfind(|line| line.contains(':') && !line.contains("lo:"));
    let (name, numbers) = card
        .and_then(|card| card.split_once(':'))
        .ok_or("no card")?;
    Ok((name.trim().to_owned(), numbers.to_owned()))
}

/// Frames that the card in this segment has received.
fn received(segment: &Segment) -> Result<u64, Failed> {
    let (_, numbers) = card(segment)?;
    let frames = numbers
        .split_whitespace()
        .nth(1)
        .ok_or("no number of frames")?;
    Ok(frames.parse()?)
}
