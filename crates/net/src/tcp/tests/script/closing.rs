//! Connections end (RFC 9293, 3.6 and 3.10.7.4), and resets (RFC 5961).

use super::{NEVER, Script, config};
use crate::tcp::{Config, Failure, State};
use core::time::Duration;
use std::vec::Vec;

/// RFC 9293, 3.6, figure 12.
#[test]
fn we_close_first() {
    let mut script = Script::plain();
    script.write(10);
    assert_eq!(script.close(), ["F 11 ack 1"]);
    assert_eq!(script.connection.state(), State::FinWait1);
    script.take(". 1 ack 12");
    assert_eq!(script.connection.state(), State::FinWait2);
    // Half closed: the peer still sends.
    script.take(". 1+100 ack 12");
    assert_eq!(script.connection.readable(), 100);
    script.take("F 101 ack 12");
    assert_eq!(script.out(), [". 12 ack 102"]);
    assert_eq!(script.connection.state(), State::TimeWait);
    assert_eq!(
        (
            script.connection.readable(),
            script.connection.is_finished()
        ),
        (100, true)
    );
    // Our answer was lost: TIME-WAIT begins again.
    script.wait(50_000);
    script.take("F 101 ack 12");
    assert_eq!(script.out(), [". 12 ack 102"]);
    script.wait(50_000);
    assert_eq!(script.connection.state(), State::TimeWait);
    script.wait(10_000);
    assert_eq!(script.connection.state(), State::Closed);
    assert_eq!(script.connection.failure(), None);
}

/// RFC 9293, 3.6, case 2, and LAST-ACK.
#[test]
fn the_peer_closes_first() {
    let mut script = Script::plain();
    script.take("F 1+10 ack 1");
    assert_eq!(script.connection.state(), State::CloseWait);
    assert_eq!(script.out(), [". 1 ack 12"]);
    assert_eq!(script.write(10), [". 1+10 ack 12"]);
    script.take(". 12 ack 11");
    assert_eq!(script.close(), ["F 11 ack 12"]);
    assert_eq!(script.connection.state(), State::LastAck);
    // It was lost.
    let (wait, lines) = script.next();
    assert_eq!((wait, &lines[..]), (337, &["F 11 ack 12".into()][..]));
    script.take(". 12 ack 12");
    assert_eq!(script.connection.state(), State::Closed);
    assert_eq!(
        (script.connection.deadline(), script.connection.failure()),
        (NEVER, None)
    );
}

/// RFC 9293, 3.6, figure 13.
#[test]
fn both_close_at_once() {
    let mut script = Script::plain();
    script.close();
    script.take("F 1 ack 1");
    assert_eq!(script.connection.state(), State::Closing);
    assert_eq!(script.out(), [". 2 ack 2"]);
    script.take(". 2 ack 2");
    assert_eq!(script.connection.state(), State::TimeWait);
    assert_eq!(script.wait(59_000), [""; 0]);
    script.wait(1000);
    assert_eq!(
        (script.connection.state(), script.connection.deadline()),
        (State::Closed, NEVER)
    );
}

/// RFC 9293, 3.10.7.4, eighth: the FIN waits for what is missing before it.
#[test]
fn a_fin_waits_for_its_turn() {
    let mut script = Script::plain();
    script.take("F 11+10 ack 1");
    assert_eq!(script.connection.state(), State::Established);
    assert_eq!(script.out(), [". 1 ack 1"]);
    script.take(". 1+10 ack 1");
    assert_eq!(script.connection.state(), State::CloseWait);
    assert_eq!(script.out(), [". 1 ack 22"]);
    assert_eq!(script.connection.readable(), 20);
}

/// Nothing lies behind a FIN, whatever a peer says.
#[test]
fn data_behind_a_fin_is_not_taken() {
    let mut script = Script::plain();
    script.take("F 11 ack 1");
    script.take(". 1+30 ack 1");
    assert_eq!(
        (script.connection.readable(), script.connection.state()),
        (10, State::CloseWait)
    );
    assert_eq!(script.out(), [". 1 ack 12"]);
    // The FIN comes behind it.
    let mut script = Script::plain();
    script.take(". 21+10 ack 1");
    script.take("F 11 ack 1");
    script.take(". 1+10 ack 1");
    script.take(". 1+25 ack 1");
    assert_eq!(
        (script.connection.readable(), script.connection.state()),
        (10, State::CloseWait)
    );
}

/// RFC 9293, 3.10.7.4, seventh: what comes behind the end is ignored, and not answered either. A
/// FIN that comes again is told as what came twice (RFC 2883).
#[test]
fn behind_the_end_nothing_is_answered_but_the_end() {
    let mut script = Script::sack();
    script.take("F 1 ack 1");
    assert_eq!(script.out(), [". 1 ack 2"]);
    script.take(". 2+10 ack 1");
    assert_eq!(script.out(), [""; 0]);
    script.take("F 1 ack 1");
    assert_eq!(script.out(), [". 1 ack 2 sack 1-2"]);
}

/// RFC 9293, 3.6.1: data for a user that reads no more.
#[test]
fn data_behind_the_end_of_reading_is_reset() {
    let mut script = Script::plain();
    script.connection.shutdown();
    script.connection.deafen(script.now);
    assert_eq!(script.out(), ["F 1 ack 1"]);
    script.take(". 1 ack 2");
    script.take(". 1+10 ack 2");
    assert_eq!(script.out(), ["R 2 ack 1"]);
    assert_eq!(script.connection.state(), State::Closed);
}

/// RFC 2525, 2.17: what came and was not read is lost, and the peer learns it, however often the
/// user gives up.
#[test]
fn who_gives_up_twice_still_tells_the_peer() {
    let mut script = Script::plain();
    script.take(". 1+10 ack 1");
    script.connection.abort();
    script.connection.deafen(script.now);
    script.connection.abort();
    assert_eq!(script.out(), ["R 1 ack 11"]);
    assert_eq!(script.connection.failure(), Some(Failure::Aborted));
}

/// RFC 9293, 3.10.7.1: there is no connection any more.
#[test]
fn data_for_a_closed_connection_is_reset() {
    let mut script = Script::plain();
    script.connection.abort();
    script.out();
    assert_eq!(script.reset(". 1+10 ack 1").as_deref(), Some("R 1"));
    assert_eq!(script.reset("R 1 ack 1"), None);
    assert_eq!(
        script.reset("S 90000"),
        None,
        "it waits until the socket is gone"
    );
}

/// A peer whose FIN never comes does not hold memory that nobody reads.
#[test]
fn waiting_for_a_fin_that_nobody_reads_ends() {
    let mut script = Script::plain();
    script.close();
    script.connection.deafen(script.now);
    script.take(". 1 ack 2");
    assert_eq!(script.connection.state(), State::FinWait2);
    script.wait(60_000);
    assert_eq!(script.connection.state(), State::Closed);
}

/// A connection in each state in which a peer's numbers count.
fn each_state() -> Vec<(Script, &'static str)> {
    let states = [
        (State::Established, ""),
        (State::CloseWait, "F 1 ack 1"),
        (State::FinWait1, "close"),
        (State::FinWait2, "close, . 1 ack 2"),
        (State::Closing, "close, F 1 ack 1"),
        (State::LastAck, "F 1 ack 1, close"),
        (State::TimeWait, "close, F 1 ack 2"),
    ];
    let make = |(state, steps): (State, &'static str)| {
        let mut script = Script::plain();
        for step in steps.split(", ").filter(|step| !step.is_empty()) {
            match step {
                "close" => drop(script.close()),
                line => drop(script.take(line).out()),
            }
        }
        assert_eq!(script.connection.state(), state);
        // The peer's FIN was the number 1.
        let expected = if steps.contains('F') { "2" } else { "1" };
        (script, expected)
    };
    states.into_iter().map(make).collect()
}

/// RFC 5961, 3.2: only the number that is expected resets.
#[test]
fn a_reset_counts_only_with_the_expected_number() {
    for (mut script, expected) in each_state() {
        let state = script.connection.state();
        script.take(&std::format!("R {}", expected.parse::<u32>().unwrap() + 1));
        assert_eq!(script.connection.state(), state);
        let challenge = script.out();
        assert_eq!(challenge.len(), 1, "{state:?}");
        assert!(challenge[0].ends_with(&std::format!("ack {expected}")));
        // Too soon for another one.
        script.take(&std::format!("R {}", expected.parse::<u32>().unwrap() + 2));
        script.take("R 30000000");
        assert_eq!(script.out(), [""; 0]);
        script.take(&std::format!("R {expected}"));
        assert_eq!(script.connection.state(), State::Closed);
        assert_eq!(script.out(), [""; 0], "a reset is never answered");
        let all_was_said = matches!(state, State::Closing | State::LastAck | State::TimeWait);
        let failure = (!all_was_said).then_some(Failure::Reset);
        assert_eq!(script.connection.failure(), failure);
        assert_eq!(script.connection.deadline(), NEVER);
    }
}

/// RFC 5961, 4.2, and 7: a SYN is answered with an acknowledgement, twice a second.
#[test]
fn a_syn_changes_nothing() {
    for (mut script, expected) in each_state() {
        let state = script.connection.state();
        for number in ["0", "1", "5", "2000000000"] {
            script.connection.timers.challenge = script.now;
            script.take(&std::format!("S {number}"));
            let out = script.out();
            assert_eq!(out.len(), 1, "{state:?}: {number}");
            assert!(out[0].ends_with(&std::format!("ack {expected}")));
            script.take(&std::format!("S {number}"));
            assert_eq!(script.out(), [""; 0]);
        }
        assert_eq!(script.connection.state(), state);
    }
}

/// RFC 5961, 5.2: an acknowledgement of what was never sent, or long ago.
#[test]
fn acknowledgements_that_cannot_be_are_challenged() {
    let mut script = Script::plain();
    script.write(500);
    for line in [
        ". 1+10 ack 502",
        ". 1+10 ack -20000",
        ". 1+10 ack 1500000000",
    ] {
        script.connection.timers.challenge = script.now;
        script.take(line);
        assert_eq!(script.out(), [". 501 ack 1"], "{line}");
        assert_eq!(script.connection.readable(), 0);
    }
    // An old one is none, and its data is taken.
    script.take(". 1+10 ack -100");
    assert_eq!(script.connection.readable(), 10);
    assert_eq!(script.connection.unsent_or_unacknowledged(), 500);
}

/// RFC 9293, 3.8.3: a FIN that nobody acknowledges is given up.
#[test]
fn patience_ends() {
    let mut script = Script::open(
        Config {
            patience: Duration::from_secs(20),
            ..config()
        },
        "",
    );
    script.close();
    assert!(script.wait(10_000).iter().all(|line| line == "F 1 ack 1"));
    script.wait(30_000);
    assert_eq!(script.connection.failure(), Some(Failure::TimedOut));
}
