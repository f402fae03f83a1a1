//! A table in memory that outlives the image: what says that it is one, and what the next image
//! takes up of it.
//!
//! | in order | what |
//! |---|---|
//! | cover | magic, version, how many flows there can be, what has happened so far |
//! | head | of IPv4's flows: which one is being changed, what it was; how many are used; timeouts |
//! | records | of IPv4's flows |
//! | head, records | the same of IPv6's |
//!
//! Whatever lies there, all of it is checked before it is used. What no image can have left is
//! refused as a whole: whoever wrote one wrong byte may have written others.

use super::flows::Flows;
use super::fragments::Fragments;
use super::record::{Flow4, Flow6};
use super::store::{Records, Store, in_order};
use super::timeout::Ticks;
use super::{Conntrack, Counts, FLOWS_MAX, NO_FATE};
use alloc::boxed::Box;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// What a table begins with.
const MAGIC: [u8; 8] = *b"OBflows\0";
/// The version of all that lies in the memory of a table. It goes up with each change of what that
/// is or means.
pub const VERSION: u32 = 5;
/// Memory of a table begins at a multiple of this, in bytes.
pub const ALIGN: usize = 8;

/// What a table begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Cover {
    magic: [u8; 8],
    version: u32,
    /// Most flows of each family.
    flows: u32,
    pub(super) counts: Counts,
    /// See [`super::doubt`].
    pub(super) generation: u8,
    reserved: [u8; 7],
}

/// A cache line.
const _: () = assert!(size_of::<Cover>() == 64);

impl Cover {
    pub(super) fn new(flows: usize) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            // Fewer than 2^23.
            flows: flows as u32,
            counts: Counts::default(),
            generation: 0,
            reserved: [0; 7],
        }
    }

    /// Whether this is a table of so many flows; and if not, why, unless nothing was ever there.
    fn check(self, flows: usize) -> Result<(), Option<Unsound>> {
        let expected = Self {
            counts: self.counts,
            generation: self.generation,
            ..Self::new(flows)
        };
        match self {
            _ if self == expected => Ok(()),
            _ if self == Self::new_zeroed() => Err(None),
            Self { magic, .. } if magic != MAGIC => Err(Some(Unsound::Magic)),
            Self { version, .. } if version != VERSION => Err(Some(Unsound::Version)),
            _ => Err(Some(Unsound::Shape)),
        }
    }
}

/// Why nothing is taken up of what lies in the memory of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsound {
    /// It begins with something else.
    Magic,
    /// Another version left it.
    Version,
    /// It has room for another number of flows.
    Shape,
    /// It has used more flows than there can be, or changes one that there is not.
    Table,
    /// A flow is none that can be.
    Flow,
    /// Two flows have the same addresses and ports.
    Twice,
}

impl core::fmt::Display for Unsound {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Magic => "what is there is no table of connections",
            Self::Version => "another version left it",
            Self::Shape => "it has room for another number of connections",
            Self::Table => "it contradicts itself",
            Self::Flow => "one of its connections cannot be",
            Self::Twice => "two of its connections have the same addresses and ports",
        })
    }
}

impl core::error::Error for Unsound {}

/// What was taken up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakenUp {
    /// So many connections go on.
    pub flows: u32,
    /// Why none does, if something was there.
    pub refused: Option<Unsound>,
}

impl Conntrack {
    /// Most flows of each family for which memory of so many bytes has room.
    pub const fn flows_in(bytes: usize) -> usize {
        let fixed = size_of::<Cover>() + Records::<Flow4>::bytes(0) + Records::<Flow6>::bytes(0);
        let flows = bytes.saturating_sub(fixed) / (size_of::<Flow4>() + size_of::<Flow6>());
        if flows < FLOWS_MAX { flows } else { FLOWS_MAX }
    }

    /// A table in memory that outlives the image, with the connections that an earlier image has
    /// left there, if all of it is sound; else it is empty. The key may be another one, and `now`
    /// by another clock: nothing stays longer than its timeout from now on.
    ///
    /// An image may end at any moment. Then each connection is what it was before its last packet
    /// or after it. What became of the first parts of packets is forgotten.
    ///
    /// None if the memory is too small, or does not begin at a multiple of [`ALIGN`].
    pub fn take_up(memory: &'static mut [u8], key: &[u8; 16], now: u64) -> Option<(Self, TakenUp)> {
        let flows = Self::flows_in(memory.len());
        if flows == 0 || !memory.as_ptr().addr().is_multiple_of(ALIGN) {
            return None;
        }
        let (place, memory) = memory.split_at_mut_checked(size_of::<Cover>())?;
        let (memory4, memory) = memory.split_at_mut_checked(Records::<Flow4>::bytes(flows))?;
        let memory6 = memory.get_mut(..Records::<Flow6>::bytes(flows))?;
        let table = Self {
            table4: Flows::new(Records::over(memory4)?, key),
            table6: Flows::new(Records::over(memory6)?, key),
            fragments: Fragments::new(key, NO_FATE),
            cover: Store::State(Cover::mut_from_bytes(place).ok()?),
            expired: Ticks::default(),
        };
        Some(table.checked(now))
    }

    /// The same of a copy on the heap of what lies somewhere, for whoever looks into it.
    pub fn take_up_copy(memory: &[u8], key: &[u8; 16], now: u64) -> Option<(Self, TakenUp)> {
        let flows = Self::flows_in(memory.len());
        let (cover, memory) = Cover::read_from_prefix(memory).ok()?;
        let (memory4, memory) = memory.split_at_checked(Records::<Flow4>::bytes(flows))?;
        let memory6 = memory.get(..Records::<Flow6>::bytes(flows))?;
        let table = Self {
            table4: Flows::new(Records::copied(memory4)?, key),
            table6: Flows::new(Records::copied(memory6)?, key),
            fragments: Fragments::new(key, NO_FATE),
            cover: Store::Heap(Box::new(cover)),
            expired: Ticks::default(),
        };
        (flows > 0).then(|| table.checked(now))
    }

    /// The table with what is sound in it.
    fn checked(mut self, now: u64) -> (Self, TakenUp) {
        let taken = match self.cover.check(self.capacity()) {
            Ok(()) => self.take_up_flows(Ticks::of(now)),
            Err(why) => Err(why),
        };
        let taken = taken.unwrap_or_else(|refused| {
            self.clear();
            TakenUp { flows: 0, refused }
        });
        (self, taken)
    }

    fn take_up_flows(&mut self, now: Ticks) -> Result<TakenUp, Option<Unsound>> {
        let flows = self.table4.take_up(now)? + self.table6.take_up(now)?;
        self.set_generation(self.cover.generation);
        Ok(TakenUp {
            flows,
            refused: None,
        })
    }

    /// Forgets all connections, and what has happened.
    pub fn clear(&mut self) {
        // A table that is cut here is none.
        *self.cover = Cover::new_zeroed();
        in_order();
        self.table4.clear();
        self.table6.clear();
        self.set_generation(0);
        self.fragments.clear();
        self.expired = Ticks::default();
        *self.cover = Cover {
            magic: [0; 8],
            ..Cover::new(self.capacity())
        };
        in_order();
        self.cover.magic = MAGIC;
        in_order();
    }

    /// Whatever lies there is no table any more.
    pub fn forget(memory: &mut [u8]) {
        let end = memory.len().min(size_of::<Cover>());
        memory[..end].fill(0);
        in_order();
    }
}
