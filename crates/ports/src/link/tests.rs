//! A port over a link whose other end does what a test says, hostile things included.

use crate::clock::Instant;
use crate::devices::DeviceError;
use crate::host::Handle;
use crate::puppet::{Far, Scene, Setup, ended};
use crate::runtime::Ready;
use crate::tests::{frame, large, received, send};
use abi::link::{ENTRIES, End, Entry, Event, HEAD_BYTES, SLOT_BYTES, badge, word};
use abi::share::PortCounter;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use device::{Batch, Frame, Netif, Pool};
use proptest::prelude::*;

const SLOTS: usize = 16;
/// What the host waits on for all but taps.
const QUIET: Handle = Handle(77);
/// The link's index: there is nothing else but the reserved first entry.
const INDEX: usize = 1;

fn scene() -> (Scene, Box<dyn Netif>) {
    let setup = Setup {
        links: vec![("link", SLOTS)],
        buffers: 8,
        ..Setup::default()
    };
    let scene = setup.start();
    let port = scene.runtime.network("link").unwrap();
    (scene, port)
}

fn begin(far: Far) -> End<'static> {
    End::begin(far.own, far.peer, SLOTS).unwrap()
}

fn events(end: &mut End<'_>) -> Vec<Event> {
    core::iter::from_fn(|| end.look()).collect()
}

/// A link that is up: its port, and the other end.
fn joined() -> (Scene, Box<dyn Netif>, End<'static>) {
    let (scene, mut port) = scene();
    let mut far = begin(scene.far(0));
    events(&mut far);
    assert_eq!(received(&mut *port), []);
    events(&mut far);
    assert!(far.is_up());
    (scene, port, far)
}

/// The other end sends a frame that begins at this byte of its slot.
fn arrives(scene: &Scene, far: &mut End<'_>, slot: u32, offset: usize, bytes: &[u8]) {
    let start = HEAD_BYTES + slot as usize * SLOT_BYTES + offset;
    for (at, byte) in (start..).zip(bytes) {
        let word = &scene.far(0).own[at / 8];
        let shift = at % 8 * 8;
        let kept = word.load(Ordering::Relaxed) & !(0xff << shift);
        word.store(kept | u64::from(*byte) << shift, Ordering::Relaxed);
    }
    let entry = Entry {
        slot,
        offset: offset as u32,
        length: bytes.len() as u32,
        header: [0; 12],
    };
    assert!(far.write(&entry) && far.post());
}

fn counted(scene: &Scene, what: PortCounter) -> u64 {
    scene.counted(INDEX, what)
}

#[test]
fn frames_come_whole_wherever_they_begin() {
    let (scene, mut port, mut far) = joined();
    let mut batch = Batch::new();
    for (number, offset) in (0..40).enumerate() {
        let sent = frame(60 + number * 37);
        arrives(&scene, &mut far, number as u32 % 4, offset, &sent);
        port.receive(&mut batch);
        let got: Vec<_> = batch.drain().map(|frame| frame.bytes().to_vec()).collect();
        assert_eq!(got, [sent]);
        assert_eq!(far.take_back(), Ok(1));
    }
    assert_eq!(counted(&scene, PortCounter::RxFrames), 40);
    let largest = frame(device::FRAME_BYTES_MAX);
    arrives(&scene, &mut far, 1, SLOT_BYTES - largest.len(), &largest);
    assert_eq!(received(&mut *port), [largest.len()]);
}

#[test]
fn frames_are_sent_from_where_they_were_made_and_others_are_copied() {
    let (scene, mut port, mut far) = joined();
    let own = port.alloc(60).unwrap();
    let slot = own.index();
    let mut batch = Batch::new();
    batch.push(own).unwrap();
    let foreign = Pool::new(vec![7; 4096].leak(), 2048);
    batch.push(foreign.alloc(70).unwrap()).unwrap();
    port.transmit(&mut batch);
    assert_eq!(foreign.free(), foreign.count(), "it was copied");
    let first = far.frame().unwrap().unwrap();
    assert_eq!((first.slot, first.length), (slot, 60));
    assert!(far.take());
    let second = far.frame().unwrap().unwrap();
    assert!(second.slot != slot && second.length == 70 && far.take());
    assert_eq!(counted(&scene, PortCounter::TxFrames), 2);
    assert_eq!(counted(&scene, PortCounter::TxBytes), 130);
}

#[test]
fn what_is_left_to_be_done_goes_along() {
    let (_scene, mut port, mut far) = joined();
    let mut batch = Batch::new();
    batch.push(large(&mut *port, 4000, 1448)).unwrap();
    port.transmit(&mut batch);
    let entry = far.frame().unwrap().unwrap();
    assert_eq!(entry.length, 4054);
    assert_ne!(entry.header, [0; 12]);
    assert!(port.offloads().tso && !port.offloads().uso && port.mtu() == 1500);
}

#[test]
fn without_the_other_end_frames_are_lost_and_counted() {
    let (scene, mut port) = scene();
    send(&mut *port, &[60, 60]);
    assert_eq!(counted(&scene, PortCounter::TxLinkDown), 2);
    assert_eq!(scene.host.text(), "");
    let mut far = begin(scene.far(0));
    events(&mut far);
    assert_eq!(received(&mut *port), []);
    assert_eq!(scene.host.text(), "outboard: port link: link up\n");
    events(&mut far);
    far.go_down();
    send(&mut *port, &[60]);
    assert_eq!(counted(&scene, PortCounter::TxLinkDown), 3);
    assert!(
        scene
            .host
            .text()
            .ends_with("outboard: port link: link down\n")
    );
}

#[test]
fn an_end_that_takes_nothing_gets_no_more_than_there_are_slots() {
    let (scene, mut port, mut far) = joined();
    for _ in 0..SLOTS {
        send(&mut *port, &[60]);
    }
    assert!(port.alloc(60).is_none());
    let foreign = Pool::new(vec![7; 4096].leak(), 2048);
    let mut batch = Batch::new();
    batch.push(foreign.alloc(70).unwrap()).unwrap();
    port.transmit(&mut batch);
    assert_eq!(counted(&scene, PortCounter::TxNoRoom), 1);
    // Whoever waits for room is woken up for it, and gets the oldest buffers back.
    assert!(scene.runtime.wait(Some(Instant(1))).is_empty());
    assert!(far.frame().unwrap().is_some() && far.take() && far.release());
    assert!(!scene.runtime.wait(None).is_empty());
    let one = port.alloc(60);
    assert!(one.is_some() && port.alloc(60).is_none());
}

#[test]
fn what_was_under_way_when_an_end_began_anew_is_counted() {
    let (scene, mut port, mut far) = joined();
    for slot in 0..5 {
        arrives(&scene, &mut far, slot, 0, &frame(60));
    }
    send(&mut *port, &[60, 60, 60]);
    let mut far = begin(scene.far(0));
    assert_eq!(events(&mut far), [Event::Down { lost: 3 }]);
    assert_eq!(received(&mut *port), []);
    assert_eq!(counted(&scene, PortCounter::LinkLost), 5);
    events(&mut far);
    // All buffers are there again.
    send(&mut *port, &[60; SLOTS]);
    assert_eq!(counted(&scene, PortCounter::TxFrames), 3 + SLOTS as u64);
    arrives(&scene, &mut far, 0, 0, &frame(60));
    assert_eq!(received(&mut *port), [60]);
}

#[test]
fn what_is_no_frame_is_dropped_with_its_reason() {
    let (scene, mut port, mut far) = joined();
    arrives(&scene, &mut far, 0, 0, &frame(13));
    arrives(&scene, &mut far, 1, 0, &frame(device::FRAME_BYTES_MAX + 1));
    let entry = Entry {
        slot: 2,
        offset: 0,
        length: 60,
        header: [0xff; 12],
    };
    assert!(far.write(&entry) && far.post());
    assert_eq!(received(&mut *port), []);
    for what in [
        PortCounter::RxRunt,
        PortCounter::RxTooLong,
        PortCounter::RxBadHeader,
    ] {
        assert_eq!(counted(&scene, what), 1, "{what:?}");
    }
    assert_eq!(far.take_back(), Ok(3));
}

#[test]
fn a_broken_rule_takes_the_link_down_and_is_said() {
    let (scene, mut port, mut far) = joined();
    scene.far(0).own[word::SENT].store(1000, Ordering::Relaxed);
    assert_eq!(received(&mut *port), []);
    let says = "outboard: port link: link down: the other end breaks the rules: it has sent 1000 \
                frames, and 0 to 256 were possible\n";
    assert!(scene.host.text().ends_with(says), "{}", scene.host.text());
    assert_eq!(counted(&scene, PortCounter::LinkFaults), 1);
    assert_eq!(events(&mut far), [Event::Down { lost: 0 }]);
    // Nothing is ready for ever, and nothing is sent.
    assert!(scene.runtime.wait(Some(Instant(1))).is_empty());
    send(&mut *port, &[60]);
    assert_eq!(counted(&scene, PortCounter::TxLinkDown), 1);
    let mut far = begin(scene.far(0));
    events(&mut far);
    received(&mut *port);
    events(&mut far);
    assert!(far.is_up());
}

/// Idle: it sleeps until it is rung. Busy: nobody rings. Rung: nobody rings again until it sleeps
/// anew.
#[test]
fn it_is_rung_while_it_sleeps_and_once() {
    let (scene, mut port, mut far) = joined();
    assert!(!far.must_ring(badge::FRAMES), "busy");
    let rings: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
    let (mut sleeper, own, peer) = (far, scene.far(0).own, scene.far(0).peer);
    *scene.host.meanwhile.borrow_mut() = Some(Box::new(move || {
        for _ in 0..3 {
            let rung = u64::from(sleeper.must_ring(badge::FRAMES));
            rings.fetch_add(rung, Ordering::Relaxed);
        }
    }));
    for sleeps in 1..4 {
        scene.runtime.wait(None);
        assert_eq!(rings.load(Ordering::Relaxed), sleeps);
    }
    *scene.host.meanwhile.borrow_mut() = None;
    let waiting = peer[word::WAITING].load(Ordering::Relaxed);
    assert_eq!(waiting % badge::SLEEP, 0, "it is awake");
    // What came before it slept keeps it from sleeping.
    let mut far = End::begin(own, peer, SLOTS).unwrap();
    events(&mut far);
    received(&mut *port);
    events(&mut far);
    arrives(&scene, &mut far, 0, 0, &frame(60));
    let before = scene.host.waits.borrow().len();
    assert!(scene.runtime.wait(None).contains(port.wait_handle()));
    assert_eq!(scene.host.waits.borrow().len(), before);
    // The other end is rung when it sleeps, and not when it does not.
    scene.host.rung.borrow_mut().clear();
    send(&mut *port, &[60]);
    assert_eq!(*scene.host.rung.borrow(), []);
    far.sleep(badge::FRAMES);
    send(&mut *port, &[60]);
    send(&mut *port, &[60]);
    assert_eq!(*scene.host.rung.borrow(), [0]);
}

/// The other end takes so many frames.
fn take(far: &mut End<'_>, count: usize) {
    for _ in 0..count {
        assert!(far.frame().unwrap().is_some() && far.take());
    }
    assert!(far.release());
}

/// Whether the image waits for this badge while it sleeps.
fn waits_for(scene: &Scene, what: u64, held: Ready) -> bool {
    let (seen, words) = (Rc::new(Cell::new(0)), scene.far(0).peer);
    let see = Rc::clone(&seen);
    let waiting = move || words[word::WAITING].load(Ordering::Relaxed);
    *scene.host.meanwhile.borrow_mut() = Some(Box::new(move || see.set(waiting())));
    scene.runtime.wait_without(Some(Instant(1)), held);
    seen.get() & what != 0
}

/// Room is there for a full batch, or not at all: by slots, and by bytes.
#[test]
fn without_room_for_a_batch_somebody_waits_for_it() {
    let (scene, mut port, mut far) = joined();
    let waits = || waits_for(&scene, badge::ROOM, Ready::default());
    send(&mut *port, &[60; SLOTS / 2]);
    assert!(port.has_room() && !waits());
    send(&mut *port, &[60]);
    assert!(!port.has_room() && waits());
    take(&mut far, 1);
    assert!(port.has_room() && !waits());
    take(&mut far, SLOTS / 2);
    let mut batch = Batch::new();
    for _ in 0..5 {
        assert!(port.has_room());
        batch.push(large(&mut *port, 60_000, 1448)).unwrap();
        port.transmit(&mut batch);
    }
    assert!(!port.has_room() && waits(), "by bytes: there are slots");
    take(&mut far, 5);
    assert!(port.has_room());
    // For an end that is not there, nobody waits.
    send(&mut *port, &[60; SLOTS - 1]);
    assert!(!port.has_room());
    far.go_down();
    assert!(port.has_room());
}

#[test]
fn what_comes_in_where_it_is_held_wakes_nobody() {
    let (scene, mut port, mut far) = joined();
    let held = || [port.wait_handle()].into_iter().collect();
    arrives(&scene, &mut far, 0, 0, &frame(60));
    assert!(!waits_for(&scene, badge::FRAMES, held()));
    assert!(waits_for(&scene, badge::STATE, held()));
    let look = Some(Instant::PAST);
    assert!(scene.runtime.wait_without(look, held()).is_empty());
    assert!(!scene.runtime.wait(look).is_empty());
    assert_eq!(received(&mut *port), [60]);
}

/// An image that forwards between a tap and a link that is up.
fn beside_a_tap(open: bool) -> (Scene, Box<dyn Netif>, Box<dyn Netif>, End<'static>) {
    let setup = Setup {
        links: vec![("link", SLOTS)],
        open,
        quiet: Some(QUIET),
        ..Setup::network(1500, 0)
    };
    let scene = setup.start();
    let [tap, mut port] = ["net", "link"].map(|name| scene.runtime.network(name).unwrap());
    let mut far = begin(scene.far(0));
    events(&mut far);
    assert_eq!(received(&mut *port), []);
    events(&mut far);
    (scene, tap, port, far)
}

#[test]
fn a_tap_that_is_held_is_left_out_of_the_wait() {
    let (scene, tap, port, _far) = beside_a_tap(false);
    let tap: Ready = [tap.wait_handle()].into_iter().collect();
    let link: Ready = [port.wait_handle()].into_iter().collect();
    for (held, set) in [(Ready::default(), None), (link, None), (tap, Some(QUIET))] {
        scene.runtime.wait_without(Some(Instant(1)), held);
        assert_eq!(scene.host.sets.borrow().last(), Some(&set), "{held:?}");
    }
}

#[test]
fn over_an_open_link_a_frame_goes_on_from_where_it_was_received() {
    for open in [false, true] {
        let (scene, mut tap, mut port, mut far) = beside_a_tap(open);
        let free = scene.runtime.pool().free();
        tap.receive_into(port.open_buffers());
        scene.host.reads.borrow_mut().push_back(Ok(frame(60)));
        let mut batch = Batch::new();
        tap.receive(&mut batch);
        let received = batch.iter().next().unwrap();
        let (slot, buffers) = (received.index(), received.pool());
        assert_eq!(Some(buffers) == port.open_buffers(), open);
        assert_eq!(scene.runtime.pool().free() == free, open);
        port.transmit(&mut batch);
        let sent = far.frame().unwrap().unwrap();
        assert!(!open || sent.slot == slot);
        assert!(far.take() && far.release() && port.has_room());
        // What comes the other way, too, as long as there are buffers.
        port.receive_into(port.open_buffers());
        let mut kept = Vec::new();
        for number in 0..=SLOTS as u32 {
            arrives(&scene, &mut far, number % 2, 34, &frame(60));
            port.receive(&mut batch);
            kept.extend(batch.drain());
            assert_eq!(far.take_back(), Ok(1));
        }
        let own = kept
            .iter()
            .filter(|frame| Some(frame.pool()) == port.open_buffers());
        assert_eq!(own.count(), if open { SLOTS } else { 0 });
        assert!(kept.iter().all(|kept| kept.bytes() == frame(60)));
    }
}

#[test]
fn a_link_is_handed_out_once() {
    let (scene, _port) = scene();
    assert!(scene.runtime.network("link").is_err());
    assert_eq!(
        scene.runtime.devices.ports().collect::<Vec<_>>(),
        [("link", 1)]
    );
    assert_eq!(scene.runtime.devices.count(), 2);
}

#[test]
fn who_has_the_port_knows_how_often_the_link_went_up_and_down() {
    let (scene, mut port, mut far) = joined();
    assert_eq!(port.link_changes(), 1);
    far.go_down();
    assert_eq!(received(&mut *port), []);
    assert_eq!(port.link_changes(), 2);
    let mut next = begin(scene.far(0));
    for _ in 0..2 {
        events(&mut next);
        assert_eq!(received(&mut *port), []);
    }
    assert_eq!(port.link_changes(), 3);
    // One that breaks a rule counts as gone, and once.
    scene.far(0).own[word::SENT].store(1 << 40, Ordering::Relaxed);
    for _ in 0..3 {
        assert_eq!(received(&mut *port), []);
        assert_eq!(port.link_changes(), 4);
    }
}

#[test]
fn a_link_that_carries_sockets_is_asked_for_as_such() {
    let setup = Setup {
        links: vec![("link", SLOTS)],
        carry_sockets: true,
        buffers: 8,
        ..Setup::default()
    };
    let scene = setup.start();
    let names: Vec<_> = scene.runtime.devices.socket_links().collect();
    assert_eq!(names, ["link"]);
    let other_kind = scene.runtime.network("link").err();
    assert_eq!(other_kind, Some(DeviceError::OtherKind));
    assert!(scene.runtime.socket_link("other").unwrap().is_none());
    let mut port = scene.runtime.socket_link("link").unwrap().unwrap();
    assert!(scene.runtime.socket_link("link").is_err());
    // The largest frames cross it.
    assert_eq!(port.mtu(), 65_535);
    let mut far = begin(scene.far(0));
    events(&mut far);
    assert_eq!(received(&mut *port), []);
    send(&mut *port, &[65_549]);
    events(&mut far);
    assert_eq!(far.frame().unwrap().unwrap().length, 65_549);
}

/// What an image at the other end may write, and when.
#[derive(Clone, Debug)]
enum Deed {
    Write(usize, u64),
    Honest(u32),
    Anew,
    Send(usize),
    Receive,
    Wait,
}

fn deed() -> impl Strategy<Value = Deed> {
    let word = prop_oneof![
        0usize..32,
        word::ENTRIES..word::ENTRIES + 64,
        any::<usize>()
    ];
    let value = prop_oneof![
        0u64..8,
        any::<u64>(),
        0..2 * ENTRIES,
        (0u64..70_000).prop_map(|n| n << 32)
    ];
    prop_oneof![
        (word, value).prop_map(|(word, value)| Deed::Write(word, value)),
        (0u32..2 * SLOTS as u32).prop_map(Deed::Honest),
        Just(Deed::Anew),
        (1usize..4).prop_map(Deed::Send),
        Just(Deed::Receive),
        Just(Deed::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the other end writes: no panic, no frame over the largest, no buffer lost, and the
    /// next honest end is heard.
    #[test]
    fn the_other_end_may_write_anything_anywhere(
        deeds in proptest::collection::vec(deed(), 1..80),
    ) {
        let (scene, mut port, mut far) = joined();
        let own = scene.far(0).own;
        let mut batch = Batch::new();
        for deed in deeds {
            match deed {
                Deed::Write(word, value) => own[word % own.len()].store(value, Ordering::Relaxed),
                Deed::Honest(slot) => {
                    let entry = Entry { slot, length: 60, ..Entry::default() };
                    let _ = far.write(&entry);
                    far.post();
                    let _ = far.frame().map(|frame| frame.is_some() && far.take());
                    far.release();
                }
                Deed::Anew => far = begin(scene.far(0)),
                Deed::Send(count) => {
                    for _ in 0..count {
                        if let Some(frame) = port.alloc(60) {
                            batch.push(frame).unwrap();
                        }
                    }
                    port.transmit(&mut batch);
                }
                Deed::Receive => {
                    port.receive(&mut batch);
                    let sizes = 14..=device::FRAME_BYTES_MAX;
                    prop_assert!(batch.iter().all(|frame| sizes.contains(&frame.len())));
                    drop(batch.drain());
                }
                Deed::Wait => {
                    scene.runtime.wait(Some(Instant(1)));
                }
            }
        }
        for word in own.iter().take(word::ENTRIES) {
            word.store(0, Ordering::Relaxed);
        }
        let mut far = begin(scene.far(0));
        for _ in 0..2 {
            events(&mut far);
            port.receive(&mut batch);
            drop(batch.drain());
        }
        events(&mut far);
        prop_assert!(far.is_up());
        let held: Vec<Frame> = core::iter::from_fn(|| port.alloc(60)).collect();
        prop_assert_eq!(held.len(), SLOTS);
        drop(held);
        arrives(&scene, &mut far, 0, 0, &frame(60));
        prop_assert_eq!(received(&mut *port), [60]);
    }
}

/// Slots of frames that the other end has not taken stay its own until it has, whoever goes on.
#[test]
fn frames_under_way_outlast_an_image_that_leaves() {
    let (scene, mut port, mut far) = joined();
    send(&mut *port, &[60, 61, 62]);
    scene.leave();
    let waits = || {
        scene.runtime.wait(Some(Instant::PAST));
    };
    assert_eq!(ended(waits), Some(abi::exit::SUCCESS));
    let own = scene.far(0).peer;
    let end = || End::begin(own, scene.far(0).own, SLOTS).unwrap();
    let memory = || vec![0_u8; SLOTS * SLOT_BYTES].leak();
    let slots = Pool::new(memory(), SLOT_BYTES);
    let mut next = end();
    assert_eq!(next.outstanding(), 3);
    let under_way: Vec<_> = next.under_way().collect();
    let lent = super::lent(&mut next, slots);
    assert_eq!(lent.iter().map(Frame::index).collect::<Vec<_>>(), under_way);
    let free: Vec<_> = core::iter::from_fn(|| slots.alloc(0)).collect();
    assert_eq!(free.len(), SLOTS - 3);
    assert!(free.iter().all(|frame| !under_way.contains(&frame.index())));
    assert!(next.is_up() && events(&mut far).is_empty());
    // The same slot twice: nothing of it is believed.
    next.leave();
    let place = word::ENTRIES + word::PLACE;
    let first = own[place].load(Ordering::Relaxed);
    own[place + 4].store(first, Ordering::Relaxed);
    let mut next = end();
    assert!(next.is_up());
    assert!(super::lent(&mut next, Pool::new(memory(), SLOT_BYTES)).is_empty());
    assert_eq!((next.is_up(), next.outstanding()), (false, 0));
}
