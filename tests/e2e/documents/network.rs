//! The commands of docs/network.md, typed as they stand there.

use crate::harness::build::Images;
use crate::harness::document::{self, shell};
use crate::harness::network::Network;
use crate::harness::process::{run, start};
use crate::harness::programs;
use crate::harness::runtime::Runtime;
use crate::harness::temporary::TemporaryFolder;
use libtest_mimic::{Failed, Trial};
use testbed::segment::Segment;

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let missing = programs::missing(&["ip", "iperf3", "ping"]);
    let name = "docs/network.md::typed as it stands".into();
    let sockets = "docs/network.md::over the host's sockets".into();
    vec![
        network.trial_unless(missing, name, || typed(images)),
        network.trial_unless(missing, sockets, || on_sockets(images)),
    ]
}

fn block(name: &str) -> Result<String, Failed> {
    let mark = format!("test: {name}");
    let blocks = document::blocks("docs/network.md")?;
    let block = blocks.into_iter().find(|block| block.mark == mark);
    Ok(block
        .ok_or(format!("docs/network.md has no block {name}"))?
        .text)
}

fn typed(images: &Images) -> Result<(), Failed> {
    let segment = Segment::new()?;
    let runtime = Runtime::new()?;
    let folder = TemporaryFolder::new("network")?;
    document::place(images, "iperf3", "", &folder.path)?;
    let here = |commands: &str| {
        let mut shell = shell(images, &folder.path, commands);
        shell.env("XDG_RUNTIME_DIR", runtime.path());
        shell
    };
    // The image is built already.
    let tap = block("tap")?.replace("outboard build unikernels/iperf3\n", "");
    segment.run(|| run(&mut here(&tap)))?.expect_status(0)?;
    let image = segment.run(|| start(&mut here(&format!("exec {}", block("run")?))))?;
    image.wait_for("10.0.0.2/24 on service")?;
    let used = segment.run(|| run(&mut here(&format!("set -e; {}", block("use")?))))?;
    used.expect_status(0)?.expect_stdout("3 received")?;
    used.expect_stdout("receiver")?;
    let watched = segment.run(|| run(&mut here(&block("watch")?)))?;
    for shown in ["listen", "*:5201", "tcp_segments_received"] {
        watched.expect_status(0)?.expect_stdout(shown)?;
    }
    Ok(())
}

fn on_sockets(images: &Images) -> Result<(), Failed> {
    let segment = Segment::new()?;
    let folder = TemporaryFolder::new("sockets")?;
    document::place(images, "iperf3", "-sockets", &folder.path)?;
    let here = |commands: &str| shell(images, &folder.path, commands);
    let sockets = block("sockets")?;
    let run_it = sockets.lines().last().unwrap_or_default();
    let image = segment.run(|| start(&mut here(&format!("exec {run_it}"))))?;
    image.wait_for("the host's sockets as service")?;
    let used = segment.run(|| run(&mut here("iperf3 -c 127.0.0.1 -t 1")))?;
    used.expect_status(0)?.expect_stdout("receiver").map(drop)
}
