//! Which flow a packet belongs to, and what it does to it.

use super::Counts;
use super::connection::State;
use super::flows::{Flows, NONE};
use super::open;
use super::packet::{self, Content, Packet};
use super::record::{Flow, Record, Tracker, status};
use super::tcp::{Known, Outcome, Tcp};
use super::timeout::{Class, STREAM_SECONDS, Ticks, Timeouts};
use super::tuple::{self, Address, Tuple};

/// A frame whose connection is known.
#[derive(Clone, Copy)]
pub(super) struct Tracked {
    pub(super) flow: u32,
    pub(super) direction: usize,
    pub(super) state: State,
    pub(super) then: Then,
}

impl Tracked {
    /// Of a frame that has no connection.
    pub(super) fn none(state: State) -> Self {
        Self {
            flow: NONE,
            direction: 0,
            state,
            then: Then::Nothing,
        }
    }
}

/// What is done once rules have judged a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Nothing,
    /// If it is accepted, its connection begins.
    Begin(Class),
    /// The connection ends.
    End,
}

/// A packet whose connection is known.
pub(super) enum Found<A: Address> {
    /// It belongs to a flow of the table.
    Known(Tracked),
    /// It begins one, which is not in the table yet.
    Begins(A::Record, Class),
}

/// The connection of a packet with these addresses, which takes note of it. `sought` is what was
/// found of its direction, if it was looked for.
///
/// # Errors
/// It has none: it is not tracked, or it is invalid.
pub(super) fn recognise<A: Address>(
    flows: &mut Flows<A>,
    counts: &mut Counts,
    packet: &Packet<'_>,
    [source, destination]: [A; 2],
    sought: Option<open::Found>,
    now: Ticks,
) -> Result<Found<A>, State> {
    let found = match packet::read(packet, A::ICMP) {
        Some((_, Content::Untracked)) => return Err(State::Untracked),
        Some((ports, content)) => {
            let tuple = Tuple {
                source,
                destination,
                ports,
                place: packet.places[0],
                protocol: packet.protocol,
            };
            match content {
                Content::Error(quote) => {
                    error(flows, quote, &tuple, packet.places[1], now).map(Found::Known)
                }
                _ => {
                    let find = || flows.find_in_zone(&tuple, packet.places[1], now);
                    let found = sought.unwrap_or_else(find);
                    track(flows, packet, &tuple, &content, found, now)
                }
            }
        }
        None => None,
    };
    if found.is_none() {
        counts.invalid += 1;
    }
    found.ok_or(State::Invalid)
}

/// An error about a packet of a connection, which whoever sent that packet is told.
fn error<A: Address>(
    flows: &Flows<A>,
    quote: &[u8],
    outer: &Tuple<A>,
    answers: u16,
    now: Ticks,
) -> Option<Tracked> {
    let quoted = A::quoted(quote, outer.place)?;
    let (flow, direction) = flows.find_in_zone(&quoted.reversed()?, answers, now)?;
    (outer.destination == quoted.source).then_some(Tracked {
        flow,
        direction,
        state: State::Related,
        then: Then::Nothing,
    })
}

/// What is known of a packet's connection, which takes note of it; none if it is invalid.
fn track<A: Address>(
    flows: &mut Flows<A>,
    packet: &Packet<'_>,
    tuple: &Tuple<A>,
    content: &Content<'_>,
    found: open::Found,
    now: Ticks,
) -> Option<Found<A>> {
    if let Some((flow, direction)) = found {
        match carry_on(flows, packet, flow, direction, content, now) {
            Carried::On(tracked) => return tracked.map(Found::Known),
            Carried::Over => {
                flows.remove(flow);
                flows.records.changed();
            }
        }
    }
    let (mut reply, (mut tracker, class)) = (tuple.reversed()?, begin(tuple, content, now)?);
    reply.place = packet.places[1];
    tracker.standing.status |= packet.zone.bits();
    let mut flow = A::Record::new(tuple, &reply, tracker);
    flow.traffic.add(0, packet.length);
    if packet.cut && matches!(content, Content::Tcp(_)) {
        flow.tracker.tcp_mut().window.be_liberal();
    }
    Some(Found::Begins(flow, class))
}

/// A connection that a packet begins.
fn begin<A: Address>(
    tuple: &Tuple<A>,
    content: &Content<'_>,
    now: Ticks,
) -> Option<(Tracker, Class)> {
    match content {
        Content::Tcp(segment) => {
            let mut tcp = Tcp::open(segment)?;
            let known = Known {
                timeouts: &Timeouts::DEFAULT,
                direction: 0,
                replied: false,
                assured: false,
            };
            match tcp.segment(segment, known) {
                Outcome::Stays { class, .. } => Some((Tracker::of_tcp(tcp), class)),
                _ => None,
            }
        }
        Content::Udp => {
            let stream = now.after(Ticks::of_seconds(STREAM_SECONDS));
            Some((Tracker::of_udp(stream), Class::Udp))
        }
        Content::Icmp => {
            let question = tuple::is_question(A::ICMP, tuple.ports[1]);
            question.then_some((Tracker::empty(), Class::Icmp))
        }
        Content::Other => Some((Tracker::empty(), Class::Generic)),
        Content::Error(_) | Content::Untracked => None,
    }
}

/// What comes of a packet of a connection.
enum Carried {
    On(Option<Tracked>),
    /// The connection was over: the packet begins another one.
    Over,
}

/// What a packet does to its flow, which has its protocol.
#[inline(always)]
fn outcome(
    flow: &mut Flow,
    packet: &Packet<'_>,
    content: &Content<'_>,
    known: Known<'_>,
    now: Ticks,
) -> Outcome {
    let always = |class| Outcome::Stays {
        class,
        assured: false,
    };
    match content {
        Content::Tcp(segment) => {
            let tcp = flow.tracker.tcp_mut();
            let outcome = tcp.segment(segment, known);
            if packet.cut && matches!(outcome, Outcome::Stays { .. }) {
                tcp.window.be_liberal();
            }
            outcome
        }
        Content::Udp => {
            let assured = known.replied && now > flow.tracker.stream();
            let class = if assured {
                Class::UdpStream
            } else {
                Class::Udp
            };
            Outcome::Stays { class, assured }
        }
        Content::Icmp => always(Class::Icmp),
        Content::Other => always(Class::Generic),
        Content::Error(_) | Content::Untracked => Outcome::Invalid,
    }
}

fn carry_on<A: Address>(
    flows: &mut Flows<A>,
    packet: &Packet<'_>,
    number: u32,
    direction: usize,
    content: &Content<'_>,
    now: Ticks,
) -> Carried {
    let flow = flows.records.change(number);
    let (replied, was_assured) = (flow.has(status::SEEN_REPLY), flow.has(status::ASSURED));
    let known = Known {
        timeouts: flows.timeouts.of(flow.tracker.standing.queue),
        direction,
        replied,
        assured: was_assured,
    };
    let outcome = outcome(flow, packet, content, known, now);
    let mut then = Then::Nothing;
    match outcome {
        Outcome::Invalid => {
            flows.records.changed();
            return Carried::On(None);
        }
        Outcome::Doubted => {
            flows.hasten(number, now);
            flows.records.changed();
            return Carried::On(None);
        }
        Outcome::Reopens => return Carried::Over,
        Outcome::Ignored => {}
        Outcome::Ends => {
            flow.traffic.add(direction, packet.length);
            then = Then::End;
        }
        Outcome::Stays { .. } => flow.traffic.add(direction, packet.length),
    }
    if direction == 1 {
        flow.tracker.standing.status |= status::SEEN_REPLY;
    }
    if let Outcome::Stays { class, assured } = outcome {
        if assured && !was_assured {
            flows.assure(number);
        }
        flows.refresh(number, class, now);
    }
    let answered = replied || direction == 1;
    Carried::On(Some(Tracked {
        flow: number,
        direction,
        state: if answered {
            State::Established
        } else {
            State::New
        },
        then,
    }))
}
