//! What `outboard flows` says of connections, beside what their ends know of themselves.

use super::PATIENCE;
use super::router::{CLIENT, PUBLIC, Routed, SERVER};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Running, run, start};
use crate::harness::programs;
use crate::harness::runtime::{Runtime, unused};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;
use testbed::segment::{Address, Segment};

const NAME: &str = "seen";
const HOSTS: [&str; 2] = ["spt", "process"];
/// What goes through the connection that carries most.
const BYTES: usize = 1 << 20;
/// More connections than one answer of a guest holds.
const MANY: usize = 300;
/// How long somebody waits for what is not to come.
const IN_VAIN: Duration = Duration::from_millis(300);
/// Between two connections of many.
const PAUSE: Duration = Duration::from_millis(100);
/// Where clients are behind the firewall, which has no address.
const BESIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

type Test = fn(&Images, &str) -> Result<(), Failed>;

const TESTS: [(&str, Test); 6] = [
    ("those of a router are found by words of nft", found),
    ("those that are flushed end, and others go on", flushed),
    (
        "those that other rules would not let begin end with --revalidate",
        revalidated,
    ),
    ("watching tells of each", watched),
    ("a file holds what the guest has", exported),
    ("those of a firewall are known", firewall),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let missing = programs::missing(&["ip"]);
    let each = TESTS.iter().flat_map(|one| HOSTS.map(|host| (one, host)));
    let trial = |(&(name, test), host): (&(&str, Test), &'static str)| {
        let name = format!("flows::{name}::{host}");
        network.trial_unless(missing, name, move || test(images, host))
    };
    each.map(trial).collect()
}

/// A router with a name.
struct Scene<'a> {
    images: &'a Images,
    runtime: Runtime,
    routed: Routed,
}

/// Both ends of a connection.
struct Talk {
    client: TcpStream,
    server: TcpStream,
}

impl Talk {
    /// From inside to a server outside.
    fn new(inside: &Segment, listener: &TcpListener) -> Result<Self, Failed> {
        let to = listener.local_addr()?;
        let client = inside.run(|| TcpStream::connect_timeout(&to, PATIENCE))?;
        let (server, _) = listener.accept()?;
        let mut talk = Self { client, server };
        for stream in [&talk.client, &talk.server] {
            stream.set_read_timeout(Some(PATIENCE))?;
        }
        talk.exchange(5)?;
        Ok(talk)
    }

    /// So many bytes go from the client to the server, and one comes back.
    fn exchange(&mut self, bytes: usize) -> Result<(), Failed> {
        let Self { client, server } = self;
        let (sent, mut arrived) = (vec![7; bytes], vec![0; bytes]);
        scope(|threads| {
            let sender = threads.spawn(|| client.write_all(&sent));
            server.read_exact(&mut arrived)?;
            sender.join().map_err(|_| "the sender panicked")??;
            Ok::<(), Failed>(())
        })?;
        server.write_all(&[1])?;
        Ok(client.read_exact(&mut [0])?)
    }

    /// The client, as it knows itself, and as the server sees it.
    fn ends(&self) -> Result<[SocketAddr; 2], Failed> {
        Ok([self.client.local_addr()?, self.server.peer_addr()?])
    }
}

impl<'a> Scene<'a> {
    fn new(images: &'a Images, host: &str) -> Result<Self, Failed> {
        let runtime = Runtime::new()?;
        let host = format!("--host={host}");
        let command = runtime.outboard(images, &["run", &format!("--name={NAME}"), &host]);
        let routed = Routed::known_by(command, images)?;
        Ok(Self {
            images,
            runtime,
            routed,
        })
    }

    fn listener(&self) -> Result<TcpListener, Failed> {
        Ok(self.routed.outside.run(|| TcpListener::bind((SERVER, 0)))?)
    }

    /// The connections that these words mean.
    fn flows(&self, words: &str) -> Result<Vec<Value>, Failed> {
        flows(self.images, &self.runtime, words)
    }

    /// What the command says with these words.
    fn says(&self, words: &str) -> Result<String, Failed> {
        let words: Vec<_> = ["flows", NAME]
            .into_iter()
            .chain(words.split(' '))
            .collect();
        self.runtime.says(self.images, &words)
    }

    fn ends(mut self) -> Result<(), Failed> {
        alive(&mut self.routed.running)
    }
}

fn flows(images: &Images, runtime: &Runtime, words: &str) -> Result<Vec<Value>, Failed> {
    let words = words.split_whitespace();
    let words: Vec<_> = ["flows", NAME, "--json"].into_iter().chain(words).collect();
    let list = runtime.json(images, &words)?;
    let flows = list["flows"].as_array().cloned();
    flows.ok_or_else(|| format!("no flows in {list}").into())
}

fn alive(running: &mut Running) -> Result<(), Failed> {
    match running.is_alive() {
        true => Ok(()),
        false => Err("it ended".into()),
    }
}

/// One end of a direction.
fn end(flow: &Value, way: &str, which: &str) -> Result<SocketAddr, Failed> {
    let address = flow[way][which].as_str().unwrap_or_default();
    let port = flow[way][format!("{which}_port")].as_u64();
    let port = u16::try_from(port.ok_or_else(|| format!("no port in {flow}"))?)?;
    Ok(SocketAddr::new(address.parse()?, port))
}

fn expect<T: PartialEq + std::fmt::Debug>(found: T, expected: T) -> Result<(), Failed> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{found:?}, not {expected:?}").into()),
    }
}

fn found(images: &Images, host: &str) -> Result<(), Failed> {
    let scene = Scene::new(images, host)?;
    let (one, two) = (scene.listener()?, scene.listener()?);
    let [one_at, two_at] = [&one, &two].map(TcpListener::local_addr);
    let [one_port, two_port] = [one_at?.port(), two_at?.port()];
    let inside = &scene.routed.inside;
    let mut loud = Talk::new(inside, &one)?;
    let quiet = [Talk::new(inside, &two)?, Talk::new(inside, &two)?];
    loud.exchange(BYTES)?;
    let server = scene.routed.outside.run(|| UdpSocket::bind((SERVER, 53)))?;
    let client = inside.run(|| UdpSocket::bind((CLIENT, 0)))?;
    client.send_to(b"question", (SERVER, 53))?;
    let [loud_at, loud_seen] = loud.ends()?;
    let found = scene.flows(&format!("tcp dport {one_port}"))?;
    expect(found.len(), 1)?;
    let flow = &found[0];
    expect(end(flow, "original", "source")?, loud_at)?;
    expect(end(flow, "original", "destination")?, one.local_addr()?)?;
    expect(end(flow, "reply", "destination")?, loud_seen)?;
    expect(loud_seen.ip(), PUBLIC.into())?;
    expect(&flow["class"], &"tcp_established".into())?;
    let status = ["seen-reply", "assured", "confirmed", "snat"];
    expect(&flow["status"], &status.as_slice().into())?;
    let sent = flow["original"]["bytes"].as_u64().unwrap_or(0);
    if sent < BYTES as u64 || sent > 2 * BYTES as u64 {
        return Err(format!("{sent} bytes of {BYTES}").into());
    }
    let port_of = |talk: &Talk| Ok::<_, Failed>(talk.ends()?[0].port());
    for (words, expected) in [
        (format!("tcp dport {two_port}"), 2),
        (format!("ip saddr {CLIENT} ct state established"), 3),
        (
            format!("ip saddr {CLIENT} tcp sport {}", port_of(&quiet[0])?),
            1,
        ),
        (format!("ct reply ip daddr {PUBLIC} meta l4proto tcp"), 3),
        ("udp dport 53 ct state new".to_owned(), 1),
        ("udp dport 53 ct state established".to_owned(), 0),
        (format!("ct original bytes > {}", BYTES), 1),
        ("ct mark 1".to_owned(), 0),
        ("ip saddr 10.0.0.3".to_owned(), 0),
    ] {
        let found = scene.flows(&words)?.len();
        expect((words.as_str(), found), (words.as_str(), expected))?;
    }
    drop(server);
    let table = scene.says(&format!("tcp dport {one_port}"))?;
    let line = table
        .lines()
        .find(|line| line.contains(&loud_at.to_string()));
    let line = line.ok_or_else(|| table.clone())?;
    if !line.contains(&loud_seen.to_string()) {
        return Err(table.into());
    }
    let top = scene.says("--top=1")?;
    let last = top.lines().last().unwrap_or_default();
    expect(last.split_whitespace().next(), Some("10.0.0.2"))?;
    let many: Result<Vec<_>, _> = (0..MANY).map(|_| Talk::new(inside, &two)).collect();
    let found = scene.flows(&format!("tcp dport {two_port}"))?.len();
    expect(found, quiet.len() + many?.len())?;
    scene.ends()
}

fn flushed(images: &Images, host: &str) -> Result<(), Failed> {
    let scene = Scene::new(images, host)?;
    let (one, two) = (scene.listener()?, scene.listener()?);
    let inside = &scene.routed.inside;
    let mut stays = Talk::new(inside, &one)?;
    let goes: Result<Vec<_>, _> = (0..MANY).map(|_| Talk::new(inside, &two)).collect();
    let goes = goes?;
    let words = format!("tcp dport {}", two.local_addr()?.port());
    let said = scene.says(&format!("{words} --flush"))?;
    expect(said, format!("{NAME}: {MANY} of {MANY} ended\n"))?;
    expect(scene.flows(&words)?.len(), 0)?;
    // The others go on, translated as before.
    stays.exchange(BYTES)?;
    let left = scene.flows("meta l4proto tcp ct state established")?;
    expect(left.len(), 1)?;
    expect(end(&left[0], "reply", "destination")?, stays.ends()?[1])?;
    // What the server sends comes to nobody any more: outside begins nothing.
    (&goes[0].server).write_all(b"late")?;
    goes[0].client.set_read_timeout(Some(IN_VAIN))?;
    if (&goes[0].client).read(&mut [0; 4]).is_ok() {
        return Err("what was flushed goes on".into());
    }
    let said = scene.says("--flush")?;
    if !said.ends_with(" ended\n") {
        return Err(said.into());
    }
    let left = scene.flows("tcp dport 1-65535")?;
    let sources: Vec<_> = left
        .iter()
        .map(|flow| end(flow, "original", "source"))
        .collect();
    let stays = stays.ends()?[0];
    match sources
        .into_iter()
        .any(|source| source.is_ok_and(|source| source == stays))
    {
        true => Err("one was left".into()),
        false => scene.ends(),
    }
}

/// Rules of a router that let clients inside reach this port of servers, and no other.
fn only(port: u16) -> String {
    format!(
        "table inet filter {{
            chain forward {{
                type filter hook forward priority filter; policy drop;
                ct state established,related counter accept
                iifname private oifname public tcp dport {port} tcp flags syn counter accept
            }}
        }}
        table ip nat {{
            chain srcnat {{
                type nat hook postrouting priority srcnat;
                oifname public masquerade
            }}
        }}
        "
    )
}

fn revalidated(images: &Images, host: &str) -> Result<(), Failed> {
    let scene = Scene::new(images, host)?;
    let (one, two) = (scene.listener()?, scene.listener()?);
    let inside = &scene.routed.inside;
    let mut stays = Talk::new(inside, &one)?;
    let goes = [Talk::new(inside, &two)?, Talk::new(inside, &two)?];
    let rules = unused("rules")?;
    std::fs::write(&rules.path, only(one.local_addr()?.port()))?;
    let path = rules.path.display().to_string();
    let load = |more: &[&str]| {
        let words = [&["rules", "load", NAME, &path], more].concat();
        scene.runtime.says(images, &words)
    };
    // Who does not ask for it ends nothing.
    load(&[])?;
    for mut talk in goes.iter().map(|talk| (&talk.client, &talk.server)) {
        talk.0.write_all(b"before")?;
        talk.1.read_exact(&mut [0; 6])?;
    }
    let ends = AtomicBool::new(false);
    scope(|threads| {
        let carries = threads.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                stays.exchange(BYTES)?;
            }
            stays.exchange(BYTES)?;
            Ok::<_, Failed>(stays)
        });
        let loaded = load(&["--revalidate"]);
        sleep(PAUSE);
        ends.store(true, Ordering::Relaxed);
        stays_translated(&scene, &carries.join().map_err(|_| "it panicked")??)?;
        loaded
    })?;
    // Of the first one the server sends next, and of the second one the client.
    let [first, second] = &goes;
    (&first.server).write_all(b"late")?;
    (&second.client).write_all(b"late")?;
    for reader in [&first.client, &second.server] {
        reader.set_read_timeout(Some(IN_VAIN))?;
        if (&mut &*reader).read(&mut [0; 4]).is_ok() {
            return Err("what is not permitted goes on".into());
        }
    }
    let port = two.local_addr()?.port();
    expect(scene.flows(&format!("tcp dport {port}"))?.len(), 0)?;
    let stats = scene.runtime.json(images, &["stats", NAME, "--json"])?;
    expect(&stats["connections"]["events"]["revoked"], &2.into())?;
    scene.ends()
}

/// The only connection that is left is translated as it was.
fn stays_translated(scene: &Scene<'_>, talk: &Talk) -> Result<(), Failed> {
    let [at, seen] = talk.ends()?;
    let words = format!("ip saddr {} tcp sport {}", at.ip(), at.port());
    let left = scene.flows(&words)?;
    expect(left.len(), 1)?;
    expect(end(&left[0], "reply", "destination")?, seen)
}

fn watched(images: &Images, host: &str) -> Result<(), Failed> {
    let scene = Scene::new(images, host)?;
    let listener = scene.listener()?;
    let inside = &scene.routed.inside;
    let before = Talk::new(inside, &listener)?;
    let port = listener.local_addr()?.port().to_string();
    let words = ["flows", NAME, "--watch", "tcp", "dport", &port];
    let watch = start(&mut scene.runtime.outboard(images, &words))?;
    // The watch has begun once it tells of one of those that begin meanwhile.
    let ends = AtomicBool::new(false);
    scope(|threads| {
        threads.spawn(|| {
            while !ends.load(Ordering::Relaxed) && Talk::new(inside, &listener).is_ok() {
                sleep(PAUSE);
            }
        });
        let told = watch.wait_for("[NEW] tcp");
        ends.store(true, Ordering::Relaxed);
        told
    })?;
    let told = Talk::new(inside, &listener)?;
    let [at, seen] = told.ends()?;
    watch.wait_for(&format!(
        " ESTABLISHED src={} dst={SERVER} sport={} dport={port}",
        at.ip(),
        at.port()
    ))?;
    watch.wait_for(&format!(
        "dst={} sport={port} dport={}",
        seen.ip(),
        seen.port()
    ))?;
    drop(told);
    watch.wait_for("[UPDATE] tcp")?;
    watch.wait_for("TIME_WAIT")?;
    let sport = at.port();
    scene.says(&format!("tcp dport {port} tcp sport {sport} --flush"))?;
    watch.wait_for("[DESTROY] tcp")?;
    drop(before);
    // It ends with the guest.
    scene.runtime.says(images, &["stop", NAME])?;
    watch.finish()?.expect_status(0)?;
    Ok(())
}

fn exported(images: &Images, host: &str) -> Result<(), Failed> {
    let scene = Scene::new(images, host)?;
    let listener = scene.listener()?;
    let talk = Talk::new(&scene.routed.inside, &listener)?;
    let words = format!("tcp dport {}", listener.local_addr()?.port());
    let file = unused("flows")?;
    let path = file.path.display().to_string();
    scene.says(&format!("--export={path}"))?;
    let mut asked = vec!["flows", &path, "--json"];
    asked.extend(words.split(' '));
    let list = scene.runtime.json(images, &asked)?;
    expect(&list["name"], &NAME.into())?;
    let flows = list["flows"].as_array().ok_or("no flows")?;
    expect(flows.len(), 1)?;
    expect(end(&flows[0], "original", "source")?, talk.ends()?[0])?;
    expect(end(&flows[0], "reply", "destination")?, talk.ends()?[1])?;
    let refused = run(&mut scene.runtime.outboard(images, &["flows", &path, "--flush"]))?;
    refused.expect_status(1)?.expect_stderr("is a file")?;
    let wrong = run(&mut scene
        .runtime
        .outboard(images, &["flows", NAME, "tcp", "dport", "x"]))?;
    wrong.expect_status(1)?.expect_stderr("words:2:")?;
    scene.ends()
}

/// Rules of a bridge that track connections.
const STATEFUL: &str = "table bridge f {
    chain c {
        type filter hook forward priority 0; policy drop;
        ether type arp accept
        ct state established,related accept
        iifname private ct state new ct mark set 7 accept
    }
}
";

fn firewall(images: &Images, host: &str) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let rules = unused("rules")?;
    std::fs::write(&rules.path, STATEFUL)?;
    let [inside, outside] = [Segment::new()?, Segment::new()?];
    let tap = |segment: &Segment, ip| {
        let (prefix, mtu) = (24, 1500);
        let tap = segment
            .tap("tap0", true, Address { ip, prefix, mtu })?
            .into_fd();
        rustix::io::fcntl_setfd(&tap, rustix::io::FdFlags::empty())?;
        Ok::<_, Failed>(tap)
    };
    let [private, public] = [tap(&inside, BESIDE)?, tap(&outside, SERVER)?];
    let name = format!("--name={NAME}");
    let mut command = runtime.outboard(images, &["run", "--mem=64", &name]);
    command
        .arg(format!("--host={host}"))
        .arg(format!("--rules={}", rules.path.display()))
        .arg(format!("--net:private=@{}", private.as_raw_fd()))
        .arg(format!("--net:public=@{}", public.as_raw_fd()))
        .arg(&images.firewall);
    let mut running = start(&mut command)?;
    let listener = outside.run(|| TcpListener::bind((SERVER, 0)))?;
    let mut talk = Talk::new(&inside, &listener)?;
    let found = flows(images, &runtime, "ct mark 7 ct state established")?;
    expect(found.len(), 1)?;
    let [at, seen] = talk.ends()?;
    expect(end(&found[0], "original", "source")?, at)?;
    expect((end(&found[0], "reply", "destination")?, at), (seen, seen))?;
    expect(&found[0]["mark"], &7.into())?;
    let said = runtime.says(images, &["flows", NAME, "ct", "mark", "7", "--flush"])?;
    expect(said, format!("{NAME}: 1 of 1 ended\n"))?;
    // The rules let the client begin again in the middle (as Linux does).
    talk.exchange(BYTES)?;
    let text =
        "table bridge f { chain c { type filter hook forward priority 0; policy accept;\n}\n}\n";
    std::fs::write(&rules.path, text)?;
    let path = rules.path.display().to_string();
    runtime.says(images, &["rules", "load", NAME, &path])?;
    let none = run(&mut runtime.outboard(images, &["flows", NAME]))?;
    none.expect_status(1)?
        .expect_stderr("ask for no connections")?;
    alive(&mut running)
}
