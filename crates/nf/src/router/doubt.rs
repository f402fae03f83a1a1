//! Connections that began under other rules than a router's hooks have now: these are asked what
//! they would do with the first packet, at each hook that it would pass.

use super::passage::{Hooks, NO_PORT, Passage, Stop, goes_on};
use super::rules::Stage;
use crate::conntrack::{Connection, Doubt, State, Trial};
use crate::ir::Values;
use crate::key::{Key, protocol};
use crate::nft::ast::Hook;
use crate::rule::{Tally, Way};
use core::cell::Cell;

/// Who sends and takes the packet at hand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// It is sent on.
    Through,
    /// It is for the router.
    In,
    /// It is the router's own.
    Out,
}

impl Course {
    /// The hooks of the packet that began the connection.
    fn hooks(self, is_reply: bool) -> &'static [Hook] {
        match (self, is_reply) {
            (Self::Through, _) => &[Hook::Prerouting, Hook::Forward, Hook::Postrouting],
            (Self::In, false) | (Self::Out, true) => &[Hook::Prerouting, Hook::Input],
            (Self::In, true) | (Self::Out, false) => &[Hook::Output, Hook::Postrouting],
        }
    }
}

impl<T: Tally> Hooks<'_, T> {
    /// Ends the connection of a packet if it began under other rules, and these would not let it
    /// begin.
    ///
    /// # Errors
    /// They would not: the packet goes no further.
    #[inline(never)]
    pub(super) fn revalidate(&mut self, passage: &mut Passage, course: Course) -> Result<(), Stop> {
        let connections = self.connections.as_deref();
        let doubt = connections.and_then(|connections| connections.table.doubt(&passage.link));
        let Some(doubt) = doubt else {
            return Ok(());
        };
        let permitted = self.permit(&doubt, passage, course);
        if let Some(connections) = self.connections.as_deref_mut() {
            let table = &mut connections.table;
            table.conclude_doubt(&mut passage.link, permitted.is_ok());
        }
        if let Err(Stop::Rule(rule) | Stop::Rejected(rule, _)) = permitted {
            self.tally.count(rule);
        }
        permitted
    }

    fn permit(&mut self, doubt: &Doubt, passage: &Passage, course: Course) -> Result<(), Stop> {
        let mut key = passage.key.beginning(doubt.name(), doubt.is_reply);
        let way = match doubt.is_reply {
            true => passage.way.back(),
            false => passage.way,
        };
        // Before connections are looked up, it has none; and rules may say that it gets none.
        let mut state = State::Invalid;
        let mut is_known = false;
        let mut zone = None;
        let (mark, mut kept) = (Cell::new(0), 0);
        let rules = self.rules;
        for hook in course.hooks(doubt.is_reply) {
            for stage in rules.stages(*hook) {
                match stage {
                    Stage::Track => is_known = state == State::Invalid || zone.is_some(),
                    Stage::Translate(_) => call(&mut key, doubt, *hook),
                    Stage::Filter(chain) => {
                        let none = Connection::none(state);
                        let mut ask = |connection: &Connection<'_>| {
                            if let (Some(zone), false) = (zone, is_known) {
                                connection.is_in_zone(zone);
                            }
                            connection.set_mark(kept);
                            let values = Values {
                                key: &key,
                                way: at(way, *hook),
                                connection: Some(connection),
                                mark: &mark,
                            };
                            let (end, rule) = rules.ask(chain, &values, &mut Trial(self.tally));
                            (state, kept) = (connection.state(), connection.mark());
                            zone = connection.zone().or(zone);
                            goes_on(end, rule)
                        };
                        match is_known {
                            true => doubt.begin(ask).unwrap_or(Ok(()))?,
                            false => ask(&none)?,
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// What is known at a hook of the way of a packet.
fn at(way: Way, hook: Hook) -> Way {
    match hook {
        Hook::Prerouting => Way { to: NO_PORT, ..way },
        _ => way,
    }
}

/// Calls one end of the packet what the connection has called it since it began.
fn call(key: &mut Key, doubt: &Doubt, hook: Hook) {
    let reply = doubt.reply();
    let has_ports = matches!(reply.protocol, protocol::TCP | protocol::UDP);
    let [source, destination] = reply.ports.map(|port| has_ports.then_some(port));
    match hook {
        Hook::Prerouting | Hook::Output => key.translate(false, reply.source, source),
        Hook::Input | Hook::Forward | Hook::Postrouting => {
            key.translate(true, reply.destination, destination);
        }
    }
}
