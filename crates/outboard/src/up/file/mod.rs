//! The file of `outboard up`: read to its end, with every mistake, a line each and with its place.
//!
//! It decides by its text alone. Whether images, interfaces and files are there is looked at by
//! [`super::check`].

mod links;
mod program;

use super::component::{Component, Device, Kind, LINK};
use super::cores::CORES_MAX;
use super::policy::Restart;
use super::program::Program;
use super::progress::STILL_SECONDS_MAX;
use crate::instance;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use tender::options::{Host, MEM_MIB_MAX};
use tender::suggest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Longest file, in bytes.
pub const BYTES_MAX: usize = 1 << 20;
/// Most components in a file.
pub const COMPONENTS_MAX: usize = 32;
/// Most devices of a component: as many as a manifest has room for.
const DEVICES_MAX: usize = 63;
/// Mistakes that are told; behind so many, a person corrects the first.
const MISTAKES_MAX: usize = 100;
/// What a component's processes need beside guest memory, in MiB: programs, stacks, shared files.
const MEMORY_LIMIT_EXTRA: u64 = 256;

/// Most time that a component may have, in percent of a processor: that of 1024 of them.
const CPU_PERCENT_MAX: u64 = 102_400;

/// The key of the components.
const COMPONENT: &str = "component";
/// What a file may say of a component, and in which form.
const KEYS: [(&str, &str); 16] = [
    ("image", "a path, as in image = \"firewall.spt\""),
    ("host", "\"spt\", \"hvt\" or \"process\""),
    ("memory", "MiB from 1 to 262144"),
    (
        "arguments",
        "texts, as in arguments = [\"--ipv4=10.0.0.2/24\"]",
    ),
    ("rules", "a path, as in rules = \"rules.nft\""),
    ("poll", "\"busy\" or \"interrupt\""),
    (
        "net",
        "\"tap:IFACE\", \"macvtap:PARENT\" or \"link:NAME\", as in net.private = \
         \"tap:private0\"",
    ),
    (
        "mac",
        "an address, as in mac.private = \"02:00:00:00:00:01\"",
    ),
    ("block", "a path, as in block.disk = \"disk.img\""),
    (
        "pci",
        "an address or \"vfio-user:SOCKET\", as in pci.nic = \"0000:01:00.0\"",
    ),
    ("sockets", "\"host\", as in sockets.service = \"host\""),
    ("state", "\"memory\", as in state.vault = \"memory\""),
    ("after", "names of components, as in after = [\"stack\"]"),
    ("restart", "\"always\", \"on-failure\" or \"never\""),
    ("spare", "true or false"),
    ("core", "how many core files are kept, from 0 to 10"),
];
/// The key of limits, which are a table.
const LIMITS: (&str, &str) = ("limits", "a table, as in limits.memory = 512, MiB");
/// What it may have.
const LIMIT_KEYS: [(&str, &str); 3] = [
    ("memory", "MiB"),
    ("cpu", "percent of a processor from 1 to 102400"),
    ("progress", "seconds up to 3600, or 0 for any time"),
];

/// Something in a file that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where, in bytes.
    pub place: usize,
    /// What is wrong, and what to write instead.
    pub what: String,
}

impl Mistake {
    /// The mistake as a line, in the file `path` with this text.
    pub fn line(&self, path: &Path, text: &str) -> String {
        let before = text.get(..self.place).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before[start..].chars().count() + 1;
        let what = self.what.escape_debug().to_string().replace("\\\"", "\"");
        format!(
            "{}:{line}:{column}: {}",
            path.display(),
            what.replace("\\'", "'")
        )
    }
}

/// The components of a file that lies in `folder`, in the order in which they are started.
///
/// # Errors
/// All mistakes, in the order of the text.
pub fn parse(text: &str, folder: &Path) -> Result<Vec<Component>, Vec<Mistake>> {
    let mut reading = Reading {
        folder,
        mistakes: Vec::new(),
    };
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let place = error.span().map_or(0, |span| span.start);
        reading.mistake(place, error.message());
    }
    let mut components = reading.components(document.get_ref());
    reading.relations(&components);
    let free = links::free(document.get_ref());
    reading.links(&mut components, &free);
    reading.of_links(document.get_ref(), &mut components);
    let mut mistakes = reading.mistakes;
    match mistakes.is_empty() {
        true => {
            components.sort_by_key(|component| component.place);
            Ok(in_order(components))
        }
        false => {
            mistakes.sort_by_key(|mistake| mistake.place);
            mistakes.truncate(MISTAKES_MAX);
            Err(mistakes)
        }
    }
}

/// Each behind those that it comes after, otherwise as they are. There are no circles.
fn in_order(mut left: Vec<Component>) -> Vec<Component> {
    let mut ordered = Vec::with_capacity(left.len());
    while let Some(next) = free(&left) {
        ordered.push(left.remove(next));
    }
    ordered
}

/// The first that comes after nobody that is left.
fn free(left: &[impl Borrow<Component>]) -> Option<usize> {
    let mut all = left.iter().map(Borrow::borrow);
    let is_left = |name: &String| left.iter().any(|other| other.borrow().name == *name);
    all.position(|one| !one.after.iter().any(is_left))
}

/// What is being read, and what was wrong so far.
struct Reading<'a> {
    folder: &'a Path,
    mistakes: Vec<Mistake>,
}

type Value<'a> = Spanned<DeValue<'a>>;

impl Reading<'_> {
    fn mistake(&mut self, place: usize, what: impl fmt::Display) {
        let what = what.to_string();
        self.mistakes.push(Mistake { place, what });
    }

    fn components(&mut self, document: &DeTable<'_>) -> Vec<Component> {
        let mut components = Vec::new();
        for (key, value) in document {
            if key.get_ref() != COMPONENT {
                if key.get_ref() != links::LINK {
                    let what = unknown(key.get_ref(), [COMPONENT, links::LINK].into_iter());
                    self.mistake(key.span().start, what);
                }
                continue;
            }
            let Some(table) = self.table(value, "a table for each component: [component.NAME]")
            else {
                continue;
            };
            for (name, value) in table {
                components.extend(self.component(name, value));
            }
        }
        if components.is_empty() && self.mistakes.is_empty() {
            self.mistake(
                0,
                "no component; write [component.NAME] and image = \"...\" below it",
            );
        }
        if let Some(one) = components.get(COMPONENTS_MAX) {
            let (place, count) = (one.place, components.len());
            self.mistake(
                place,
                format_args!("{count} components; {COMPONENTS_MAX} is the most"),
            );
        }
        components
    }

    fn component(
        &mut self,
        key: &Spanned<toml::de::DeString<'_>>,
        value: &Value<'_>,
    ) -> Option<Component> {
        let name = key.get_ref().as_ref();
        let place = key.span().start;
        if !instance::is_name(name) {
            let error = instance::Error::Name(name.escape_debug().to_string());
            let error = error.to_string();
            let what = error.split("; as in").next().unwrap_or_default();
            self.mistake(place, what);
        }
        let table = self.table(value, "a table: [component.NAME]")?;
        let mut component = Component {
            name: name.to_owned(),
            place,
            ..Component::default()
        };
        let (mut macs, mut program) = (BTreeMap::new(), Program::default());
        for (key, value) in table {
            if self
                .of_program(&mut program, key.get_ref(), value)
                .is_none()
            {
                self.key(&mut component, &mut macs, key, value);
            }
        }
        component.program = Some(program).filter(|program| !program.words.is_empty());
        for device in component.devices.iter_mut().filter(|d| d.kind == Kind::Net) {
            device.mac = macs.remove(&device.name).map(|(_, mac)| mac);
        }
        for (net, (place, _)) in macs {
            self.mistake(place, format_args!("mac.{net}: there is no net.{net}"));
        }
        let keys = table.keys();
        let keys = keys.map(|key| (key.span().start, key.get_ref().to_string()));
        self.of_its_kind(&component, &keys.collect::<Vec<_>>());
        let needed = component.memory.unwrap_or(tender::options::MEM_MIB_DEFAULT);
        let needed = needed + MEMORY_LIMIT_EXTRA;
        let is_short = component.limits.memory.is_some_and(|limit| limit < needed);
        if is_short && component.program.is_none() {
            let what = format!(
                "limits.memory of {name}: less than memory and {MEMORY_LIMIT_EXTRA} MiB: {needed}"
            );
            self.mistake(place, what);
        }
        component.devices.sort_by_key(|device| device.place);
        Some(component)
    }

    fn key(
        &mut self,
        component: &mut Component,
        macs: &mut BTreeMap<String, (usize, String)>,
        key: &Spanned<toml::de::DeString<'_>>,
        value: &Value<'_>,
    ) {
        let typed = key.get_ref().as_ref();
        let keys = KEYS.iter().chain([&LIMITS]);
        let Some((_, form)) = keys.clone().find(|(name, _)| *name == typed) else {
            let keys = keys.chain(&program::KEYS);
            let what = unknown(typed, keys.map(|(name, _)| *name));
            return self.mistake(key.span().start, what);
        };
        if let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.key() == typed) {
            return self.devices(component, kind, value, form);
        }
        let text = || value.get_ref().as_str().filter(|text| is_plain(text));
        let one_of = |words: &[&str]| {
            text()
                .filter(|text| words.contains(text))
                .map(str::to_owned)
        };
        let path = |folder: &Path| text().and_then(|text| whole(folder, text));
        let done = match typed {
            "image" => path(self.folder).map(|image| component.image = image.into()),
            "rules" => path(self.folder).map(|rules| component.rules = Some(rules.into())),
            "host" => one_of(&Host::ALL.map(Host::name)).map(|host| component.host = Some(host)),
            "poll" => one_of(&["busy", "interrupt"]).map(|poll| component.poll = Some(poll)),
            "memory" => integer(value, 1..MEM_MIB_MAX + 1).map(|mib| component.memory = Some(mib)),
            "arguments" => texts(value).map(|all| component.arguments = all),
            "after" => texts(value).map(|all| component.after = all),
            "spare" => value
                .get_ref()
                .as_bool()
                .map(|spare| component.spare = spare),
            "core" => integer(value, 0..CORES_MAX + 1).map(|most| component.cores = most),
            "restart" => {
                let named = Restart::ALL
                    .into_iter()
                    .find(|(name, _)| Some(*name) == text());
                named.map(|(_, restart)| component.restart = restart)
            }
            "mac" => return self.addresses(macs, value, form),
            _ => return self.limits(component, value),
        };
        if done.is_none() {
            self.mistake(value.span().start, format_args!("{typed}: expected {form}"));
        }
    }

    fn devices(&mut self, component: &mut Component, kind: Kind, value: &Value<'_>, form: &str) {
        let Some(table) = self.table(value, form) else {
            return;
        };
        if component.devices.len() + table.len() > DEVICES_MAX {
            let what = format_args!("more than {DEVICES_MAX} devices");
            return self.mistake(value.span().start, what);
        }
        for (name, value) in table {
            let text = value.get_ref().as_str().filter(|text| is_plain(text));
            let Some(source) = text.and_then(|text| source(kind, text, self.folder)) else {
                let what = format!("{}.{}: expected {form}", kind.key(), name.get_ref());
                self.mistake(value.span().start, what);
                continue;
            };
            component.devices.push(Device {
                kind,
                name: name.get_ref().to_string(),
                source,
                peer: None,
                mac: None,
                mtu: None,
                open: false,
                place: name.span().start,
            });
        }
    }

    fn addresses(
        &mut self,
        macs: &mut BTreeMap<String, (usize, String)>,
        value: &Value<'_>,
        form: &str,
    ) {
        let Some(table) = self.table(value, form) else {
            return;
        };
        for (name, value) in table {
            let place = value.span().start;
            match value.get_ref().as_str().filter(|text| is_plain(text)) {
                Some(mac) => {
                    macs.insert(name.get_ref().to_string(), (place, mac.to_owned()));
                }
                None => self.mistake(
                    place,
                    format_args!("mac.{}: expected {form}", name.get_ref()),
                ),
            }
        }
    }

    fn limits(&mut self, component: &mut Component, value: &Value<'_>) {
        let (name, form) = LIMITS;
        let Some(table) = self.table(value, form) else {
            return;
        };
        for (key, value) in table {
            let typed = key.get_ref().as_ref();
            let Some((_, form)) = LIMIT_KEYS.iter().find(|(limit, _)| *limit == typed) else {
                let what = unknown(typed, LIMIT_KEYS.iter().map(|(limit, _)| *limit));
                self.mistake(key.span().start, format_args!("{name}: {what}"));
                continue;
            };
            let (limit, range) = match typed {
                "memory" => (&mut component.limits.memory, 1..u64::MAX >> 20),
                "cpu" => (&mut component.limits.cpu, 1..CPU_PERCENT_MAX + 1),
                _ => (&mut component.progress, 0..STILL_SECONDS_MAX + 1),
            };
            *limit = integer(value, range);
            if limit.is_none() {
                let place = value.span().start;
                self.mistake(place, format_args!("{name}.{typed}: expected {form}"));
            }
        }
    }

    fn table<'t, 'i>(&mut self, value: &'t Value<'i>, form: &str) -> Option<&'t DeTable<'i>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.mistake(value.span().start, format_args!("expected {form}"));
        }
        table
    }

    /// What components have to do with each other.
    fn relations(&mut self, components: &[Component]) {
        let names = || components.iter().map(|component| component.name.as_str());
        for component in components {
            for name in &component.after {
                if !names().any(|other| other == name) {
                    let what = match suggest::nearest(name, names()) {
                        Some(near) => {
                            format!("after {name:?}: no such component; did you mean {near}?")
                        }
                        None => format!("after {name:?}: no such component"),
                    };
                    self.mistake(component.place, what);
                }
            }
        }
        let mut circle: Vec<&Component> = components.iter().collect();
        // Who comes after nobody that is left cannot be part of a circle.
        while let Some(free) = free(&circle) {
            circle.remove(free);
        }
        if let Some(first) = circle.first() {
            let names: Vec<_> = circle.iter().map(|one| one.name.as_str()).collect();
            let what = format_args!("each comes after another one: {}", suggest::listed(&names));
            self.mistake(first.place, what);
        }
        self.sharing(components);
    }

    /// A device is one component's.
    fn sharing(&mut self, components: &[Component]) {
        let mut owners: BTreeMap<(&str, &str), &str> = BTreeMap::new();
        for component in components {
            for device in component
                .devices
                .iter()
                .filter(|device| !matches!(device.kind, Kind::Sockets | Kind::State))
            {
                if device.kind == Kind::Net && device.tap().is_none() {
                    continue;
                }
                let (kind, source) = (device.kind.key(), device.source.as_str());
                if let Some(owner) = owners.insert((kind, source), &component.name) {
                    let what =
                        format_args!("{source} is {owner}'s already; a device has one owner");
                    self.mistake(device.place, what);
                }
            }
        }
    }
}

/// What a [`Device`] has as its source that the file has in this form.
fn source(kind: Kind, text: &str, folder: &Path) -> Option<String> {
    // A number of a descriptor is nobody's outside of this process.
    let named = |name: &str| (!name.is_empty() && !name.starts_with('@')).then(|| name.to_owned());
    match kind {
        Kind::Net => match text.split_once(':')? {
            ("tap", name) => named(name).filter(|name| !name.contains(':')),
            ("macvtap", parent) => named(parent).map(|parent| format!("macvtap:{parent}")),
            ("link", name) => named(name).map(|name| format!("{LINK}{name}")),
            _ => None,
        },
        Kind::Block => whole(folder, text),
        Kind::Pci => match text.strip_prefix("vfio-user:") {
            Some(socket) => {
                let socket = named(socket)?;
                Some(format!("vfio-user:{}", whole(folder, &socket)?))
            }
            None => named(text),
        },
        Kind::Sockets => (text == "host").then(|| text.to_owned()),
        Kind::State => (text == "memory").then(|| text.to_owned()),
    }
}

/// A path of the file's, from the root on. `None`: it is no text.
fn whole(folder: &Path, path: &str) -> Option<String> {
    if path.is_empty() {
        return None;
    }
    folder.join(path).to_str().map(str::to_owned)
}

/// Whether a text can be part of a command line.
fn is_plain(text: &str) -> bool {
    !text.contains('\0')
}

fn texts(value: &Value<'_>) -> Option<Vec<String>> {
    let array = value.get_ref().as_array()?;
    let text = |value: &Value<'_>| {
        let text = value.get_ref().as_str().filter(|text| is_plain(text));
        text.map(str::to_owned)
    };
    array.iter().map(text).collect()
}

fn integer(value: &Value<'_>, range: Range<u64>) -> Option<u64> {
    let integer = value.get_ref().as_integer()?;
    let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok()?;
    range.contains(&number).then_some(number)
}

/// What is said of a key that there is not.
fn unknown<'a>(typed: &str, keys: impl Iterator<Item = &'a str> + Clone) -> String {
    match suggest::nearest(typed, keys.clone()) {
        Some(near) => format!("no such key: {typed}; did you mean {near}?"),
        None => {
            let keys: Vec<_> = keys.collect();
            format!("no such key: {typed}; there is {}", suggest::listed(&keys))
        }
    }
}

#[cfg(test)]
mod tests;
