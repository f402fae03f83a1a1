//! Appliances joined by a link: the firewall at the tap, echo behind it, each an image of its own.

use super::echo::{connect, random, round};
use super::{PLAIN, SERVICE, Served, tap, tender};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Ended, Running, run, start};
use crate::harness::programs;
use libtest_mimic::{Failed, Trial};
use linux::link::{self, Side};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use testbed::meter::cpu_time;
use testbed::segment::Segment;

/// Slots of each end, as the manifests say by saying nothing.
pub const SLOTS: [usize; 2] = [image::manifest::SLOTS as usize; 2];
/// How often each image is killed in turn.
const KILLS: usize = 5;
/// The same where all instructions are interpreted.
const KILLS_ON_HVT: usize = 2;
/// What an idle image may use of two seconds, as the kernel counts: in ticks of 10 ms.
const IDLE_MAX: Duration = Duration::from_millis(30);

/// All but one port of UDP passes.
const RULES: &str = "table bridge f { chain c { type filter hook forward priority 0; policy \
                     accept; udp dport 9 drop; }; }";

type Test = fn(&Images, [&'static str; 2]) -> Result<(), Failed>;

/// What is tried with the firewall on the first host and echo on the second one.
const TESTS: &[(&str, Test)] = &[
    ("bytes come back", bytes_come_back),
    ("each is killed in turn", |images, hosts| {
        killed_in_turn(images, hosts, KILLS)
    }),
];

/// What is tried with a virtual machine.
pub type OnHvt = fn(&Images) -> Result<(), Failed>;

/// What a virtual machine must do as well, at either end, beside each other host.
pub const ON_HVT: &[(&str, OnHvt)] = &[
    ("two virtual machines", |images| {
        bytes_come_back(images, ["hvt", "hvt"])
    }),
    ("a virtual machine and a jailed process", |images| {
        bytes_come_back(images, ["hvt", "spt"])
    }),
    ("a plain process and a virtual machine", |images| {
        bytes_come_back(images, ["process", "hvt"])
    }),
    ("virtual machines are killed in turn", |images| {
        killed_in_turn(images, ["hvt", "hvt"], KILLS_ON_HVT)
    }),
    (
        "a jailed process and a virtual machine are killed in turn",
        |images| killed_in_turn(images, ["spt", "hvt"], KILLS_ON_HVT),
    ),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let mut trials = Vec::new();
    for hosts in [
        ["spt", "spt"],
        ["process", "process"],
        ["spt", "process"],
        ["process", "spt"],
    ] {
        for &(name, test) in TESTS {
            let name = format!("links::{name}::{}-{}", hosts[0], hosts[1]);
            trials.push(network.trial(name, move || test(images, hosts)));
        }
    }
    let spt = ["spt", "spt"];
    let name = "links::without work they sleep".into();
    trials.push(network.trial(name, move || idle(images, spt)));
    let missing = programs::missing(&["ping"]);
    let name = "links::ping".into();
    trials.push(network.trial_unless(missing, name, move || ping(images, spt)));
    for host in ["spt", "process"] {
        for open in [false, true] {
            let name = [
                "what is dropped is not seen",
                "open::what is dropped is seen",
            ];
            let name = format!("links::{}::{host}", name[usize::from(open)]);
            trials.push(network.trial(name, move || dropped(images, host, open)));
        }
    }
    let name = "links::descriptors that are none are refused".into();
    trials.push(network.trial(name, move || refused(images)));
    trials
}

/// Two images, and all that is needed to start each of them again.
struct Joined<'a> {
    images: &'a Images,
    hosts: [&'static str; 2],
    tap: OwnedFd,
    sides: [Side; 2],
    firewall: Running,
    served: Served,
}

impl<'a> Joined<'a> {
    fn new(images: &'a Images, hosts: [&'static str; 2]) -> Result<Self, Failed> {
        let segment = Segment::new()?;
        let tap = tap(&segment, &PLAIN)?;
        let sides = inherited(SLOTS)?;
        let firewall = firewall(images, hosts[0], &tap, &sides[0].value())?;
        let running = echo(images, hosts[1], &sides[1])?;
        running.wait_for(&format!("{SERVICE}/24 on service"))?;
        firewall.wait_for("port private: link up")?;
        Ok(Self {
            images,
            hosts,
            tap,
            sides,
            firewall,
            served: Served { segment, running },
        })
    }

    fn kill_firewall(&mut self) -> Result<(), Failed> {
        kill(&mut self.firewall);
        self.firewall = firewall(
            self.images,
            self.hosts[0],
            &self.tap,
            &self.sides[0].value(),
        )?;
        self.firewall.wait_for("port private: link up")
    }

    fn kill_echo(&mut self) -> Result<(), Failed> {
        kill(&mut self.served.running);
        self.served.running = echo(self.images, self.hosts[1], &self.sides[1])?;
        let running = &self.served.running;
        running.wait_for(&format!("{SERVICE}/24 on service"))?;
        running.wait_for("port service: link up")
    }

    fn goes_on(mut self) -> Result<(), Failed> {
        if !self.firewall.is_alive() {
            let ended: Ended = self.firewall.finish()?;
            return Err(format!("the firewall ended: {ended:?}").into());
        }
        self.served.goes_on()
    }
}

/// Kills it, and waits until it has let go of all that it had.
pub fn kill(running: &mut Running) {
    running.signal(Signal::KILL);
    while running.is_alive() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A link whose descriptors programs that are started inherit.
pub fn inherited(slots: [usize; 2]) -> Result<[Side; 2], Failed> {
    let sides = link::make(slots)?;
    for side in &sides {
        side.inherit()?;
    }
    Ok(sides)
}

fn linked(images: &Images, name: &str) -> PathBuf {
    images.appliance(name, "-link")
}

fn firewall(images: &Images, host: &str, tap: &OwnedFd, side: &str) -> Result<Running, Failed> {
    let mut command: Command = tender(images, host);
    command
        .arg("--mem=32")
        .arg(format!("--net:public=@{}", tap.as_raw_fd()))
        .arg(format!("--link:private={side}"))
        .arg(linked(images, "firewall"))
        .arg(RULES);
    start(&mut command)
}

fn echo(images: &Images, host: &str, side: &Side) -> Result<Running, Failed> {
    let mut command = tender(images, host);
    command
        .arg("--mem=64")
        .arg(format!("--link:service={}", side.value()))
        .arg(linked(images, "echo"))
        .arg(format!("--ipv4={SERVICE}/24"));
    start(&mut command)
}

fn bytes_come_back(images: &Images, hosts: [&'static str; 2]) -> Result<(), Failed> {
    let joined = Joined::new(images, hosts)?;
    for (seed, len) in [0, 1, 1448, 70_000, 3_000_000].into_iter().enumerate() {
        let result = round(connect(&joined.served, 7)?, &random(seed as u64, len));
        result.map_err(|failed| format!("{len} bytes: {}", failed.message().unwrap_or("?")))?;
    }
    joined.goes_on()
}

/// A connection outlives the firewall, and whoever is killed is heard again: the other image goes
/// on all the time.
fn killed_in_turn(images: &Images, hosts: [&'static str; 2], kills: usize) -> Result<(), Failed> {
    let mut joined = Joined::new(images, hosts)?;
    for turn in 0..kills {
        let mut stream = connect(&joined.served, 7)?;
        let bytes = random(turn as u64, 50_000);
        let mut back = vec![0; bytes.len()];
        for _ in 0..2 {
            stream.write_all(&bytes)?;
            joined.kill_firewall()?;
            stream.read_exact(&mut back)?;
            if back != bytes {
                return Err("other bytes came back".into());
            }
        }
        joined.kill_echo()?;
        // Its connections were its own, and are gone; its address is the same.
        round(connect(&joined.served, 7)?, &bytes)?;
    }
    let both = [&joined.firewall, &joined.served.running];
    for running in both {
        running.wait_for("link up")?;
    }
    joined.goes_on()
}

/// Whether a frame that the firewall drops lies where echo reads; none arrives there.
fn dropped(images: &Images, host: &'static str, open: bool) -> Result<(), Failed> {
    let mut joined = Joined::new(images, [host, host])?;
    if open {
        kill(&mut joined.firewall);
        let side = format!("{},open", joined.sides[0].value());
        joined.firewall = firewall(images, host, &joined.tap, &side)?;
        joined.firewall.wait_for("port private: link up")?;
    }
    let mark = random(9, 600);
    let sent = joined.served.segment.run(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.send_to(&mark, (SERVICE, 9))
    });
    sent?;
    // It is behind that in the tap, so the firewall has judged what was in front of it. Its frames
    // are short, and may lie where the other one began.
    round(connect(&joined.served, 7)?, &random(1, 1))?;
    let own = &joined.sides[0].own;
    let mut bytes = vec![0; rustix::fs::fstat(own)?.st_size as usize];
    rustix::io::pread(own, &mut bytes[..], 0)?;
    let mark = &mark[300..];
    let seen = bytes.windows(mark.len()).any(|window| window == mark);
    if seen != open {
        return Err(format!("a dropped frame is in the link's memory: {seen}").into());
    }
    joined.goes_on()
}

fn ping(images: &Images, hosts: [&'static str; 2]) -> Result<(), Failed> {
    let joined = Joined::new(images, hosts)?;
    let mut ping = Command::new("ping");
    ping.args(["-c", "3", "-i", "0.2", "-s", "65000", &SERVICE.to_string()]);
    let ended = joined.served.segment.run(|| run(&mut ping))?;
    ended.expect_status(0)?.expect_stdout("3 received")?;
    joined.goes_on()
}

fn idle(images: &Images, hosts: [&'static str; 2]) -> Result<(), Failed> {
    let joined = Joined::new(images, hosts)?;
    let stream = connect(&joined.served, 7)?;
    // What was put off is done: delayed acknowledgements, announcements of addresses.
    std::thread::sleep(Duration::from_secs(3));
    let used = || {
        let firewall = cpu_time(joined.firewall.id())?;
        Ok::<_, Failed>(firewall + cpu_time(joined.served.running.id())?)
    };
    let before = used()?;
    std::thread::sleep(Duration::from_secs(2));
    let used = used()? - before;
    drop(stream);
    match used < IDLE_MAX {
        true => joined.goes_on(),
        false => Err(format!("they worked for {used:?} of two seconds").into()),
    }
}

/// Each kind of wrong descriptor in turn, in one line.
fn refused(images: &Images) -> Result<(), Failed> {
    let [side, _] = inherited(SLOTS)?;
    let [other, _] = inherited([1; 2])?;
    let [own, peer, bell, peer_bell] = side.descriptors();
    let (small, none) = (other.own.as_raw_fd(), 0);
    for (numbers, says) in [
        ([none, peer, bell, peer_bell], "no memory of fixed size"),
        ([own, none, bell, peer_bell], "no memory of fixed size"),
        ([small, peer, bell, peer_bell], "the image asks for"),
        ([own, own, bell, peer_bell], "the same memory"),
        ([own, peer, none, peer_bell], "is no event"),
        ([own, peer, bell, own], "is no event"),
        ([own, peer, bell, i32::MAX], "is no event"),
    ] {
        let [a, b, c, d] = numbers;
        let mut command = tender(images, "spt");
        command
            .arg("--mem=64")
            .arg(format!("--link:service={a},{b},{c},{d}"))
            .arg(linked(images, "echo"));
        run(&mut command)?.expect_refusal(&["--link:service=", says])?;
    }
    let mut command = tender(images, "spt");
    command.arg("--mem=64").arg(linked(images, "echo"));
    let ended = run(&mut command)?;
    ended.expect_refusal(&["--link:service=OWN,PEER,BELL,PEERBELL"])
}
