//! What is tried before there is load: addresses, connections, and whom the server sees.

use super::super::error::Error;
use super::home::{ANNOUNCED, CLIENT, GATEWAY, Home, LENT, PUBLIC6, SERVER4, SERVER6};
use super::stock;
use serde::Serialize;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};
use testbed::segment::Segment;

/// How long Linux and dnsmasq may take to have addresses.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// How long somebody waits for what is not to come.
const IN_VAIN: Duration = Duration::from_millis(700);

/// Something that was tried.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    pub tried: String,
    /// Who tried it.
    pub by: &'static str,
    pub seen: String,
    pub held: bool,
}

impl Check {
    pub fn new(tried: &str, by: &'static str, seen: String, held: bool) -> Self {
        Self {
            tried: tried.to_owned(),
            by,
            seen,
            held,
        }
    }
}

/// What clients call themselves here.
const NAMES: [&str; 2] = ["a", "b"];

/// Addresses, of the router and of the clients.
///
/// # Errors
/// What cannot be tried.
pub fn given(home: &Home) -> Result<Vec<Check>, Error> {
    let mut checks = Vec::new();
    let public = eventually(|| public(home));
    let held = public.is_some();
    checks.push(Check::new(
        "DHCP lends the router an address",
        "dnsmasq",
        public.map_or("nothing".into(), |own| own.to_string()),
        held,
    ));
    for (client, name) in home.clients.iter().zip(NAMES) {
        let lent = client.run(|| stock::udhcpc(home.system.folder(), CLIENT))?;
        let is_ours = (LENT[0]..=LENT[1]).contains(&lent.address);
        checks.push(Check::new(
            &format!("the router lends {name} one"),
            "udhcpc",
            format!("{}/{}, router {}", lent.address, lent.bits, lent.router),
            is_ours && lent.router == GATEWAY && lent.bits == 24,
        ));
    }
    for (client, name) in home.clients.iter().zip(NAMES) {
        let own = eventually(|| address6(client));
        checks.push(Check::new(
            &format!("the router announces a network to {name}"),
            "Linux",
            own.map_or("nothing".into(), |own| own.to_string()),
            own.is_some(),
        ));
    }
    Ok(checks)
}

/// Whom the server sees, and who is kept out.
///
/// # Errors
/// What cannot be tried.
pub fn connections(home: &Home) -> Result<Vec<Check>, Error> {
    let mut checks = Vec::new();
    let public = public(home).unwrap_or(Ipv4Addr::UNSPECIFIED);
    for (client, name) in home.clients.iter().zip(NAMES) {
        for (server, expected) in [
            (IpAddr::from(SERVER4), IpAddr::from(public)),
            (SERVER6.into(), PUBLIC6.into()),
        ] {
            let seen = client.run(|| stock::who(server, 80))?;
            let version = if seen.is_ipv4() { "IPv4" } else { "IPv6" };
            checks.push(Check::new(
                &format!("{name} asks the server by {version}"),
                "curl",
                format!("it comes from {seen}"),
                seen == expected,
            ));
        }
    }
    let asked = home.clients[0].run(|| stock::nslookup(GATEWAY.into()))?;
    checks.push(Check::new(
        "a asks the router for the server's name",
        "nslookup",
        asked.to_string(),
        asked == SERVER4,
    ));
    // By the way that the servers' network would have if it knew of the one inside.
    let to = SocketAddr::from((public, 80));
    let connected = TcpStream::connect_timeout(&to, IN_VAIN);
    checks.push(Check::new(
        "somebody outside begins a connection",
        "Linux",
        match &connected {
            Ok(_) => "it is there".to_owned(),
            Err(error) => error.kind().to_string(),
        },
        connected.is_err_and(|error| error.kind() == std::io::ErrorKind::TimedOut),
    ));
    Ok(checks)
}

/// What was lent to the router, as the one says who lends it.
pub fn public(home: &Home) -> Option<Ipv4Addr> {
    match stock::lent_outside(home.system.folder())? {
        IpAddr::V4(own) => Some(own),
        IpAddr::V6(_) => None,
    }
}

/// What was lent to a client.
pub fn address4(client: &Segment) -> Option<Ipv4Addr> {
    // The kernel's list of what it takes for its own: an address, and behind it what that is.
    let text = client.run(|| fs::read_to_string("/proc/thread-self/net/fib_trie"));
    let text = text.ok()?;
    let addresses = text.split_whitespace().filter_map(|word| word.parse().ok());
    let mut ours = addresses.filter(|own| (LENT[0]..=LENT[1]).contains(own));
    ours.next()
}

/// An address in the network that the router announces, once it is known to be nobody else's.
fn address6(client: &Segment) -> Option<Ipv6Addr> {
    let text = client.run(|| fs::read_to_string("/proc/thread-self/net/if_inet6"));
    text.ok()?.lines().find_map(announced)
}

/// A line of the kernel's list: an address in hexadecimal digits, the interface's number, bits,
/// scope, flags and name.
fn announced(line: &str) -> Option<Ipv6Addr> {
    let mut words = line.split_whitespace();
    let own = u128::from_str_radix(words.next()?, 16).ok()?;
    let flags = u8::from_str_radix(words.nth(3)?, 16).ok()?;
    let is_there = own >> 64 == ANNOUNCED.to_bits() >> 64 && flags & TENTATIVE == 0;
    is_there.then(|| Ipv6Addr::from_bits(own))
}

/// `IFA_F_TENTATIVE`: it may be somebody else's.
const TENTATIVE: u8 = 0x40;

/// Something, once it is there.
fn eventually<T>(mut find: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        let found = find();
        if found.is_some() || begin.elapsed() > PATIENCE {
            return found;
        }
        sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_counts_once_it_is_settled() {
        let line =
            |flags: &str| format!("fd000000000000000011223344556677 02 40 00 {flags}     eth0");
        let expected: Ipv6Addr = "fd00::11:2233:4455:6677".parse().unwrap();
        assert_eq!(announced(&line("00")), Some(expected));
        assert_eq!(announced(&line("40")), None);
        assert_eq!(
            announced("fe800000000000000011223344556677 02 40 20 80 eth0"),
            None
        );
        assert_eq!(announced(""), None);
    }
}
