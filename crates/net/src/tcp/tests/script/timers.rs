//! What time brings: RFC 6298, RFC 5681, 4.1, and RFC 9293, 3.8.4.

use super::{NEVER, Script, config};
use crate::tcp::{Config, Failure, State};
use core::time::Duration;
use std::vec::Vec;

fn kept_alive() -> Script {
    let config = Config {
        keep_alive: Some(Duration::from_secs(100)),
        patience: Duration::from_secs(300),
        ..config()
    };
    Script::open(config, "")
}

/// RFC 6298, 2.2 and 5.5: SRTT + 4 RTTVAR, and twice as long each time; Karn (3).
#[test]
fn the_time_out_doubles_and_comes_back() {
    let mut script = Script::plain();
    script.write(1000);
    let waits: Vec<_> = (0..4).map(|_| script.next().0).collect();
    assert_eq!(waits, [300, 600, 1200, 2400]);
    script.take(". 1 ack 1001");
    assert_eq!(script.connection.deadline(), NEVER);
    // Nothing was measured: the same as before.
    script.write(1000);
    assert_eq!(script.next().0, 300);
}

/// RFC 6298, 5.3: an acknowledgement of new data begins the wait again.
#[test]
fn each_acknowledgement_restarts_the_timer() {
    let mut script = Script::plain();
    script.write(3000);
    script.wait(100);
    script.take(". 1 ack 1001");
    // 100 ms, and the least that is added to it.
    assert_eq!(script.next().0, 300);
}

/// RFC 5681, 4.1: a connection that was idle begins with the initial window.
#[test]
fn an_idle_connection_begins_again() {
    let mut script = Script::plain();
    for round in 0..3 {
        script.write(10_000);
        script.wait(100);
        script.take(&std::format!(
            ". 1 ack {} win 60000",
            round * 10_000 + 10_001
        ));
    }
    assert!(script.connection.congestion_window() > 10_000);
    script.wait(10_000);
    assert_eq!(script.write(30_000).len(), 10);
}

/// RFC 9293, 3.8.4: an idle connection is probed, and lives for as long as the peer answers.
#[test]
fn an_idle_connection_is_kept_alive() {
    let mut script = kept_alive();
    for _ in 0..20 {
        let (wait, lines) = script.next();
        assert_eq!((wait, &lines[..]), (100_000, &[". 0 ack 1".into()][..]));
        script.take(". 1 ack 1");
    }
    assert_eq!(script.connection.failure(), None);
    let probes = script.wait(1_000_000).len();
    assert!((3..=8).contains(&probes), "{probes}");
    assert_eq!(script.connection.failure(), Some(Failure::TimedOut));
}

/// RFC 9293, 3.8.4: not while data is on its way, and not when all is done.
#[test]
fn only_an_idle_connection_is_probed() {
    let mut script = kept_alive();
    script.write(10);
    let lines = script.wait(250_000);
    assert!(lines.iter().all(|line| line == ". 1+10 ack 1"), "{lines:?}");
    let mut script = Script::open(
        Config {
            keep_alive: Some(Duration::from_secs(10)),
            ..config()
        },
        "",
    );
    script.close();
    script.take("F 1 ack 2").out();
    assert_eq!(script.connection.state(), State::TimeWait);
    assert_eq!(script.wait(59_000), [""; 0]);
}

/// It can be asked for later, and left again.
#[test]
fn a_user_says_when_an_idle_connection_is_probed() {
    let mut script = Script::plain();
    let now = script.now;
    let connection = &mut script.connection;
    connection.set_keep_alive(Some(Duration::from_secs(7)), now);
    assert_eq!(connection.deadline(), now + Duration::from_secs(7));
    assert_eq!(script.wait(7001), [". 0 ack 1"]);
    let now = script.now;
    let connection = &mut script.connection;
    connection.set_keep_alive(None, now);
    assert_eq!(script.connection.deadline(), NEVER);
}

/// The 4 GiB are full: the number of the SYN is a byte's now.
#[test]
fn the_initial_number_comes_again() {
    let mut script = Script::sack();
    let behind = super::OURS - 1000;
    let connection = &mut script.connection;
    (connection.una, connection.next, connection.queued) = (behind, behind, behind);
    (connection.small_end, connection.window_ack) = (behind, behind);
    assert_eq!(script.write(2000), [". -1000+1000 ack 1", ". 0+1000 ack 1"]);
    script.take(". 1 ack 0");
    assert_eq!(script.connection.unacknowledged(), super::OURS);
    assert_eq!(script.connection.unsent_or_unacknowledged(), 1000);
    assert!(script.wait(600).iter().all(|line| line == ". 0+1000 ack 1"));
}
