//! Connections end, and are reset.

use super::{Script, connect, open, then, time_wait};
use crate::script::{Call, Heard, Place, Sent, ack, data, fin, rst, syn};

/// Scripts.
pub const SCRIPTS: &[Script] = &[
    // RST (RFC 5961, 3).
    ("rst_at_the_number", || {
        then(
            open(),
            [
                rst(Place::Acked(0)).into(),
                Call::Read.into(),
                Call::Write(9).into(),
            ],
        )
    }),
    ("rst_in_the_window", || {
        then(
            open(),
            [
                rst(Place::Acked(1)).into(),
                Call::Read.into(),
                data(1, 9).into(),
            ],
        )
    }),
    ("rst_before_the_window", || {
        then(
            open(),
            [
                rst(Place::Acked(-1)).into(),
                Call::Read.into(),
                data(1, 9).into(),
            ],
        )
    }),
    ("rst_behind_the_window", || {
        then(
            open(),
            [
                rst(Place::Edge(1)).into(),
                Call::Read.into(),
                data(1, 9).into(),
            ],
        )
    }),
    ("rst_after_data", || {
        then(
            open(),
            [
                data(1, 10).into(),
                rst(Place::Acked(0)).into(),
                Call::Read.into(),
            ],
        )
    }),
    ("no_flag_at_all_after_rst", || {
        then(
            connect(),
            [
                rst(Place::Acked(0)).into(),
                Sent::new(0, Place::Stream(401), None).into(),
            ],
        )
    }),
    ("rst_of_our_fin", || {
        then(
            open(),
            [
                Call::Shutdown.into(),
                rst(Place::Acked(0)).into(),
                Call::Read.into(),
            ],
        )
    }),
    // The end.
    ("both_ends_close", || {
        then(
            open(),
            [
                Call::Shutdown.into(),
                Sent {
                    ack: Some(Heard::Stream(1)),
                    ..fin(1)
                }
                .into(),
                ack(2).into(),
                fin(1).into(),
            ],
        )
    }),
    ("we_close_first", || {
        then(
            open(),
            [
                Call::Write(10).into(),
                Call::Close.into(),
                ack(1).into(),
                fin(1).into(),
                fin(1).into(),
                ack(2).into(),
                data(1, 10).into(),
            ],
        )
    }),
    ("data_after_we_shut", || {
        then(
            open(),
            [
                Call::Shutdown.into(),
                ack(1).into(),
                data(1, 10).into(),
                Call::Read.into(),
                fin(11).into(),
                Call::Close.into(),
            ],
        )
    }),
    ("close_with_unread_data", || {
        then(
            open(),
            [data(1, 10).into(), Call::Close.into(), data(11, 10).into()],
        )
    }),
    ("close_behind_fin", || {
        then(
            open(),
            [
                fin(1).into(),
                Call::Close.into(),
                ack(2).into(),
                ack(2).into(),
            ],
        )
    }),
    ("data_after_fin", || {
        then(
            open(),
            [
                fin(1).into(),
                data(2, 10).into(),
                Call::Read.into(),
                data(1, 10).into(),
            ],
        )
    }),
    ("fin_again", || {
        then(open(), [fin(1).into(), fin(1).into(), fin(1).into()])
    }),
    ("fin_behind_a_hole", || {
        then(
            open(),
            [
                fin(11).into(),
                data(1, 10).into(),
                Call::Read.into(),
                Call::Close.into(),
            ],
        )
    }),
    ("fin_with_data_behind_a_hole", || {
        then(
            open(),
            [
                Sent { len: 10, ..fin(11) }.into(),
                data(1, 10).into(),
                Call::Read.into(),
            ],
        )
    }),
    ("fin_with_ack_of_fin", || {
        then(
            open(),
            [Call::Shutdown.into(), fin(1).into(), fin(1).into()],
        )
    }),
    ("abort", || {
        then(
            open(),
            [Call::Abort.into(), data(1, 10).into(), ack(1).into()],
        )
    }),
    ("abort_with_data_on_its_way", || {
        then(
            open(),
            [Call::Write(100).into(), Call::Abort.into(), ack(1).into()],
        )
    }),
    // TIME-WAIT.
    ("syn_in_time_wait", || {
        then(
            time_wait(),
            [Sent {
                seq: Place::Acked(100),
                ..syn()
            }
            .into()],
        )
    }),
    ("old_syn_in_time_wait", || {
        let old = Sent {
            seq: Place::Acked(-100),
            stamp: Some(-100),
            ..syn()
        };
        then(time_wait(), [old.into()])
    }),
    ("rst_in_time_wait", || {
        then(time_wait(), [rst(Place::Acked(0)).into(), fin(1).into()])
    }),
    ("data_in_time_wait", || {
        then(time_wait(), [data(2, 10).into(), data(1, 10).into()])
    }),
    ("syn_in_time_wait_where_nobody_listens", || {
        then(
            connect(),
            [
                Call::Close.into(),
                fin(1).into(),
                Sent {
                    seq: Place::Acked(100),
                    ..syn()
                }
                .into(),
            ],
        )
    }),
];
