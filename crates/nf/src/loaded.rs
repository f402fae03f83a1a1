//! Rules of a bridge or of a router, as their own tables say: for whoever checks a text for an
//! image without being one.

use crate::nft::ast::{Family, File, Item};
use crate::nft::{self, Error, Limits};
use crate::resolve::{Role, resolve};
use crate::router::Rules;
use crate::ruleset::RuleSet;

/// Rules of either kind.
#[derive(Debug)]
pub enum Loaded {
    /// Those of a bridge, in a table of the family `bridge`.
    Bridge(RuleSet),
    /// Those of a router, in tables of the families `inet`, `ip` and `ip6`.
    Router(Rules),
}

impl Loaded {
    /// Reads a text of rules; see [`crate::load`] and [`Rules::load`].
    ///
    /// # Errors
    /// The first thing in the text that is not accepted.
    pub fn load(text: &str, ports: &[&str], limits: &Limits) -> Result<Self, Error> {
        let file = nft::parse(text, limits)?;
        Ok(match is_of_router(&file) {
            true => Self::Router(Rules::new(resolve(&file, ports, limits, Role::Router)?)),
            false => Self::Bridge(resolve(&file, ports, limits, Role::Bridge)?.compile()),
        })
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        match self {
            Self::Bridge(rules) => rules.len(),
            Self::Router(rules) => rules.len(),
        }
    }

    /// Whether policies alone decide.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of heap that the rules take.
    pub fn memory(&self) -> usize {
        match self {
            Self::Bridge(rules) => rules.memory(),
            Self::Router(rules) => rules.memory(),
        }
    }
}

/// The first table decides: one of another kind behind it is refused.
fn is_of_router(file: &File<'_>) -> bool {
    let mut tables = file.items.iter().filter_map(|item| match item {
        Item::Table(table) => Some(table),
        Item::FlushRuleset(_) | Item::Define(_) | Item::Undefine(_) => None,
    });
    let first = tables.next();
    first.is_some_and(|table| table.family.node != Family::Bridge)
}
