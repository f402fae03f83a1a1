//! Messages about mistakes, word by word: each names what is wrong and what to type instead.

use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Ended, Running, run, start};
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use libtest_mimic::{Completion, Failed, Trial};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use testbed::segment::Segment;

/// How long a guest may take to be found by its name.
const PATIENCE: Duration = Duration::from_secs(10);

/// Less than `outboard send` waits for a guest that counts nothing.
const AT_ONCE: Duration = Duration::from_secs(4);

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
    trials.push(Trial::test(
        "messages::a guest that is none is named by ps",
        || no_guest(images),
    ));
    let missing = programs::missing(&["ip"]);
    let name = "messages::a guest by its name".to_owned();
    trials.push(network.trial_unless(missing, name, || by_name(images)));
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
    let name = "messages::the console of a guest whose monitor was killed".to_owned();
    trials.push(network.trial_unless(programs::missing(&["ip"]), name, || killed(images)));
    let name = "messages::a tap that was moved away".to_owned();
    trials.push(network.trial_unless(programs::missing(&["ip"]), name, || moved(images)));
    let name = "messages::a frame into a guest without rules".to_owned();
    let missing = programs::missing(&["ip", "sysctl"]);
    trials.push(network.trial_unless(missing, name, || without_rules(images)));
    trials
}

/// A command with the words of `typed`.
fn typed(images: &Images, typed: &str) -> Command {
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

fn shell(segment: &Segment, script: &str) -> Result<Ended, Failed> {
    let ended = segment.run(|| run(Command::new("sh").args(["-c", script])))?;
    ended.expect_status(0)?;
    Ok(ended)
}

fn expect_last_line(ended: &Ended, says: &str) -> Result<(), Failed> {
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

/// What the directory of a guest still knows when its monitor could not say how it ended.
fn killed(images: &Images) -> Result<(), Failed> {
    let segment = Segment::new()?;
    let tap = "ip tuntap add dev lan0 mode tap && ip link set dev lan0 up";
    shell(&segment, tap)?;
    let folder = TemporaryFolder::new("messages")?;
    let mut guest = typed(images, "--mem=16 --name=fw --net:net=lan0 PORT");
    guest.env("XDG_RUNTIME_DIR", &folder.path);
    let guest = segment.run(|| start(&mut guest))?;
    guest.wait_for("mtu 1500")?;
    guest.signal(rustix::process::Signal::KILL);
    guest.finish()?;
    let mut logs = Command::new(images.program("outboard"));
    logs.args(["logs", "fw"]);
    logs.env("XDG_RUNTIME_DIR", &folder.path);
    let ended = run(&mut logs)?;
    ended
        .expect_status(0)?
        .expect_stdout("mtu 1500 max 65553\n")?;
    let says = "fw has ended, and its monitor left no word of how: the monitor was killed; perhaps \
                for want of memory: journalctl -k\n";
    match ended.stderr == says {
        true => Ok(()),
        false => Err(format!("not {says:?}: {ended:?}").into()),
    }
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

/// Whoever may enter the network namespace into which a tap was moved is taken there, and all
/// others are told who may.
fn moved(images: &Images) -> Result<(), Failed> {
    let (segment, other) = (Segment::new()?, Segment::new()?);
    let taps = "for tap in lan0 wan0; do ip tuntap add dev $tap mode tap && ip link set dev $tap \
                up; done";
    shell(&segment, taps)?;
    let folder = TemporaryFolder::new("messages")?;
    let line = "--mem=32 --name=fw --net:private=lan0 --net:public=wan0 FIREWALL";
    let mut firewall = typed(images, line);
    firewall.env("XDG_RUNTIME_DIR", &folder.path);
    let firewall = segment.run(|| start(&mut firewall))?;
    // It has its taps from then on.
    firewall.wait_for_stderr("outboard-tender: ready: ")?;
    let send = |from: &Segment, wrapper: &[&str]| {
        let outboard = images.program("outboard");
        let words = wrapper.iter().copied().map(str::to_owned);
        let words: Vec<_> = words.chain([outboard.display().to_string()]).collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command.args(["send", "fw-private", "icmp 10.0.0.1 > 10.0.0.2"]);
        command.env("XDG_RUNTIME_DIR", &folder.path);
        from.run(|| run(&mut command))
    };
    segment.netlink(|netlink| netlink.move_to("lan0", std::os::fd::AsFd::as_fd(&other)))?;
    expect_last_line(
        &send(&segment, &[])?,
        "outboard: lan0 is down, as after a move to another network namespace; there, type: sudo \
         ip link set dev lan0 up",
    )?;
    // Another interface of this name takes nothing that is for the guest.
    shell(
        &segment,
        "ip tuntap add dev lan0 mode tap && ip link set dev lan0 up",
    )?;
    shell(&other, "ip link set dev lan0 up")?;
    for from in [&segment, &other] {
        let sent = send(from, &[])?;
        sent.expect_status(0)?.expect_stdout("verdict   accept\n")?;
    }
    if programs::missing(&["setpriv"]).is_none() {
        let nobody = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
        let refused = send(&other, &nobody)?;
        refused.expect_refusal(&[
            "outboard: lan0 is in another network namespace, and sending there takes root (",
            "); type: sudo --preserve-env=XDG_RUNTIME_DIR $(command -v outboard) send ...\n",
        ])?;
    }
    shell(&other, "ip link set dev lan0 down name lan7 up")?;
    expect_last_line(
        &send(&other, &[])?,
        "outboard: the guest has no tap called lan0 any more: it was renamed or deleted; start \
         the guest again with one of those that there are: ip tuntap",
    )
}

/// A guest without rules: its ports say what they have counted, at once.
fn without_rules(images: &Images) -> Result<(), Failed> {
    let segment = Segment::new()?;
    shell(
        &segment,
        "ip tuntap add dev lan0 mode tap && sysctl -qw net.ipv6.conf.lan0.disable_ipv6=1 && ip \
         link set dev lan0 up",
    )?;
    let folder = TemporaryFolder::new("messages")?;
    let mut guest = typed(images, "--mem=16 --name=fw --net:net=lan0 PORT");
    guest.env("XDG_RUNTIME_DIR", &folder.path);
    let guest = segment.run(|| start(&mut guest))?;
    guest.wait_for("mtu 1500")?;
    let asked = |words: &[&str]| {
        let mut command = Command::new(images.program("outboard"));
        command.args(words).env("XDG_RUNTIME_DIR", &folder.path);
        segment.run(|| run(&mut command))
    };
    let begin = Instant::now();
    let sent = asked(&["send", "fw-net", "udp 10.0.0.1:9 > 10.0.0.2:53"])?;
    let says = "sent      60 bytes into net of fw, through lan0\n\
                counters  net: received 1 frame (60 bytes), sent 1 (60)\n\
                certainty no other frame came in: it was this one\n";
    if sent.expect_status(0)?.stdout != says || begin.elapsed() > AT_ONCE {
        return Err(format!("not {says:?} after {:?}: {sent:?}", begin.elapsed()).into());
    }
    let rules = asked(&["rules", "show", "fw"])?;
    let says = "outboard: fw takes no rules; what it counts shows: outboard stats fw";
    expect_last_line(&rules, says)
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
    let expected = format!(
        "{rules}:4: warning: no port is called eth0; there is private and public\n\
         outboard-tender: private: lan0, 02:00:00:00:00:01, MTU 9000, checksum and TCP offloads\n\
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

/// All that is asked and done by a guest's name: who has it, its rules, its console, its end.
fn by_name(images: &Images) -> Result<(), Failed> {
    let segment = Segment::new()?;
    let taps = "for tap in lan0 wan0; do ip tuntap add dev $tap mode tap && ip link set dev $tap \
                up; done";
    shell(&segment, taps)?;
    let folder = TemporaryFolder::new("messages")?;
    let rules = folder.path.join("a.nft");
    let text = "table bridge t {\n chain f {\n type filter hook forward priority 0; policy drop;\n \
                ether type arp log prefix \"seen: \" accept\n }\n}\n";
    std::fs::write(&rules, text)?;
    let line = format!(
        "--mem=32 --name=fw --rules={} --net:private=lan0 --net:public=wan0 FIREWALL",
        rules.display()
    );
    let typed = |line: &str| {
        let mut command = typed(images, line);
        command.env("XDG_RUNTIME_DIR", &folder.path);
        segment.run(|| start(&mut command))
    };
    let firewall = typed(&line)?;
    wait_for_name(images, &folder, &firewall)?;
    let asked = |words: &[&str]| {
        let mut command = Command::new(images.program("outboard"));
        run(command.args(words).env("XDG_RUNTIME_DIR", &folder.path))
    };
    let taken = typed(&line)?.finish()?;
    let pid = firewall.id();
    taken.expect_status(1)?.expect_stderr(&format!(
        "outboard: --name=fw: a guest of this name is running (process {pid}: "
    ))?;
    taken.expect_stderr("run --mem=32 --name=fw")?;
    taken.expect_stderr("); end it with: outboard stop fw, or choose another name\n")?;
    let almost = asked(&["stats", "fv"])?;
    let says = "outboard: no guest is called fv; did you mean fw? there is fw";
    expect_last_line(&almost, says)?;
    let almost = asked(&["send", "fw-privat", "icmp 10.0.0.1 > 10.0.0.2"])?;
    let says = "outboard: no port fw-privat; did you mean fw-private? there is fw-private and \
                fw-public";
    expect_last_line(&almost, says)?;
    wait_for_rules(&asked)?;
    shown_rules(&asked, &folder)?;
    let frame = "arp who-has 10.0.0.2 tell 10.0.0.1";
    segment
        .run(|| asked(&["send", "fw-private", frame]))?
        .expect_status(0)?;
    let console = asked(&["logs", "fw"])?;
    console.expect_status(0)?.expect_stdout("seen: ")?;
    let stopped = asked(&["stop", "fw"])?;
    stopped.expect_status(0)?;
    stopped.expect_stdout("the guest was ended by SIGTERM\nfw has ended with status 143\n")?;
    let ended = firewall.finish()?;
    ended.expect_status(143)?;
    // The console was passed on, and its end is what was kept.
    if ended.stdout != console.stdout {
        return Err(format!("kept {:?} of {:?}", console.stdout, ended.stdout).into());
    }
    let gone = "outboard: no guest is called fw, and none runs under a name; start one with: \
                outboard run --name=fw ...";
    expect_last_line(&asked(&["stop", "fw"])?, gone)?;
    let says = format!(
        "{gone}; one that has ended said all there is to say where it was started: in that \
         terminal, or in: journalctl -u outboard@fw"
    );
    expect_last_line(&asked(&["logs", "fw"])?, &says)
}

/// The rules in force are listed. Their file is the one that was given, and can be loaded again.
fn shown_rules(
    asked: &dyn Fn(&[&str]) -> Result<Ended, Failed>,
    folder: &TemporaryFolder,
) -> Result<(), Failed> {
    let shown = asked(&["rules", "show", "fw"])?;
    shown
        .expect_stdout("ether type arp log prefix")?
        .expect_stdout("policy drop")?;
    shown.expect_stdout(
        "rules in force: generation 1\nthe file itself: outboard rules show fw --source\n",
    )?;
    let shown = asked(&["rules", "show", "--json", "fw"])?;
    let json: serde_json::Value = serde_json::from_str(&shown.stdout)?;
    if json["entries"][0]["line"] != 4 {
        return Err(format!("not the rules: {json}").into());
    }
    let given = std::fs::read_to_string(folder.path.join("a.nft"))?;
    for generation in 2..4 {
        let shown = asked(&["rules", "show", "fw", "--source"])?;
        if shown.expect_status(0)?.stdout != given {
            return Err(format!("not {given:?}: {shown:?}").into());
        }
        let file = folder.path.join("b.nft").display().to_string();
        std::fs::write(&file, shown.stdout)?;
        let loaded = asked(&["rules", "load", "fw", &file])?;
        loaded.expect_status(0)?.expect_stdout(&format!(
            "fw: generation {generation} of its rules is in force, from {file}; it counts from \
             zero\n"
        ))?;
    }
    Ok(())
}

/// Waits until the guest has the rules of its file in force.
fn wait_for_rules(asked: &dyn Fn(&[&str]) -> Result<Ended, Failed>) -> Result<(), Failed> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown = asked(&["rules", "show", "fw"])?;
        if shown.stdout.contains("generation 1\n") {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("no rules of the file: {shown:?}").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// What cannot be read hides no other guest.
fn no_guest(images: &Images) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("messages")?;
    let guest = folder.path.join("outboard/odd");
    std::fs::create_dir_all(&guest)?;
    let share = guest.join("share");
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &share, fifo, mode, 0)?;
    let mut ps = Command::new(images.program("outboard"));
    let ended = run(ps.arg("ps").env("XDG_RUNTIME_DIR", &folder.path))?;
    ended.expect_stdout("name  pid  host")?;
    let says = format!(
        "outboard: {}: no regular file, so no guest left it; remove the directory that it is in",
        share.display()
    );
    expect_last_line(&ended, &says)
}

fn wait_for_name(
    images: &Images,
    folder: &TemporaryFolder,
    _guest: &Running,
) -> Result<(), Failed> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut ps = Command::new(images.program("outboard"));
        let ended = run(ps.arg("ps").env("XDG_RUNTIME_DIR", &folder.path))?;
        if ended.stdout.contains("fw ") {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("no guest called fw: {ended:?}").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
}
