//! What a peer and a user do to one end of a connection, step by step.

use std::fmt;

/// FIN, as it stands in a header (RFC 9293, 3.1).
pub const FIN: u8 = 1;
/// SYN.
pub const SYN: u8 = 2;
/// RST.
pub const RST: u8 = 4;
/// PSH.
pub const PSH: u8 = 8;
/// ACK.
pub const ACK: u8 = 16;
/// URG.
pub const URG: u8 = 32;

/// The letters of flags, as packetdrill has them.
const LETTERS: [(u8, char); 6] = [
    (SYN, 'S'),
    (FIN, 'F'),
    (RST, 'R'),
    (PSH, 'P'),
    (ACK, '.'),
    (URG, 'U'),
];

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The peer sends a segment.
    Arrives(Sent),
    /// A router, or the peer's host, sends an ICMP error.
    Report(Report),
    /// The user of the socket does something.
    Call(Call),
}

/// What a user does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Connects to the peer; otherwise it listens.
    Connect,
    /// Writes so many bytes.
    Write(usize),
    /// Reads what is there.
    Read,
    /// Writes no more.
    Shutdown,
    /// Lets go of the socket.
    Close,
    /// Resets the connection.
    Abort,
}

/// A place in the peer's sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// From the initial number on: 0 is the SYN's, 1 the first byte's.
    Stream(i32),
    /// From the last number on that was acknowledged to the peer.
    Acked(i32),
    /// From the right edge of the window that was offered to the peer.
    Edge(i32),
}

/// A place in the numbers of the end that is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// From its initial number on.
    Stream(i32),
    /// From the number behind all that it has sent.
    All(i32),
}

/// A segment of the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its flags; ACK, if `ack` is some.
    pub flags: u8,
    /// Its number.
    pub seq: Place,
    /// What it acknowledges.
    pub ack: Option<Heard>,
    /// Bytes of payload.
    pub len: u16,
    /// The window, as it stands in the header.
    pub window: u16,
    /// MSS.
    pub mss: Option<u16>,
    /// Shift of windows.
    pub scale: Option<u8>,
    /// SACK permitted.
    pub sack_permitted: bool,
    /// Ahead of the peer's clock; in a SYN. Others have it where both SYNs did.
    pub stamp: Option<i32>,
    /// SACK blocks, from the initial number of the end that is tested on.
    pub sack: Vec<(i32, i32)>,
    /// Options as they are, in front of the others.
    pub raw: Vec<u8>,
    /// The urgent pointer.
    pub urgent: u16,
}

/// An ICMP error about the last segment that was sent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Type and code: of "destination unreachable", 3.
    pub code: u8,
    /// The next MTU, where the code says that it was too long.
    pub mtu: u16,
    /// Ahead of the number of that segment.
    pub ahead: i32,
}

impl Sent {
    /// A segment without payload and options.
    pub fn new(flags: u8, seq: Place, ack: Option<Heard>) -> Self {
        Self {
            flags: flags | if ack.is_some() { ACK } else { 0 },
            seq,
            ack,
            len: 0,
            window: 60_000,
            mss: None,
            scale: None,
            sack_permitted: false,
            stamp: Some(0),
            sack: Vec::new(),
            raw: Vec::new(),
            urgent: 0,
        }
    }
}

/// A SYN without options.
pub fn bare_syn() -> Sent {
    Sent {
        stamp: None,
        ..Sent::new(SYN, Place::Stream(0), None)
    }
}

/// A SYN with the options that most hosts send.
pub fn syn() -> Sent {
    Sent {
        mss: Some(1460),
        scale: Some(0),
        sack_permitted: true,
        stamp: Some(0),
        ..bare_syn()
    }
}

/// An acknowledgement of all that was sent, at this place of the peer's stream.
pub fn ack(at: i32) -> Sent {
    Sent::new(0, Place::Stream(at), Some(Heard::All(0)))
}

/// The same with payload.
pub fn data(at: i32, len: u16) -> Sent {
    Sent { len, ..ack(at) }
}

/// FIN at this place.
pub fn fin(at: i32) -> Sent {
    Sent {
        flags: FIN | ACK,
        ..ack(at)
    }
}

/// RST at this place, without ACK.
pub fn rst(seq: Place) -> Sent {
    Sent::new(RST, seq, None)
}

impl From<Sent> for Step {
    fn from(sent: Sent) -> Self {
        Self::Arrives(sent)
    }
}

impl From<Call> for Step {
    fn from(call: Call) -> Self {
        Self::Call(call)
    }
}

impl From<Report> for Step {
    fn from(report: Report) -> Self {
        Self::Report(report)
    }
}

/// Flags as letters; `-` for none.
pub fn letters(flags: u8) -> String {
    let letters = LETTERS.iter().filter(|(bit, _)| flags & bit != 0);
    let letters: String = letters.map(|(_, letter)| letter).collect();
    if letters.is_empty() {
        return "-".to_owned();
    }
    letters
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(at) => write!(f, "{at}"),
            Self::Acked(at) => write!(f, "acked{at:+}"),
            Self::Edge(at) => write!(f, "edge{at:+}"),
        }
    }
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(at) => write!(f, "{at}"),
            Self::All(at) => write!(f, "all{at:+}"),
        }
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "< {} {}({})", letters(self.flags), self.seq, self.len)?;
        if let Some(ack) = self.ack {
            write!(f, " ack {ack}")?;
        }
        write!(f, " win {}", self.window)?;
        if let Some(mss) = self.mss {
            write!(f, " mss {mss}")?;
        }
        if let Some(scale) = self.scale {
            write!(f, " wscale {scale}")?;
        }
        if self.sack_permitted {
            write!(f, " sackOK")?;
        }
        match self.stamp {
            Some(0) => {}
            Some(stamp) => write!(f, " stamp {stamp:+}")?,
            None => write!(f, " no stamp")?,
        }
        for (start, end) in &self.sack {
            write!(f, " sack {start}:{end}")?;
        }
        if !self.raw.is_empty() {
            write!(f, " options {:02x?}", self.raw)?;
        }
        if self.urgent != 0 {
            write!(f, " urg {}", self.urgent)?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrives(sent) => sent.fmt(f),
            Self::Report(report) => write!(
                f,
                "< icmp 3/{} mtu {} of a number {:+}",
                report.code, report.mtu, report.ahead
            ),
            Self::Call(call) => write!(f, "{call:?}"),
        }
    }
}
