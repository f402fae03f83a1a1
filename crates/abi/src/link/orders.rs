//! Both ends in all orders that the memory model allows, by loom: no frame is read before it was
//! written, nobody sleeps for ever, and nobody takes what an end that has begun anew writes for a
//! frame of the one before it. A bell is sticky, as an eventfd is.

use super::*;
use loom::sync::atomic::Ordering;
use loom::sync::{Arc, Notify};
use loom::thread;
use std::boxed::Box;
use std::vec::Vec;

/// Frames of a run: the second one meets an end that has slept.
const FRAMES: u64 = 2;
/// Switches from a thread that could go on, in one run; all bugs of this kind need fewer.
const PREEMPTIONS: usize = 3;

fn words(count: usize) -> &'static [AtomicU64] {
    let words: Vec<_> = (0..count).map(|_| AtomicU64::new(0)).collect();
    Box::leak(words.into_boxed_slice())
}

/// A header with as many entries as a run needs.
fn head() -> Words<'static> {
    Words(words(word::ENTRIES + FRAMES as usize * ENTRY_WORDS))
}

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(run);
}

/// Two ends that know each other, so that a run need not go through their beginning.
fn joined(left: Words<'static>, right: Words<'static>) -> [End<'static>; 2] {
    let mut ends = [End::of(left, right, 1), End::of(right, left, 1)];
    for turn in 0..4 {
        ends[turn % 2].look();
    }
    assert!(ends.iter().all(End::is_up));
    ends
}

fn entry(number: u64) -> Entry {
    Entry {
        length: number as u32 + 7,
        ..Entry::default()
    }
}

#[test]
fn nobody_sleeps_for_ever() {
    sends_all(|receiver| receiver);
}

/// The same where the receiver is another one behind each frame, which the one before has left its
/// end to.
#[test]
fn what_is_left_goes_on_while_the_other_end_sends() {
    sends_all(|mut receiver| {
        receiver.leave();
        let next = End::of(receiver.own, receiver.peer, 1);
        assert!(next.is_up());
        next
    });
}

/// A sender and a receiver, which becomes another one behind each frame.
fn sends_all(next: fn(End<'static>) -> End<'static>) {
    model(move || {
        let (left, right) = (head(), head());
        let [mut sender, mut receiver] = joined(left, right);
        let bells = [(); 2].map(|()| Arc::new(Notify::new()));
        let [to_receiver, to_sender] = bells.clone();
        let other = thread::spawn(move || {
            let [to_receiver, to_sender] = bells;
            for number in 0..FRAMES {
                loop {
                    if let Some(found) = receiver.frame().unwrap() {
                        assert_eq!(found, entry(number));
                        assert!(receiver.take() && receiver.release());
                        if receiver.must_ring(badge::ROOM) {
                            to_sender.notify();
                        }
                        receiver = next(receiver);
                        break;
                    }
                    receiver.sleep(badge::FRAMES);
                    if receiver.pending() == 0 {
                        to_receiver.wait();
                    }
                    receiver.wake();
                }
            }
        });
        for number in 0..FRAMES {
            assert!(sender.write(&entry(number)) && sender.post());
            if sender.must_ring(badge::FRAMES) {
                to_receiver.notify();
            }
            while sender.take_back().unwrap() == 0 {
                sender.sleep(badge::ROOM);
                if sender.pending() == 0 {
                    to_sender.wait();
                }
                sender.wake();
            }
        }
        other.join().unwrap();
    });
}

/// Both begin at once: both come up, whoever was first.
#[test]
fn two_that_begin_find_each_other() {
    model(|| {
        let (left, right) = (head(), head());
        let bells = [(); 2].map(|()| Arc::new(Notify::new()));
        let begin = |own, peer, bells: [Arc<Notify>; 2]| {
            move || {
                let [ours, theirs] = bells;
                let mut end = End::of(own, peer, 1);
                loop {
                    while end.look().is_some() {}
                    if end.must_ring(badge::STATE) {
                        theirs.notify();
                    }
                    if end.is_up() {
                        break;
                    }
                    end.sleep(badge::STATE);
                    if end.pending() == 0 {
                        ours.wait();
                    }
                    end.wake();
                }
            }
        };
        let [a, b] = bells;
        let other = thread::spawn(begin(right, left, [b.clone(), a.clone()]));
        begin(left, right, [a, b])();
        other.join().unwrap();
    });
}

/// A sender is killed, and the next one writes over its slot while the receiver copies.
#[test]
fn no_frame_is_taken_from_whoever_has_begun_anew() {
    model(|| {
        let (left, right) = (head(), head());
        let slot = words(1);
        let [mut sender, mut receiver] = joined(left, right);
        slot[0].store(1, Ordering::Relaxed);
        assert!(sender.write(&entry(0)) && sender.post());
        let other = thread::spawn(move || {
            let next = End::of(left, right, 1);
            slot[0].store(2, Ordering::Relaxed);
            next
        });
        if receiver.frame().unwrap().is_some() {
            let copied = slot[0].load(Ordering::Relaxed);
            assert!(!receiver.take() || copied == 1);
        }
        other.join().unwrap();
    });
}
