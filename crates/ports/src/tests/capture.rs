//! Captures of a port's frames.

use super::{frame, received, send};
use crate::puppet::{Scene, Setup};
use crate::{Errno, Instant};
use abi::capture::Fate;
use abi::share::{CAPTURE_RING_BYTES, CaptureRecord, PortCounter};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use device::{Batch, Netif};

const WHOLE: u64 = 1 << 20;
/// A frame, and its record in the ring.
const FRAME: usize = 1480;
const RECORD: usize = size_of::<CaptureRecord>() + FRAME;

fn port() -> (Scene, Box<dyn Netif>) {
    let scene = Setup::network(1500, 0).start();
    let port = scene.runtime.network("net").unwrap();
    (scene, port)
}

/// What the host sees after a wait: direction, length and fate of each frame.
fn seen(scene: &Scene) -> Vec<(u16, u32, u32)> {
    scene.runtime.wait(Some(Instant::PAST));
    let records = scene.captures().into_iter();
    records
        .map(|(record, _)| (record.direction, record.length, record.fate))
        .collect()
}

#[test]
fn only_ports_that_the_host_names_are_captured() {
    let (scene, mut port) = port();
    scene.capture(1 << 2, WHOLE);
    scene.host.reads.borrow_mut().push_back(Ok(frame(60)));
    received(&mut *port);
    send(&mut *port, &[60]);
    assert_eq!(seen(&scene), []);
}

#[test]
fn records_become_visible_at_the_next_wait() {
    let (scene, mut port) = port();
    scene.capture(1 << 1, 20);
    scene.host.reads.borrow_mut().push_back(Ok(frame(60)));
    received(&mut *port);
    send(&mut *port, &[61]);
    assert!(scene.captures().is_empty());
    let passed = Fate::Passed.number();
    assert_eq!(seen(&scene), [(0, 60, passed), (1, 61, passed)]);
    let records = scene.captures();
    assert!(
        records
            .iter()
            .all(|(record, bytes)| record.port == 1 && *bytes == frame(20))
    );
}

#[test]
fn what_became_of_a_frame_is_said() {
    let (scene, mut port) = port();
    scene.capture(1 << 1, WHOLE);
    let reads = [Ok(frame(9)), Ok(frame(60)), Ok(frame(70))];
    scene.host.reads.borrow_mut().extend(reads);
    received(&mut *port);
    let mut batch = Batch::new();
    port.receive(&mut batch);
    port.receive(&mut batch);
    let first = batch.iter().next().unwrap();
    let capture = &scene.runtime.capture;
    capture.dropped(1, first.bytes(), Fate::Rule(3));
    // Another port, whose frames are not captured, did not receive it.
    let second = batch.iter().nth(1).unwrap();
    capture.dropped(2, second.bytes(), Fate::Rule(9));
    drop(batch);
    scene.host.refusals.borrow_mut().push_back(Some(Errno::IO));
    send(&mut *port, &[80, 1515]);
    let passed = Fate::Passed.number();
    let fate = |what: PortCounter| Fate::from(what).number();
    let expected = [
        (0, 9, fate(PortCounter::RxRunt)),
        (0, 60, Fate::Rule(3).number()),
        (0, 70, passed),
        (1, 80, fate(PortCounter::TxLinkDown)),
        (1, 1515, fate(PortCounter::TxTooBig)),
    ];
    assert_eq!(seen(&scene), expected);
}

#[test]
fn a_buffer_that_was_used_again_is_the_latest_frame() {
    let (scene, mut port) = port();
    scene.capture(1 << 1, WHOLE);
    let reads = [Ok(frame(60)), Ok(frame(70))];
    scene.host.reads.borrow_mut().extend(reads);
    received(&mut *port);
    let mut batch = Batch::new();
    port.receive(&mut batch);
    let frame = batch.iter().next().unwrap();
    scene
        .runtime
        .capture
        .dropped(1, frame.bytes(), Fate::Counter(40));
    let passed = Fate::Passed.number();
    assert_eq!(seen(&scene), [(0, 60, passed), (0, 70, 40)]);
}

#[test]
fn a_full_ring_costs_records_and_no_frames() {
    let (scene, mut port) = port();
    scene.capture(1 << 1, WHOLE);
    let fit = CAPTURE_RING_BYTES / RECORD;
    let lengths = vec![FRAME; 60];
    let sent = (fit / 60 + 1) * 60;
    (0..sent / 60).for_each(|_| send(&mut *port, &lengths));
    assert_eq!(scene.counted(1, PortCounter::TxFrames), sent as u64);
    let lost = (sent - fit) as u64;
    assert_eq!(scene.counted(1, PortCounter::CaptureLost), lost);
    scene.runtime.wait(Some(Instant::PAST));
    assert_eq!(scene.captures().len(), fit);
    scene.captures_taken((fit * RECORD) as u64);
    send(&mut *port, &[60]);
    assert_eq!(scene.counted(1, PortCounter::CaptureLost), lost);
}
