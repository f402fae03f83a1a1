//! Programs that no file names: each has the free end of a link, as long as it is connected.

use super::Supervisor;
use crate::up::channel::{Channel, Received};
use crate::up::component::Device;
use crate::up::handed::{self, Handed, PROXY};
use crate::up::message::{Command, End};
use std::os::fd::AsFd;
use tender::suggest;

/// Who has a free end.
pub(super) struct Joined {
    pub(super) channel: Channel,
    link: String,
}

impl Supervisor {
    /// Hands the free end of a link over, or says why not.
    pub(super) fn hand_end(&mut self, channel: Channel, net: &str) {
        let (side, mtu) = match self.free_end(net) {
            Ok(found) => found,
            // Who does not wait for the answer does without.
            Err(why) => return drop(channel.send(&End::Err(why), &[])),
        };
        let descriptors = self.pool.get(&side).into_iter().flatten();
        let descriptors: Vec<_> = descriptors.map(AsFd::as_fd).collect();
        let sent = channel.send(&End::Ok(mtu), &descriptors);
        if let (Ok(()), Handed::Side { link, .. }) = (sent, side) {
            self.joined.push(Joined { channel, link });
        }
    }

    /// The free end of the link of this name, or of the component's of this name, and its MTU.
    fn free_end(&self, net: &str) -> Result<(Handed, Option<u16>), String> {
        let all = self.all.iter().flat_map(|one| {
            let devices = one.component().devices.iter();
            devices.map(move |device| (one.name(), device))
        });
        let is_free = |device: &Device| device.peer.as_deref() == Some(PROXY);
        let free = all.filter(|(_, device)| is_free(device));
        let free = free.filter_map(|(name, device)| Some((name, device.link()?, device)));
        let free: Vec<_> = free.collect();
        let mut named = free.iter().filter(|(_, link, _)| *link == net);
        let mut owned = free.iter().filter(|(name, ..)| *name == net);
        let found = named.next().or_else(|| owned.next());
        let (owner, link, device) = found.ok_or_else(|| {
            let links: Vec<_> = free.iter().map(|(_, link, _)| *link).collect();
            no_end(net, &links)
        })?;
        if self.down {
            return Err(format!("{link}: all components are being ended"));
        }
        if self.joined.iter().any(|other| other.link == *link) {
            return Err(format!(
                "somebody has the end of {link} already; end that program, or leave another link \
                 free in the file: [link.NAME] and proxy = true"
            ));
        }
        let side = device.handed(owner).and_then(|side| side.other());
        let side = side.filter(|side| self.has(side));
        let side = side.ok_or_else(|| format!("{owner} has not begun; type: outboard ps"))?;
        Ok((side, device.mtu))
    }

    /// Has back what those had who are gone: their ends are down.
    pub(super) fn attend_joined(&mut self) {
        for one in std::mem::take(&mut self.joined) {
            match one.channel.receive::<Command>() {
                Ok(Received::Nothing) => self.joined.push(one),
                _ => self.end_is_down(&one.link),
            }
        }
    }

    /// The free end of this link is another one from now on.
    pub(super) fn dismiss(&mut self, link: &str) {
        self.joined.retain(|one| one.link != link);
    }

    /// Marks the free end of this link as down: nobody has it.
    fn end_is_down(&self, gone: &str) {
        let is_it = |side: &Handed| match side {
            Handed::Side { link, end, .. } => link == gone && end == PROXY,
            _ => false,
        };
        for (side, descriptors) in self.pool.iter().filter(|(side, _)| is_it(side)) {
            // What fails here the next one at this end does.
            let _ = handed::go_down(std::slice::from_ref(side), descriptors);
        }
    }

    /// Whoever has had a free end under the supervisor before lets go of it: all of them are down.
    pub(super) fn free_ends(&self) {
        let links = self.pool.keys().filter_map(|side| match side {
            Handed::Side { link, end, .. } if end == PROXY => Some(link),
            _ => None,
        });
        links.for_each(|link| self.end_is_down(link));
    }
}

/// What is said of a link that has no end for programs outside of the file.
fn no_end(net: &str, links: &[&str]) -> String {
    let how = "write [link.NAME] and proxy = true into the file of outboard up";
    match (suggest::nearest(net, links.iter().copied()), links) {
        (Some(near), _) => format!("no end of a link {net} is free; did you mean {near}?"),
        (None, []) => format!("no end of a link {net} is free; {how}"),
        (None, links) => format!(
            "no end of a link {net} is free; there is {}, or {how}",
            suggest::listed(links)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_no_end_learns_which_there_are() {
        assert!(no_end("apps", &[]).ends_with("proxy = true into the file of outboard up"));
        assert!(no_end("aps", &["apps"]).ends_with("did you mean apps?"));
        assert!(no_end("zzzzzz", &["apps"]).contains("there is apps, or write"));
    }
}
