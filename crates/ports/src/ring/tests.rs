//! Ports and disks over rings, whose other end the tests serve.

use crate::Errno;
use crate::puppet::{Scene, Setup, ended};
use crate::tests::{received, send};
use abi::extension::device_flag::{DISK, RING, VIRTIO_NET_HEADER};
use abi::manifest::Device;
use abi::ring::{ENTRIES, Operation, Request, Server, asleep, first_word, receive, transmit, word};
use abi::share::PortCounter::*;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use device::virtio::HEADER_SIZE;
use device::{BATCH_FRAMES_MAX, Netif};

const HEADER: i64 = HEADER_SIZE as i64;

struct Bench {
    scene: Scene,
    port: Box<dyn Netif>,
    rx: Server<'static>,
    tx: Server<'static>,
}

/// A network with rings, whose buffers are full of this byte.
fn bench(fill: u8) -> Bench {
    let setup = Setup {
        rings: true,
        fill,
        ..Setup::network(1500, RING | VIRTIO_NET_HEADER)
    };
    let scene = setup.start();
    let port = scene.runtime.network("net").unwrap();
    let (rx, tx) = (scene.server(receive(1)), scene.server(transmit(1)));
    Bench {
        scene,
        port,
        rx,
        tx,
    }
}

/// Answers the next requests so.
fn serve(server: &mut Server<'static>, results: &[i64]) -> Vec<Request> {
    let mut requests = vec![];
    for result in results {
        requests.push(server.request().unwrap().expect("a request"));
        server.serve(*result);
    }
    server.publish();
    requests
}

impl Bench {
    fn counted<const N: usize>(&self, what: [abi::share::PortCounter; N]) -> [u64; N] {
        what.map(|what| self.scene.counted(1, what))
    }

    fn ready(&self) -> bool {
        let ready = self.scene.runtime.wait(Some(crate::Instant::PAST));
        ready.contains(self.port.wait_handle())
    }
}

#[test]
fn frames_come_in_buffers_that_were_offered_and_new_ones_follow() {
    let mut bench = bench(0);
    assert!(!bench.ready());
    let requests = serve(&mut bench.rx, &[HEADER + 60, HEADER + 70]);
    assert!(
        requests
            .iter()
            .all(|request| request.operation == Operation::Read)
    );
    assert!(bench.ready());
    assert_eq!(received(&mut *bench.port), [60, 70]);
    assert_eq!(bench.counted([RxFrames, RxBytes]), [2, 130]);
    assert!(!bench.ready());
    // Half of the 128 buffers are the ring's, at any time.
    serve(&mut bench.rx, &[HEADER + 60; BATCH_FRAMES_MAX]);
    assert!(!bench.rx.has_request().unwrap());
    assert_eq!(received(&mut *bench.port).len(), BATCH_FRAMES_MAX);
}

#[test]
fn what_is_no_frame_is_dropped_and_an_error_counted() {
    let mut bench = bench(0);
    let errors = [HEADER - 1, HEADER + 13, HEADER + 14, HEADER + 65_554];
    serve(&mut bench.rx, &errors);
    serve(&mut bench.rx, &[-i64::from(Errno::IO.0)]);
    assert_eq!(received(&mut *bench.port), [14]);
    assert_eq!(bench.counted([RxRunt, RxTooLong, RxError]), [2, 1, 1]);
    let mut bad = self::bench(0xff);
    serve(&mut bad.rx, &[HEADER + 60]);
    assert_eq!(received(&mut *bad.port), []);
    assert_eq!(bad.counted([RxBadHeader]), [1]);
}

#[test]
fn sent_frames_count_once_the_host_has_answered() {
    let mut bench = bench(0);
    send(&mut *bench.port, &[60, 70, 80, 90]);
    assert_eq!(bench.counted([TxFrames]), [0]);
    let refused = |errno: Errno| -i64::from(errno.0);
    let results = [
        HEADER + 60,
        refused(Errno::NO_BUFFERS),
        refused(Errno::IO),
        HEADER + 90,
    ];
    let requests = serve(&mut bench.tx, &results);
    let lengths: Vec<_> = requests
        .iter()
        .map(|r| i64::from(r.length) - HEADER)
        .collect();
    assert_eq!(lengths, [60, 70, 80, 90]);
    bench.ready();
    assert_eq!(bench.counted([TxFrames, TxBytes]), [2, 150]);
    assert_eq!(bench.counted([TxNoRoom, TxLinkDown]), [1, 1]);
}

#[test]
fn buffers_of_sent_frames_return_to_their_pool() {
    let mut bench = bench(0);
    for _ in 0..3 * ENTRIES {
        send(&mut *bench.port, &[60]);
        serve(&mut bench.tx, &[HEADER + 60]);
    }
    bench.ready();
    assert_eq!(bench.counted([TxFrames, TxNoRoom]), [3 * ENTRIES, 0]);
}

#[test]
fn a_host_that_takes_nothing_costs_frames_and_no_more() {
    let setup = Setup {
        rings: true,
        buffers: 2 * ENTRIES as usize,
        ..Setup::network(1500, RING)
    };
    let scene = setup.start();
    let mut port = scene.runtime.network("net").unwrap();
    (0..ENTRIES + 5).for_each(|_| send(&mut *port, &[60]));
    assert_eq!(scene.counted(1, TxNoRoom), 5);
}

#[test]
fn the_host_is_woken_only_if_it_sleeps_for_that() {
    let mut bench = bench(0);
    let host = bench.scene.host;
    assert_eq!(host.kicks.get(), 0);
    send(&mut *bench.port, &[60]);
    assert_eq!(host.kicks.get(), 0);
    let sleeps = |bits| {
        bench
            .scene
            .ring_word(word::ASLEEP)
            .store(bits, Ordering::Relaxed)
    };
    sleeps(asleep::NO_BUFFER);
    send(&mut *bench.port, &[60]);
    assert_eq!(host.kicks.get(), 0);
    serve(&mut bench.rx, &[HEADER + 60]);
    assert_eq!(received(&mut *bench.port), [60]);
    assert_eq!(host.kicks.get(), 1);
    sleeps(asleep::IDLE);
    send(&mut *bench.port, &[60]);
    assert_eq!(host.kicks.get(), 2);
}

#[test]
fn results_of_sent_frames_are_looked_at_though_nothing_comes() {
    let mut bench = bench(0);
    send(&mut *bench.port, &[60]);
    let mut tx = bench.scene.server(transmit(1));
    let mut sleeps = 0;
    *bench.scene.host.meanwhile.borrow_mut() = Some(Box::new(move || {
        sleeps += 1;
        if sleeps == 3 {
            serve(&mut tx, &[HEADER + 60]);
        }
    }));
    let deadline = crate::Instant(10 * super::LINGER);
    assert!(bench.scene.runtime.wait(Some(deadline)).is_empty());
    assert_eq!(bench.counted([TxFrames]), [1]);
    let waits = bench.scene.host.waits.borrow();
    let lingers = [1, 2, 3].map(|n| Some(crate::Instant(n * super::LINGER)));
    assert_eq!(waits[..3], lingers);
    assert_eq!(waits.last(), Some(&Some(deadline)));
}

#[test]
fn a_result_that_cannot_be_ends_the_guest() {
    let most = 65_535 + 18 + 1;
    for (result, text) in [
        (HEADER + most + 1, "a transfer came to"),
        (-4096, "a transfer came to -4096"),
        (i64::MIN, "a transfer came to"),
    ] {
        let mut bench = bench(0);
        serve(&mut bench.rx, &[result]);
        let status = ended(|| drop(received(&mut *bench.port)));
        assert_eq!(status, Some(abi::exit::FAILURE), "{result}");
        let told = bench.scene.host.text();
        assert!(told.contains(text) && told.contains("device net"), "{told}");
    }
}

#[test]
fn an_index_that_jumps_ends_the_guest() {
    for queue in [receive(1), transmit(1)] {
        let mut bench = bench(0);
        let done = bench.scene.ring_word(first_word(queue) + word::DONE);
        done.store(ENTRIES + 1, Ordering::Release);
        let status = ended(|| {
            received(&mut *bench.port);
            send(&mut *bench.port, &[60]);
        });
        assert_eq!(status, Some(abi::exit::FAILURE));
        let text = "its index went from 0 to 257\n";
        assert!(bench.scene.host.text().ends_with(text));
    }
}

#[test]
fn frames_leave_before_the_guest_ends() {
    let mut bench = bench(0);
    send(&mut *bench.port, &[60]);
    let mut tx = bench.scene.server(transmit(1));
    *bench.scene.host.meanwhile.borrow_mut() = Some(Box::new(move || {
        if tx.has_request().unwrap() {
            serve(&mut tx, &[HEADER + 60]);
        }
    }));
    assert_eq!(ended(|| bench.scene.runtime.exit(7)), Some(7));
    assert_eq!(bench.counted([TxFrames]), [1]);
    assert_eq!(bench.scene.host.waits.borrow().len(), 1);
}

#[test]
fn a_disk_is_flushed_and_discarded_through_its_ring() {
    let device = Device::Block {
        capacity: 1 << 20,
        block_size: 512,
    };
    let setup = Setup {
        devices: vec![("disk", device, RING | DISK)],
        rings: true,
        ..Setup::default()
    };
    let scene = setup.start();
    let mut disk = scene.runtime.disk("disk").unwrap();
    let mut server = scene.server(receive(1));
    let unsupported = -i64::from(Errno::NOT_SUPPORTED.0);
    let mut answers = vec![0, 0, unsupported].into_iter();
    let asked = alloc::rc::Rc::new(core::cell::RefCell::new(vec![]));
    let seen = asked.clone();
    *scene.host.meanwhile.borrow_mut() = Some(Box::new(move || {
        let request = serve(&mut server, &[answers.next().unwrap()])[0];
        seen.borrow_mut()
            .push((request.operation, request.offset, request.length));
    }));
    assert_eq!(disk.flush(), Ok(()));
    assert_eq!(disk.write_zeroes(512, 1 << 19), Ok(()));
    assert_eq!(disk.discard(0, 512), Err(device::BlockError::Unsupported));
    let expected = [
        (Operation::Flush, 0, 0),
        (Operation::Discard, 512, 1 << 19),
        (Operation::Discard, 0, 512),
    ];
    assert_eq!(*asked.borrow(), expected);
}

#[test]
fn a_disk_moves_all_blocks_at_once() {
    let device = Device::Block {
        capacity: 1 << 20,
        block_size: 512,
    };
    let setup = Setup {
        devices: vec![("disk", device, RING)],
        rings: true,
        ..Setup::default()
    };
    let scene = setup.start();
    let mut disk = scene.runtime.disk("disk").unwrap();
    let mut server = scene.server(receive(1));
    *scene.host.meanwhile.borrow_mut() = Some(Box::new(move || {
        let request = server.request().unwrap().unwrap();
        assert_eq!((request.offset, request.length), (512, 4096));
        serve(
            &mut server,
            &[match request.operation {
                Operation::Read => 4096,
                _ => -i64::from(Errno::IO.0),
            }],
        );
    }));
    assert_eq!(disk.read(512, &mut [0; 4096]), Ok(()));
    let failed = device::BlockError::Host(Errno::IO.0);
    assert_eq!(disk.write(512, &[0; 4096]), Err(failed));
    // What happened while the disk was waited for is not lost.
    assert!(scene.runtime.wait(None).is_empty());
}
