//! The rules of a router: which chains are asked at which hook, and in which order.

use crate::fields::Slot;
use crate::ir::{self, Nat, Program, Values};
use crate::key::{Key, ether_type};
use crate::nft::ast::{ChainKind, Family, Hook};
use crate::nft::{self, Error, Limits};
use crate::resolve::{Role, resolve};
use crate::rule::{RuleIndex, Tally, Verdict};
use crate::ruleset::{Cursor, End, RuleSet, Settled};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// When connections are looked up (NF_IP_PRI_CONNTRACK).
pub(crate) const TRACKING: i32 = -200;
/// When destinations are translated (NF_IP_PRI_NAT_DST), and sources (NF_IP_PRI_NAT_SRC), whatever
/// the priorities of the chains that say how.
const DESTINATIONS: i32 = -100;
const SOURCES: i32 = 100;

/// The rules of a router, of tables `inet`, `ip` and `ip6`.
#[derive(Debug)]
pub struct Rules {
    set: RuleSet,
    /// By the number of the hook.
    hooks: [Box<[Stage]>; Hook::ALL.len()],
    /// What rules translate to, by number.
    nats: Box<[Nat]>,
    /// What is said at each hook of packets of IPv4 whose connections are open, if no hook asks for
    /// anything else before it lets them go on.
    open: Option<[Box<[Settled]>; Hook::ALL.len()]>,
}

/// What happens at a hook, one after the other.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// The connection is looked up.
    Track,
    /// A chain decides.
    Filter(Chain),
    /// The connection is translated; if it begins, as these chains say.
    Translate(Box<[Chain]>),
}

/// A chain at a hook.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    base: Cursor,
    family: Family,
    policy: Verdict,
    /// The policy's place among the counters.
    counter: RuleIndex,
    /// What it says of packets of open connections.
    settled: Option<Settled>,
}

impl Rules {
    /// Reads a text of rules. `ports` are the names of the router's ports, for `iifname` and
    /// `oifname`; hooks refer to them by position.
    ///
    /// # Errors
    /// The first thing in the text that is not accepted.
    pub fn load(text: &str, ports: &[&str], limits: &Limits) -> Result<Self, Error> {
        let file = nft::parse(text, limits)?;
        Ok(Self::new(resolve(&file, ports, limits, Role::Router)?))
    }

    pub(crate) fn new(mut program: Program) -> Self {
        let bases = program.bases.clone();
        let nats = core::mem::take(&mut program.nats).into();
        let set = program.compile();
        let chains: Vec<(ir::Base, Chain)> = bases
            .iter()
            .enumerate()
            .map(|(number, base)| (*base, Chain::new(&set, base, number)))
            .collect();
        let hooks = Hook::ALL.map(|hook| stages(hook, &chains));
        Self {
            open: open(&hooks),
            hooks,
            nats,
            set,
        }
    }

    /// Number of rules. Behind their counters are those of the policies of base chains, in the
    /// order of the file; [`crate::Listing`] says what each is called.
    pub fn len(&self) -> RuleIndex {
        self.set.len()
    }

    /// Whether policies alone decide.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Number of counters: of rules, of the policies of base chains, and of objects that have a
    /// name.
    pub fn counters(&self) -> usize {
        self.set.counters()
    }

    /// Counters and quotas that have a name; see [`RuleSet::named`].
    pub fn named(&self) -> impl Iterator<Item = (&str, RuleIndex)> {
        self.set.named()
    }

    /// Quotas go on from what was counted; see [`RuleSet::take_up`].
    pub fn take_up(&self, bytes: impl Fn(RuleIndex) -> u64) {
        self.set.take_up(bytes);
    }

    /// Whether a rule asks for connections, or a chain translates them: else they need not be
    /// tracked.
    pub fn tracks(&self) -> bool {
        let mut stages = self.hooks.iter().flatten();
        self.set.tracks() || stages.any(|stage| matches!(stage, Stage::Translate(_)))
    }

    /// The rules of all chains, with the sets that those change.
    pub fn set(&self) -> &RuleSet {
        &self.set
    }

    /// See [`RuleSet::remembers`].
    pub fn remembers(&self) -> bool {
        self.set.remembers()
    }

    /// See [`RuleSet::begin`].
    pub fn begin(&mut self, secret: &[u8; 16], now: u64, before: Option<&Self>) {
        self.set
            .begin(secret, now, before.map(|before| &before.set));
    }

    /// Bytes of heap that the rules take.
    pub fn memory(&self) -> usize {
        let stages = self.hooks.iter().flatten();
        let chains = stages.map(|stage| match stage {
            Stage::Translate(chains) => size_of_val(&**chains),
            Stage::Track | Stage::Filter(_) => 0,
        });
        let hooks = self.hooks.iter().map(|stages| size_of_val(&**stages));
        let open = self.open.iter().flatten();
        let open = open.map(|said| size_of_val(&**said)).sum::<usize>();
        let stages = chains.sum::<usize>() + hooks.sum::<usize>();
        self.set.memory() + size_of_val(&*self.nats) + stages + open
    }

    /// What is said at a hook of packets of IPv4 whose connections are open, one rule after the
    /// other, if that is known of all hooks on the way through the router.
    #[inline(always)]
    pub(super) fn open(&self, hook: Hook) -> Option<&[Settled]> {
        self.open.as_ref().map(|open| &*open[hook as usize])
    }

    pub(super) fn stages(&self, hook: Hook) -> &[Stage] {
        &self.hooks[hook as usize]
    }

    /// What the rules of a chain say, and who says it; of a packet that the chain does not see,
    /// that it goes on.
    pub(super) fn ask(
        &self,
        chain: &Chain,
        values: &Values<'_>,
        tally: &mut impl Tally,
    ) -> (End, RuleIndex) {
        if !chain.sees(values.key) {
            return (End::Verdict(Verdict::Accept), chain.counter);
        }
        let ended = self.set.walk(chain.base, values, tally);
        ended.unwrap_or_else(|| {
            tally.count(chain.counter);
            (End::Verdict(chain.policy), chain.counter)
        })
    }

    /// A translation, by its number.
    pub(super) fn nat(&self, number: u32) -> &Nat {
        &self.nats[number as usize]
    }
}

impl Chain {
    fn new(set: &RuleSet, base: &ir::Base, number: usize) -> Self {
        Self {
            base: set.chains[base.chain],
            family: base.family,
            policy: base.policy,
            counter: set.len() + number,
            settled: set.settle(set.chains[base.chain]),
        }
    }

    /// What it says of a packet of an open connection, if it asks for nothing else.
    #[inline(always)]
    pub(super) fn settled(
        &self,
        key: &Key,
        tally: &mut impl Tally,
    ) -> Option<(Verdict, RuleIndex)> {
        let settled = self.settled.filter(|_| self.sees(key))?;
        Some(settled.say(tally))
    }

    /// Whether packets of this kind pass it.
    #[inline(always)]
    fn sees(&self, key: &Key) -> bool {
        let network = key.narrow(Slot::Protocol as u8);
        let (ip, ip6) = (
            network == u32::from(ether_type::IPV4),
            network == u32::from(ether_type::IPV6),
        );
        match self.family {
            Family::Ip => ip,
            Family::Ip6 => ip6,
            Family::Inet => ip || ip6,
            Family::Bridge => false,
        }
    }
}

/// What is said of packets of IPv4 whose connections are open, where that is known of all hooks on
/// the way through the router, and where they all go on.
fn open(hooks: &[Box<[Stage]>; Hook::ALL.len()]) -> Option<[Box<[Settled]>; Hook::ALL.len()]> {
    let mut open = Hook::ALL.map(|_| Box::default());
    for hook in [Hook::Prerouting, Hook::Forward, Hook::Postrouting] {
        let mut said = Vec::new();
        // Before connections are looked up, none is known.
        let mut is_known = hook != Hook::Prerouting;
        for stage in &hooks[hook as usize] {
            match stage {
                Stage::Track => is_known = true,
                Stage::Translate(_) => {}
                Stage::Filter(chain) if chain.family == Family::Ip6 => {}
                Stage::Filter(chain) => {
                    let settled = chain.settled.filter(|_| is_known)?;
                    said.push(settled.accepts().then_some(settled)?);
                }
            }
        }
        open[hook as usize] = said.into();
    }
    Some(open)
}

/// What happens at a hook. Of what has the same priority, the kernel does first what was registered
/// last; it translates from the first chain of the type `nat` on.
fn stages(hook: Hook, chains: &[(ir::Base, Chain)]) -> Box<[Stage]> {
    let here = |kind: ChainKind| {
        let chains = chains.iter().enumerate();
        chains.filter(move |(_, (base, _))| base.hook == hook && base.kind == kind)
    };
    let mut stages: Vec<(i32, isize, Stage)> = here(ChainKind::Filter)
        .map(|(number, (base, chain))| {
            let last_first = -(number as isize);
            (base.priority, last_first, Stage::Filter(*chain))
        })
        .collect();
    if matches!(hook, Hook::Prerouting | Hook::Output) {
        stages.push((TRACKING, 0, Stage::Track));
    }
    let translates = |(base, _): &(ir::Base, Chain)| base.kind == ChainKind::Nat;
    let priority = match hook {
        Hook::Prerouting | Hook::Output => Some(DESTINATIONS),
        Hook::Input | Hook::Postrouting => Some(SOURCES),
        Hook::Forward => None,
    };
    if let (Some(first), Some(priority)) = (chains.iter().position(translates), priority) {
        let mut asked: Vec<(i32, isize, Chain)> = here(ChainKind::Nat)
            .map(|(number, (base, chain))| (base.priority, -(number as isize), *chain))
            .collect();
        asked.sort_by_key(|(priority, order, _)| (*priority, *order));
        let asked = asked.into_iter().map(|(.., chain)| chain).collect();
        stages.push((priority, -(first as isize), Stage::Translate(asked)));
    }
    stages.sort_by_key(|(priority, order, _)| (*priority, *order));
    stages.into_iter().map(|(.., stage)| stage).collect()
}
