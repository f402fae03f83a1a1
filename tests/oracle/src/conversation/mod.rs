//! Generated conversations, judged by the kernel's connection tracking and by [`nf::conntrack`].
//!
//! Each round makes a file of rules with `ct` and some conversations from one number, its seed. The
//! file goes to nft as a table `inet`, since not every kernel tracks what a bridge forwards, and to
//! `nf` as a table `bridge`, which is the one difference. Each packet goes through a router of the
//! kernel's and, in the same order, through [`nf::conntrack::Conntrack`]. What passed must be the
//! same; and of what passed, its state, direction and status, which the kernel writes into the
//! packet and `nf` finds by the same conditions. Behind a round, both list the same connections,
//! and say for how long each of them stays.

mod generate;
pub(crate) mod listed;
mod packet;
mod router;
mod rules;

pub use packet::{Family, Hosts, Packet, Segment, udp};
pub use router::Router;
pub use rules::StatefulRules;

use crate::bridge::{Error, PORTS};
use fastrand::Rng;
use listed::Listed;
use nf::conntrack::{Conntrack, Sought};
use nf::nft::Limits;
use nf::{Key, RuleSet, Verdict, Way};
use std::fmt;
use std::time::Instant;

/// Conversations of a round.
pub const CONVERSATIONS: u32 = 40;
/// Rounds after which a router has seen enough: the kernel's table holds 262,144 flows.
pub const ROUNDS_PER_ROUTER: u64 = 2000;
/// Flows that our table holds: more than a round has.
const FLOWS: usize = 4096;

/// What rounds have compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compared {
    /// Conversations.
    pub conversations: u64,
    /// Packets.
    pub packets: u64,
    /// Those that passed: of these, the state was compared too.
    pub passed: u64,
    /// Connections that were listed.
    pub listed: u64,
}

impl Compared {
    /// Adds what another round gave.
    pub fn add(&mut self, other: &Self) {
        self.conversations += other.conversations;
        self.packets += other.packets;
        self.passed += other.passed;
        self.listed += other.listed;
    }
}

/// What became of a packet: dropped, or passed with the number of its class of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate(Option<usize>);

impl Fate {
    /// Whether the packet passed.
    pub fn passes(self) -> bool {
        self.0.is_some()
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("drops it"),
            Some(class) => {
                let words = rules::CLASSES.get(class).unwrap_or(&"unknown");
                write!(f, "passes it as {words}")
            }
        }
    }
}

/// Where the judges differ.
#[derive(Debug)]
pub struct Disagreement {
    /// What the round was made from.
    pub seed: u64,
    /// The rules.
    pub rules: String,
    /// The conversation up to the packet in question; none if what was counted differs.
    pub packets: Vec<Packet>,
    /// What the kernel does with that one.
    pub kernel: String,
    /// What `nf` does.
    pub nf: String,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: the kernel {}, nf {}",
            self.seed, self.kernel, self.nf
        )?;
        writeln!(f, "{}", self.rules)?;
        for packet in &self.packets {
            writeln!(f, "  {}", packet.what)?;
        }
        Ok(())
    }
}

/// Both judges, with the same rules.
pub struct Judges<'r> {
    router: &'r Router,
    rules: RuleSet,
    classes: RuleSet,
    connections: Conntrack,
    began: Instant,
}

impl<'r> Judges<'r> {
    /// Loads the rules; what one judge says against them.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn new(
        router: &'r Router,
        rules: &StatefulRules,
    ) -> Result<Result<Self, (String, String)>, Error> {
        let kernel = router.load(&rules.for_kernel())?;
        let load = |text: &str| {
            let loaded = nf::load(text, &PORTS, &Limits::DEFAULT);
            loaded.map_err(|error| error.render("rules.nft", text).to_string())
        };
        let ours = load(&rules.text("bridge"));
        Ok(match (kernel, ours) {
            (Ok(()), Ok(ours)) => Ok(Self {
                router,
                rules: ours,
                classes: load(&rules::classes()).expect("rules of this crate"),
                connections: Conntrack::new(FLOWS, &[3; 16]),
                began: Instant::now(),
            }),
            (kernel, ours) => {
                let said = |said: Option<String>| said.unwrap_or("takes the rules".to_owned());
                Err((said(kernel.err()), said(ours.err())))
            }
        })
    }

    /// What `nf` does with a packet.
    pub fn ours(&mut self, packet: &Packet) -> Fate {
        let way = Way {
            from: packet.from,
            to: 1 - packet.from,
        };
        let now = self.began.elapsed().as_nanos() as u64;
        let mut fate = Fate(None);
        for frame in packet.frames([2; 6], [4; 6]) {
            let Ok(key) = Key::parse(&frame) else {
                return Fate(None);
            };
            let (rules, classes) = (&self.rules, &self.classes);
            let mut class = fate.0;
            let connections = &mut self.connections;
            let judged = connections.judge(&key, &frame, Sought::NOTHING, now, |connection| {
                let judged = rules.verdict_within(&key, way, connection, &mut ());
                class = Some(classes.verdict_within(&key, way, connection, &mut ()).1);
                judged
            });
            let accepted = matches!(judged, Ok((Verdict::Accept, _)));
            fate = Fate(class.filter(|_| accepted));
        }
        fate
    }

    /// What each of them lists.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    fn listed(&self) -> Result<[Listed; 2], Error> {
        let kernel = self.router.connections()?;
        let now = self.began.elapsed().as_nanos() as u64;
        Ok([kernel, listed::ours(&self.connections, now)])
    }

    /// What the kernel does with it.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn kernels(&self, packet: &Packet) -> Result<Fate, Error> {
        Ok(Fate(self.router.send(packet)?.map(usize::from)))
    }
}

/// One round; where the judges differ, if they do. `number` is how many rounds this router has had:
/// no two hosts meet twice.
///
/// # Errors
/// The kernel cannot be asked.
pub fn round(
    router: &Router,
    seed: u64,
    number: u64,
) -> Result<(Compared, Option<Disagreement>), Error> {
    let mut rng = Rng::with_seed(seed);
    let rules = StatefulRules::generate(&mut rng);
    let mut compared = Compared::default();
    router.forget_connections()?;
    let mut judges = match Judges::new(router, &rules)? {
        Ok(judges) => judges,
        Err((kernel, nf)) => {
            let rules = rules.for_kernel();
            let packets = Vec::new();
            return Ok((
                compared,
                Some(Disagreement {
                    seed,
                    rules,
                    packets,
                    kernel,
                    nf,
                }),
            ));
        }
    };
    let mut sent = Vec::new();
    for conversation in 0..CONVERSATIONS {
        let hosts = 2 + number as u32 * CONVERSATIONS + conversation;
        let mut packets = generate::conversation(&mut rng, hosts);
        packets.retain(|packet| packet.parts == 1 || !rules.counts_bytes());
        compared.conversations += 1;
        for (index, packet) in packets.iter().enumerate() {
            let (kernel, nf) = (judges.kernels(packet)?, judges.ours(packet));
            compared.packets += 1;
            compared.passed += u64::from(nf.0.is_some());
            if kernel != nf {
                let disagreement = Disagreement {
                    seed,
                    rules: rules.text("inet"),
                    packets: packets[..=index].to_vec(),
                    kernel: kernel.to_string(),
                    nf: nf.to_string(),
                };
                return Ok((compared, Some(disagreement)));
            }
        }
        sent.extend(packets);
    }
    let [kernel, ours] = judges.listed()?;
    compared.listed += ours.len() as u64;
    let difference = listed::difference(&kernel, &ours);
    let disagreement = difference.map(|(kernel, nf)| Disagreement {
        seed,
        rules: rules.text("inet"),
        packets: listed::about(&kernel, sent),
        kernel,
        nf,
    });
    Ok((compared, disagreement))
}
