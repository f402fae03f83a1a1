//! Losses: RFC 5681, 6582 and 3042 with a peer without SACK; RFC 6675, 8985 and 9937 with one.

use super::Script;
use std::vec::Vec;

/// Twenty segments, after the window has grown to as many.
fn twenty(mut script: Script) -> Script {
    script.write(10_000);
    script.wait(100);
    script.take(". 1 ack 10001 win 60000");
    assert_eq!(script.connection.congestion_window(), 20_000);
    script.write(20_000);
    script.wait(100);
    script
}

/// RFC 3042 (limited transmit), RFC 5681, 3.2 (fast retransmit), RFC 6582 (NewReno).
#[test]
fn a_peer_without_sack_is_repaired() {
    let mut script = twenty(Script::plain());
    script.connection.queue(30_000);
    // The segments 10,001 and 12,001 are lost.
    for more in ["30001", "31001"] {
        script.take(". 1 ack 10001 win 60000");
        assert_eq!(script.out(), [std::format!(". {more}+1000 ack 1")]);
    }
    script.take(". 1 ack 10001 win 60000");
    assert_eq!(script.out(), [". 10001+1000 ack 1"]);
    let half = script.connection.congestion.threshold();
    assert_eq!(half, 10_000);
    // RFC 9937: about half as much leaves as arrives.
    let mut sent = 0;
    for _ in 0..17 {
        script.take(". 1 ack 10001 win 60000");
        sent += script.out().len();
    }
    assert!((5..=10).contains(&sent), "{sent}");
    script.wait(100);
    // A partial acknowledgement repeats the next hole at once (RFC 6582, 3.2, step 3).
    script.take(". 1 ack 12001 win 60000");
    assert_eq!(script.out()[0], ". 12001+1000 ack 1");
    script.wait(100);
    // All that was on its way when the loss was found is there: the repair ends, and only once.
    script.take(". 1 ack 32001 win 60000");
    let again: Vec<_> = script.out();
    assert!(
        again.iter().all(|line| !line.starts_with(". 3200")),
        "{again:?}"
    );
    assert!(!script.connection.congestion.is_recovering());
    assert_eq!(script.connection.congestion_window(), half);
    assert_eq!(script.connection.congestion.threshold(), half);
}

/// RFC 6582, 4.1: after the timer, duplicates of what was sent before tell nothing.
#[test]
fn duplicates_after_a_timeout_make_no_loss() {
    let mut script = Script::plain();
    script.write(5000);
    assert_eq!(script.next(), (300, Vec::from([". 1+1000 ack 1".into()])));
    script.take(". 1 ack 1001");
    assert_eq!(script.out(), [". 1001+1000 ack 1", ". 2001+1000 ack 1"]);
    for _ in 0..4 {
        script.take(". 1 ack 1001");
    }
    assert!(!script.out().contains(&". 1001+1000 ack 1".into()));
}

/// RFC 6582, 3.2, step 1: when a repair has just ended, duplicates may answer what was sent twice.
#[test]
fn duplicates_after_a_repair_make_no_loss() {
    let mut script = twenty(Script::plain());
    for _ in 0..3 {
        script.take(". 1 ack 10001 win 60000").out();
    }
    script.take(". 1 ack 30001 win 60000").out();
    assert!(!script.connection.congestion.is_recovering());
    let threshold = script.connection.congestion.threshold();
    script.write(10_000);
    for _ in 0..5 {
        script.take(". 1 ack 30001 win 60000").out();
    }
    assert!(!script.connection.congestion.is_recovering());
    // Behind one more acknowledgement, they tell of a loss again.
    script.take(". 1 ack 31001 win 60000").out();
    for _ in 0..3 {
        script.take(". 1 ack 31001 win 60000").out();
    }
    assert!(script.connection.congestion.is_recovering());
    assert!(script.connection.congestion.threshold() <= threshold);
}

/// RFC 5681, 2: what is no duplicate.
#[test]
fn only_empty_acknowledgements_are_duplicates() {
    let mut script = Script::plain();
    script.write(5000);
    for number in 0..5 {
        script.take(&std::format!(". {}+10 ack 1", 1 + 10 * number));
        script.take(&std::format!(". 51 ack 1 win {}", 19_000 + number));
    }
    assert_eq!(script.connection.duplicates, 0);
}

/// RFC 8985, 6.2, and RFC 6675: three segments behind a hole; RFC 9937 in what follows.
#[test]
fn a_peer_with_sack_is_repaired() {
    let mut script = twenty(Script::sack());
    script
        .take(". 1 ack 10001 sack 11001-12001 win 60000")
        .out();
    script
        .take(". 1 ack 10001 sack 11001-13001 win 60000")
        .out();
    script.take(". 1 ack 10001 sack 11001-14001 win 60000");
    assert_eq!(script.out(), [". 10001+1000 ack 1"]);
    assert_eq!(script.connection.congestion.threshold(), 10_000);
    script.connection.queue(20_000);
    let mut sent = 0;
    for end in 15..=30 {
        let line = std::format!(". 1 ack 10001 win 60000 sack 11001-{end}001");
        sent += script.take(&line).out().len();
    }
    assert!((7..=10).contains(&sent), "{sent}");
    script.wait(100);
    script.take(". 1 ack 30001 win 60000").out();
    assert_eq!(script.connection.congestion_window(), 10_000);
    assert!(!script.connection.congestion.is_recovering());
}

/// RFC 8985, 6.2, step 5: what was overtaken is lost after a quarter of a round trip.
#[test]
fn one_segment_behind_a_hole_makes_it_a_loss_later() {
    let mut script = Script::sack();
    script.write(3000);
    script.wait(100);
    script.take(". 1 ack 1 sack 1001-2001");
    assert_eq!(script.out(), [""; 0]);
    let (wait, lines) = script.next();
    assert!((20..=30).contains(&wait), "{wait}");
    assert_eq!(lines, [". 1+1000 ack 1"]);
}

/// RFC 8985, 7.2 to 7.3: the last segment again, once, after two round trips.
#[test]
fn the_tail_is_probed_once() {
    let mut script = Script::sack();
    script.write(3000);
    let (wait, lines) = script.next();
    assert_eq!((wait, &lines[..]), (200, &[". 2001+1000 ack 1".into()][..]));
    let (_, lines) = script.next();
    assert_eq!(lines, [". 1+1000 ack 1"], "then the timer's turn");
}

/// RFC 8985, 7.4.2: a probe that has repaired a loss reduces the window; a duplicate does not.
#[test]
fn a_probe_that_repairs_a_loss_reduces_the_window() {
    for duplicate in [false, true] {
        let mut script = Script::sack();
        script.write(3000);
        assert_eq!(script.next().1, [". 2001+1000 ack 1"]);
        script.wait(10);
        script.take(". 1 ack 3001");
        assert_eq!(script.connection.congestion_window(), 10_000);
        script.write(1000);
        script.wait(90);
        if duplicate {
            script.take(". 1 ack 3001 sack 2001-3001");
        }
        script.take(". 1 ack 4001");
        let window = if duplicate { 10_000 } else { 5000 };
        assert_eq!(script.connection.congestion_window(), window);
    }
}

/// RFC 8985, 6.2: a retransmission that is lost is found by what was sent after it.
#[test]
fn a_lost_retransmission_is_found() {
    let mut script = twenty(Script::sack());
    script.take(". 1 ack 10001 sack 11001-14001 win 60000");
    assert_eq!(script.out(), [". 10001+1000 ack 1"]);
    script.connection.queue(20_000);
    script.now = script.now + core::time::Duration::from_millis(5);
    for end in 15..=30 {
        let line = std::format!(". 1 ack 10001 win 60000 sack 11001-{end}001");
        script.take(&line).out();
    }
    script.now = script.now + core::time::Duration::from_millis(100);
    script.take(". 1 ack 10001 win 60000 sack 11001-33001");
    assert_eq!(script.out()[0], ". 10001+1000 ack 1");
}

/// RFC 2018, 8: a receiver may throw away what it has told of.
#[test]
fn a_receiver_may_renege() {
    let mut script = Script::sack();
    script.write(3000);
    script.take(". 1 ack 1 sack 1001-3001").out();
    script.take(". 1 ack 1001").out();
    let mut lines = Vec::new();
    while !lines.contains(&". 1001+1000 ack 1".into()) {
        let (wait, more) = script.next();
        assert!(wait <= 1000 && !more.is_empty(), "it hangs");
        lines.extend(more);
    }
}

/// A peer that says that it has got all, and acknowledges nothing.
#[test]
fn a_peer_that_sacks_everything_gets_no_further() {
    let mut script = Script::sack();
    script.write(10_000);
    script.take(". 1 ack 1 sack 1-10001");
    script.connection.queue(30_000);
    assert_eq!(script.out().len(), 10, "its window");
    assert_eq!(script.connection.in_flight(), 10_000);
    script.wait(2000);
    assert!(script.connection.sent.sacked() == 0);
}

/// RFC 3465, 2.3: a peer that acknowledges each byte makes nothing grow faster.
#[test]
fn a_peer_that_acknowledges_each_byte_gains_nothing() {
    let mut script = Script::sack();
    script.write(10_000);
    for ack in 2..=1001 {
        script.take(&std::format!(". 1 ack {ack}"));
    }
    assert!(script.connection.congestion_window() <= 11_000);
}

/// RFC 8985, 7.2: where the retransmission timer would be first, the probe takes its place.
#[test]
fn a_probe_comes_before_the_timer() {
    let mut script = Script::sack();
    script.write(1000);
    // Twice 100 ms and 200 ms for an acknowledgement that is put off are more than 300 ms.
    assert_eq!(script.next().0, 300);
    assert_eq!(script.connection.congestion_window(), 10_000, "no loss yet");
    assert_eq!(script.next().0, 300);
    assert_eq!(script.connection.congestion_window(), 1000);
}

/// RFC 3042, 2: while nobody knows whether a segment is late or lost, the window stays.
#[test]
fn segments_behind_a_hole_do_not_widen_the_window() {
    for (mut script, blocks) in [
        (Script::sack(), [" sack 1001-2001", " sack 1001-3001"]),
        (Script::plain(), ["", ""]),
    ] {
        script.write(20_000);
        script.wait(100);
        for block in blocks {
            script.take(&std::format!(". 1 ack 1{block}"));
            assert_eq!(script.connection.congestion_window(), 10_000);
            assert_eq!(script.out().len(), 1, "as many as have arrived");
        }
        // It was late: what the others have told of does not count once more.
        script.take(". 1 ack 3001");
        assert_eq!(script.connection.congestion_window(), 11_000);
    }
}

/// RFC 9937, 6: as much as arrives, and a segment more only where the repair gets on.
#[test]
fn a_repair_speeds_up_only_where_it_gets_on() {
    let mut script = twenty(Script::sack());
    script.connection.queue(30_000);
    // Fifteen of twenty are lost: few are on their way.
    script.take(". 1 ack 10001 win 60000 sack 25001-26001");
    script.out();
    script.take(". 1 ack 10001 win 60000 sack 25001-28001");
    assert_eq!(script.out().len(), 1);
    script.take(". 1 ack 10001 win 60000 sack 25001-30001");
    assert_eq!(script.out().len(), 2);
    script.wait(100);
    script.take(". 1 ack 11001 win 60000 sack 25001-30001");
    assert_eq!(script.out().len(), 2);
}

/// RFC 7661, 4.1: what counts is how much was on its way in the round trip, and not how much still
/// is.
#[test]
fn the_window_grows_by_how_much_of_it_is_used() {
    let mut script = Script::sack();
    script.write(10_000);
    script.wait(100);
    for acked in 1..=5 {
        script.take(&std::format!(". 1 ack {}", acked * 2000 + 1));
        let window = script.connection.congestion_window();
        assert_eq!(window, 10_000 + acked * 2000);
    }
    let mut script = Script::sack();
    script.write(5000);
    script.wait(100);
    script.take(". 1 ack 5001");
    assert_eq!(script.connection.congestion_window(), 10_000);
}
