//! `outboard proxy`: a program as it is, on the sockets of a stack in an image.

use crate::up::join::{Joined, join};
use ::proxy::Reactor;
use ::proxy::direct::{Direct, Host};
use ::proxy::link::End;
use ::proxy::linked::Linked;
use ::proxy::run::{BELOW, Ended, run as serve};
use ::proxy::start::{PASSED, Program, start};
use clap::Args;
use linux::descriptor;
use linux::link::Side;
use linux::signal::Held;
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;

/// What has arrived for a program and was not taken may take so many bytes.
const MEMORY: usize = 64 << 20;
/// Run a program on the sockets of a stack in an image
///
/// The program runs as it is, in namespaces of its own, in which there is no network. What it asks
/// of sockets of IPv4 and IPv6, the stack answers. The exit status is the program's.
#[derive(Args)]
pub struct Arguments {
    /// Whose sockets: a link with a free end of the running system (outboard up), or "host" for the
    /// host's own, to compare
    #[arg(long, value_name = "LINK", required_unless_present = "link")]
    net: Option<String>,
    /// Descriptors of an end of a link: OWN,PEER,BELL,PEERBELL
    #[arg(long, hide = true, value_delimiter = ',', conflicts_with = "net")]
    link: Vec<i32>,
    /// Bytes of a frame of that link
    #[arg(long, hide = true)]
    mtu: Option<u16>,
    /// A component of `outboard up`: what the program says goes to standard output
    #[arg(long, hide = true)]
    component: bool,
    /// What the program may read; it sees nothing else then but what it needs to run
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// What the program may read and write; the same
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// A file in the place of /etc/resolv.conf
    #[arg(long, value_name = "FILE")]
    resolver: Option<PathBuf>,
    /// Say at the end how many calls were answered
    #[arg(long)]
    counts: bool,
    /// Say at the end what the program asked for and was refused
    #[arg(long)]
    check: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Runs the program; its exit status.
pub fn run(arguments: Arguments) -> Result<i32, Box<dyn Error>> {
    let name = arguments.program[0].to_string_lossy().into_owned();
    let ready = {
        let component = arguments.component;
        move || {
            if component {
                eprintln!("outboard-proxy: ready: {name}");
            }
        }
    };
    let on_host = arguments.net.as_deref() == Some("host");
    let program = Program {
        command: arguments.program,
        read: arguments.read,
        write: arguments.write,
        one_output: arguments.component,
        noted: arguments.check,
        on_host,
        resolver: arguments.resolver,
    };
    if on_host {
        let held = Held::new(PASSED)?;
        let started = start(program, &held)?;
        let reactor = Rc::new(Reactor::new()?);
        let net = |reactor: &Rc<Reactor>| Direct::new(reactor.clone());
        let ended = serve(started, &held, reactor, net, &mut Host, ready)?;
        return Ok(say(&ended, arguments.counts, arguments.check));
    }
    let (side, mtu, held_by) = match &arguments.net {
        Some(net) => {
            let Joined { side, mtu, held } = join(net)?;
            (side, mtu, Some(held.into()))
        }
        None => (side(&arguments.link)?, arguments.mtu, None),
    };
    let held = Held::new(PASSED)?;
    let started = start(program, &held)?;
    let reactor = Rc::new(Reactor::new()?);
    let bell = (reactor.epoll(), BELOW);
    let end = End::open(side, mtu, bell, |_| ())?;
    let mut linked = Linked::new(end, MEMORY)?;
    if let Some(lender) = held_by {
        linked.lent_by(lender, &reactor)?;
    }
    let net = linked.net();
    let ended = serve(started, &held, reactor, |_| net, &mut linked, ready)?;
    linked.exit(say(&ended, arguments.counts, arguments.check))
}

/// The end of a link with these descriptors.
fn side(descriptors: &[i32]) -> Result<Side, Box<dyn Error>> {
    let [own, peer, bell, peer_bell] = descriptors else {
        return Err("--link: expected four descriptors: OWN,PEER,BELL,PEERBELL".into());
    };
    Ok(Side {
        own: descriptor::adopt(*own)?,
        peer: descriptor::adopt(*peer)?,
        bell: descriptor::adopt(*bell)?,
        peer_bell: descriptor::adopt(*peer_bell)?,
    })
}

/// Says what was done, if that is wanted; the program's status.
fn say(ended: &Ended, counts: bool, check: bool) -> i32 {
    if check {
        match ended.refused[..] {
            [] => eprintln!("outboard-proxy: nothing was refused"),
            _ => eprintln!("outboard-proxy: refused:"),
        }
        for (what, times) in &ended.refused {
            eprintln!("outboard-proxy:   {what}, {times} times");
        }
    }
    if counts {
        let Ended {
            counts, sockets, ..
        } = ended;
        eprintln!(
            "outboard-proxy: {} calls, {} of them none of ours; {} connections; {sockets} sockets \
             left",
            counts.calls, counts.passed_on, counts.connections
        );
    }
    ended.status
}
