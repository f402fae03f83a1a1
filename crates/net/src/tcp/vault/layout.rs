//! What lies in a vault, and which connections bytes are.

use super::super::identity::Ends;
use super::super::saved::{Saved, Span};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::AtomicU32;
use device::HEADROOM;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a vault begins with.
const MAGIC: [u8; 8] = *b"OBvault\0";
/// The version of all but [`Saved`], which has its own. It goes up with each change.
pub const VERSION: u32 = 2;
/// The least number of buffers: parts of them are left to those who cannot wait.
pub const BUFFERS_MIN: usize = 8;
/// The most connections, so that a label can name each.
const CONNECTIONS_MAX: u32 = 1 << 24;
/// The largest buffers, in bytes; a frame has at most 64 KiB.
const BUFFER_SIZE_MAX: u32 = 1 << 17;
/// Vaults begin at multiples of this, in bytes.
pub const ALIGN: usize = 4;
/// Where the buffers begin is a multiple of this, a cache line.
const LINE: usize = 64;

/// How the image cuts its vault. A quarter of the buffers should hold a whole segment: so much is
/// left to what arrives in order when writers have all that they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Connections that there may be at a time, at most 2^24.
    pub connections: u32,
    /// Bytes of a buffer, [`HEADROOM`] included, at most 2^17.
    pub buffer_size: u32,
}

/// What a vault begins with.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Header {
    pub magic: [u8; 8],
    version: u32,
    connections: u32,
    buffer_size: u32,
    buffers: u32,
    reserved: [u32; 4],
}

/// What cookies are made with, behind the [`Header`].
#[derive(FromBytes, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct Keys {
    pub secret: [AtomicU32; 4],
    /// The last period in which a cookie left.
    pub period: AtomicU32,
    /// 1 if the others count.
    pub published: AtomicU32,
}

/// A cache line.
pub(super) const HEAD_BYTES: usize = size_of::<Header>() + size_of::<Keys>();
const _: () = assert!(HEAD_BYTES == LINE);

/// Whose bytes a connection's are, and what it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(in super::super) struct Body {
    pub saved: Saved,
    pub ends: Ends,
    /// 1 if its user has let go of it, and 0 else.
    pub left: u32,
}

/// Words of a [`Body`].
pub(super) const WORDS: usize = size_of::<Body>() / 4;

/// The place of a connection: two copies, of which one at most is published. The other one can be
/// written meanwhile.
#[derive(FromBytes, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct Record {
    /// 0 for none, or 1 or 2 for a copy.
    pub published: AtomicU32,
    pub copies: [[AtomicU32; WORDS]; 2],
    reserved: [AtomicU32; 3],
}

/// Four cache lines.
const _: () = assert!(size_of::<Record>() == 4 * LINE);

/// What lies in a buffer.
#[derive(FromBytes, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct Label {
    /// 0 for nobody, or [`owner`].
    pub owner: AtomicU32,
    /// Number of the first byte.
    pub at: AtomicU32,
    /// Where in the buffer that lies.
    pub start: AtomicU32,
    pub len: AtomicU32,
}

/// Which of a connection's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Stream {
    Send,
    Receive,
}

/// The name of a stream of the connection at `place`.
pub(super) fn owner(place: u32, stream: Stream) -> u32 {
    // Below 2^25 + 2.
    place * 2 + stream as u32 + 1
}

/// Why memory is no vault, or not this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It is too small for this shape, or the shape is none.
    Size,
    /// It does not begin at a multiple of 4 bytes.
    Alignment,
    /// There is none in it.
    Empty,
    /// It has another version.
    Version,
    /// It has another shape.
    Shape,
}

impl core::fmt::Display for Unfit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Size => "too little memory for so many connections and buffers of this size",
            Self::Alignment => "the memory does not begin at a multiple of 4",
            Self::Empty => "the memory has no connections",
            Self::Version => "its connections were left by another version",
            Self::Shape => "its connections were left in another shape",
        })
    }
}

impl core::error::Error for Unfit {}

/// Where things lie, in bytes from the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub shape: Shape,
    pub records: Range<usize>,
    pub labels: Range<usize>,
    pub buffers: Range<usize>,
}

impl Layout {
    /// As many buffers as fit into `size` bytes.
    pub fn new(shape: Shape, size: usize) -> Result<Self, Unfit> {
        let buffer = shape.buffer_size as usize;
        let sane = shape.connections <= CONNECTIONS_MAX
            && buffer > HEADROOM
            && shape.buffer_size <= BUFFER_SIZE_MAX;
        if !sane {
            return Err(Unfit::Size);
        }
        // At most 2^32 bytes.
        let records = HEAD_BYTES..HEAD_BYTES + shape.connections as usize * size_of::<Record>();
        let left = size.checked_sub(records.end + LINE).ok_or(Unfit::Size)?;
        let count = left / (buffer + size_of::<Label>());
        if count < BUFFERS_MIN || u32::try_from(count).is_err() {
            return Err(Unfit::Size);
        }
        let labels = records.end..records.end + count * size_of::<Label>();
        let first = labels.end.next_multiple_of(LINE);
        Ok(Self {
            shape,
            buffers: first..first + count * buffer,
            records,
            labels,
        })
    }

    /// How many buffers there are.
    pub fn count(&self) -> usize {
        self.labels.len() / size_of::<Label>()
    }

    pub fn header(&self) -> Header {
        Header {
            magic: MAGIC,
            version: VERSION,
            connections: self.shape.connections,
            buffer_size: self.shape.buffer_size,
            // It was checked to fit.
            buffers: self.count() as u32,
            reserved: [0; 4],
        }
    }
}

/// A part of a stream, in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which one.
    pub buffer: u32,
    /// Where in it the label says that it begins.
    pub start: u32,
    /// So many of its bytes are not needed any more.
    pub done: u32,
    /// It ends so many bytes behind `start`.
    pub end: u32,
}

/// A connection, as it lies in a vault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lying {
    pub(in super::super) place: u32,
    pub(in super::super) body: Body,
    /// What is to be sent, and what has arrived, each in order and whole.
    pub(in super::super) pieces: [Vec<Piece>; 2],
}

impl Lying {
    /// What it knows.
    pub fn saved(&self) -> &Saved {
        &self.body.saved
    }

    /// What is to be sent, and what has arrived, each in order and whole.
    pub fn pieces(&self) -> &[Vec<Piece>; 2] {
        &self.pieces
    }
}

/// What lies in a vault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Where the first buffer begins, in bytes.
    pub buffers: usize,
    /// Connections, by their places.
    pub connections: Vec<Lying>,
    /// Places whose bytes are no connection. All others can go on.
    pub refused: Vec<u32>,
}

fn read<T: FromBytes>(memory: &[u8], at: usize) -> Option<T> {
    Some(T::read_from_prefix(memory.get(at..)?).ok()?.0)
}

/// Finds the connections in `memory`, whatever it holds, and checks them whole: that numbers are
/// those of a connection, and that each byte lies in one buffer.
///
/// # Errors
/// [`Unfit`], if this is no vault of this shape.
pub fn inspect(memory: &[u8], shape: Shape) -> Result<Contents, Unfit> {
    let layout = Layout::new(shape, memory.len())?;
    let header: Header = read(memory, 0).ok_or(Unfit::Size)?;
    if header.magic != MAGIC {
        return Err(Unfit::Empty);
    }
    if header.version != VERSION {
        return Err(Unfit::Version);
    }
    if header != layout.header() {
        return Err(Unfit::Shape);
    }
    let labels = labels(memory, &layout);
    let mut contents = Contents {
        buffers: layout.buffers.start,
        ..Contents::default()
    };
    for place in 0..shape.connections {
        let at = layout.records.start + place as usize * size_of::<Record>();
        let body = match read(memory, at) {
            Some(0_u32) => continue,
            Some(copy @ 1..=2) => read(memory, at + 4 + (copy as usize - 1) * WORDS * 4),
            _ => None,
        };
        match body.and_then(|body| lying(&labels, shape, place, body)) {
            Some(lying) => contents.connections.push(lying),
            None => contents.refused.push(place),
        }
    }
    Ok(contents)
}

/// What labels say, in the order of owners.
fn labels(memory: &[u8], layout: &Layout) -> Vec<[u32; 5]> {
    let named = |index: usize| {
        let at = layout.labels.start + index * size_of::<Label>();
        let [owner, first, start, len]: [u32; 4] = read(memory, at)?;
        // It was checked to fit.
        (owner != 0).then_some([owner, first, start, len, index as u32])
    };
    let mut labels: Vec<_> = (0..layout.count()).filter_map(named).collect();
    labels.sort_unstable();
    labels
}

fn lying(labels: &[[u32; 5]], shape: Shape, place: u32, body: Body) -> Option<Lying> {
    if body.left > 1 {
        return None;
    }
    let [send, receive] = body.saved.spans().ok()?;
    let pieces = [(send, Stream::Send), (receive, Stream::Receive)];
    let [send, receive] = pieces.map(|(span, stream)| {
        let owner = owner(place, stream);
        let first = labels.partition_point(|label| label[0] < owner);
        let last = labels.partition_point(|label| label[0] <= owner);
        cover(&labels[first..last], shape, span)
    });
    Some(Lying {
        place,
        body,
        pieces: [send?, receive?],
    })
}

/// The pieces of which a stream consists, if these are all of it, once each. Others of its owner
/// lie before it, or behind holes.
fn cover(labels: &[[u32; 5]], shape: Shape, span: Span) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    for &[_, first, start, len, buffer] in labels {
        // Of the whole space of numbers; either is within half of it.
        let at = i64::from(first.wrapping_sub(span.first.0) as i32);
        let whole = i64::from(span.len);
        let end = at + i64::from(len);
        if at >= whole || end <= 0 || whole == 0 {
            continue;
        }
        let within = start as usize >= HEADROOM
            && u64::from(start) + u64::from(len) <= u64::from(shape.buffer_size);
        if !within {
            return None;
        }
        pieces.push((at, end, start, buffer));
    }
    pieces.sort_unstable();
    let mut to = 0;
    let mut whole = Vec::with_capacity(pieces.len());
    for (at, end, start, buffer) in pieces {
        let follows = at == to || at < 0 && to == 0;
        if !follows {
            return None;
        }
        to = end.min(span.len.into());
        whole.push(Piece {
            buffer,
            start,
            // Both are at most the buffer's size.
            done: (-at).max(0) as u32,
            end: (to - at) as u32,
        });
    }
    (to == i64::from(span.len)).then_some(whole)
}
