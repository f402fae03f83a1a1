//! Generated rules that ask for connections, and what the kernel is asked of each packet.

use fastrand::Rng;
use std::fmt::Write;

/// Most rules of a file.
const RULES_MAX: usize = 12;
/// Most conditions of a rule.
const CONDITIONS_MAX: usize = 3;

/// Most timeouts that a file says.
const TIMEOUTS_MAX: usize = 4;
/// Names of timeouts.
const UDP_TIMEOUTS: [&str; 2] = ["unreplied", "replied"];
const TCP_TIMEOUTS: [&str; 11] = [
    "syn_sent",
    "syn_recv",
    "established",
    "fin_wait",
    "close_wait",
    "last_ack",
    "time_wait",
    "close",
    "syn_sent2",
    "retrans",
    "unack",
];

/// What a packet may be, as conditions: each one has one of these. A packet leaves the kernel with
/// the number of its class in its traffic class.
pub const CLASSES: [&str; 15] = [
    "ct state untracked",
    "ct state invalid",
    "ct state new ct status ! seen-reply,assured",
    "ct state new ct status assured",
    "ct state new ct status seen-reply",
    "ct state established ct direction original ct status ! assured",
    "ct state established ct direction original ct status assured",
    "ct state established ct direction reply ct status ! assured",
    "ct state established ct direction reply ct status assured",
    "ct state related ct direction original ct status & (seen-reply|assured) == 0",
    "ct state related ct direction original ct status & (seen-reply|assured) == seen-reply",
    "ct state related ct direction original ct status & (seen-reply|assured) == seen-reply|assured",
    "ct state related ct direction reply ct status & (seen-reply|assured) == 0",
    "ct state related ct direction reply ct status & (seen-reply|assured) == seen-reply",
    "ct state related ct direction reply ct status & (seen-reply|assured) == seen-reply|assured",
];

/// A file of rules with `ct`.
#[derive(Clone, Debug)]
pub struct StatefulRules {
    policy: &'static str,
    /// What the table has beside the chain.
    objects: Vec<String>,
    rules: Vec<String>,
}

impl StatefulRules {
    /// These rules, in a chain with this policy.
    pub fn new(policy: &'static str, rules: &[&str]) -> Self {
        Self {
            policy,
            objects: Vec::new(),
            rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
        }
    }

    /// A file that accepts all in one case of three: then each packet's state is seen.
    pub fn generate(rng: &mut Rng) -> Self {
        let objects = timeouts(rng);
        if rng.u8(0..3) == 0 {
            let mut all = Self::new("accept", &["ct state new counter"]);
            all.rules
                .extend((0..objects.len()).map(|_| timeout_set(rng, objects.len())));
            all.objects = objects;
            return all;
        }
        // Without these, most conversations would end at once.
        let mut rules = vec!["ct state established,related accept".to_owned()];
        rules.extend((0..rng.usize(1..RULES_MAX)).map(|_| rule(rng, objects.len())));
        if rng.bool() {
            rng.shuffle(&mut rules);
        }
        Self {
            policy: if rng.bool() { "accept" } else { "drop" },
            objects,
            rules,
        }
    }

    /// Whether rules count bytes: of packets in parts, `nf` counts the first part.
    pub fn counts_bytes(&self) -> bool {
        self.rules.iter().any(|rule| rule.contains("bytes"))
    }

    /// The file, of this family.
    pub fn text(&self, family: &str) -> String {
        let objects = self.objects.concat();
        let mut text = format!("table {family} t {{\n{objects}\tchain forward {{\n");
        let _ = writeln!(
            text,
            "\t\ttype filter hook forward priority 0; policy {};",
            self.policy
        );
        for rule in &self.rules {
            let _ = writeln!(text, "\t\t{rule}");
        }
        text + "\t}\n}\n"
    }

    /// What the kernel gets: the file, and a chain that says what each packet is.
    pub fn for_kernel(&self) -> String {
        let mut text = self.text("inet");
        text += "table inet said {\n\tchain said {\n";
        text += "\t\ttype filter hook forward priority 10; policy accept;\n";
        for (number, class) in CLASSES.iter().enumerate() {
            for header in ["ip", "ip6"] {
                let network = if header == "ip" { "ipv4" } else { "ipv6" };
                let _ = writeln!(
                    text,
                    "\t\tmeta nfproto {network} {class} {header} dscp set {number} accept"
                );
            }
        }
        text + "\t}\n}\n"
    }
}

/// The classes as rules for `nf`: the number of the one that accepts is that of the class.
pub fn classes() -> String {
    let mut text = "table bridge said {\n\tchain said {\n".to_owned();
    text += "\t\ttype filter hook forward priority 0; policy accept;\n";
    for class in CLASSES {
        let _ = writeln!(text, "\t\t{class} accept");
    }
    text + "\t}\n}\n"
}

/// Timeouts that rules may give to connections, in half of the files.
fn timeouts(rng: &mut Rng) -> Vec<String> {
    let count = if rng.bool() {
        0
    } else {
        rng.usize(1..=TIMEOUTS_MAX)
    };
    let one = |number| {
        let (protocol, names) = if rng.u8(0..3) == 0 {
            ("udp", &UDP_TIMEOUTS[..])
        } else {
            ("tcp", &TCP_TIMEOUTS[..])
        };
        let mut said = Vec::new();
        for name in names {
            if rng.bool() || said.is_empty() {
                // Apart by more than what judges may differ by.
                said.push(format!("{name} : {}", 10 * rng.u16(1..100)));
            }
        }
        format!(
            "\tct timeout t{number} {{\n\t\tprotocol {protocol};\n\t\tpolicy = {{ {} }};\n\t}}\n",
            said.join(", ")
        )
    };
    (0..count).map(one).collect()
}

/// A rule that gives one of so many.
fn timeout_set(rng: &mut Rng, count: usize) -> String {
    let port = [80, 443, 22, 53, 7070][rng.usize(0..5)];
    let number = rng.usize(0..count);
    let condition = match rng.u8(0..4) {
        0 => "ct state new ".to_owned(),
        1 => format!("tcp dport {port} "),
        2 => format!("udp dport {port} "),
        _ => String::new(),
    };
    format!("{condition}ct timeout set \"t{number}\"")
}

/// A rule, where there are so many timeouts.
fn rule(rng: &mut Rng, timeouts: usize) -> String {
    if timeouts > 0 && rng.u8(0..3) == 0 {
        return timeout_set(rng, timeouts);
    }
    let mut statements: Vec<String> = (0..rng.usize(0..CONDITIONS_MAX))
        .map(|_| condition(rng))
        .collect();
    if rng.u8(0..4) == 0 {
        statements.push(format!("ct mark set {}", rng.u8(1..5)));
    }
    if rng.bool() {
        statements.push("counter".to_owned());
    }
    if statements.is_empty() || rng.u8(0..4) > 0 {
        // Rules without a condition decide on everything behind them.
        let bare = !statements.iter().any(|statement| statement != "counter");
        if !bare {
            statements.push(["accept", "drop"][rng.usize(0..2)].to_owned());
        } else {
            statements.push("counter".to_owned());
            statements.dedup();
        }
    }
    statements.join(" ")
}

fn condition(rng: &mut Rng) -> String {
    let states = ["new", "established", "related", "invalid", "untracked"];
    let state = states[rng.usize(0..4)];
    let other = states[rng.usize(0..5)];
    let statuses = ["seen-reply", "assured", "confirmed"];
    let status = statuses[rng.usize(0..3)];
    let direction = ["original", "reply"][rng.usize(0..2)];
    let end = ["saddr", "daddr"][rng.usize(0..2)];
    let port = ["proto-src", "proto-dst"][rng.usize(0..2)];
    let operator = ["", "!= ", "> ", "< "][rng.usize(0..4)];
    match rng.u8(0..16) {
        0..=2 => format!("ct state {state}"),
        3 => format!("ct state {{ {state}, {other} }}"),
        4 => format!("ct state {state},{other}"),
        5 => format!("ct state != {state}"),
        6 => format!("ct status {status}"),
        7 => format!("ct status ! {status}"),
        8 => format!("ct mark {operator}{}", rng.u8(0..5)),
        9 => format!("ct direction {direction}"),
        10 => {
            let network = ["10.128.0.0/10", "10.192.0.0/10"][rng.usize(0..2)];
            format!("ct {direction} ip {end} {network}")
        }
        11 => format!("ct {direction} ip6 {end} fd0a::/16"),
        12 => format!("meta l4proto tcp ct {direction} {port} {operator}80"),
        13 => format!("ct {direction} packets {operator}{}", rng.u8(0..10)),
        14 => format!("ct bytes {operator}{}", rng.u16(0..3000)),
        _ => format!("iifname {}", ["private", "public"][rng.usize(0..2)]),
    }
}
