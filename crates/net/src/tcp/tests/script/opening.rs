//! Connections begin (RFC 9293, 3.5 and 3.10.7.3).

use super::{MSS, OURS, Script, THEIRS, config};
use crate::tcp::connection::{Agreed, Greeted};
use crate::tcp::{Config, Connection, Failure, Opening, State};
use core::time::Duration;

/// RFC 9293, 3.5, figure 6.
#[test]
fn a_connection_is_opened() {
    let mut script = Script::new(config());
    assert_eq!(script.out(), ["S 0"]);
    script.take("S 0 ack 1 mss 1000");
    assert_eq!(script.out(), [". 1 ack 1"]);
    assert_eq!(script.connection.state(), State::Established);
}

/// RFC 9293, 3.10.7.3: first and second.
#[test]
fn in_syn_sent_only_the_right_acknowledgement_counts() {
    let mut script = Script::new(config());
    script.out();
    assert_eq!(script.reset("S 0 ack 2").as_deref(), Some("R 2"));
    assert_eq!(script.reset(". 0 ack 0").as_deref(), Some("R 0"));
    assert_eq!(script.reset("R 0 ack 2"), None);
    assert_eq!(script.reset("R 0"), None);
    assert_eq!(script.reset(". 0 ack 1"), None);
    assert_eq!(script.connection.state(), State::SynSent);
    script.take("R 0 ack 1");
    assert_eq!(script.connection.failure(), Some(Failure::Refused));
}

/// The SYN has not left: nobody can have acknowledged it.
#[test]
fn nobody_acknowledges_a_syn_that_has_not_left() {
    let mut script = Script::new(config());
    script.take("S 0 ack 0");
    script.take("R 0 ack 0");
    assert_eq!(script.connection.state(), State::SynSent);
    assert_eq!(script.out(), ["S 0"]);
}

/// RFC 9293, 3.5, figure 7.
#[test]
fn both_open_at_once() {
    let mut script = Script::new(config());
    script.out();
    script.take("S 0 mss 1000");
    assert_eq!(script.connection.state(), State::SynReceived);
    assert_eq!(script.out(), ["S 0 ack 1"]);
    assert_eq!(script.reset(". 1 ack 2").as_deref(), Some("R 2"));
    script.take("S 0 ack 1 mss 1000");
    assert_eq!(script.out(), [". 1 ack 1"]);
    script.take(". 1+10 ack 1");
    assert_eq!(script.connection.state(), State::Established);
    assert_eq!(script.connection.readable(), 10);
}

/// RFC 7323, 2.2: the answer has a shift if the SYN had one, even where ours is 0.
#[test]
fn an_answer_at_once_keeps_the_scaling() {
    let mut script = Script::new(Config {
        receive: 5000,
        receive_max: 5000,
        ..config()
    });
    script.out();
    script.take("S 0 mss 1000 scale 3");
    let answer = script.connection.next(script.limits, script.now).unwrap();
    assert_eq!(answer.options.scale, Some(0));
}

/// RFC 9293, 3.10.7.4, second, SYN-RECEIVED.
#[test]
fn a_reset_in_syn_received_refuses() {
    let mut script = Script::new(config());
    script.out();
    script.take("S 0 mss 1000");
    script.out();
    script.take("R 1");
    assert_eq!(script.connection.failure(), Some(Failure::Refused));
}

/// RFC 6298, 5.5 and 5.7; RFC 5681, 3.1: after a lost SYN, little leaves, and waits 3 s.
#[test]
fn a_lost_syn_makes_a_slow_beginning() {
    let mut script = Script::new(config());
    script.out();
    assert_eq!(script.wait(1000), ["S 0"]);
    assert_eq!(script.wait(2000), ["S 0"]);
    script.take("S 0 ack 1 win 20000 mss 1000");
    script.out();
    assert_eq!(script.write(3000), [". 1+1000 ack 1"]);
    assert_eq!(script.next().0, 3000);
}

/// RFC 9293, 3.8.3: a SYN is repeated for at least 3 minutes.
#[test]
fn an_opening_is_given_up() {
    let mut script = Script::new(config());
    script.out();
    assert_eq!(script.wait(180_000).len(), 7);
    script.wait(120_000);
    assert_eq!(script.connection.failure(), Some(Failure::TimedOut));
    assert_eq!(script.connection.deadline(), super::NEVER);
}

/// RFC 9293, 3.10.7.4, fifth, SYN-RECEIVED: the acknowledgement may bring data and FIN.
#[test]
fn a_half_open_connection_is_opened_with_data() {
    let mut script = Script::new(config());
    let agreed = Agreed {
        opening: Opening {
            iss: OURS,
            stamp_offset: 0,
            mss: MSS,
        },
        irs: THEIRS,
        peer_mss: MSS,
        peer_scale: None,
        sack: false,
        peer_stamp: None,
    };
    script.connection = Connection::accept(config(), &agreed, Greeted::Unknown, script.now);
    script.take("F 1+10 ack 1 win 3000");
    assert_eq!(script.connection.state(), State::CloseWait);
    assert_eq!(script.connection.readable(), 10);
    assert_eq!(script.out(), [". 1 ack 12"]);
    assert_eq!(script.write(4000).len(), 3);
}

/// An accepted connection, as the listener hands it over.
fn accepted(greeted: Greeted) -> Script {
    let mut script = Script::new(config());
    let agreed = Agreed {
        opening: Opening {
            iss: OURS,
            stamp_offset: 0,
            mss: MSS,
        },
        irs: THEIRS,
        peer_mss: MSS,
        peer_scale: None,
        sack: true,
        peer_stamp: None,
    };
    script.connection = Connection::accept(config(), &agreed, greeted, script.now);
    script.take(". 1 ack 1");
    script
}

/// RFC 6298, 2.2: the answer to our SYN's answer is the first measurement.
#[test]
fn the_first_round_trip_is_that_of_the_opening() {
    let mut script = accepted(Greeted::Once(Duration::from_millis(50)));
    script.write(2000);
    // RFC 8985, 7.2: a probe after two round trips, and not the timer after a second.
    assert_eq!(script.next().0, 100);
    let mut script = accepted(Greeted::Unknown);
    script.write(2000);
    assert_eq!(script.next().0, 1000);
}

/// RFC 5681, 3.1, and RFC 6298, 5.7: an answer to a SYN that was sent again, too, makes a slow
/// beginning.
#[test]
fn a_lost_answer_to_a_syn_makes_a_slow_beginning() {
    let mut script = accepted(Greeted::Again);
    assert_eq!(script.write(3000), [". 1+1000 ack 1"]);
    assert_eq!(script.next().0, 3000);
}

/// RFC 9293, 3.10.4, SYN-SENT: whoever closes forgets the connection, and a late answer is reset.
#[test]
fn a_user_that_leaves_an_opening_forgets_it() {
    let mut script = Script::new(config());
    assert_eq!(script.out(), ["S 0"]);
    script.connection.leave(script.now);
    assert_eq!(script.connection.state(), State::Closed);
    assert_eq!(script.out(), [""; 0], "nobody is there to be told");
    assert_eq!(script.reset("S 0 ack 1").as_deref(), Some("R 1"));
}

/// RFC 9293, 3.7.1: no more than the peer takes, 536 bytes if it does not say.
#[test]
fn the_mss_bounds_segments() {
    let mut script = Script::new(config());
    script.out();
    script.take("S 0 ack 1 win 5000");
    assert_eq!(script.write(536), [". 1+536 ack 1"]);
    let mut script = Script::new(config());
    script.out();
    script.take("S 0 ack 1 win 5000 mss 2000");
    script.out();
    assert_eq!(
        script.write(1000),
        [". 1+1000 ack 1"],
        "the path bounds them, too"
    );
}
