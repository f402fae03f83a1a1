//! A file of rules that can be taken apart.

use std::fmt;

/// What a file holds, in the order in which it is printed.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// `define` lines.
    pub defines: Vec<String>,
    /// `set` blocks.
    pub sets: Vec<String>,
    /// Chains; one is the base chain.
    pub chains: Vec<Chain>,
    /// Whether rules look behind the IP header.
    pub reads_l4: bool,
}

/// A chain.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// What stands before the rules: the hook of the base chain.
    pub head: String,
    /// In order.
    pub rules: Vec<Rule>,
}

/// A rule.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    /// What is matched and done, in order; a verdict is the last.
    pub statements: Vec<String>,
    /// What stands between them.
    pub joint: &'static str,
    /// What ends the rule, a line break included.
    pub tail: String,
}

/// Frames and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Frames.
    pub packets: u64,
    /// Bytes as the kernel counts them: see [`crate::frame::Frame::counted_bytes`].
    pub bytes: u64,
}

impl Source {
    /// Whether rules change a set that has room for any number of elements.
    pub fn grows(&self) -> bool {
        let mut sets = self.sets.iter();
        sets.any(|set| set.contains("flags dynamic") && !set.contains("size "))
    }

    /// All rules with the names of their chains, in the order of the file.
    pub fn rules(&self) -> impl Iterator<Item = (&str, &Rule)> {
        self.chains
            .iter()
            .flat_map(|chain| chain.rules.iter().map(|rule| (chain.name.as_str(), rule)))
    }
}

impl Rule {
    /// Whether it has a counter.
    pub fn counts(&self) -> bool {
        let mut statements = self.statements.iter();
        statements.any(|statement| statement.starts_with("counter"))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.statements.join(self.joint))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for define in &self.defines {
            writeln!(f, "{define}")?;
        }
        writeln!(f, "table bridge t {{")?;
        let set = |f: &mut fmt::Formatter<'_>, set: &String| writeln!(f, "\t{set}");
        // A set may be declared behind the rules that name it.
        let (before, behind) = self.sets.split_at(self.sets.len() / 2);
        before.iter().try_for_each(|before| set(f, before))?;
        for chain in &self.chains {
            writeln!(f, "\tchain {} {{", chain.name)?;
            if !chain.head.is_empty() {
                writeln!(f, "\t\t{}", chain.head)?;
            }
            for rule in &chain.rules {
                write!(f, "\t\t{rule}{}", rule.tail)?;
            }
            writeln!(f, "\t}}")?;
        }
        behind.iter().try_for_each(|behind| set(f, behind))?;
        writeln!(f, "}}")
    }
}
