//! The driver of the virtio network device on its model, behind PCI: two readings of one
//! specification, which must agree; and a driver whose device lies.

mod bench;
mod virtio;

use bench::{ADDRESS, ETHERNET, FRAMES, Memory, ROUNDS, Soaked, bytes, tcp, udp};
use device::offload::Checksum;
use device::{BATCH_FRAMES_MAX, Batch, Gso, GsoKind, Nic, Offload, TEND_NANOSECONDS};
use drivers::net::Error;
use drivers::net::virtio::{
    BUFFER_BYTES, BUFFERS, Config, Driver, LARGE_BUFFER_BYTES, LARGE_BUFFERS, LARGE_RING, RING,
};
use drivers::virtio::pci::Pci as Transport;
use etherparse::{SlicedPacket, TransportSlice};
use models::virtio::{Pci, VirtioNet};
use models::wire::{Loop, Pair, Wire, pair};
use models::{Device, Misbehaviour};
use std::cell::RefMut;
use virtio::transport;

const MSS: usize = 1400;
/// Room for the queues, in pages.
const QUEUES: usize = 6 * 4096;

const SIZE: Memory = Memory {
    bytes: 4 << 20,
    buffers: BUFFERS,
    buffer_bytes: BUFFER_BYTES,
};
const LARGE_SIZE: Memory = Memory {
    bytes: LARGE_BUFFERS * (LARGE_BUFFER_BYTES + 64) + QUEUES,
    buffers: LARGE_BUFFERS,
    buffer_bytes: LARGE_BUFFER_BYTES,
};

type Bench<W, const N: usize = RING> = bench::Bench<Pci<VirtioNet<W>>, Driver<Transport, N>>;

impl<W: Wire + 'static> Bench<W> {
    fn new(wire: W, how: &str) -> Result<Self, Error> {
        started(wire, how, &SIZE, Config::FORWARD)
    }
}

/// A card and a driver that runs.
fn started<W: Wire + 'static, const N: usize>(
    wire: W,
    how: &str,
    size: &Memory,
    config: Config,
) -> Result<Bench<W, N>, Error> {
    let misbehaviour: Misbehaviour = how.parse().unwrap();
    let device = Pci::new(VirtioNet::new(ADDRESS, wire), &misbehaviour);
    let identity = device.identity();
    let mut bench = Bench::with(device, size, |bar0, arena, pool, clock| {
        Driver::new(transport(&bar0, &identity), arena, pool, config, clock)
    })?;
    bench.pass(TEND_NANOSECONDS);
    Ok(bench)
}

/// The card's wire.
fn wire<W: Wire + 'static, const N: usize, R>(
    bench: &Bench<W, N>,
    use_it: impl FnOnce(&mut W) -> R,
) -> R {
    let mut device: RefMut<'_, Pci<VirtioNet<W>>> = bench.device.device();
    use_it(device.device().wire())
}

#[test]
fn two_readings_of_the_specification_agree() {
    let mut bench = Bench::new(Loop::new(), "").unwrap();
    let found = (bench.driver.mac(), bench.driver.link());
    assert_eq!(found, (ADDRESS, Some(10_000)));
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
    let counts = bench.driver.counts();
    assert_eq!((counts.resets, counts.rx_error, counts.rx_lie), (0, 0, 0));
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
    let now = bench.pool.free();
    assert!(now + 64 >= free, "{now} of {free} buffers are free");
    bench.assert_lawful();
}

/// A frame whose checksum is that of its pseudo header, as its sender leaves it.
fn partial(whole: &[u8], start: usize) -> (Vec<u8>, Offload) {
    let checksum = Some(Checksum {
        start: start as u16,
        offset: 16,
    });
    let offload = Offload {
        checksum,
        gso: None,
    };
    // The sum of the pseudo header: what is left when the rest is taken from the whole.
    let field = start + 16;
    let mut left = whole.to_vec();
    left[field..field + 2].fill(0);
    let mut rest = left.clone();
    offload.complete_checksum(&mut rest);
    let pair = |bytes: &[u8]| u32::from(u16::from_be_bytes([bytes[field], bytes[field + 1]]));
    let mut pseudo = 0xffff - pair(whole) + pair(&rest);
    pseudo = (pseudo & 0xffff) + (pseudo >> 16);
    left[field..field + 2].copy_from_slice(&(pseudo as u16).to_be_bytes());
    (left, offload)
}

#[test]
fn checksums_are_left_to_the_device() {
    let (near, mut far): (Pair, Pair) = pair();
    let mut bench = Bench::new(near, "").unwrap();
    assert!(bench.driver.offloads().checksum);
    for round in 0..300 {
        let v6 = round % 2 == 0;
        let start = ETHERNET + if v6 { 40 } else { 20 };
        let whole = tcp(v6, &bytes(1 + 4 * round));
        let (left, offload) = partial(&whole, start);
        let mut frame = bench.frame(&left);
        frame.set_offload(offload);
        bench.send(frame);
        let mut expected = whole;
        expected.resize(expected.len().max(60), 0);
        assert_eq!(far.receive(), Some(expected), "{round}");
    }
    bench.assert_lawful();
}

#[test]
fn large_frames_are_cut_by_the_device() {
    let (near, mut far): (Pair, Pair) = pair();
    let mut bench: Bench<Pair, LARGE_RING> = started(near, "", &LARGE_SIZE, Config::LARGE).unwrap();
    assert!(bench.driver.offloads().tso);
    for v6 in [false, true] {
        let start = ETHERNET + if v6 { 40 } else { 20 };
        let payload = bytes(40_000);
        let (left, offload) = partial(&tcp(v6, &payload), start);
        let mut frame = bench.frame(&left);
        frame.set_offload(Offload {
            gso: Some(Gso {
                kind: if v6 { GsoKind::TcpV6 } else { GsoKind::TcpV4 },
                size: MSS as u16,
                header: start as u16 + 20,
                ecn: false,
            }),
            ..offload
        });
        bench.send(frame);
        let mut received = Vec::new();
        while let Some(segment) = far.receive() {
            let parsed = SlicedPacket::from_ethernet(&segment).unwrap();
            let Some(TransportSlice::Tcp(slice)) = parsed.transport else {
                panic!("no TCP");
            };
            assert!(slice.payload().len() <= MSS);
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
        wire(&bench, |wire| wire.inject(&frame));
        bench.turn();
        assert_eq!(bench.device.device().take_interrupts(), 1);
        wire(&bench, |wire| wire.inject(&frame));
        bench.turn();
        let again = bench.device.device().take_interrupts();
        assert_eq!(again, 0, "not armed again");
        assert!(bench.driver.arm(), "there are frames already");
        assert_eq!(bench.receive(), [frame.clone(), frame]);
    }
    bench.assert_lawful();
}

const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 0x55];
const GROUP: [u8; 6] = [1, 0, 0x5e, 1, 2, 3];

#[test]
fn frames_to_anybody_are_received_and_keep_their_tags() {
    let mut bench = Bench::new(Loop::new(), "").unwrap();
    for address in [ADDRESS, STRANGER, [0xff; 6], GROUP] {
        let mut frame = udp(&[3; 60]);
        frame[..6].copy_from_slice(&address);
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0x00, 0x00, 0x07]);
        for frame in [frame, tagged] {
            wire(&bench, |wire| wire.inject(&frame));
            assert_eq!(bench.receive(), [frame], "{address:?}");
        }
    }
    bench.assert_lawful();
}

#[test]
fn a_link_that_goes_is_noticed_and_comes_back() {
    let (near, far): (Pair, Pair) = pair();
    let mut bench = Bench::new(near, "").unwrap();
    for (plugged, link) in [(false, None), (true, Some(10_000))] {
        far.plug(plugged);
        (0..2).for_each(|_| bench.pass(TEND_NANOSECONDS));
        assert_eq!(bench.driver.link(), link);
    }
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
fn lies_about_used_buffers_end_in_a_reset_and_then_in_giving_up() {
    for fault in ["length", "garbage", "joined"] {
        let soaked = soak(&format!("{fault}=3")).unwrap();
        assert!(soaked.counts.rx_lie > 0, "{fault}");
        assert!(soaked.counts.given_up, "{fault}");
    }
}

#[test]
fn what_needs_no_reset_needs_none() {
    for fault in ["status", "lost-interrupt", "wild-write", "early-done"] {
        let soaked = soak(&format!("{fault}=3")).unwrap();
        let found = (soaked.counts.resets, soaked.counts.given_up);
        assert_eq!(found, (0, false), "{fault}");
        assert!(soaked.received > u64::from(ROUNDS), "{fault}");
    }
}

#[test]
fn a_header_that_asks_for_what_was_not_agreed_on_is_an_error_of_its_frame() {
    let soaked = soak("status=3").unwrap();
    assert!(soaked.counts.rx_error > 0 && soaked.counts.rx_lie == 0);
}

#[test]
fn a_device_that_hangs_or_leaves_buffers_out_is_reset() {
    for fault in ["transmit-hang=300", "skip=300"] {
        let Soaked { received, counts } = soak(fault).unwrap();
        let reset = counts.resets > 0 && received > 0;
        assert!(reset, "{fault}: {received} {counts:?}");
    }
}

#[test]
fn a_device_that_goes_is_given_up() {
    let Soaked { received, counts } = soak("gone=100,seed=1").unwrap();
    assert!(counts.given_up && received > 0, "{counts:?}");
}

#[test]
fn anything_at_once_is_survived() {
    for seed in 0..8 {
        let how = format!(
            "seed={seed},length=500,status=500,garbage=900,joined=400,early-done=50,skip=700,\
             link-flap=100,lost-interrupt=7,transmit-hang=900,wild-write=20,gone=5000"
        );
        let soaked = soak(&how).unwrap();
        assert!(soaked.received > 0, "{how}");
    }
}

#[test]
fn bits_that_are_stuck_are_survived() {
    // Registers that are read at the start or while frames flow: all ones, all zeros, some of each.
    for offset in [
        0x4, 0x14, 0x15, 0x18, 0x1c, 0x1e, 0x2000, 0x2004, 0x2006, 0x200c,
    ] {
        for (mask, value) in [
            (u32::MAX, u32::MAX),
            (u32::MAX, 0),
            (0xf0f0_f0f0, 0x5a5a_5a5a),
        ] {
            let soaked = soak(&format!("stuck={offset:#x}:{mask:#x}:{value:#x}"));
            let most = u64::from(ROUNDS) * FRAMES;
            assert!(soaked.is_none_or(|soaked| soaked.received <= most));
        }
    }
}
