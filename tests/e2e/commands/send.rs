//! `outboard rules` and `outboard send`: what is explained is what a firewall does, on real taps.

use crate::harness::build::Images;
use crate::harness::frames::{self, TEST_MAC};
use crate::harness::network::Network;
use crate::harness::process::{Ended, Running, run, start};
use crate::harness::temporary::TemporaryFolder;
use crate::harness::wire::Wire;
use abi::share::{RULES_STATUS_OFFSET, RulesStatus};
use libtest_mimic::{Failed, Trial};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// How long the firewall may take to have rules.
const PATIENCE: Duration = Duration::from_secs(10);
/// Frames that are sent until one meets another.
const ATTEMPTS_MAX: usize = 50;
/// The guest's name has hyphens, as the longest may.
const NAME: &str = "fw-1";

const RULES: &str = "\
table bridge filter {
    set trusted { type ipv4_addr; flags interval; elements = { 10.0.0.0/24, 192.0.2.7 } }
    chain forward {
        type filter hook forward priority filter; policy drop;
        ether type arp accept
        iifname \"public\" counter jump inbound
        ip saddr @trusted goto outbound
        icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    }
    chain inbound {
        tcp dport { 443, 7070 } accept
        udp dport 53 return
        counter drop
    }
    chain outbound {
        tcp flags syn tcp dport 1-1023 accept
        meta l4proto udp accept
        vlan id 7 accept
    }
}
";

/// A frame, whether it passes, and the rule or reason: its line, or the name of a counter.
const FRAMES: &[(&str, bool, &str)] = &[
    ("arp who-has 10.0.0.2 tell 10.0.0.1 in private", true, "5"),
    ("tcp 10.0.0.1:999 > 10.9.0.2:443 in private", true, "16"),
    ("tcp 10.0.0.1:999 > 10.9.0.2:7070 in private", false, "4"),
    (
        "udp 192.0.2.7:999 > 10.9.0.2:7070 len 1514 in private",
        true,
        "17",
    ),
    ("udp 192.0.2.8:999 > 10.9.0.2:7070 in private", false, "4"),
    ("icmp 10.0.0.1 > 10.9.0.2 vlan 7 in private", true, "18"),
    (
        "udp 10.0.0.1:1 > 10.9.0.2:2 fragment later in private",
        true,
        "17",
    ),
    (
        "icmpv6 fe80::1 > ff02::1:ff00:2 type nd-neighbor-solicit in private",
        true,
        "8",
    ),
    (
        "tcp 10.9.0.2:7070 > 10.0.0.1:7070 flags syn,ack in public",
        true,
        "11",
    ),
    ("udp 192.0.2.7:53 > 10.0.0.1:53 in public", true, "17"),
    ("tcp 10.9.0.2:7070 > 10.0.0.1:80 in public", false, "13"),
    ("ether type 0x88cc in public", false, "13"),
    // An IPv4 packet of 20 bytes by its header whose checksum is wrong, and one that is cut off.
    (
        "02:00:00:00:00:22 02:00:00:00:00:11 0800 4500001400000000 40010000 00000000 00000000 \
         in private",
        false,
        "bad_ip_checksum",
    ),
    (
        "02:00:00:00:00:22 02:00:00:00:00:11 0800 4500 in public",
        false,
        "truncated_ip",
    ),
];

type Test = fn(&Images) -> Result<(), Failed>;

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let network_tests: [(&str, Test); 4] = [
        ("what is explained is what is done", verdicts),
        ("built-in rules are known by their text", built_in),
        ("what cannot be sent is told", refused),
        ("other traffic makes counters uncertain", crowded),
    ];
    let mut trials = vec![
        Trial::test("send::rules check", || check(images)),
        Trial::test("send::rules explain", || explain(images)),
    ];
    for (name, test) in network_tests {
        let name = format!("send::{name}");
        trials.push(network.trial(name, move || test(images)));
    }
    trials
}

/// A firewall under a name, between two wires.
struct Firewall<'a> {
    images: &'a Images,
    /// With the file of rules, and as the runtime folder.
    folder: TemporaryFolder,
    private: Wire,
    public: Wire,
    running: Running,
}

impl<'a> Firewall<'a> {
    /// One with these rules, or with those that are built in.
    fn start(images: &'a Images, rules: Option<&str>) -> Result<Self, Failed> {
        let folder = TemporaryFolder::new("send")?;
        let (mut private, mut public) = (Wire::new(1500, true)?, Wire::new(1500, true)?);
        let mut command = Command::new(images.program("outboard"));
        command
            .args(["run", "--mem=32"])
            .arg(format!("--name={NAME}"))
            .arg(format!("--net:private={}", private.descriptor()?))
            .arg(format!("--net:public={}", public.descriptor()?))
            .env("XDG_RUNTIME_DIR", &folder.path);
        if let Some(rules) = rules {
            let file = folder.path.join("rules.nft");
            fs::write(&file, rules)?;
            command.arg(format!("--rules={}", file.display()));
        }
        let running = start(command.arg(&images.firewall))?;
        let firewall = Self {
            images,
            folder,
            private: {
                private.hand_over();
                private
            },
            public: {
                public.hand_over();
                public
            },
            running,
        };
        firewall.await_rules()?;
        Ok(firewall)
    }

    fn await_rules(&self) -> Result<(), Failed> {
        let share = self.folder.path.join("outboard").join(NAME).join("share");
        let offset = RULES_STATUS_OFFSET + offset_of!(RulesStatus, rules);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut rules = [0; 8];
            let read =
                fs::File::open(&share).and_then(|f| f.read_exact_at(&mut rules, offset as u64));
            if read.is_ok() && rules != [0; 8] {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err("the firewall has no rules".into());
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn wire(&self, port: &str) -> &Wire {
        match port {
            "private" => &self.private,
            _ => &self.public,
        }
    }

    /// Runs `outboard send` in the segment of `port`.
    fn send(&self, port: &str, arguments: &[&str]) -> Result<Ended, Failed> {
        let mut command = self.command(port, arguments);
        self.wire(port).segment.run(|| run(&mut command))
    }

    fn command(&self, port: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.images.program("outboard"));
        command
            .args(["send", &format!("{NAME}-{port}")])
            .args(arguments)
            .env("XDG_RUNTIME_DIR", &self.folder.path);
        command
    }

    /// Ends it.
    fn end(self) -> Result<(), Failed> {
        self.running.signal(Signal::TERM);
        self.running.finish().map(|_| ())
    }
}

/// What `outboard rules explain` says, for programs.
fn explained(images: &Images, rules: &str, frame: &str) -> Result<Value, Failed> {
    let mut command = Command::new(images.program("outboard"));
    command.args(["rules", "explain", "--json", rules, frame]);
    let ended = run(&mut command)?;
    Ok(serde_json::from_str(&ended.expect_status(0)?.stdout)?)
}

fn expect(found: &Value, expected: impl Into<Value>, what: &str) -> Result<(), Failed> {
    let expected = expected.into();
    let same = *found == expected;
    same.then_some(())
        .ok_or_else(|| format!("{what}: {found} instead of {expected}").into())
}

fn verdicts(images: &Images) -> Result<(), Failed> {
    let firewall = Firewall::start(images, Some(RULES))?;
    let rules = firewall.folder.path.join("rules.nft").display().to_string();
    for (words, passes, decider) in FRAMES {
        let (frame, port) = words.rsplit_once(" in ").ok_or("no port")?;
        // A source that the test looks for behind the firewall.
        let frame = if frame.starts_with("02:") {
            frame.to_owned()
        } else {
            format!("{frame} from 02:00:00:00:00:11")
        };
        let explained = explained(images, &rules, &format!("{frame} in {port}"))?;
        let sent = firewall.send(port, &["--json", &frame])?;
        let sent: Value = serde_json::from_str(&sent.expect_status(0)?.stdout)?;
        let verdict = if *passes { "accept" } else { "drop" };
        expect(&sent["outcome"], "certain", words)?;
        expect(&sent["verdict"], verdict, words)?;
        if decider.starts_with(|c: char| c.is_ascii_digit()) {
            expect(&explained["verdict"], verdict, words)?;
            expect(&explained["by"]["line"].to_string().into(), *decider, words)?;
            expect(&sent["rule"], explained["by"].clone(), words)?;
        } else {
            expect(&explained["reason"], *decider, words)?;
            expect(&sent["reasons"][0], *decider, words)?;
        }
        let behind = firewall.wire(if port == "private" {
            "public"
        } else {
            "private"
        });
        if *passes {
            behind
                .receive(TEST_MAC)
                .map_err(|_| format!("{words}: did not pass"))?;
        } else {
            behind
                .expect_silence(TEST_MAC)
                .map_err(|_| format!("{words}: passed"))?;
        }
    }
    firewall.end()
}

/// The text of the rules that the image comes with is known as that of a file is.
fn built_in(images: &Images) -> Result<(), Failed> {
    let firewall = Firewall::start(images, None)?;
    let bytes = fs::read(&images.firewall)?;
    let built_in = image::built_in_rules(&bytes).ok_or("the image carries no rules")?;
    let mut show = Command::new(images.program("outboard"));
    show.args(["rules", "show", NAME, "--source"]);
    let shown = run(show.env("XDG_RUNTIME_DIR", &firewall.folder.path))?;
    expect(
        &shown.expect_status(0)?.stdout.clone().into(),
        built_in,
        "text",
    )?;
    for (port, frame, says) in [
        (
            "private",
            "udp 10.0.0.1:1 > 10.0.0.2:2",
            "verdict   accept\nrule      4, line 27 of chain forward: ip protocol udp counter \
             accept\n",
        ),
        (
            "public",
            "tcp 10.0.0.1:1 > 10.0.0.2:2",
            "verdict   drop\nrule      5, line 15 of chain forward: policy drop\n",
        ),
        (
            "public",
            "020000000022 020000000011 0806 0001",
            "verdict   drop\nreason    truncated_arp\n",
        ),
    ] {
        let sent = firewall.send(port, &[frame])?;
        sent.expect_status(0)?.expect_stdout(says)?;
    }
    firewall.end()
}

fn refused(images: &Images) -> Result<(), Failed> {
    let firewall = Firewall::start(images, None)?;
    let udp = "udp 10.0.0.1:1 > 10.0.0.2:2";
    for (frame, answer) in [
        ("udp 10.0.0.1:1 > 10.0.0.2", "no IP address with a port"),
        ("udp 10.0.0.1:1 > 10.0.0.2:2 in public", "goes into public"),
        ("udp 10.0.0.1:1 > 10.0.0.2:2 len 1600", "MTU"),
        ("0200", "a frame of 2 bytes"),
        ("/nonexistent.pcap", "/nonexistent.pcap"),
    ] {
        let ended = firewall.send("private", &[frame])?;
        ended.expect_status(1)?.expect_stderr(answer)?;
    }
    // Not from where the tap is, and yet it gets there.
    let elsewhere = run(&mut firewall.command("private", &[udp]))?;
    elsewhere
        .expect_status(0)?
        .expect_stdout("verdict   accept\n")?;
    let unknown = firewall.send("lan", &[udp])?;
    unknown
        .expect_status(1)?
        .expect_stderr(&format!("{NAME}-private and {NAME}-public"))?;
    firewall.end()
}

/// Frames of somebody else that come in at the same time: sooner or later one meets ours.
fn crowded(images: &Images) -> Result<(), Failed> {
    let firewall = Firewall::start(images, Some(RULES))?;
    let over = AtomicBool::new(false);
    let other = frames::udp(7070, b"noise");
    let met = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                let _ = firewall.public.send(&other);
            }
        });
        let met = meet(&firewall);
        over.store(true, Relaxed);
        met
    });
    met?.then_some(()).ok_or("no other frame came in")?;
    firewall.end()
}

/// Whether the counters of one of several frames were uncertain. The rule is right each time.
fn meet(firewall: &Firewall) -> Result<bool, Failed> {
    for _ in 0..ATTEMPTS_MAX {
        let sent = firewall.send("private", &["arp who-has 10.0.0.2 tell 10.0.0.1"])?;
        sent.expect_status(0)?
            .expect_stdout("rule      0, line 5")?;
        if sent
            .stdout
            .contains("the counters agree, and prove nothing")
        {
            return Ok(true);
        }
        sent.expect_stdout("no other frame came in")?;
    }
    Ok(false)
}

fn rules_file(text: &str) -> Result<(TemporaryFolder, PathBuf), Failed> {
    let folder = TemporaryFolder::new("rules")?;
    let file = folder.path.join("rules.nft");
    fs::write(&file, text)?;
    Ok((folder, file))
}

fn check(images: &Images) -> Result<(), Failed> {
    let (_folder, file) = rules_file(RULES)?;
    let check = |arguments: &[&str]| {
        let mut command = Command::new(images.program("outboard"));
        run(command.args(["rules", "check"]).args(arguments).arg(&file))
    };
    let good = check(&[])?;
    good.expect_status(0)?
        .expect_stdout("3 chains, 10 rules, 1 set, 6 elements")?;
    let json: Value = serde_json::from_str(&check(&["--json"])?.stdout)?;
    expect(&json["rules"]["rules"], 10, "rules")?;
    expect(&json["rules"]["warnings"], Vec::<Value>::new(), "warnings")?;
    let strange = check(&["--ports=lan,wan"])?;
    strange
        .expect_status(0)?
        .expect_stderr("rules.nft:6: warning: no port is called public")?;

    fs::write(&file, RULES.replace("udp dport 53", "udp dport 70000"))?;
    let bad = check(&[])?;
    bad.expect_status(1)?
        .expect_stderr("rules.nft:12:")?
        .expect_stderr("^^^^^")?;
    let json: Value = serde_json::from_str(&check(&["--json"])?.expect_status(1)?.stdout)?;
    expect(&json["error"]["line"], 12, "line")?;

    let large = fs::File::create(&file)?;
    large.set_len(100 << 20)?;
    check(&[])?
        .expect_status(1)?
        .expect_stderr("more than 16 MiB")?;
    Ok(())
}

fn explain(images: &Images) -> Result<(), Failed> {
    let (_folder, file) = rules_file(RULES)?;
    let explain = |frame: &str| {
        let mut command = Command::new(images.program("outboard"));
        run(command.args(["rules", "explain"]).arg(&file).arg(frame))
    };
    let table = explain("udp 192.0.2.7:53 > 10.0.0.1:53 in public")?;
    table
        .expect_status(0)?
        .expect_stdout("jump")?
        .expect_stdout("return")?;
    table
        .expect_stdout("goto")?
        .expect_stdout("verdict  accept")?;
    table.expect_stdout("line 17 of chain outbound")?;
    let malformed = explain("020000000022 020000000011 0806 0001")?;
    malformed
        .expect_status(0)?
        .expect_stdout("truncated_arp: it ends inside the ARP packet")?;
    explain("udp 192.0.2.7:53 > 10.0.0.1:53 in dmz")?
        .expect_status(1)?
        .expect_stderr("private and public")?;
    Ok(())
}
