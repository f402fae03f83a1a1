//! A connection: opened, accepted, or taken up from arbitrary bytes; then arbitrary segments,
//! wishes and times. No panic; no number moves backwards; nothing is kept twice, or beyond what was
//! offered; what leaves was given; it always stops sending. Or a vault, if the input begins like
//! one: each connection in it is whole, and can go on.

use arbitrary::{Result, Unstructured};
use core::time::Duration;
use net::tcp::congestion::Algorithm;
use net::tcp::connection::{Agreed, Greeted, NEVER};
use net::tcp::saved::Saved;
use net::tcp::segment::{Flags, Options};
use net::tcp::seq::Seq;
use net::tcp::vault::{Shape, inspect};
use net::tcp::{Config, Connection, Limits, Opening, Segment, State};
use ports::Instant;
use zerocopy::FromBytes;

/// Bytes that are queued at most, and not acknowledged.
const QUEUED: u32 = 300_000;
/// Segments that leave in one go at most, for so much.
const SENDS: u32 = 5000;

/// The largest window that TCP knows (RFC 7323, 2.3).
const WINDOW_MAX: u32 = 1 << 30;

/// That of the seed.
const SHAPE: Shape = Shape {
    connections: 2,
    buffer_size: 100,
};

pub fn feed(input: &[u8]) {
    if input.starts_with(b"OBvault") {
        vault(input);
        return;
    }
    let mut input = Unstructured::new(input);
    // It ends with its input.
    let _ = run(&mut input);
}

struct Run {
    connection: Connection,
    limits: Limits,
    now: Instant,
    /// First number that the owner of the bytes has not got in order.
    kept: Seq,
}

/// Takes up what lies in a vault.
fn vault(memory: &[u8]) {
    let Ok(contents) = inspect(memory, SHAPE) else {
        return;
    };
    let mut taken = vec![];
    for lying in &contents.connections {
        let spans = lying.saved().spans().expect("it was checked");
        for (span, pieces) in spans.iter().zip(lying.pieces()) {
            let mut len = 0;
            for piece in pieces {
                assert!(piece.done < piece.end && piece.start + piece.end <= SHAPE.buffer_size);
                assert!(!taken.contains(&piece.buffer), "one buffer twice");
                taken.push(piece.buffer);
                let end = contents.buffers + ((piece.buffer + 1) * SHAPE.buffer_size) as usize;
                assert!(end <= memory.len());
                len += piece.end - piece.done;
            }
            assert_eq!(len, span.len);
        }
        let now = Instant(1 << 40);
        let connection = Connection::resume(lying.saved(), config(), now).expect("it was checked");
        let mut run = Run {
            limits: Limits {
                segment: 576,
                largest: 576,
            },
            kept: connection.expected(),
            connection,
            now,
        };
        run.send();
    }
}

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let now = Instant(input.int_in_range(1..=1 << 60)?);
    let Some(connection) = connection(input, now)? else {
        return Ok(());
    };
    let mut run = Run {
        limits: limits(input)?,
        kept: connection.expected(),
        connection,
        now,
    };
    while !input.is_empty() {
        let before = run.connection.clone();
        match input.int_in_range(0..=3)? {
            0 => run.receive(input)?,
            1 => run.pass(input)?,
            2 => run.wish(input)?,
            _ => run.send(),
        }
        let after = &run.connection;
        if after.state() != State::Closed {
            let back = after.unacknowledged().is_before(before.unacknowledged());
            assert!(!back, "bytes were to be forgotten that are needed");
        }
        if before.state() != State::SynSent {
            assert!(!after.expected().is_before(before.expected()));
        }
        assert!(after.state() != State::Closed || after.deadline() == NEVER);
        if let Some(saved) = after.save() {
            let again = Connection::resume(&saved, config(), run.now);
            assert!(again.is_ok(), "{saved:?} of {after:?}: {again:?}");
        }
    }
    Ok(())
}

fn config() -> Config {
    Config {
        receive: 20_000,
        receive_max: 1 << 20,
        ..Config::default()
    }
}

fn limits(input: &mut Unstructured<'_>) -> Result<Limits> {
    let segment = *input.choose(&[100, 576, 1480, 9000])?;
    Ok(Limits {
        segment,
        largest: *input.choose(&[segment, segment + 7, 65_000])?,
    })
}

fn connection(input: &mut Unstructured<'_>, now: Instant) -> Result<Option<Connection>> {
    let config = Config {
        algorithm: *input.choose(&[Algorithm::Reno, Algorithm::Cubic])?,
        no_delay: input.arbitrary()?,
        ..config()
    };
    let kind = input.int_in_range(0..=2)?;
    if kind == 0 {
        let bytes = input.bytes(size_of::<Saved>())?;
        let Ok(saved) = Saved::read_from_bytes(bytes) else {
            return Ok(None);
        };
        return Ok(Connection::resume(&saved, config, now).ok());
    }
    let opening = Opening {
        iss: Seq(input.arbitrary()?),
        stamp_offset: input.arbitrary()?,
        mss: *input.choose(&[88, 1460, 65_535])?,
    };
    if kind == 1 {
        return Ok(Some(Connection::connect(config, opening)));
    }
    let agreed = Agreed {
        opening,
        irs: Seq(input.arbitrary()?),
        peer_mss: input.int_in_range(88..=u16::MAX)?,
        peer_scale: match input.arbitrary()? {
            true => Some(input.int_in_range(0..=14)?),
            false => None,
        },
        sack: input.arbitrary()?,
        peer_stamp: input.arbitrary()?,
    };
    let greeted = match input.int_in_range(0..=2)? {
        0 => Greeted::Once(Duration::from_micros(input.arbitrary::<u32>()?.into())),
        1 => Greeted::Again,
        _ => Greeted::Unknown,
    };
    Ok(Some(Connection::accept(config, &agreed, greeted, now)))
}

impl Run {
    /// A number near `number`, mostly.
    fn near(input: &mut Unstructured<'_>, number: Seq) -> Result<Seq> {
        Ok(match input.int_in_range(0..=3)? {
            0 => number,
            1 => number + input.arbitrary::<u8>()?.into(),
            2 => number + input.arbitrary::<u16>()?.into() - 4000,
            _ => number + input.arbitrary()?,
        })
    }

    fn receive(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let (una, expected) = (self.connection.unacknowledged(), self.connection.expected());
        let flags: u8 = input.arbitrary()?;
        let mut options = Options {
            mss: input.arbitrary()?,
            scale: input.arbitrary::<Option<u8>>()?.map(|scale| scale.min(14)),
            sack_permitted: input.arbitrary()?,
            timestamps: input.arbitrary()?,
            ..Options::default()
        };
        for _ in 0..input.int_in_range(0..=4)? {
            let block = (Self::near(input, una)?, Self::near(input, una)?);
            options.sack.push(block);
        }
        let segment = Segment {
            seq: Self::near(input, expected)?,
            ack: Self::near(input, una)?,
            flags: Flags {
                fin: flags & 1 != 0,
                syn: flags & 2 != 0,
                rst: flags & 4 != 0,
                psh: flags & 8 != 0,
                ack: flags & 16 == 0,
                urg: flags & 32 != 0,
            },
            len: *input.choose(&[0, 0, 1, 100, 1448, 60_000])?,
            window: input.arbitrary()?,
            options,
            ..Segment::default()
        };
        let opens = self.connection.state() == State::SynSent;
        let outcome = self.connection.receive(&segment, self.now);
        if opens {
            self.kept = self.connection.expected();
            return Ok(());
        }
        if let Some(keep) = outcome.keep {
            assert!(keep.len > 0 && keep.skip + keep.len <= segment.len);
            assert_eq!(keep.at, segment.seq + keep.skip);
            assert!(!keep.at.is_before(expected), "kept twice");
            assert!(
                keep.at + keep.len - expected <= WINDOW_MAX,
                "beyond any window"
            );
        }
        assert!(!self.connection.expected().is_before(self.kept));
        self.kept = self.connection.expected();
        Ok(())
    }

    fn pass(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let deadline = self.connection.deadline();
        let wait = Duration::from_millis(1 << input.int_in_range(0..=20)?);
        self.now = match input.arbitrary()? {
            true if deadline != NEVER => self.now.max(deadline),
            _ => self.now + wait,
        };
        if deadline <= self.now {
            self.connection.expire(self.now);
            let next = self.connection.deadline();
            assert!(next > self.now, "a deadline stays in the past");
        }
        Ok(())
    }

    fn wish(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let connection = &mut self.connection;
        match input.int_in_range(0..=7)? {
            0 => connection.shutdown(),
            1 => connection.deafen(self.now),
            2 => connection.abort(),
            3 => connection.set_receive(input.int_in_range(0..=1 << 20)?),
            4 => self.limits = limits(input)?,
            5 => {
                let readable = connection.readable();
                connection.read(input.int_in_range(0..=readable)?);
            }
            _ if connection.may_queue() => {
                let room = QUEUED.saturating_sub(connection.unsent_or_unacknowledged());
                connection.queue(1 + input.int_in_range(0..=room)?);
            }
            _ => {}
        }
        Ok(())
    }

    fn send(&mut self) {
        for _ in 0..SENDS {
            let Some(segment) = self.connection.next(self.limits, self.now) else {
                return;
            };
            let header = segment.header_size() as u32;
            assert!(segment.len == 0 || header + segment.len <= self.limits.largest);
            assert!(!segment.seq.is_before(self.connection.unacknowledged()) || segment.len == 0);
            self.connection.sent(&segment, self.limits, self.now);
        }
        panic!("it never stops: {:?}", self.connection);
    }
}
