//! What `iptables-save` and `ip6tables-save` print, in nft's language, as `iptables-translate`
//! says it: the same rules in the same order, each with a counter.

use super::{Left, Line};
use std::collections::BTreeMap;

/// The table, the chain, and where nft has it: type, hook, priority (`NF_IP_PRI_*`).
const HOOKS: [(&str, &str, &str); 17] = [
    ("filter", "INPUT", "filter hook input priority 0"),
    ("filter", "FORWARD", "filter hook forward priority 0"),
    ("filter", "OUTPUT", "filter hook output priority 0"),
    ("nat", "PREROUTING", "nat hook prerouting priority -100"),
    ("nat", "INPUT", "nat hook input priority 100"),
    ("nat", "OUTPUT", "nat hook output priority -100"),
    ("nat", "POSTROUTING", "nat hook postrouting priority 100"),
    (
        "mangle",
        "PREROUTING",
        "filter hook prerouting priority -150",
    ),
    ("mangle", "INPUT", "filter hook input priority -150"),
    ("mangle", "FORWARD", "filter hook forward priority -150"),
    ("mangle", "OUTPUT", "route hook output priority -150"),
    (
        "mangle",
        "POSTROUTING",
        "filter hook postrouting priority -150",
    ),
    ("raw", "PREROUTING", "filter hook prerouting priority -300"),
    ("raw", "OUTPUT", "filter hook output priority -300"),
    ("security", "INPUT", "filter hook input priority 50"),
    ("security", "FORWARD", "filter hook forward priority 50"),
    ("security", "OUTPUT", "filter hook output priority 50"),
];

/// Matches whose options say all.
const MODULES: [&str; 9] = [
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "conntrack",
    "state",
    "multiport",
    "comment",
    "iprange",
];

/// A chain.
#[derive(Default)]
struct Chain {
    declared: usize,
    policy: String,
    rules: Vec<Line>,
}

/// The lines of the tables, and what has no counterpart.
pub fn translate(text: &str) -> (Vec<Line>, Vec<Left>) {
    let is_ip6 = text.contains("ip6tables-save") || text.contains("icmp6-");
    let family = if is_ip6 { "ip6" } else { "ip" };
    let (mut lines, mut left) = (Vec::new(), Vec::new());
    let mut table = None;
    let mut chains: Vec<(String, Chain)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let from = number + 1;
        let line = line.trim();
        match line.chars().next() {
            Some('*') => table = Some((line[1..].to_owned(), from)),
            Some(':') => {
                let mut words = line[1..].split_whitespace();
                let name = words.next().unwrap_or_default().to_owned();
                let policy = words.next().unwrap_or("-").to_owned();
                let (declared, rules) = (from, Vec::new());
                chains.push((
                    name,
                    Chain {
                        declared,
                        policy,
                        rules,
                    },
                ));
            }
            Some('-' | '[') => match rule(line, family) {
                Ok((chain, text)) => match chains.iter_mut().find(|(name, _)| *name == chain) {
                    Some((_, chain)) => chain.rules.push(Line { text, from }),
                    None => left.push(Left {
                        line: from,
                        why: format!("no chain {chain}"),
                    }),
                },
                Err(why) => left.push(Left { line: from, why }),
            },
            _ if line == "COMMIT" => {
                if let Some((table, from)) = table.take() {
                    let chains = core::mem::take(&mut chains);
                    write_table(&mut lines, (family, &table, from), chains);
                }
            }
            _ => {}
        }
    }
    (lines, left)
}

/// Writes a table, without chains of the kernel's that say nothing.
fn write_table(
    lines: &mut Vec<Line>,
    (family, table, from): (&str, &str, usize),
    chains: Vec<(String, Chain)>,
) {
    let mut line = |text: String, from: usize| lines.push(Line { text, from });
    line(format!("table {family} {table} {{"), from);
    for (name, chain) in chains {
        let at = HOOKS
            .iter()
            .find(|(of, known, _)| *of == table && *known == name);
        if at.is_some() && chain.rules.is_empty() && chain.policy == "ACCEPT" {
            continue;
        }
        line(format!("\tchain {name} {{"), chain.declared);
        if let Some((_, _, hook)) = at {
            let policy = chain.policy.to_lowercase();
            line(format!("\t\ttype {hook}; policy {policy};"), chain.declared);
        }
        for rule in chain.rules {
            line(format!("\t\t{}", rule.text), rule.from);
        }
        line("\t}".to_owned(), chain.declared);
    }
    line("}".to_owned(), from);
}

/// The words of a line, without quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut characters = line.chars().peekable();
    while let Some(first) = characters.next() {
        if first.is_whitespace() {
            continue;
        }
        let mut word = String::new();
        let mut quoted = first == '"';
        if !quoted {
            word.push(first);
        }
        while let Some(next) = characters.next() {
            match next {
                '\\' if quoted => word.extend(characters.next()),
                '"' => quoted = !quoted,
                next if next.is_whitespace() && !quoted => break,
                next => word.push(next),
            }
        }
        words.push(word);
    }
    words
}

/// What a rule has said so far.
#[derive(Default)]
struct Rule {
    family: &'static str,
    /// Conditions by where nft's translation has them: interfaces, addresses, the rest.
    conditions: BTreeMap<u8, Vec<String>>,
    protocol: Option<(String, bool)>,
    /// Whether a condition asks for the protocol.
    is_implied: bool,
    target: Option<Target>,
    comment: Option<String>,
}

/// The target, whether it does not come back, and its options.
struct Target {
    name: String,
    goes: bool,
    options: Vec<(String, String)>,
}

/// The chain of a rule, and the rule in nft's language.
fn rule(line: &str, family: &str) -> Result<(String, String), String> {
    let words = words(line);
    let mut words = words.iter().map(String::as_str).peekable();
    // Counts of `iptables-save -c`.
    words.next_if(|word| word.starts_with('['));
    let (Some("-A"), Some(chain)) = (words.next(), words.next()) else {
        return Err(format!("this is no rule: {line}"));
    };
    let mut rule = Rule {
        family: if family == "ip6" { "ip6" } else { "ip" },
        ..Rule::default()
    };
    let mut negated = false;
    while let Some(word) = words.next() {
        if word == "!" {
            negated = true;
            continue;
        }
        let value = |words: &mut dyn Iterator<Item = &str>| {
            let value = words.next().map(str::to_owned);
            value.ok_or_else(|| format!("{word} has no value"))
        };
        match word {
            "--syn" => rule.flags("fin,syn,rst,ack", "syn", negated)?,
            "--tcp-flags" => {
                let (mask, set) = (value(&mut words)?, value(&mut words)?);
                rule.flags(&mask.to_lowercase(), &set.to_lowercase(), negated)?;
            }
            "-j" | "-g" => {
                rule.target = Some(Target {
                    name: value(&mut words)?,
                    goes: word == "-g",
                    options: Vec::new(),
                });
            }
            _ if rule.target.is_some() && !matches!(word, "-m" | "--comment") => {
                let value = words.next_if(|next| !next.starts_with("--"));
                let option = (word.to_owned(), value.unwrap_or_default().to_owned());
                rule.target
                    .iter_mut()
                    .for_each(|it| it.options.push(option.clone()));
            }
            _ => {
                let value = value(&mut words)?;
                rule.condition(word, &value, negated)?;
            }
        }
        negated = false;
    }
    Ok((chain.to_owned(), rule.finish()?))
}

/// `!= ` or nothing.
fn not(negated: bool) -> &'static str {
    if negated { "!= " } else { "" }
}

/// The name of an interface, in which `+` stands for any end.
fn interface(name: &str) -> String {
    match name.strip_suffix('+') {
        Some(start) => format!("\"{start}*\""),
        None => format!("\"{name}\""),
    }
}

/// An address without the length of a prefix that is all of it.
fn address(value: &str) -> &str {
    let whole = value.strip_suffix("/32").or(value.strip_suffix("/128"));
    whole.unwrap_or(value)
}

impl Rule {
    fn add(&mut self, place: u8, condition: String) {
        self.conditions.entry(place).or_default().push(condition);
    }

    /// An option that asks for something.
    fn condition(&mut self, option: &str, value: &str, negated: bool) -> Result<(), String> {
        let (family, not) = (self.family, not(negated));
        match option {
            "-i" if value == "+" => {}
            "-o" if value == "+" => {}
            "-i" => self.add(0, format!("iifname {not}{}", interface(value))),
            "-o" => self.add(0, format!("oifname {not}{}", interface(value))),
            "-s" => self.add(1, format!("{family} saddr {not}{}", address(value))),
            "-d" => self.add(1, format!("{family} daddr {not}{}", address(value))),
            "--src-range" => self.add(1, format!("{family} saddr {not}{value}")),
            "--dst-range" => self.add(1, format!("{family} daddr {not}{value}")),
            "-p" if value == "all" => {}
            "-p" => self.protocol = Some((value.to_owned(), negated)),
            "-m" if MODULES.contains(&value) => {}
            "-m" => return Err(format!("the match `{value}` is not supported")),
            "--sport" | "--sports" => self.ports("sport", value, not)?,
            "--dport" | "--dports" => self.ports("dport", value, not)?,
            "--icmp-type" => self.icmp("icmp", value, not)?,
            "--icmpv6-type" => self.icmp("icmpv6", value, not)?,
            "--ctstate" | "--state" => self.states(value, negated)?,
            "--comment" => self.comment = Some(value.replace('"', "'")),
            _ => return Err(format!("`{option}` is not supported")),
        }
        Ok(())
    }

    fn ports(&mut self, field: &str, value: &str, not: &str) -> Result<(), String> {
        let protocol = match &self.protocol {
            Some((protocol, false)) if matches!(&**protocol, "tcp" | "udp") => protocol.clone(),
            _ => return Err("ports of another protocol than tcp or udp".to_owned()),
        };
        self.is_implied = true;
        let ports = value.replace(':', "-").replace(',', ", ");
        let ports = match ports.contains(',') {
            true => format!("{{ {ports} }}"),
            false => open_ended(&ports),
        };
        self.add(2, format!("{protocol} {field} {not}{ports}"));
        Ok(())
    }

    fn icmp(&mut self, header: &str, value: &str, not: &str) -> Result<(), String> {
        self.is_implied = true;
        match value.split_once('/') {
            _ if value == "any" => self.is_implied = false,
            Some(_) if !not.is_empty() => return Err(format!("not {header} type {value}")),
            Some((kind, code)) => {
                self.add(2, format!("{header} type {kind} {header} code {code}"));
            }
            None => self.add(2, format!("{header} type {not}{value}")),
        }
        Ok(())
    }

    fn states(&mut self, value: &str, negated: bool) -> Result<(), String> {
        let names = value.to_lowercase();
        let is_status = |name: &str| matches!(name, "dnat" | "snat");
        let field = match (
            names.split(',').all(is_status),
            names.split(',').any(is_status),
        ) {
            (true, _) => "status",
            (false, false) => "state",
            (false, true) => return Err(format!("states and statuses at once: {value}")),
        };
        let not = if negated { "! " } else { "" };
        self.add(2, format!("ct {field} {not}{names}"));
        Ok(())
    }

    /// `--tcp-flags MASK SET`.
    fn flags(&mut self, mask: &str, set: &str, negated: bool) -> Result<(), String> {
        const ALL: &str = "fin,syn,rst,psh,ack,urg";
        let all = |names: &str| {
            if names == "all" {
                ALL.to_owned()
            } else {
                names.to_owned()
            }
        };
        let (mask, set) = (all(mask), all(set));
        self.is_implied = true;
        let condition = match (&*set, negated) {
            ("none", false) => format!("tcp flags ! {mask}"),
            ("none", true) => format!("tcp flags {mask}"),
            (set, _) => format!("tcp flags {}{set} / {mask}", not(negated)),
        };
        self.add(2, condition);
        Ok(())
    }

    /// The whole rule.
    fn finish(mut self) -> Result<String, String> {
        if let (Some((protocol, negated)), false) = (self.protocol.take(), self.is_implied) {
            let name = match &*protocol {
                "ipv6-icmp" => "icmpv6",
                other => other,
            };
            self.add(1, format!("meta l4proto {}{name}", not(negated)));
        }
        let target = match self.target.take() {
            Some(target) => target.words(self.family)?,
            None => String::new(),
        };
        let mut words: Vec<String> = self.conditions.into_values().flatten().collect();
        words.push("counter".to_owned());
        words.extend(Some(target).filter(|target| !target.is_empty()));
        words.extend(self.comment.map(|comment| format!("comment \"{comment}\"")));
        Ok(words.join(" "))
    }
}

/// A range of ports, of which iptables may leave out an end.
fn open_ended(ports: &str) -> String {
    match ports.split_once('-') {
        Some(("", high)) => format!("0-{high}"),
        Some((low, "")) => format!("{low}-65535"),
        _ => ports.to_owned(),
    }
}

impl Target {
    fn option(&mut self, name: &str) -> Option<String> {
        let at = self.options.iter().position(|(option, _)| option == name)?;
        Some(self.options.remove(at).1)
    }

    /// The end of the rule.
    fn words(mut self, family: &str) -> Result<String, String> {
        let name = self.name.clone();
        let words = match &*name {
            "ACCEPT" => "accept".to_owned(),
            "DROP" => "drop".to_owned(),
            "RETURN" => "return".to_owned(),
            "NOTRACK" => "notrack".to_owned(),
            "CT" if self.option("--notrack").is_some() => "notrack".to_owned(),
            "LOG" => self.log(),
            "REJECT" => self.reject(family)?,
            "MASQUERADE" => self.nat("masquerade", "--to-ports", ":")?,
            "REDIRECT" => self.nat("redirect", "--to-ports", ":")?,
            "SNAT" => self.nat("snat", "--to-source", "")?,
            "DNAT" => self.nat("dnat", "--to-destination", "")?,
            name if KERNELS.contains(&name) => {
                return Err(format!("the target `{name}` is not supported"));
            }
            chain if self.goes => format!("goto {chain}"),
            chain => format!("jump {chain}"),
        };
        match self.options.first() {
            None => Ok(words),
            Some((option, _)) => Err(format!("`{option}` of {name} is not supported")),
        }
    }

    /// Lines have no levels and no options here: they go to the output.
    fn log(&mut self) -> String {
        let prefix = self.option("--log-prefix");
        self.options
            .retain(|(option, _)| !option.starts_with("--log-"));
        match prefix {
            Some(prefix) => format!("log prefix \"{}\"", prefix.replace('"', "'")),
            None => "log".to_owned(),
        }
    }

    fn reject(&mut self, family: &str) -> Result<String, String> {
        let with = self.option("--reject-with").unwrap_or_default();
        let code = match &*with {
            "" | "icmp-port-unreachable" | "icmp6-port-unreachable" => return Ok("reject".into()),
            "tcp-reset" => return Ok("reject with tcp reset".to_owned()),
            "icmp-proto-unreachable" => "prot-unreachable",
            "icmp6-adm-prohibited" => "admin-prohibited",
            other => {
                let code = other.strip_prefix("icmp-").or(other.strip_prefix("icmp6-"));
                code.ok_or_else(|| format!("`--reject-with {other}` is not supported"))?
            }
        };
        let kind = if family == "ip6" { "icmpv6" } else { "icmp" };
        Ok(format!("reject with {kind} {code}"))
    }

    fn nat(&mut self, word: &str, to: &str, before: &str) -> Result<String, String> {
        let mut words = word.to_owned();
        if let Some(to) = self.option(to) {
            if word == "dnat" && to.matches('/').count() > 0 {
                return Err(format!("`{to}` is not supported"));
            }
            words += &format!(" to {before}{to}");
        }
        let mut flags = Vec::new();
        for (option, flag) in [
            ("--random", "random"),
            ("--random-fully", "fully-random"),
            ("--persistent", "persistent"),
        ] {
            if self.option(option).is_some() {
                flags.push(flag);
            }
        }
        if !flags.is_empty() {
            words += &format!(" {}", flags.join(","));
        }
        Ok(words)
    }
}

/// Targets of iptables that do something else than to end a rule.
const KERNELS: [&str; 16] = [
    "TCPMSS", "MARK", "CONNMARK", "TTL", "HL", "TOS", "DSCP", "CLASSIFY", "NFLOG", "NFQUEUE",
    "TPROXY", "NETMAP", "SET", "TRACE", "CT", "TEE",
];
