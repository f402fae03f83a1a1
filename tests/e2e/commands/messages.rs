//! Messages about mistakes, word by word: each names what is wrong and what to type instead.

use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Ended, run, start};
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use libtest_mimic::{Completion, Failed, Trial};
use linux::tap::{Tap, offload};
use std::process::Command;
use testbed::segment::Segment;

/// How long a guest runs that need not end, and how `timeout` says that it did not.
const RUN_SECONDS: &str = "1";
const TIMED_OUT: i32 = 124;

/// A mistake in a command line: `PORT` and `FIREWALL` stand for images.
struct Mistake {
    name: &'static str,
    /// What is typed before, in a network of its own.
    before: &'static str,
    /// What is typed behind `outboard run`.
    typed: &'static str,
    /// What the last line says.
    says: &'static str,
}

const MISTAKES: &[Mistake] = &[
    Mistake {
        name: "an option that is almost one",
        before: "",
        typed: "--memory=16 PORT",
        says: "outboard: no such option: \"--memory=16\"; did you mean --mem=MIB?",
    },
    Mistake {
        name: "an option of the monitor that is almost one",
        before: "",
        typed: "--nam=fw PORT",
        says: "outboard: no such option: \"--nam=fw\"; did you mean --name=NAME?",
    },
    Mistake {
        name: "a value without its equals sign",
        before: "",
        typed: "--mem 16 PORT",
        says: "outboard-tender: no such option: \"--mem\"; write --mem=16",
    },
    Mistake {
        name: "options behind the image",
        before: "",
        typed: "FIREWALL --net:private=tap0 --net:public=tap1",
        says: "outboard-tender: write --net:private=tap0 and --net:public=tap1 in front of the \
               image; behind it are the guest's own arguments",
    },
    Mistake {
        name: "a port that is almost one",
        before: "",
        typed: "--net:privat=tap0 --net:public=tap1 FIREWALL",
        says: "outboard-tender: --net:privat: the manifest names no such device; did you mean \
               private? It names --net:private and --net:public",
    },
    Mistake {
        name: "an interface that there is not",
        before: "ip tuntap add dev lan0 mode tap && ip tuntap add dev wan0 mode tap",
        typed: "--net:net=lan1 PORT",
        says: "outboard-tender: --net:net=lan1: no such interface; did you mean lan0? the taps \
               here are lan0 and wan0; add --create-taps, or type: sudo ip tuntap add dev lan1 \
               mode tap user $USER && sudo ip link set dev lan1 up; or let it run in a network of \
               its own: outboard try IMAGE",
    },
    Mistake {
        name: "an interface where there is no tap",
        before: "",
        typed: "--net:net=lan1 PORT",
        says: "outboard-tender: --net:net=lan1: no such interface; add --create-taps, or type: \
               sudo ip tuntap add dev lan1 mode tap user $USER && sudo ip link set dev lan1 up; or \
               let it run in a network of its own: outboard try IMAGE",
    },
    Mistake {
        name: "a loopback that is down and no tap",
        before: "ip link set dev lo down",
        typed: "--net:net=lo PORT",
        says: "outboard-tender: --net:net=lo: not a tap with a single queue; a new one: sudo ip \
               tuntap add dev NAME mode tap user $USER",
    },
    Mistake {
        name: "a tap that is down",
        before: "ip tuntap add dev lan0 mode tap",
        typed: "--net:net=lan0 PORT",
        says: "outboard-tender: --net:net=lan0: the interface is down; type: sudo ip link set dev \
               lan0 up",
    },
    Mistake {
        name: "a macvtap over nothing",
        before: "ip link add eth7 type veth peer name eth8",
        typed: "--net:net=macvtap:eth9 PORT",
        says: "outboard-tender: --net:net=macvtap:eth9: no such interface; did you mean eth7? the \
               interfaces here are eth8 and eth7; type: ip link",
    },
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let root = network.root().is_none();
    let mut trials = Vec::new();
    for mistake in MISTAKES {
        let name = format!("messages::{}", mistake.name);
        let missing = programs::missing(&["ip"]);
        trials.push(network.trial_unless(missing, name, || told(images, mistake)));
    }
    trials.push(Trial::test("messages::all options are in one help", || {
        help(images)
    }));
    let missing = programs::missing(&["ip"]);
    let name = "messages::a guest that begins".to_owned();
    trials.push(network.trial_unless(missing, name, || begins(images)));
    let name = "messages::a tap of another user".to_owned();
    trials.push(Trial::ignorable_test(name, move || {
        match missing.or((!root).then_some("needs root: only root makes a tap for another user")) {
            Some(why) => Ok(Completion::ignored_with(why)),
            None => foreign(images).map(|()| Completion::Completed),
        }
    }));
    let name = "messages::an interface that there is not, for who may make none".to_owned();
    let missing = programs::missing(&["setpriv"]);
    trials.push(network.trial_unless(missing, name, || no_capability(images)));
    trials.push(Trial::test("messages::a folder for an image", || {
        folder_for_image(images)
    }));
    trials.push(Trial::test(
        "messages::an appliance that asks for a device that it has not",
        || misnamed(images),
    ));
    trials
}

/// A command with the words of `typed`.
pub(super) fn typed(images: &Images, typed: &str) -> Command {
    let mut command = Command::new(images.program("outboard"));
    command.arg("run");
    for word in typed.split(' ') {
        match word {
            "PORT" => command.arg(images.guest("port")),
            "FIREWALL" => command.arg(&images.firewall),
            word => command.arg(word),
        };
    }
    command
}

/// Types a script in a network, which must succeed.
pub(super) fn shell(segment: &Segment, script: &str) -> Result<Ended, Failed> {
    let ended = segment.run(|| run(Command::new("sh").args(["-c", script])))?;
    ended.expect_status(0)?;
    Ok(ended)
}

/// Fails unless the status is 1 and the last line of standard error is this.
pub(super) fn expect_last_line(ended: &Ended, says: &str) -> Result<(), Failed> {
    ended.expect_status(1)?;
    match ended.stderr.lines().last() == Some(says) {
        true => Ok(()),
        false => Err(format!("not {says:?}: {:?}", ended.stderr).into()),
    }
}

fn told(images: &Images, mistake: &Mistake) -> Result<(), Failed> {
    let segment = Segment::new()?;
    shell(&segment, mistake.before)?;
    let mut command = typed(images, mistake.typed);
    let ended = segment.run(|| run(&mut command))?;
    expect_last_line(&ended, mistake.says)
}

fn help(images: &Images) -> Result<(), Failed> {
    for words in [
        &["run", "--help"][..],
        &["run", "--mem=16", "-h"],
        &["help", "run"],
    ] {
        let ended = run(Command::new(images.program("outboard")).args(words))?;
        ended.expect_status(0)?;
        for option in [
            "--mem=MIB",
            "--net:NAME=IFACE",
            "--name=NAME",
            "--pcap:NAME=FILE",
        ] {
            ended.expect_stdout(option)?;
        }
    }
    Ok(())
}

/// Who has no capability is not told to use it.
fn no_capability(images: &Images) -> Result<(), Failed> {
    let segment = Segment::new()?;
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all"]);
    command.arg(images.program("outboard-tender"));
    command.arg("--net:net=lan1").arg(images.guest("port"));
    let ended = segment.run(|| run(&mut command))?;
    expect_last_line(
        &ended,
        "outboard-tender: --net:net=lan1: no such interface; type: sudo ip tuntap add dev lan1 \
         mode tap user $USER && sudo ip link set dev lan1 up; or let it run in a network of its \
         own: outboard try IMAGE",
    )
}

fn folder_for_image(images: &Images) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("messages")?;
    let given = folder.path.join("hub");
    std::fs::create_dir(&given)?;
    let given = given.display();
    let build =
        format!("a folder; the image of the appliance in it is made by: outboard build {given}");
    let meant = format!("a folder; did you mean {given}/hub.spt?");
    for says in [build, meant] {
        for (command, prefix) in [
            ("inspect", format!("outboard: {given}")),
            ("run", format!("outboard-tender: \"{given}\"")),
        ] {
            let mut outboard = Command::new(images.program("outboard"));
            let ended = run(outboard.args([command, &given.to_string()]))?;
            expect_last_line(&ended, &format!("{prefix}: {says}"))?;
        }
        std::fs::write(folder.path.join("hub/hub.spt"), "")?;
    }
    Ok(())
}

/// The panic names the devices that there are.
fn misnamed(images: &Images) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("messages")?;
    let disk = folder.path.join("disk.img");
    std::fs::File::create(&disk)?.set_len(1 << 20)?;
    let mut guest = Command::new(images.program("outboard"));
    guest.args(["run", "--mem=16"]);
    guest.arg(format!("--block:disk={}", disk.display()));
    let ended = run(guest.arg(images.guest("misnamed")))?;
    ended.expect_status(255)?;
    ended.expect_stdout("\ndisc: NotInManifest([\"disk\"])\n")?;
    Ok(())
}

/// A tap of nobody's, and a user without capabilities.
fn foreign(images: &Images) -> Result<(), Failed> {
    let segment = Segment::new()?;
    shell(
        &segment,
        "ip tuntap add dev lan0 mode tap user 65534 && ip link set dev lan0 up",
    )?;
    // Whoever is allowed to waits for frames, and would do so for ever.
    let mut command = Command::new("timeout");
    command.args([
        RUN_SECONDS,
        "setpriv",
        "--bounding-set=-all",
        "--inh-caps=-all",
    ]);
    command.arg(images.program("outboard-tender"));
    command.arg("--net:net=lan0").arg(images.guest("port"));
    let ended = segment.run(|| run(&mut command))?;
    ended.expect_stderr("outboard-tender: --net:net=lan0: permission denied; the tap is ")?;
    ended.expect_stderr(
        "; make it yours: sudo ip tuntap del dev lan0 mode tap && sudo ip tuntap add dev lan0 \
         mode tap user $USER && sudo ip link set dev lan0 up\n",
    )?;
    ended.expect_status(1)?;
    // What it says works, where root need not be asked for.
    shell(
        &segment,
        "sudo() { \"$@\"; }; USER=root; sudo ip tuntap del dev lan0 mode tap && sudo ip tuntap \
         add dev lan0 mode tap user $USER && sudo ip link set dev lan0 up",
    )?;
    let ended = segment.run(|| run(&mut command))?;
    ended.expect_status(TIMED_OUT).map(drop)
}

/// What a guest has is said when it begins, and what may go wrong; no colour goes into a pipe.
fn begins(images: &Images) -> Result<(), Failed> {
    let segment = Segment::new()?;
    shell(
        &segment,
        "ip tuntap add dev lan0 mode tap && ip link set dev lan0 mtu 9000 up && ip tuntap add dev \
         wan0 mode tap && ip link set dev wan0 up",
    )?;
    let folder = TemporaryFolder::new("messages")?;
    let rules = folder.path.join("a.nft");
    let text = "table bridge t {\n chain f {\n type filter hook forward priority 0; policy drop;\n \
                iifname eth0 accept\n }\n}\n";
    std::fs::write(&rules, text)?;
    let line = format!(
        "--mem=32 --rules={} --net:private=lan0 --net:public=wan0 --net-offload:public=off \
         --net-mac:private=02:00:00:00:00:01 --net-mac:public=02:00:00:00:00:02 FIREWALL",
        rules.display()
    );
    let guest = segment.run(|| start(&mut typed(images, &line)))?;
    guest.wait_for_stderr("too_big")?;
    guest.signal(rustix::process::Signal::TERM);
    let ended = guest.finish()?;
    let rules = rules.display();
    let probe = segment.run(|| Tap::create("probe", true))?;
    let offloads = match probe.set_offloads(offload::ALL | offload::USO) {
        Ok(()) => "checksum, TCP and UDP offloads",
        Err(_) => "checksum and TCP offloads",
    };
    let expected = format!(
        "{rules}:4: warning: no port is called eth0; there is private and public\n\
         outboard-tender: private: lan0, 02:00:00:00:00:01, MTU 9000, {offloads}\n\
         outboard-tender: public: wan0, 02:00:00:00:00:02, MTU 1500, no offloads\n\
         outboard-tender: ready: firewall.spt on spt, 32 MiB of memory, rules of {rules}\n\
         outboard-tender: warning: the ports have different MTUs (private 9000, public 1500), and \
         larger frames are dropped and counted as too_big; type before the start: sudo ip link set \
         dev lan0 mtu 1500\n"
    );
    match ended.stderr.starts_with(&expected) {
        true => Ok(()),
        false => Err(format!("not {expected:?}: {ended:?}").into()),
    }
}
