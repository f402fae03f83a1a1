//! What a file says of one component, and what follows from it: the command line of its run, and
//! who holds what.

use super::groups::{Groups, Limits};
use super::handed::{Handed, PROXY, SIDE_DESCRIPTORS};
use super::policy::Restart;
use super::program::Program;
use super::progress::STILL_DEFAULT;
use std::path::PathBuf;
use std::time::Duration;

/// The number of the first descriptor that a component is handed.
pub const FIRST_HANDED: i32 = 3;

/// A component, as the file has it, with whole paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Component {
    /// Its name: that of its instance.
    pub name: String,
    /// Where the file begins with it, in bytes.
    pub place: usize,
    /// The image; no path for a program.
    pub image: PathBuf,
    /// What it is in place of an image.
    pub program: Option<Program>,
    /// Where it runs; `None`: where the image says.
    pub host: Option<String>,
    /// Guest memory, in MiB.
    pub memory: Option<u64>,
    /// The guest's own arguments.
    pub arguments: Vec<String>,
    /// Rules in place of those of the image.
    pub rules: Option<PathBuf>,
    /// How it waits for PCI devices.
    pub poll: Option<String>,
    /// What it is given, in the order of the file.
    pub devices: Vec<Device>,
    /// Components that have to be up before it is started.
    pub after: Vec<String>,
    /// Which ends are followed by a restart.
    pub restart: Restart,
    /// Whether a spare is loaded for its next run.
    pub spare: bool,
    /// How many of its core files are kept.
    pub cores: u64,
    /// What it may use.
    pub limits: Limits,
    /// How long it may make no progress, in seconds: 0 for any time.
    pub progress: Option<u64>,
}

/// Something that a component is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// What it is.
    pub kind: Kind,
    /// Its name in the manifest.
    pub name: String,
    /// What is attached, as `outboard run` takes it, or `link:` and the name of a link.
    pub source: String,
    /// Who is at the other end of the link, if it is one.
    pub peer: Option<String>,
    /// The MAC address of a network, if the file says.
    pub mac: Option<String>,
    /// The MTU of a link in bytes, if the file says.
    pub mtu: Option<u16>,
    /// Whether who is at the other end of the link may see what this component drops.
    pub open: bool,
    /// Where the file has it, in bytes.
    pub place: usize,
}

/// Kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A network: a tap, a macvtap or an end of a link.
    Net,
    /// A disk.
    Block,
    /// A PCIe device.
    Pci,
    /// Sockets of the host's.
    Sockets,
    /// Memory that outlives its instances.
    State,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Net,
        Self::Block,
        Self::Pci,
        Self::Sockets,
        Self::State,
    ];

    /// The table of the file that has them, and the option of `outboard run`.
    pub fn key(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Block => "block",
            Self::Pci => "pci",
            Self::Sockets => "sockets",
            Self::State => "state",
        }
    }
}

impl Device {
    /// The tap that is attached, if it is one. It is handed over by descriptor, and stays open from
    /// run to run, so that a neighbour's cable is never out.
    pub fn tap(&self) -> Option<&str> {
        // No other one has a colon.
        (self.kind == Kind::Net && !self.source.contains(':')).then_some(&self.source)
    }

    /// The link of which an end is attached, if it is one.
    pub fn link(&self) -> Option<&str> {
        let net = Some(&self.source).filter(|_| self.kind == Kind::Net);
        net?.strip_prefix(LINK)
    }

    /// What `owner` is handed for it, unless it opens it itself.
    pub fn handed(&self, owner: &str) -> Option<Handed> {
        if self.kind == Kind::State {
            let (owner, name) = (owner.to_owned(), self.name.clone());
            return Some(Handed::State { owner, name });
        }
        if let Some(tap) = self.tap() {
            return Some(Handed::Tap(tap.to_owned()));
        }
        Some(Handed::Side {
            link: self.link()?.to_owned(),
            end: owner.to_owned(),
            peer: self.peer.clone()?,
        })
    }

    /// Whether its MAC address is chosen by whoever starts the component. A macvtap has its
    /// parent's. A link's lies in its memory, and would not outlive that.
    pub fn wants_mac(&self) -> bool {
        self.mac.is_none() && (self.tap().is_some() || self.link().is_some())
    }
}

impl Component {
    /// What it is handed, in the order of the descriptors.
    pub fn handed(&self) -> impl Iterator<Item = Handed> {
        let devices = self.devices.iter();
        devices.filter_map(|device| device.handed(&self.name))
    }

    /// The other ends of its links that no component has: its keeper keeps them for whoever asks.
    pub fn kept(&self) -> impl Iterator<Item = Handed> {
        let devices = self.devices.iter();
        let free = devices.filter(|device| device.peer.as_deref() == Some(PROXY));
        free.filter_map(|device| device.handed(&self.name)?.other())
    }

    /// How long it may make no progress; `None` for any time, as for programs, which do not count
    /// their turns.
    pub fn may_stand_still(&self) -> Option<Duration> {
        if self.program.is_some() {
            return None;
        }
        let still = self.progress.map_or(STILL_DEFAULT, Duration::from_secs);
        Some(still).filter(|still| !still.is_zero())
    }

    /// What stands behind `outboard run`, or `outboard proxy` for a program, with these
    /// MAC addresses for networks that have none in
    /// the file: a neighbour knows a component by its address, so that it keeps it. Taps, links and
    /// states are behind the descriptors from [`FIRST_HANDED`] on.
    pub fn command_line(&self, macs: &[(String, String)]) -> Vec<String> {
        if let Some(program) = &self.program {
            return program.command_line(self.link_end());
        }
        let mut line = vec![format!("--name={}", self.name)];
        let memory = self.memory.map(|mib| format!("--mem={mib}"));
        let host = self.host.as_ref().map(|host| format!("--host={host}"));
        let poll = self.poll.as_ref().map(|poll| format!("--poll={poll}"));
        let rules = self.rules.as_ref();
        let rules = rules.map(|rules| format!("--rules={}", rules.display()));
        line.extend([memory, host, poll, rules].into_iter().flatten());
        let mut descriptors = FIRST_HANDED..;
        for device in &self.devices {
            let Device {
                kind, name, source, ..
            } = device;
            if device.link().is_some() {
                let side = descriptors.by_ref().take(SIDE_DESCRIPTORS);
                let side: Vec<_> = side.map(|number| number.to_string()).collect();
                let open = if device.open { ",open" } else { "" };
                line.push(format!("--link:{name}={}{open}", side.join(",")));
            } else {
                let descriptor = device.handed(&self.name).and_then(|_| descriptors.next());
                let descriptor = descriptor.map(|number| format!("@{number}"));
                let source = descriptor.as_ref().unwrap_or(source);
                line.push(format!("--{}:{name}={source}", kind.key()));
            }
            let chosen = macs.iter().find(|(net, _)| net == name);
            let chosen = chosen.filter(|_| device.wants_mac());
            let mac = device.mac.as_ref().or(chosen.map(|(_, mac)| mac));
            line.extend(mac.map(|mac| format!("{MAC}{name}={mac}")));
            line.extend(device.mtu.map(|mtu| format!("--net-mtu:{name}={mtu}")));
        }
        line.extend(["--".to_owned(), self.image.display().to_string()]);
        line.extend(self.arguments.iter().cloned());
        line
    }

    /// Who holds what: what it is, where it is, and what the component may do with it, if `groups`
    /// bound it.
    pub fn holdings(&self, groups: Option<&Groups>) -> Vec<[String; 3]> {
        let file = |what: &str, path: &PathBuf, right: &str| {
            [
                what.to_owned(),
                path.display().to_string(),
                right.to_owned(),
            ]
        };
        let mut rows = match &self.program {
            Some(program) => program.holdings(),
            None => vec![file("image", &self.image, "read")],
        };
        rows.extend(self.rules.iter().map(|path| file("rules", path, "read")));
        rows.extend(self.devices.iter().map(|device| {
            let what = format!("{} {}", device.kind.key(), device.name);
            let right = match (device.kind, &device.peer) {
                (Kind::Net, Some(peer)) => {
                    let seen = match device.open {
                        true => format!(", which sees what {} drops", self.name),
                        false => String::new(),
                    };
                    format!("write its own memory, read that of {peer}, wake {peer} up{seen}")
                }
                (Kind::Net, None) => "send, receive".to_owned(),
                (Kind::Block, _) => "read, write".to_owned(),
                (Kind::Pci, _) => "registers and DMA memory that the manifest names".to_owned(),
                (Kind::Sockets, _) => "all that the network namespace allows".to_owned(),
                (Kind::State, _) => "read, write; its next instance as well".to_owned(),
            };
            [what, device.source.clone(), right]
        }));
        if self.cores > 0 {
            let kept = format!("the last {}", self.cores);
            rows.push([
                "core files".to_owned(),
                kept,
                "write, at its end".to_owned(),
            ]);
        }
        if self.program.is_none() {
            let memory = self.memory.unwrap_or(tender::options::MEM_MIB_DEFAULT);
            let memory = format!("{memory} MiB");
            rows.push(["memory".to_owned(), memory, "all".to_owned()]);
        }
        let held = self.limits.held(groups).into_iter();
        rows.extend(held.map(|(what, most, by)| [what.to_owned(), most, by.words().to_owned()]));
        if let Some(still) = self.may_stand_still() {
            let right = "end, if it stands still for longer".to_owned();
            rows.push(["time".to_owned(), format!("{still:?} a turn"), right]);
        }
        let of_all = match self.program {
            Some(_) => &OF_ALL[..1],
            None => &OF_ALL[..],
        };
        rows.extend(of_all.iter().map(|row| row.map(str::to_owned)));
        rows
    }
}

/// What stands in front of the name of a link.
pub const LINK: &str = "link:";
/// The option that gives a network its address.
const MAC: &str = "--net-mac:";

/// What each component has, whatever the file says: its own, and no other's. A program has the
/// first alone.
const OF_ALL: [[&str; 3]; 4] = [
    ["console", "outboard logs", "write"],
    [
        "shared file",
        "outboard stats",
        "write counters, read what it is told",
    ],
    ["event", "outboard rules load", "wait"],
    ["timer, wait set", "its own", "wait"],
];

/// The MAC addresses in a command line, by the names of the networks.
pub fn macs(line: &[String]) -> Vec<(String, String)> {
    let options = line.iter().take_while(|option| *option != "--");
    let macs = options.filter_map(|option| option.strip_prefix(MAC)?.split_once('='));
    macs.map(|(name, mac)| (name.to_owned(), mac.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn firewall() -> Component {
        let net = |name: &str, source: &str, mac: Option<&str>| Device {
            kind: Kind::Net,
            name: name.into(),
            source: source.into(),
            peer: source.strip_prefix(LINK).map(|_| "echo".into()),
            mac: mac.map(str::to_owned),
            mtu: None,
            open: false,
            place: 0,
        };
        Component {
            name: "fw".into(),
            image: "/fw.spt".into(),
            memory: Some(16),
            arguments: vec!["--net-mac:a=b".into()],
            rules: Some("/a.nft".into()),
            devices: vec![
                net("private", "tap0", None),
                net("public", "macvtap:eth0", None),
                net("inner", "link:inner", None),
                net("third", "tap1", Some("02:00:00:00:00:03")),
            ],
            ..Component::default()
        }
    }

    #[test]
    fn a_component_is_a_run_with_a_name() {
        let chosen = ["private", "public", "inner", "third"].map(|net| (net.into(), "02:1".into()));
        let line = firewall().command_line(&chosen);
        let expected = "--name=fw --mem=16 --rules=/a.nft --net:private=@3 \
                        --net-mac:private=02:1 --net:public=macvtap:eth0 --link:inner=4,5,6,7 \
                        --net-mac:inner=02:1 --net:third=@8 \
                        --net-mac:third=02:00:00:00:00:03 -- /fw.spt --net-mac:a=b";
        assert_eq!(line.join(" "), expected);
        let found = macs(&line);
        assert_eq!(found[0], ("private".into(), "02:1".into()));
        assert_eq!(found.len(), 3);
        assert_eq!(firewall().command_line(&found), line);
        let firewall = firewall();
        let counts = firewall.handed().map(|what| what.descriptors());
        assert_eq!(counts.collect::<Vec<_>>(), [1, 4, 1]);
    }

    #[test]
    fn who_holds_what_is_told() {
        let rows = firewall().holdings(None);
        assert_eq!(rows[2], ["net private", "tap0", "send, receive"]);
        let right = "write its own memory, read that of echo, wake echo up";
        assert_eq!(rows[4], ["net inner", "link:inner", right]);
        assert!(rows.iter().any(|row| row[1] == "16 MiB"));
    }
}
