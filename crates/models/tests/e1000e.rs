//! The driver of the 82574L on its model: two readings of one datasheet, which must agree; and a
//! driver whose device lies.

mod bench;

use bench::{ADDRESS, ETHERNET, FRAMES, Memory, ROUNDS, Soaked, bytes, tcp, udp};
use device::offload::Checksum;
use device::{BATCH_FRAMES_MAX, Batch, Nic, Offload, TEND_NANOSECONDS};
use drivers::net::Error;
use drivers::net::e1000e::{BUFFER_BYTES, BUFFERS, Config, Driver};
use hw::Register;
use models::wire::{Loop, Pair, Wire, pair};
use models::{Device, Intel82574};

const SIZE: Memory = Memory {
    bytes: 4 << 20,
    buffers: BUFFERS,
    buffer_bytes: BUFFER_BYTES,
};

type Bench<W> = bench::Bench<Intel82574<W>, Driver>;

impl<W: Wire + 'static> Bench<W> {
    fn new(wire: W, how: &str) -> Result<Self, Error> {
        Self::configured(wire, how, Config::FORWARD)
    }

    fn configured(wire: W, how: &str, config: Config) -> Result<Self, Error> {
        let device = Intel82574::new(ADDRESS, wire, &how.parse().unwrap());
        let mut bench = Self::with(device, &SIZE, |bar0, arena, pool, clock| {
            Driver::new(bar0, arena, pool, config, clock)
        })?;
        bench.pass(2 * TEND_NANOSECONDS);
        bench.pass(TEND_NANOSECONDS);
        Ok(bench)
    }
}

#[test]
fn two_readings_of_the_datasheet_agree() {
    let mut bench = Bench::new(Loop::new(), "").unwrap();
    let found = (bench.driver.mac(), bench.driver.link());
    assert_eq!(found, (ADDRESS, Some(1000)));
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

/// Linux leaves it so.
#[test]
fn a_transceiver_that_is_switched_off_is_switched_on_and_left_to_firmware() {
    let mdic = Register::new("MDIC", 0x20, "10.2.2.7");
    let ownership = Register::new("EXTCNF_CTRL", 0xf00, "10.2.2.15");
    let device = Intel82574::new(ADDRESS, Loop::new(), &"".parse().unwrap());
    let mut bench = Bench::with(device, &SIZE, |bar0, arena, pool, clock| {
        bar0.write(mdic, 1u32 << 26 | 1 << 21 | 1 << 12 | 1 << 11);
        Driver::new(bar0, arena, pool, Config::FORWARD, clock)
    })
    .unwrap();
    for _ in 0..3 {
        bench.pass(TEND_NANOSECONDS);
    }
    assert_eq!(bench.driver.link(), Some(1000));
    assert_eq!(bench.device.mmio().read::<u32>(ownership), 0);
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

#[test]
fn checksums_are_left_to_the_device() {
    let (near, mut far): (Pair, Pair) = pair();
    let mut bench = Bench::new(near, "").unwrap();
    assert!(bench.driver.offloads().checksum);
    for round in 0..300 {
        let v6 = round % 2 == 0;
        let start = ETHERNET + if v6 { 40 } else { 20 };
        let whole = tcp(v6, &bytes(1 + 4 * round));
        let checksum = Some(Checksum {
            start: start as u16,
            offset: 16,
        });
        let offload = Offload {
            checksum,
            gso: None,
        };
        let mut frame = bench.frame(&whole);
        // The sum of the pseudo header: what is left when the rest is taken from the whole.
        let field = start + 16;
        frame.bytes_mut()[field..field + 2].fill(0);
        let mut rest = frame.bytes().to_vec();
        offload.complete_checksum(&mut rest);
        let pair = |bytes: &[u8]| u32::from(u16::from_be_bytes([bytes[field], bytes[field + 1]]));
        let mut pseudo = 0xffff - pair(&whole) + pair(&rest);
        pseudo = (pseudo & 0xffff) + (pseudo >> 16);
        frame.bytes_mut()[field..field + 2].copy_from_slice(&(pseudo as u16).to_be_bytes());
        frame.set_offload(offload);
        bench.send(frame);
        let mut expected = whole;
        expected.resize(expected.len().max(60), 0);
        assert_eq!(far.receive(), Some(expected), "{round}");
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
fn every_configuration_is_lawful_and_filters_as_it_says() {
    for promiscuous in [false, true] {
        let config = Config { promiscuous };
        let mut bench = Bench::configured(Loop::new(), "", config).unwrap();
        for (address, passes) in [
            (ADDRESS, true),
            (STRANGER, promiscuous),
            ([0xff; 6], true),
            (GROUP, true),
        ] {
            let mut frame = udp(&[3; 60]);
            frame[..6].copy_from_slice(&address);
            bench.device.device().wire().inject(&frame);
            assert_eq!(bench.receive().len(), usize::from(passes), "{address:?}");
        }
        // A tag stays where it is.
        let mut tagged = udp(&[3; 60]);
        tagged[..6].copy_from_slice(&ADDRESS);
        tagged.splice(12..12, [0x81, 0x00, 0x00, 0x07]);
        bench.device.device().wire().inject(&tagged);
        assert_eq!(bench.receive(), [tagged]);
        bench.assert_lawful();
    }
}

#[test]
fn a_link_that_goes_is_noticed_and_comes_back() {
    let (near, far): (Pair, Pair) = pair();
    let mut bench = Bench::new(near, "").unwrap();
    for (plugged, link) in [(false, None), (true, Some(1000))] {
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
fn lies_about_received_frames_end_in_a_reset_and_then_in_giving_up() {
    for fault in ["length", "status"] {
        let soaked = soak(&format!("{fault}=3")).unwrap();
        assert!(soaked.counts.rx_lie > 0, "{fault}");
        assert!(soaked.counts.given_up, "{fault}");
    }
}

#[test]
fn what_needs_no_reset_needs_none() {
    for fault in [
        "garbage",
        "joined",
        "lost-interrupt",
        "wild-write",
        "early-done",
    ] {
        let soaked = soak(&format!("{fault}=3")).unwrap();
        let found = (soaked.counts.resets, soaked.counts.given_up);
        assert_eq!(found, (0, false), "{fault}");
        assert!(soaked.received > u64::from(ROUNDS), "{fault}");
    }
}

#[test]
fn a_device_that_hangs_or_leaves_descriptors_out_is_reset() {
    for fault in ["transmit-hang=300", "skip=300"] {
        let Soaked { received, counts } = soak(fault).unwrap();
        let reset = counts.resets > 0 && received > 0;
        assert!(reset, "{fault}: {received} {counts:?}");
    }
}

#[test]
fn a_receive_descriptor_that_is_left_out_is_noticed_though_nothing_is_sent() {
    let mut bench = Bench::new(Loop::new(), "skip=10,seed=1").unwrap();
    for _ in 0..100 {
        bench.device.device().wire().inject(&udp(&[1; 100]));
        bench.receive();
    }
    bench.pass(TEND_NANOSECONDS);
    let counts = bench.driver.counts();
    assert_eq!((counts.resets, counts.rx_lie), (1, 1));
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
        0x0, 0x8, 0x10, 0x18, 0x100, 0x400, 0x4010, 0x5400, 0x5404, 0x5b00,
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
