//! The language of rules beside nft itself: what `nf` accepts, nft accepts; what nft accepts and
//! `nf` does not is refused with a place and a reason.

use crate::harness::network::Network;
use crate::harness::process::{self, Ended};
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use libtest_mimic::{Failed, Trial};
use nf::nft::{self, ErrorKind, Limits};
use std::fs;
use std::process::Command;

/// Rules that are accepted, and how they are printed.
const ACCEPTED: &str = include_str!("../../../crates/nf/src/nft/tests/accepted.txt");
/// The same, of rules that ask for connections.
const CONNECTIONS: &str = include_str!("../../../crates/nf/src/nft/tests/connections.txt");
/// The same, of rules of a router.
const ROUTED: &str = include_str!("../../../crates/nf/src/nft/tests/routed.txt");
/// Rules that nft alone accepts.
const UNSUPPORTED: &str = include_str!("../../../crates/nf/src/nft/tests/unsupported.txt");

/// Rules that neither accepts.
const REFUSED: &str = include_str!("../../../crates/nf/src/nft/tests/refused.txt");

/// Files that neither accepts.
const REFUSED_FILES: [&str; 31] = [
    "table bridge t { set s { type inet_service; elements = { 53 - 53 }; }; }",
    "table bridge t { set s { type ipv4_addr; elements = { 10.0.0.1/32 }; }; }",
    "define R = 53-53\ntable bridge t { set s { type inet_service; elements = { $R }; }; }",
    "table bridge t { set s { type ifname; elements = { \"a*\" }; }; }",
    "table bridge t { set s { type ipv4_addr; auto-merge; }; }",
    "table bridge t { set s { type ifname; flags interval; elements = { \"p*\", \"pq\" }; }; }",
    "table bridge t { set s { type ifname; flags interval; elements = { \"p*\", \"pq*\" }; }; }",
    "define A = $NOSUCH\ntable bridge t { chain c { }; }",
    "define A = { $NOSUCH }\ntable bridge t { chain c { }; }",
    "define A = 1 - $NOSUCH\ntable bridge t { chain c { }; }",
    "table bridge t { chain c { tcp dport > 80-80; }; }",
    "define R = 80-80\ntable bridge t { chain c { tcp dport > $R; }; }",
    "table bridge t { chain c { ip saddr > 10.0.0.1/32; }; }",
    "table bridge t { chain c { iifname tcp; }; }",
    "define I = tcp\ntable bridge t { chain c { iifname $I; }; }",
    "table bridge t { chain c { oifname redirect; }; }",
    "table bridge t { chain c { meta protocol 0x1234 ip saddr 1.2.3.4; }; }",
    "table bridge t { chain c { meta protocol { ip, 0x1234 } ip saddr 1.2.3.4; }; }",
    "table bridge t { chain c { meta protocol 4 tcp dport 80; }; }",
    "table bridge t { chain c { meta protocol 0x1234 vlan id 5; }; }",
    "table bridge t { chain c { meta protocol vlan tcp dport 80; }; }",
    "table bridge t { chain c { meta l4proto 99 udp dport 5; }; }",
    "table bridge t { chain c { meta l4proto { tcp, udp } tcp dport 53; }; }",
    "define P = { tcp, udp }\ntable bridge t { chain c { meta l4proto $P tcp dport 53; }; }",
    "table bridge t { chain c { tcp dport 5 meta l4proto udp udp dport 6; }; }",
    "table bridge t { chain c { tcp dport 5 meta l4proto udp tcp sport 6; }; }",
    "table bridge t { chain c { ether type { 0x88cc, arp } tcp dport 5; }; }",
    "table bridge t { chain c { ether type arp tcp dport 5; }; }",
    "table bridge t { chain c { ether type ip6 ip saddr 1.2.3.4; }; }",
    "table bridge t { chain c { ip saddr 1.2.3.4 vlan id 5; }; }",
    "table bridge t { chain c { ip protocol udp tcp dport 22; }; }",
];

/// What a rule of [`CONNECTIONS`] names, in front of the first chain.
const TIMEOUTS: &str = "\tct timeout web {
\t\tprotocol tcp
\t\tl3proto ip
\t\tpolicy = { established : 120, close : 4 }
\t}
\tchain d";

/// Rules that nft accepts, and in which it does something else than they say.
const MISLEADING: [&str; 7] = [
    "meta protocol { ip, ip6 } ip6 daddr != ::1 accept",
    "ip protocol { tcp, 99 } tcp dport 53 accept",
    "ether type { vlan, 0x88cc } vlan id 5 accept",
    "ether type { vlan, 8021ad } vlan id 5 accept",
    "ether type vlan ether type vlan vlan id 5 accept",
    "vlan id 5 ether type vlan vlan id 6 accept",
    "vlan id 5 ether type vlan ip saddr 10.0.0.1 accept",
];

/// Files that nft alone accepts.
const UNSUPPORTED_FILES: [&str; 13] = [
    "table inet t { chain c { type filter hook forward priority 0; }; }",
    "table ip t { chain c { type filter hook forward priority 0; }; }",
    "table t { }",
    "add table bridge t",
    "table bridge t { }; table bridge u { }",
    "table bridge t { flags dormant; }",
    "table bridge t { map m { type ipv4_addr : mark; }; }",
    "table bridge t { set s { typeof ip saddr; }; }",
    "table bridge t { map m { type ipv4_addr . inet_service : mark; }; }",
    "table bridge t { set s { type ipv4_addr; flags timeout; \
     elements = { 10.0.0.1 timeout 5s }; }; }",
    "table bridge t { set s { type ipv4_addr; flags dynamic; }; chain c { \
     add @s { ip saddr quota 5 bytes }; }; }",
    "table bridge t { chain c { type filter hook input priority 0; }; }",
    "define s = @x\ntable bridge t { set x { type ipv4_addr; }; chain c { ip saddr $s; }; }",
];

/// Files that are accepted.
const FILES: [&str; 4] = [
    include_str!("../../../unikernels/firewall/rules/default.nft"),
    include_str!("../../../unikernels/firewall/rules/ipv6.nft"),
    "define PORTS = { 80, 443 }
table bridge t {
\tcomment \"a table\"
\tdefine NET = 10.0.0.0/8
\tset addresses {
\t\ttype ipv4_addr; flags constant, interval
\t\tauto-merge
\t\tcomment \"a set\"
\t\telements = {
\t\t\t$NET, # inside
\t\t\t# a line of its own
\t\t\t192.0.2.1-192.0.2.9, }
\t}
\tset links { type ether_addr; elements = { 2:0:0:0:0:1, 02:00:00:00:00:02 }; }
\tset names { type ifname; elements = { \"a\", b }
\t}
\tset protocols { type inet_proto; elements = { tcp, 17 }; }
\tset services { type inet_service; flags interval; elements = { ssh, 8000-8080 }; }
\tset types { type ether_type; elements = { ip, 0x88cc }; }
\tset pings { type icmp_type; elements = { echo-request, 0 }; }
\tset pings6 { type icmpv6_type; elements = { echo-request, 129 }; }
\tset addresses6 { type ipv6_addr; flags interval; elements = { fe80::/10 }; }
\tchain later { define HERE = 22
\t\ttcp dport $HERE accept; tcp dport $PORTS accept
\t\ttcp dport { $PORTS, 8080 } \\
\t\t\taccept
\t}
\tchain c {
\t\tcomment \"a chain\"
\t\ttype filter hook forward priority filter - 1
\t\tpolicy drop
\t\tip saddr @addresses ip saddr $NET jump later
\t\tether saddr @links counter; iifname @names meta l4proto @protocols accept
\t}
}",
    "table bridge t { chain c { type filter hook forward priority -5; policy accept;};}",
];

/// The tests of this file.
pub fn trials(network: &Network) -> Vec<Trial> {
    let missing = programs::missing(&["nft"]);
    let trial = |name: &str, run: fn() -> Result<(), Failed>| {
        network.trial_unless(missing, format!("nft_syntax::{name}"), run)
    };
    vec![
        trial("accepted_by_both", accepted),
        trial("refused_by_us_alone", refused),
        trial("refused_by_both", refused_by_both),
        trial("differs::what_misleads_is_refused", misleading),
        trial("differs::services_have_one_port_everywhere", services),
        trial("differs::a_comment_may_end_the_text", comment),
    ]
}

/// A file with one rule, and what the rules of the corpora name.
fn file(rule: &str) -> String {
    format!("table bridge t {{\n\tchain d {{ }}\n\tchain c {{\n\t\t{rule}\n\t}}\n}}\n")
}

/// What nft says of `text`, in a network namespace of its own.
fn nft(folder: &TemporaryFolder, text: &str) -> Result<Ended, Failed> {
    let path = folder.path.join("rules.nft");
    fs::write(&path, text)?;
    let mut command = Command::new("unshare");
    process::run(
        command
            .args(["--net", "nft", "--check", "--file"])
            .arg(path),
    )
}

fn accepted() -> Result<(), Failed> {
    let folder = TemporaryFolder::new("nft_syntax")?;
    let rules = ACCEPTED.lines().filter(|line| !line.is_empty());
    let rules = rules.map(|line| file(line.split(" => ").next().unwrap_or(line)));
    for text in rules.chain(FILES.map(str::to_owned)) {
        accepted_by_nft(&folder, &text)?;
    }
    // Not every kernel tracks what a bridge forwards.
    let rules = CONNECTIONS.lines().chain(ROUTED.lines());
    for line in rules.filter(|line| !line.is_empty()) {
        let text = file(line.split(" => ").next().unwrap_or(line));
        let text = of_family(&text, "inet").replacen("\tchain d", TIMEOUTS, 1);
        accepted_by_nft(&folder, &text)?;
    }
    Ok(())
}

/// The same file, with its table in this family.
fn of_family(text: &str, family: &str) -> String {
    text.replacen("table bridge", &format!("table {family}"), 1)
}

/// Whether we accept a text, and nft accepts it and what we print of it.
fn accepted_by_nft(folder: &TemporaryFolder, text: &str) -> Result<(), Failed> {
    let parsed = match nft::parse(text, &Limits::DEFAULT) {
        Ok(parsed) => parsed.to_string(),
        Err(error) => return Err(error.render("rules.nft", text).to_string().into()),
    };
    for text in [text, &parsed] {
        let said = nft(folder, text)?;
        let said = said.expect_status(0);
        said.map_err(|failed| format!("{text}\n{}", failed.message().unwrap_or_default()))?;
    }
    Ok(())
}

fn refused() -> Result<(), Failed> {
    let folder = TemporaryFolder::new("nft_syntax")?;
    let rules = UNSUPPORTED.lines().filter(|line| !line.is_empty());
    let rules = rules.map(|line| file(line.split(" => ").next().unwrap_or(line)));
    for text in rules.chain(UNSUPPORTED_FILES.map(str::to_owned)) {
        let said = nft(&folder, &text)?;
        let said = said.expect_status(0);
        said.map_err(|failed| format!("{text}\n{}", failed.message().unwrap_or_default()))?;
        let parsed = nft::parse(&text, &Limits::DEFAULT).map(|_| ());
        let Err(error) = parsed.and_then(|()| load(&text).map(|_| ())) else {
            return Err(format!("accepted: {text}").into());
        };
        if let ErrorKind::Unsupported(refusal) = error.kind
            && refusal.why.is_empty()
        {
            return Err(format!("no reason: {text}").into());
        }
    }
    Ok(())
}

/// What `nf` makes of a whole file.
fn load(text: &str) -> Result<nf::RuleSet, nft::Error> {
    // What is looked at here has no chain at a hook.
    let hook = "chain base { type filter hook forward priority 0; }; ";
    let text = text.replacen("table bridge t { ", &format!("table bridge t {{ {hook}"), 1);
    let text = text.replacen(
        "table bridge t {\n",
        &format!("table bridge t {{\n{hook}\n"),
        1,
    );
    nf::load(&text, &["private", "public"], &Limits::DEFAULT)
}

fn refused_by_both() -> Result<(), Failed> {
    let folder = TemporaryFolder::new("nft_syntax")?;
    let rules = REFUSED.lines().filter(|line| !line.is_empty());
    let rules = rules.map(|line| file(line.split(" => ").next().unwrap_or(line)));
    for text in rules.chain(REFUSED_FILES.map(str::to_owned)) {
        let said = nft(&folder, &text)?;
        let said = said.expect_status(1);
        said.map_err(|failed| format!("{text}\n{}", failed.message().unwrap_or_default()))?;
        if load(&text).is_ok() {
            return Err(format!("nf accepts: {text}").into());
        }
    }
    Ok(())
}

fn misleading() -> Result<(), Failed> {
    let folder = TemporaryFolder::new("nft_syntax")?;
    for text in MISLEADING.map(file) {
        nft(&folder, &text)?.expect_status(0)?;
        let error = load(&text).err().ok_or(format!("nf accepts: {text}"))?;
        if !matches!(error.kind, ErrorKind::Misleading(_)) {
            return Err(format!("{error}: {text}").into());
        }
    }
    Ok(())
}

/// Where a machine has no names of services, nft knows none.
fn services() -> Result<(), Failed> {
    let folder = TemporaryFolder::new("nft_syntax")?;
    let text = file("tcp dport { ssh, imaps, ms-wbt-server } accept");
    nft(&folder, &text)?.expect_status(0)?;
    let path = folder.path.join("rules.nft");
    let script = "mount --bind /dev/null /etc/services && exec nft --check --file \"$0\"";
    let mut command = Command::new("unshare");
    let command = command.args(["--net", "--mount", "sh", "-c", script]);
    let said = process::run(command.arg(path))?;
    said.expect_status(1)?.expect_stderr("service")?;
    load(&text).map_err(|error| error.to_string())?;
    Ok(())
}

/// The shell takes away the newline at the end of `"$(cat fw.nft)"`.
fn comment() -> Result<(), Failed> {
    let folder = TemporaryFolder::new("nft_syntax")?;
    let text = file("accept") + "# the end";
    nft(&folder, &format!("{text}\n"))?.expect_status(0)?;
    nft(&folder, &text)?.expect_status(1)?;
    load(&text).map_err(|error| error.to_string())?;
    Ok(())
}
