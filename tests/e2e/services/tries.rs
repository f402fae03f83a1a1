//! Who tries passwords: the example of docs/router.md, on taps.

use super::PATIENCE;
use super::router::{Routed, SERVER, SERVER6};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::programs;
use crate::harness::runtime::{Runtime, unused};
use libtest_mimic::{Failed, Trial};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

const HOSTS: [&str; 2] = ["spt", "process"];
const NAME: &str = "guard";
const PAGE: &str = include_str!("../../../docs/router.md");
/// Where the example stands.
const HEADING: &str = "## Who tries passwords\n";
/// Where SSH is.
const SSH: u16 = 22;
/// Connections that the example lets each address open at once.
const TRIES: usize = 5;
/// How long somebody waits for what is not to come.
const IN_VAIN: Duration = Duration::from_millis(500);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let missing = programs::missing(&["ip"]);
    let trial = |host| {
        let name = format!("tries::who tries too often is kept out, and nobody else::{host}");
        network.trial_unless(missing, name, move || kept_out(images, host))
    };
    HOSTS.map(trial).into()
}

/// The example, as a file.
fn example() -> String {
    let (_, behind) = PAGE.split_once(HEADING).expect("the page has the heading");
    let indented = behind.lines().skip_while(|line| !line.starts_with("    "));
    let lines = indented.map_while(|line| line.strip_prefix("    "));
    lines.map(|line| format!("{line}\n")).collect()
}

fn kept_out(images: &Images, host: &str) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let rules = unused("rules")?;
    std::fs::write(&rules.path, example())?;
    let options = [
        "run",
        &format!("--name={NAME}"),
        &format!("--host={host}"),
        &format!("--rules={}", rules.path.display()),
    ];
    let mut routed = Routed::known_by(runtime.outboard(images, &options), images)?;
    let connects = |to: (IpAddr, u16), patience| {
        let to = SocketAddr::from(to);
        let client = routed
            .inside
            .run(|| TcpStream::connect_timeout(&to, patience));
        client.map(drop)
    };
    let listen = |at: IpAddr, port| routed.outside.run(|| TcpListener::bind((at, port)));
    let (ip4, ip6) = (IpAddr::from(SERVER), IpAddr::from(SERVER6));
    let _listening = [listen(ip4, SSH)?, listen(ip4, 2222)?];
    for _ in 0..TRIES {
        connects((ip4, SSH), PATIENCE)?;
    }
    if connects((ip4, SSH), IN_VAIN).is_ok() {
        return Err("a sixth connection was let in".into());
    }
    // Other services, and other addresses of a source, are not slowed down.
    connects((ip4, 2222), PATIENCE)?;
    // An address of IPv6 is not usable at once.
    let deadline = Instant::now() + PATIENCE;
    let _listening6 = loop {
        match listen(ip6, SSH) {
            Err(_) if Instant::now() < deadline => sleep(PAUSE),
            listening => break listening?,
        }
    };
    for _ in 0..TRIES {
        connects((ip6, SSH), PATIENCE)?;
    }
    if connects((ip6, SSH), IN_VAIN).is_ok() {
        return Err("a sixth connection of IPv6 was let in".into());
    }
    match routed.running.is_alive() {
        true => Ok(()),
        false => Err("it ended".into()),
    }
}
