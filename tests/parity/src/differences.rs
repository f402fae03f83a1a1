//! Where net differs from Linux on purpose.

use crate::compare::{Moment, Turn};
use crate::peer::Answer;
use crate::script::{ACK, Call, FIN, Heard, Place, RST, SYN, Sent, Step, ack, data, fin, rst, syn};

/// One difference.
pub struct Difference {
    /// Its name.
    pub name: &'static str,
    /// Why we do otherwise.
    pub why: &'static str,
    /// A script that shows it.
    pub script: fn() -> Vec<Step>,
    /// What it changes.
    pub kind: Kind,
}

/// What a difference changes.
pub enum Kind {
    /// The state of both ends, when the function says so: what comes behind is not compared.
    State(fn(&Moment<'_>) -> bool),
    /// A part of answers, while the first function says so: the second one makes it the same.
    Part(fn(&Moment<'_>) -> bool, fn(&mut Answer)),
}

/// All that there are.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "a_syn_with_fin_opens",
        why: "RFC 9293, 3.10.7.2 takes the SYN, and FIN comes again; Linux drops both",
        script: || {
            let both = Sent {
                flags: SYN | FIN,
                ..syn()
            };
            vec![both.into(), ack(1).into()]
        },
        kind: Kind::State(|moment| moment.sent().is_some_and(|sent| has(sent, SYN | FIN))),
    },
    Difference {
        name: "an_mss_below_88_is_taken_for_88",
        why: "smaller segments would be all headers; Linux goes down to 48",
        script: || {
            let small = Sent {
                mss: Some(1),
                ..syn()
            };
            vec![small.into(), ack(1).into(), Call::Write(300).into()]
        },
        kind: Kind::State(|moment| {
            let small = |sent: &Sent| sent.mss.is_some_and(|mss| mss < 88);
            moment.segments().any(small)
        }),
    },
    Difference {
        name: "another_syn_while_half_open_gets_the_same_answer",
        why: "whoever has begun anew resets it (RFC 9293, 3.5.1); Linux gives up at once, so that \
              a forged SYN ends an opening",
        script: || {
            let other = Sent {
                seq: Place::Stream(99),
                ..syn()
            };
            vec![syn().into(), other.into()]
        },
        kind: Kind::State(|moment| {
            let begins = |sent: &&Sent| has(sent, SYN);
            moment.sent().is_some_and(|sent| has(sent, SYN))
                && moment.segments().filter(begins).count() > 1
                && moment
                    .linux()
                    .answers
                    .iter()
                    .any(|answer| answer.flags & RST != 0)
        }),
    },
    Difference {
        name: "a_repeated_syn_is_no_duplicate",
        why: "RFC 2883 speaks of data; Linux tells of the number of a SYN, too",
        script: || {
            let answer = Sent {
                flags: SYN | ACK,
                ack: Some(Heard::Stream(1)),
                ..syn()
            };
            vec![Call::Connect.into(), syn().into(), answer.into()]
        },
        kind: Kind::Part(
            |moment| moment.sent().is_some_and(|sent| has(sent, SYN | ACK)),
            |answer| {
                answer.sack.retain(|block| *block != (0, 1));
                answer.echo = None;
            },
        ),
    },
    Difference {
        name: "refused_segments_leave_no_stamp",
        why: "RFC 7323, 5.3, takes a stamp once the segment is acceptable, whatever it \
              acknowledges; Linux takes it of a duplicate that ends where we are, and not with an \
              old ACK",
        script: || {
            vec![
                syn().into(),
                ack(1).into(),
                data(1, 100).into(),
                data(1, 100).into(),
            ]
        },
        kind: Kind::Part(
            |moment| {
                moment.any(|sent, expected| {
                    let at = moment.place(sent, expected);
                    at < expected || matches!(sent.ack, Some(Heard::Stream(_)))
                })
            },
            |answer| answer.echo = None,
        ),
    },
    Difference {
        name: "a_segment_is_cut_at_the_window",
        why: "RFC 9293, 3.10.7.4; Linux takes all of a segment that begins within",
        script: || {
            let across = Sent {
                seq: Place::Edge(-5),
                len: 10,
                ..ack(0)
            };
            vec![syn().into(), ack(1).into(), across.into()]
        },
        kind: Kind::State(|moment| {
            let across = |sent: &Sent| match sent.seq {
                Place::Edge(at) => at < 0 && at + i32::from(sent.len) > 0,
                _ => false,
            };
            moment.sent().is_some_and(across)
        }),
    },
    Difference {
        name: "the_edge_of_the_window_is_outside",
        why: "RFC 9293, 3.10.7.4, table 6: a number is below it; Linux takes it for inside",
        script: || {
            let edge = Sent {
                seq: Place::Edge(0),
                ..ack(0)
            };
            vec![syn().into(), ack(1).into(), edge.into()]
        },
        kind: Kind::State(|moment| moment.sent().is_some_and(|sent| sent.seq == Place::Edge(0))),
    },
    Difference {
        name: "half_a_window_is_no_limit",
        why: "RFC 9293, 3.8.6.2.1, lets a segment fill the window; Linux fills half of it",
        script: || {
            vec![
                syn().into(),
                Sent {
                    window: 0,
                    ..ack(1)
                }
                .into(),
                Call::Write(3000).into(),
                Sent {
                    window: 1000,
                    ..ack(1)
                }
                .into(),
            ]
        },
        kind: Kind::State(|moment| moment.segments().any(|sent| sent.window < 20_000)),
    },
    Difference {
        name: "a_reset_behind_a_hole_is_not_believed",
        why: "RFC 5961, 3.2, believes one number; Linux that behind the last block of SACK as well",
        script: || {
            vec![
                syn().into(),
                ack(1).into(),
                data(11, 10).into(),
                rst(Place::Stream(21)).into(),
            ]
        },
        kind: Kind::State(|moment| {
            let reset = moment.sent().is_some_and(|sent| has(sent, RST));
            reset && moment.linux().answers.is_empty()
        }),
    },
    Difference {
        name: "a_reset_at_the_number_of_a_fin_is_not_believed",
        why: "RFC 5961, 3.2, believes one number; Linux that of the FIN as well, for the sake of \
              macOS",
        script: || {
            vec![
                syn().into(),
                ack(1).into(),
                fin(1).into(),
                rst(Place::Acked(-1)).into(),
                Call::Write(5).into(),
            ]
        },
        kind: Kind::State(|moment| {
            moment.any(|sent, expected| {
                has(sent, RST) && moment.place(sent, expected) == expected - 1
            }) && moment.segments().any(|sent| has(sent, FIN))
        }),
    },
    Difference {
        name: "data_in_the_place_of_a_fin_is_ignored",
        why: "RFC 9293, 3.10.7.4, seventh: the text is ignored; Linux resets the connection",
        script: || {
            vec![
                syn().into(),
                ack(1).into(),
                fin(1).into(),
                data(1, 10).into(),
            ]
        },
        kind: Kind::State(|moment| {
            let covers = moment.sent().is_some_and(|sent| sent.len > 0);
            covers
                && moment
                    .linux()
                    .answers
                    .iter()
                    .any(|answer| answer.flags & RST != 0)
                && moment.segments().any(|sent| has(sent, FIN))
        }),
    },
    Difference {
        name: "time_wait_offers_no_window",
        why: "its 64 bytes have no place for one, and the peer has nothing more to send",
        script: || {
            vec![
                syn().into(),
                ack(1).into(),
                Call::Close.into(),
                fin(1).into(),
                fin(1).into(),
            ]
        },
        kind: Kind::Part(
            |moment| moment.closed() && moment.segments().any(|sent| has(sent, FIN)),
            |answer| answer.closed = false,
        ),
    },
    Difference {
        name: "the_reset_of_a_closed_connection_acknowledges",
        why: "RFC 9293, 3.10.7.4, resets a connection that has its numbers; Linux has let go of it",
        script: || {
            vec![
                syn().into(),
                ack(1).into(),
                Call::Close.into(),
                ack(1).into(),
                data(1, 10).into(),
            ]
        },
        kind: Kind::Part(
            |moment| moment.closed(),
            |answer| {
                if answer.flags & RST != 0 {
                    (answer.flags, answer.ack, answer.echo) = (RST, None, None);
                    answer.closed = true;
                }
            },
        ),
    },
    Difference {
        name: "a_fin_behind_a_hole_is_not_told",
        why: "RFC 2018 speaks of data; Linux tells of the number of a FIN, too",
        script: || vec![syn().into(), ack(1).into(), fin(11).into()],
        kind: Kind::Part(
            |moment| {
                moment.any(|sent, expected| {
                    has(sent, FIN) && moment.place(sent, expected) + i32::from(sent.len) > expected
                })
            },
            |answer| answer.sack.clear(),
        ),
    },
];

fn has(sent: &Sent, flags: u8) -> bool {
    sent.flags & flags == flags
}

impl Moment<'_> {
    /// The segment that has come now.
    fn sent(&self) -> Option<&Sent> {
        match self.steps.last() {
            Some(Step::Arrives(sent)) => Some(sent),
            _ => None,
        }
    }

    fn linux(&self) -> &Turn {
        &self.linux[self.linux.len() - 1]
    }

    /// All segments that have come.
    fn segments(&self) -> impl Iterator<Item = &Sent> {
        self.steps.iter().filter_map(|step| match step {
            Step::Arrives(sent) => Some(sent),
            _ => None,
        })
    }

    /// Whether the user has let go of the socket.
    fn closed(&self) -> bool {
        self.steps.contains(&Step::Call(Call::Close))
    }

    /// Whether a segment that has come is such, before which the first number was expected.
    fn any(&self, is: impl Fn(&Sent, i32) -> bool) -> bool {
        let mut expected = 0;
        for (step, turn) in self.steps.iter().zip(self.ours) {
            if let Step::Arrives(sent) = step
                && is(sent, expected)
            {
                return true;
            }
            let told = turn.answers.iter().rev().find_map(|answer| answer.ack);
            expected = told.unwrap_or(expected);
        }
        false
    }

    /// Where a segment begins.
    fn place(&self, sent: &Sent, expected: i32) -> i32 {
        match sent.seq {
            Place::Stream(at) => at,
            Place::Acked(at) => expected + at,
            Place::Edge(at) => expected + i32::from(u16::MAX) + at,
        }
    }
}
