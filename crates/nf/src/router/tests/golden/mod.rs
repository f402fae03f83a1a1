//! Conversations as files that tcpdump and Wireshark read: what comes in at a port, and what leaves
//! by the other one. They are in `golden`, and are what the router does, byte for byte. After a
//! change that is meant, `UPDATE_GOLDEN=1 cargo test -p nf golden` writes them anew: look at them
//! with `tcpdump -nvr`.

use super::frame::{frame, icmp, packet, part, summed, tcp, udp};
use super::*;
use crate::conntrack::Refused;
use crate::key::protocol::{ICMP, TCP, UDP};
use std::path::Path;

const SYN: u8 = 2;
const FIN: u8 = 1;
const ACK: u8 = 16;
/// Nanoseconds between two packets, and those that one is in the router.
const PAUSE: u64 = 1_000_000;
const WITHIN: u64 = 1_000;
/// More parts of this packet follow (RFC 791, 3.1).
const MORE: u16 = 0x2000;

/// A block of pcapng, of which the body may need padding.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let length = (12 + padded as u32).to_le_bytes();
    let mut block = [&kind.to_le_bytes(), &length[..], body].concat();
    block.resize(8 + padded, 0);
    block.extend(length);
    block
}

/// A conversation through a router with these rules, and a file of it.
struct Capture {
    bench: Bench,
    file: Vec<u8>,
}

impl Capture {
    fn new(rules: &str) -> Self {
        // Byte order, version 1.0, of a length that is not said.
        let section = [&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..], &[0xff; 8]].concat();
        let mut file = block(0x0a0d_0d0a, &section);
        for port in PORTS {
            // Ethernet, whole frames; a name, and times in nanoseconds.
            let mut body = [&[1, 0, 0, 0, 0, 0, 0, 0], &[2, 0, port.len() as u8, 0][..]].concat();
            body.extend(port.as_bytes());
            body.resize(body.len().next_multiple_of(4), 0);
            body.extend([9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
            file.extend(block(1, &body));
        }
        Self {
            bench: Bench::new(&nat("postrouting", rules)),
            file,
        }
    }

    fn write(&mut self, port: u8, now: u64, frame: &[u8]) {
        let length = frame.len() as u32;
        let head = [port.into(), (now >> 32) as u32, now as u32, length, length];
        let head = head.map(u32::to_le_bytes).concat();
        self.file.extend(block(6, &[&head, frame].concat()));
    }

    fn pass(&mut self, from: u8, packet: &[u8]) -> Result<Vec<u8>, Stop> {
        self.bench.now += PAUSE;
        let (now, frame) = (self.bench.now, frame(packet));
        self.write(from, now, &frame);
        let left = self.bench.forward(from, frame, false)?;
        self.write(1 - from, now + WITHIN, &left);
        Ok(left)
    }

    /// A packet that comes through.
    fn talk(&mut self, from: u8, ends: [&str; 2], number: u8, payload: Vec<u8>) -> Vec<u8> {
        let packet = packet(ip(ends[0]), ip(ends[1]), number, payload);
        self.pass(from, &packet).unwrap()
    }

    #[track_caller]
    fn is(&self, name: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/router/tests/golden");
        let path = folder.join(name).with_extension("pcapng");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &self.file).unwrap();
        }
        let golden = std::fs::read(&path).unwrap();
        assert!(golden == self.file, "not what {} has", path.display());
    }
}

#[test]
fn a_handshake_and_its_end_are_translated() {
    let mut capture = Capture::new("oifname public masquerade");
    // The second client has the port of the first one, and gets another one.
    for client in [CLIENT, OTHER] {
        let out = capture.talk(0, [client, SERVER], TCP, tcp([4000, 80], 1, 0, SYN));
        let (_, _, [port, _]) = ends(&out);
        for (from, seq, ack, flags) in [
            (1, 9, 2, SYN | ACK),
            (0, 2, 10, ACK),
            (0, 2, 10, FIN | ACK),
            (1, 10, 3, FIN | ACK),
            (0, 3, 11, ACK),
        ] {
            match from {
                0 => capture.talk(0, [client, SERVER], TCP, tcp([4000, 80], seq, ack, flags)),
                _ => capture.talk(1, [SERVER, OUTSIDE], TCP, tcp([80, port], seq, ack, flags)),
            };
        }
    }
    capture.is("handshake");
}

#[test]
fn an_error_is_translated_with_what_it_quotes() {
    let mut capture = Capture::new(
        "oifname public meta l4proto udp snat ip to 192.0.2.9:5000-5009
        oifname public snat ip to 192.0.2.9",
    );
    let asked = capture.talk(0, [CLIENT, SERVER], UDP, udp([4000, 53], b"?"));
    let error = icmp(3, 3, [0; 4], &asked[14..]);
    capture.talk(1, [SERVER, "192.0.2.9"], ICMP, error);
    // Somebody on the way says so of a question of ICMP.
    let asked = capture.talk(0, [CLIENT, SERVER], ICMP, icmp(8, 0, [0, 7, 0, 1], b"ping"));
    let error = icmp(11, 0, [0; 4], &asked[14..]);
    capture.talk(1, ["198.51.100.1", "192.0.2.9"], ICMP, error);
    capture.is("error");
}

#[test]
fn parts_share_the_translation_of_the_first() {
    let mut capture = Capture::new("oifname public masquerade");
    let (source, destination) = (ip(CLIENT), ip(SERVER));
    let whole = summed(source, destination, UDP, udp([4000, 9], &[b'x'; 100]));
    let parts: Vec<_> = (0..3u16)
        .map(|number| {
            let at = usize::from(number) * 48;
            let end = whole.len().min(at + 48);
            let more = if end < whole.len() { MORE } else { 0 };
            part(
                source,
                destination,
                UDP,
                (6 * number) | more,
                &whole[at..end],
            )
        })
        .collect();
    // Before the first one, nobody knows where to.
    let early = capture.pass(0, &parts[1]);
    assert_eq!(early, Err(Stop::Refused(Refused::Fragment)));
    for part in &parts {
        assert_eq!(&capture.pass(0, part).unwrap()[26..30], &[192, 0, 2, 1]);
    }
    capture.talk(1, [SERVER, OUTSIDE], UDP, udp([9, 4000], b"!"));
    capture.is("fragments");
}
