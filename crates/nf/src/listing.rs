//! What the rules of a text are called: the names of their counters.

use crate::nft::ast::{ChainItem, Item, Object, Policy, TableItem, What};
use crate::nft::{self, Error, Limits};
use crate::rule::RuleIndex;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The rules of a text by their index, and behind them the policies of its base chains, and then
/// counters and quotas that have a name, each in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    rules: Vec<Listed>,
}

/// A rule, a policy, or an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The chain that it stands in, or the table of an object; of a file with several tables,
    /// behind the name of its table.
    pub chain: String,
    /// The line of the text that it begins on, from 1.
    pub line: usize,
    /// The rule in nft's language; `policy drop` or `policy accept`; or `counter NAME`, or `quota
    /// NAME` and what it allows.
    pub text: String,
}

impl Listing {
    /// Lists the rules of a text. Of a text that [`crate::load`] accepts, there is one for each
    /// index.
    ///
    /// # Errors
    /// The text is not one of rules.
    pub fn new(text: &str, limits: &Limits) -> Result<Self, Error> {
        let file = nft::parse(text, limits)?;
        let mut lines = Lines {
            text,
            at: 0,
            line: 1,
        };
        let mut rules = Vec::new();
        let mut policies = Vec::new();
        let mut objects = Vec::new();
        let is_table = |item: &&Item<'_>| matches!(item, Item::Table(_));
        let several = file.items.iter().filter(is_table).count() > 1;
        for item in &file.items {
            let Item::Table(table) = item else { continue };
            for item in &table.items {
                if let TableItem::Object(object) = item
                    && let Some(text) = named(object)
                {
                    let chain = table.name.node.to_owned();
                    let line = lines.of(object.name.span.start as usize);
                    objects.push(Listed { chain, line, text });
                }
                let TableItem::Chain(chain) = item else {
                    continue;
                };
                let mut list = |start: u32, text| {
                    let chain = match several {
                        true => format!("{} {}", table.name, chain.name),
                        false => chain.name.node.to_owned(),
                    };
                    let line = lines.of(start as usize);
                    Listed { chain, line, text }
                };
                if let Some(base) = &chain.base {
                    let policy = base.node.policy.as_ref();
                    let start = policy.map_or(base.span.start, |policy| policy.span.start);
                    let text = match policy.map(|policy| policy.node) {
                        Some(Policy::Drop) => "policy drop",
                        Some(Policy::Accept) | None => "policy accept",
                    };
                    policies.push(list(start, text.to_owned()));
                }
                for item in &chain.items {
                    if let ChainItem::Rule(rule) = item {
                        rules.push(list(rule.span.start, rule.node.to_string()));
                    }
                }
            }
        }
        rules.extend(policies);
        rules.extend(objects);
        Ok(Self { rules })
    }

    /// What has this index.
    pub fn get(&self, index: RuleIndex) -> Option<&Listed> {
        self.rules.get(index)
    }

    /// Everything that has an index, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Listed> {
        self.rules.iter()
    }
}

/// What an object is called that has a counter.
fn named(object: &Object<'_>) -> Option<String> {
    let name = object.name;
    match object.what {
        What::Counter { .. } => Some(format!("counter {name}")),
        What::Quota { allowance, .. } => Some(format!("quota {name} {allowance}")),
        What::Limit(_) | What::Timeout(_) => None,
    }
}

/// Counts lines up to places that mostly ascend.
struct Lines<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl Lines<'_> {
    fn of(&mut self, place: usize) -> usize {
        if place < self.at {
            (self.at, self.line) = (0, 1);
        }
        let between = self.text.as_bytes().get(self.at..place).unwrap_or_default();
        self.line += between.iter().filter(|byte| **byte == b'\n').count();
        self.at = place;
        self.line
    }
}
