//! Links: the ends that components have of them.

use super::Reading;
use crate::up::channel::DESCRIPTORS_MAX;
use crate::up::component::{Component, LINK};
use std::collections::BTreeMap;

impl Reading<'_> {
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
                        "{link} has one end; write net.NAME = \"{LINK}{link}\" in another \
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
