use super::*;
use std::vec::Vec;

fn words() -> Vec<AtomicU64> {
    (0..WORDS).map(|_| AtomicU64::new(0)).collect()
}

fn request(number: u64) -> Request {
    Request {
        address: number << 12,
        length: number as u32,
        operation: if number.is_multiple_of(2) {
            Operation::Read
        } else {
            Operation::Write
        },
        offset: number * 512,
    }
}

#[test]
fn each_request_has_one_answer_in_order() {
    let words = words();
    let rings = Rings::new(&words).unwrap();
    let (mut client, mut server) = (rings.client(3).unwrap(), rings.server(3).unwrap());
    let (mut sent, mut served, mut answered) = (0, 0, 0);
    for round in 0..2000u64 {
        for _ in 0..round % 300 {
            if client.write(request(sent)) {
                sent += 1;
            }
        }
        assert!(client.free_entries() <= ENTRIES);
        assert_eq!(server.request(), Ok(None), "not posted yet");
        client.post();
        while let Some(found) = server.request().unwrap() {
            assert_eq!(found, request(served));
            server.serve(-(served as i64));
            served += 1;
        }
        assert_eq!(client.take(), Ok(None), "not published yet");
        server.publish();
        while let Some(result) = client.take().unwrap() {
            assert_eq!(result, -(answered as i64));
            answered += 1;
        }
    }
    assert_eq!(answered, sent);
}

#[test]
fn a_full_queue_takes_no_more() {
    let words = words();
    let mut client = Rings::new(&words).unwrap().client(0).unwrap();
    for number in 0..ENTRIES {
        assert!(client.write(request(number)));
    }
    assert!(!client.write(request(0)));
    assert_eq!((client.free_entries(), client.outstanding()), (0, ENTRIES));
}

#[test]
fn queues_do_not_overlap_and_end() {
    let words = words();
    let rings = Rings::new(&words).unwrap();
    for queue in 0..QUEUES {
        assert!(rings.client(queue).unwrap().write(request(queue as u64)));
        rings.queue(queue).unwrap().0[word::POSTED].store(1, Ordering::Relaxed);
    }
    for queue in 0..QUEUES {
        let found = rings.server(queue).unwrap().request().unwrap();
        assert_eq!(found, Some(request(queue as u64)));
    }
    assert!(rings.client(QUEUES).is_none() && rings.server(usize::MAX).is_none());
    assert!(Rings::new(&words[1..]).is_none());
    assert!(transmit(ENTRIES_MAX - 1) < QUEUES);
}

/// An index that a hostile guest writes, before and after some requests.
#[test]
fn a_guest_that_jumps_is_noticed() {
    for hostile in [ENTRIES + 1, u64::MAX, 1 << 63, 5 + ENTRIES + 1] {
        let words = words();
        let rings = Rings::new(&words).unwrap();
        let mut server = rings.server(0).unwrap();
        let posted = &rings.queue(0).unwrap().0[word::POSTED];
        posted.store(hostile, Ordering::Relaxed);
        let jump = Jump {
            from: 0,
            to: hostile,
        };
        assert_eq!(server.request(), Err(jump));
        posted.store(5, Ordering::Relaxed);
        while server.request().unwrap().is_some() {
            server.serve(0);
        }
        posted.store(4, Ordering::Relaxed);
        assert_eq!(server.has_request(), Err(Jump { from: 5, to: 4 }));
        posted.store(5 + ENTRIES, Ordering::Relaxed);
        assert_eq!(server.has_request(), Ok(true));
    }
}

#[test]
fn a_host_that_jumps_is_noticed() {
    let words = words();
    let rings = Rings::new(&words).unwrap();
    let mut client = rings.client(0).unwrap();
    let done = &rings.queue(0).unwrap().0[word::DONE];
    assert!(client.write(request(0)) && client.write(request(1)));
    done.store(1, Ordering::Relaxed);
    assert_eq!(
        client.take(),
        Err(Jump { from: 0, to: 1 }),
        "nothing posted"
    );
    client.post();
    for (hostile, from) in [(3, 0), (u64::MAX, 0)] {
        done.store(hostile, Ordering::Relaxed);
        assert_eq!(client.take(), Err(Jump { from, to: hostile }));
    }
    done.store(2, Ordering::Relaxed);
    assert_eq!(client.take(), Ok(Some(0)));
    assert_eq!(client.take(), Ok(Some(0)));
    done.store(1, Ordering::Relaxed);
    assert_eq!(client.take(), Err(Jump { from: 2, to: 1 }));
}

/// Two threads that sleep and wake each other as host and guest do: if a wake-up were lost, the
/// test would not end.
#[test]
fn no_wake_up_is_lost() {
    const REQUESTS: u64 = 20_000;
    let words = words();
    let rings = Rings::new(&words).unwrap();
    let sleepers = rings.sleepers();
    let (kick, kicked) = std::sync::mpsc::channel();
    let (wake, woken) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut server = rings.server(0).unwrap();
            let mut served = 0;
            while served < REQUESTS {
                while server.request().unwrap().is_some() {
                    server.serve(0);
                    served += 1;
                }
                if server.publish() && sleepers.guest_waits() != 0 {
                    wake.send(()).unwrap();
                }
                sleepers.host_sleeps(asleep::IDLE);
                if served < REQUESTS && !server.has_request().unwrap() {
                    kicked.recv().unwrap();
                }
                sleepers.host_sleeps(0);
            }
        });
        let mut client = rings.client(0).unwrap();
        let (mut sent, mut taken) = (0, 0);
        while taken < REQUESTS {
            for _ in 0..1 + sent % 7 {
                if sent < REQUESTS && client.write(request(sent)) {
                    sent += 1;
                }
            }
            if client.post() && sleepers.host_waits() & asleep::IDLE != 0 {
                // The last one may have ended.
                let _ = kick.send(());
            }
            sleepers.guest_sleeps(waiting::RECEIVE);
            if !client.has_result().unwrap() {
                woken.recv().unwrap();
            }
            sleepers.guest_sleeps(0);
            while client.take().unwrap().is_some() {
                taken += 1;
            }
        }
    });
}
