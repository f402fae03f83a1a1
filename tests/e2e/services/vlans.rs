//! A router whose private port carries VLANs, each with a Linux in it.
//!
//! ```text
//!   10.0.0.2 --- private.100 === router === public --- server 192.0.2.1
//!   10.0.1.2 --- private.200 ===
//! ```

use super::router::{CLIENT, PATIENCE, PUBLIC, SERVER, go_out, ping, reaches, speak6};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Running, start};
use crate::harness::programs;
use crate::harness::runtime::Runtime;
use crate::harness::vlans::{INTERFACE, Vlans};
use crate::harness::wait::eventually;
use libtest_mimic::{Failed, Trial};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use testbed::segment::{Address, Segment};

type Test = fn(&Images) -> Result<(), Failed>;

/// What a virtual machine must do as well: there, the other side is Linux's own VLANs.
pub const ON_HVT: (&str, Test) = ("VLANs are ports", |images| {
    let (runtime, command) = named(images, "hvt")?;
    are_ports(Trunked::by_linux(command, images)?)?;
    drop(runtime);
    Ok(())
});

const TESTS: [(&str, Test); 1] = [("VLANs are ports, and other frames are counted", |images| {
    let (runtime, command) = named(images, "spt")?;
    let trunked = Trunked::by_test(command, images)?;
    counted(images, &runtime, &trunked)?;
    are_ports(trunked)
})];

const IDS: [u16; 2] = [100, 200];
/// Linux's address in the second VLAN, and the router's.
const OTHER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 1, 2), Ipv4Addr::new(10, 0, 1, 1)];
const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const NAME: &str = "trunked";
/// Over the trunk.
const BYTES: usize = 256 << 10;

const RULES: &str = "table inet filter {
    chain forward {
        type filter hook forward priority filter; policy drop;
        ct state established,related accept
        iifname \"private.100\" accept
    }
}
table ip nat {
    chain srcnat {
        type nat hook postrouting priority srcnat;
        oifname \"public\" masquerade
    }
}
";

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let missing = programs::missing(&["ping"]);
    let trial = |&(name, test): &(&str, Test)| {
        let name = format!("vlans::{name}");
        network.trial_unless(missing, name, move || test(images))
    };
    TESTS.iter().map(trial).collect()
}

fn address(ip: Ipv4Addr) -> Address {
    Address {
        ip,
        prefix: 24,
        mtu: 1500,
    }
}

/// A command that starts a guest by name on this host, and where it is then.
fn named(images: &Images, host: &str) -> Result<(Runtime, Command), Failed> {
    let runtime = Runtime::new()?;
    let host = format!("--host={host}");
    let command = runtime.outboard(images, &["run", "--name", NAME, &host]);
    Ok((runtime, command))
}

/// The router, and who is around it.
struct Trunked {
    /// The first VLAN and the second one, with the names of their interfaces.
    inside: [(Segment, &'static str); 2],
    outside: Segment,
    running: Running,
    /// What passes frames on, if that is not Linux.
    passed: Option<Vlans>,
}

impl Trunked {
    /// The test puts on tags and takes them off.
    fn by_test(command: Command, images: &Images) -> Result<Self, Failed> {
        let [one, other] = [(IDS[0], address(CLIENT)), (IDS[1], address(OTHER[0]))];
        let mut vlans = Vlans::new(&[one, other])?;
        let descriptor = vlans.wire.descriptor()?;
        let inside = std::mem::take(&mut vlans.segments);
        let inside = inside.into_iter().map(|segment| (segment, INTERFACE));
        let inside: Vec<_> = inside.collect();
        let inside = inside.try_into().map_err(|_| "two VLANs")?;
        Self::start(command, images, &descriptor, inside, Some(vlans))
    }

    /// Linux does, which needs its module 8021q.
    fn by_linux(command: Command, images: &Images) -> Result<Self, Failed> {
        let [one, other] = [Segment::new()?, Segment::new()?];
        let tap = one.tap("tap0", true, address(Ipv4Addr::new(10, 0, 2, 1)))?;
        let tap: OwnedFd = tap.into_fd();
        rustix::io::fcntl_setfd(&tap, rustix::io::FdFlags::empty())?;
        let names = ["tap0.100", "tap0.200"];
        one.netlink(|netlink| {
            let vlans = names.into_iter().zip(IDS);
            vlans
                .clone()
                .try_for_each(|(name, id)| netlink.add_vlan(name, "tap0", id))?;
            netlink.move_to(names[1], std::os::fd::AsFd::as_fd(&other))
        })?;
        one.configure(names[0], address(CLIENT))?;
        other.configure(names[1], address(OTHER[0]))?;
        let inside = [(one, names[0]), (other, names[1])];
        let descriptor = format!("@{}", tap.as_raw_fd());
        Self::start(command, images, &descriptor, inside, None)
    }

    fn start(
        mut command: Command,
        images: &Images,
        private: &str,
        inside: [(Segment, &'static str); 2],
        passed: Option<Vlans>,
    ) -> Result<Self, Failed> {
        let outside = Segment::new()?;
        let public: OwnedFd = outside.tap("tap0", true, address(SERVER))?.into_fd();
        rustix::io::fcntl_setfd(&public, rustix::io::FdFlags::empty())?;
        let rules = crate::harness::temporary::TemporaryFile::new("rules", 0)?;
        std::fs::write(&rules.path, RULES)?;
        command
            .arg("--mem=64")
            .arg(format!("--net:private={private}"))
            .arg(format!("--net:public=@{}", public.as_raw_fd()))
            .arg(format!("--rules={}", rules.path.display()))
            .arg(images.appliance("router", ""))
            .args(["--vlan:private=200,100", "--mtu:private.200=1400"])
            .args([
                "--ipv4:private.100=10.0.0.1/24",
                "--ipv4:private.200=10.0.1.1/24",
            ])
            .args([
                "--ipv6:private.100=2001:db8:2::1/64",
                "--ipv4:public=192.0.2.9/24",
            ])
            .arg("--ipv6:public=2001:db8:1::9/64");
        let running = start(&mut command)?;
        running.wait_for("192.0.2.9/24 on public")?;
        running.wait_for("10.0.0.1/24 on private.100")?;
        running.wait_for("10.0.1.1/24 on private.200")?;
        let [(one, name), (other, _)] = &inside;
        for (segment, gateway) in [(one, INSIDE), (other, OTHER[1]), (&outside, PUBLIC)] {
            segment.netlink(|netlink| netlink.add_gateway(gateway.into()))?;
        }
        speak6([(one, name), (&outside, "tap0")])?;
        Ok(Self {
            inside,
            outside,
            running,
            passed,
        })
    }
}

/// Whoever is in the first VLAN reaches all; whoever is in the second one answers, and begins
/// nothing, for the rules say so by the names of ports.
fn are_ports(mut trunked: Trunked) -> Result<(), Failed> {
    let [(one, _), (other, _)] = &trunked.inside;
    go_out([one, &trunked.outside], BYTES)?;
    // A VLAN can carry less than its port.
    let told = ping(one, &format!("-c 1 -W 5 -M do -s 1400 {}", OTHER[0]))?;
    if !told.contains("mtu = 1400") {
        return Err(told.into());
    }
    reaches([one, other], OTHER[0].into(), CLIENT.into(), BYTES)?;
    for to in [CLIENT, SERVER] {
        let pinged = ping(other, &format!("-c 1 -W 1 {to}"))?;
        if !pinged.contains("0 received") {
            return Err(pinged.into());
        }
    }
    // The router itself answers there.
    let pinged = ping(other, &format!("-c 1 -W 5 {}", OTHER[1]))?;
    match (pinged.contains("1 received"), trunked.running.is_alive()) {
        (true, true) => Ok(()),
        (false, _) => Err(pinged.into()),
        _ => Err(format!("it ended: {:?}", trunked.running.finish()?).into()),
    }
}

/// What has no tag, an unknown one, or two.
fn counted(images: &Images, runtime: &Runtime, trunked: &Trunked) -> Result<(), Failed> {
    let wire = &trunked
        .passed
        .as_ref()
        .ok_or("Linux passes frames on")?
        .wire;
    let ends = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9];
    for words in [
        &[0x0800][..],
        &[0x8100, 0, 0x0800],
        &[0x8100, 300, 0x0800],
        &[0x8100, 100, 0x8100, 100, 0x0800],
        &[0x88a8, 100, 0x0800],
    ] {
        let words: &[u16] = words;
        let words = words.iter().flat_map(|word| word.to_be_bytes());
        let mut frame: Vec<u8> = ends.into_iter().chain(words).collect();
        frame.resize(60, 0);
        wire.send(&frame)?;
    }
    eventually(PATIENCE, || {
        let stats = runtime.json(images, &["stats", NAME, "--json"])?;
        for (name, count) in [
            ("vlan_untagged", 2),
            ("vlan_unknown", 1),
            ("vlan_nested", 2),
            ("vlan_short", 0),
        ] {
            let found = stats.pointer(&format!("/net/drops/{name}"));
            if found.and_then(serde_json::Value::as_u64) != Some(count) {
                return Err(format!("{name} is {found:?}, not {count}").into());
            }
        }
        Ok(())
    })
}
