//! What memory is a vault, and which connections are whole.

use super::layout::{Body, HEAD_BYTES, Label, Record};
use super::*;
use crate::tcp::connection::{Config, Connection, Opening, State};
use crate::tcp::host::{Tcp, Unusable};
use crate::tcp::identity::{Ends, Secret};
use crate::tcp::tests::hosts::Wire;
use core::net::{IpAddr, SocketAddr};
use ports::Instant;
use proptest::prelude::*;
use std::vec;

const SHAPE: Shape = Shape {
    connections: 3,
    buffer_size: 200,
};
const LEN: usize = 64 + 3 * 256 + 64 + 12 * (200 + 16);
/// Where records and labels begin.
const RECORDS: usize = HEAD_BYTES;
const LABELS: usize = RECORDS + 3 * size_of::<Record>();
/// The owner is a label's first word; then the number, the place and the length.
const LABEL: usize = size_of::<Label>();

fn memory(bytes: &[u8]) -> &'static mut [u8] {
    let memory = vec![0_u32; LEN / 4].leak().as_mut_bytes();
    memory[..bytes.len()].copy_from_slice(bytes);
    memory
}

/// A connection with `queued` bytes to send.
fn body(queued: u32) -> Body {
    let opening = Opening {
        iss: Seq(u32::MAX - 50),
        stamp_offset: 7,
        mss: 1460,
    };
    let mut connection = Connection::connect(Config::default(), opening);
    connection.state = State::Established;
    connection.una = connection.iss + 1;
    connection.next = connection.una;
    if queued > 0 {
        connection.queue(queued);
    }
    let end = |port| SocketAddr::new([10, 0, 0, 1].into(), port);
    Body {
        saved: connection.save().unwrap(),
        ends: Ends::new(end(80), end(5)),
        left: 0,
    }
}

/// A vault whose second place has a connection with 300 bytes to send, in the first two buffers.
fn valid() -> Vec<u8> {
    let mut bytes = memory(&[]).to_vec();
    format(&mut bytes, &Layout::new(SHAPE, LEN).unwrap());
    let record = RECORDS + size_of::<Record>();
    bytes[record..record + 4].copy_from_slice(&2_u32.to_le_bytes());
    let copy = record + 4 + size_of::<Body>();
    bytes[copy..copy + size_of::<Body>()].copy_from_slice(body(300).as_bytes());
    let first = u32::MAX - 49;
    label(&mut bytes, 0, [owner(1, Stream::Send), first, 34, 160]);
    let rest = [owner(1, Stream::Send), first.wrapping_add(160), 40, 150];
    label(&mut bytes, 1, rest);
    bytes
}

fn label(bytes: &mut [u8], index: usize, words: [u32; 4]) {
    bytes[LABELS + index * LABEL..][..LABEL].copy_from_slice(words.as_bytes());
}

#[test]
fn what_is_whole_is_taken_up() {
    let contents = inspect(&valid(), SHAPE).unwrap();
    assert_eq!((contents.connections.len(), contents.refused.len()), (1, 0));
    let lying = &contents.connections[0];
    let pieces = lying.pieces()[0].iter();
    // The last one had more than was published.
    let pieces = pieces.map(|piece| (piece.buffer, piece.start, piece.done, piece.end));
    let expected = [(0, 34, 0, 160), (1, 40, 0, 140)];
    assert_eq!(pieces.collect::<Vec<_>>(), expected);
    let opened = Vault::open(memory(&valid()), SHAPE).unwrap();
    assert_eq!((opened.refused, opened.fresh), (0, None));
    let pool = opened.pool();
    assert_eq!((pool.count(), pool.free()), (12, 10));
    let sent = &opened.heirs[0].frames[0];
    assert_eq!(sent.iter().map(Frame::len).sum::<usize>(), 300);
    drop(opened);
    assert_eq!(pool.free(), 12);
}

#[test]
fn what_is_no_vault_of_this_shape_is_made_one() {
    let why = |change: fn(&mut [u8])| {
        let mut bytes = valid();
        change(&mut bytes);
        let found = inspect(&bytes, SHAPE).unwrap_err();
        let opened = Vault::open(memory(&bytes), SHAPE).unwrap();
        assert_eq!(opened.fresh, Some(found));
        assert_eq!((opened.heirs.len(), opened.pool().free()), (0, 12));
        found
    };
    assert_eq!(why(|bytes| bytes.fill(0)), Unfit::Empty);
    assert_eq!(why(|bytes| bytes[0] ^= 1), Unfit::Empty);
    assert_eq!(why(|bytes| bytes[8] ^= 1), Unfit::Version);
    for field in [12, 16, 20, 24] {
        let mut bytes = valid();
        bytes[field] ^= 1;
        assert_eq!(inspect(&bytes, SHAPE), Err(Unfit::Shape));
    }
}

#[test]
fn memory_that_can_be_no_vault_is_refused() {
    let open = |memory, shape| Vault::open(memory, shape).err();
    assert_eq!(open(&mut [], SHAPE), Some(Unfit::Size));
    let odd = &mut memory(&[])[1..];
    let few = Shape {
        connections: 1,
        ..SHAPE
    };
    assert_eq!(open(odd, few), Some(Unfit::Alignment));
    for (connections, buffer_size) in [(1 << 30, 200), (3, 34), (3, 1 << 20), (3, 400)] {
        let shape = Shape {
            connections,
            buffer_size,
        };
        assert_eq!(open(memory(&[]), shape), Some(Unfit::Size));
    }
}

/// One connection whose bytes are not there leaves the others alone.
#[test]
fn what_is_not_whole_is_refused_alone() {
    let refused = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = valid();
        // And one that has nothing.
        bytes[RECORDS..RECORDS + 4].copy_from_slice(&1_u32.to_le_bytes());
        bytes[RECORDS + 4..][..size_of::<Body>()].copy_from_slice(body(0).as_bytes());
        change(&mut bytes);
        let opened = Vault::open(memory(&bytes), SHAPE).unwrap();
        let whole: Vec<_> = opened.heirs.iter().map(|heir| heir.place).collect();
        assert_eq!(opened.fresh, None);
        assert_eq!(opened.pool().free(), if whole == [0] { 12 } else { 10 });
        assert_eq!(whole[0], 0, "the other one");
        opened.refused
    };
    let twice = [owner(1, Stream::Send), u32::MAX - 49, 34, 160];
    let second = RECORDS + size_of::<Record>();
    assert_eq!(refused(&|_| ()), 0);
    // Nobody's, a hole, twice the same number, beyond a buffer, in front of it, too little.
    assert_eq!(refused(&|bytes| label(bytes, 0, [0; 4])), 1);
    assert_eq!(refused(&|bytes| bytes[LABELS + LABEL + 4] += 1), 1);
    assert_eq!(refused(&|bytes| bytes[LABELS + LABEL + 4] -= 1), 1);
    assert_eq!(refused(&|bytes| label(bytes, 5, twice)), 1);
    assert_eq!(refused(&|bytes| bytes[LABELS + 8] = 41), 1);
    assert_eq!(refused(&|bytes| bytes[LABELS + 8] = 33), 1);
    assert_eq!(refused(&|bytes| bytes[LABELS + LABEL + 12] = 139), 1);
    // No such copy, and a connection of another version.
    assert_eq!(refused(&|bytes| bytes[second] = 3), 1);
    let copy = second + 4 + size_of::<Body>();
    assert_eq!(refused(&|bytes| bytes[copy] ^= 1), 1);
}

#[test]
fn what_is_full_takes_nothing_and_what_is_forgotten_is_free() {
    let opened = Vault::open(memory(&[]), SHAPE).unwrap();
    let (vault, pool) = (opened.vault, opened.pool());
    let all: Vec<_> = core::iter::from_fn(|| pool.alloc_max()).collect();
    assert_eq!(vault.room(), 0);
    assert!(!vault.takes(&all[0], 1, false));
    let mut all = all.into_iter();
    let held: Vec<_> = all.by_ref().take(9).collect();
    drop(all);
    // A quarter of them is free.
    assert!(vault.takes(&held[0], 100, false) && !vault.takes(&held[0], 100, true));
    let other = Pool::new(vec![0; 500].leak(), 250).alloc(200).unwrap();
    assert!(!vault.takes(&other, 1, false), "it would need one more");
    assert_eq!(vault.room(), 0);
    drop(held);
    assert_eq!(vault.room(), 6 * pool.frame_bytes_max());
}

const NOW: Instant = Instant(1_000_000_000);

/// A host that goes on with what lies in `bytes`.
fn host(bytes: &[u8]) -> (Tcp, Vault) {
    let opened = Vault::open(memory(bytes), SHAPE).unwrap();
    let vault = opened.vault;
    let tcp = Tcp::new(Config::default(), Secret::new([1; 16]), [2; 16], 1 << 20);
    (tcp.with_vault(opened, NOW), vault)
}

/// Which places of a vault have a connection.
fn published(vault: Vault) -> Vec<bool> {
    let records = vault.0.records.iter();
    let is = |record: &Record| record.published.load(Relaxed) != 0;
    records.map(is).collect()
}

#[test]
fn each_connection_is_handed_out_once() {
    let (mut tcp, vault) = host(&valid());
    let id = tcp.taken_up().unwrap();
    let socket = tcp.socket(id).unwrap();
    assert_eq!(*socket.ends(), body(0).ends);
    assert_eq!(socket.connection().queued, Seq(u32::MAX - 49) + 300);
    assert_eq!(tcp.taken_up(), None);
    assert_eq!(published(vault), [false, true, false]);
    // An empty one has none.
    let (mut tcp, _) = host(&[]);
    assert_eq!((tcp.taken_up(), tcp.sockets().count()), (None, 0));
}

#[test]
fn of_two_between_the_same_ends_the_first_goes_on() {
    let mut bytes = valid();
    bytes[RECORDS..RECORDS + 4].copy_from_slice(&1_u32.to_le_bytes());
    bytes[RECORDS + 4..][..size_of::<Body>()].copy_from_slice(body(0).as_bytes());
    let (mut tcp, vault) = host(&bytes);
    let id = tcp.taken_up().unwrap();
    let queued = tcp.socket(id).unwrap().connection().queued;
    assert_eq!(queued, Seq(u32::MAX - 49), "the first has nothing to send");
    assert_eq!((tcp.taken_up(), tcp.sockets().count()), (None, 1));
    // Nothing of the second is left, so that the next image finds one.
    assert_eq!(published(vault), [true, false, false]);
    let mut owners = vault.0.labels.iter().map(|label| label.owner.load(Relaxed));
    assert!(owners.all(|owner| owner == 0));
    assert_eq!(vault.pool().free(), vault.pool().count());
}

#[test]
fn what_its_user_has_left_goes_on_and_is_handed_to_nobody() {
    let mut bytes = valid();
    let left = Body {
        left: 1,
        ..body(300)
    };
    let copy = RECORDS + size_of::<Record>() + 4 + size_of::<Body>();
    bytes[copy..][..size_of::<Body>()].copy_from_slice(left.as_bytes());
    let (mut tcp, vault) = host(&bytes);
    assert_eq!((tcp.taken_up(), tcp.sockets().count()), (None, 1));
    assert_eq!(published(vault), [false, true, false]);
}

#[test]
fn a_vault_has_no_more_connections_than_places() {
    let (mut tcp, vault) = host(&valid());
    let mut wire = Wire {
        ours: IpAddr::from([10, 0, 0, 1]),
        pool: Pool::new(vec![0; 20 * 2000].leak(), 2000),
        largest: 1480,
        sent: Vec::new(),
        buffers: usize::MAX,
    };
    let remote = SocketAddr::from(([10, 0, 0, 2], 80));
    let first = tcp.connect(&wire, remote, NOW).unwrap();
    assert!(tcp.connect(&wire, remote, NOW).is_ok());
    let full = Err(Unusable::NoPlace);
    assert_eq!(tcp.connect(&wire, remote, NOW), full);
    // The one that was taken up kept its place, and one that ends makes room.
    assert!(published(vault)[1]);
    tcp.leave(first, NOW);
    tcp.send(&mut wire, NOW);
    assert!(tcp.connect(&wire, remote, NOW).is_ok());
    assert_eq!(tcp.connect(&wire, remote, NOW), full);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        places in proptest::collection::vec((0..LEN, any::<u8>()), 0..20),
        tables in proptest::collection::vec((RECORDS..LABELS + 3 * LABEL, 0..8_u8), 0..6),
    ) {
        let mut bytes = valid();
        for (place, byte) in places {
            bytes[place] = byte;
        }
        for (place, byte) in tables {
            bytes[place] = byte;
        }
        if let Ok(contents) = inspect(&bytes, SHAPE) {
            let opened = Vault::open(memory(&bytes), SHAPE).unwrap();
            prop_assert_eq!(opened.heirs.len(), contents.connections.len());
            for (heir, lying) in opened.heirs.iter().zip(&contents.connections) {
                let spans = lying.saved().spans().unwrap();
                for (span, frames) in spans.iter().zip(&heir.frames) {
                    let len: usize = frames.iter().map(Frame::len).sum();
                    prop_assert_eq!(span.len as usize, len);
                }
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..LEN)) {
        prop_assert!(inspect(&bytes, SHAPE).is_err());
    }
}
