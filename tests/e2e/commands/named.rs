//! What is asked of a guest by its name, and of the frames into its ports, word by word.

use super::messages::{expect_last_line, shell, typed};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Ended, run, start};
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use libtest_mimic::{Failed, Trial};
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use testbed::segment::Segment;

/// How long a guest may take to be found by its name.
const PATIENCE: Duration = Duration::from_secs(10);
/// Less than `outboard send` waits for a guest that counts nothing.
const AT_ONCE: Duration = Duration::from_secs(4);

type Test = fn(&Images) -> Result<(), Failed>;

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let network_tests: [(&str, &[&str], Test); 4] = [
        ("all that is asked by a name", &["ip"], by_name),
        (
            "the console of a guest whose monitor was killed",
            &["ip"],
            killed,
        ),
        ("a tap that was moved away", &["ip"], moved),
        (
            "a frame into a guest without rules",
            &["ip", "sysctl"],
            without_rules,
        ),
    ];
    let mut trials = vec![Trial::test(
        "named::a guest that is none is named by ps",
        || no_guest(images),
    )];
    for (name, needed, test) in network_tests {
        let name = format!("named::{name}");
        trials.push(network.trial_unless(programs::missing(needed), name, move || test(images)));
    }
    trials
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
    wait_for_name(images, &folder)?;
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
    let place = folder.path.join("outboard");
    let place = place.display();
    let says = format!("outboard: no guest in {place} is called fv; did you mean fw? there is fw");
    expect_last_line(&almost, &says)?;
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
    let gone = format!(
        "outboard: no guest is called fw, and none runs under a name in {place}; start one with: \
         outboard run --name=fw ..."
    );
    expect_last_line(&asked(&["stop", "fw"])?, &gone)?;
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
    segment.netlink(|netlink| netlink.move_to("lan0", other.as_fd()))?;
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
    expect_last_line(&rules, says)?;
    let sockets = asked(&["sockets", "fw"])?;
    let says = "outboard: fw has no TCP/IP stack; images that are built on the crate service have \
                one, such as unikernels/echo. What fw counts shows: outboard stats fw";
    expect_last_line(&sockets, says)
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
    // The tender ends behind its monitor, and holds the guest's lock until then.
    let deadline = Instant::now() + PATIENCE;
    let mut ended = run(&mut logs)?;
    while ended.stderr.is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
        ended = run(&mut logs)?;
    }
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

fn wait_for_name(images: &Images, folder: &TemporaryFolder) -> Result<(), Failed> {
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
