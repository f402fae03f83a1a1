//! The life of a component's spare as a state machine: an instance that is loaded and not started,
//! so that the next run begins sooner. As [`super::machine`], it has no clock and touches nothing.

use std::time::Duration;

/// How long after a component is up its spare is loaded: what it does first comes first.
pub const LOAD_AFTER: Duration = Duration::from_millis(50);
/// How long a spare may take until it is loaded.
pub const LOAD_MAX: Duration = Duration::from_secs(10);
/// How long nothing is loaded behind a spare that could not be.
pub const PAUSE: Duration = Duration::from_secs(30);

/// Where a spare is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// There is none, and none is wanted.
    #[default]
    None,
    /// There is none.
    Wanted {
        /// When it is loaded.
        from: Duration,
    },
    /// It has a process.
    Loading {
        /// When it is given up.
        until: Duration,
    },
    /// It waits to begin.
    Loaded,
}

/// What happens to a spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// One is wanted from then on.
    Want(Duration),
    /// It says that it is loaded.
    Loaded,
    /// Its process has ended, or could not be started.
    Ended,
    /// The component starts: with the spare if it is loaded, and without otherwise.
    Start,
    /// It is of no use any more, and no other one is wanted.
    Drop,
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Its process is to be started.
    Load,
    /// It is to become the component.
    Wake,
    /// Its process is to be ended.
    Dismiss,
}

impl State {
    /// When the next [`Event::Tick`] changes something, if nothing else happens.
    pub fn deadline(self) -> Option<Duration> {
        match self {
            Self::Wanted { from } => Some(from),
            Self::Loading { until } => Some(until),
            Self::None | Self::Loaded => None,
        }
    }

    /// Whether it has a process.
    pub fn has_process(self) -> bool {
        matches!(self, Self::Loading { .. } | Self::Loaded)
    }

    /// Takes an event at the time `now`.
    pub fn take(&mut self, event: Event, now: Duration) -> Option<Effect> {
        let before = *self;
        let (after, effect) = match (before, event) {
            (Self::None | Self::Wanted { .. }, Event::Want(from)) => (Self::Wanted { from }, None),
            (Self::Wanted { from }, Event::Tick) if now >= from => {
                let until = now + LOAD_MAX;
                (Self::Loading { until }, Some(Effect::Load))
            }
            (Self::Loading { .. }, Event::Loaded) => (Self::Loaded, None),
            (Self::Loading { until }, Event::Tick) if now >= until => {
                let from = now + PAUSE;
                (Self::Wanted { from }, Some(Effect::Dismiss))
            }
            (Self::Loading { .. } | Self::Loaded, Event::Ended) => {
                let from = now + PAUSE;
                (Self::Wanted { from }, None)
            }
            (Self::Loaded, Event::Start) => (Self::None, Some(Effect::Wake)),
            (Self::Loading { .. }, Event::Start | Event::Drop) | (Self::Loaded, Event::Drop) => {
                (Self::None, Some(Effect::Dismiss))
            }
            (Self::None | Self::Wanted { .. }, Event::Start | Event::Drop) => (Self::None, None),
            _ => (before, None),
        };
        *self = after;
        effect
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn loaded() -> State {
        let mut spare = State::None;
        assert_eq!(spare.take(Event::Want(at(50)), at(0)), None);
        assert_eq!(spare.take(Event::Tick, at(49)), None);
        assert_eq!(spare.take(Event::Tick, at(50)), Some(Effect::Load));
        assert_eq!(spare.take(Event::Tick, at(51)), None);
        assert_eq!(spare.take(Event::Loaded, at(52)), None);
        spare
    }

    #[test]
    fn one_that_is_loaded_becomes_the_component() {
        let mut spare = loaded();
        assert_eq!(spare.deadline(), None);
        assert_eq!(spare.take(Event::Start, at(60)), Some(Effect::Wake));
        assert_eq!(spare, State::None);
        // One that is wanted while there is one changes nothing.
        let mut spare = loaded();
        assert_eq!(spare.take(Event::Want(at(70)), at(60)), None);
        assert_eq!(spare, State::Loaded);
    }

    #[test]
    fn nobody_waits_for_one_that_is_being_loaded() {
        let mut spare = State::None;
        assert_eq!(spare.take(Event::Want(at(0)), at(0)), None);
        assert_eq!(spare.take(Event::Tick, at(0)), Some(Effect::Load));
        assert_eq!(spare.take(Event::Start, at(1)), Some(Effect::Dismiss));
        assert_eq!(spare, State::None);
    }

    #[test]
    fn one_that_cannot_be_loaded_is_tried_again_later() {
        let mut spare = State::None;
        spare.take(Event::Want(at(0)), at(0));
        spare.take(Event::Tick, at(0));
        assert_eq!(spare.take(Event::Ended, at(5)), None);
        assert_eq!(spare.deadline(), Some(at(5) + PAUSE));
        spare.take(Event::Tick, at(5) + PAUSE);
        let late = at(5) + PAUSE + LOAD_MAX;
        assert_eq!(spare.take(Event::Tick, late), Some(Effect::Dismiss));
        assert_eq!(spare.deadline(), Some(late + PAUSE));
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            (0_u64..1000).prop_map(|millis| Event::Want(at(millis))),
            Just(Event::Loaded),
            Just(Event::Ended),
            Just(Event::Start),
            Just(Event::Drop),
            Just(Event::Tick),
        ]
    }

    proptest! {
        #[test]
        fn each_process_is_woken_or_ended_once(
            events in proptest::collection::vec((event(), 0_u64..20_000), 0..200),
        ) {
            let (mut spare, mut now, mut lives) = (State::None, Duration::ZERO, false);
            for (event, millis) in events {
                now += at(millis);
                if matches!(event, Event::Ended | Event::Loaded) && !lives {
                    continue;
                }
                lives &= event != Event::Ended;
                match spare.take(event, now) {
                    Some(Effect::Load) => {
                        prop_assert!(!lives);
                        lives = true;
                    }
                    Some(Effect::Wake | Effect::Dismiss) => {
                        prop_assert!(lives);
                        lives = false;
                    }
                    None => {}
                }
                prop_assert_eq!(spare.has_process(), lives);
            }
        }
    }
}
