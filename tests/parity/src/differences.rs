//! Where net differs from Linux on purpose.

use crate::compare::{Moment, Turn};
use crate::peer::Answer;
use crate::script::{ACK, Call, FIN, Heard, Place, RST, SYN, Sent, Step, ack, data, fin, rst, syn};
use crate::side::{Said, Then};

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
    Difference {
        name: "blocks_make_no_segment_shorter",
        why: "a full segment has a place for timestamps only (RFC 6691), and blocks follow alone; \
              Linux cuts its segments shorter",
        script: || {
            vec![
                syn().into(),
                ack(1).into(),
                data(11, 10).into(),
                Call::Write(2000).into(),
            ]
        },
        kind: Kind::State(|moment| {
            let tells = |answer: &Answer| !answer.sack.is_empty() && answer.len > 0;
            moment.linux().answers.iter().any(tells)
        }),
    },
    Difference {
        name: "writing_needs_no_open_connection",
        why: "what is written waits for the connection; Linux asks for patience",
        script: || vec![Call::Connect.into(), Call::Write(10).into()],
        kind: Kind::State(|moment| {
            let writes = matches!(moment.steps.last(), Some(Step::Call(Call::Write(_))));
            writes && moment.linux().said == Said::Bytes(0, Then::More)
        }),
    },
    Difference {
        name: "nothing_lies_behind_a_fin",
        why: "the first FIN is the end; Linux takes the data behind it that had come before",
        script: || {
            vec![
                syn().into(),
                ack(1).into(),
                data(11, 10).into(),
                fin(16).into(),
                data(1, 10).into(),
            ]
        },
        kind: Kind::State(|moment| {
            let ends = |sent: &Sent| match sent.seq {
                Place::Stream(at) => at + i32::from(sent.len),
                _ => 0,
            };
            let last = moment.segments().map(ends).max();
            let mut fins = moment.segments().filter(|sent| has(sent, FIN));
            fins.any(|sent| Some(ends(sent)) < last)
        }),
    },
    Difference {
        name: "an_old_stamp_is_old_on_all_but_resets",
        why: "RFC 7323, 5.3, R1; Linux forgives a bare acknowledgement that repeats itself",
        script: || {
            let old = Sent {
                stamp: Some(-10),
                ..ack(1)
            };
            vec![
                syn().into(),
                ack(1).into(),
                data(11, 10).into(),
                data(1, 2).into(),
                Sent {
                    seq: Place::Acked(0),
                    ..old
                }
                .into(),
            ]
        },
        kind: Kind::State(|moment| {
            let old = |sent: &Sent| sent.stamp.is_some_and(|ahead| ahead < 0);
            moment.sent().is_some_and(|sent| sent.len == 0 && old(sent))
                && moment.linux().answers.is_empty()
        }),
    },
    Difference {
        name: "the_number_is_looked_at_before_the_flags",
        why: "RFC 9293, 3.10.7.4, first; Linux first drops what has neither ACK nor RST nor SYN",
        script: || {
            let bare = Sent {
                len: 10,
                ..Sent::new(0, Place::Stream(-50), None)
            };
            vec![syn().into(), ack(1).into(), bare.into()]
        },
        kind: Kind::State(|moment| {
            let bare = |sent: &Sent| sent.flags & (ACK | SYN | RST) == 0;
            moment.sent().is_some_and(bare) && moment.linux().answers.is_empty()
        }),
    },
    Difference {
        name: "a_reset_has_no_blocks",
        why: "nobody will send again; Linux tells what it has",
        script: || {
            vec![
                syn().into(),
                ack(1).into(),
                data(11, 10).into(),
                Call::Abort.into(),
            ]
        },
        kind: Kind::Part(
            |_| true,
            |answer| {
                if answer.flags & RST != 0 {
                    answer.sack.clear();
                }
            },
        ),
    },
    Difference {
        name: "a_dead_connection_keeps_its_ends",
        why: "until its user lets go of it: the peer repeats its SYN; Linux opens another one",
        script: || {
            let again = Sent {
                seq: Place::Acked(100),
                ..syn()
            };
            vec![
                syn().into(),
                ack(1).into(),
                rst(Place::Acked(0)).into(),
                again.into(),
            ]
        },
        kind: Kind::State(|moment| {
            moment.sent().is_some_and(|sent| has(sent, SYN))
                && moment.linux().answers.iter().any(|answer| answer.anew)
        }),
    },
    Difference {
        name: "what_ends_where_we_are_is_old",
        why: "RFC 9293, 3.10.7.4, table 6; Linux looks at what else it says, and answers that",
        script: || {
            let wrong = Sent {
                ack: Some(Heard::All(50)),
                ..data(101, 100)
            };
            vec![
                syn().into(),
                ack(1).into(),
                data(1, 200).into(),
                wrong.into(),
            ]
        },
        kind: Kind::State(|moment| {
            let expected = moment.expected();
            moment.sent().is_some_and(|sent| {
                moment.place(sent, expected) + i32::from(sent.len) == expected
                    && sent.ack != Some(Heard::All(0))
            })
        }),
    },
    Difference {
        name: "a_wrong_ack_is_looked_at_before_data_that_nobody_reads",
        why: "RFC 9293, 3.10.7.4, fifth before seventh; Linux resets at the sight of data",
        script: || {
            let wrong = Sent {
                ack: Some(Heard::All(50)),
                ..data(1, 100)
            };
            vec![
                syn().into(),
                ack(1).into(),
                Call::Close.into(),
                ack(1).into(),
                wrong.into(),
            ]
        },
        kind: Kind::State(|moment| {
            let reset = |answer: &Answer| answer.flags & RST != 0;
            moment.closed()
                && moment.sent().is_some_and(|sent| sent.len > 0)
                && moment.linux().answers.iter().any(reset)
        }),
    },
    Difference {
        name: "a_reset_behind_the_end_is_told",
        why: "RFC 9293, 3.10.7.4, second: the user learns of it; Linux says that all was read",
        script: || {
            vec![
                syn().into(),
                ack(1).into(),
                fin(1).into(),
                rst(Place::Acked(0)).into(),
                Call::Read.into(),
            ]
        },
        kind: Kind::State(|moment| {
            let ours = moment.ours[moment.ours.len() - 1].said;
            matches!(ours, Said::Bytes(_, Then::Reset))
                && matches!(moment.linux().said, Said::Bytes(_, Then::End | Then::Shut))
                && moment.segments().any(|sent| has(sent, FIN))
        }),
    },
    Difference {
        name: "what_is_on_its_way_is_counted_in_bytes",
        why: "RFC 5681, 2; Linux counts segments, however short, so that ten short writes fill its \
              window",
        script: || {
            let writes = (0..12).map(|_| Call::Write(100).into());
            [syn().into(), ack(1).into()]
                .into_iter()
                .chain(writes)
                .collect()
        },
        kind: Kind::State(|moment| {
            let linux = &moment.linux().answers;
            let ours = &moment.ours[moment.ours.len() - 1].answers;
            let sent = ours.iter().all(|answer| answer.len > 0);
            sent && ours.len() > linux.len() && ours.starts_with(linux)
        }),
    },
    Difference {
        name: "a_repeated_syn_gets_the_same_answer",
        why: "RFC 9293, 3.5.1; Linux answers one of another number as a challenge, and seldom",
        script: || {
            let old = Sent {
                stamp: Some(-19),
                ..ack(1)
            };
            vec![syn().into(), old.into(), syn().into()]
        },
        kind: Kind::State(|moment| {
            let ours = &moment.ours[moment.ours.len() - 1].answers;
            let same = |answer: &Answer| answer.flags == SYN | ACK && !answer.anew;
            let bare = |answer: &Answer| answer.flags == ACK;
            moment.sent().is_some_and(|sent| has(sent, SYN))
                && ours.len() == 1
                && ours.iter().all(same)
                && moment.linux().answers.iter().all(bare)
        }),
    },
    Difference {
        name: "the_number_is_looked_at_before_the_ack",
        why: "RFC 9293, 3.10.7.4, first and fifth: while it is half open, too; Linux resets at the \
              sight of a wrong ACK",
        script: || {
            let wrong = Sent {
                ack: Some(Heard::All(50)),
                ..data(-199, 100)
            };
            vec![syn().into(), wrong.into()]
        },
        kind: Kind::State(|moment| {
            let reset = |answer: &Answer| answer.flags & RST != 0;
            let expected = moment.expected();
            moment.linux().answers.iter().any(reset)
                && moment.sent().is_some_and(|sent| {
                    let end = moment.place(sent, expected) + i32::from(sent.len);
                    sent.ack != Some(Heard::All(0)) && end < expected
                })
        }),
    },
    Difference {
        name: "a_reset_ends_time_wait_before_its_user_has_gone",
        why: "RFC 9293, 3.10.7.4, second; of TIME-WAIT without a user no RST does (RFC 1337), as \
              here in Linux",
        script: || {
            vec![
                syn().into(),
                ack(1).into(),
                Call::Shutdown.into(),
                fin(1).into(),
                rst(Place::Acked(0)).into(),
                ack(1).into(),
            ]
        },
        kind: Kind::State(|moment| {
            let any = |flag| moment.segments().any(|sent| has(sent, flag));
            let ours = &moment.ours[moment.ours.len() - 1].answers;
            any(RST) && any(FIN) && ours.iter().any(|answer| answer.flags & RST != 0)
        }),
    },
    Difference {
        name: "an_abort_behind_both_ends_resets",
        why: "our FIN may not have arrived, and is sent no more; RFC 9293, 3.10.5, and Linux say \
              nothing",
        script: || {
            vec![
                syn().into(),
                ack(1).into(),
                fin(1).into(),
                Call::Shutdown.into(),
                Call::Abort.into(),
            ]
        },
        kind: Kind::State(|moment| {
            moment.steps.last() == Some(&Step::Call(Call::Abort))
                && moment.linux().answers.is_empty()
                && moment.segments().any(|sent| has(sent, FIN))
        }),
    },
    // These fit many moments. They stand last, so that the narrower ones are seen.
    Difference {
        name: "challenges_are_limited_in_another_order",
        why: "RFC 5961, 7, limits all answers to what may be forged; Linux none to data, and such \
              an answer does not put the next one off",
        script: || {
            let beyond = |at| Sent {
                seq: Place::Edge(at),
                len: 10,
                ..ack(0)
            };
            vec![
                syn().into(),
                ack(1).into(),
                beyond(1).into(),
                beyond(20).into(),
            ]
        },
        kind: Kind::State(|moment| {
            let bare = |answer: &Answer| answer.flags == ACK && answer.len == 0;
            let linux = &moment.linux().answers;
            let ours = &moment.ours[moment.ours.len() - 1].answers;
            let one = linux.len() + ours.len() == 1;
            one && linux.iter().chain(ours).all(bare) && moment.is_odd()
        }),
    },
    Difference {
        name: "an_ack_of_before_the_beginning_is_old",
        why: "RFC 5961, 5.2; Linux counts all bytes, as numbers come round, and so refuses it",
        script: || {
            let before = Sent {
                ack: Some(Heard::Stream(-30)),
                ..data(1, 10)
            };
            vec![syn().into(), ack(1).into(), before.into()]
        },
        kind: Kind::State(|moment| {
            moment.sent().is_some_and(|sent| match sent.ack {
                Some(Heard::Stream(at) | Heard::All(at)) => at < 1,
                None => false,
            })
        }),
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

    /// What was expected before this step.
    fn expected(&self) -> i32 {
        let told = |turn: &Turn| turn.answers.iter().rev().find_map(|answer| answer.ack);
        let before = &self.ours[..self.ours.len() - 1];
        before.iter().rev().find_map(told).unwrap_or(0)
    }

    /// Whether the segment that has come now may be forged, or is old.
    fn is_odd(&self) -> bool {
        let expected = self.expected();
        self.sent().is_some_and(|sent| {
            let old = sent.stamp.is_some_and(|ahead| ahead < 0);
            let flags = sent.flags & (SYN | RST) != 0;
            let plain = sent.ack == Some(Heard::All(0)) && self.place(sent, expected) == expected;
            old || flags || !plain
        })
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
