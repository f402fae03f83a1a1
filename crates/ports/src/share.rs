//! The shared file as the guest sees it, region by region; see [`abi::share`].
//!
//! Others read and write this memory at any time, so it is touched word by word, by relaxed atomic
//! loads and stores, which are plain instructions. What comes from the host is checked where it is
//! used.

use abi::inquiry::{
    ANSWER_OFFSET, ASK_OFFSET, Answer, Ask, DETAILS_BYTES, DETAILS_OFFSET, RECORDS_BYTES,
};
use abi::share::{
    CAPTURE_OFFSET, CAPTURE_RING_BYTES, CAPTURE_RING_OFFSET, CONTROL_OFFSET, CORE_OFFSET,
    COUNTERS_OFFSET, CaptureHead, Control, LEAVE_OFFSET, MTUS_OFFSET, REVALIDATE_OFFSET,
    REVALIDATED_OFFSET, RULE_COUNTERS_OFFSET, RULES_BYTES_MAX, RULES_MAX, RULES_OFFSET,
    RULES_STATUS_OFFSET, Report, RuleCounter, RulesStatus, SLOTS,
};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = size_of::<AtomicU64>();

/// A word that the host writes and the guest can only read.
#[derive(Debug)]
#[repr(transparent)]
pub struct HostWord(AtomicU64);

impl HostWord {
    /// The value.
    #[inline]
    pub fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    /// A word of a test's own.
    #[cfg(any(test, feature = "puppet"))]
    pub(crate) fn zero() -> Self {
        Self(AtomicU64::new(0))
    }

    /// What the host does.
    #[cfg(any(test, feature = "puppet"))]
    pub(crate) fn store(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }
}

/// The shared file. Each region is there if all of it is mapped.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedFile {
    /// Up to [`CONTROL_OFFSET`].
    guest: &'static [AtomicU64],
    /// From there on.
    host: &'static [HostWord],
}

impl SharedFile {
    /// The file whose words up to [`CONTROL_OFFSET`] are `guest` and from there on `host`. Both are
    /// empty where there is no file, and shorter than that where it ends before.
    pub fn new(guest: &'static [AtomicU64], host: &'static [HostWord]) -> Self {
        Self { guest, host }
    }

    /// Where a guest that panics says who called: the words of a [`Report`].
    pub fn report(&self) -> Option<&'static [AtomicU64]> {
        self.guest.get(words::<Report>(0, 1))
    }

    /// Whether a guest that panics is to end by a fault ([`CORE_OFFSET`]).
    pub fn leaves_core(&self) -> bool {
        let word = self.guest.get(CORE_OFFSET / WORD);
        word.is_some_and(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// The counters; none where there is no shared file.
    pub(crate) fn counters(&self) -> &'static [AtomicU64] {
        let end = self.guest.len().min(RULES_STATUS_OFFSET / WORD);
        self.guest
            .get(COUNTERS_OFFSET / WORD..end)
            .unwrap_or_default()
    }

    /// What the guest says of its rules: the words of a [`RulesStatus`].
    pub(crate) fn rules_status(&self) -> Option<&'static [AtomicU64]> {
        self.guest.get(words::<RulesStatus>(RULES_STATUS_OFFSET, 1))
    }

    /// The word by which the guest says with which rules it judges connections anew.
    pub(crate) fn revalidated(&self) -> Option<&'static AtomicU64> {
        self.guest.get(REVALIDATED_OFFSET / WORD)
    }

    /// The word by which the host asks for that.
    pub(crate) fn revalidate(&self) -> Option<&'static HostWord> {
        self.host.get((REVALIDATE_OFFSET - CONTROL_OFFSET) / WORD)
    }

    /// The counters of the rules in this slot: the words of [`RULES_MAX`] [`RuleCounter`]s.
    pub(crate) fn rule_counters(&self, slot: usize) -> Option<&'static [AtomicU64]> {
        let offset = RULE_COUNTERS_OFFSET + slot * RULES_MAX * size_of::<RuleCounter>();
        let words = words::<RuleCounter>(offset, RULES_MAX);
        self.guest.get(words).filter(|_| slot < SLOTS)
    }

    /// What the guest says of its captures: the words of a [`CaptureHead`].
    pub(crate) fn capture_head(&self) -> Option<&'static [AtomicU64]> {
        self.guest.get(words::<CaptureHead>(CAPTURE_OFFSET, 1))
    }

    /// The ring of captured frames.
    pub(crate) fn capture_ring(&self) -> Option<&'static [AtomicU64]> {
        self.guest
            .get(words::<u8>(CAPTURE_RING_OFFSET, CAPTURE_RING_BYTES))
    }

    /// What the host says: the words of a [`Control`].
    pub(crate) fn control(&self) -> Option<&'static [HostWord]> {
        self.host.get(words::<Control>(0, 1))
    }

    /// The word by which the host says that the guest is to leave.
    pub(crate) fn leave(&self) -> Option<&'static HostWord> {
        self.host.get((LEAVE_OFFSET - CONTROL_OFFSET) / WORD)
    }

    /// The MTU that the host says the network of this index has by now.
    pub(crate) fn mtu(&self, index: u8) -> Option<&'static HostWord> {
        let first = (MTUS_OFFSET - CONTROL_OFFSET) / WORD;
        self.host.get(first + usize::from(index))
    }

    /// What the host asks: the words of an [`Ask`].
    pub(crate) fn ask(&self) -> Option<&'static [HostWord]> {
        self.host.get(words::<Ask>(ASK_OFFSET - CONTROL_OFFSET, 1))
    }

    /// What it asks about in particular: the words at [`DETAILS_OFFSET`].
    pub(crate) fn details(&self) -> Option<&'static [HostWord]> {
        let offset = DETAILS_OFFSET - CONTROL_OFFSET;
        self.host.get(words::<u8>(offset, DETAILS_BYTES))
    }

    /// The words of an [`Answer`], and of the records behind it.
    pub(crate) fn answer(&self) -> Option<&'static [AtomicU64]> {
        let bytes = size_of::<Answer>() + RECORDS_BYTES;
        self.guest.get(words::<u8>(ANSWER_OFFSET, bytes))
    }

    /// The text of rules in this slot, [`RULES_BYTES_MAX`] bytes.
    pub(crate) fn rules_text(&self, slot: usize) -> Option<&'static [HostWord]> {
        let offset = RULES_OFFSET - CONTROL_OFFSET + slot * RULES_BYTES_MAX;
        let words = words::<u8>(offset, RULES_BYTES_MAX);
        self.host.get(words).filter(|_| slot < SLOTS)
    }
}

/// The words of `count` values that begin at `offset`, in bytes.
const fn words<T>(offset: usize, count: usize) -> Range<usize> {
    offset / WORD..(offset + count * size_of::<T>()) / WORD
}
