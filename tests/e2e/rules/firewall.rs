//! The firewall between two wires: verdicts, reasons, and frames that no stack would send.

use crate::harness::build::Images;
use crate::harness::frames::{self, PEER_MAC, TEST_MAC};
use crate::harness::joined::{Joined, Setting, join, of_rule};
use crate::harness::network::Network;
use abi::share::{COUNTERS_PER_PORT, PORT_APPLIANCE};
use libtest_mimic::{Failed, Trial};
use nf::nft::Limits;
use nf::{Listing, Malformed};

/// The rules that the firewall comes with.
const RULES: &str = include_str!("../../../unikernels/firewall/rules/default.nft");
/// Frames of noise, and the seed by which a failing run is repeated.
const NOISE_FRAMES: u32 = 20_000;
const NOISE_SEED: u64 = 0x0b0a_0001;
/// How often a frame is sent after the noise, until one is not lost.
const ATTEMPTS: u32 = 5;

type Test = fn(&Images) -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("rules of the built-in set decide", |images| {
        rules(images, "spt")
    }),
    ("later fragments match no port", fragments),
    ("one VLAN tag is looked through", vlan),
    ("each malformed frame has its counter", malformed),
    ("noise is survived", noise),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let trial = |&(name, test): &(&str, Test)| {
        network.trial(format!("firewall::{name}"), move || test(images))
    };
    TESTS.iter().map(trial).collect()
}

fn firewall(images: &Images, host: &'static str) -> Result<Joined, Failed> {
    join(
        images,
        &Setting {
            host,
            vnet_header: [false; 2],
            ..Setting::of("firewall")
        },
    )
}

impl Joined {
    /// Sends a frame into the private port: it must come out of the public one unchanged, or not
    /// at all; the rule with this text must have decided.
    fn expect(&self, frame: &[u8], passes: bool, rule: &str) -> Result<(), Failed> {
        let rules = Listing::new(RULES, &Limits::DEFAULT).map_err(|e| e.to_string())?;
        let position = rules.iter().position(|listed| listed.text == rule);
        let number = of_rule(position.ok_or(format!("no rule {rule}"))?);
        let before = self.number(number)?;
        self.left.send(frame)?;
        self.await_number(number, before + 1)?;
        if !passes {
            return self.right.expect_silence(TEST_MAC);
        }
        let same = self.right.receive(TEST_MAC)? == frame;
        same.then_some(())
            .ok_or_else(|| "the frame was changed".into())
    }
}

/// One frame for each kind of rule.
pub fn rules(images: &Images, host: &'static str) -> Result<(), Failed> {
    let joined = firewall(images, host)?;
    joined.expect(
        &frames::udp(53, b"any"),
        true,
        "ip protocol udp counter accept",
    )?;
    joined.expect(
        &frames::tcp(7070, b"in"),
        true,
        "ether type ip tcp dport $SERVICE counter accept",
    )?;
    joined.expect(&frames::tcp(1234, b"no"), false, "policy drop")?;
    let mut arp = [&PEER_MAC[..], &TEST_MAC, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    arp.resize(60, 0);
    joined.expect(&arp, true, "ether type arp counter accept")?;
    let mut ipv6 = [&PEER_MAC[..], &TEST_MAC, &[0x86, 0xdd, 0x60], &[0; 39]].concat();
    ipv6[20] = 59; // no next header
    joined.expect(&ipv6, false, "policy drop")
}

/// Changes a byte of the IPv4 header and mends its checksum.
fn with_header_byte(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    frame[at] = byte;
    let (header, _) = etherparse::Ipv4Header::from_slice(&frame[14..]).expect("it is IPv4");
    let checksum = header.calc_header_checksum();
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// A fragment that begins at byte 64 of its packet.
fn later_fragment(frame: Vec<u8>) -> Vec<u8> {
    with_header_byte(frame, 21, 8)
}

fn fragments(images: &Images) -> Result<(), Failed> {
    let joined = firewall(images, "spt")?;
    let tcp = later_fragment(frames::tcp(7070, b"these bytes are no port"));
    joined.expect(&tcp, false, "policy drop")?;
    let udp = later_fragment(frames::udp(7070, b"the rule asks for the protocol alone"));
    joined.expect(&udp, true, "ip protocol udp counter accept")
}

fn vlan(images: &Images) -> Result<(), Failed> {
    let joined = firewall(images, "spt")?;
    let tagged = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 42], &frame[12..]].concat();
    let once = tagged(&frames::udp(53, &frames::payload(1472)));
    joined.expect(&once, true, "ip protocol udp counter accept")?;
    let twice = tagged(&tagged(&frames::udp(53, b"QinQ")));
    joined.expect(&twice, false, "policy drop")
}

fn malformed(images: &Images) -> Result<(), Failed> {
    let joined = firewall(images, "spt")?;
    let udp = || frames::udp(53, &frames::payload(64));
    let edit = |at: usize, byte: u8| {
        let mut frame = udp();
        frame[at] = byte;
        frame
    };
    let cases = [
        (udp()[..20].to_vec(), Malformed::TruncatedIp),
        (edit(14, 0x55), Malformed::BadIpHeader),
        (edit(14, 0x44), Malformed::BadIpHeader),
        (with_header_byte(udp(), 16, 0x7f), Malformed::BadIpLength),
        (edit(22, 63), Malformed::BadIpChecksum),
        (
            [&udp()[..12], &[8, 6, 0, 1]].concat(),
            Malformed::TruncatedArp,
        ),
    ];
    for (frame, reason) in cases {
        let number = COUNTERS_PER_PORT + PORT_APPLIANCE + reason.index();
        let before = joined.number(number)?;
        joined.left.send(&frame)?;
        joined
            .await_number(number, before + 1)
            .map_err(|_| format!("{} was not counted", reason.name()))?;
    }
    joined.right.expect_silence(TEST_MAC)?;
    joined.expect(&udp(), true, "ip protocol udp counter accept")
}

/// Random bytes behind plausible beginnings; the guest must live and still do its work.
fn noise(images: &Images) -> Result<(), Failed> {
    let mut joined = firewall(images, "spt")?;
    let mut state = NOISE_SEED;
    let mut random = || {
        // xorshift64 (Marsaglia, 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..NOISE_FRAMES {
        let mut frame = match random() % 3 {
            0 => frames::udp(53, &frames::payload(200)),
            1 => frames::tcp(7070, &frames::payload(100)),
            _ => vec![0; 14 + (random() % 1400) as usize],
        };
        for _ in 0..random() % 8 {
            let at = random() as usize % frame.len();
            frame[at] = random() as u8;
        }
        frame.truncate((14 + random() as usize % 1500).min(frame.len()));
        // The bridge on the way must not learn addresses from noise.
        frame[..6].copy_from_slice(&PEER_MAC);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x33]);
        joined.left.send(&frame)?;
        joined.right.drain();
    }
    let alive = joined.running.is_alive();
    alive
        .then_some(())
        .ok_or(format!("the firewall died of noise, seed {NOISE_SEED:#x}"))?;
    // While the firewall is behind with the noise, queues are full, and frames are lost as on any
    // wire.
    let after = frames::udp(53, b"still here");
    let passes = |_| {
        joined.right.drain();
        joined
            .expect(&after, true, "ip protocol udp counter accept")
            .ok()
    };
    (0..ATTEMPTS)
        .find_map(passes)
        .ok_or_else(|| "no frame passes after the noise".into())
}
