//! What nft has in sets and maps and this has not, and why.

use super::{STATELESS, Table, instead, refusal};
use crate::nft::error::Refusal;

/// What stands in a set besides type, flags, elements and comment.
pub static IN_SET: &Table = &[
    (
        "typeof",
        instead(
            "`typeof`",
            "is not supported",
            "write `type ipv4_addr` or another type",
        ),
    ),
    (
        "gc-interval",
        instead("`gc-interval`", "has no effect here", "leave it out"),
    ),
    (
        "policy",
        instead("the policy of a set", "has no effect here", "leave it out"),
    ),
    (
        "counter",
        refusal("a counter of each element", "is not supported"),
    ),
    ("limit", refusal("`limit`", STATELESS)),
    ("quota", refusal("`quota`", STATELESS)),
];

/// Flags of a map.
pub static MAP_FLAGS: &Table = &[
    (
        "dynamic",
        refusal("a map that rules change", "is not supported"),
    ),
    (
        "timeout",
        refusal("a map that rules change", "is not supported"),
    ),
];

/// What an element has that a rule adds.
pub static IN_ELEMENT: &Table = &[
    ("quota", refusal("`quota`", STATELESS)),
    ("last", refusal("`last`", STATELESS)),
    (
        "comment",
        refusal("a comment of such an element", "is not supported by nft"),
    ),
    (
        "timeout",
        instead(
            "`timeout` in this place",
            "is not supported",
            "write it right behind the field",
        ),
    ),
];

/// A counter of an element that has counted something.
pub static ELEMENT_COUNTER: Refusal = instead(
    "a counter that starts from another number than 0",
    "is not supported: it begins with the element",
    "write `counter`",
);

/// A second limit or counter of an element.
pub static SECOND_PART: Refusal = refusal(
    "a second one in an element",
    "is not supported: each has one",
);
