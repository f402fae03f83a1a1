//! The driver of the 82599 on its model: two readings of one datasheet, which must agree; and a
//! driver whose device lies.

mod bench;

use bench::{ADDRESS, ETHERNET, FRAMES, Memory, ROUNDS, Soaked, bytes, tcp, udp};
use device::offload::Checksum;
use device::{BATCH_FRAMES_MAX, Batch, Gso, GsoKind, Nic, Offload, TEND_NANOSECONDS};
use drivers::net::Error;
use drivers::net::ixgbe::{AddressFilter, BUFFER_BYTES, BUFFERS, Config, Driver};
use etherparse::{SlicedPacket, TransportSlice};
use models::wire::{Loop, Pair, Wire, pair};
use models::{Device, Intel82599};

const MSS: usize = 1400;

const SIZE: Memory = Memory {
    bytes: 16 << 20,
    buffers: BUFFERS,
    buffer_bytes: BUFFER_BYTES,
};

type Bench<W> = bench::Bench<Intel82599<W>, Driver>;

impl<W: Wire + 'static> Bench<W> {
    fn new(wire: W, how: &str) -> Result<Self, Error> {
        Self::configured(wire, how, Config::FORWARD)
    }

    fn configured(wire: W, how: &str, config: Config) -> Result<Self, Error> {
        let device = Intel82599::new(ADDRESS, wire, &how.parse().unwrap());
        let mut bench = Self::with(device, &SIZE, |bar0, arena, pool, clock| {
            Driver::new(bar0, arena, pool, config, clock)
        })?;
        bench.pass(2 * TEND_NANOSECONDS);
        Ok(bench)
    }
}

/// Puts the sum of the pseudo header where the checksum is, as a frame's sender leaves it.
fn leave_checksum(frame: &mut [u8], start: usize, field: usize) {
    let complete = u16::from_be_bytes([frame[start + field], frame[start + field + 1]]);
    // complete = !(pseudo + rest), so pseudo = !complete - rest.
    let mut rest: u32 = 0;
    for (index, pair) in frame[start..].chunks(2).enumerate() {
        if 2 * index != field {
            rest += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        }
    }
    while rest > 0xffff {
        rest = (rest & 0xffff) + (rest >> 16);
    }
    let mut pseudo = u32::from(!complete) + u32::from(!(rest as u16));
    if pseudo > 0xffff {
        pseudo = (pseudo & 0xffff) + 1;
    }
    frame[start + field..start + field + 2].copy_from_slice(&(pseudo as u16).to_be_bytes());
}

#[test]
fn two_readings_of_the_datasheet_agree() {
    let mut bench = Bench::new(Loop::new(), "").unwrap();
    assert_eq!(
        (bench.driver.mac(), bench.driver.link()),
        (ADDRESS, Some(10_000))
    );
    for round in 0..3000usize {
        let frame = udp(&bytes(round % 1400));
        let sent = bench.frame(&frame);
        bench.send(sent);
        let received = bench.receive();
        assert_eq!(received.len(), 1, "round {round}");
        assert_eq!(received[0][..frame.len()], frame);
        assert_eq!(received[0].len(), frame.len().max(60));
        if round % 100 == 0 {
            bench.pass(TEND_NANOSECONDS);
        }
    }
    bench.pass(TEND_NANOSECONDS);
    let statistics = bench.driver.statistics();
    assert_eq!((statistics.rx_frames, statistics.tx_frames), (3000, 3000));
    assert_eq!(
        (statistics.rx_bytes, statistics.rx_bad_checksum),
        (statistics.tx_bytes, 0)
    );
    assert_eq!(bench.driver.counts().resets, 0);
    bench.assert_lawful();
}

#[test]
fn batches_come_back_in_order_and_buffers_too() {
    let mut bench = Bench::new(Loop::new(), "").unwrap();
    let free = bench.pool.free();
    for round in 0..200u8 {
        let mut batch = Batch::new();
        for number in 0..BATCH_FRAMES_MAX as u8 {
            let frame = bench.frame(&udp(&[round, number, 0, 0]));
            assert!(batch.push(frame).is_ok());
        }
        bench.driver.transmit(&mut batch);
        bench.turn();
        let mut expected = 0;
        for _ in 0..10 {
            for frame in bench.receive() {
                assert_eq!(frame[42..44], [round, expected]);
                expected += 1;
            }
        }
        assert_eq!(usize::from(expected), BATCH_FRAMES_MAX);
    }
    // The driver gives back what was sent when it sends again.
    bench.driver.transmit(&mut Batch::new());
    assert!(
        bench.pool.free() + 64 >= free,
        "{} of {free} buffers are free",
        bench.pool.free()
    );
    bench.assert_lawful();
}

#[test]
fn checksums_and_segments_are_left_to_the_device() {
    let (near, mut far): (Pair, Pair) = pair();
    let mut bench = Bench::new(near, "").unwrap();
    let offloads = bench.driver.offloads();
    assert!(offloads.checksum);
    for v6 in [false, true] {
        let start = ETHERNET + if v6 { 40 } else { 20 };
        let checksum = Some(Checksum {
            start: start as u16,
            offset: 16,
        });
        let whole = tcp(v6, &bytes(1000));
        let mut partial = whole.clone();
        leave_checksum(&mut partial, start, 16);
        let mut frame = bench.frame(&partial);
        frame.set_offload(Offload {
            checksum,
            gso: None,
        });
        bench.send(frame);
        assert_eq!(far.receive(), Some(whole));
        if !offloads.tso {
            continue;
        }
        let payload = bytes(1900);
        let mut partial = tcp(v6, &payload);
        leave_checksum(&mut partial, start, 16);
        let mut frame = bench.frame(&partial);
        frame.set_offload(Offload {
            checksum,
            gso: Some(Gso {
                kind: if v6 { GsoKind::TcpV6 } else { GsoKind::TcpV4 },
                size: MSS as u16,
                header: start as u16 + 20,
                ecn: false,
            }),
        });
        bench.send(frame);
        let mut received = Vec::new();
        while let Some(segment) = far.receive() {
            let parsed = SlicedPacket::from_ethernet(&segment).unwrap();
            let Some(TransportSlice::Tcp(slice)) = parsed.transport else {
                panic!("no TCP");
            };
            assert_eq!(slice.sequence_number(), 5 + received.len() as u32);
            received.extend_from_slice(slice.payload());
        }
        assert_eq!(received, payload);
    }
    bench.assert_lawful();
}

#[test]
fn an_interrupt_comes_once_for_each_time_that_it_was_asked_for() {
    let mut bench = Bench::new(Loop::new(), "").unwrap();
    for _ in 0..3 {
        assert!(!bench.driver.arm());
        bench.pass(1_000_000);
        bench.device.device().take_interrupts();
        let frame = udp(&[1; 100]);
        bench.device.device().wire().inject(&frame);
        bench.turn();
        assert_eq!(bench.device.device().take_interrupts(), 1);
        bench.device.device().wire().inject(&frame);
        bench.turn();
        assert_eq!(
            bench.device.device().take_interrupts(),
            0,
            "not armed again"
        );
        assert!(bench.driver.arm(), "there are frames already");
        assert_eq!(bench.receive(), [frame.clone(), frame]);
    }
    bench.assert_lawful();
}

const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 0x55];
const GROUP: [u8; 6] = [1, 0, 0x5e, 1, 2, 3];
const OTHER_GROUP: [u8; 6] = [1, 0, 0x5e, 9, 8, 7];

/// Filters, and which frames pass: to itself, a stranger, all, and either group.
fn filters() -> [(AddressFilter, [bool; 5]); 5] {
    [
        (AddressFilter::None, [true; 5]),
        (
            AddressFilter::Own(vec![]),
            [true, false, true, false, false],
        ),
        (
            AddressFilter::Own(vec![GROUP]),
            [true, false, true, true, false],
        ),
        (
            AddressFilter::Own(vec![STRANGER]),
            [true, true, true, false, false],
        ),
        (
            AddressFilter::Own([vec![[2; 6]; 127], vec![STRANGER]].concat()),
            [true, true, true, false, false],
        ),
    ]
}

fn to(address: [u8; 6]) -> Vec<u8> {
    let mut frame = udp(&[3; 60]);
    frame[..6].copy_from_slice(&address);
    frame
}

fn assert_passed(bench: &mut Bench<Loop>, filter: &AddressFilter, passes: [bool; 5]) {
    let addresses = [ADDRESS, STRANGER, [0xff; 6], GROUP, OTHER_GROUP];
    for (address, passes) in addresses.into_iter().zip(passes) {
        bench.device.device().wire().inject(&to(address));
        let received = bench.receive().len();
        assert_eq!(received, usize::from(passes), "{filter:?} {address:?}");
    }
}

#[test]
fn every_configuration_is_lawful_and_filters_as_it_says() {
    for vlan_strip in [false, true] {
        for (filter, passes) in filters() {
            let config = Config {
                filter: filter.clone(),
                vlan_strip,
                ..Config::FORWARD
            };
            let bench = Bench::configured(Loop::new(), "", config);
            if vlan_strip && filter == AddressFilter::None {
                assert_eq!(bench.err(), Some(Error::VlanStrip));
                continue;
            }
            let mut bench = bench.unwrap();
            assert_passed(&mut bench, &filter, passes);
            let mut tagged = to(ADDRESS);
            tagged.splice(12..12, [0x81, 0x00, 0x00, 0x07]);
            bench.device.device().wire().inject(&tagged);
            let expected = if vlan_strip { to(ADDRESS) } else { tagged };
            assert_eq!(bench.receive(), [expected]);
            bench.assert_lawful();
        }
    }
}

#[test]
fn filters_change_while_frames_come() {
    let mut bench = Bench::new(Loop::new(), "").unwrap();
    for _ in 0..3 {
        for (filter, passes) in filters() {
            bench.driver.set_filter(filter.clone()).unwrap();
            assert_passed(&mut bench, &filter, passes);
            bench.pass(TEND_NANOSECONDS);
        }
    }
    assert_eq!(bench.driver.counts().resets, 0);
    bench.assert_lawful();
}

#[test]
fn a_link_that_goes_is_noticed_and_comes_back() {
    let (near, far): (Pair, Pair) = pair();
    let mut bench = Bench::new(near, "").unwrap();
    far.plug(false);
    bench.pass(TEND_NANOSECONDS);
    bench.pass(TEND_NANOSECONDS);
    assert_eq!(bench.driver.link(), None);
    far.plug(true);
    bench.pass(TEND_NANOSECONDS);
    bench.pass(TEND_NANOSECONDS);
    assert_eq!(bench.driver.link(), Some(10_000));
    bench.assert_lawful();
}

/// A soak on a device that misbehaves like this; `None` if the driver does not start.
fn soak(how: &str) -> Option<Soaked> {
    let bench = Bench::new(Loop::new(), how).ok()?;
    Some(bench::soak(bench, how))
}

#[test]
fn without_faults_a_soak_loses_nothing() {
    let soaked = soak("").unwrap();
    assert_eq!(soaked.received, u64::from(ROUNDS) * FRAMES);
    assert_eq!((soaked.counts.resets, soaked.counts.given_up), (0, false));
}

#[test]
fn lies_about_received_frames_end_in_a_reset_and_then_in_giving_up() {
    for fault in ["length", "status"] {
        let soaked = soak(&format!("{fault}=3")).unwrap();
        assert!(soaked.counts.rx_lie > 0, "{fault}");
        assert!(soaked.counts.given_up, "{fault}");
    }
}

#[test]
fn what_needs_no_reset_needs_none() {
    for fault in ["garbage", "lost-interrupt", "wild-write", "early-done"] {
        let soaked = soak(&format!("{fault}=3")).unwrap();
        assert_eq!(
            (soaked.counts.resets, soaked.counts.given_up),
            (0, false),
            "{fault}"
        );
        assert!(soaked.received > u64::from(ROUNDS), "{fault}");
    }
}

#[test]
fn a_device_that_hangs_or_leaves_descriptors_out_is_reset() {
    for fault in ["transmit-hang=300", "skip=300"] {
        let soaked = soak(fault).unwrap();
        let Soaked { received, counts } = soaked;
        assert!(
            counts.resets > 0 && received > 0,
            "{fault}: {received} {counts:?}"
        );
    }
}

#[test]
fn a_device_that_goes_is_given_up() {
    let soaked = soak("gone=100,seed=1").unwrap();
    assert!(
        soaked.counts.given_up && soaked.received > 0,
        "{:?}",
        soaked.counts
    );
}

#[test]
fn anything_at_once_is_survived() {
    for seed in 0..8 {
        let how = format!(
            "seed={seed},length=500,status=500,garbage=9,early-done=50,skip=700,link-flap=100,\
             lost-interrupt=7,transmit-hang=900,wild-write=20,gone=5000"
        );
        let soaked = soak(&how).unwrap();
        assert!(soaked.received > 0, "{how}");
    }
}

#[test]
fn bits_that_are_stuck_are_survived() {
    // Registers that are read at the start or while frames flow: all ones, all zeros, some of each.
    for offset in [
        0x0, 0x8, 0x10010, 0x2f00, 0x42a4, 0x1028, 0x6028, 0x800, 0x4074, 0xa204,
    ] {
        for (mask, value) in [
            (u32::MAX, u32::MAX),
            (u32::MAX, 0),
            (0xf0f0_f0f0, 0x5a5a_5a5a),
        ] {
            let soaked = soak(&format!("stuck={offset:#x}:{mask:#x}:{value:#x}"));
            assert!(soaked.is_none_or(|soaked| soaked.received <= u64::from(ROUNDS) * FRAMES));
        }
    }
}
