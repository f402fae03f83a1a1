//! A device that lies, hangs, fails or goes.

use super::*;
use proptest::prelude::*;

impl Bench {
    /// What the device did is a lie, after which it is left alone until it has been reset.
    fn lied(&mut self, what: &str) {
        assert!(self.receive().is_empty(), "{what}");
        assert_eq!(self.nic.counts().rx_lie, 1, "{what}");
        assert_eq!(self.nic.link(), None, "{what}");
        assert!(self.nic.needs_tend() && !self.nic.arm());
        self.puppet.device().statuses.borrow_mut().clear();
        assert!(self.receive().is_empty());
        assert!(self.puppet.device().statuses.borrow().is_empty(), "{what}");
        self.recover();
    }
}

#[test]
fn a_received_buffer_that_cannot_be_is_a_lie() {
    type Lying = fn(&Puppet);
    let lies: [(&str, Lying); 9] = [
        ("more bytes than the buffer has", |puppet| {
            puppet.give_back(0, 0, 2048 + 13).unwrap();
        }),
        ("4 GiB", |puppet| {
            puppet.give_back(0, 0, u32::MAX).unwrap();
        }),
        ("no header", |puppet| puppet.give_back(0, 0, 0).unwrap()),
        ("a header and no frame", |puppet| {
            puppet.give_back(0, 0, 25).unwrap();
        }),
        ("a descriptor that does not exist", |puppet| {
            puppet.give_back(0, N as u16, 72).unwrap();
        }),
        ("one that is no number of 16 bits", |puppet| {
            puppet.scribble(0, 0, 1 << 16, 72).unwrap();
            puppet.set_used(0, 1).unwrap();
        }),
        ("an index that jumps", |puppet| {
            puppet.set_used(0, N as u16 + 1).unwrap();
        }),
        ("an index that goes back", |puppet| {
            puppet.set_used(0, u16::MAX).unwrap();
        }),
        ("no buffer at all", |puppet| {
            let address = puppet.fetch(0).unwrap().unwrap().1[0].0;
            puppet.view().write(address, &[0; 12]).unwrap();
            puppet.give_back(0, 0, 72).unwrap();
        }),
    ];
    for (what, lie) in lies {
        let mut bench = Bench::new();
        lie(&bench.puppet);
        bench.lied(what);
        assert_eq!(bench.free(), COUNT - N, "{what}");
    }
}

#[test]
fn a_buffer_that_comes_back_twice_is_a_lie() {
    let mut bench = Bench::new();
    for _ in 0..2 {
        bench.puppet.give_back(0, 5, 72).unwrap();
    }
    let batch = bench.receive();
    assert!(batch.len() <= 1);
    drop(batch);
    assert_eq!(bench.nic.counts().rx_lie, 1);
    bench.recover();
    assert_eq!(bench.free(), COUNT - N);
}

#[test]
fn a_sent_buffer_that_cannot_be_is_a_lie() {
    type Lying = fn(&Puppet);
    let lies: [(&str, Lying); 4] = [
        ("an index that jumps", |puppet| {
            puppet.set_used(1, 9).unwrap()
        }),
        ("one that was not to be sent", |puppet| {
            puppet.give_back(1, 7, 0).unwrap();
        }),
        ("the same one twice", |puppet| {
            puppet.give_back(1, 0, 0).unwrap();
            puppet.give_back(1, 0, 0).unwrap();
        }),
        ("an index that goes back", |puppet| {
            puppet.set_used(1, u16::MAX).unwrap();
        }),
    ];
    for (what, lie) in lies {
        for by_tend in [false, true] {
            let mut bench = Bench::new();
            let frames: Vec<_> = (0..3).map(|n| bench.frame(&bytes(60, n))).collect();
            bench.send(frames);
            lie(&bench.puppet);
            if by_tend {
                bench.tend();
                assert_eq!(bench.nic.counts().resets, 1, "{what}");
                bench.tend();
                bench.works();
            } else {
                let frame = bench.frame(&bytes(60, 9));
                assert_eq!(bench.send([frame]), Sent::default(), "{what}");
                assert_eq!(bench.nic.counts().tx_link_down, 1);
                bench.recover();
            }
            assert_eq!(bench.nic.counts().rx_lie, 1, "{what}");
            assert_eq!(bench.free(), COUNT - N, "{what}");
        }
    }
}

#[test]
fn a_device_that_does_not_send_is_reset() {
    let mut bench = Bench::new();
    let frame = bench.frame(&bytes(60, 1));
    bench.send([frame]);
    bench.tend();
    bench.now += HANG_NANOSECONDS;
    bench.tend();
    assert_eq!(bench.nic.counts().resets, 1);
    assert_eq!(bench.nic.link(), None);
    bench.tend();
    bench.works();
    assert_eq!(bench.free(), COUNT - N);
}

#[test]
fn a_device_that_says_so_is_reset() {
    let mut bench = Bench::new();
    bench.puppet.device().status.set(15 | 64);
    bench.recover();
    // One that forgot its driver, too.
    bench.puppet.device().status.set(0);
    bench.recover();
    assert_eq!(bench.nic.counts().rx_lie, 0);
}

#[test]
fn a_device_that_is_gone_is_given_up_and_keeps_its_buffers() {
    let mut bench = Bench::new();
    let frame = bench.frame(&bytes(60, 1));
    bench.send([frame]);
    bench.puppet.device().gone.set(true);
    for _ in 0..200 {
        bench.tend();
    }
    let counts = *bench.nic.counts();
    assert_eq!(counts.resets, u64::from(RESETS_MAX));
    assert!(counts.given_up && !bench.nic.needs_tend());
    bench.puppet.device().gone.set(false);
    bench.tend();
    assert!(bench.receive().is_empty() && !bench.nic.arm());
    assert_eq!(bench.nic.link(), None);
    assert_eq!(bench.pool.free(), COUNT - N - 1);
}

#[test]
fn a_reset_that_does_not_end_is_begun_again() {
    let mut bench = Bench::new();
    bench.puppet.device().hangs.set(true);
    bench.puppet.device().status.set(15 | 64);
    bench.tend();
    for _ in 0..5 {
        bench.tend();
    }
    assert_eq!(bench.nic.counts().resets, 1, "it may take its time");
    for _ in 0..10 {
        bench.tend();
    }
    assert_eq!(bench.nic.counts().resets, 2);
    bench.puppet.device().hangs.set(false);
    bench.puppet.device().status.set(0);
    bench.tend();
    bench.works();
}

#[test]
fn a_device_that_refuses_after_a_reset_is_given_up() {
    let mut bench = Bench::new();
    bench.puppet.device().refuses.set(true);
    bench.puppet.device().status.set(0);
    for _ in 0..4 * RESETS_MAX {
        bench.tend();
    }
    assert!(bench.nic.counts().given_up);
}

#[test]
fn a_driver_that_is_dropped_resets_its_device() {
    let Bench {
        puppet, nic, pool, ..
    } = Bench::new();
    drop(nic);
    assert_eq!(puppet.device().status.get(), 0);
    assert_eq!(pool.free(), COUNT - N);
}

proptest! {
    /// Whatever the device writes, nothing panics, no buffer is lost, and it works again.
    #[test]
    fn no_device_makes_it_panic(
        steps in prop::collection::vec((0..10u8, any::<u16>(), any::<u32>()), 1..60),
    ) {
        let mut bench = Bench::new();
        for (what, small, large) in steps {
            let queue = usize::from(small & 1);
            match what {
                0 => {
                    let _ = bench.puppet.scribble(queue, small % 8, large % 80, large);
                }
                1 => {
                    let _ = bench.puppet.set_used(queue, small % 100);
                }
                2 => {
                    let _ = bench.puppet.give_back(queue, small % 80, large % 3000);
                }
                3 => {
                    let _ = bench.puppet.deliver(PLAIN, &bytes(60 + usize::from(small % 1000), 1));
                }
                4 => {
                    let mut header = [0; VIRTIO_BYTES];
                    header[..4].copy_from_slice(&large.to_le_bytes());
                    header[4..6].copy_from_slice(&small.to_le_bytes());
                    header[6] = 34;
                    header[8] = 16;
                    header[10] = (small % 4) as u8;
                    let _ = bench.puppet.deliver(header, &tcp(usize::from(small % 1400)));
                }
                5 => bench.puppet.device().status.set(large as u8),
                6 => bench.tend(),
                7 => {
                    let frames: Vec<_> = (0..small % 70)
                        .map_while(|_| bench.pool.alloc(60))
                        .take(device::BATCH_FRAMES_MAX)
                        .collect();
                    bench.send(frames);
                }
                8 => drop(bench.puppet.drain()),
                _ => {
                    let mut batch = bench.receive();
                    prop_assert!(batch.iter().all(|frame| frame.len() <= 2048));
                    bench.nic.transmit(&mut batch);
                }
            }
        }
        if !bench.nic.counts().given_up {
            bench.puppet.device().status.set(0);
            for _ in 0..20 {
                bench.tend();
            }
        }
        if !bench.nic.counts().given_up {
            bench.works();
            prop_assert_eq!(bench.free(), COUNT - N);
        }
    }
}
