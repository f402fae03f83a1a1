//! How much a file may hold.

/// Bounds on a file. A file that passes one is refused with a message that says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the text.
    pub bytes: usize,
    /// Rules in all chains together.
    pub rules: usize,
    /// Chains.
    pub chains: usize,
    /// Named sets.
    pub sets: usize,
    /// Definitions of variables.
    pub defines: usize,
    /// Elements of one set, variables replaced by what they stand for.
    pub set_elements: usize,
    /// Elements of all sets together, anonymous sets included.
    pub elements: usize,
    /// Statements of one rule.
    pub statements: usize,
    /// Variables that stand for variables: how deep.
    pub nesting: usize,
    /// Bytes of the name of a table, chain, set or variable.
    pub name: usize,
}

impl Limits {
    /// What tender, loader and firewall use.
    pub const DEFAULT: Self = Self {
        bytes: 16 << 20,
        // The policy has a counter too.
        rules: (64 << 10) - 1,
        chains: 1024,
        sets: 1024,
        defines: 4096,
        set_elements: 256 << 10,
        elements: 512 << 10,
        statements: 64,
        nesting: 16,
        // NFT_NAME_MAXLEN, without its end.
        name: 255,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
