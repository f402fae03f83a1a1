//! The life of one component as a state machine: events and the time go in, and out comes what is
//! to be done. It has no clock and touches nothing.

use super::policy::{self, Restart, SOUND};
use std::time::Duration;

/// How long a component may take from its start until it is up: then it has hung.
pub const START_MAX: Duration = Duration::from_secs(10);
/// How long a component may take to end when it is asked to; then it is killed, again and again.
pub const STOP_MAX: Duration = Duration::from_secs(2);

/// Where a component is. Times are those since some start that all events share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Those that it comes after are not up.
    Waiting,
    /// Its process has been started, and it is not up yet.
    Starting {
        /// Since when.
        since: Duration,
    },
    /// It is up.
    Up {
        /// When it was started.
        since: Duration,
    },
    /// It makes no progress, and was asked where it is, which ends it.
    Hanging {
        /// When it was started.
        since: Duration,
        /// When it is killed.
        until: Duration,
    },
    /// It has ended, and is started again later.
    Pausing {
        /// When.
        until: Duration,
    },
    /// It was asked to end.
    Ending {
        /// When it is killed.
        until: Duration,
        /// Whether it is started again.
        again: bool,
    },
    /// It has ended, and is started again only if somebody asks.
    Ended,
}

impl State {
    /// Whether the component has a process.
    pub fn is_running(self) -> bool {
        match self {
            Self::Starting { .. }
            | Self::Up { .. }
            | Self::Hanging { .. }
            | Self::Ending { .. } => true,
            Self::Waiting | Self::Pausing { .. } | Self::Ended => false,
        }
    }
}

/// What happens to a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Those that it comes after are up.
    Allowed,
    /// It says that it is up.
    Ready,
    /// Its process has ended, or could not be started.
    Ended {
        /// Whether with status 0.
        well: bool,
    },
    /// It makes no progress.
    Hung,
    /// Somebody wants it to be started again.
    Restart,
    /// Somebody wants it to end.
    Stop,
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Its process is to be started.
    Start,
    /// Its process is to be asked to end.
    Stop,
    /// Its process is to be asked where it is, and to end.
    Quit,
    /// Its process is to be killed.
    Kill,
}

/// A component's life so far.
#[derive(Debug)]
pub struct Machine {
    restart: Restart,
    state: State,
    /// Short runs, one after the other, the last of them included.
    short_runs: u32,
}

impl Machine {
    /// A component that was not started yet.
    pub fn new(restart: Restart) -> Self {
        Self {
            restart,
            state: State::Waiting,
            short_runs: 0,
        }
    }

    /// A component that was found running, started then.
    pub fn found(restart: Restart, since: Duration) -> Self {
        Self {
            state: State::Up { since },
            ..Self::new(restart)
        }
    }

    /// Where it is.
    pub fn state(&self) -> State {
        self.state
    }

    /// Short runs, one after the other, up to now.
    pub fn short_runs(&self) -> u32 {
        self.short_runs
    }

    /// When the next [`Event::Tick`] changes something, if nothing else happens.
    pub fn deadline(&self) -> Option<Duration> {
        match self.state {
            State::Starting { since } => Some(since + START_MAX),
            State::Pausing { until }
            | State::Hanging { until, .. }
            | State::Ending { until, .. } => Some(until),
            State::Waiting | State::Up { .. } | State::Ended => None,
        }
    }

    /// Takes an event at the time `now`.
    pub fn take(&mut self, event: Event, now: Duration) -> Option<Effect> {
        match (self.state, event) {
            (State::Waiting, Event::Allowed) => Some(self.start(now)),
            (State::Starting { since }, Event::Ready) => {
                self.state = State::Up { since };
                None
            }
            (State::Starting { since }, Event::Tick) if now >= since + START_MAX => {
                // Its end is an event like any other; until then, time goes on from here.
                self.state = State::Starting { since: now };
                Some(Effect::Kill)
            }
            (State::Up { since }, Event::Hung) => {
                let until = now + STOP_MAX;
                self.state = State::Hanging { since, until };
                Some(Effect::Quit)
            }
            (State::Hanging { since, until }, Event::Tick) if now >= until => {
                let until = now + STOP_MAX;
                self.state = State::Hanging { since, until };
                Some(Effect::Kill)
            }
            (
                State::Starting { since } | State::Up { since } | State::Hanging { since, .. },
                Event::Ended { well },
            ) => self.judge(well, since, now),
            (
                State::Starting { .. } | State::Up { .. } | State::Hanging { .. },
                Event::Stop | Event::Restart,
            ) => {
                self.state = State::Ending {
                    until: now + STOP_MAX,
                    again: event == Event::Restart,
                };
                Some(Effect::Stop)
            }
            (State::Pausing { until }, Event::Tick) if now >= until => Some(self.start(now)),
            (State::Ending { until, again }, Event::Tick) if now >= until => {
                self.state = State::Ending {
                    until: now + STOP_MAX,
                    again,
                };
                Some(Effect::Kill)
            }
            (State::Ending { again: true, .. }, Event::Ended { .. }) => Some(self.start(now)),
            (State::Ending { again: false, .. }, Event::Ended { .. })
            | (State::Waiting | State::Pausing { .. }, Event::Stop) => {
                self.state = State::Ended;
                None
            }
            (State::Ending { until, .. }, Event::Stop | Event::Restart) => {
                let again = event == Event::Restart;
                self.state = State::Ending { until, again };
                None
            }
            (State::Pausing { .. } | State::Ended, Event::Restart) => {
                self.short_runs = 0;
                Some(self.start(now))
            }
            _ => None,
        }
    }

    fn start(&mut self, now: Duration) -> Effect {
        self.state = State::Starting { since: now };
        Effect::Start
    }

    /// What follows an end that nobody asked for.
    fn judge(&mut self, well: bool, since: Duration, now: Duration) -> Option<Effect> {
        if !self.restart.follows(well) {
            self.state = State::Ended;
            return None;
        }
        let was_sound = now.saturating_sub(since) >= SOUND;
        let before = if was_sound { 0 } else { self.short_runs };
        self.short_runs = before.saturating_add(1);
        let pause = policy::pause(self.short_runs);
        if pause.is_zero() {
            return Some(self.start(now));
        }
        self.state = State::Pausing { until: now + pause };
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::policy::PAUSE_MAX;
    use proptest::prelude::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn up(restart: Restart) -> Machine {
        let mut machine = Machine::new(restart);
        assert_eq!(machine.take(Event::Allowed, at(0)), Some(Effect::Start));
        assert_eq!(machine.take(Event::Ready, at(1)), None);
        machine
    }

    const BADLY: Event = Event::Ended { well: false };

    #[test]
    fn the_first_crash_is_answered_at_once_and_a_loop_is_slowed() {
        let mut machine = up(Restart::Always);
        assert_eq!(machine.take(BADLY, at(5)), Some(Effect::Start));
        assert_eq!(machine.take(BADLY, at(6)), None);
        assert_eq!(machine.state(), State::Pausing { until: at(106) });
        assert_eq!(machine.deadline(), Some(at(106)));
        assert_eq!(machine.take(Event::Tick, at(105)), None);
        assert_eq!(machine.take(Event::Tick, at(106)), Some(Effect::Start));
        assert_eq!(machine.take(BADLY, at(107)), None);
        assert_eq!(machine.state(), State::Pausing { until: at(307) });
        assert_eq!(machine.short_runs(), 3);
        // A sound run makes it forgotten.
        assert_eq!(machine.take(Event::Tick, at(307)), Some(Effect::Start));
        assert_eq!(machine.take(Event::Ready, at(308)), None);
        let later = at(307) + SOUND;
        assert_eq!(machine.take(BADLY, later), Some(Effect::Start));
        assert_eq!(machine.short_runs(), 1);
    }

    #[test]
    fn who_may_rest_does() {
        let mut machine = up(Restart::OnFailure);
        assert_eq!(machine.take(Event::Ended { well: true }, at(5)), None);
        assert_eq!(machine.state(), State::Ended);
        assert_eq!(machine.take(Event::Restart, at(6)), Some(Effect::Start));
        let mut machine = up(Restart::Never);
        assert_eq!(machine.take(BADLY, at(5)), None);
        assert_eq!((machine.state(), machine.deadline()), (State::Ended, None));
    }

    #[test]
    fn who_does_not_end_is_killed_until_it_has() {
        let mut machine = up(Restart::Always);
        assert_eq!(machine.take(Event::Stop, at(10)), Some(Effect::Stop));
        assert_eq!(machine.take(Event::Tick, at(11)), None);
        let mut now = at(10);
        for _ in 0..3 {
            now += STOP_MAX;
            assert_eq!(machine.take(Event::Tick, now), Some(Effect::Kill));
        }
        assert_eq!(machine.take(BADLY, now), None);
        assert_eq!(machine.state(), State::Ended);
    }

    #[test]
    fn a_restart_that_was_asked_for_has_no_pause() {
        let mut machine = up(Restart::Never);
        for now in (1..9).map(at) {
            assert_eq!(machine.take(Event::Restart, now), Some(Effect::Stop));
            assert_eq!(machine.take(BADLY, now), Some(Effect::Start));
            assert_eq!(machine.short_runs(), 0);
        }
    }

    #[test]
    fn a_start_that_hangs_is_killed() {
        let mut machine = Machine::new(Restart::Always);
        assert_eq!(machine.take(Event::Allowed, at(0)), Some(Effect::Start));
        assert_eq!(machine.deadline(), Some(START_MAX));
        assert_eq!(machine.take(Event::Tick, START_MAX), Some(Effect::Kill));
        assert_eq!(machine.take(Event::Tick, START_MAX), None);
        assert_eq!(machine.take(BADLY, START_MAX), Some(Effect::Start));
    }

    #[test]
    fn who_hangs_is_asked_where_it_is_and_then_killed() {
        let mut machine = up(Restart::Always);
        assert_eq!(machine.take(Event::Hung, at(2)), Some(Effect::Quit));
        assert_eq!(machine.take(Event::Hung, at(3)), None);
        assert_eq!(machine.deadline(), Some(at(2) + STOP_MAX));
        let late = at(2) + STOP_MAX;
        assert_eq!(machine.take(Event::Tick, late), Some(Effect::Kill));
        assert_eq!(machine.take(Event::Tick, late), None);
        // It is an end like any other.
        assert_eq!(machine.take(BADLY, late), Some(Effect::Start));
        assert_eq!(machine.short_runs(), 1);
        let mut machine = up(Restart::Never);
        assert_eq!(machine.take(Event::Hung, at(2)), Some(Effect::Quit));
        assert_eq!(machine.take(BADLY, at(2)), None);
        assert_eq!(machine.state(), State::Ended);
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            Just(Event::Allowed),
            Just(Event::Ready),
            any::<bool>().prop_map(|well| Event::Ended { well }),
            Just(Event::Hung),
            Just(Event::Restart),
            Just(Event::Stop),
            Just(Event::Tick),
        ]
    }

    proptest! {
        #[test]
        fn there_is_one_process_at_most_and_none_is_given_up(
            events in proptest::collection::vec((event(), 0_u64..20_000), 0..200),
        ) {
            let mut machine = Machine::new(Restart::Always);
            let (mut now, mut runs, mut stopped) = (Duration::ZERO, false, false);
            for (event, millis) in events {
                now += Duration::from_millis(millis);
                // Only what runs can end or be ready.
                let of_process = matches!(event, Event::Ended { .. } | Event::Ready);
                if of_process && !runs {
                    continue;
                }
                runs &= !matches!(event, Event::Ended { .. });
                match event {
                    Event::Stop => stopped = true,
                    Event::Restart => stopped = false,
                    _ => {}
                }
                match machine.take(event, now) {
                    Some(Effect::Start) => {
                        prop_assert!(!runs);
                        runs = true;
                    }
                    Some(Effect::Stop | Effect::Quit | Effect::Kill) => prop_assert!(runs),
                    None => {}
                }
                prop_assert_eq!(machine.state().is_running(), runs);
                if let State::Pausing { until } = machine.state() {
                    prop_assert!(until <= now + PAUSE_MAX);
                }
                // With `always`, only who was told to end rests.
                prop_assert!(machine.state() != State::Ended || stopped);
            }
        }
    }
}
