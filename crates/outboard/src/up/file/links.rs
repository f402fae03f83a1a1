//! Links: the ends that components have of them.

use super::{Reading, Value, integer, texts, unknown};
use crate::up::channel::DESCRIPTORS_MAX;
use crate::up::component::{Component, Device, LINK as SOURCE};
use crate::up::handed::PROXY as PEER;
use abi::link::MTU_MIN;
use std::collections::{BTreeMap, BTreeSet};
use toml::de::DeTable;

/// The key of what is said of links.
pub(super) const LINK: &str = "link";
/// What may be said of one.
const MTU: &str = "mtu";
const TRUSTED: &str = "trusted";
const PROXY: &str = "proxy";

/// The links of which one end is for `outboard proxy --net=LINK`.
pub(super) fn free(document: &DeTable<'_>) -> BTreeSet<String> {
    let links = document.iter().filter(|(key, _)| key.get_ref() == LINK);
    let links = links.filter_map(|(_, value)| value.get_ref().as_table());
    let is_free = |value: &Value<'_>| {
        let said = value.get_ref().as_table()?.iter();
        let mut said = said.filter(|(key, _)| key.get_ref() == PROXY);
        said.next()?.1.get_ref().as_bool()
    };
    let free = links
        .flatten()
        .filter(|(_, value)| is_free(value) == Some(true));
    free.map(|(name, _)| name.get_ref().to_string()).collect()
}

impl Reading<'_> {
    /// What is said of links.
    pub(super) fn of_links(&mut self, document: &DeTable<'_>, components: &mut [Component]) {
        let Some((_, value)) = document.iter().find(|(key, _)| key.get_ref() == LINK) else {
            return;
        };
        let form = "a table for each link: [link.NAME]";
        for (link, value) in self.table(value, form).into_iter().flatten() {
            let name = link.get_ref().as_ref();
            let is_end = |device: &&Device| device.link() == Some(name);
            let mut devices = components.iter().flat_map(|one| &one.devices);
            if !devices.any(|device| is_end(&device)) {
                let what = format!(
                    "there is no link {name}; write net.NAME = \"{SOURCE}{name}\" in two components"
                );
                self.mistake(link.span().start, what);
                continue;
            }
            for (key, value) in self
                .table(value, "a table: [link.NAME]")
                .into_iter()
                .flatten()
            {
                match key.get_ref().as_ref() {
                    MTU => self.mtu(name, value, components),
                    TRUSTED => self.trusted(name, value, components),
                    PROXY if value.get_ref().as_bool().is_some() => {}
                    PROXY => self.mistake(
                        value.span().start,
                        format_args!("{PROXY}: expected true or false"),
                    ),
                    typed => {
                        let what = unknown(typed, [MTU, TRUSTED, PROXY].into_iter());
                        self.mistake(key.span().start, what);
                    }
                }
            }
        }
    }

    /// What both ends of a link carry.
    fn mtu(&mut self, link: &str, value: &Value<'_>, components: &mut [Component]) {
        let bytes = integer(value, MTU_MIN.into()..u64::from(u16::MAX) + 1);
        let Some(bytes) = bytes.and_then(|bytes| u16::try_from(bytes).ok()) else {
            let what = format!("{MTU}: expected bytes from {MTU_MIN} to {}", u16::MAX);
            return self.mistake(value.span().start, what);
        };
        let devices = components.iter_mut().flat_map(|one| &mut one.devices);
        let ends = devices.filter(|device| device.link() == Some(link));
        ends.for_each(|device| device.mtu = Some(bytes));
    }

    /// The components that may see what their neighbour at the other end drops.
    fn trusted(&mut self, link: &str, value: &Value<'_>, components: &mut [Component]) {
        let Some(trusted) = texts(value) else {
            let what = format!(
                "{TRUSTED}: expected names of components, as in {TRUSTED} = [\"firewall\"]"
            );
            return self.mistake(value.span().start, what);
        };
        for name in trusted {
            let devices = components.iter_mut().flat_map(|one| &mut one.devices);
            let mut ends = devices.filter(|device| device.link() == Some(link));
            let before = ends.find(|device| device.peer.as_deref() == Some(&name));
            match before {
                Some(device) => device.open = true,
                None => {
                    let what = format!("{TRUSTED}: {name} is at no end of {link}");
                    self.mistake(value.span().start, what);
                }
            }
        }
    }

    /// A link has an end in each of two components, which are told to each other here.
    /// A `free` one has the other end for a proxy.
    pub(super) fn links(&mut self, components: &mut [Component], free: &BTreeSet<String>) {
        let mut links: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
        for (component, one) in components.iter().enumerate() {
            for (device, link) in one.devices.iter().enumerate() {
                if let Some(name) = link.link() {
                    let ends = links.entry(name.to_owned()).or_default();
                    ends.push((component, device));
                }
            }
        }
        for (link, mut ends) in links {
            let place = |(component, device): (usize, usize)| -> usize {
                components[component].devices[device].place
            };
            ends.sort_by_key(|end| place(*end));
            let name = |(component, _): (usize, usize)| components[component].name.clone();
            match ends[..] {
                [(component, device)] if free.contains(&link) => {
                    components[component].devices[device].peer = Some(PEER.to_owned());
                }
                [_, other, ..] if free.contains(&link) => {
                    let what = format!(
                        "{link} has an end for outboard proxy and one in {} already; write \
                         another link here",
                        name(ends[0])
                    );
                    self.mistake(place(other), what);
                }
                [one, other] if one.0 != other.0 => {
                    let names = [name(other), name(one)];
                    for ((component, device), peer) in [one, other].into_iter().zip(names) {
                        components[component].devices[device].peer = Some(peer);
                    }
                }
                [_, other] => {
                    let what = format!(
                        "{link} has both ends in {}; a link joins two components",
                        name(other)
                    );
                    self.mistake(place(other), what);
                }
                [one] => {
                    let what = format!(
                        "{link} has one end; write net.NAME = \"{SOURCE}{link}\" in another \
                         component too, or [link.{link}] and {PROXY} = true"
                    );
                    self.mistake(place(one), what);
                }
                [one, other, third, ..] => {
                    let names = [one, other].map(name);
                    let what = format!(
                        "{link} has its ends in {} and {} already; a link joins two components",
                        names[0], names[1]
                    );
                    self.mistake(place(third), what);
                }
                [] => {}
            }
        }
        for component in components {
            self.descriptors(component);
        }
    }

    /// All that a component is handed goes in one message, beside the file for what is said of it.
    fn descriptors(&mut self, component: &Component) {
        let handed = component.handed().chain(component.kept());
        let handed: usize = handed.map(|what| what.descriptors()).sum();
        if handed >= DESCRIPTORS_MAX {
            let what = format!(
                "the taps, links and states of {} have {handed} descriptors, 1, 4 and 1 each; \
                 {} is the most",
                component.name,
                DESCRIPTORS_MAX - 1
            );
            self.mistake(component.place, what);
        }
    }
}
