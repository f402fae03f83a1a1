//! Rules of a router: they judge packets at each hook that those pass, and translate them.

use super::Work;
use super::start::Error;
use super::work::{Seed, Taken};
use abi::capture::Fate;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use device::ethernet::HEADER_SIZE;
use device::{Batch, Frame, Netif};
use nf::Routes;
use nf::router::{ANSWER_MAX, Arrival, Hooks, Local, Passage, Rejection, Rules, Stop};
use ports::Runtime;

/// Rules in force. A packet goes from hook to hook, before the next one comes; only
/// [`Self::sends`] may come between.
pub struct Gate {
    work: Work<Rules>,
    passage: Passage,
    /// A packet of the router's own.
    own: Passage,
    /// Of each port, what rules call it and its index among the image's devices.
    ports: Vec<(u8, u8)>,
    /// Index of the port that the packet came in by.
    came: u8,
    /// What the sender of the packet is told, if it did not go on.
    rejected: Option<Rejection>,
}

impl Gate {
    /// Begins with the rules of the host, or else those of the command line, or else those that
    /// are built in, which are `texts`. They can name `ports` beside those of the manifest. `seed`
    /// is asked for random bytes once rules ask for connections.
    ///
    /// # Errors
    /// They are no rules, or need more memory than there is, or random bytes.
    pub fn start(
        runtime: &'static Runtime,
        ports: &[&'static str],
        texts: [&str; 2],
        seed: Seed,
    ) -> Result<Self, Error> {
        Ok(Self {
            work: Work::start(runtime, ports, texts, seed)?,
            passage: Passage::new(),
            own: Passage::new(),
            ports: Vec::new(),
            came: 0,
            rejected: None,
        })
    }

    /// What is to be said of connections that the last instance left.
    pub fn said(&self) -> Option<&str> {
        self.work.said()
    }

    /// Judges packets of this port as well. Ports are numbered in this order.
    pub fn add(&mut self, port: &dyn Netif) {
        let index = port.wait_handle().0;
        self.ports.push((self.work.number(port.name()), index));
    }

    /// Uses the rules that the host wants to be used, if it has new ones. To be called before each
    /// batch; if there is nothing new, it costs one load of memory.
    #[inline]
    pub fn refresh(&mut self) {
        self.work.refresh();
    }

    /// Brings near what the frames of a batch will need, before each of them is judged.
    #[inline]
    pub fn look_ahead(&self, batch: &Batch) {
        if let Some(connections) = &self.work.tracking.connections {
            let table = &connections.table.table;
            table.look_ahead(batch.iter().map(Frame::bytes));
        }
    }

    /// Whether a packet goes on that has come in by this port, at which the router has the
    /// addresses `local`. Its destination may be another one behind this. `routes` has the router's
    /// own numbers of ports.
    #[inline]
    pub fn arrives(
        &mut self,
        frame: &mut Frame,
        port: usize,
        local: Local,
        routes: &dyn Routes,
    ) -> bool {
        let (port, index) = self.port(port);
        self.came = index;
        self.rejected = None;
        let arrival = Arrival {
            port,
            local,
            partial: is_partial(frame),
        };
        self.ask(frame, Some(routes), |hooks, passage, bytes| {
            hooks.prerouting(passage, bytes, arrival)
        })
    }

    /// Whether the packet that has arrived may come to the router itself.
    #[inline]
    pub fn enters(&mut self, frame: &mut Frame, routes: &dyn Routes) -> bool {
        self.ask(frame, Some(routes), |hooks, passage, bytes| {
            hooks.input(passage, bytes)
        })
    }

    /// Whether the packet that has arrived may leave by this port.
    #[inline]
    pub fn passes(&mut self, frame: &mut Frame, to: usize, routes: &dyn Routes) -> bool {
        let (to, _) = self.port(to);
        self.ask(frame, Some(routes), |hooks, passage, _| {
            hooks.forward(passage, to)
        })
    }

    /// Whether the packet leaves by this port, at which the router has the addresses `local`. Its
    /// source may be another one behind this.
    #[inline]
    pub fn leaves(&mut self, frame: &mut Frame, to: usize, local: Local) -> bool {
        let (to, _) = self.port(to);
        self.ask(frame, None, |hooks, passage, bytes| {
            hooks.postrouting(passage, bytes, to, local)
        })
    }

    /// What the sender of the packet that has not gone on is told, if rules say so.
    #[inline]
    pub fn rejected(&self) -> Option<Rejection> {
        self.rejected
    }

    /// Writes the frame that says so, without addresses of the link; see [`Passage::answer`].
    pub fn answer(
        &self,
        rejection: Rejection,
        frame: &Frame,
        own: IpAddr,
        place: &mut [u8; ANSWER_MAX],
    ) -> Option<usize> {
        self.passage.answer(rejection, frame.bytes(), own, place)
    }

    /// Whether that frame leaves by this port.
    pub fn answers(&mut self, answer: &mut Frame, to: usize, local: Local) -> bool {
        let (to, _) = self.port(to);
        let mut own = core::mem::take(&mut self.own);
        let answers = self.ask(answer, None, |hooks, rejected, bytes| {
            hooks.answers(rejected, &mut own, bytes, to, local)
        });
        self.own = own;
        answers
    }

    /// Whether a packet of the router's own leaves by this port.
    pub fn sends(&mut self, frame: &mut Frame, to: usize, local: Local) -> bool {
        let (to, index) = self.port(to);
        let came = core::mem::replace(&mut self.came, index);
        core::mem::swap(&mut self.passage, &mut self.own);
        let rejected = self.rejected;
        let partial = is_partial(frame);
        let sends = self.ask(frame, None, |hooks, passage, bytes| {
            hooks.output(passage, bytes, to, partial)?;
            hooks.postrouting(passage, bytes, to, local)
        });
        core::mem::swap(&mut self.passage, &mut self.own);
        (self.came, self.rejected) = (came, rejected);
        sends
    }

    fn port(&self, number: usize) -> (u8, u8) {
        self.ports.get(number).copied().unwrap_or((u8::MAX, 0))
    }

    /// Whether a hook lets the packet go on. What does not is counted by reason at the port that it
    /// came in by, and can be captured with its fate.
    #[inline]
    fn ask(
        &mut self,
        frame: &mut Frame,
        routes: Option<&dyn Routes>,
        hook: impl FnOnce(&mut Hooks<'_, Taken<'_>>, &mut Passage, &mut [u8]) -> Result<(), Stop>,
    ) -> bool {
        let Self {
            work,
            passage,
            came,
            rejected,
            ports: numbers,
            ..
        } = self;
        let routes = routes.map(|routes| Numbered { routes, numbers });
        let now = work.log.now(work.runtime);
        let bytes = frame.len();
        let mut taken = Taken {
            runtime: work.runtime,
            counters: work.counters,
            log: &mut work.log,
            ports: &work.ports,
            // Frames with tags come to no router.
            link: HEADER_SIZE,
            bytes,
            routes: routes.as_ref().map(|routes| routes as &dyn Routes),
        };
        let connections = work.tracking.connections.as_mut();
        let mut hooks = Hooks {
            rules: &work.rules,
            connections: connections.map(|connections| &mut connections.table),
            now,
            tally: &mut taken,
        };
        let stopped = match hook(&mut hooks, passage, frame.bytes_mut()) {
            Ok(()) => return true,
            Err(stopped) => stopped,
        };
        match stopped {
            Stop::Malformed(why) => work.refused(frame.bytes(), *came, why.index()),
            Stop::Refused(why) => work.refused(frame.bytes(), *came, why.index()),
            Stop::Rule(rule) | Stop::Rejected(rule, _) => {
                if let Stop::Rejected(_, told) = stopped {
                    *rejected = Some(told);
                }
                work.dropped(frame.bytes(), *came, Fate::Rule(rule as u16));
                false
            }
        }
    }
}

/// What the router knows of addresses, with the numbers of ports that rules have.
struct Numbered<'a> {
    routes: &'a dyn Routes,
    /// As [`Gate::ports`].
    numbers: &'a [(u8, u8)],
}

impl Numbered<'_> {
    /// A port's number among the router's. One that is none of these has no addresses.
    fn own(&self, port: Option<u8>) -> Option<u8> {
        let port = port?;
        let own = self.numbers.iter().position(|(number, _)| *number == port);
        Some(own.map_or(u8::MAX, |own| own as u8))
    }
}

impl Routes for Numbered<'_> {
    fn way(&self, to: IpAddr) -> Option<u8> {
        let own = self.routes.way(to)?;
        self.numbers.get(usize::from(own)).map(|(port, _)| *port)
    }

    fn is_own(&self, address: IpAddr, port: Option<u8>) -> bool {
        self.routes.is_own(address, self.own(port))
    }

    fn is_broadcast(&self, address: Ipv4Addr, port: Option<u8>) -> bool {
        self.routes.is_broadcast(address, self.own(port))
    }
}

/// Whether the checksum of the transport header is left to whoever sends it on.
fn is_partial(frame: &Frame) -> bool {
    frame.has_offload() && frame.offload().checksum.is_some()
}
