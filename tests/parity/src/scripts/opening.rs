//! Connections begin.

use super::{Script, connect, open, then};
use crate::script::{
    ACK, Call, FIN, Heard, Place, RST, SYN, Sent, ack, bare_syn, data, fin, rst, syn,
};

/// Scripts.
pub const SCRIPTS: &[Script] = &[
    ("open_data_and_fin", || {
        then(
            open(),
            [
                data(1, 100).into(),
                data(101, 1000).into(),
                Call::Read.into(),
                Call::Write(500).into(),
                ack(1101).into(),
                fin(1101).into(),
                Call::Read.into(),
                Call::Close.into(),
                ack(1102).into(),
            ],
        )
    }),
    ("without_options", || {
        vec![
            bare_syn().into(),
            ack(1).into(),
            data(1, 100).into(),
            Call::Write(2000).into(),
            ack(101).into(),
            Call::Read.into(),
            Call::Close.into(),
            ack(101).into(),
            fin(101).into(),
        ]
    }),
    // Openings.
    ("syn_with_data", || {
        vec![
            Sent { len: 10, ..syn() }.into(),
            data(1, 20).into(),
            Call::Read.into(),
        ]
    }),
    ("syn_with_rst", || {
        vec![
            Sent {
                flags: SYN | RST,
                ..syn()
            }
            .into(),
        ]
    }),
    ("syn_with_urgent_and_unknown_options", || {
        let raw = vec![254, 4, 1, 2, 1, 1, 1, 1];
        vec![
            Sent {
                raw,
                urgent: 3,
                ..syn()
            }
            .into(),
            ack(1).into(),
        ]
    }),
    ("large_scale", || {
        vec![
            Sent {
                scale: Some(77),
                ..syn()
            }
            .into(),
            Sent {
                window: 1,
                ..ack(1)
            }
            .into(),
            Call::Write(3000).into(),
        ]
    }),
    ("syn_again_is_answered_again", || {
        vec![syn().into(), syn().into(), ack(1).into(), data(1, 5).into()]
    }),
    ("ack_of_nothing_while_half_open", || {
        vec![
            syn().into(),
            Sent {
                ack: Some(Heard::All(1)),
                ..ack(1)
            }
            .into(),
            Sent {
                ack: Some(Heard::Stream(0)),
                ..ack(1)
            }
            .into(),
            ack(1).into(),
        ]
    }),
    ("rst_while_half_open", || {
        vec![syn().into(), rst(Place::Stream(1)).into(), ack(1).into()]
    }),
    ("rst_beside_while_half_open", || {
        vec![
            syn().into(),
            rst(Place::Stream(5)).into(),
            ack(1).into(),
            data(1, 9).into(),
        ]
    }),
    ("rst_with_ack_while_half_open", || {
        let refused = Sent {
            flags: RST | ACK,
            ..ack(1)
        };
        vec![syn().into(), refused.into(), ack(1).into()]
    }),
    ("data_opens", || {
        vec![syn().into(), data(1, 100).into(), Call::Read.into()]
    }),
    (
        "data_that_begins_before_the_window_opens_and_sets_it",
        || {
            let across = Sent {
                window: 30_000,
                ..data(-199, 400)
            };
            vec![syn().into(), across.into(), Call::Write(360).into()]
        },
    ),
    ("data_behind_a_hole_opens", || {
        vec![
            syn().into(),
            data(11, 100).into(),
            data(1, 10).into(),
            Call::Read.into(),
        ]
    }),
    ("fin_opens", || {
        vec![
            syn().into(),
            fin(1).into(),
            Call::Read.into(),
            Call::Close.into(),
        ]
    }),
    ("fin_with_data_opens", || {
        vec![
            syn().into(),
            Sent { len: 7, ..fin(1) }.into(),
            Call::Read.into(),
            Call::Close.into(),
        ]
    }),
    ("outside_the_window_while_half_open", || {
        vec![
            syn().into(),
            data(-10, 5).into(),
            data(100_000, 5).into(),
            ack(1).into(),
        ]
    }),
    ("fin_without_ack_while_half_open", || {
        vec![
            syn().into(),
            Sent::new(FIN, Place::Stream(1), None).into(),
            ack(1).into(),
        ]
    }),
    ("ack_to_a_listener", || {
        vec![ack(1).into(), data(1, 10).into()]
    }),
    ("rst_to_a_listener", || vec![rst(Place::Stream(0)).into()]),
    ("nothing_to_a_listener", || {
        vec![Sent::new(0, Place::Stream(1), None).into()]
    }),
    ("fin_to_a_listener", || {
        vec![Sent::new(FIN, Place::Stream(1), None).into(), fin(1).into()]
    }),
    ("syn_ack_to_a_listener", || {
        vec![Sent::new(SYN, Place::Stream(1), Some(Heard::Stream(77))).into()]
    }),
    // We connect.
    ("connect", || {
        then(
            connect(),
            [Call::Write(100).into(), data(1, 50).into(), fin(51).into()],
        )
    }),
    ("connect_refused", || {
        let refused = Sent {
            flags: RST | ACK,
            ..ack(0)
        };
        vec![Call::Connect.into(), refused.into(), Call::Read.into()]
    }),
    ("rst_without_ack_in_syn_sent", || {
        then(
            vec![Call::Connect.into(), rst(Place::Stream(0)).into()],
            connect().split_off(1),
        )
    }),
    ("syn_ack_of_another_number", || {
        let other = Sent {
            flags: SYN | ACK,
            ack: Some(Heard::All(5)),
            ..syn()
        };
        let old = Sent {
            flags: SYN | ACK,
            ack: Some(Heard::Stream(0)),
            ..syn()
        };
        then(
            vec![Call::Connect.into(), other.into(), old.into()],
            connect().split_off(1),
        )
    }),
    ("ack_in_syn_sent", || {
        let old = Sent {
            ack: Some(Heard::Stream(0)),
            ..ack(1)
        };
        then(
            vec![Call::Connect.into(), ack(1).into(), old.into()],
            connect().split_off(1),
        )
    }),
    ("fin_in_syn_sent", || {
        vec![Call::Connect.into(), fin(1).into(), Call::Read.into()]
    }),
    ("simultaneous_open", || {
        vec![
            Call::Connect.into(),
            syn().into(),
            Sent {
                flags: SYN | ACK,
                ack: Some(Heard::Stream(1)),
                ..syn()
            }
            .into(),
            ack(1).into(),
            data(1, 10).into(),
            Call::Read.into(),
        ]
    }),
    ("simultaneous_open_with_ack", || {
        vec![
            Call::Connect.into(),
            syn().into(),
            ack(1).into(),
            data(1, 10).into(),
        ]
    }),
    ("syn_ack_with_data", || {
        let answer = Sent {
            flags: SYN | ACK,
            ack: Some(Heard::All(0)),
            len: 20,
            ..syn()
        };
        vec![
            Call::Connect.into(),
            answer.into(),
            data(1, 20).into(),
            Call::Read.into(),
        ]
    }),
    ("syn_ack_with_fin", || {
        let flags = SYN | ACK | FIN;
        let answer = Sent {
            flags,
            ack: Some(Heard::All(0)),
            ..syn()
        };
        vec![
            Call::Connect.into(),
            answer.into(),
            fin(1).into(),
            Call::Read.into(),
        ]
    }),
    ("syn_ack_again", || {
        then(connect(), [connect().remove(1), data(1, 3).into()])
    }),
    // SYN in a connection (RFC 5961, 4).
    ("syn_in_established", || {
        then(open(), [syn().into(), data(1, 10).into()])
    }),
    ("syn_in_the_window", || {
        then(
            open(),
            [
                Sent {
                    seq: Place::Acked(50),
                    ..syn()
                }
                .into(),
                data(1, 10).into(),
            ],
        )
    }),
    ("syn_ack_in_established", || {
        let answer = Sent {
            flags: SYN | ACK,
            ack: Some(Heard::All(0)),
            ..syn()
        };
        then(open(), [answer.into(), data(1, 10).into()])
    }),
    ("syn_after_fin", || {
        then(
            open(),
            [
                fin(1).into(),
                Sent {
                    seq: Place::Acked(0),
                    ..syn()
                }
                .into(),
            ],
        )
    }),
];
