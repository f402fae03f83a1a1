//! What nft has and this has not, and why.

mod router;
mod sets;

pub use router::*;
pub use sets::*;

use crate::nft::error::Refusal;

const fn refusal(what: &'static str, why: &'static str) -> Refusal {
    Refusal {
        what,
        why,
        instead: None,
    }
}

const fn instead(what: &'static str, why: &'static str, instead: &'static str) -> Refusal {
    Refusal {
        what,
        why,
        instead: Some(instead),
    }
}

const STATELESS: &str = "is not supported: rules remember connections and rates, and nothing else";
const FORWARD_ONLY: &str = "is not supported: frames are passed or dropped, and nothing else";
const NOT_LOCAL: &str = "has no meaning here: no frame has a socket or a route of this machine";
const UNREAD: &str = "is not supported: rules do not see this field";
const WHICH_FAMILY: &str = "may be of IPv4 or of IPv6, and nft cannot tell";
const ROUTER: &str = "is not supported yet: the firewall is a bridge";
const AT_ONCE: &str = "is not supported: each load replaces the whole file in one step";
const CONSTANT: &str = "is not supported: sets change only with the whole file";
const WRITE_OUT: &str = "write the rule out for each value, or jump to a chain for each";
const TABLE_BLOCK: &str = "write `table bridge NAME { ... }` with all that belongs in it";
const BRIDGE: &str = "write `table bridge NAME { ... }`, in which ARP and IP both pass";

const INCLUDE: Refusal = instead(
    "`include`",
    "is not supported: the rules reach the firewall as one file",
    "`outboard rules list FILE` prints one file of all of them",
);
/// A table of words and what is to be said of them.
type Table = [(&'static str, Refusal)];

/// The refusal of `word`.
pub fn find(table: &'static Table, word: &str) -> Option<&'static Refusal> {
    let found = table.iter().find(|(refused, _)| *refused == word);
    found.map(|(_, refusal)| refusal)
}

/// Words that begin a command.
pub static COMMANDS: &Table = &[
    ("add", instead("`add`", AT_ONCE, TABLE_BLOCK)),
    ("create", instead("`create`", AT_ONCE, TABLE_BLOCK)),
    ("insert", instead("`insert`", AT_ONCE, TABLE_BLOCK)),
    ("replace", instead("`replace`", AT_ONCE, TABLE_BLOCK)),
    (
        "delete",
        instead("`delete`", AT_ONCE, "leave out what is not to be there"),
    ),
    (
        "destroy",
        instead("`destroy`", AT_ONCE, "leave out what is not to be there"),
    ),
    ("rename", refusal("`rename`", AT_ONCE)),
    ("reset", refusal("`reset`", AT_ONCE)),
    ("list", refusal("`list`", "is no part of a file of rules")),
    (
        "describe",
        refusal("`describe`", "is no part of a file of rules"),
    ),
    (
        "monitor",
        refusal("`monitor`", "is no part of a file of rules"),
    ),
    (
        "export",
        refusal("`export`", "is no part of a file of rules"),
    ),
    (
        "import",
        refusal("`import`", "is no part of a file of rules"),
    ),
    ("include", INCLUDE),
    (
        "chain",
        instead(
            "a chain outside of a table",
            "is not supported",
            TABLE_BLOCK,
        ),
    ),
    (
        "set",
        instead("a set outside of a table", "is not supported", TABLE_BLOCK),
    ),
    (
        "element",
        instead(
            "`element`",
            CONSTANT,
            "write `elements = { ... }` in the set",
        ),
    ),
    (
        "rule",
        instead("`rule`", AT_ONCE, "write the rule into its chain's block"),
    ),
];

/// `flush` of anything but `ruleset`.
pub static FLUSH_PART: Refusal = instead(
    "`flush` of a part",
    "is not supported: each load replaces everything",
    "write `flush ruleset`, or leave it out",
);

/// `flush ruleset` that would remove what stands above.
pub static FLUSH_LATE: Refusal = instead(
    "`flush ruleset` behind a table",
    "would remove that table",
    "move it to the top of the file",
);

/// A second table beside one of a bridge.
pub static SECOND_TABLE: Refusal = instead(
    "a second table",
    "is not supported",
    "put all chains and sets into one table",
);

/// Families of tables that are no bridge's and no router's.
pub static FAMILIES: &Table = &[
    (
        "arp",
        instead("the family `arp`", "is not supported", BRIDGE),
    ),
    (
        "netdev",
        instead("the family `netdev`", "is not supported", BRIDGE),
    ),
];

/// A table without a family, which nft takes for `ip`.
pub static NO_FAMILY: Refusal = instead(
    "a table without a family",
    "is not supported",
    "write `table bridge NAME { ... }`, or `table ip NAME { ... }`, which nft takes it for",
);

/// What stands in a table besides chains, sets and definitions.
pub static IN_TABLE: &Table = &[
    ("flags", refusal("a flag of a table", "is not supported")),
    ("flowtable", refusal("a flowtable", FORWARD_ONLY)),
    ("secmark", refusal("`secmark`", NOT_LOCAL)),
    ("synproxy", refusal("`synproxy`", FORWARD_ONLY)),
    ("include", INCLUDE),
];

/// `ct helper` and `ct expectation` in a table.
pub static CONNECTION_OBJECT: Refusal = instead(
    "a helper or expectation of `ct`",
    "is not supported: no payload is read, so no connection expects another one",
    "let the other connections in by their ports",
);

/// What nft knows of a connection, and rules do not.
pub static CONNECTION: &Table = &[
    (
        "saddr",
        instead("`saddr`", WHICH_FAMILY, "write `ip saddr` or `ip6 saddr`"),
    ),
    (
        "daddr",
        instead("`daddr`", WHICH_FAMILY, "write `ip daddr` or `ip6 daddr`"),
    ),
    (
        "protocol",
        instead("`ct protocol`", "is not supported", "match `meta l4proto`"),
    ),
    (
        "l3proto",
        instead("`ct l3proto`", "is not supported", "match `meta protocol`"),
    ),
    (
        "avgpkt",
        instead(
            "`ct avgpkt`",
            "is not supported",
            "match `ct bytes` and `ct packets`",
        ),
    ),
    (
        "helper",
        instead(
            "`ct helper`",
            "is not supported: no payload is read, so no connection expects another one",
            "let the other connections in by their ports",
        ),
    ),
    (
        "expectation",
        refusal("`ct expectation`", "is not supported"),
    ),
    (
        "label",
        instead("`ct label`", "is not supported", "use `ct mark`"),
    ),
    ("id", refusal("`ct id`", "is not supported")),
    ("event", refusal("`ct event`", "is not supported")),
    ("secmark", refusal("`ct secmark`", NOT_LOCAL)),
];

/// `mark set` with something else than a number or a mark.
pub static MARK_OF_OTHER: Refusal = refusal(
    "a mark that is made of something else",
    "is not supported: it is made of a number, of `meta mark` or of `ct mark`",
);

/// `zone set` in a bridge.
pub static ZONE_OF_BRIDGE: Refusal = refusal(
    "a zone for frames of a bridge",
    "is not supported: their connections are apart in each VLAN",
);

/// `zone set` with something else than a number.
pub static ZONE_OF_OTHER: Refusal = instead(
    "a zone that depends on something else",
    "is not supported: it is a number",
    "a rule for each zone",
);

/// `|` in front of `&`, or parentheses.
pub static MARK_ORDER: Refusal = instead(
    "this order of operations on a mark",
    "is not supported",
    "write `&` first, then `^`, and then `|`",
);

/// `<<` and `>>` of a mark.
pub static MARK_SHIFTED: Refusal = refusal("a shift of a mark", "is not supported");

/// `vmap` behind a mask.
pub static MASKED_MAP: Refusal = instead(
    "a map behind a mask",
    "is not supported",
    "a rule for each value",
);

/// Types of elements.
pub static SET_TYPES: &Table = &[
    (
        "tcp_flag",
        instead(
            "a set of TCP flags",
            "is not supported",
            "write the set into the rule: `tcp flags { ... }`",
        ),
    ),
    (
        "verdict",
        refusal("a set of verdicts", "does not exist in nft either"),
    ),
    (
        "iface_index",
        instead("a set of indices", NOT_LOCAL, "write `type ifname`"),
    ),
    (
        "ct_state",
        instead(
            "a set of `ct` states",
            "is not supported",
            "write them where they are compared",
        ),
    ),
];

/// Types of base chains.
pub static CHAIN_TYPES: &Table = &[
    ("nat", refusal("the chain type `nat`", ROUTER)),
    ("route", refusal("the chain type `route`", ROUTER)),
];

/// Hooks.
pub static HOOKS: &Table = &[
    (
        "prerouting",
        instead(
            "the hook `prerouting`",
            "is not supported: all frames are forwarded",
            "write `hook forward`",
        ),
    ),
    (
        "postrouting",
        instead(
            "the hook `postrouting`",
            "is not supported: all frames are forwarded",
            "write `hook forward`",
        ),
    ),
    (
        "input",
        instead(
            "the hook `input`",
            "has no meaning here: no frame is for the firewall itself",
            "write `hook forward`",
        ),
    ),
    (
        "output",
        instead(
            "the hook `output`",
            "has no meaning here: the firewall sends no frames of its own",
            "write `hook forward`",
        ),
    ),
    (
        "ingress",
        instead(
            "the hook `ingress`",
            "is not supported",
            "write `hook forward`, and `iifname` in the rules",
        ),
    ),
    (
        "egress",
        instead(
            "the hook `egress`",
            "is not supported",
            "write `hook forward`, and `oifname` in the rules",
        ),
    ),
];

/// `device` of a base chain.
pub static DEVICE: Refusal = instead(
    "`device`",
    "is only for the hooks `ingress` and `egress`",
    "write `iifname` in the rules",
);

/// Variables where nft takes them and this does not.
pub static VARIABLE_HERE: Refusal = refusal("a variable", "is not supported here");

/// Words that begin a statement.
pub static STATEMENTS: &Table = &[
    (
        "meter",
        instead(
            "`meter`",
            "is not supported",
            "write `update @NAME { FIELD limit rate ... }`, and declare the set",
        ),
    ),
    ("last", refusal("`last`", STATELESS)),
    (
        "reject",
        instead(
            "`reject`",
            "is not supported: the firewall sends no frames of its own",
            "write `drop`",
        ),
    ),
    ("queue", refusal("`queue`", FORWARD_ONLY)),
    ("dup", refusal("`dup`", FORWARD_ONLY)),
    ("fwd", refusal("`fwd`", FORWARD_ONLY)),
    ("snat", refusal("`snat`", ROUTER)),
    ("dnat", refusal("`dnat`", ROUTER)),
    ("masquerade", refusal("`masquerade`", ROUTER)),
    ("redirect", refusal("`redirect`", ROUTER)),
    ("tproxy", refusal("`tproxy`", ROUTER)),
    ("synproxy", refusal("`synproxy`", FORWARD_ONLY)),
    ("flow", refusal("`flow`", FORWARD_ONLY)),
    (
        "notrack",
        instead(
            "`notrack`",
            "does nothing in a chain at the hook `forward`: there, frames are tracked already",
            "leave it out, and accept what needs no connection before the first rule with `ct`",
        ),
    ),
    (
        "nftrace",
        instead(
            "`nftrace`",
            "is not supported",
            "use `outboard rules explain`",
        ),
    ),
    ("xt", refusal("`xt`", "is not supported")),
    (
        "continue",
        instead("`continue`", "does nothing", "leave it out"),
    ),
    ("iif", instead("`iif`", NOT_LOCAL, "write `iifname`")),
    ("oif", instead("`oif`", NOT_LOCAL, "write `oifname`")),
    (
        "iifgroup",
        instead("`iifgroup`", NOT_LOCAL, "write `iifname { ... }`"),
    ),
    (
        "oifgroup",
        instead("`oifgroup`", NOT_LOCAL, "write `oifname { ... }`"),
    ),
    ("iiftype", refusal("`iiftype`", NOT_LOCAL)),
    ("oiftype", refusal("`oiftype`", NOT_LOCAL)),
    (
        "ibrname",
        instead(
            "`ibrname`",
            "has no meaning here: there is one bridge",
            "leave it out",
        ),
    ),
    (
        "obrname",
        instead(
            "`obrname`",
            "has no meaning here: there is one bridge",
            "leave it out",
        ),
    ),
    ("skuid", refusal("`skuid`", NOT_LOCAL)),
    ("skgid", refusal("`skgid`", NOT_LOCAL)),
    ("socket", refusal("`socket`", NOT_LOCAL)),
    ("cgroup", refusal("`cgroup`", NOT_LOCAL)),
    ("rt", refusal("`rt`", NOT_LOCAL)),
    ("rtclassid", refusal("`rtclassid`", NOT_LOCAL)),
    ("fib", refusal("`fib`", NOT_LOCAL)),
    ("ipsec", refusal("`ipsec`", NOT_LOCAL)),
    ("osf", refusal("`osf`", "is not supported")),
    ("numgen", refusal("`numgen`", STATELESS)),
    ("jhash", refusal("`jhash`", "is not supported")),
    ("symhash", refusal("`symhash`", "is not supported")),
    (
        "pkttype",
        instead("`pkttype`", "is not supported", "match `ether daddr`"),
    ),
    ("cpu", refusal("`cpu`", "has no meaning here")),
    (
        "time",
        refusal("`time`", "is not supported: rules do not see the clock"),
    ),
    (
        "day",
        refusal("`day`", "is not supported: rules do not see the clock"),
    ),
    (
        "hour",
        refusal("`hour`", "is not supported: rules do not see the clock"),
    ),
    (
        "arp",
        instead(
            "a field of ARP",
            UNREAD,
            "match `ether type arp`, `ether saddr`",
        ),
    ),
    (
        "igmp",
        instead("a field of IGMP", UNREAD, "match `ip protocol igmp`"),
    ),
    (
        "sctp",
        instead("a field of SCTP", UNREAD, "match `meta l4proto sctp`"),
    ),
    (
        "dccp",
        instead("a field of DCCP", UNREAD, "match `meta l4proto dccp`"),
    ),
    (
        "udplite",
        instead(
            "a field of UDP-Lite",
            UNREAD,
            "match `meta l4proto udplite`",
        ),
    ),
    (
        "esp",
        instead("a field of ESP", UNREAD, "match `meta l4proto esp`"),
    ),
    (
        "ah",
        instead("a field of AH", UNREAD, "match `meta l4proto ah`"),
    ),
    (
        "comp",
        instead("a field of IPComp", UNREAD, "match `meta l4proto comp`"),
    ),
    (
        "th",
        instead(
            "`th`",
            "is not supported",
            "write one rule with `tcp` and one with `udp`",
        ),
    ),
    ("exthdr", refusal("`exthdr`", UNREAD)),
    (
        "hbh",
        refusal("a field of an IPv6 extension header", UNREAD),
    ),
    (
        "frag",
        refusal("a field of an IPv6 extension header", UNREAD),
    ),
    (
        "dst",
        refusal("a field of an IPv6 extension header", UNREAD),
    ),
    ("mh", refusal("a field of an IPv6 extension header", UNREAD)),
    (
        "srh",
        refusal("a field of an IPv6 extension header", UNREAD),
    ),
    ("vxlan", refusal("a field of a tunnel", UNREAD)),
    ("geneve", refusal("a field of a tunnel", UNREAD)),
    ("gre", refusal("a field of a tunnel", UNREAD)),
    ("include", INCLUDE),
];

/// `rt type` and the like, which is not about a route.
pub static ROUTING_HEADER: Refusal = refusal("a field of an IPv6 extension header", UNREAD);

/// A field given by its offset: `@ll,0,48`.
pub static RAW_PAYLOAD: Refusal = instead("a field given by its offset", UNREAD, "name the field");

/// `meta` and a word.
pub static META: &Table = &[
    ("iif", instead("`meta iif`", NOT_LOCAL, "write `iifname`")),
    ("oif", instead("`meta oif`", NOT_LOCAL, "write `oifname`")),
    (
        "iifgroup",
        instead("`meta iifgroup`", NOT_LOCAL, "write `iifname { ... }`"),
    ),
    (
        "oifgroup",
        instead("`meta oifgroup`", NOT_LOCAL, "write `oifname { ... }`"),
    ),
    ("iiftype", refusal("`meta iiftype`", NOT_LOCAL)),
    ("oiftype", refusal("`meta oiftype`", NOT_LOCAL)),
    (
        "ibrname",
        instead(
            "`meta ibrname`",
            "has no meaning here: there is one bridge",
            "leave it out",
        ),
    ),
    (
        "obrname",
        instead(
            "`meta obrname`",
            "has no meaning here: there is one bridge",
            "leave it out",
        ),
    ),
    ("priority", refusal("`meta priority`", NOT_LOCAL)),
    ("skuid", refusal("`meta skuid`", NOT_LOCAL)),
    ("skgid", refusal("`meta skgid`", NOT_LOCAL)),
    ("rtclassid", refusal("`meta rtclassid`", NOT_LOCAL)),
    ("cgroup", refusal("`meta cgroup`", NOT_LOCAL)),
    ("ipsec", refusal("`meta ipsec`", NOT_LOCAL)),
    (
        "nfproto",
        instead(
            "`meta nfproto`",
            "is always `bridge` here",
            "write `meta protocol`",
        ),
    ),
    ("length", refusal("`meta length`", UNREAD)),
    (
        "pkttype",
        instead("`meta pkttype`", "is not supported", "match `ether daddr`"),
    ),
    (
        "nftrace",
        instead(
            "`meta nftrace`",
            "is not supported",
            "use `outboard rules explain`",
        ),
    ),
    ("cpu", refusal("`meta cpu`", "has no meaning here")),
    (
        "random",
        refusal(
            "`meta random`",
            "is not supported: a verdict depends on the frame alone",
        ),
    ),
    (
        "time",
        refusal(
            "`meta time`",
            "is not supported: rules do not see the clock",
        ),
    ),
    (
        "day",
        refusal("`meta day`", "is not supported: rules do not see the clock"),
    ),
    (
        "hour",
        refusal(
            "`meta hour`",
            "is not supported: rules do not see the clock",
        ),
    ),
    ("secmark", refusal("`meta secmark`", NOT_LOCAL)),
    ("sdif", refusal("`meta sdif`", NOT_LOCAL)),
    ("sdifname", refusal("`meta sdifname`", NOT_LOCAL)),
    ("ibrpvid", refusal("`meta ibrpvid`", UNREAD)),
    ("ibrvproto", refusal("`meta ibrvproto`", UNREAD)),
];

/// Fields of a header that is read, which are not.
pub static FIELD: Refusal = refusal("this field", "is not supported: rules do not see it");

/// `set` behind a field: a change of the frame.
pub static MANGLE: Refusal = refusal(
    "a change of the frame",
    "is not supported: frames pass unchanged or not at all",
);

/// `map`, and `vmap` behind a value.
pub static MAP: Refusal = instead("a map", "is not supported", WRITE_OUT);

/// `&`, `|`, `^` and shifts.
pub static BITS: Refusal = instead(
    "arithmetic on bits",
    "is only supported for `tcp flags`, and `&` for marks",
    "write a prefix such as 10.0.0.0/8, or a set",
);

/// A set in a set.
pub static NESTED_SET: Refusal = instead("a set in a set", "is not supported", "write one set");

/// A prefix of a MAC address.
pub static MAC_PREFIX: Refusal = instead(
    "a prefix of a MAC address",
    "is not supported",
    "write a range: 02:00:00:00:00:00-02:00:00:ff:ff:ff",
);

/// A named set in a set.
pub static NAMED_IN_SET: Refusal = refusal("a named set in a set", "is not supported");

/// A name of a set as the meaning of a variable.
pub static DEFINED_NAME: Refusal = instead(
    "a variable for a named set",
    "is not supported",
    "write `@NAME` in the rule",
);

/// `comment`, `timeout` and the like of an element.
pub static ELEMENT_OPTION: Refusal = instead(
    "a comment or option of an element",
    "is not supported",
    "write a comment as `# ...` at the end of the line",
);

/// `counter name ip saddr map { ... }`.
pub static OBJECT_MAP: Refusal = instead(
    "a map of objects",
    "is not supported",
    "a rule for each of them",
);

/// A second counter in a rule.
pub static SECOND_COUNTER: Refusal = instead(
    "a second counter in a rule",
    "is not supported: each rule has one",
    "write two rules",
);

/// `level`, `group` and so on.
pub static LOG_OPTION: Refusal = instead(
    "this option of `log`",
    "has no meaning here: lines go to the firewall's output",
    "leave it out; `prefix \"...\"` is supported",
);

/// `$` in the prefix of `log`.
pub static LOG_VARIABLE: Refusal = instead(
    "`$` in a prefix",
    "is not supported: nft puts a variable's meaning there",
    "write the meaning out",
);

/// `tcp flags @NAME` and `tcp flags $NAME`.
pub static FLAGS_NAME: Refusal = instead(
    "a named set or variable of flags",
    "is not supported",
    "write the flags into the rule",
);

/// `tcp flags < syn`, `tcp flags 1-5`.
pub static FLAGS_ORDER: Refusal = instead(
    "an order of flags",
    "is not supported",
    "write `tcp flags & (...) == ...`",
);

/// `tcp flags { syn }`.
pub static FLAGS_SINGLE: Refusal = instead(
    "a set of one flag",
    "is not supported: nft takes it for the flag itself, among others",
    "write `tcp flags syn`, or `tcp flags == syn` for that flag alone",
);

/// `tcp flags & syn | ack`.
pub static FLAGS_BARE_OR: Refusal = instead(
    "`|` behind `&` without parentheses",
    "is not what it looks like in nft",
    "write `tcp flags & (syn | ack)`",
);

/// `protocol` without `meta`.
pub static BARE_META: Refusal = instead(
    "this word",
    "needs `meta` in front of it",
    "write `meta ...`",
);

/// A line end where it separates nothing.
pub static BLANK_LINE: Refusal = instead(
    "a blank line in a set",
    "is not accepted by nft either",
    "remove the line, or begin it with `#`",
);
