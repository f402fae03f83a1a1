use super::*;
use core::sync::atomic::Ordering;
use std::vec::Vec;

const SLOTS: usize = 8;

fn file() -> Vec<AtomicU64> {
    (0..HEAD_WORDS).map(|_| AtomicU64::new(0)).collect()
}

fn begin<'a>(own: &'a [AtomicU64], peer: &'a [AtomicU64]) -> End<'a> {
    End::begin(own, peer, SLOTS).unwrap()
}

/// All that has become of a link.
fn events(end: &mut End<'_>) -> Vec<Event> {
    core::iter::from_fn(|| end.look()).collect()
}

/// Two ends that are up.
fn joined<'a>(left: &'a [AtomicU64], right: &'a [AtomicU64]) -> [End<'a>; 2] {
    let (mut a, mut b) = (begin(left, right), begin(right, left));
    for end in [&mut a, &mut b] {
        events(end);
    }
    events(&mut a);
    assert!(a.is_up() && b.is_up());
    [a, b]
}

fn entry(number: u64) -> Entry {
    Entry {
        slot: (number % SLOTS as u64) as u32,
        offset: number as u32 % 64,
        length: 60 + number as u32 % 1400,
        header: [number as u8; 12],
    }
}

fn send(end: &mut End<'_>, numbers: core::ops::Range<u64>) {
    for number in numbers {
        assert!(end.write(&entry(number)));
    }
    assert!(end.post());
}

fn jump(from: u64, to: u64) -> crate::ring::Jump {
    crate::ring::Jump { from, to }
}

#[test]
fn files_have_room_for_their_slots() {
    for count in [0, 1, 64, SLOTS_MAX] {
        let bytes = file_bytes(count);
        assert_eq!((slots(bytes), is_file(bytes)), (count, count > 0));
        assert!(!is_file(bytes + 1) && !is_file(bytes + crate::PAGE_SIZE));
        assert!(bytes.is_multiple_of(crate::PAGE_SIZE) && bytes <= crate::region::REGION_BYTES_MAX);
    }
    assert_eq!((slots(0), slots(u64::MAX)), (0, SLOTS_MAX));
    assert!(!is_file(0) && !is_file(u64::MAX));
    let words = file();
    assert!(End::begin(&words[1..], &words, SLOTS).is_none());
    assert!(End::begin(&words, &words[1..], SLOTS).is_none());
}

#[test]
fn each_frame_comes_once_and_in_order_in_both_directions() {
    let (left, right) = (file(), file());
    let mut ends = joined(&left, &right);
    let (mut sent, mut received) = ([0; 2], [0; 2]);
    for round in 0..3000 {
        let [a, b] = &mut ends;
        let (sender, receiver) = if round % 2 == 0 { (a, b) } else { (b, a) };
        let (sent, received) = (&mut sent[round % 2], &mut received[round % 2]);
        for _ in 0..round * 7 % 300 {
            *sent += u64::from(sender.write(&entry(*sent)));
        }
        assert_eq!(receiver.frame(), Ok(None), "not posted yet");
        let posted = sender.post();
        while let Some(found) = receiver.frame().unwrap() {
            assert_eq!(found, entry(*received));
            assert!(receiver.take());
            *received += 1;
        }
        assert_eq!(sender.take_back(), Ok(0), "not released yet");
        assert_eq!(receiver.release(), posted);
        sender.take_back().unwrap();
        assert_eq!((*received, sender.outstanding()), (*sent, 0));
    }
}

#[test]
fn a_full_end_takes_no_more() {
    let (left, right) = (file(), file());
    let [mut a, mut b] = joined(&left, &right);
    send(&mut a, 0..ENTRIES);
    assert!(!a.write(&entry(0)));
    assert_eq!((a.free_entries(), a.outstanding()), (0, ENTRIES));
    assert!(b.frame().unwrap().is_some() && b.take() && b.release());
    assert_eq!((a.take_back(), a.free_entries()), (Ok(1), 1));
}

#[test]
fn a_link_is_up_once_both_have_seen_each_other() {
    let (left, right) = (file(), file());
    let mut a = begin(&left, &right);
    assert_eq!(
        (events(&mut a), a.pending(), a.is_up()),
        ([].into(), 0, false)
    );
    assert_eq!(a.frame(), Ok(None));
    let mut b = begin(&right, &left);
    assert_eq!((a.pending(), b.pending()), (badge::STATE, badge::STATE));
    assert_eq!(events(&mut b), [], "the other one has not seen it");
    assert_eq!(events(&mut a), [Event::Up]);
    assert_eq!(
        (b.pending(), events(&mut b)),
        (badge::STATE, [Event::Up].into())
    );
    assert_eq!((a.pending(), b.pending()), (0, 0));
    b.go_down();
    assert_eq!(a.pending(), badge::STATE);
    assert_eq!(events(&mut a), [Event::Down { lost: 0 }]);
    assert_eq!(
        (a.pending(), events(&mut a), a.is_up()),
        (0, [].into(), false)
    );
}

/// Whoever begins anew, the other end goes on, and each frame that was sent is received or lost.
#[test]
fn an_end_that_begins_anew_goes_on_where_the_last_one_was() {
    let (left, right) = (file(), file());
    let [mut a, mut b] = joined(&left, &right);
    let (mut sent, mut received, mut lost) = (0, 0, 0);
    for turn in 0..40u64 {
        send(&mut a, sent..sent + 5);
        sent += 5;
        for _ in 0..turn % 4 {
            assert_eq!(b.frame(), Ok(Some(entry(received + lost))));
            assert!(b.take());
            received += 1;
        }
        if turn % 3 != 0 {
            b.release();
        } else {
            // What it has taken and not released, only an end that was killed forgets.
            received -= if turn % 2 == 0 { 0 } else { turn % 4 };
        }
        let anew = if turn % 2 == 0 { &mut a } else { &mut b };
        *anew = match turn % 2 {
            0 => begin(&left, &right),
            _ => begin(&right, &left),
        };
        let mut found = Vec::new();
        for _ in 0..2 {
            found.extend(events(&mut a));
            found.extend(events(&mut b));
        }
        let downs = found.iter().filter_map(|event| match event {
            Event::Down { lost } => Some(*lost),
            Event::Up => None,
        });
        lost += downs.sum::<u64>();
        assert_eq!(found.iter().filter(|event| **event == Event::Up).count(), 2);
        assert_eq!(received + lost, sent, "turn {turn}");
        assert_eq!((a.take_back().is_ok(), a.outstanding()), (true, 0));
    }
    assert!(lost > 0 && received > 0);
}

/// A sender that is stopped between any two stores has sent a frame or has not.
#[test]
fn a_sender_may_be_killed_at_any_store() {
    for described in [false, true] {
        for told in [false, true] {
            let (left, right) = (file(), file());
            let [mut a, mut b] = joined(&left, &right);
            if described {
                assert!(a.write(&entry(9)));
            }
            if told {
                a.post();
            }
            // The next one is stopped as well, before it has said that it is there.
            left[word::SEEN].store(0, Ordering::Relaxed);
            let mut a = begin(&left, &right);
            let lost = u64::from(described && told);
            assert_eq!(events(&mut b)[0], Event::Down { lost });
            events(&mut a);
            events(&mut b);
            assert!(a.is_up() && b.is_up());
            send(&mut a, 0..1);
            assert_eq!(b.frame(), Ok(Some(entry(0))));
        }
    }
}

/// Whoever was there before may have left any number, such as the one that makes the next end look
/// like the last.
#[test]
fn the_number_of_the_last_end_is_not_that_of_the_next() {
    for back in 0..4 {
        let (left, right) = (file(), file());
        let [_, mut b] = joined(&left, &right);
        let state = left[word::STATE].load(Ordering::Relaxed);
        left[word::STATE].store(state.wrapping_sub(back), Ordering::Relaxed);
        left[word::SENT].store(77, Ordering::Relaxed);
        let mut a = begin(&left, &right);
        assert_eq!(events(&mut b)[0], Event::Down { lost: 77 });
        events(&mut a);
        events(&mut b);
        assert!(a.is_up() && b.is_up());
    }
}

#[test]
fn a_frame_of_whoever_was_killed_meanwhile_is_not_taken() {
    let (left, right) = (file(), file());
    let [mut a, mut b] = joined(&left, &right);
    send(&mut a, 0..3);
    assert!(b.frame().unwrap().is_some());
    let _next = begin(&left, &right);
    assert!(!b.take());
    assert_eq!(events(&mut b), [Event::Down { lost: 3 }]);
}

/// The other end of a link writes these words: what is said of it, and what comes then.
fn fault_of(words: &[(usize, u64)]) -> Fault {
    let (left, right) = (file(), file());
    let [mut a, mut b] = joined(&left, &right);
    send(&mut a, 0..2);
    b.sleep(badge::STATE);
    for (number, value) in words {
        right[*number].store(*value, Ordering::Relaxed);
    }
    let fault = a.take_back().and_then(|_| a.frame()).unwrap_err();
    assert!(!std::string::ToString::to_string(&fault).contains(char::is_control));
    // It is down, also for the other end, and nothing is to be looked at any more.
    assert_eq!(
        (a.is_up(), a.pending(), events(&mut a)),
        (false, 0, [].into())
    );
    assert_eq!((a.take_back(), a.frame()), (Ok(0), Ok(None)));
    assert!(a.must_ring(badge::STATE));
    assert_eq!(events(&mut b), [Event::Down { lost: 2 }]);
    // A new end is heard again.
    let mut b = begin(&right, &left);
    events(&mut a);
    events(&mut b);
    events(&mut a);
    assert!(a.is_up() && b.is_up());
    send(&mut b, 0..1);
    assert_eq!(a.frame(), Ok(Some(entry(0))));
    fault
}

#[test]
fn each_fault_has_its_reason() {
    for to in [3, u64::MAX, 1 << 63] {
        assert_eq!(fault_of(&[(word::TAKEN, to)]), Fault::Taken(jump(0, to)));
    }
    for to in [ENTRIES + 1, u64::MAX] {
        assert_eq!(fault_of(&[(word::SENT, to)]), Fault::Sent(jump(0, to)));
    }
    let sent = |place, length| {
        fault_of(&[
            (word::ENTRIES + word::PLACE, place),
            (word::ENTRIES + word::LENGTH, length),
            (word::SENT, 1),
        ])
    };
    let range = |offset, length| Fault::Range { offset, length };
    assert_eq!(sent(SLOTS as u64, 60), Fault::Slot(SLOTS as u32));
    assert_eq!(sent(0, 65729), range(0, 65729));
    assert_eq!(sent(65728 << 32, 1), range(65728, 1));
    assert_eq!(sent(0, 1 << 40), range(0, u32::MAX));
    assert_eq!(sent((u64::MAX >> 32) << 32, 60), range(u32::MAX, 60));
}

#[test]
fn whoever_speaks_another_layout_is_nobody() {
    let (left, right) = (file(), file());
    let mut a = begin(&left, &right);
    let _b = begin(&right, &left);
    right[word::MAGIC].store(MAGIC + (1 << 48), Ordering::Relaxed);
    assert_eq!(
        (a.pending(), events(&mut a), a.is_up()),
        (0, [].into(), false)
    );
}

#[test]
fn one_sleep_is_ended_once_and_for_what_it_waits() {
    let (left, right) = (file(), file());
    let [mut a, mut b] = joined(&left, &right);
    assert!(!a.must_ring(badge::FRAMES), "it is awake");
    b.sleep(badge::ROOM | badge::STATE);
    assert!(!a.must_ring(badge::FRAMES), "not for this");
    assert!(a.must_ring(badge::STATE) && !a.must_ring(badge::STATE));
    b.wake();
    assert!(!a.must_ring(badge::STATE));
    b.sleep(badge::FRAMES);
    assert!(a.must_ring(badge::FRAMES));
    // The next end sleeps anew, as the one before it did.
    let mut b = begin(&right, &left);
    b.sleep(badge::FRAMES);
    assert!(a.must_ring(badge::FRAMES) && !a.must_ring(badge::FRAMES));
}

/// What is pending: signalled twice is signalled once, and taken is taken.
#[test]
fn badges_are_there_until_they_are_taken() {
    let (left, right) = (file(), file());
    let [mut a, mut b] = joined(&left, &right);
    send(&mut a, 0..1);
    send(&mut a, 1..2);
    assert_eq!(b.pending(), badge::FRAMES);
    for _ in 0..2 {
        assert!(b.frame().unwrap().is_some() && b.take());
    }
    assert_eq!((b.pending(), a.pending()), (0, 0));
    b.release();
    assert_eq!((b.pending(), a.pending()), (0, badge::ROOM));
    assert_eq!((a.take_back(), a.pending()), (Ok(2), 0));
}

/// Takes all frames that are there; their descriptions.
fn take_all(end: &mut End<'_>) -> Vec<Entry> {
    let mut taken = Vec::new();
    while let Some(found) = end.frame().unwrap() {
        assert!(end.take());
        taken.push(found);
    }
    end.release();
    taken
}

/// Frames of both directions wait for the end that goes on, and the other one notices nothing.
#[test]
fn whoever_begins_goes_on_as_who_has_left() {
    let (left, right) = (file(), file());
    let [mut a, mut b] = joined(&left, &right);
    for turn in 0..20 {
        send(&mut a, 0..5);
        let first = b.frame().unwrap().unwrap();
        assert_eq!((first, b.take()), (entry(0), true));
        b.release();
        send(&mut b, 7..9);
        // What was described is posted.
        assert!(a.write(&entry(5)));
        a.leave();
        send(&mut b, 9..10);
        a = begin(&left, &right);
        assert!(a.is_up(), "turn {turn}");
        assert_eq!((events(&mut a), events(&mut b)), ([].into(), [].into()));
        assert_eq!(a.under_way().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert_eq!(take_all(&mut b), [1, 2, 3, 4, 5].map(entry));
        assert_eq!((a.take_back(), a.outstanding()), (Ok(5), 0));
        assert_eq!(take_all(&mut a), [7, 8, 9].map(entry));
        assert_eq!(b.take_back(), Ok(3));
    }
}

/// What becomes of the files of both ends.
type Change = fn(&[AtomicU64], &[AtomicU64]);

/// What was left is taken up once, and only where nothing has changed since.
#[test]
fn whoever_cannot_go_on_begins_anew() {
    let (left, right) = (file(), file());
    let cases: [(&str, Change); 6] = [
        ("another one took it up", |left, right| {
            begin(left, right);
        }),
        ("the other end began anew", |left, right| {
            begin(right, left);
        }),
        ("the other end is down", |_, right| {
            right[word::STATE].fetch_and(!UP, Ordering::Relaxed);
        }),
        ("the other end has not seen it", |_, right| {
            right[word::SEEN].store(0, Ordering::Relaxed);
        }),
        ("what was left is no state", |left, _| {
            left[word::LEFT].store(4, Ordering::Relaxed);
        }),
        ("more is under way than can be", |left, _| {
            left[word::SENT].store(1 << 40, Ordering::Relaxed);
        }),
    ];
    for (case, change) in cases {
        let [mut a, _] = joined(&left, &right);
        send(&mut a, 0..2);
        a.leave();
        change(&left, &right);
        let a = begin(&left, &right);
        assert!(!a.is_up() && a.outstanding() == 0, "{case}");
        assert_eq!(left[word::LEFT].load(Ordering::Relaxed), 0, "{case}");
    }
    // An end that is down leaves nothing.
    let mut a = begin(&left, &right);
    a.leave();
    assert!(!begin(&left, &right).is_up());
}
