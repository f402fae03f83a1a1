//! A port that calls its host for each frame.

use super::{frame, large, received, send, with_header};
use crate::Errno;
use crate::ledger::READ_ERRORS_MAX;
use crate::puppet::{Scene, Setup, ended};
use abi::extension::device_flag::VIRTIO_NET_HEADER;
use abi::share::PortCounter::*;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use device::{BATCH_FRAMES_MAX, Batch, FRAME_BYTES_MAX, Frame, Netif};

const MTU: u16 = 1500;

fn plain() -> (Scene, Box<dyn Netif>) {
    port(0)
}

fn port(flags: u32) -> (Scene, Box<dyn Netif>) {
    let scene = Setup::network(MTU, flags).start();
    let port = scene.runtime.network("net").unwrap();
    (scene, port)
}

fn reads(scene: &Scene, reads: impl IntoIterator<Item = Result<Vec<u8>, Errno>>) {
    scene.host.reads.borrow_mut().extend(reads);
}

#[test]
fn frames_are_received_and_sent_unchanged() {
    let (scene, mut port) = plain();
    assert_eq!((port.name(), port.mac(), port.mtu()), ("net", [2; 6], 1500));
    assert_eq!((port.max_frame(), port.wait_handle().0), (1518, 1));
    reads(&scene, [Ok(frame(60))]);
    let mut batch = Batch::new();
    port.receive(&mut batch);
    assert_eq!(batch.iter().next().map(Frame::bytes), Some(&*frame(60)));
    port.transmit(&mut batch);
    let written = scene.host.written.borrow();
    assert_eq!(*written, [(crate::Handle(10), frame(60))]);
    let counted = [RxFrames, RxBytes, TxFrames, TxBytes].map(|what| scene.counted(1, what));
    assert_eq!(counted, [1, 60, 1, 60]);
}

#[test]
fn what_is_no_frame_is_dropped_and_counted_by_reason() {
    let (scene, mut port) = plain();
    let too_long = FRAME_BYTES_MAX + 1;
    reads(&scene, [Ok(frame(13)), Ok(frame(too_long)), Ok(frame(14))]);
    assert_eq!(received(&mut *port), []);
    assert_eq!(received(&mut *port), []);
    assert_eq!(received(&mut *port), [14]);
    assert_eq!(scene.counted(1, RxRunt), 1);
    assert_eq!(scene.counted(1, RxTooLong), 1);
    assert_eq!(scene.counted(1, RxFrames), 1);
    assert_eq!(scene.counted(1, RxBytes), 14);
}

#[test]
fn a_virtio_net_header_is_checked_and_taken_off() {
    let (scene, mut port) = port(VIRTIO_NET_HEADER);
    let mut bad = with_header(60);
    bad[1] = 0x77;
    reads(
        &scene,
        [
            Ok(frame(11)),
            Ok(bad),
            Ok(with_header(13)),
            Ok(with_header(60)),
        ],
    );
    let found: Vec<usize> = (0..4).flat_map(|_| received(&mut *port)).collect();
    assert_eq!(found, [60]);
    assert_eq!(scene.counted(1, RxRunt), 2);
    assert_eq!(scene.counted(1, RxBadHeader), 1);
    send(&mut *port, &[60]);
    assert_eq!(scene.host.written.borrow()[0].1, with_header(60));
    assert_eq!(scene.counted(1, TxBytes), 60);
}

#[test]
fn after_a_streak_a_port_reads_until_there_is_nothing() {
    let (scene, mut port) = plain();
    reads(&scene, vec![Ok(frame(60)); 8 + BATCH_FRAMES_MAX + 3]);
    let batches = [(); 12].map(|()| received(&mut *port).len());
    assert_eq!(batches, [1, 1, 1, 1, 1, 1, 1, 1, BATCH_FRAMES_MAX, 3, 0, 0]);
    // The streak has ended.
    reads(&scene, vec![Ok(frame(60)); 2]);
    assert_eq!(received(&mut *port).len(), 1);
}

#[test]
fn garbage_does_not_hold_the_loop() {
    let (scene, mut port) = plain();
    reads(&scene, vec![Ok(frame(60)); 8]);
    (0..8).for_each(|_| assert_eq!(received(&mut *port), [60]));
    reads(&scene, vec![Ok(frame(5)); 200]);
    assert_eq!(received(&mut *port), []);
    assert_eq!(scene.counted(1, RxRunt), BATCH_FRAMES_MAX as u64);
}

#[test]
fn errors_in_a_row_end_the_guest_and_others_do_not() {
    let (scene, mut port) = plain();
    for _ in 0..2 {
        reads(&scene, vec![Err(Errno::IO); READ_ERRORS_MAX as usize]);
        (0..READ_ERRORS_MAX).for_each(|_| assert_eq!(received(&mut *port), []));
        reads(&scene, [Ok(frame(60))]);
        assert_eq!(received(&mut *port), [60]);
    }
    reads(&scene, vec![Err(Errno::IO); READ_ERRORS_MAX as usize + 1]);
    (0..READ_ERRORS_MAX).for_each(|_| assert_eq!(received(&mut *port), []));
    let status = ended(|| drop(received(&mut *port)));
    assert_eq!(status, Some(abi::exit::DEVICE_GONE));
    let text = "outboard: port net: the host's network device is gone (errno 5)\n";
    assert_eq!(scene.host.text(), text);
    assert_eq!(
        scene.counted(1, RxError),
        3 * u64::from(READ_ERRORS_MAX) + 1
    );
}

#[test]
fn a_closed_descriptor_ends_the_guest() {
    let (scene, mut port) = plain();
    reads(&scene, vec![Ok(Vec::new()); READ_ERRORS_MAX as usize + 1]);
    (0..READ_ERRORS_MAX).for_each(|_| assert_eq!(received(&mut *port), []));
    let status = ended(|| drop(received(&mut *port)));
    assert_eq!(status, Some(abi::exit::DEVICE_GONE));
    let text = "outboard: port net: the host's network device is gone (errno 32)\n";
    assert_eq!(scene.host.text(), text);
}

#[test]
fn a_tap_that_is_gone_ends_the_guest_at_once() {
    let (scene, mut port) = plain();
    reads(&scene, [Err(Errno::BAD_STATE)]);
    let status = ended(|| drop(received(&mut *port)));
    assert_eq!(status, Some(abi::exit::DEVICE_GONE));
    scene
        .host
        .refusals
        .borrow_mut()
        .push_back(Some(Errno::BAD_STATE));
    let status = ended(|| send(&mut *port, &[60]));
    assert_eq!(status, Some(abi::exit::DEVICE_GONE));
}

#[test]
fn frames_that_the_host_refuses_are_counted_by_reason_and_the_others_leave() {
    let (scene, mut port) = plain();
    let refusals = [
        None,
        Some(Errno::IO),
        Some(Errno::AGAIN),
        Some(Errno::INVALID),
        None,
    ];
    scene.host.refusals.borrow_mut().extend(refusals);
    send(&mut *port, &[60, 61, 62, 63, 64]);
    let written = scene.host.written.borrow();
    let lengths: Vec<_> = written.iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lengths, [60, 64]);
    let lost = [TxLinkDown, TxNoRoom, TxRefused].map(|what| scene.counted(1, what));
    assert_eq!(lost, [1, 1, 1]);
    assert_eq!(scene.counted(1, TxFrames), 2);
    assert_eq!(scene.counted(1, TxBytes), 60 + 64);
}

#[test]
fn what_exceeds_the_mtu_is_not_sent_but_for_a_vlan_tag() {
    let (scene, mut port) = plain();
    send(&mut *port, &[1514, 1515]);
    assert_eq!(scene.counted(1, TxTooBig), 1);
    let mut tagged = port.alloc(1518).unwrap();
    tagged.bytes_mut()[12..14].copy_from_slice(&[0x81, 0]);
    let mut batch = Batch::new();
    batch.push(tagged).unwrap();
    port.transmit(&mut batch);
    assert_eq!(scene.counted(1, TxFrames), 2);
    assert!(port.alloc(1519).is_none());
}

#[test]
fn the_host_changes_the_mtu_meanwhile() {
    let (scene, mut port) = plain();
    for (mtu, largest) in [(576, 576), (9000, 9000), (65_535, 65_535)] {
        scene.set_mtu(1, mtu);
        assert_eq!((port.mtu(), port.max_frame()), (largest, largest + 18));
        send(&mut *port, &[largest + 14]);
        let written = scene.host.written.borrow_mut().pop();
        assert_eq!(written.map(|(_, bytes)| bytes.len()), Some(largest + 14));
        let counted = scene.counted(1, TxTooBig);
        send(&mut *port, &[largest + 15]);
        assert_eq!(scene.counted(1, TxTooBig), counted + 1);
    }
    // What is none, and what is said of another network.
    for (index, mtu) in [(1, 65_536), (1, u64::MAX), (2, 700), (1, 0)] {
        scene.set_mtu(index, mtu);
        assert_eq!(port.mtu(), 1500);
    }
}

#[test]
fn a_large_frame_is_cut_where_the_host_cannot() {
    for (flags, frames) in [(0, 3), (VIRTIO_NET_HEADER, 1)] {
        let (_, mut from) = port(VIRTIO_NET_HEADER);
        let (scene, mut to) = port(flags);
        let mut batch = Batch::new();
        batch.push(large(&mut *from, 2500, 1000)).unwrap();
        to.transmit(&mut batch);
        assert_eq!(scene.counted(1, TxFrames), frames);
        assert_eq!(scene.counted(1, TxSegmented), u64::from(flags == 0));
        let bytes = if flags == 0 { 3 * 54 + 2500 } else { 54 + 2500 };
        assert_eq!(scene.counted(1, TxBytes), bytes);
    }
}

#[test]
fn segments_over_the_mtu_are_not_sent() {
    let (_, mut from) = port(VIRTIO_NET_HEADER);
    let (scene, mut to) = plain();
    let mut batch = Batch::new();
    batch.push(large(&mut *from, 4000, 1461)).unwrap();
    to.transmit(&mut batch);
    assert_eq!(scene.counted(1, TxTooBig), 1);
    assert_eq!(scene.counted(1, TxFrames), 0);
}

#[test]
fn without_buffers_nothing_is_read() {
    let (scene, mut port) = plain();
    let kept: Vec<_> = core::iter::from_fn(|| port.alloc(60)).collect();
    reads(&scene, [Ok(frame(60))]);
    assert_eq!(received(&mut *port), []);
    assert_eq!(scene.counted(1, NoBuffer), 1);
    drop(kept);
    assert_eq!(received(&mut *port), [60]);
}
