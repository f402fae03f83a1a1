//! Where a value stands among sorted bounds, or in a hash table: the two look-ups that sets and
//! decision nodes are made of. Bounds are searched within a bucket, which holds about one of them
//! if they are spread evenly; at worst, a look-up costs the logarithm of all. A hashed one costs
//! [`PROBES_MAX`] slots at most.

use alloc::boxed::Box;
use alloc::vec;

/// Slots that a look-up visits at most. Values that would need more stay sorted.
const PROBES_MAX: usize = 16;

/// A value of a field.
pub(crate) trait Value: Copy + Ord {
    /// What an empty slot holds: a value that cannot be hashed.
    const EMPTY: Self;

    /// The value behind, if there is one.
    fn next(self) -> Option<Self>;
    /// Spread over 64 bits, the highest ones best.
    fn hash(self) -> u64;

    /// How far it is above `first`, in units of `1 << shift`; none if it is below.
    fn distance(self, first: Self, shift: u32) -> Option<usize>;

    /// Bits of how far it is above `first`.
    fn distance_bits(self, first: Self) -> u32;
}

/// 2^64 divided by the golden ratio, odd.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

macro_rules! value {
    ($integer:ty, $hash:expr) => {
        impl Value for $integer {
            const EMPTY: Self = Self::MAX;

            #[inline]
            fn distance(self, first: Self, shift: u32) -> Option<usize> {
                let units = self.checked_sub(first)? >> shift;
                Some(usize::try_from(units).unwrap_or(usize::MAX))
            }

            fn distance_bits(self, first: Self) -> u32 {
                Self::BITS - (self - first).leading_zeros()
            }

            #[inline]
            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }

            #[inline]
            fn hash(self) -> u64 {
                $hash(self)
            }
        }
    };
}

value!(u32, |value: u32| u64::from(value).wrapping_mul(MULTIPLIER));
value!(u128, |value: u128| {
    let (high, low) = ((value >> 64) as u64, value as u64);
    (high.wrapping_mul(MULTIPLIER).rotate_left(32) ^ low).wrapping_mul(MULTIPLIER)
});

/// Bounds in a bucket that are looked at one by one.
const NEAR_MAX: usize = 4;

/// How many of `bounds`, which ascend, are at most `value`. The loop has no branch that depends on
/// the value.
#[inline(never)]
fn rank<T: Value>(bounds: &[T], value: T) -> usize {
    let mut base = 0;
    let mut size = bounds.len();
    while size > 1 {
        let half = size / 2;
        // The bounds below `base` are at most `value`, those from `base + size` on are above it.
        base = core::hint::select_unpredictable(bounds[base + half] <= value, base + half, base);
        size -= half;
    }
    base + usize::from(bounds.get(base).is_some_and(|bound| *bound <= value))
}

/// Ascending bounds, and where to look for a value among them.
#[derive(Debug)]
struct Sorted<T> {
    bounds: Box<[T]>,
    /// The first bound.
    first: T,
    /// Where the bounds of each bucket begin, the last one's end included. A bucket is `1 << shift`
    /// values wide; the first one begins at the first bound.
    buckets: Box<[u32]>,
    shift: u32,
}

impl<T: Value> Sorted<T> {
    fn new(bounds: Box<[T]>) -> Self {
        let (first, last) = match *bounds {
            [] => {
                return Self {
                    bounds,
                    first: T::EMPTY,
                    buckets: Box::new([0, 0]),
                    shift: 0,
                };
            }
            [first, .., last] => (first, last),
            [only] => (only, only),
        };
        // As many buckets as bounds, or half of that.
        let width = last.distance_bits(first);
        let shift = width.saturating_sub(bounds.len().ilog2());
        let bucket = |bound: T| bound.distance(first, shift).unwrap_or(0);
        let mut buckets = vec![0; bucket(last) + 2].into_boxed_slice();
        for bound in &bounds {
            buckets[bucket(*bound) + 1] += 1;
        }
        for at in 1..buckets.len() {
            buckets[at] += buckets[at - 1];
        }
        Self {
            bounds,
            first,
            buckets,
            shift,
        }
    }

    /// How many bounds are at most `value`.
    #[inline]
    fn rank(&self, value: T) -> usize {
        let (Some(distance), Some(last)) = (
            value.distance(self.first, self.shift),
            self.buckets.len().checked_sub(2),
        ) else {
            return 0;
        };
        let bucket = distance.min(last);
        let start = self.buckets[bucket] as usize;
        let near = &self.bounds[start..self.buckets[bucket + 1] as usize];
        let rank = match near.len() {
            ..=NEAR_MAX => near.iter().take_while(|bound| **bound <= value).count(),
            _ => rank(near, value),
        };
        start + rank
    }

    fn memory(&self) -> usize {
        size_of_val(&*self.bounds) + size_of_val(&*self.buckets)
    }
}

/// Distinct values, each in a slot.
#[derive(Debug)]
struct Slots<T> {
    /// A power of two, and [`PROBES_MAX`] more so that no probe has to wrap around.
    values: Box<[T]>,
    /// Bits of a hash that are no slot.
    shift: u32,
}

impl<T: Value> Slots<T> {
    /// Puts `values` into slots, at most two thirds full; none if that needs too many probes.
    fn new(values: impl ExactSizeIterator<Item = T>) -> Option<Self> {
        let count = (values.len() * 3 / 2).next_power_of_two().max(2);
        let shift = u64::BITS - count.ilog2();
        let mut slots = vec![T::EMPTY; count + PROBES_MAX].into_boxed_slice();
        for value in values {
            let home = (value.hash() >> shift) as usize;
            let mut near = slots[home..home + PROBES_MAX].iter_mut();
            let free = near.find(|slot| **slot == T::EMPTY);
            *free.filter(|_| value != T::EMPTY)? = value;
        }
        Some(Self {
            values: slots,
            shift,
        })
    }

    #[inline]
    fn find(&self, value: T) -> Option<usize> {
        let home = (value.hash() >> self.shift) as usize;
        for slot in home..home + PROBES_MAX {
            let found = self.values[slot];
            if found == value && value != T::EMPTY {
                return Some(slot);
            }
            if found == T::EMPTY {
                return None;
            }
        }
        None
    }
}

/// Single values from this many on are hashed.
const HASHED_MIN: usize = 8;

/// Values that a field may have.
#[derive(Debug)]
pub(crate) struct Set<T>(Members<T>);

#[derive(Debug)]
enum Members<T> {
    /// Bounds begin and end an interval in turn.
    Sorted(Sorted<T>),
    /// Single values.
    Hashed(Slots<T>),
}

impl<T: Value> Set<T> {
    /// From intervals that ascend and do not touch.
    pub(crate) fn new(intervals: &[(T, T)]) -> Self {
        let single = intervals.iter().all(|(low, high)| low == high);
        let slots = if single && intervals.len() >= HASHED_MIN {
            Slots::new(intervals.iter().map(|(low, _)| *low))
        } else {
            None
        };
        let bounds = || {
            let both = intervals
                .iter()
                .flat_map(|(low, high)| [Some(*low), high.next()]);
            both.flatten().collect()
        };
        Self(slots.map_or_else(|| Members::Sorted(Sorted::new(bounds())), Members::Hashed))
    }

    #[inline]
    pub(crate) fn contains(&self, value: T) -> bool {
        match &self.0 {
            Members::Sorted(bounds) => bounds.rank(value) % 2 == 1,
            Members::Hashed(slots) => slots.find(value).is_some(),
        }
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        match &self.0 {
            Members::Sorted(bounds) => bounds.memory(),
            Members::Hashed(slots) => size_of_val(&*slots.values),
        }
    }
}

/// No number.
pub(crate) const NONE: u32 = u32::MAX;

/// A number for each value of a field, or [`NONE`].
#[derive(Debug)]
pub(crate) struct Table<T> {
    keys: Members<T>,
    /// Of the values in front of each bound, then of those behind the last one; or of each slot.
    numbers: Box<[u32]>,
}

impl<T: Value> Table<T> {
    /// From ascending bounds and the numbers of the values in front of each of them; the last
    /// number is that of the values from the last bound on.
    pub(crate) fn new(bounds: Box<[T]>, numbers: Box<[u32]>) -> Self {
        debug_assert_eq!(bounds.len() + 1, numbers.len());
        match Self::hashed(&bounds, &numbers) {
            Some(table) => table,
            None => Self {
                keys: Members::Sorted(Sorted::new(bounds)),
                numbers,
            },
        }
    }

    /// A hash table, if only single values have numbers, and enough of them.
    fn hashed(bounds: &[T], numbers: &[u32]) -> Option<Self> {
        if numbers[0] != NONE {
            return None;
        }
        let used = || {
            bounds
                .iter()
                .zip(&numbers[1..])
                .filter(|(_, number)| **number != NONE)
        };
        let single = bounds
            .windows(2)
            .zip(&numbers[1..])
            .all(|(pair, number)| *number == NONE || pair[0].next() == Some(pair[1]));
        if !single || numbers[numbers.len() - 1] != NONE || used().count() < HASHED_MIN {
            return None;
        }
        let values: Box<[T]> = used().map(|(value, _)| *value).collect();
        let slots = Slots::new(values.iter().copied())?;
        let mut by_slot = vec![NONE; slots.values.len()].into_boxed_slice();
        for (value, number) in used() {
            by_slot[slots.find(*value)?] = *number;
        }
        Some(Self {
            keys: Members::Hashed(slots),
            numbers: by_slot,
        })
    }

    #[inline(never)]
    pub(crate) fn get(&self, value: T) -> u32 {
        match &self.keys {
            Members::Sorted(bounds) => self.numbers[bounds.rank(value)],
            Members::Hashed(slots) => slots.find(value).map_or(NONE, |slot| self.numbers[slot]),
        }
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        let keys = match &self.keys {
            Members::Sorted(bounds) => bounds.memory(),
            Members::Hashed(slots) => size_of_val(&*slots.values),
        };
        keys + size_of_val(&*self.numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn a_set_holds_its_intervals(bounds in prop::collection::btree_set(any::<u8>(), 0..60)) {
            let bounds: Vec<u32> = bounds.into_iter().map(u32::from).collect();
            let pairs: Vec<(u32, u32)> = bounds
                .chunks_exact(2)
                .map(|pair| (pair[0] * 2, pair[1] * 2))
                .collect();
            let set = Set::new(&pairs);
            for value in 0..600 {
                let held = pairs.iter().any(|(low, high)| (*low..=*high).contains(&value));
                prop_assert_eq!(set.contains(value), held, "{}", value);
            }
            prop_assert!(!set.contains(u32::MAX));
        }

        #[test]
        fn single_values_are_found(values in prop::collection::btree_set(any::<u16>(), 0..400)) {
            let check = |value: u16| u128::from(value) << 64;
            let pairs: Vec<_> = values.iter().map(|v| (check(*v), check(*v))).collect();
            let set = Set::new(&pairs);
            let bounds: Vec<u128> = pairs.iter().flat_map(|(v, _)| [*v, v + 1]).collect();
            let numbers = (0..=bounds.len() as u32).map(|at| if at % 2 == 1 { at } else { NONE });
            let table = Table::new(bounds.into(), numbers.collect());
            // How many values are smaller: what is asked for grows by one each time.
            let mut smaller = 0;
            let mut next = values.iter().copied().peekable();
            for value in 0..=u16::MAX {
                let is_in = next.next_if_eq(&value).is_some();
                prop_assert_eq!(set.contains(check(value)), is_in);
                let expected = if is_in { 2 * smaller + 1 } else { NONE };
                prop_assert_eq!(table.get(check(value)), expected);
                smaller += u32::from(is_in);
            }
        }

        #[test]
        fn rank_counts_bounds(bounds in prop::collection::btree_set(any::<u8>(), 0..40)) {
            let bounds: Vec<u32> = BTreeSet::into_iter(bounds).map(u32::from).collect();
            for value in 0..=256 {
                let expected = bounds.iter().filter(|bound| **bound <= value).count();
                prop_assert_eq!(rank(&bounds, value), expected);
                prop_assert_eq!(Sorted::new(bounds.clone().into()).rank(value), expected);
            }
        }
    }

    #[test]
    fn the_largest_value_is_held() {
        assert!(Set::new(&[(7, u32::MAX)]).contains(u32::MAX));
        let single: Vec<(u32, u32)> = (0..9)
            .map(|i| (u32::MAX - 2 * i, u32::MAX - 2 * i))
            .collect();
        let ascending: Vec<_> = single.into_iter().rev().collect();
        assert!(Set::new(&ascending).contains(u32::MAX));
    }

    /// Multiples of the multiplier's inverse have the same home: such values stay sorted.
    #[test]
    fn values_that_collide_are_sorted() {
        let mut inverse = MULTIPLIER;
        for _ in 0..6 {
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(MULTIPLIER.wrapping_mul(inverse)));
        }
        let collide = |n: u64| u128::from(n.wrapping_mul(inverse));
        let mut values: Vec<u128> = (1..200).map(collide).collect();
        values.sort_unstable();
        let pairs: Vec<_> = values.iter().map(|v| (*v, *v)).collect();
        let set = Set::new(&pairs);
        assert!(matches!(set.0, Members::Sorted(_)));
        assert!(values.iter().all(|value| set.contains(*value)));
    }
}
