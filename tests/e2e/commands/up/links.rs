//! A link between two components: it outlives each of them, and their supervisor.
//!
//! ```text
//!   test --- wan0 === firewall === link === echo
//! ```

use super::{ALL, Datagrams, PATIENCE, System, kept, kill, soak, spares};
use crate::commands::messages::shell;
use crate::harness::build::Images;
use crate::harness::wait::eventually;
use libtest_mimic::Failed;
use linux::interface;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::net::TcpStream;
use testbed::segment::{Address, Segment};

type Test = fn(&Images) -> Result<(), Failed>;

/// What is tried with links, and what takes one.
pub const TRIALS: [(&str, Test); 13] = [
    ("a link outlives its ends", |images| {
        outlives_its_ends(images, "spt")
    }),
    ("a link outlives its supervisor", outlives_its_supervisor),
    ("a link that lost an end is made anew", is_made_anew),
    (
        "a link carries what the file says",
        carries_what_the_file_says,
    ),
    (
        "a link is down once one end has ended",
        is_down_at_the_end_of_one,
    ),
    (
        "connections outlive the image in which they end",
        kept::connections,
    ),
    ("a spare begins in the place of who is killed", |images| {
        spares::begin(images, "spt")
    }),
    ("whatever happens, no connection is lost", soak::soak),
    ("a spare of another file is not used", spares::of_its_file),
    ("an image takes the place of another", spares::replace),
    (
        "what is started again by a command loses no frame",
        spares::loses_nothing,
    ),
    (
        "connections outlive the image that judges them",
        kept::judged,
    ),
    (
        "connections outlive the router that translates them",
        kept::translated,
    ),
];

/// The same between virtual machines.
pub const ON_HVT: [(&str, Test); 2] = [
    ("a link outlives its ends", |images| {
        outlives_its_ends(images, "hvt")
    }),
    ("a spare begins in the place of who is killed", |images| {
        spares::begin(images, "hvt")
    }),
];

/// Bytes that go there and back, more than any queue on the way holds of a frame.
const BYTES: usize = 50_000;
/// How often each component is killed in turn.
const KILLS: usize = 3;

/// The firewall at the tap, with echo behind it.
pub fn of_link(images: &Images) -> String {
    format!(
        "[component.firewall]\nimage = {:?}\nmemory = 32\nrules = \"all.nft\"\n\
         net.private = \"link:inner\"\nnet.public = \"tap:wan0\"\nafter = [\"echo\"]\n\n\
         [component.echo]\nimage = {:?}\nmemory = 64\narguments = [\"--ipv4=10.0.0.2/24\"]\n\
         net.service = \"link:inner\"\n",
        images.appliance("firewall", "-link"),
        images.appliance("echo", "-link"),
    )
}

pub fn system(images: &Images) -> Result<System<'_>, Failed> {
    system_of(images, &of_link(images))
}

/// The same file with components on this host.
pub fn on(text: &str, host: &str) -> String {
    text.replace("memory = ", &format!("host = {host:?}\nmemory = "))
}

/// Makes the tap, which outlives who made it.
fn tap(segment: &Segment) -> Result<(), Failed> {
    let address = Address {
        ip: Ipv4Addr::new(10, 0, 0, 1),
        prefix: 24,
        mtu: 1500,
    };
    Ok(interface::persist(&segment.tap("wan0", true, address)?)?)
}

/// One with this file.
pub fn system_of<'a>(images: &'a Images, text: &str) -> Result<System<'a>, Failed> {
    let segment = Segment::new()?;
    tap(&segment)?;
    let mut system = System::new(images, text)?;
    std::fs::write(system.runtime.path().join("all.nft"), ALL)?;
    system.segment = Some(segment);
    Ok(system)
}

/// A connection through the firewall to echo.
pub struct Stream(TcpStream);

impl Stream {
    pub fn new(system: &System<'_>) -> Result<Self, Failed> {
        let segment = system.segment.as_ref().ok_or("no network")?;
        let stream = segment.run(|| TcpStream::connect("10.0.0.2:7"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(stream))
    }

    /// What comes next.
    pub fn next(&mut self) -> std::io::Result<usize> {
        self.0.read(&mut [0])
    }

    /// Sends bytes, lets `meanwhile` happen, and has the same ones back.
    pub fn round(&mut self, meanwhile: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
        let mut bytes = vec![0; BYTES];
        fastrand::fill(&mut bytes);
        self.0.write_all(&bytes)?;
        meanwhile()?;
        let mut back = vec![0; BYTES];
        self.0.read_exact(&mut back)?;
        match back == bytes {
            true => Ok(()),
            false => Err("other bytes came back".into()),
        }
    }
}

pub fn nothing() -> Result<(), Failed> {
    Ok(())
}

/// Each end is killed in turn; the other one goes on.
fn outlives_its_ends(images: &Images, host: &str) -> Result<(), Failed> {
    let system = system_of(images, &on(&of_link(images), host))?;
    let supervisor = system.up(2)?;
    let segment = system.segment.as_ref().ok_or("no network")?;
    let mut datagrams = Datagrams::new(&system)?;
    datagrams.wait()?;
    let ping = shell(segment, "ping -c 3 -i 0.2 -s 65000 10.0.0.2")?;
    // As all pings say it.
    ping.expect_status(0)?.expect_stdout(" 0% packet loss")?;
    for _ in 0..KILLS {
        let mut stream = Stream::new(&system)?;
        stream.round(nothing)?;
        let (echo, run) = (system.guest("echo")?, system.run_of("firewall"));
        stream.round(|| kill(system.guest("firewall")?))?;
        system.wait_for_run("firewall", run + 1)?;
        stream.round(nothing)?;
        let (firewall, run) = (system.guest("firewall")?, system.run_of("echo"));
        if system.guest("echo")? != echo {
            return Err("echo was started again with the firewall".into());
        }
        kill(echo)?;
        system.wait_for_run("echo", run + 1)?;
        datagrams.wait()?;
        // Its connections were its own, and are gone; its address is the same.
        Stream::new(&system)?.round(nothing)?;
        if system.guest("firewall")? != firewall {
            return Err("the firewall was started again with echo".into());
        }
    }
    system.down(Some(supervisor))
}

/// Packets as large as the file says cross a link whole.
fn carries_what_the_file_says(images: &Images) -> Result<(), Failed> {
    let wide = of_link(images) + "[link.inner]\nmtu = 9000\n";
    let system = system_of(images, &wide)?;
    let segment = system.segment.as_ref().ok_or("no network")?;
    shell(segment, "ip link set dev wan0 mtu 9000")?.expect_status(0)?;
    let supervisor = system.up(2)?;
    Datagrams::new(&system)?.wait()?;
    let whole = shell(segment, "ping -c 2 -w 30 -i 0.2 -M do -s 8972 10.0.0.2")?;
    whole.expect_status(0)?.expect_stdout("2 received")?;
    // So large are the segments that echo asks for.
    let mut stream = Stream::new(&system)?;
    stream.round(nothing)?;
    let sockets = shell(segment, "ss -tin dst 10.0.0.2")?;
    sockets.expect_status(0)?.expect_stdout(" mss:8948 ")?;
    system.down(Some(supervisor))
}

/// A component that does not come back: its neighbour is told all the same.
fn is_down_at_the_end_of_one(images: &Images) -> Result<(), Failed> {
    let text = of_link(images) + "restart = \"never\"\n";
    let system = system_of(images, &text)?;
    let supervisor = system.up(2)?;
    Datagrams::new(&system)?.wait()?;
    let downs = || -> Result<_, Failed> {
        let said = system.runtime.says(images, &["logs", "firewall"])?;
        Ok(said.matches("outboard: port private: link down\n").count())
    };
    let before = downs()?;
    kill(system.guest("echo")?)?;
    eventually(PATIENCE, || match downs()? == before {
        true => Err("the firewall is not told".into()),
        false => Ok(()),
    })?;
    system.down(Some(supervisor))
}

/// The supervisor is killed; the next one has the same link to give.
fn outlives_its_supervisor(images: &Images) -> Result<(), Failed> {
    let system = system(images)?;
    let supervisor = system.up(2)?;
    Datagrams::new(&system)?.wait()?;
    let mut stream = Stream::new(&system)?;
    stream.round(nothing)?;
    let guests = || -> Result<_, Failed> { Ok([system.guest("firewall")?, system.guest("echo")?]) };
    let before = guests()?;
    supervisor.signal(Signal::KILL);
    supervisor.finish()?.expect_status(137)?;
    stream.round(nothing)?;
    // One that ends while nobody looks is given its end of the link by the next supervisor.
    let mut next = None;
    stream.round(|| {
        kill(before[0])?;
        next = Some(system.up(2)?);
        Ok(())
    })?;
    system.wait_for_run("firewall", 2)?;
    let after = guests()?;
    if before[0] == after[0] || before[1] != after[1] {
        return Err(format!("{before:?} became {after:?}").into());
    }
    stream.round(|| kill(after[0]))?;
    system.down(next)
}

/// The supervisor is killed before the other end was handed to anybody: the link is made anew.
fn is_made_anew(images: &Images) -> Result<(), Failed> {
    let system = system(images)?;
    let segment = system.segment.as_ref().ok_or("no network")?;
    shell(segment, "ip link del dev wan0")?.expect_status(0)?;
    let supervisor = system.outboard(&["up", &system.file.display().to_string()])?;
    supervisor.wait_for_stderr("outboard: firewall: not started: tap:wan0: ")?;
    supervisor.signal(Signal::KILL);
    supervisor.finish()?.expect_status(137)?;
    tap(segment)?;
    let supervisor = system.up(2)?;
    supervisor.wait_for_stderr("outboard: echo: its link has lost the other end\n")?;
    system.wait_for_run("echo", 2)?;
    Datagrams::new(&system)?.wait()?;
    system.down(Some(supervisor))
}

/// Images that take taps where the file has a link, and the other way round; then who holds what.
pub fn mistakes(images: &Images) -> Result<(), Failed> {
    let [firewall, echo] = ["firewall", "echo"].map(|name| images.appliance(name, "-link"));
    let text = of_link(images)
        .replace(&format!("{firewall:?}"), &format!("{:?}", images.firewall))
        .replace("net.service = \"link:inner\"", "net.service = \"tap:svc0\"");
    let text =
        text + &format!("[component.last]\nimage = {echo:?}\nnet.service = \"link:inner\"\n");
    let system = System::new(images, &text)?;
    std::fs::write(system.runtime.path().join("all.nft"), ALL)?;
    let file = system.file.display().to_string();
    let ended = system.outboard(&["up", "--check", &file])?.finish()?;
    ended.expect_status(1)?;
    ended.expect_stderr(&format!(
        "{file}:1:12: net.private = \"link:inner\": {} takes a tap there; build the image that \
         takes a link: outboard build --manifest=manifest-link.json\n",
        images.firewall.display()
    ))?;
    ended.expect_stderr(&format!(
        "{file}:9:12: {} takes a link as service; write net.service = \"link:NAME\", here and in \
         the component at its other end\n",
        echo.display()
    ))?;
    ended.expect_stderr(&format!(
        "outboard: {file}: 2 mistakes; nothing was started\n"
    ))?;
    std::fs::write(&system.file, of_link(images))?;
    let shown = system.outboard(&["up", "--show", &file])?.finish()?;
    shown.expect_status(0)?;
    for right in [
        "write its own memory, read that of echo, wake echo up",
        "write its own memory, read that of firewall, wake firewall up",
    ] {
        shown.expect_stdout(right)?;
    }
    Ok(())
}
