//! The driver against a puppet: what it does with a device that behaves, and with one that lies.

mod coalesce;

use super::descriptor::*;
use super::puppet::{MAC, Puppet};
use super::registers::*;
use super::*;
use crate::net::recovery::{HANG_NANOSECONDS, HEALTHY_NANOSECONDS, RESETS_MAX};
use alloc::vec;
use alloc::vec::Vec;
use device::offload::{Checksum, Offload};
use device::{Frame, Gso, GsoKind};
use hw::Reachable;
use proptest::prelude::*;

const RX: usize = 64;
const TX: usize = 64;
const BUFFERS: usize = 4 * RX;
const BUFFER_BYTES: usize = device::HEADROOM + 2048;
const DMA_BYTES: usize = BUFFERS * (BUFFER_BYTES + 64) + (64 << 10);
const TEND: u64 = device::TEND_NANOSECONDS;

struct Bench {
    puppet: Puppet,
    nic: Driver<RX, TX>,
    pool: Pool,
    now: u64,
}

impl Bench {
    fn new() -> Self {
        Self::with(Config::FORWARD)
    }

    fn with(config: Config) -> Self {
        let buffer_bytes = match config.coalesce {
            true => COALESCED_BUFFER_BYTES,
            false => BUFFER_BYTES,
        };
        let dma_bytes = BUFFERS * (buffer_bytes + 64) + (64 << 10);
        let (puppet, bar, mut arena) = Puppet::new(dma_bytes);
        let pool = Pool::dma(&mut arena, BUFFERS, buffer_bytes).unwrap();
        let clock = puppet.clock();
        let nic = Driver::new(bar, &mut arena, pool, config, &clock).unwrap();
        Self {
            puppet,
            nic,
            pool,
            now: 0,
        }
    }

    fn tend(&mut self) {
        self.now += TEND;
        self.nic.tend(self.now);
    }

    fn receive(&mut self) -> Batch {
        let mut batch = Batch::new();
        self.nic.receive(&mut batch);
        batch
    }

    fn send(&mut self, frames: Vec<Frame>) {
        let mut batch = Batch::new();
        frames
            .into_iter()
            .for_each(|frame| batch.push(frame).unwrap());
        self.nic.transmit(&mut batch);
        assert!(batch.is_empty());
    }

    fn frame(&self, bytes: &[u8]) -> Frame {
        let mut frame = self.pool.alloc(bytes.len()).unwrap();
        frame.bytes_mut().copy_from_slice(bytes);
        frame
    }

    /// After the tends of a reset.
    fn recover(&mut self) {
        self.tend();
        assert!(self.puppet.end_reset(), "the driver resets the device");
        self.puppet.power_on();
        self.tend();
    }

    /// Frames pass both ways, each once and unharmed.
    fn works(&mut self) {
        for n in 0..3 * RX as u8 {
            assert!(self.puppet.deliver(&[n; 60]).unwrap());
            let mut batch = self.receive();
            let received: Vec<_> = batch.iter().map(|frame| frame.bytes().to_vec()).collect();
            assert_eq!(received, [[n; 60]]);
            self.nic.transmit(&mut batch);
            let sent = self.puppet.drain().unwrap();
            assert_eq!(self.puppet.frames(&sent).unwrap(), [[n; 60]]);
        }
        self.tend();
        assert_eq!(self.pool.free(), BUFFERS - RX, "all sent frames came back");
    }
}

#[test]
fn frames_are_received_and_sent_in_order_round_the_rings() {
    let mut bench = Bench::new();
    assert_eq!((bench.nic.mac(), bench.nic.link()), (MAC, Some(10_000)));
    bench.works();
    let counts = *bench.nic.counts();
    assert_eq!((counts.resets, counts.rx_lie, counts.tx_no_room), (0, 0, 0));
}

/// What Linux's driver does before it gives a card away, and what may be left of a queue's rate.
#[test]
fn a_card_that_another_driver_had_gets_its_light_and_its_rate_back() {
    let (puppet, bar, mut arena) = Puppet::new(DMA_BYTES);
    puppet.set(ESDP, ESDP_SDP3 | 0x804);
    puppet.set(RTTBCNRC, 0x8000_4000);
    let pool = Pool::dma(&mut arena, BUFFERS, BUFFER_BYTES).unwrap();
    let clock = puppet.clock();
    Driver::<RX, TX>::new(bar, &mut arena, pool, Config::FORWARD, &clock).unwrap();
    assert_eq!((puppet.get(ESDP), puppet.get(RTTBCNRC)), (0x804, 0));
}

#[test]
fn what_is_received_is_sent_from_the_same_bytes() {
    let mut bench = Bench::new();
    let told = bench.puppet.receive_address().unwrap();
    bench.puppet.deliver(&[7; 60]).unwrap();
    let mut batch = bench.receive();
    assert_eq!(batch.iter().next().unwrap().iova().unwrap().raw(), told);
    bench.nic.transmit(&mut batch);
    assert_eq!(bench.puppet.drain().unwrap()[0][0], told, "the same buffer");
}

#[test]
fn what_there_is_no_room_for_is_dropped_and_counted() {
    let mut bench = Bench::new();
    let frames = (0..TX).map(|_| bench.frame(&[1; 60])).collect();
    bench.send(frames);
    assert_eq!(
        bench.nic.counts().tx_no_room,
        1,
        "one descriptor stays free"
    );
    let runt = bench.frame(&[1; 16]);
    bench.puppet.drain().unwrap();
    bench.send(vec![runt]);
    assert_eq!(bench.nic.counts().tx_refused, 1);
    let plain = Pool::new(vec![0; BUFFER_BYTES].leak(), BUFFER_BYTES);
    bench.send(vec![plain.alloc(60).unwrap()]);
    assert_eq!(bench.nic.counts().tx_refused, 2, "no device can reach it");
    bench.puppet.set_link(false);
    bench.tend();
    bench.send(vec![bench.pool.alloc(60).unwrap()]);
    assert_eq!(bench.nic.counts().tx_link_down, 1);
    bench.puppet.set_link(true);
    bench.tend();
    bench.works();
}

#[test]
fn a_frame_refused_in_the_middle_does_not_count_and_those_behind_it_do() {
    let mut bench = Bench::new();
    let mut batch = Batch::new();
    let plain = Pool::new(vec![0; BUFFER_BYTES].leak(), BUFFER_BYTES);
    let mut cut = bench.frame(&[1; 1000]);
    // No headers, which the device would have to find.
    cut.set_offload(Offload {
        checksum: None,
        gso: Some(Gso {
            kind: GsoKind::TcpV4,
            size: 100,
            header: 54,
            ecn: false,
        }),
    });
    let frame = |length| bench.pool.alloc(length).unwrap();
    let unreachable = plain.alloc(60).unwrap();
    for frame in [frame(60), frame(16), frame(70), cut, unreachable, frame(80)] {
        batch.push(frame).unwrap();
    }
    let (frames, bytes) = (3, 210);
    assert_eq!(bench.nic.transmit(&mut batch), Sent { frames, bytes });
    assert_eq!(bench.nic.counts().tx_refused, 3);
    (0..TX).for_each(|_| batch.push(bench.frame(&[1; 60])).unwrap());
    let sent = bench.nic.transmit(&mut batch);
    assert_eq!(sent.frames, TX as u64 - bench.nic.counts().tx_no_room);
    assert_eq!(sent.bytes, 60 * sent.frames);
    bench.puppet.set_link(false);
    bench.tend();
    batch.push(bench.frame(&[1; 60])).unwrap();
    assert_eq!(bench.nic.transmit(&mut batch), Sent::default());
}

#[test]
fn an_empty_pool_loses_no_frame() {
    let mut bench = Bench::new();
    let kept: Vec<_> = core::iter::from_fn(|| bench.pool.alloc(60)).collect();
    bench.puppet.deliver(&[5; 60]).unwrap();
    assert!(bench.receive().is_empty());
    assert_eq!(bench.nic.counts().no_buffer, 1);
    drop(kept);
    assert_eq!(bench.receive().iter().next().unwrap().bytes(), [5; 60]);
}

#[test]
fn a_frame_that_comes_while_arming_is_found() {
    let mut bench = Bench::new();
    assert!(!bench.nic.arm());
    assert_eq!(bench.puppet.get(EIMS) & CAUSE_RX, CAUSE_RX);
    bench.puppet.deliver(&[1; 60]).unwrap();
    assert!(bench.nic.arm());
}

#[test]
fn bad_frames_are_counted_and_their_buffers_offered_again() {
    let mut bench = Bench::new();
    for _ in 0..2 * RX {
        bench.puppet.deliver(&[1; 60]).unwrap();
        let status = RX_DD | RX_EOP | RX_RXE | 60 << RX_LENGTH_SHIFT;
        bench
            .puppet
            .scribble_receive(usize::MAX, [0, status])
            .unwrap();
        assert!(bench.receive().is_empty());
    }
    assert_eq!(bench.nic.counts().rx_error, 2 * RX as u64);
    assert_eq!(bench.pool.free(), BUFFERS - RX);
    bench.works();
}

#[test]
fn a_wrong_checksum_is_for_the_receiver_to_see() {
    let mut bench = Bench::new();
    let status = RX_DD | RX_EOP | RX_IPE | 60 << RX_LENGTH_SHIFT;
    bench.puppet.scribble_receive(0, [0, status]).unwrap();
    assert_eq!(bench.receive().len(), 1);
    assert_eq!(bench.nic.statistics().rx_bad_checksum, 1);
}

#[test]
fn each_lie_is_answered_by_a_reset() {
    let length = |bytes: u64| bytes << RX_LENGTH_SHIFT;
    let lies = [
        RX_DD | length(60),
        RX_DD | RX_EOP | length(13),
        RX_DD | RX_EOP,
        RX_DD | RX_EOP | length(2049),
        RX_DD | RX_EOP | RX_IPE | length(0xffff),
        !RX_RXE,
    ];
    for lie in lies {
        let mut bench = Bench::new();
        bench.puppet.scribble_receive(0, [u64::MAX, lie]).unwrap();
        assert!(bench.receive().is_empty(), "{lie:#x}");
        assert_eq!(bench.nic.counts().rx_lie, 1, "{lie:#x}");
        assert!(bench.receive().is_empty() && !bench.nic.arm());
        bench.send(vec![bench.frame(&[1; 60])]);
        bench.recover();
        assert_eq!(bench.nic.counts().resets, 1);
        bench.works();
    }
}

#[test]
fn a_descriptor_before_its_turn_is_a_lie() {
    let mut bench = Bench::new();
    let status = RX_DD | RX_EOP | 60 << RX_LENGTH_SHIFT;
    bench.puppet.scribble_receive(3, [0, status]).unwrap();
    assert!(bench.receive().is_empty());
    bench.recover();
    assert_eq!(
        (bench.nic.counts().rx_lie, bench.nic.counts().resets),
        (1, 1)
    );
    bench.works();
}

#[test]
fn a_transmitter_that_hangs_is_reset() {
    let mut bench = Bench::new();
    bench.send(vec![bench.frame(&[1; 60])]);
    for _ in 0..HANG_NANOSECONDS / TEND {
        bench.tend();
        assert_eq!(bench.nic.counts().resets, 0);
    }
    bench.recover();
    assert_eq!(bench.nic.counts().resets, 1);
    bench.works();
}

#[test]
fn a_link_that_is_down_is_no_hang() {
    let mut bench = Bench::new();
    bench.send(vec![bench.frame(&[1; 60])]);
    bench.puppet.set_link(false);
    for _ in 0..2 * HANG_NANOSECONDS / TEND {
        bench.tend();
    }
    assert_eq!(bench.nic.counts().resets, 0);
}

#[test]
fn a_device_that_is_gone_is_given_up() {
    let mut bench = Bench::new();
    bench.send(vec![bench.frame(&[1; 60])]);
    bench.puppet.all_ones();
    for _ in 0..3 * RESETS_MAX {
        bench.tend();
        bench.puppet.all_ones();
    }
    assert!(bench.nic.counts().given_up);
    assert_eq!(bench.nic.counts().resets, u64::from(RESETS_MAX));
    assert_eq!(
        bench.pool.free(),
        BUFFERS - RX - 1,
        "it may still send what it has"
    );
    assert!(bench.receive().is_empty() && !bench.nic.arm());
}

#[test]
fn a_device_that_lies_again_and_again_is_given_up_and_one_that_lies_rarely_is_not() {
    for (healthy, given_up) in [(false, true), (true, false)] {
        let mut bench = Bench::new();
        for _ in 0..2 * RESETS_MAX {
            if healthy {
                bench.now += HEALTHY_NANOSECONDS;
                bench.tend();
            }
            bench.puppet.scribble_receive(0, [0, RX_DD]).unwrap();
            bench.receive();
            bench.tend();
            bench.puppet.end_reset();
            bench.puppet.power_on();
            bench.tend();
        }
        assert_eq!(bench.nic.counts().given_up, given_up);
    }
}

#[test]
fn bring_up_says_what_is_missing() {
    let fails = |spoil: fn(&Puppet)| {
        let (puppet, bar, mut arena) = Puppet::new(DMA_BYTES);
        let pool = Pool::dma(&mut arena, BUFFERS, BUFFER_BYTES).unwrap();
        spoil(&puppet);
        let clock = puppet.clock();
        let nic = Driver::<RX, TX>::new(bar, &mut arena, pool, Config::FORWARD, &clock);
        nic.err()
    };
    let timeout = |error| matches!(error, Some(Error::Timeout(_)));
    assert!(timeout(fails(|puppet| puppet.set(EEC, 0))));
    assert!(timeout(fails(|puppet| puppet.set(RDRXCTL, 0))));
    assert!(timeout(fails(|puppet| puppet.set(SECRXSTAT, 0))));
    assert_eq!(fails(Puppet::all_ones), Some(Error::Gone));
    assert_eq!(fails(|puppet| puppet.set(EEC, ALL_ONES)), Some(Error::Gone));
    let no_mac = fails(|puppet| puppet.set(RAL, 1));
    assert!(matches!(no_mac, Some(Error::Mac(_))));

    let (puppet, bar, mut arena) = Puppet::new(DMA_BYTES);
    let clock = puppet.clock();
    let mut new = |pool, mtu| {
        let config = Config {
            mtu,
            ..Config::FORWARD
        };
        let nic = Driver::<RX, TX>::new(bar.clone(), &mut arena, pool, config, &clock);
        nic.err()
    };
    let plain = Pool::new(vec![0; RX * BUFFER_BYTES].leak(), BUFFER_BYTES);
    assert_eq!(new(plain, 1500), Some(Error::Buffers));
    assert_eq!(new(plain, 0), Some(Error::Mtu(0)));
    assert_eq!(new(plain, 16_000), Some(Error::Mtu(16_000)));
    let (wanted, found) = (9 << 10, 2048);
    assert_eq!(new(plain, 9000), Some(Error::BufferSize { wanted, found }));
}

#[test]
fn filters_are_as_they_were_asked_for() {
    let bench = Bench::new();
    assert_eq!(bench.puppet.get(FCTRL), FCTRL_MPE | FCTRL_UPE | FCTRL_BAM);
    assert_eq!(bench.puppet.get(RXDCTL) & RXDCTL_VME, 0);
    // 7.1.1.1's bits 47:36 of 01:00:5e:00:00:fb are 0xfb0.
    let group = MTA.nth(0xfb0 / 32, 4);
    let mut bench = Bench::with(Config {
        filter: AddressFilter::Own(vec![[0x01, 0x00, 0x5e, 0x00, 0x00, 0xfb]]),
        vlan_strip: true,
        ..Config::FORWARD
    });
    assert_eq!(bench.puppet.get(FCTRL), FCTRL_BAM);
    assert_eq!(bench.puppet.get(group), 1 << (0xfb0 % 32));
    assert_eq!(bench.puppet.get(RXDCTL) & RXDCTL_VME, RXDCTL_VME);

    // The same device with other addresses: one station, then more than it has room for.
    bench
        .nic
        .set_filter(AddressFilter::Own(vec![[2; 6]]))
        .unwrap();
    assert_eq!(
        (bench.puppet.get(FCTRL), bench.puppet.get(group)),
        (FCTRL_BAM, 0)
    );
    assert_eq!(bench.puppet.get(RAL.nth(1, 8)), 0x0202_0202);
    assert_eq!(bench.puppet.get(RAH.nth(1, 8)), RAH_AV | 0x0202);
    let many = (0..=127).map(|n| [2, 0, 0, 0, 1, n]).collect();
    bench.nic.set_filter(AddressFilter::Own(many)).unwrap();
    assert_eq!(bench.puppet.get(FCTRL), FCTRL_BAM | FCTRL_UPE);
    assert_eq!(bench.puppet.get(RXCTRL) & RXCTRL_RXEN, RXCTRL_RXEN);
    assert_eq!(bench.puppet.get(SECRXCTRL) & SECRXCTRL_RX_DIS, 0);
    assert_eq!(
        bench.nic.set_filter(AddressFilter::None),
        Err(Error::VlanStrip)
    );
    assert_eq!(bench.puppet.get(FCTRL), FCTRL_BAM | FCTRL_UPE);
    bench.works();
}

#[test]
fn a_filter_outlives_a_reset_and_a_device_that_does_not_halt_is_reset() {
    let mut bench = Bench::new();
    bench.puppet.set(SECRXSTAT, 0);
    bench
        .nic
        .set_filter(AddressFilter::Own(vec![[2; 6]]))
        .unwrap();
    assert!(bench.receive().is_empty() && bench.nic.link().is_none());
    bench.recover();
    assert_eq!(bench.nic.counts().resets, 1);
    assert_eq!(bench.puppet.get(FCTRL), FCTRL_BAM);
    assert_eq!(bench.puppet.get(RAH.nth(1, 8)), RAH_AV | 0x0202);
    bench.works();
}

/// Ethernet, IPv4 and TCP headers with `payload` bytes, the pseudo header's sum in the checksum.
fn tcp(payload: usize) -> Vec<u8> {
    let mut frame = vec![0; 54 + payload];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&(40 + payload as u16).to_be_bytes());
    frame[23] = 6;
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[46] = 5 << 4;
    let sum = 0x0a00 + 1 + 0x0a00 + 2 + 6 + 20 + payload as u16;
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
    frame
}

const TCP_AT: Checksum = Checksum {
    start: 34,
    offset: 16,
};

#[test]
fn a_checksum_is_left_to_the_device_with_one_context_for_all_alike() {
    let mut bench = Bench::new();
    let offloaded = |bench: &Bench| {
        let mut frame = bench.frame(&tcp(10));
        frame.set_offload(Offload {
            checksum: Some(TCP_AT),
            gso: None,
        });
        frame
    };
    let frames = vec![offloaded(&bench), offloaded(&bench)];
    bench.send(frames);
    let descriptors = bench.puppet.drain().unwrap();
    let context = TX_DTYP_CONTEXT | TX_DEXT | CONTEXT_IPV4 | CONTEXT_TCP;
    assert_eq!(descriptors[0], [20 | 14 << CONTEXT_MACLEN_SHIFT, context]);
    let data = TX_DTYP_DATA | TX_DEXT | TX_IFCS | TX_EOP | TX_TXSM | 64 | 64 << TX_PAYLEN_SHIFT;
    assert_eq!((descriptors[1][1], descriptors[2][1]), (data, data | TX_RS));
    bench.works();
}

#[test]
fn a_checksum_that_the_device_would_not_find_is_completed_here() {
    let mut bench = Bench::new();
    let mut frame = bench.frame(&[0; 60]);
    frame.set_offload(Offload {
        checksum: Some(TCP_AT),
        gso: None,
    });
    bench.send(vec![frame]);
    let sent = bench.puppet.drain().unwrap();
    assert_eq!((sent.len(), sent[0][1] & TX_TXSM), (1, 0));
    assert_eq!(bench.puppet.frames(&sent).unwrap()[0][50..52], [0xff; 2]);
}

#[test]
fn segmentation_is_left_to_the_device_in_parts() {
    const BIG: usize = device::HEADROOM + device::FRAME_BYTES_MAX;
    let (puppet, bar, mut arena) = Puppet::new(DMA_BYTES + 2 * BIG);
    let pool = Pool::dma(&mut arena, BUFFERS, BUFFER_BYTES).unwrap();
    let big = Pool::dma(&mut arena, 1, BIG).unwrap();
    let clock = puppet.clock();
    let nic = Driver::new(bar, &mut arena, pool, Config::FORWARD, &clock).unwrap();
    let mut bench = Bench {
        puppet,
        nic,
        pool,
        now: 0,
    };
    let bytes = tcp(20_000);
    let gso = Gso {
        kind: GsoKind::TcpV4,
        size: 1448,
        header: 54,
        ecn: false,
    };
    for _ in 0..3 * TX {
        let mut frame = big.alloc(bytes.len()).unwrap();
        frame.bytes_mut().copy_from_slice(&bytes);
        frame.set_offload(Offload {
            checksum: Some(TCP_AT),
            gso: Some(gso),
        });
        bench.send(vec![frame]);
        let sent = bench.puppet.drain().unwrap();
        let data = &sent[sent.len() - 2..];
        let parts: Vec<_> = data.iter().map(|[_, command]| command & 0xffff).collect();
        assert_eq!(parts, [15_872, 20_054 - 15_872]);
        assert_eq!(data[1][0], data[0][0] + 15_872);
        let first = data[0][1];
        assert_eq!(first >> TX_PAYLEN_SHIFT, 20_000);
        let bits = TX_TSE | TX_TXSM | TX_IXSM;
        assert_eq!((first & bits, first & TX_EOP), (bits, 0));
        assert_eq!(data[1][1] & (TX_EOP | TX_RS), TX_EOP | TX_RS);
        let mut headers = [0; 54];
        bench.puppet.view().read(data[0][0], &mut headers).unwrap();
        assert_eq!(
            (&headers[16..18], &headers[24..26]),
            (&[0; 2][..], &[0; 2][..])
        );
        // Addresses and protocol, without the length.
        assert_eq!(
            headers[50..52],
            (0x0a00 + 1 + 0x0a00 + 2 + 6u16).to_be_bytes()
        );
        bench.tend();
        assert_eq!(big.free(), 1);
    }
    let refused = bench.nic.counts().tx_refused;
    let mut frame = bench.frame(&tcp(10));
    frame.set_offload(Offload {
        checksum: Some(TCP_AT),
        gso: Some(Gso { header: 64, ..gso }),
    });
    bench.send(vec![frame]);
    assert_eq!(
        bench.nic.counts().tx_refused,
        refused + 1,
        "headers without payload"
    );
}

/// What a device may do, and when its driver is called.
#[derive(Clone, Copy, Debug)]
enum Event {
    Receive,
    Forward,
    Keep,
    Tend,
    Arm,
    Deliver(u8),
    Report,
    EndReset,
    ScribbleReceive(u8, u64, u64),
    ScribbleTransmit(u8, u64, u64),
    Register(u16, u32),
}

fn event() -> impl Strategy<Value = Event> {
    let word = || {
        prop_oneof![
            Just(0),
            Just(u64::MAX),
            Just(1),
            Just(3 | 60 << 32),
            any::<u64>()
        ]
    };
    prop_oneof![
        3 => Just(Event::Receive),
        3 => Just(Event::Forward),
        2 => prop_oneof![Just(Event::Keep), Just(Event::Arm)],
        2 => Just(Event::Tend),
        4 => any::<u8>().prop_map(Event::Deliver),
        2 => Just(Event::Report),
        2 => Just(Event::EndReset),
        1 => (any::<u8>(), word(), word()).prop_map(|(n, a, b)| Event::ScribbleReceive(n, a, b)),
        1 => (any::<u8>(), word(), word()).prop_map(|(n, a, b)| Event::ScribbleTransmit(n, a, b)),
        1 => (any::<u16>(), prop_oneof![Just(0), Just(u32::MAX), any::<u32>()])
            .prop_map(|(n, value)| Event::Register(n, value)),
    ]
}

proptest! {
    /// Whatever the device writes, the driver neither panics nor loses or doubles a buffer.
    #[test]
    fn no_device_makes_it_panic_or_lose_count(events in prop::collection::vec(event(), 1..200)) {
        let mut bench = Bench::new();
        let mut kept = Vec::new();
        let mut batch = Batch::new();
        for event in events {
            match event {
                Event::Receive => bench.nic.receive(&mut batch),
                Event::Forward => _ = bench.nic.transmit(&mut batch),
                Event::Keep => kept.extend(batch.drain()),
                Event::Tend => bench.tend(),
                Event::Arm => { bench.nic.arm(); }
                // Registers may have been spoilt, so that the ring is anywhere.
                Event::Deliver(byte) => { let _ = bench.puppet.deliver(&[byte; 60]); }
                Event::Report => { let _ = bench.puppet.drain(); }
                Event::EndReset => { bench.puppet.end_reset(); }
                Event::ScribbleReceive(n, a, b) => {
                    let _ = bench.puppet.scribble_receive(usize::from(n), [a, b]);
                }
                Event::ScribbleTransmit(n, a, b) => {
                    let _ = bench.puppet.scribble_transmit(usize::from(n), [a, b]);
                }
                Event::Register(n, value) => {
                    bench.puppet.set(hw::Register::at(4 * usize::from(n)), value);
                }
            }
            let mut places: Vec<_> = batch.iter().chain(&kept)
                .map(|frame: &Frame| frame.bytes().as_ptr()).collect();
            let held = places.len();
            places.sort_unstable();
            places.dedup();
            prop_assert_eq!(places.len(), held, "no buffer is handed out twice");
            prop_assert!(bench.pool.free() + RX + held <= BUFFERS);
        }
        drop((batch, kept));
        let sending = bench.nic.transmitter.sending();
        drop(bench.nic);
        let lent = RX + sending;
        prop_assert_eq!(bench.pool.free() + lent, BUFFERS, "all but what the device has");
    }
}
