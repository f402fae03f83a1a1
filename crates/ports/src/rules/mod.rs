//! Rules that the host hands over, at the start and while the guest runs; see [`abi::share`].
//!
//! The host writes a text into one of two slots and then a new generation. It can write at any
//! time, so the text is copied and taken only if nothing moved meanwhile. Which rules are in force
//! is said with their counters, so that whoever reads those knows whose they are.

mod kept;

use crate::share::{HostWord, SharedFile};
use abi::share::{Control, RULES_BYTES_MAX, RulesRefused, RulesStatus, SLOTS};
use alloc::string::String;
use alloc::vec::Vec;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering, compiler_fence, fence};
use kept::Kept;

/// How often a text that changed while it was copied is copied again.
const ATTEMPTS_MAX: usize = 8;

/// Takes the rules that the host offers, and answers. An appliance has one.
pub struct Feed {
    share: SharedFile,
    /// The last generation that was accepted or refused.
    answered: u64,
    control: &'static [HostWord],
    status: &'static [AtomicU64],
    kept: Option<Kept>,
    /// Whether rules were in force before.
    began: bool,
}

/// Rules that the host wants to be used: to be accepted or refused.
pub struct Offer {
    generation: u64,
    slot: usize,
    text: String,
    revalidates: bool,
}

impl Offer {
    /// The text, in whatever language.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether connections that began under the rules before are to end unless these let them
    /// begin.
    pub fn revalidates(&self) -> bool {
        self.revalidates
    }
}

/// Counters of the rules in force, in frames and bytes.
#[derive(Clone, Copy)]
pub struct RuleCounters {
    shared: &'static [AtomicU64],
    /// Those that outlive the image; else the same.
    kept: &'static [AtomicU64],
}

impl RuleCounters {
    /// The frames and bytes of a counter.
    pub fn get(self, counter: usize) -> [u64; 2] {
        match self.kept.get(2 * counter..2 * counter + 2) {
            Some([frames, bytes]) => [frames, bytes].map(|word| word.load(Ordering::Relaxed)),
            _ => [0; 2],
        }
    }

    /// A counter has counted so many frames and bytes already.
    pub fn set(self, counter: usize, counted: [u64; 2]) {
        let range = 2 * counter..2 * counter + 2;
        for words in [self.kept, self.shared] {
            let words = words.get(range.clone()).unwrap_or_default();
            for (word, counted) in words.iter().zip(counted) {
                word.store(counted, Ordering::Relaxed);
            }
        }
    }

    /// Counts a frame of so many bytes. A rule behind the last one is not counted.
    #[inline]
    pub fn count(self, rule: usize, bytes: u64) {
        // Written by the guest alone, so that an addition needs no locked instruction. What others
        // see is never more than what is kept.
        let add = |kept: &AtomicU64, shared: &AtomicU64, amount| {
            let sum = kept.load(Ordering::Relaxed).wrapping_add(amount);
            kept.store(sum, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            shared.store(sum, Ordering::Relaxed);
        };
        let range = 2 * rule..2 * rule + 2;
        if let Some([frames, total]) = self.kept.get(range.clone())
            && let Some([shared_frames, shared_total]) = self.shared.get(range)
        {
            add(frames, shared_frames, 1);
            add(total, shared_total, bytes);
        }
    }
}

/// What the host has said, read field by field.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Said {
    generation: u64,
    slot: u64,
    length: u64,
    revalidates: bool,
}

impl Feed {
    /// Begins to listen. Rules that the host gave before the start are the first offer.
    pub fn new(share: &SharedFile) -> Self {
        let (control, status) = (share.control(), share.rules_status());
        let (control, status) = control.zip(status).unwrap_or_default();
        Self {
            share: *share,
            answered: 0,
            control,
            status,
            kept: None,
            began: false,
        }
    }

    /// Keeps counters in memory that outlives the image, where those of the last one may lie: they
    /// go on if the first rules that are used from now on are of the same text.
    pub fn keep(&mut self, memory: &'static mut [u8]) {
        self.kept = Some(Kept::over(memory));
    }

    /// Whether the host wants other rules to be used. One load of memory: to be asked before each
    /// batch of frames. [`crate::Runtime::wait`] returns when the answer may have changed.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.generation(Ordering::Relaxed) != self.answered
    }

    #[inline]
    fn generation(&self, order: Ordering) -> u64 {
        let word = self.control.get(offset_of!(Control, generation) / 8);
        word.map_or(0, |word| word.load(order))
    }

    fn said(&self) -> Said {
        // Acquire: what the host wrote before the generation is seen with it.
        let generation = self.generation(Ordering::Acquire);
        let field = |offset: usize| {
            let word = self.control.get(offset / 8);
            word.map_or(0, |word| word.load(Ordering::Acquire))
        };
        Said {
            generation,
            slot: field(offset_of!(Control, slot)),
            length: field(offset_of!(Control, length)),
            revalidates: generation != 0
                && self
                    .share
                    .revalidate()
                    .is_some_and(|word| word.load(Ordering::Acquire) == generation),
        }
    }

    /// The rules that the host wants to be used, if they are others than those that were accepted
    /// or refused last. What is no text, or does not hold still, is refused here.
    pub fn offer(&mut self) -> Option<Offer> {
        self.offer_while(|| {})
    }

    /// The same, for tests of a host that does not wait: `copied` runs each time that the text was
    /// copied, before it is known whether it held still.
    pub fn offer_while(&mut self, mut copied: impl FnMut()) -> Option<Offer> {
        for _ in 0..ATTEMPTS_MAX {
            let said = self.said();
            // While the host writes the next text, it has no length; the generation follows.
            if said.generation == self.answered || said.length > RULES_BYTES_MAX as u64 {
                return None;
            }
            let text = self.copy(said);
            copied();
            fence(Ordering::Acquire); // The text was read before what follows.
            if self.said() != said {
                continue;
            }
            match text {
                Ok((slot, text)) => {
                    let generation = said.generation;
                    return Some(Offer {
                        generation,
                        slot,
                        text,
                        revalidates: said.revalidates,
                    });
                }
                Err((reason, position)) => {
                    self.refuse_generation(said.generation, reason, position);
                    return None;
                }
            }
        }
        self.refuse_generation(self.said().generation, RulesRefused::Torn, 0);
        None
    }

    /// Uses the rules of this offer from now on: so many of them, policies included. Their counters
    /// begin at zero, unless they are [kept](Self::keep).
    pub fn accept(&mut self, offer: &Offer, rules: usize) -> RuleCounters {
        self.answered = offer.generation;
        if let (true, Some(word)) = (offer.revalidates, self.share.revalidated()) {
            word.store(offer.generation, Ordering::Release);
        }
        self.in_force(offer.generation, offer.slot, &offer.text, rules)
    }

    /// Keeps the rules that are in force; says why, and where in the text, in bytes.
    pub fn refuse(&mut self, offer: &Offer, reason: RulesRefused, position: usize) {
        self.refuse_generation(offer.generation, reason, position);
    }

    /// Uses so many rules that the appliance has by itself, of this text. The host says of them:
    /// generation 0.
    pub fn own(&mut self, text: &str, rules: usize) -> RuleCounters {
        self.in_force(0, 0, text, rules)
    }

    fn in_force(&mut self, generation: u64, slot: usize, text: &str, rules: usize) -> RuleCounters {
        let shared = self.share.rule_counters(slot).unwrap_or_default();
        let shared = shared.get(..2 * rules).unwrap_or(shared);
        let kept = self.kept.as_ref();
        let kept = kept.and_then(|kept| kept.begin(text, rules, !self.began));
        self.began = true;
        for (number, word) in shared.iter().enumerate() {
            let counted = kept.and_then(|kept| kept.get(number));
            let counted = counted.map_or(0, |counted| counted.load(Ordering::Relaxed));
            word.store(counted, Ordering::Relaxed);
        }
        self.say(offset_of!(RulesStatus, slot), slot as u64);
        self.say(offset_of!(RulesStatus, rules), rules as u64);
        self.say(offset_of!(RulesStatus, generation), generation);
        RuleCounters {
            shared,
            kept: kept.unwrap_or(shared),
        }
    }

    fn refuse_generation(&mut self, generation: u64, reason: RulesRefused, position: usize) {
        self.answered = generation;
        self.say(offset_of!(RulesStatus, reason), reason as u64);
        self.say(offset_of!(RulesStatus, position), position as u64);
        self.say(offset_of!(RulesStatus, refused), generation);
    }

    /// Writes a field of [`RulesStatus`].
    fn say(&self, offset: usize, value: u64) {
        if let Some(word) = self.status.get(offset / 8) {
            word.store(value, Ordering::Release);
        }
    }

    /// Copies the text out; where it lies, or why it is none.
    fn copy(&self, said: Said) -> Result<(usize, String), (RulesRefused, usize)> {
        let slot = usize::try_from(said.slot).ok().filter(|slot| *slot < SLOTS);
        let slot = slot.ok_or((RulesRefused::Invalid, 0))?;
        let length = said.length as usize;
        let words = self.share.rules_text(slot).unwrap_or_default();
        let words = words.get(..length.div_ceil(8)).unwrap_or_default();
        let mut bytes = Vec::new();
        let reserved = bytes.try_reserve_exact(8 * words.len());
        reserved.map_err(|_| (RulesRefused::Memory, 0))?;
        for word in words {
            bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        bytes.truncate(length);
        let text = String::from_utf8(bytes);
        let text = text.map_err(|e| (RulesRefused::Invalid, e.utf8_error().valid_up_to()))?;
        Ok((slot, text))
    }
}
