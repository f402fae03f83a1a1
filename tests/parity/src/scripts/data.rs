//! Data, acknowledgements and windows, and what routers say.

use super::{Script, open, report, then};
use crate::script::{ACK, Call, Heard, Place, Report, Sent, Step, URG, ack, bare_syn, data, rst};

/// Scripts.
pub const SCRIPTS: &[Script] = &[
    // Data.
    ("duplicates_are_told", || {
        then(
            open(),
            [
                data(1, 100).into(),
                data(1, 100).into(),
                data(51, 100).into(),
            ],
        )
    }),
    ("older_duplicates_are_told", || {
        then(
            open(),
            [
                data(1, 100).into(),
                data(101, 100).into(),
                data(1, 50).into(),
                data(1, 400).into(),
            ],
        )
    }),
    ("holes", || {
        then(
            open(),
            [
                data(101, 100).into(),
                data(301, 100).into(),
                data(501, 100).into(),
                data(701, 100).into(),
                data(901, 100).into(),
                data(101, 100).into(),
                data(1, 100).into(),
                data(201, 100).into(),
                data(401, 500).into(),
                Call::Read.into(),
            ],
        )
    }),
    ("overlaps", || {
        then(
            open(),
            [
                data(101, 100).into(),
                data(151, 100).into(),
                data(51, 100).into(),
                data(1, 300).into(),
                data(1, 10).into(),
                Call::Read.into(),
            ],
        )
    }),
    ("pieces_within_pieces", || {
        then(
            open(),
            [
                data(201, 400).into(),
                data(301, 100).into(),
                data(101, 700).into(),
                data(1, 50).into(),
                data(51, 100).into(),
                Call::Read.into(),
            ],
        )
    }),
    ("holes_without_sack", || {
        then(
            vec![bare_syn().into(), ack(1).into()],
            [
                data(101, 100).into(),
                data(101, 100).into(),
                data(1, 200).into(),
                Call::Read.into(),
            ],
        )
    }),
    ("data_behind_the_window", || {
        let beyond = Sent {
            seq: Place::Edge(0),
            len: 10,
            ..ack(0)
        };
        let across = Sent {
            seq: Place::Edge(-5),
            len: 10,
            ..ack(0)
        };
        then(open(), [beyond.into(), across.into(), data(1, 10).into()])
    }),
    ("data_before_the_window", || {
        then(
            open(),
            [
                data(1, 100).into(),
                data(-200, 100).into(),
                data(-50, 60).into(),
            ],
        )
    }),
    ("data_without_ack", || {
        let bare = Sent {
            len: 10,
            ..Sent::new(0, Place::Stream(1), None)
        };
        then(open(), [bare.into(), data(1, 10).into()])
    }),
    ("urgent", || {
        let urgent = Sent {
            urgent: 5,
            flags: ACK | URG,
            ..data(1, 10)
        };
        then(open(), [urgent.into(), data(11, 10).into()])
    }),
    // Acknowledgements.
    ("ack_of_the_future", || {
        let future = Sent {
            ack: Some(Heard::All(10)),
            ..data(1, 10)
        };
        then(
            open(),
            [future.into(), Call::Read.into(), data(1, 10).into()],
        )
    }),
    ("old_ack", || {
        let old = Sent {
            ack: Some(Heard::Stream(1)),
            ..data(1, 10)
        };
        then(
            open(),
            [
                Call::Write(500).into(),
                ack(1).into(),
                old.into(),
                Call::Read.into(),
            ],
        )
    }),
    ("ancient_ack", || {
        let ancient = Sent {
            ack: Some(Heard::Stream(-100_000)),
            ..data(1, 10)
        };
        then(
            open(),
            [ancient.into(), Call::Read.into(), data(1, 10).into()],
        )
    }),
    ("partial_ack", || {
        let part = Sent {
            ack: Some(Heard::Stream(101)),
            ..ack(1)
        };
        then(
            open(),
            [Call::Write(500).into(), part.into(), ack(1).into()],
        )
    }),
    ("bare_acks_outside_the_window", || {
        then(
            open(),
            [
                Sent {
                    seq: Place::Edge(1),
                    ..ack(0)
                }
                .into(),
                ack(0).into(),
                data(1, 5).into(),
            ],
        )
    }),
    ("bare_ack_before_the_window", || {
        then(open(), [ack(0).into(), data(1, 5).into()])
    }),
    // The peer's window.
    ("window_shrinks", || {
        let part = Sent {
            ack: Some(Heard::Stream(501)),
            window: 100,
            ..ack(1)
        };
        then(
            open(),
            [
                Call::Write(1000).into(),
                part.into(),
                Call::Write(100).into(),
            ],
        )
    }),
    ("old_window_is_not_taken", || {
        then(
            open(),
            [
                data(1, 100).into(),
                Sent {
                    window: 0,
                    ..data(1, 50)
                }
                .into(),
                Call::Write(10).into(),
            ],
        )
    }),
    // PAWS.
    ("old_stamps", || {
        then(
            open(),
            [
                data(1, 10).into(),
                Sent {
                    stamp: Some(-100),
                    ..data(11, 10)
                }
                .into(),
                data(11, 10).into(),
                Sent {
                    stamp: Some(-100),
                    ..ack(11)
                }
                .into(),
            ],
        )
    }),
    ("old_stamp_of_rst", || {
        then(
            open(),
            [
                Sent {
                    stamp: Some(-100),
                    ..rst(Place::Acked(0))
                }
                .into(),
                Call::Read.into(),
            ],
        )
    }),
    ("new_stamp_behind_a_hole_is_not_echoed", || {
        then(
            open(),
            [data(1, 10).into(), data(21, 10).into(), data(11, 10).into()],
        )
    }),
    // What routers say.
    ("refused_in_established", || {
        then(
            open(),
            [
                Call::Write(10).into(),
                report(3).into(),
                Call::Read.into(),
                ack(1).into(),
            ],
        )
    }),
    ("refused_while_connecting", || {
        vec![Call::Connect.into(), report(3).into(), Call::Read.into()]
    }),
    ("forged_report_while_connecting", || {
        let forged = Report {
            ahead: 100,
            ..report(3)
        };
        vec![Call::Connect.into(), forged.into(), Call::Read.into()]
    }),
    ("too_long", || {
        let narrow = Report {
            mtu: 1000,
            ..report(4)
        };
        then(
            open(),
            [Call::Write(1448).into(), narrow.into(), ack(1).into()],
        )
    }),
    ("forged_too_long", || {
        let narrow = Report {
            mtu: 1000,
            ahead: 100_000,
            ..report(4)
        };
        then(
            open(),
            [Call::Write(1448).into(), narrow.into(), ack(1).into()],
        )
    }),
    // What we send.
    ("writes_become_segments", || {
        then(
            open(),
            [
                Call::Write(5000).into(),
                ack(1).into(),
                Call::Write(40_000).into(),
                ack(1).into(),
            ],
        )
    }),
    ("sack_makes_a_loss", || {
        let told = Sent {
            ack: Some(Heard::Stream(1)),
            sack: vec![(1449, 5793)],
            ..ack(1)
        };
        then(
            open(),
            [Call::Write(5792).into(), told.into(), ack(1).into()],
        )
    }),
    ("three_duplicates_make_a_loss", || {
        let again = || {
            Step::from(Sent {
                ack: Some(Heard::Stream(1)),
                ..ack(1)
            })
        };
        then(
            vec![bare_syn().into(), ack(1).into()],
            [
                Call::Write(2144).into(),
                again(),
                again(),
                again(),
                ack(1).into(),
            ],
        )
    }),
];
