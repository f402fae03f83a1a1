//! Links: the ends that components have of them.

use super::{Reading, integer, unknown};
use crate::up::channel::DESCRIPTORS_MAX;
use crate::up::component::{Component, LINK as SOURCE};
use abi::link::MTU_MIN;
use std::collections::BTreeMap;
use toml::de::DeTable;

/// The key of what is said of links.
pub(super) const LINK: &str = "link";
/// What may be said of one.
const MTU: &str = "mtu";

impl Reading<'_> {
    /// What both ends of a link carry.
    pub(super) fn mtus(&mut self, document: &DeTable<'_>, components: &mut [Component]) {
        let Some((_, value)) = document.iter().find(|(key, _)| key.get_ref() == LINK) else {
            return;
        };
        let form = "a table for each link: [link.NAME]";
        for (link, value) in self.table(value, form).into_iter().flatten() {
            let name = link.get_ref().as_ref();
            let place = link.span().start;
            for (key, value) in self
                .table(value, "a table: [link.NAME]")
                .into_iter()
                .flatten()
            {
                let typed = key.get_ref().as_ref();
                if typed != MTU {
                    let what = unknown(typed, [MTU].into_iter());
                    self.mistake(key.span().start, what);
                    continue;
                }
                let bytes = integer(value, MTU_MIN.into()..u64::from(u16::MAX) + 1);
                let Some(bytes) = bytes.and_then(|bytes| u16::try_from(bytes).ok()) else {
                    let what = format!("{MTU}: expected bytes from {MTU_MIN} to {}", u16::MAX);
                    self.mistake(value.span().start, what);
                    continue;
                };
                let devices = components.iter_mut().flat_map(|one| &mut one.devices);
                let ends = devices.filter(|device| device.link() == Some(name));
                if ends.map(|device| device.mtu = Some(bytes)).count() == 0 {
                    let what = format!(
                        "there is no link {name}; write net.NAME = \"{SOURCE}{name}\" in two \
                         components"
                    );
                    self.mistake(place, what);
                }
            }
        }
    }

    /// A link has an end in each of two components, which are told to each other here.
    pub(super) fn links(&mut self, components: &mut [Component]) {
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
                         component too"
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
        let handed: usize = component.handed().map(|what| what.descriptors()).sum();
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
