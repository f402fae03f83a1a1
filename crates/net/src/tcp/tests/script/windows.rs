//! Windows and acknowledgements (RFC 9293, 3.8.6).

use super::{Script, config};
use crate::tcp::input::Dropped;
use crate::tcp::{Config, Limits};
use std::vec::Vec;

/// RFC 9293, 3.10.7.4, first: what lies outside of the window is cut off.
#[test]
fn a_segment_is_cut_to_the_window() {
    let mut script = Script::open(
        Config {
            receive: 1000,
            receive_max: 1000,
            ..config()
        },
        "",
    );
    script.take(". 1+100 ack 1").out();
    script.take(". 51+100 ack 1");
    let keep = script.outcome.keep.unwrap();
    assert_eq!((keep.skip, keep.len), (50, 50));
    assert_eq!(script.out(), [". 1 ack 151"], "at once: RFC 5681, 4.2");
    script.take(". 151+2000 ack 1");
    assert_eq!(script.outcome.keep.unwrap().len, 850);
    script.take(". 1+100 ack 1");
    assert_eq!(script.outcome.dropped, Some(Dropped::OutsideWindow));
    script.take(". -3000+100 ack 1");
    assert_eq!(script.outcome.keep, None);
    assert_eq!(script.connection.readable(), 1000);
}

/// RFC 9293, 3.10.7.4, first: a closed window still takes acknowledgements, and an answer leaves.
#[test]
fn a_closed_window_takes_acknowledgements() {
    let mut script = Script::open(
        Config {
            receive: 1000,
            receive_max: 1000,
            ..config()
        },
        "",
    );
    script.write(500);
    script.take(". 1+1000 ack 1").out();
    script.take(". 1001+1 ack 501");
    assert_eq!(script.outcome.keep, None);
    assert_eq!(script.connection.unsent_or_unacknowledged(), 0);
    script.windows = true;
    assert_eq!(script.out(), [". 501 ack 1001 win 0"]);
}

/// RFC 9293, 3.8.6.2.2: the window opens by a whole segment or half of the buffer, not by bytes.
#[test]
fn a_receiver_offers_no_silly_windows() {
    let mut script = Script::open(
        Config {
            receive: 4000,
            receive_max: 4000,
            ..config()
        },
        "",
    );
    for start in [1, 1001, 2001, 3001] {
        script.take(&std::format!(". {start}+1000 ack 1")).out();
    }
    script.windows = true;
    script.connection.read(10);
    assert_eq!(script.out(), [""; 0]);
    script.take(". 4001+1 ack 1");
    assert_eq!(script.out(), [". 1 ack 4001 win 0"]);
    script.connection.read(1990);
    assert_eq!(script.out(), [". 1 ack 4001 win 2000"]);
}

/// RFC 9293, 3.8.6.2.1: no small segments for small windows, until the timer forces one.
#[test]
fn a_sender_fills_no_silly_windows() {
    let mut script = Script::plain();
    script.take(". 1 ack 1 win 300");
    assert_eq!(script.write(5000), [""; 0]);
    assert_eq!(script.next(), (300, Vec::from([". 1+300 ack 1".into()])));
    // Half of the largest window that was offered is enough.
    let mut script = Script::plain();
    script.connection.window_max = 600;
    script.take(". 1 ack 1 win 300");
    assert_eq!(script.write(5000), [". 1+300 ack 1"]);
}

/// RFC 9293, 3.8.6.1: a closed window is probed, ever more rarely, for as long as the peer answers.
#[test]
fn a_closed_window_is_probed() {
    let mut script = Script::plain();
    script.take(". 1 ack 1 win 0");
    assert_eq!(script.write(5000), [""; 0]);
    let mut waits = Vec::new();
    for _ in 0..20 {
        let (wait, lines) = script.next();
        assert_eq!(lines, [". 0 ack 1"]);
        waits.push(wait);
        script.take(". 1 ack 1 win 0");
    }
    assert_eq!(waits[..4], [300, 600, 1200, 2400]);
    assert_eq!(waits[19], 120_000, "{waits:?}");
    assert_eq!(
        script.connection.failure(),
        None,
        "half an hour is not too long"
    );
    script.take(". 1 ack 1 win 5000");
    assert_eq!(script.out().len(), 5);
    // The probes' waits are not the data's (RFC 6298, 5).
    assert_eq!(script.next().0, 300);
}

/// RFC 9293, 3.8.6.1 and 3.8.3: a peer that answers no probe is given up.
#[test]
fn a_closed_window_without_answers_is_given_up() {
    let mut script = Script::plain();
    script.take(". 1 ack 1 win 0");
    script.write(5000);
    script.wait(1_000_000);
    assert!(script.connection.failure().is_some());
}

/// RFC 9293, 3.8.6: a window that shrinks bounds what is new, and what is sent again.
#[test]
fn a_window_may_shrink() {
    let mut script = Script::plain();
    assert_eq!(script.write(5000).len(), 5);
    script.take(". 1 ack 1001 win 500");
    assert_eq!(script.write(1000), [""; 0]);
    // The first one is repeated, whatever the window.
    assert_eq!(script.next().1, [". 1001+1000 ack 1"]);
    script.take(". 1 ack 5001 win 20000");
    assert_eq!(script.out(), [". 5001+1000 ack 1"]);
}

/// A window update alone restarts no timer of what is on its way (RFC 6298, 5.3).
#[test]
fn window_updates_put_no_retransmission_off() {
    let mut script = Script::plain();
    script.write(1000);
    for window in 1..29 {
        assert_eq!(script.wait(10), [""; 0]);
        script.take(&std::format!(". 1 ack 1 win {}", 20_000 - window));
    }
    assert_eq!(script.wait(20), [". 1+1000 ack 1"]);
}

/// RFC 9293, 3.7.4: Nagle, as Minshall has it.
#[test]
fn small_writes_wait_for_each_other() {
    let mut script = Script::plain();
    assert_eq!(script.write(10), [". 1+10 ack 1"]);
    assert_eq!(script.write(10), [""; 0]);
    assert_eq!(script.write(990), [". 11+1000 ack 1"]);
    assert_eq!(script.write(10), [""; 0]);
    script.take(". 1 ack 11");
    assert_eq!(script.out(), [". 1011+10 ack 1"]);
    assert_eq!(script.write(10), [""; 0]);
    script.connection.set_no_delay(true);
    assert_eq!(script.out(), [". 1021+10 ack 1"]);
}

/// RFC 9293, 3.8.6.3: every second full segment, and after less than half a second.
#[test]
fn acknowledgements_wait_a_little() {
    let mut script = Script::plain();
    script.take(". 1+1000 ack 1");
    assert_eq!(script.out(), [""; 0]);
    script.take(". 1001+1000 ack 1");
    assert_eq!(script.out(), [". 1 ack 2001"]);
    script.take(". 2001+1000 ack 1");
    assert_eq!(script.next(), (40, Vec::from([". 1 ack 3001".into()])));
    script.take(". 3001+1000 ack 1");
    assert_eq!(script.write(10), [". 1+10 ack 4001"], "data takes it along");
    script.take(". 5001+1000 ack 1");
    assert_eq!(script.out(), [". 11 ack 4001"], "a hole is told at once");
    script.take(". 4001+1000 ack 1");
    assert_eq!(script.out(), [". 11 ack 6001"], "so is its end");
}

/// RFC 9293, 3.8.6.2.2: a peer that has used less than half of its window learns of more with the
/// next acknowledgement.
#[test]
fn a_reader_that_keeps_up_sends_nothing_more() {
    let mut script = Script::plain();
    let mut answers = 0;
    for segment in 0..20 {
        script.take(&std::format!(". {}+1000 ack 1", 1 + segment * 1000));
        answers += script.out().len();
        script.connection.read(1000);
        answers += script.out().len();
    }
    assert_eq!(answers, 10);
}

/// RFC 6093, 6: urgent data is data.
#[test]
fn urgent_data_stays_in_line() {
    let mut script = Script::plain();
    script.take("U 1+10 ack 1");
    assert_eq!(script.connection.readable(), 10);
}

/// RFC 1191, 6.4: what was too long for a path that has become narrower is cut and sent again at
/// once, what was not is left alone, and the window stays.
#[test]
fn a_narrower_path_cuts_what_was_sent() {
    for mut script in [Script::sack(), Script::plain()] {
        script.connection.set_no_delay(true);
        assert_eq!(script.write(300).len(), 1);
        assert_eq!(script.write(2000).len(), 2);
        let window = script.connection.congestion_window();
        script.limits = Limits {
            segment: 420,
            largest: 420,
        };
        let again = [
            ". 301+400 ack 1",
            ". 701+400 ack 1",
            ". 1101+200 ack 1",
            ". 1301+400 ack 1",
            ". 1701+400 ack 1",
            ". 2101+200 ack 1",
        ];
        assert_eq!(script.out(), again);
        assert_eq!(script.connection.congestion_window(), window);
        script.wait(100);
        script.take(". 1 ack 2301");
        assert_eq!(script.connection.unsent_or_unacknowledged(), 0);
        assert!(script.connection.congestion_window() >= window);
        assert_eq!(script.connection.report().threshold, None, "no congestion");
    }
}

/// A path that has become wider than the MSS that we told: a window of one old segment still sends.
#[test]
fn a_wider_path_does_not_stop_a_small_window() {
    let mut script = Script::new(config());
    script.out();
    script.wait(100);
    script.take("S 0 ack 1 win 20000 mss 1400");
    script.limits = Limits {
        segment: 1420,
        largest: 1420,
    };
    script.out();
    script.write(100);
    // It is lost, so that the window is one segment.
    assert_eq!(script.next().1, [". 1+100 ack 1"]);
    script.take(". 1 ack 101");
    assert_eq!(
        script.write(5000).first().map(|line| &line[..]),
        Some(". 101+1400 ack 1")
    );
}
