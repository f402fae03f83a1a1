//! How much a file may hold.

/// Heap that a parse takes at most, in bytes for each byte of the text; the peak is while a list
/// grows. The dearest text is `log;` over and over: 4 bytes for a rule (56 bytes in a list that
/// holds three times as much while it doubles) with one statement (64 bytes) in an allocation of
/// its own. Of sets it is `1-2,`, with 32 bytes for the element and 64 for the range.
pub const BYTES_PER_TEXT_BYTE: usize = 64;

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
    /// Counters, quotas and limits that have a name.
    pub objects: usize,
    /// Definitions of variables.
    pub defines: usize,
    /// Elements of one set, variables replaced by what they stand for.
    pub set_elements: usize,
    /// Elements of all sets together, anonymous sets included.
    pub elements: usize,
    /// Bytes of memory that sets which rules change take together.
    pub changing: usize,
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
        objects: 1024,
        defines: 4096,
        set_elements: 256 << 10,
        elements: 512 << 10,
        changing: 256 << 20,
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
