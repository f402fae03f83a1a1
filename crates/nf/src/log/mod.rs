//! What a rule's `log` statement says: one line for one frame, as `key=value` words.
//!
//! Names come from manifest and rules, numbers from the frame; text is quoted and escaped to ASCII,
//! so that no line can look like two, or like another one.
//!
//! ```text
//! log prefix="ssh: " rule=3 in=private out=public ether=0x0800 src=10.0.0.1 dst=10.0.0.2 \
//! proto=tcp sport=999 dport=22 len=60
//! ```

mod bucket;

pub use bucket::TokenBucket;

use crate::key::{Addresses, Fields, Fragment, Key, L4, protocol};
use crate::rule::RuleIndex;
use core::fmt;

/// A line about a frame.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Lines that were left out since the one before.
    pub suppressed: u64,
    /// The prefix of the log statement, or nothing.
    pub prefix: &'a str,
    /// The rule.
    pub rule: RuleIndex,
    /// Name of the port where the frame came in.
    pub from: &'a str,
    /// Name of the port where it would go out.
    pub to: &'a str,
    /// What the frame says.
    pub key: &'a Key,
    /// Length of the frame, in bytes.
    pub bytes: usize,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("log")?;
        if self.suppressed > 0 {
            write!(f, " suppressed={}", self.suppressed)?;
        }
        let prefix = self.prefix.escape_default();
        write!(f, " prefix=\"{prefix}\" rule={}", self.rule)?;
        let (from, to) = (self.from.escape_default(), self.to.escape_default());
        write!(f, " in={from} out={to}")?;
        let fields = self.key.fields();
        if let Some(vlan) = fields.vlan {
            write!(f, " vlan={vlan}")?;
        }
        write!(f, " ether={:#06x}", fields.ether_type)?;
        match &fields.addresses {
            None => {
                let (source, destination) = (Mac(&fields.source), Mac(&fields.destination));
                write!(f, " src={source} dst={destination}")?;
            }
            Some(Addresses::V4 {
                source,
                destination,
            }) => write!(f, " src={source} dst={destination}")?,
            Some(Addresses::V6 {
                source,
                destination,
            }) => write!(f, " src={source} dst={destination}")?,
        }
        transport(f, &fields)?;
        write!(f, " len={}", self.bytes)
    }
}

fn transport(f: &mut fmt::Formatter<'_>, fields: &Fields) -> fmt::Result {
    match fields.protocol {
        None => {}
        Some(protocol::ICMP) => f.write_str(" proto=icmp")?,
        Some(protocol::TCP) => f.write_str(" proto=tcp")?,
        Some(protocol::UDP) => f.write_str(" proto=udp")?,
        Some(protocol::ICMPV6) => f.write_str(" proto=icmpv6")?,
        Some(number) => write!(f, " proto={number}")?,
    }
    if fields.fragment == Fragment::Later {
        f.write_str(" fragment=later")?;
    }
    match fields.l4 {
        None => Ok(()),
        Some(
            L4::Tcp {
                source,
                destination,
                ..
            }
            | L4::Udp {
                source,
                destination,
            },
        ) => write!(f, " sport={source} dport={destination}"),
        Some(L4::Icmp { kind, code } | L4::Icmpv6 { kind, code }) => {
            write!(f, " type={kind} code={code}")
        }
    }
}

/// A MAC address as six hexadecimal bytes and colons.
struct Mac<'a>(&'a [u8; 6]);

impl fmt::Display for Mac<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0;
        write!(f, "{first:02x}")?;
        rest.iter().try_for_each(|byte| write!(f, ":{byte:02x}"))
    }
}

#[cfg(test)]
mod tests;
