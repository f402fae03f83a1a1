//! Sequences of socket calls that a seed chooses, on the kernel's sockets and through the proxy: on
//! the sockets of the host, and on those of a stack in an image with a peer on Linux.
//!
//! ```text
//!   kernel alone   peer - Linux === cable === Linux - the program
//!   on a stack     peer - Linux === tap === stack === link === outboard proxy - the program
//! ```

use super::proxy::{Stack, trials_of};
use super::proxy_hostile::{both, script};
use super::{OUR_SIDE, SERVICE, speak_ipv6};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Ended, Running, run, start};
use crate::harness::temporary::TemporaryFolder;
use libtest_mimic::{Failed, Trial};
use std::net::Ipv6Addr;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use testbed::segment::{Address, Segment};

/// Calls in an order that a seed chooses.
const SEQUENCES: &str = "e2e/services/proxy_sequences.py";
/// Seeds as in `0..100`, in the place of [`FEW`].
const SEEDS: &str = "OUTBOARD_PROXY_SEEDS";
const FEW: Range<u64> = 0..24;
/// Sequences that run at a time.
const AT_A_TIME: u64 = 24;
/// How long what is under way has to arrive, in seconds; and for those whose results differ, since
/// a busy machine is no difference.
const SECONDS: &str = "0.03";
const MORE_SECONDS: &str = "0.5";
/// The program's side: the stack's addresses, or Linux's.
const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

/// Runs the script with these arguments by the kernel alone, and through the proxy.
type Both = fn(&Images, &[&str]) -> Result<[Ended; 2], Failed>;

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    trials_of(
        images,
        network,
        &[
            (
                "sequences of calls are answered as by the kernel",
                &["python3"],
                |images| sequences(images, both),
            ),
            (
                "sequences of calls on a stack are answered as by the kernel",
                &["python3"],
                |images| sequences(images, both_with_peer),
            ),
        ],
    )
}

fn sequences(images: &Images, both: Both) -> Result<(), Failed> {
    let seeds = match std::env::var(SEEDS) {
        Ok(seeds) => {
            let (first, end) = seeds.split_once("..").ok_or("write seeds as 0..100")?;
            first.parse::<u64>()?..end.parse::<u64>()?
        }
        Err(_) => FEW,
    };
    let mut found = String::new();
    for first in seeds.clone().step_by(AT_A_TIME as usize) {
        let count = AT_A_TIME.min(seeds.end - first);
        for (seed, _) in differing(images, both, first, count, SECONDS)? {
            // What differs by chance, a busy machine's, does so no more with more time.
            for (seed, what) in differing(images, both, seed, 1, MORE_SECONDS)? {
                found += &format!("{SEEDS}={seed}..{}: {what}\n", seed + 1);
            }
        }
    }
    match found.is_empty() {
        true => Ok(()),
        false => Err(found.into()),
    }
}

/// Seeds whose results differ, and the first difference of each.
fn differing(
    images: &Images,
    both: Both,
    first: u64,
    count: u64,
    seconds: &str,
) -> Result<Vec<(u64, String)>, Failed> {
    let (script, from, many) = (script(SEQUENCES), first.to_string(), count.to_string());
    let [alone, through] = both(images, &[&script, &from, &many, seconds])?;
    let of = |ended: &Ended, seed: u64| -> Vec<String> {
        let start = format!("{seed} ");
        let lines = ended.stdout.lines().filter(|line| line.starts_with(&start));
        lines.map(str::to_owned).collect()
    };
    let mut found = Vec::new();
    for seed in first..first + count {
        let (a, b) = (of(&alone, seed), of(&through, seed));
        if a.len() < 2 {
            return Err(format!("seed {seed} has made no calls: {alone:?}").into());
        }
        let differs = a.iter().zip(&b).find(|(a, b)| a != b);
        if let Some((a, b)) = differs {
            found.push((seed, format!("the kernel says {a:?}, the proxy {b:?}")));
        }
    }
    Ok(found)
}

/// The program that does what the script asks for, beside it.
fn peer(segment: &Segment, path: &Path) -> Result<Running, Failed> {
    let mut peer = Command::new("python3");
    peer.args([&script(SEQUENCES), "peer"]).arg(path);
    let peer = segment.run(|| start(&mut peer))?;
    peer.wait_for("ready")?;
    Ok(peer)
}

/// The same with a peer in another network: the program's is that of Linux, and of a stack.
fn both_with_peer(images: &Images, arguments: &[&str]) -> Result<[Ended; 2], Failed> {
    let folder = TemporaryFolder::new("sequences")?;
    let path = |name: &str| folder.path.join(name);
    let alone = {
        let (own, other) = (Segment::new()?, Segment::new()?);
        other.cable("tap0", &own, "tap0")?;
        for (segment, ip) in [(&other, OUR_SIDE), (&own, SERVICE)] {
            let address = Address {
                ip,
                prefix: 24,
                mtu: 1500,
            };
            segment.configure("tap0", address)?;
        }
        speak_ipv6(&other)?;
        own.speak_ipv6("tap0", OWN_V6, 64)?;
        let _peer = peer(&other, &path("alone"))?;
        let mut program = Command::new("python3");
        program.args(arguments).arg(path("alone"));
        own.run(|| run(&mut program))?
    };
    let stack = Stack::with(images, &[&format!("--ipv6={OWN_V6}/64")])?;
    speak_ipv6(&stack.served.segment)?;
    let _peer = peer(&stack.served.segment, &path("stack"))?;
    let path = path("stack").display().to_string();
    let program = [&["python3"], arguments, &[&path]].concat();
    let through = run(&mut stack.program(&program))?;
    let both = [alone, through];
    for ended in &both {
        ended.expect_status(0)?.expect_stdout("the end")?;
    }
    stack.goes_on()?;
    Ok(both)
}
