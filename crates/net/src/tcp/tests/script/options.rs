//! Timestamps and windows that are scaled (RFC 7323), and SACK (RFC 2018, RFC 2883).

use super::{Script, config, parse};
use crate::tcp::input::Dropped;
use crate::tcp::{Config, Limits};
use core::time::Duration;

fn stamped() -> Script {
    let mut script = Script::open(config(), "sackok ts 1000/1000");
    script.stamps = true;
    script
}

/// RFC 7323, 2.2: windows are shifted only if both say so, and those of SYNs never.
#[test]
fn windows_are_scaled_if_both_agree() {
    let large = Config {
        receive: 1 << 20,
        receive_max: 1 << 20,
        ..config()
    };
    let mut script = Script::open(large, "scale 2");
    script.windows = true;
    assert_eq!(script.connection.window, 20_000);
    script.take(". 1+1 ack 1 win 10000");
    assert_eq!(script.connection.window, 40_000);
    // 2^20 in units of 2^5; the byte is not read.
    assert_eq!(script.next().1, [". 1 ack 2 win 32767"]);
    let mut script = Script::open(large, "");
    script.windows = true;
    script.take(". 1+1 ack 1 win 10000");
    assert_eq!(script.connection.window, 10_000);
    assert_eq!(script.next().1, [". 1 ack 2 win 65535"]);
}

/// RFC 7323, 4.3 and 3.2.
#[test]
fn stamps_are_echoed() {
    let mut script = stamped();
    script.take(". 1+988 ack 1 ts 1005/1100");
    script.take(". 989+988 ack 1 ts 1007/1100");
    // The one that the last acknowledgement expected.
    assert_eq!(script.out(), [". 1 ack 1977 ts 1100/1005"]);
    // One behind a hole is not echoed.
    script.take(". 2977+10 ack 1 ts 1009/1100");
    assert_eq!(script.out(), [". 1 ack 1977 sack 2977-2987 ts 1100/1005"]);
}

/// RFC 7323, 3.2: where both have agreed on stamps, a segment without one is dropped.
#[test]
fn a_missing_stamp_drops_a_segment() {
    let mut script = stamped();
    script.take(". 1+10 ack 1");
    assert_eq!(script.outcome.dropped, Some(Dropped::Stamp));
    assert_eq!(script.out(), [""; 0]);
    script.take("R 1");
    assert!(script.connection.failure().is_some(), "but no RST (5.2)");
}

/// RFC 7323, 5.3: PAWS, also where the peer's clock wraps.
#[test]
fn old_stamps_are_dropped() {
    let mut script = Script::open(config(), "sackok ts 4294967290/1000");
    script.stamps = true;
    script.take(". 1+10 ack 1 ts 5/1100");
    assert_eq!(script.wait(40), [". 1 ack 11 ts 1140/5"]);
    script.take(". 11+10 ack 1 ts 4294967295/1100");
    assert_eq!(script.outcome.dropped, Some(Dropped::Stamp));
    // Nothing came twice: there is nothing to tell but where we are.
    assert_eq!(script.out(), [". 1 ack 11 ts 1140/5"]);
    assert_eq!(script.connection.readable(), 10);
}

/// RFC 7323, 5.5: after 24 days an old stamp says nothing, and the new one is taken.
#[test]
fn stamps_grow_too_old() {
    let mut script = stamped();
    script.now = script.now + Duration::from_secs(25 * 24 * 3600);
    script.take(". 1+10 ack 1 ts 10/1100");
    assert_eq!(script.connection.readable(), 10);
    script.stamps = true;
    script.take(". 11+10 ack 1 ts 11/1100");
    assert_eq!(script.connection.stamps.unwrap().recent, 10);
}

/// RFC 7323, 5.4: a retransmission has the stamp of its own time.
#[test]
fn a_retransmission_has_a_new_stamp() {
    let mut script = stamped();
    assert_eq!(script.write(10), [". 1+10 ack 1 ts 1100/1000"]);
    assert_eq!(
        script.wait(310).last().unwrap(),
        ". 1+10 ack 1 ts 1400/1000"
    );
}

/// RFC 2018, 4: the block of the last segment comes first; RFC 2883, 4: what came twice before it.
#[test]
fn blocks_are_told() {
    let mut script = Script::sack();
    script.take(". 1001+1000 ack 1");
    assert_eq!(script.out(), [". 1 ack 1 sack 1001-2001"]);
    script.take(". 3001+1000 ack 1");
    assert_eq!(script.out(), [". 1 ack 1 sack 3001-4001 1001-2001"]);
    script.take(". 2001+1000 ack 1");
    assert_eq!(script.out(), [". 1 ack 1 sack 1001-4001"]);
    script.take(". 2001+500 ack 1");
    assert_eq!(script.out(), [". 1 ack 1 sack 2001-2501 1001-4001"]);
    script.take(". 1+1000 ack 1");
    assert_eq!(script.out(), [". 1 ack 4001"]);
    script.take(". 1+1000 ack 1");
    assert_eq!(script.out(), [". 1 ack 4001 sack 1-1001"]);
}

/// A block of nothing is none.
#[test]
fn a_probe_of_a_closed_window_has_not_come_twice() {
    let mut script = Script::open(
        Config {
            receive: 1000,
            receive_max: 1000,
            ..config()
        },
        "sackok",
    );
    script.take(". 1+1000 ack 1").out();
    script.take(". 1001+1 ack 1");
    assert_eq!(script.out(), [". 1 ack 1001"]);
}

/// Blocks make the header longer, and the segment fits the path all the same (RFC 6691).
#[test]
fn data_and_blocks_fit_the_path() {
    let mut script = Script::sack();
    for start in [1001, 3001, 5001] {
        script.take(&std::format!(". {start}+1000 ack 1"));
    }
    script.connection.queue(3000);
    let mut told = false;
    while let Some(segment) = script.connection.next(script.limits, script.now) {
        let size = segment.header_size() as u32 + segment.len;
        assert!(size <= script.limits.segment, "{size}: {segment:?}");
        told |= segment.options.sack.len() == 3;
        script.connection.sent(&segment, script.limits, script.now);
    }
    assert!(told, "an acknowledgement has them");
    // The same, where the layer below cuts.
    let mut script = Script::sack();
    script.limits = Limits {
        largest: 60_000,
        ..script.limits
    };
    script.take(". 1001+1000 ack 1");
    script.connection.queue(3000);
    let segment = script.connection.next(script.limits, script.now).unwrap();
    let full = script.connection.payload_max(script.limits);
    assert!(segment.header_size() as u32 + full.min(segment.len) <= script.limits.segment);
}

/// RFC 2018, 5: blocks that cannot be are not believed.
#[test]
fn malformed_blocks_are_ignored() {
    let mut script = Script::sack();
    script.write(5000);
    for blocks in [
        "1001-1001",
        "2001-1001",
        "1001-9001",
        "2000000001-2000000002",
    ] {
        script.take(&std::format!(". 1 ack 1 sack {blocks}"));
        assert_eq!(script.connection.sent.sacked(), 0, "{blocks}");
    }
    script.take(". 1 ack 1 sack 1001-2001");
    assert_eq!(script.connection.sent.sacked(), 1000);
    assert_eq!(parse(". 1 sack 1-2").options.sack.len(), 1);
}
