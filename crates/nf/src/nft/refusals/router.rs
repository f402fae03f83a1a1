//! What nft has in a router's tables and this has not, and why.

use super::{BRIDGE, Table, instead, refusal};
use crate::nft::error::Refusal;

/// A table of a family that a router has, where a bridge is asked for.
pub static NOT_OF_BRIDGE: Refusal = instead(
    "a table of a router's family",
    "does not go with the firewall, which is a bridge",
    BRIDGE,
);

/// A table of a bridge, where a router is asked for.
pub static NOT_OF_ROUTER: Refusal = instead(
    "a table of the family `bridge`",
    "does not go with a router, which sends packets on, and no frames",
    "write `table inet NAME { ... }`",
);

/// Types of base chains, of a router.
pub static ROUTER_CHAIN_TYPES: &Table = &[(
    "route",
    refusal(
        "the chain type `route`",
        "is not supported: a packet is routed once, before rules see it",
    ),
)];

/// Hooks of a router.
pub static ROUTER_HOOKS: &Table = &[
    (
        "ingress",
        instead(
            "the hook `ingress`",
            "is not supported",
            "write `hook prerouting`, and `iifname` in the rules",
        ),
    ),
    (
        "egress",
        instead(
            "the hook `egress`",
            "is not supported",
            "write `hook postrouting`, and `oifname` in the rules",
        ),
    ),
];

/// A translation to a concatenation that is not looked up.
pub static NAT_MAP: Refusal = instead(
    "an address with a port behind `.`",
    "is only supported in a map",
    "write `ADDRESS:PORT`",
);
/// A named map that has no verdicts.
pub static MAP_OF_VALUES: Refusal = instead(
    "a named map of something else than verdicts",
    "is not supported",
    "write `map { ... }` into the rule",
);

/// A chain that translates, where nothing can be translated.
pub static NAT_FORWARD: Refusal = instead(
    "a chain of the type `nat` at the hook `forward`",
    "is not accepted by nft either",
    "write `hook prerouting` for `dnat`, and `hook postrouting` for `snat` and `masquerade`",
);
/// A chain that translates what is not tracked yet.
pub static NAT_EARLY: Refusal = instead(
    "a chain of the type `nat` with a priority of -200 or less",
    "is not accepted by nft either: connections are not known yet",
    "write `priority dstnat` or `priority srcnat`",
);
/// A chain at the very moment at which connections become known.
pub static AT_TRACKING: Refusal = instead(
    "a priority of -200",
    "is not supported: whether the kernel knows the connection then depends on what it did before",
    "write -201 or -199",
);
/// `dstnat` at another hook.
pub static DSTNAT_ELSEWHERE: Refusal = instead(
    "the priority `dstnat`",
    "is one of the hook `prerouting`",
    "write -100",
);
/// `srcnat` at another hook.
pub static SRCNAT_ELSEWHERE: Refusal = instead(
    "the priority `srcnat`",
    "is one of the hook `postrouting`",
    "write 100",
);

/// `fib` by the mark of a packet.
pub static FIB_MARK: Refusal = instead(
    "`mark` beside the address of `fib`",
    "is not supported: routes do not depend on marks",
    "leave it out",
);
/// `fib ... oif 0`.
pub static FIB_INDEX: Refusal = instead(
    "an index of an interface",
    "has no meaning here",
    "write `oif missing`, or `oif exists`",
);
/// `fib ... type vmap`.
pub static FIB_MAP: Refusal = instead(
    "a map by what routes say",
    "is not supported",
    "a rule for each value",
);
/// `fib ... oif @NAME`.
pub static FIB_NAMED: Refusal = instead(
    "a named set of what routes say",
    "is not supported",
    "write the set into the rule",
);
/// `fib ... type < 2`.
pub static FIB_ORDER: Refusal = instead(
    "an order of what routes say",
    "is not supported",
    "write `{ ... }`",
);
