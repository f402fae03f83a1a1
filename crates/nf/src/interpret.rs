//! The naive interpreter: it walks rules statement by statement, as nft does. It says what
//! [`crate::RuleSet`] must do, and which way a frame took.

use crate::conntrack::Connection;
use crate::fields::Slot;
use crate::ir::{Outcome, Program, Statement, Values, lacks};
use crate::key::Key;
use crate::rule::{Moment, RuleIndex, Tally, Verdict, Way};
use alloc::vec::Vec;
use core::cell::Cell;

/// What several fields are called together.
const CONCATENATION: &str = "concatenation";
/// What a set that changes is called, and what its elements have of their own.
const CHANGING: &str = "set";

/// What one rule did with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The rule, or the policy.
    pub rule: RuleIndex,
    /// Number of jumps that are open.
    pub depth: usize,
    /// What came of it.
    pub effect: Effect,
}

/// What came of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This field had another value, or the frame has no such field, or did not pass the `limit`;
    /// what stood in front of the condition was done.
    Mismatch(&'static str),
    /// All conditions held, and the next rule follows.
    Continue,
    /// It went back behind the last jump, or to the policy.
    Return,
    /// It jumped.
    Jump,
    /// It went to another chain for good.
    Goto,
    /// It gave the verdict.
    Verdict(Verdict),
}

impl Program {
    /// The verdict, who gave it, and each step on the way there. The connection keeps its mark.
    pub fn explain(
        &self,
        key: &Key,
        way: Way,
        connection: Option<&Connection<'_>>,
    ) -> (Verdict, Vec<Step>) {
        let mut steps = Vec::new();
        let values = Values {
            key,
            way,
            connection,
            mark: &Cell::new(0),
        };
        let mark = connection.map(Connection::mark);
        let (verdict, _) = self.walk(&values, &mut (), |step| steps.push(step));
        if let (Some(connection), Some(mark)) = (connection, mark) {
            connection.set_mark(mark);
        }
        (verdict, steps)
    }

    /// What [`crate::RuleSet::verdict`] does, by walking.
    pub fn verdict(&self, key: &Key, way: Way, tally: &mut impl Tally) -> (Verdict, RuleIndex) {
        let connection = None;
        let values = Values {
            key,
            way,
            connection,
            mark: &Cell::new(0),
        };
        self.walk(&values, tally, |_| {})
    }

    fn walk(
        &self,
        values: &Values<'_>,
        tally: &mut impl Tally,
        mut trace: impl FnMut(Step),
    ) -> (Verdict, RuleIndex) {
        let base = &self.bases[0];
        let mut rules = self.chains[base.chain].rules.clone();
        let mut jumps = Vec::new();
        loop {
            let Some(rule) = rules.next() else {
                match jumps.pop() {
                    Some(caller) => rules = caller,
                    None => break,
                }
                continue;
            };
            let effect = self.run(rule, values, tally);
            trace(Step {
                rule,
                depth: jumps.len(),
                effect: effect.map_or_else(Effect::Mismatch, effect_of),
            });
            match effect {
                Err(_) | Ok(Outcome::Continue | Outcome::Map(_)) => {}
                Ok(Outcome::Verdict(verdict)) => return (verdict, rule),
                Ok(Outcome::Nat(_)) => return (Verdict::Accept, rule),
                Ok(Outcome::Reject(_)) => return (Verdict::Drop, rule),
                Ok(Outcome::Return) => rules = 0..0,
                Ok(Outcome::Jump(chain)) => {
                    let target = self.chains[chain as usize].rules.clone();
                    jumps.push(core::mem::replace(&mut rules, target));
                }
                Ok(Outcome::Goto(chain)) => rules = self.chains[chain as usize].rules.clone(),
            }
        }
        let policy = self.len();
        tally.count(policy);
        trace(Step {
            rule: policy,
            depth: 0,
            effect: Effect::Verdict(base.policy),
        });
        (base.policy, policy)
    }

    /// Whether there are so many connections.
    fn count(&self, number: u32, values: &Values<'_>) -> Result<(), &'static str> {
        let passes = self.censuses[number as usize].passes(values.connection);
        passes.then_some(()).ok_or("ct count")
    }

    /// Whether a quota lets the frame pass.
    fn ask_quota(&self, number: u32, tally: &mut impl Tally) -> Result<(), &'static str> {
        let passes = self.quotas[number as usize].ask(self.first_named(), tally);
        passes.then_some(()).ok_or("quota")
    }

    /// Does what a statement does with a connection, if there is one.
    fn tell(&self, statement: &Statement, values: &Values<'_>) {
        let Some(connection) = values.connection else {
            return;
        };
        match statement {
            Statement::Timeout(number) => {
                let (protocol, timeouts) = &self.timeouts[*number as usize];
                connection.set_timeouts(*protocol, timeouts);
            }
            Statement::Zone(zone) => connection.set_zone(*zone),
            Statement::Untrack => connection.untrack(),
            _ => {}
        }
    }

    /// What comes of one rule, or the field that does not match.
    fn run(
        &self,
        rule: RuleIndex,
        values: &Values<'_>,
        tally: &mut impl Tally,
    ) -> Result<Outcome, &'static str> {
        for statement in &self.rules[rule].statements {
            match statement {
                Statement::Match(condition) => {
                    let value = condition.read(values);
                    let set = &self.sets[condition.set as usize];
                    if !set.iter().any(|(low, high)| (low..=high).contains(&&value)) {
                        return Err(condition.slot.name());
                    }
                }
                Statement::Joint { joint, negated } => {
                    let joint = &self.joints[*joint as usize];
                    let held = joint.find(values).is_some();
                    if lacks(&joint.slots, values) || held == *negated {
                        return Err(CONCATENATION);
                    }
                }
                Statement::Count => tally.count(rule),
                Statement::CountNamed(number) => tally.count(self.first_named() + *number as usize),
                Statement::Log(prefix) => tally.log(rule, prefix, values.key, values.way),
                Statement::Limit(number) => {
                    let Moment { now, bytes } = tally.moment();
                    if !self.limits[*number as usize].passes(now, bytes) {
                        return Err("limit");
                    }
                }
                Statement::Census(number) => self.count(*number, values)?,
                Statement::Use(number) => {
                    let asked = &self.uses[*number as usize];
                    let set = &self.changing[asked.set as usize];
                    if !set.apply(&asked.layout, asked.what, values, tally.moment()) {
                        return Err(CHANGING);
                    }
                }
                Statement::Quota(number) => self.ask_quota(*number, tally)?,
                Statement::Fib(number) => {
                    let fib = &self.fibs[*number as usize];
                    if !fib.holds(values.key, values.way, tally.routes()) {
                        return Err("fib");
                    }
                }
                Statement::Mark(set) => set.run(values),
                Statement::Timeout(_) | Statement::Zone(_) | Statement::Untrack => {
                    self.tell(statement, values);
                }
                Statement::End(Outcome::Map(number)) => {
                    let map = &self.maps[*number as usize];
                    let find = |joint| self.joints[joint as usize].find(values);
                    let found = map.find(values, find);
                    let outcome = found.ok_or(map.slot().map_or(CONCATENATION, Slot::name))?;
                    if map.counts {
                        tally.count(rule);
                    }
                    return Ok(outcome);
                }
                Statement::End(outcome) => return Ok(*outcome),
            }
        }
        Ok(Outcome::Continue)
    }
}

fn effect_of(outcome: Outcome) -> Effect {
    match outcome {
        Outcome::Continue | Outcome::Map(_) => Effect::Continue,
        Outcome::Verdict(verdict) => Effect::Verdict(verdict),
        Outcome::Nat(_) => Effect::Verdict(Verdict::Accept),
        Outcome::Reject(_) => Effect::Verdict(Verdict::Drop),
        Outcome::Return => Effect::Return,
        Outcome::Jump(_) => Effect::Jump,
        Outcome::Goto(_) => Effect::Goto,
    }
}
