//! A server of DHCP (RFC 2131, 4.3) as a pure function: clients' messages and time go in, answers
//! come out.
//!
//! It lends the addresses of one range in the network of one port. It waits for nothing: times are
//! compared when a message comes. What it has lent, it forgets when it ends, unless it has a
//! [`Shelf`] for that; a client that renews then what nobody else has goes on with it.

mod message;
pub(crate) mod shelf;
mod table;
#[cfg(test)]
mod tests;

pub use message::{ANSWER_MAX, Answer};
pub use shelf::{PLACE_BYTES, Shelf, VERSION};

use super::SERVERS_MAX;
use super::message::{MTU_MIN, is_station};
use crate::address::Prefix;
use arrayvec::ArrayVec;
use core::fmt;
use core::net::Ipv4Addr;
use core::time::Duration;
use message::Ask;
use ports::Instant;
use smoltcp::wire::DhcpMessageType;
use table::{Standing, Table};

/// The port of clients.
pub use smoltcp::wire::DHCP_CLIENT_PORT as CLIENT_PORT;
/// The port of servers (RFC 2131, 4.1).
pub use smoltcp::wire::DHCP_SERVER_PORT as PORT;

/// Most addresses of a range.
pub const RANGE_MAX: usize = 1024;
/// How long an address is lent.
pub const LEASE_TIME: Duration = Duration::from_secs(3600);
/// How long an address is kept for whom it was offered.
const OFFER_TIME: Duration = Duration::from_secs(60);
/// How long nobody gets an address that somebody else was found to have.
const DECLINED_TIME: Duration = Duration::from_secs(600);

/// What a server lends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    own: Prefix<Ipv4Addr>,
    first: Ipv4Addr,
    last: Ipv4Addr,
    servers: ArrayVec<Ipv4Addr, SERVERS_MAX>,
    mtu: Option<u16>,
    time: Duration,
}

/// Why a range cannot be lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeError {
    /// It ends before it begins.
    Order,
    /// It is not in the port's network, or has an address there that is no station's.
    Network,
    /// It has more than [`RANGE_MAX`] addresses.
    TooMany,
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order => f.write_str("the first address comes before the last one"),
            Self::Network => f.write_str("both addresses are stations' in the port's network"),
            Self::TooMany => write!(f, "write at most {RANGE_MAX} addresses"),
        }
    }
}

impl core::error::Error for RangeError {}

impl Config {
    /// Lends addresses from `first` to `last`, without our own, at a port with the address `own`,
    /// which is the clients' router.
    ///
    /// # Errors
    /// [`RangeError`].
    pub fn new(own: Prefix<Ipv4Addr>, first: Ipv4Addr, last: Ipv4Addr) -> Result<Self, RangeError> {
        let span = last.to_bits().checked_sub(first.to_bits());
        let span = span.ok_or(RangeError::Order)? as usize;
        let host = u32::MAX.checked_shr(own.bits().into()).unwrap_or(0);
        let network = Ipv4Addr::from_bits(own.address().to_bits() & !host);
        let is_edge = own.bits() < 31 && first == network || own.broadcast() == Some(last);
        let is_inside = own.contains(first) && own.contains(last);
        if !is_inside || is_edge || !is_station(&first) || !is_station(&last) {
            return Err(RangeError::Network);
        }
        if span >= RANGE_MAX {
            return Err(RangeError::TooMany);
        }
        Ok(Self {
            own,
            first,
            last,
            servers: ArrayVec::new(),
            mtu: None,
            time: LEASE_TIME,
        })
    }

    /// With these servers of names; at most [`SERVERS_MAX`] are told.
    pub fn with_servers(self, servers: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        let servers = servers.into_iter().take(SERVERS_MAX).collect();
        Self { servers, ..self }
    }

    /// With this MTU, in bytes, unless no network has it.
    pub fn with_mtu(self, mtu: u16) -> Self {
        let mtu = Some(mtu).filter(|mtu| *mtu >= MTU_MIN);
        Self { mtu, ..self }
    }

    /// Our address, and the network.
    pub fn own(&self) -> Prefix<Ipv4Addr> {
        self.own
    }

    /// The first address and the last one.
    pub fn range(&self) -> (Ipv4Addr, Ipv4Addr) {
        (self.first, self.last)
    }

    pub(crate) fn servers(&self) -> &[Ipv4Addr] {
        &self.servers
    }

    pub(crate) fn mtu(&self) -> Option<u16> {
        self.mtu
    }

    pub(crate) fn time(&self) -> Duration {
        self.time
    }
}

/// Why a message gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// It is no message of a client.
    Malformed,
    /// A relay has sent it: we serve one link.
    Relayed,
    /// It is for another server.
    Server,
    /// Nothing is known of the client, or of the address: another server may know.
    Unknown,
    /// The address is not the sender's.
    Address,
    /// All addresses are lent.
    Full,
}

/// A server.
#[derive(Debug)]
pub struct Server {
    config: Config,
    table: Table,
}

impl Server {
    /// A server that has lent nothing.
    pub fn new(config: Config) -> Self {
        let table = Table::new(config.range(), config.own.address());
        Self { config, table }
    }

    /// The same with a shelf: it goes on with what the server before has lent of its addresses, and
    /// notes down there what it lends.
    pub fn with_shelf(mut self, shelf: Shelf, now: Instant) -> Self {
        self.table.keep(shelf, now);
        self
    }

    /// How many addresses are lent.
    pub fn lent(&self, now: Instant) -> usize {
        self.table.lent(now)
    }

    /// What it lends.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes a client's message that came from an address; what is to be answered, if it is a
    /// question.
    ///
    /// # Errors
    /// Why it is not heeded.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        from: Ipv4Addr,
        now: Instant,
    ) -> Result<Option<Answer>, Ignored> {
        let ask = Ask::read(bytes)?;
        match ask.kind {
            DhcpMessageType::Discover => self.discover(ask, now).map(Some),
            DhcpMessageType::Request => self.request(ask, now).map(Some),
            DhcpMessageType::Inform => self.inform(ask, from).map(Some),
            DhcpMessageType::Decline => self.decline(&ask, now).map(|()| None),
            DhcpMessageType::Release => self.release(&ask, from, now).map(|()| None),
            _ => Err(Ignored::Malformed),
        }
    }

    fn own(&self) -> Ipv4Addr {
        self.config.own.address()
    }

    /// RFC 2131, 4.3.1.
    fn discover(&mut self, ask: Ask, now: Instant) -> Result<Answer, Ignored> {
        let chosen = self.table.choose(&ask.key, ask.wanted, now);
        let address = chosen.ok_or(Ignored::Full)?;
        let until = now + OFFER_TIME;
        self.table.offer(ask.key.clone(), address, until, now);
        Ok(answer(DhcpMessageType::Offer, address, ask))
    }

    /// RFC 2131, 4.3.2.
    fn request(&mut self, ask: Ask, now: Instant) -> Result<Answer, Ignored> {
        let had = Some(ask.ours).filter(|ours| !ours.is_unspecified());
        let address = ask.wanted.or(had).ok_or(Ignored::Malformed)?;
        if ask.server.is_some_and(|server| server != self.own()) {
            self.table.withdraw(&ask.key, now);
            return Err(Ignored::Server);
        }
        let is_selecting = ask.server.is_some();
        let standing = self.table.standing(&ask.key, address, now);
        let is_right = match standing {
            Standing::Held => true,
            Standing::Wrong => false,
            // It has moved here from another network, or it is none of what we offer.
            _ if is_selecting || !self.config.own.contains(address) => false,
            // It has been lent it by us before we ended, or will know from another server.
            Standing::Free if ask.wanted.is_none() => true,
            Standing::Free | Standing::Unknown => return Err(Ignored::Unknown),
        };
        if !is_right {
            return Ok(answer(DhcpMessageType::Nak, Ipv4Addr::UNSPECIFIED, ask));
        }
        let until = now + self.config.time;
        self.table.lend(ask.key.clone(), address, until);
        Ok(answer(DhcpMessageType::Ack, address, ask))
    }

    /// RFC 2131, 4.3.5. What says that it has another's address is answered nothing: the answer
    /// would go there.
    fn inform(&self, ask: Ask, from: Ipv4Addr) -> Result<Answer, Ignored> {
        let is_here = self.config.own.contains(ask.ours) && is_station(&ask.ours);
        if !is_here || from != ask.ours || ask.ours == self.own() {
            return Err(Ignored::Address);
        }
        let to = ask.ours;
        let answer = answer(DhcpMessageType::Ack, Ipv4Addr::UNSPECIFIED, ask);
        Ok(Answer { to, ..answer })
    }

    /// RFC 2131, 4.3.3.
    fn decline(&mut self, ask: &Ask, now: Instant) -> Result<(), Ignored> {
        let address = self.named(ask, ask.wanted)?;
        let until = now + DECLINED_TIME;
        let was_lent = self.table.decline(&ask.key, address, until, now);
        was_lent.then_some(()).ok_or(Ignored::Unknown)
    }

    /// RFC 2131, 4.3.4.
    fn release(&mut self, ask: &Ask, from: Ipv4Addr, now: Instant) -> Result<(), Ignored> {
        let address = self.named(ask, Some(ask.ours))?;
        if from != address {
            return Err(Ignored::Address);
        }
        let was_lent = self.table.release(&ask.key, address, now);
        was_lent.then_some(()).ok_or(Ignored::Unknown)
    }

    /// The address of a message that must say that it is for us.
    fn named(&self, ask: &Ask, address: Option<Ipv4Addr>) -> Result<Ipv4Addr, Ignored> {
        match ask.server {
            Some(server) if server == self.own() => address.ok_or(Ignored::Malformed),
            Some(_) => Err(Ignored::Server),
            None => Err(Ignored::Malformed),
        }
    }
}

/// An answer to whom it comes (RFC 2131, 4.1): one who has the address already gets it there, all
/// others as everybody does.
fn answer(kind: DhcpMessageType, lent: Ipv4Addr, ask: Ask) -> Answer {
    let has_it = !lent.is_unspecified() && ask.ours == lent;
    let to = if has_it { lent } else { Ipv4Addr::BROADCAST };
    Answer {
        kind,
        lent,
        to,
        ask,
    }
}
