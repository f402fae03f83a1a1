//! `AF_XDP`, sockets that share frames with a network card: `af_xdp.rst`.

use super::finding::{Finding, Verdict};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::fs;

/// What sockets of this kind need.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Whether one can be made.
    socket: Result<(), Errno>,
    /// Interfaces with a device, and its driver.
    cards: Vec<(String, String)>,
}

impl Facts {
    /// Those of this machine.
    pub fn observe() -> Self {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None);
        let entries = fs::read_dir("/sys/class/net")
            .into_iter()
            .flatten()
            .flatten();
        let card = |entry: fs::DirEntry| {
            let driver = fs::read_link(entry.path().join("device/driver")).ok()?;
            let driver = driver.file_name()?.to_string_lossy().into_owned();
            Some((entry.file_name().to_string_lossy().into_owned(), driver))
        };
        let mut cards: Vec<_> = entries.filter_map(card).collect();
        cards.sort();
        Self {
            socket: socket.map(drop),
            cards,
        }
    }
}

/// Whether there can be such sockets.
pub fn judge(facts: &Facts) -> Finding {
    let finding = |verdict, state, evidence: String| {
        Finding::new("AF_XDP", verdict, state, evidence)
            .good_for("ports on network cards whose drivers copy nothing, which are to come")
    };
    let card = |(name, driver): &(String, String)| format!("{name} ({driver})");
    let cards = match facts.cards.as_slice() {
        [] => "no interface with a device".to_owned(),
        cards => cards.iter().map(card).collect::<Vec<_>>().join(", "),
    };
    match facts.socket {
        Ok(()) => finding(Verdict::Ok, "usable", format!("a socket was made; {cards}")),
        Err(Errno::PERM) => {
            let evidence =
                format!("the kernel has it, for root and others with CAP_NET_RAW; {cards}");
            finding(Verdict::Warn, "forbidden", evidence)
        }
        Err(Errno::AFNOSUPPORT) => {
            let evidence = "this kernel needs CONFIG_XDP_SOCKETS".to_owned();
            finding(Verdict::No, "absent", evidence)
        }
        Err(error) => finding(Verdict::No, "refused", error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_no_missing_kernel() {
        let judge = |socket| {
            let cards = vec![("eth0".to_owned(), "ixgbe".to_owned())];
            super::judge(&Facts { socket, cards })
        };
        assert_eq!(judge(Ok(())).evidence, "a socket was made; eth0 (ixgbe)");
        assert_eq!(judge(Err(Errno::PERM)).verdict, Verdict::Warn);
        assert_eq!(judge(Err(Errno::AFNOSUPPORT)).state, "absent");
        assert_eq!(judge(Err(Errno::NFILE)).state, "refused");
    }
}
