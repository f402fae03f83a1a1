//! Events, counted by reason.

use core::marker::PhantomData;

/// Most reasons of one kind.
const REASONS_MAX: usize = 24;

/// Why something was dropped or refused.
pub trait Reason: Copy + 'static {
    /// The name of each reason, in order, as statistics show it.
    const NAMES: &'static [&'static str];
    /// What each of them is, in a sentence.
    const HELP: &'static [&'static str];

    /// The place of this reason among [`Self::NAMES`].
    fn index(self) -> usize;

    /// Its name.
    fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }
}

/// How often each reason occurred.
#[derive(Clone, Debug)]
pub struct Counts<R> {
    counts: [u64; REASONS_MAX],
    reason: PhantomData<R>,
}

impl<R: Reason> Default for Counts<R> {
    fn default() -> Self {
        const { assert!(R::NAMES.len() <= REASONS_MAX) }
        Self {
            counts: [0; REASONS_MAX],
            reason: PhantomData,
        }
    }
}

impl<R: Reason> Counts<R> {
    /// Counts one more.
    #[inline]
    pub fn add(&mut self, reason: R) {
        self.add_several(reason, 1);
    }

    /// Counts so many more.
    #[inline]
    pub fn add_several(&mut self, reason: R, count: u64) {
        self.counts[reason.index()] += count;
    }

    /// Takes one back: of those that are, one is no more.
    #[inline]
    pub fn take(&mut self, reason: R) {
        self.counts[reason.index()] -= 1;
    }

    /// How often this reason occurred.
    pub fn get(&self, reason: R) -> u64 {
        self.counts[reason.index()]
    }

    /// Shows each reason's name and how often it occurred.
    pub fn show(&self, show: &mut dyn FnMut(&'static str, u64)) {
        self.iter().for_each(|(name, count)| show(name, count));
    }

    /// Each reason's name and how often it occurred.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        R::NAMES.iter().copied().zip(self.counts)
    }
}

/// Declares an enum of reasons, with the name of each.
macro_rules! reasons {
    (
        $(#[$about:meta])*
        $visible:vis enum $name:ident {
            $($(#[doc = $doc:literal])* $reason:ident = $text:literal,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visible enum $name {
            $($(#[doc = $doc])* $reason,)*
        }

        impl $crate::counts::Reason for $name {
            const NAMES: &'static [&'static str] = &[$($text),*];
            const HELP: &'static [&'static str] = &[$(concat!($($doc),*)),*];

            #[inline]
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}
pub(crate) use reasons;

#[cfg(test)]
mod tests {
    use super::*;

    reasons! {
        enum Colour {
            /// Like grass.
            Green = "green",
            /// Like the sky.
            Blue = "blue",
        }
    }

    #[test]
    fn each_reason_has_its_name_and_count() {
        let mut counts = Counts::default();
        counts.add(Colour::Blue);
        counts.add(Colour::Blue);
        assert_eq!(
            (counts.get(Colour::Green), counts.get(Colour::Blue)),
            (0, 2)
        );
        let all: alloc::vec::Vec<_> = counts.iter().collect();
        assert_eq!(all, [("green", 0), ("blue", 2)]);
    }
}
