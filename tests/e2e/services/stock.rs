//! Programs of a stock Debian against each appliance: the same over a tap and over a card that the
//! image drives.

use super::{OUR_SIDE, PLAIN, SERVICE, launch, tap, tender};
use crate::devices::software_nic::model;
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Ended, Running, run_with, start};
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use libtest_mimic::{Failed, Trial};
use rustix::process::Signal;
use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::process::Command;
use testbed::segment::Segment;

/// An appliance, and who uses it.
pub struct Use {
    /// Of the image, and of the test.
    pub name: &'static str,
    arguments: &'static [&'static str],
    /// The programs, which a machine may lack.
    needs: &'static [&'static str],
    /// What is typed, and what is printed then.
    lines: &'static [(&'static str, &'static str)],
}

pub const USES: [Use; 4] = [
    Use {
        name: "echo",
        arguments: &[],
        needs: &["nc", "ping"],
        lines: &[
            ("nc -N -w 20 10.0.0.2 7", TYPED),
            ("nc -u -W 1 -w 20 10.0.0.2 7", TYPED),
            ("ping -c 3 -s 65000 10.0.0.2", "3 packets transmitted, 3 "),
        ],
    },
    Use {
        name: "http",
        arguments: &[],
        needs: &["curl", "wrk"],
        lines: &[
            (
                "curl -sS -m 20 -o /dev/null -w %{http_code}:%{size_download} http://10.0.0.2/100k",
                "200:102400",
            ),
            ("wrk -t 1 -c 8 -d 1 http://10.0.0.2:80/1k", "requests in"),
        ],
    },
    Use {
        name: "dns",
        arguments: &[],
        needs: &["dig"],
        lines: &[
            ("dig @10.0.0.2 www.example.org", "192.0.2.80"),
            ("dig @10.0.0.2 www.example.org +tcp", "192.0.2.80"),
        ],
    },
    Use {
        name: "iperf3",
        arguments: &["-s"],
        needs: &["iperf3"],
        lines: &[
            ("iperf3 -c 10.0.0.2 -n 1M", "receiver"),
            ("iperf3 -c 10.0.0.2 -n 1M -R -P 2", "receiver"),
            ("iperf3 -c 10.0.0.2 -n 100K -u", "receiver"),
        ],
    },
];
/// What each program reads.
const TYPED: &str = "what is typed";
/// What `wrk` says if something went wrong; it says nothing of it otherwise.
const TROUBLE: [&str; 2] = ["errors", "Non-2xx"];

/// What an image is told of its address.
const ADDRESS: &str = "--ipv4=10.0.0.2/24";

impl Use {
    /// Why this is skipped, if a program is not there.
    pub fn missing(&self) -> Option<&'static str> {
        programs::missing(self.needs)
    }
}

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let mut trials = over_a_tap(images, network, "spt", "");
    for host in ["spt", "process"] {
        trials.extend(USES.iter().map(|used| {
            let name = format!("stock::{} on a card of its own::{host}", used.name);
            let test = move || on_software_card(images, host, used);
            network.trial_unless(used.missing(), name, test)
        }));
    }
    trials
}

/// On any host; the names of the tests begin so.
pub fn over_a_tap(
    images: &'static Images,
    network: &Network,
    host: &'static str,
    prefix: &str,
) -> Vec<Trial> {
    let trial = |used: &'static Use| {
        let name = format!("{prefix}stock::{}::{host}", used.name);
        network.trial_unless(used.missing(), name, move || on_tap(images, host, used))
    };
    USES.iter().map(trial).collect()
}

fn on_tap(images: &Images, host: &str, used: &Use) -> Result<(), Failed> {
    let segment = Segment::new()?;
    let tap = tap(&segment, &PLAIN)?;
    let image = images.appliance(used.name, "");
    used.by(&segment, |arguments| {
        launch(tender(images, host), &tap, &image, arguments)
    })
}

/// The image drives an 82599, in software, whose wire is the tap. The card has nothing to say of
/// its driver.
fn on_software_card(images: &Images, host: &str, used: &Use) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("stock")?;
    let socket = folder.path.join("nic");
    let segment = Segment::new()?;
    let tap = tap(&segment, &PLAIN)?;
    let device = format!("vfio-user:{}", socket.display());
    // A card serves one image and ends. The next one has the same socket: it begins after that.
    let card = RefCell::new(None);
    let image = |arguments: &[&str]| {
        card.take().map_or(Ok(()), satisfied)?;
        let wire = format!("tap:@{}", tap.as_raw_fd());
        card.replace(Some(model(images, &socket, &wire)?));
        driving(images, host, "-82599", &device, used, arguments)
    };
    used.by(&segment, image)?;
    card.take().map_or(Ok(()), satisfied)
}

/// A card that has served its image ends, and has seen nothing that breaks its rules.
fn satisfied(card: Running) -> Result<(), Failed> {
    let ended = card.finish()?;
    ended.expect_status(0)?.expect_stdout("\"violations\":0}")?;
    Ok(())
}

/// The variant of the image that drives the card at a PCI address, which is wired to this network.
pub fn on_card(
    images: &Images,
    host: &str,
    (variant, card): (&str, &str),
    segment: &Segment,
    used: &Use,
) -> Result<(), Failed> {
    used.by(segment, |arguments| {
        driving(images, host, variant, card, used, arguments)
    })
}

/// Starts a variant of the image that drives a device.
fn driving(
    images: &Images,
    host: &str,
    variant: &str,
    device: &str,
    used: &Use,
    arguments: &[&str],
) -> Result<Running, Failed> {
    let mut command = tender(images, host);
    command.args(["--mem=64", &format!("--pci:service={device}")]);
    command.arg(images.appliance(used.name, variant));
    start(command.args(arguments))
}

impl Use {
    /// Starts the image by a function of its arguments, and the programs in the network at its
    /// other end.
    fn by(
        &self,
        segment: &Segment,
        image: impl Fn(&[&str]) -> Result<Running, Failed>,
    ) -> Result<(), Failed> {
        let server = image(&[&[ADDRESS], self.arguments].concat())?;
        server.wait_for(&format!("{SERVICE}/24 on service"))?;
        for (line, printed) in self.lines {
            let mut words = line.split(' ');
            let mut command = Command::new(words.next().unwrap_or_default());
            let ended = segment.run(|| run_with(command.args(words), TYPED))?;
            judge(line, &ended, printed)?;
        }
        server.signal(Signal::TERM);
        server.finish()?;
        match self.name {
            "iperf3" => client(segment, image),
            _ => Ok(()),
        }
    }
}

/// The image is the client, both ways.
fn client(
    segment: &Segment,
    image: impl Fn(&[&str]) -> Result<Running, Failed>,
) -> Result<(), Failed> {
    let ours = OUR_SIDE.to_string();
    for direction in [&[][..], &["-R"]] {
        // One server for each: between two tests it closes its socket, and resets who has come.
        let mut server = Command::new("iperf3");
        let server = segment.run(|| start(server.args(["-s", "-1", "--forceflush"])))?;
        server.wait_for("Server listening")?;
        let arguments = [&[ADDRESS, "-c", &ours, "-n", "1M"], direction].concat();
        let ended = image(&arguments)?.finish()?;
        judge("the image as iperf3's client", &ended, "receiver")?;
        server.finish()?;
    }
    Ok(())
}

fn judge(line: &str, ended: &Ended, printed: &str) -> Result<(), Failed> {
    let said = &ended.stdout;
    let troubled = TROUBLE.iter().any(|trouble| said.contains(trouble));
    if ended.status != 0 || !said.contains(printed) || troubled {
        return Err(format!("{line}: no {printed:?}: {ended:?}").into());
    }
    Ok(())
}
