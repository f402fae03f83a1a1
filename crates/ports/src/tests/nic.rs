//! A port over a driver of the image's own.

use super::{frame, large, received};
use crate::puppet::{Scene, Setup};
use crate::{Card, Instant, NicPort};
use abi::capture::Fate;
use abi::share::PortCounter::*;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use device::{Batch, Netif, Nic, NicCounts, Offloads, Pool, Sent, TEND_NANOSECONDS};

/// What a test and its driver share.
#[derive(Default)]
struct State {
    /// Lengths of frames that wait, in the batches in which they come.
    rx: RefCell<VecDeque<Vec<usize>>>,
    /// Lengths of frames that were sent, in their batches.
    tx: RefCell<Vec<Vec<usize>>>,
    /// The last of them.
    last: RefCell<Vec<u8>>,
    /// The length of frames that the device refuses.
    refused: Cell<usize>,
    link: Cell<Option<u32>>,
    given_up: Cell<bool>,
}

struct Driver {
    state: Rc<State>,
    pool: Pool,
    offloads: Offloads,
    counts: NicCounts,
}

impl Nic for Driver {
    fn mac(&self) -> [u8; 6] {
        [6; 6]
    }
    fn mtu(&self) -> usize {
        1500
    }
    fn offloads(&self) -> Offloads {
        self.offloads
    }
    fn link(&self) -> Option<u32> {
        self.state.link.get()
    }
    fn receive(&mut self, batch: &mut Batch) {
        let found = self.state.rx.borrow_mut().pop_front();
        for length in found.unwrap_or_default() {
            let mut received = self.pool.alloc(length).unwrap();
            received.bytes_mut().copy_from_slice(&frame(length));
            batch.push(received).unwrap();
        }
    }
    fn transmit(&mut self, batch: &mut Batch) -> Sent {
        let mut sent = Sent::all(batch);
        let mut lengths = vec![];
        for frame in batch.drain() {
            assert!(frame.offload().gso.is_none());
            let left = frame.offload().checksum;
            assert!(left.is_none() || self.offloads().checksum);
            if frame.len() == self.state.refused.get() {
                self.counts.tx_refused += 1;
                sent.without(frame.len());
            } else {
                lengths.push(frame.len());
                *self.state.last.borrow_mut() = frame.bytes().to_vec();
            }
        }
        self.state.tx.borrow_mut().push(lengths);
        sent
    }
    fn arm(&mut self) -> bool {
        !self.state.rx.borrow().is_empty()
    }
    fn tend(&mut self, _: u64) {
        self.counts.given_up = self.state.given_up.get();
    }
    fn counts(&self) -> &NicCounts {
        &self.counts
    }
}

/// The card with index 2 beside a network.
fn card() -> (Scene, Rc<State>, Pool, NicPort) {
    card_with(Offloads::default())
}

fn card_with(offloads: Offloads) -> (Scene, Rc<State>, Pool, NicPort) {
    let scene = Setup {
        cards: vec!["card"],
        ..Setup::network(1500, abi::extension::device_flag::VIRTIO_NET_HEADER)
    };
    let scene = scene.start();
    let device = scene.runtime.devices.take_pci("card").unwrap();
    let pool = Pool::new(vec![0; 80 * 2048].leak(), 2048);
    let state = Rc::new(State::default());
    let driver = Box::new(Driver {
        state: state.clone(),
        pool,
        offloads,
        counts: NicCounts::default(),
    });
    let card = Card {
        index: device.index,
        name: device.request.name().unwrap(),
        interrupts: true,
        driver,
        pool,
    };
    let port = NicPort::new(scene.runtime, card);
    (scene, state, pool, port)
}

/// A batch of frames of these lengths.
fn batch(pool: Pool, lengths: &[usize]) -> Batch {
    let mut batch = Batch::new();
    for length in lengths {
        batch.push(pool.alloc(*length).unwrap()).unwrap();
    }
    batch
}

/// What the port counted as sent, in frames and bytes.
fn sent(scene: &Scene) -> [u64; 2] {
    [TxFrames, TxBytes].map(|what| scene.counted(2, what))
}

#[test]
fn a_batch_goes_to_the_driver_as_it_is() {
    let (scene, state, pool, mut port) = card();
    assert_eq!(
        (port.name(), port.mac(), port.mtu()),
        ("card", [6; 6], 1500)
    );
    state.rx.borrow_mut().push_back(vec![60, 70]);
    assert_eq!(received(&mut port), [60, 70]);
    let counted = [RxFrames, RxBytes].map(|what| scene.counted(2, what));
    assert_eq!(counted, [2, 130]);
    port.transmit(&mut batch(pool, &[80, 90]));
    assert_eq!(*state.tx.borrow(), [[80, 90]]);
    assert_eq!(sent(&scene), [2, 170]);
}

#[test]
fn a_frame_is_no_larger_than_a_buffer_although_the_card_cuts() {
    let offloads = Offloads {
        checksum: true,
        tso: true,
        uso: false,
    };
    let (_scene, _, pool, mut port) = card_with(offloads);
    let most = port.max_frame();
    assert_eq!(most, pool.frame_bytes_max());
    assert!(port.alloc(most).is_some() && port.alloc(most + 1).is_none());
}

#[test]
fn runts_are_dropped_and_frames_before_them_stay() {
    let (scene, state, pool, mut port) = card();
    let mut found = batch(pool, &[5]);
    state.rx.borrow_mut().push_back(vec![13, 60, 4, 14]);
    port.receive(&mut found);
    let lengths: Vec<_> = found.iter().map(device::Frame::len).collect();
    assert_eq!(lengths, [5, 60, 14]);
    let counted = [RxRunt, RxFrames, RxBytes].map(|what| scene.counted(2, what));
    assert_eq!(counted, [2, 2, 74]);
}

#[test]
fn a_frame_refused_in_the_middle_is_not_counted_as_sent() {
    let (scene, state, pool, mut port) = card();
    state.refused.set(1000);
    port.transmit(&mut batch(pool, &[60, 1000, 70]));
    assert_eq!(sent(&scene), [2, 130]);
    // One by one, for one of them is too big.
    port.transmit(&mut batch(pool, &[60, 1000, 1515, 70]));
    assert_eq!(sent(&scene), [4, 260]);
    assert_eq!(scene.counted(2, TxTooBig), 1);
    assert_eq!(*state.tx.borrow(), [[60, 70], [60, 70]]);
}

#[test]
fn large_frames_are_cut_and_leave_in_batches() {
    let (scene, state, _, mut port) = card();
    let mut host = scene.runtime.network("net").unwrap();
    let mut batch = Batch::new();
    batch.push(large(&mut *host, 60_000, 1000)).unwrap();
    port.transmit(&mut batch);
    assert_eq!(scene.counted(2, TxSegmented), 1);
    assert_eq!(sent(&scene), [60, 60_000 + 60 * 54]);
    assert_eq!(state.tx.borrow().concat(), [1054; 60]);
}

#[test]
fn a_checksum_that_was_left_is_completed() {
    let (scene, state, _, mut port) = card();
    let mut host = scene.runtime.network("net").unwrap();
    let mut frame = large(&mut *host, 100, 1000);
    let checksum = frame.offload().checksum;
    frame.set_offload(device::Offload {
        checksum,
        gso: None,
    });
    let mut expected = frame.bytes().to_vec();
    frame.offload().complete_checksum(&mut expected);
    let mut batch = Batch::new();
    batch.push(frame).unwrap();
    port.transmit(&mut batch);
    assert_eq!(state.tx.borrow().concat(), [154]);
    assert_eq!(*state.last.borrow(), expected);
    assert_eq!(sent(&scene), [1, 154]);
}

#[test]
fn frames_of_a_card_are_captured() {
    let (scene, state, pool, mut port) = card();
    scene.capture(1 << 2, 64);
    state.rx.borrow_mut().push_back(vec![60, 9]);
    assert_eq!(received(&mut port), [60]);
    port.transmit(&mut batch(pool, &[70]));
    scene.runtime.wait(Some(Instant::PAST));
    let seen = scene.captures().into_iter();
    let seen: Vec<_> = seen
        .map(|(record, _)| (record.length, record.fate))
        .collect();
    let passed = Fate::Passed.number();
    let runt = Fate::from(RxRunt).number();
    assert_eq!(seen, [(60, passed), (9, runt), (70, passed)]);
}

#[test]
fn what_becomes_of_a_card_is_printed_and_counted() {
    let (scene, state, pool, mut port) = card();
    state.refused.set(60);
    port.transmit(&mut batch(pool, &[60]));
    let tend = || {
        scene.host.now.set(scene.host.now.get() + TEND_NANOSECONDS);
        scene.runtime.wait(None);
    };
    state.link.set(Some(10_000));
    tend();
    state.link.set(None);
    tend();
    state.given_up.set(true);
    tend();
    tend();
    let text = "outboard: port card: link up, 10000 Mb/s\n\
        outboard: port card: link down\n\
        outboard: port card: resets do not help, the NIC is given up\n";
    assert_eq!(scene.host.text(), text);
    let counted = [TxRefused, NicGivenUp].map(|what| scene.counted(2, what));
    assert_eq!(counted, [1, 1]);
}

#[test]
fn who_waits_learns_of_cards_and_of_the_hosts_networks() {
    let (scene, state, _, mut port) = card();
    let net = scene.runtime.network("net").unwrap();
    state.rx.borrow_mut().push_back(vec![60]);
    scene.host.ready.borrow_mut().push_back(1 << 1);
    let ready = scene.runtime.wait(None);
    assert!(ready.contains(net.wait_handle()) && ready.contains(port.wait_handle()));
    assert_eq!(received(&mut port), [60]);
}
