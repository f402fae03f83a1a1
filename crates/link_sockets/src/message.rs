//! The protocol: messages, and how they lie in a frame.
//!
//! A frame is one of Ethernet's, so that captures show it: 14 bytes of its header with the type
//! [`ETHERTYPE`], 2 of [`VERSION`], 8 of the sender's session and 8 of the receiver's, as far as
//! the sender knows it, or zero. Messages follow, one behind the other. A message is 8 bytes, which
//! are its kind, a zero, 2 of length and 4 of socket, and then as many bytes as its length says.
//! Numbers are little-endian. Addresses are 16 bytes of IPv6, IPv4 as IPv6 has it (RFC 4291,
//! 2.5.5.2), and the port.
//!
//! A session is a number that an end chooses when it begins, when the link goes down, and when the
//! other end breaks a rule. All sockets are of one pair of sessions.

use crate::fault::Fault;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

/// The type of the frames: one that IEEE 802 leaves for experiments (RFC 9542, B).
pub const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// The version of this protocol.
pub const VERSION: u16 = 3;
/// Bytes in front of the first message of a frame.
pub const FRAME_HEAD: usize = 32;
/// Bytes of a message in front of its body.
pub const HEAD: usize = 8;
/// Bytes of an address and a port.
const ADDRESS: usize = 18;
/// Bytes in front of a datagram in its message.
pub const DATAGRAM_HEAD: usize = ADDRESS + 16;
/// Most sockets of a link.
pub const SOCKETS_MAX: u32 = 4096;
/// Most of what a stack says of itself at a time.
pub const OWN_MAX: usize = 64;
/// Most bytes of a socket that may be under way in a direction.
pub const WINDOW_MAX: u32 = 1 << 20;

/// Both sessions, as a frame names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sessions {
    /// The sender's.
    pub from: u64,
    /// The receiver's, or 0 if the sender knows none.
    pub to: u64,
}

/// Why there is no socket, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The address and port are in use.
    InUse,
    /// No route leads there.
    NoRoute,
    /// All ports are in use.
    NoPort,
    /// There are too many sockets.
    NoPlace,
    /// The peer does not want it.
    Refused,
    /// The peer has reset it.
    Reset,
    /// The peer does not answer.
    TimedOut,
    /// It was reset on this side.
    Aborted,
    /// The stack's image does not let this one do that.
    Denied,
    /// Something else.
    Other,
}

/// Names of reasons, in the order of their numbers.
const REASONS: [Reason; 10] = [
    Reason::InUse,
    Reason::NoRoute,
    Reason::NoPort,
    Reason::NoPlace,
    Reason::Refused,
    Reason::Reset,
    Reason::TimedOut,
    Reason::Aborted,
    Reason::Denied,
    Reason::Other,
];

/// What a stack says of itself, so that applications may show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Own {
    /// An address of the stack's, in a network of so many bits.
    Address(IpAddr, u8),
    /// Who answers the stack's questions for names.
    Resolver(IpAddr),
}

/// A message. Sockets have numbers below [`SOCKETS_MAX`], which the application chooses and has
/// again once [`What::Closed`] has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The socket; 0 for what is said of none.
    pub socket: u32,
    /// What of it.
    pub what: What<'a>,
}

/// What is said of a socket. The application says what comes before [`What::Data`], the stack what
/// comes behind [`What::End`], and both what is in between. [`What::Own`] is said of no socket.
///
/// **Stacks that are killed.** Where the stack's connections outlive its image, the application
/// keeps what it has sent until a [`What::Credit`] says that the stack has it, and the stack what
/// it has sent until a [`What::Have`] says that the application has it. With the next stack, both
/// say how far they are ([`What::Resume`], [`What::Resumed`]), and go on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// Wait for connections, of which so many may wait.
    Listen {
        /// Where.
        local: SocketAddr,
        /// How many.
        backlog: u32,
    },
    /// The next connection of a listener is to have this number.
    Accept {
        /// The listener.
        listener: u32,
        /// Bytes for which the application has room.
        window: u32,
    },
    /// Open a connection.
    Connect {
        /// The peer.
        remote: SocketAddr,
        /// As above.
        window: u32,
    },
    /// Take and send datagrams.
    Bind {
        /// Where.
        local: SocketAddr,
        /// Whose alone, if there is one.
        peer: Option<SocketAddr>,
        /// As above.
        window: u32,
    },
    /// Say [`What::Acknowledged`] once the peer has acknowledged all that was sent.
    Ask,
    /// Whether small pieces leave at once.
    NoDelay(bool),
    /// After how much silence the peer is asked whether it is there, if ever.
    KeepAlive(Option<Duration>),
    /// Take what goes to this group, too.
    Join(IpAddr),
    /// No longer.
    Leave(IpAddr),
    /// Send what is there and close it.
    Close,
    /// Reset it.
    Abort,
    /// Go on with a connection of the stack's image before this one, which called it so
    /// ([`What::Kept`]).
    Resume {
        /// Its name.
        name: u64,
        /// The number of the byte behind the last one that was ever sent to a stack.
        written: u32,
        /// The number of the byte behind the last one that has come from a stack.
        read: u32,
        /// Bytes for which the application has room when it has read all.
        window: u32,
        /// Bytes for which it has room now.
        left: u32,
    },
    /// So many bytes of a connection that outlives its stack have come, and outlive it as well.
    Have(u32),
    /// Bytes of a connection.
    Data(&'a [u8]),
    /// A datagram.
    Datagram {
        /// The other one: who has sent it, or who is to get it.
        remote: SocketAddr,
        /// Which of our addresses it went to, or comes from; unspecified for any.
        local: IpAddr,
        /// The datagram.
        bytes: &'a [u8],
    },
    /// Room for so many bytes more.
    Credit(u32),
    /// No more data follows.
    End,
    /// It is open.
    Opened {
        /// Our end.
        local: SocketAddr,
        /// The peer, if it has one.
        peer: Option<SocketAddr>,
        /// Bytes for which the stack has room.
        window: u32,
    },
    /// It cannot be had, or does not go on. It is still to be closed.
    Failed(Reason),
    /// Nobody listens at the peer of these datagrams.
    Refused,
    /// The answer to [`What::Ask`].
    Acknowledged,
    /// Nothing is left of it.
    Closed,
    /// The connection that will be [`What::Opened`] under this number outlives the stack's image.
    Kept {
        /// What the next one calls it; nobody else knows that.
        name: u64,
        /// The number of the first byte that is sent to the stack.
        written: u32,
        /// The number of the first byte that comes from it.
        read: u32,
    },
    /// It goes on.
    Resumed {
        /// The number of the first byte that the stack does not have.
        written: u32,
        /// Bytes for which it has room.
        window: u32,
    },
    /// This is so from now on, or no longer.
    Own(Own, bool),
}

mod kind {
    pub const LISTEN: u8 = 1;
    pub const ACCEPT: u8 = 2;
    pub const CONNECT: u8 = 3;
    pub const BIND: u8 = 4;
    pub const ASK: u8 = 5;
    pub const NO_DELAY: u8 = 6;
    pub const KEEP_ALIVE: u8 = 7;
    pub const JOIN: u8 = 8;
    pub const LEAVE: u8 = 9;
    pub const CLOSE: u8 = 10;
    pub const ABORT: u8 = 11;
    pub const RESUME: u8 = 12;
    pub const HAVE: u8 = 13;
    pub const DATA: u8 = 16;
    pub const DATAGRAM: u8 = 17;
    pub const CREDIT: u8 = 18;
    pub const END: u8 = 19;
    pub const OPENED: u8 = 32;
    pub const FAILED: u8 = 33;
    pub const REFUSED: u8 = 34;
    pub const ACKNOWLEDGED: u8 = 35;
    pub const CLOSED: u8 = 36;
    pub const KEPT: u8 = 37;
    pub const RESUMED: u8 = 38;
    pub const ADDRESS: u8 = 39;
    pub const RESOLVER: u8 = 40;
}

/// Longest body of a message without data.
const BODY_MAX: usize = 2 * ADDRESS + 4;
/// Most bytes of a message without data.
pub const CONTROL_MAX: usize = HEAD + BODY_MAX;

/// A body without data, as it is put together.
struct Body {
    bytes: [u8; BODY_MAX],
    len: usize,
}

impl Body {
    fn with(mut self, bytes: &[u8]) -> Self {
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self
    }

    fn number(self, number: u32) -> Self {
        self.with(&number.to_le_bytes())
    }

    fn numbers(self, numbers: &[u32]) -> Self {
        numbers
            .iter()
            .fold(self, |body, number| body.number(*number))
    }

    fn name(self, name: u64) -> Self {
        self.with(&name.to_le_bytes())
    }

    fn ip(self, ip: IpAddr) -> Self {
        let ip = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        self.with(&ip.octets())
    }

    fn own(self, own: Own, is: bool) -> (u8, Self) {
        match own {
            Own::Address(ip, bits) => {
                let body = self.ip(ip).numbers(&[bits.into(), is.into()]);
                (kind::ADDRESS, body)
            }
            Own::Resolver(ip) => (kind::RESOLVER, self.ip(ip).number(is.into())),
        }
    }

    fn address(self, address: SocketAddr) -> Self {
        self.ip(address.ip()).with(&address.port().to_le_bytes())
    }

    fn peer(self, peer: Option<SocketAddr>) -> Self {
        match peer {
            Some(peer) => self.address(peer),
            None => self.with(&[0; ADDRESS]),
        }
    }
}

/// What is in front of so many bytes of a connection ([`What::Data`]); `None` if a message does not
/// hold as many.
pub fn head_of_data(socket: u32, len: usize) -> Option<[u8; HEAD]> {
    head_of(kind::DATA, socket, len)
}

/// What is in front of a body of this kind.
fn head_of(kind: u8, socket: u32, len: usize) -> Option<[u8; HEAD]> {
    let [len, len_high] = u16::try_from(len).ok()?.to_le_bytes();
    let [a, b, c, d] = socket.to_le_bytes();
    Some([kind, 0, len, len_high, a, b, c, d])
}

impl<'a> Message<'a> {
    /// A message.
    pub fn new(socket: u32, what: What<'a>) -> Self {
        Self { socket, what }
    }

    /// Bytes of the message.
    pub fn size(&self) -> usize {
        let (_, body, data) = self.parts();
        HEAD + body.len + data.len()
    }

    /// Writes the message to the front of `place`; how many bytes, or `None` if it does not fit.
    pub fn put(&self, place: &mut [u8]) -> Option<usize> {
        let (kind, body, data) = self.parts();
        let size = HEAD + body.len + data.len();
        let place = place.get_mut(..size)?;
        let (head, rest) = place.split_first_chunk_mut()?;
        *head = head_of(kind, self.socket, size - HEAD)?;
        let (front, back) = rest.split_at_mut(body.len);
        front.copy_from_slice(&body.bytes[..body.len]);
        back.copy_from_slice(data);
        Some(size)
    }

    /// Its kind, its body, and the data behind that.
    fn parts(&self) -> (u8, Body, &'a [u8]) {
        let body = Body {
            bytes: [0; BODY_MAX],
            len: 0,
        };
        let (kind, body) = match self.what {
            What::Data(bytes) => return (kind::DATA, body, bytes),
            What::Datagram {
                remote,
                local,
                bytes,
            } => return (kind::DATAGRAM, body.address(remote).ip(local), bytes),
            What::Listen { local, backlog } => (kind::LISTEN, body.address(local).number(backlog)),
            What::Accept { listener, window } => {
                (kind::ACCEPT, body.number(listener).number(window))
            }
            What::Connect { remote, window } => {
                (kind::CONNECT, body.address(remote).number(window))
            }
            What::Bind {
                local,
                peer,
                window,
            } => (kind::BIND, body.address(local).peer(peer).number(window)),
            What::Ask => (kind::ASK, body),
            What::NoDelay(is) => (kind::NO_DELAY, body.number(is.into())),
            What::KeepAlive(idle) => {
                // Fifty days are as good as never.
                let idle = idle.map_or(0, |idle| idle.as_millis().clamp(1, u32::MAX.into()));
                (kind::KEEP_ALIVE, body.number(idle as u32))
            }
            What::Join(group) => (kind::JOIN, body.ip(group)),
            What::Leave(group) => (kind::LEAVE, body.ip(group)),
            What::Close => (kind::CLOSE, body),
            What::Abort => (kind::ABORT, body),
            What::Resume {
                name,
                written,
                read,
                window,
                left,
            } => {
                let numbers = [written, read, window, left];
                (kind::RESUME, body.name(name).numbers(&numbers))
            }
            What::Have(count) => (kind::HAVE, body.number(count)),
            What::Credit(count) => (kind::CREDIT, body.number(count)),
            What::End => (kind::END, body),
            What::Opened {
                local,
                peer,
                window,
            } => (kind::OPENED, body.address(local).peer(peer).number(window)),
            What::Failed(reason) => (kind::FAILED, body.number(reason as u32)),
            What::Refused => (kind::REFUSED, body),
            What::Acknowledged => (kind::ACKNOWLEDGED, body),
            What::Closed => (kind::CLOSED, body),
            What::Kept {
                name,
                written,
                read,
            } => (kind::KEPT, body.name(name).numbers(&[written, read])),
            What::Resumed { written, window } => (kind::RESUMED, body.numbers(&[written, window])),
            What::Own(own, is) => body.own(own, is),
        };
        (kind, body, &[])
    }

    /// The first message of `bytes`, and what is behind it; `None` at the end.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn take(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, Fault> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let mut fields = Fields(bytes);
        let [kind, zero] = fields.take()?;
        let len = u16::from_le_bytes(fields.take()?);
        let socket = fields.number()?;
        if zero != 0 {
            return Err(Fault::Value);
        }
        let body = fields.0.split_at_checked(len.into());
        let (body, rest) = body.ok_or(Fault::Length)?;
        let mut body = Fields(body);
        let what = body.what(kind)?;
        match body.0.is_empty() {
            true => Ok(Some((Self { socket, what }, rest))),
            false => Err(Fault::Length),
        }
    }
}

/// Bytes that fields are taken from.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Fault::Length)?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn flag(&mut self) -> Result<bool, Fault> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Fault::Value),
        }
    }

    fn window(&mut self) -> Result<u32, Fault> {
        let window = self.number()?;
        let is_one = (1..=WINDOW_MAX).contains(&window);
        is_one.then_some(window).ok_or(Fault::Value)
    }

    fn reason(&mut self) -> Result<Reason, Fault> {
        let number = self.number()? as usize;
        REASONS.get(number).copied().ok_or(Fault::Value)
    }

    fn ip(&mut self) -> Result<IpAddr, Fault> {
        let ip = Ipv6Addr::from(self.take::<16>()?);
        let mapped: Option<Ipv4Addr> = ip.to_ipv4_mapped();
        Ok(mapped.map_or(ip.into(), IpAddr::from))
    }

    fn address(&mut self) -> Result<SocketAddr, Fault> {
        let ip = self.ip()?;
        Ok((ip, u16::from_le_bytes(self.take()?)).into())
    }

    fn peer(&mut self) -> Result<Option<SocketAddr>, Fault> {
        let none = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        Ok(Some(self.address()?).filter(|peer| *peer != none))
    }

    /// All that is left.
    fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }

    fn data(&mut self) -> Result<&'a [u8], Fault> {
        match self.rest() {
            // Who would send them might never end.
            [] => Err(Fault::Length),
            bytes => Ok(bytes),
        }
    }

    fn own(&mut self, kind: u8) -> Result<Own, Fault> {
        let ip = self.ip()?;
        if kind == kind::RESOLVER {
            return Ok(Own::Resolver(ip));
        }
        let longest = if ip.is_ipv4() { 32 } else { 128 };
        let bits = u8::try_from(self.number()?).ok();
        let bits = bits.filter(|bits| *bits <= longest);
        Ok(Own::Address(ip, bits.ok_or(Fault::Value)?))
    }

    fn what(&mut self, kind: u8) -> Result<What<'a>, Fault> {
        Ok(match kind {
            kind::LISTEN => What::Listen {
                local: self.address()?,
                backlog: self.number()?,
            },
            kind::ACCEPT => What::Accept {
                listener: self.number()?,
                window: self.window()?,
            },
            kind::CONNECT => What::Connect {
                remote: self.address()?,
                window: self.window()?,
            },
            kind::BIND => What::Bind {
                local: self.address()?,
                peer: self.peer()?,
                window: self.window()?,
            },
            kind::ASK => What::Ask,
            kind::NO_DELAY => What::NoDelay(self.flag()?),
            kind::KEEP_ALIVE => {
                let idle = Some(self.number()?).filter(|idle| *idle > 0);
                What::KeepAlive(idle.map(|idle| Duration::from_millis(idle.into())))
            }
            kind::JOIN => What::Join(self.ip()?),
            kind::LEAVE => What::Leave(self.ip()?),
            kind::CLOSE => What::Close,
            kind::ABORT => What::Abort,
            kind::RESUME => What::Resume {
                name: u64::from_le_bytes(self.take()?),
                written: self.number()?,
                read: self.number()?,
                window: self.window()?,
                left: self.number()?,
            },
            kind::HAVE => What::Have(self.window()?),
            kind::DATA => What::Data(self.data()?),
            kind::DATAGRAM => What::Datagram {
                remote: self.address()?,
                local: self.ip()?,
                bytes: self.rest(),
            },
            kind::CREDIT => What::Credit(self.window()?),
            kind::END => What::End,
            kind::OPENED => What::Opened {
                local: self.address()?,
                peer: self.peer()?,
                window: self.window()?,
            },
            kind::FAILED => What::Failed(self.reason()?),
            kind::REFUSED => What::Refused,
            kind::ACKNOWLEDGED => What::Acknowledged,
            kind::CLOSED => What::Closed,
            kind::KEPT => What::Kept {
                name: u64::from_le_bytes(self.take()?),
                written: self.number()?,
                read: self.number()?,
            },
            kind::RESUMED => What::Resumed {
                written: self.number()?,
                window: self.window()?,
            },
            kind::ADDRESS | kind::RESOLVER => What::Own(self.own(kind)?, self.flag()?),
            _ => return Err(Fault::Kind),
        })
    }
}

/// Writes the head of a frame from this MAC address. The frame is longer.
pub fn put_head(frame: &mut [u8], mac: [u8; 6], sessions: Sessions) {
    let head = &mut frame[..FRAME_HEAD];
    // To whoever is there.
    head[..6].fill(0xff);
    head[6..12].copy_from_slice(&mac);
    head[12..14].copy_from_slice(&ETHERTYPE);
    head[14..16].copy_from_slice(&VERSION.to_le_bytes());
    head[16..24].copy_from_slice(&sessions.from.to_le_bytes());
    head[24..].copy_from_slice(&sessions.to.to_le_bytes());
}

/// The sessions of a frame, and its messages.
///
/// # Errors
/// If it is none.
pub fn open(frame: &[u8]) -> Result<(Sessions, &[u8]), Fault> {
    let mut fields = Fields(frame);
    let _addresses: [u8; 12] = fields.take().map_err(|_| Fault::Frame)?;
    let is_ours = fields.take() == Ok(ETHERTYPE) && fields.take() == Ok(VERSION.to_le_bytes());
    if !is_ours {
        return Err(Fault::Frame);
    }
    let [from, to] = [fields.take()?, fields.take()?].map(u64::from_le_bytes);
    // Nobody has the session that stands for none.
    if from == 0 {
        return Err(Fault::Value);
    }
    Ok((Sessions { from, to }, fields.0))
}
