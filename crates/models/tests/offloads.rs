//! What a driver leaves to the device must come out as what software would have made of it.

use device::offload::Checksum;
use device::{
    Batch, FRAME_BYTES_MAX, Frame, Gso, GsoKind, HEADROOM, Nic, Offload, Pool, TEND_NANOSECONDS,
    segments,
};
use drivers::net::ixgbe::{BUFFER_BYTES, BUFFERS, Config, Driver};
use hw::sim::{View, arena};
use models::wire::{Pair, pair};
use models::{Device, Intel82599, Local};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const DMA_BYTES: usize = 4 << 20;
const IOVA: u64 = 0x10_0000_0000;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// FIN, PSH, ACK, CWR.
const FLAGS: u8 = 0x99;

struct Bench {
    device: Rc<Local<Intel82599<Pair>>>,
    driver: Driver,
    memory: View,
    far: Pair,
    pool: Pool,
    now: u64,
}

impl Bench {
    fn new() -> Self {
        let (near, far) = pair();
        let device = Local::new(Intel82599::new([2; 6], near, &"".parse().unwrap()));
        let (mut arena, memory) = arena(DMA_BYTES, IOVA);
        let buffers = Pool::dma(&mut arena, BUFFERS, BUFFER_BYTES).unwrap();
        let pool = Pool::dma(&mut arena, 2, HEADROOM + FRAME_BYTES_MAX).unwrap();
        let time = Cell::new(0);
        let clock = || {
            time.set(time.get() + 1000);
            time.get()
        };
        let config = Config::FORWARD;
        let driver = Driver::new(device.mmio(), &mut arena, buffers, config, clock);
        let mut bench = Self {
            device,
            driver: driver.unwrap(),
            memory,
            far,
            pool,
            now: time.get(),
        };
        bench.pass();
        bench.pass();
        bench
    }

    fn pass(&mut self) {
        self.now += TEND_NANOSECONDS;
        let now = Duration::from_nanos(self.now);
        self.device.poll(&self.memory, now);
        self.driver.tend(self.now);
    }

    /// What comes out of the device for a frame.
    fn send(&mut self, bytes: &[u8], offload: Offload) -> Vec<Vec<u8>> {
        let mut frame: Frame = self.pool.alloc(bytes.len()).unwrap();
        frame.bytes_mut().copy_from_slice(bytes);
        frame.set_offload(offload);
        let mut batch = Batch::new();
        batch.push(frame).unwrap();
        self.driver.transmit(&mut batch);
        self.pass();
        assert!(
            self.device.device().violations().is_empty(),
            "{}",
            self.device.device().violations()
        );
        assert_eq!(self.pool.free(), 2);
        std::iter::from_fn(|| self.far.receive()).collect()
    }
}

fn sum(words: &[u8]) -> u32 {
    let pairs = words.chunks(2);
    pairs
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)])))
        .sum()
}

/// A packet of `payload` bytes as its sender leaves it to the device: tags, version of IP and
/// length of TCP options vary. Returns it and where its transport header begins.
fn packet(protocol: u8, v6: bool, tags: usize, options: usize, payload: usize) -> (Vec<u8>, usize) {
    let mut frame = vec![2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 9];
    for tag in 0..tags as u8 {
        // The outer one of two is a service's.
        let kind = if tags == 2 && tag == 0 {
            [0x88, 0xa8]
        } else {
            [0x81, 0x00]
        };
        frame.extend([kind[0], kind[1], 0, 5 + tag]);
    }
    let header = if protocol == TCP { 20 + options } else { 8 };
    let len = header + payload;
    let addresses: Vec<u8>;
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((len as u16).to_be_bytes());
        frame.extend([protocol, 64]);
        addresses = (0..32).collect();
    } else {
        let at = frame.len() + 2;
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend((20 + len as u16).to_be_bytes());
        frame.extend([0x12, 0x34, 0x40, 0, 64, protocol, 0, 0]);
        addresses = vec![10, 0, 0, 1, 10, 0, 0, 2];
        let mut check = sum(&frame[at..]) + sum(&addresses);
        while check > 0xffff {
            check = (check & 0xffff) + (check >> 16);
        }
        frame[at + 10..at + 12].copy_from_slice(&(!check as u16).to_be_bytes());
    }
    frame.extend(&addresses);
    let start = frame.len();
    let mut pseudo = sum(&addresses) + u32::from(protocol) + len as u32;
    while pseudo > 0xffff {
        pseudo = (pseudo & 0xffff) + (pseudo >> 16);
    }
    let pseudo = (pseudo as u16).to_be_bytes();
    frame.extend([0x30, 0x39, 0x00, 0x50]);
    if protocol == TCP {
        frame.extend([0xff, 0xff, 0xf0, 0, 0, 0, 0, 1]);
        frame.extend([
            (header as u8 / 4) << 4,
            FLAGS,
            0x20,
            0,
            pseudo[0],
            pseudo[1],
            0,
            0,
        ]);
        frame.extend(vec![1; options]);
    } else {
        frame.extend((len as u16).to_be_bytes());
        frame.extend(pseudo);
    }
    frame.extend((0..payload).map(|at| (at * 7 + at / 251) as u8));
    (frame, start)
}

#[test]
fn checksums_are_those_of_software() {
    let mut bench = Bench::new();
    for payload in [0, 1, 18, 999, 1400] {
        for (protocol, field) in [(TCP, 16), (UDP, 6)] {
            for (v6, tags) in [(false, 0), (true, 0), (false, 1), (true, 1), (false, 2)] {
                let (frame, start) = packet(protocol, v6, tags, 0, payload);
                let offload = Offload {
                    checksum: Some(Checksum {
                        start: start as u16,
                        offset: field,
                    }),
                    gso: None,
                };
                let mut expected = frame.clone();
                offload.complete_checksum(&mut expected);
                expected.resize(expected.len().max(60), 0);
                let what = format!("{protocol} {v6} {tags} {payload}");
                assert!(bench.send(&frame, offload) == [expected], "{what}");
            }
        }
    }
}

#[test]
fn segments_are_those_of_software() {
    let mut bench = Bench::new();
    for (payload, size) in [
        (1, 1448),
        (1448, 1448),
        (1449, 1448),
        (9000, 536),
        (65_000, 1448),
    ] {
        for (v6, tags, options) in [(false, 0, 0), (true, 0, 12), (false, 1, 12), (true, 1, 40)] {
            let (frame, start) = packet(TCP, v6, tags, options, payload);
            let gso = Gso {
                kind: if v6 { GsoKind::TcpV6 } else { GsoKind::TcpV4 },
                size,
                header: (start + 20 + options) as u16,
                ecn: true,
            };
            let offload = Offload {
                checksum: Some(Checksum {
                    start: start as u16,
                    offset: 16,
                }),
                gso: Some(gso),
            };
            let mut expected = Vec::new();
            let mut cut = segments(&frame, gso).unwrap();
            let mut segment = vec![0; gso.segment_bytes()];
            while let Some(len) = cut.next(&mut segment) {
                expected.push(segment[..len].to_vec());
                expected.last_mut().unwrap().resize(len.max(60), 0);
            }
            let sent = bench.send(&frame, offload);
            let what = format!("{payload} by {size}, {v6} {tags} {options}");
            assert_eq!(sent.len(), expected.len(), "{what}");
            for (number, (sent, expected)) in sent.iter().zip(&expected).enumerate() {
                assert!(
                    sent == expected,
                    "{what}, {number}:\n{sent:02x?}\n{expected:02x?}"
                );
            }
        }
    }
}
