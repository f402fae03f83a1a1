//! Both ends in all orders that the memory model allows, by loom: no result is read before it was
//! written, and nobody sleeps for ever. An event is sticky, as an eventfd is.

use super::*;
use loom::sync::{Arc, Notify};
use loom::thread;
use std::boxed::Box;
use std::vec::Vec;

/// Requests of a run: the second one meets a host that has slept.
const REQUESTS: u64 = 2;
/// Switches from a thread that could go on, in one run; all bugs of this kind need fewer.
const PREEMPTIONS: usize = 3;

fn words(count: usize) -> &'static [AtomicU64] {
    let words: Vec<_> = (0..count).map(|_| AtomicU64::new(0)).collect();
    Box::leak(words.into_boxed_slice())
}

#[test]
fn nobody_sleeps_for_ever() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(|| {
        let queue = Words(words(word::ENTRIES + REQUESTS as usize * ENTRY_WORDS));
        let sleepers = Sleepers(words(word::WAITING + 1));
        let (kick, wake) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let host = {
            let (kick, wake) = (kick.clone(), wake.clone());
            thread::spawn(move || serve(Server::new(queue), sleepers, &kick, &wake))
        };
        ask(Client::new(queue), sleepers, &kick, &wake);
        host.join().unwrap();
    });
}

fn serve(mut server: Server<'_>, sleepers: Sleepers<'_>, kick: &Notify, wake: &Notify) {
    let mut served = 0;
    while served < REQUESTS {
        while let Some(request) = server.request().unwrap() {
            assert_eq!(request.address, served + 7);
            server.serve(request.address as i64);
            served += 1;
        }
        if server.publish() && sleepers.guest_waits() != 0 {
            wake.notify();
        }
        sleepers.host_sleeps(asleep::IDLE);
        if served < REQUESTS && !server.has_request().unwrap() {
            kick.wait();
        }
        sleepers.host_sleeps(0);
    }
}

fn ask(mut client: Client<'_>, sleepers: Sleepers<'_>, kick: &Notify, wake: &Notify) {
    for number in 0..REQUESTS {
        assert!(client.write(Request {
            address: number + 7,
            length: 1,
            operation: Operation::Read,
            offset: 0,
        }));
        if client.post() && sleepers.host_waits() & asleep::IDLE != 0 {
            kick.notify();
        }
        loop {
            if let Some(result) = client.take().unwrap() {
                assert_eq!(result, number as i64 + 7);
                break;
            }
            sleepers.guest_sleeps(waiting::RECEIVE);
            if !client.has_result().unwrap() {
                wake.wait();
            }
            sleepers.guest_sleeps(0);
        }
    }
}
