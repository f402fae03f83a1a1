//! Chains, and the hooks that some of them are at.

use super::{Parsed, Parser, count, expected, once, refuse, unknown};
use crate::nft::ast::{
    Base, Chain, ChainItem, ChainKind, Family, Hook, Name, Policy, Span, Spanned,
};
use crate::nft::error::{Error, ErrorKind};
use crate::nft::lex::Token;
use crate::nft::refusals;
use crate::router::TRACKING;
use alloc::vec::Vec;

/// Names of priorities at a bridge's hook.
const OF_BRIDGE: &[(&str, i64)] = &[("filter", -200)];
/// Those at a router's hooks (NF_IP_PRI_*). `dstnat` is one of `prerouting`, and `srcnat` one of
/// `postrouting`.
const OF_ROUTER: &[(&str, i64)] = &[
    ("raw", -300),
    ("mangle", -150),
    ("dstnat", -100),
    ("filter", 0),
    ("security", 50),
    ("srcnat", 100),
];

impl<'a> Parser<'a, '_> {
    pub(super) fn chain(&mut self) -> Parsed<Chain<'a>> {
        self.tokens.take()?;
        let name = self.name("the name of the chain")?;
        let open = self.open()?;
        let mut base: Option<Spanned<Base>> = None;
        let mut policy: Option<Spanned<Policy>> = None;
        let mut items = Vec::new();
        let mut comment: Option<Name<'a>> = None;
        while let Some(Spanned { span, node }) = self.item(open)? {
            match node {
                Token::Word("define" | "redefine") => {
                    items.push(ChainItem::Define(self.define()?));
                }
                Token::Word("undefine") => items.push(ChainItem::Undefine(self.undefine()?)),
                Token::Word("type") => {
                    let mut first = base.map(|base| base.span);
                    once(&mut first, span, "hook of a chain")?;
                    base = Some(self.base()?);
                }
                Token::Word("policy") => {
                    let mut first = policy.map(|policy| policy.span);
                    once(&mut first, span, "policy")?;
                    policy = Some(self.policy()?);
                }
                Token::Word("comment") => self.block_comment(&mut comment)?,
                _ => {
                    count(&mut self.counts.rules, self.limits.rules, span, "rules")?;
                    items.push(ChainItem::Rule(self.rule()?));
                }
            }
            self.separator()?;
        }
        if let Some(policy) = policy {
            let Some(base) = &mut base else {
                return expected(policy.span, "`type filter hook forward priority ...` first");
            };
            base.node.policy = Some(policy);
        }
        Ok(Chain {
            name,
            base,
            items,
            comment,
        })
    }

    /// `type filter hook forward priority ...`.
    fn base(&mut self) -> Parsed<Spanned<Base>> {
        let start = self.tokens.take()?.span.start;
        let (kind, hook) = match self.family {
            Family::Bridge => self.hook_of_bridge()?,
            Family::Inet | Family::Ip | Family::Ip6 => self.hook_of_router()?,
        };
        let next = self.tokens.peek();
        if matches!(next.node, Token::Word("device" | "devices")) {
            return refuse(next.span, &refusals::DEVICE);
        }
        self.word("priority")?;
        let names = match self.family {
            Family::Bridge => OF_BRIDGE,
            Family::Inet | Family::Ip | Family::Ip6 => OF_ROUTER,
        };
        let priority = self.priority(names, hook)?;
        if self.family != Family::Bridge {
            check_priority(kind, hook, priority)?;
        }
        let base = Base {
            kind,
            hook,
            priority: priority.node,
            policy: None,
        };
        Ok(Spanned::new(self.tokens.span_from(start), base))
    }

    fn hook_of_bridge(&mut self) -> Parsed<(ChainKind, Hook)> {
        let kind = self.tokens.take()?;
        if kind.node != Token::Word("filter") {
            return unknown(kind.span, kind.node, refusals::CHAIN_TYPES, "`filter`");
        }
        self.word("hook")?;
        let hook = self.tokens.take()?;
        if hook.node != Token::Word("forward") {
            return unknown(hook.span, hook.node, refusals::HOOKS, "`forward`");
        }
        Ok((ChainKind::Filter, Hook::Forward))
    }

    fn hook_of_router(&mut self) -> Parsed<(ChainKind, Hook)> {
        let Spanned { span, node } = self.tokens.take()?;
        let kinds = [ChainKind::Filter, ChainKind::Nat];
        let kind = kinds.into_iter().find(|it| node == Token::Word(it.name()));
        let Some(kind) = kind else {
            return unknown(
                span,
                node,
                refusals::ROUTER_CHAIN_TYPES,
                "`filter` or `nat`",
            );
        };
        self.word("hook")?;
        let Spanned { span, node } = self.tokens.take()?;
        let hook = Hook::ALL
            .into_iter()
            .find(|it| node == Token::Word(it.name()));
        match hook {
            Some(Hook::Forward) if kind == ChainKind::Nat => refuse(span, &refusals::NAT_FORWARD),
            Some(hook) => Ok((kind, hook)),
            None => {
                let hooks = "prerouting, input, forward, output or postrouting";
                unknown(span, node, refusals::ROUTER_HOOKS, hooks)
            }
        }
    }

    /// `10`, `-10`, `filter`, `filter + 10` or `filter - 10`.
    pub(super) fn priority(&mut self, names: &[(&str, i64)], hook: Hook) -> Parsed<Spanned<i32>> {
        let first = self.tokens.peek();
        let mut priority = 0;
        let mut named = false;
        if let Token::Word(word) = first.node {
            self.tokens.take()?;
            let known = names.iter().find(|(name, _)| *name == word);
            (priority, named) = match (known, word, hook) {
                (Some(_), "dstnat", hook) if hook != Hook::Prerouting => {
                    return refuse(first.span, &refusals::DSTNAT_ELSEWHERE);
                }
                (Some(_), "srcnat", hook) if hook != Hook::Postrouting => {
                    return refuse(first.span, &refusals::SRCNAT_ELSEWHERE);
                }
                (Some((_, number)), ..) => (*number, true),
                (None, ..) if names.len() == 1 => {
                    return expected(first.span, "a number or `filter`, perhaps with `+` or `-`");
                }
                (None, ..) => {
                    let what = "a number, or raw, mangle, dstnat, filter, security or srcnat, \
                                perhaps with `+` or `-`";
                    return expected(first.span, what);
                }
            };
        }
        let sign = self.tokens.peek();
        match sign.node {
            Token::Mark("-") => {
                self.tokens.take()?;
                priority -= self.offset()?;
            }
            Token::Mark("+") if named => {
                self.tokens.take()?;
                priority += self.offset()?;
            }
            Token::Variable(_) => return refuse(sign.span, &refusals::VARIABLE_HERE),
            _ if named => {}
            _ => priority = self.offset()?,
        }
        let span = self.tokens.span_from(first.span.start);
        let priority = i32::try_from(priority).map_err(|_| too_large(span))?;
        Ok(Spanned::new(span, priority))
    }

    fn offset(&mut self) -> Parsed<i64> {
        let Spanned { span, node } = self.tokens.take()?;
        match node {
            Token::Number(number) => i64::try_from(number).map_err(|_| too_large(span)),
            Token::Variable(_) => refuse(span, &refusals::VARIABLE_HERE),
            _ => expected(span, "a number"),
        }
    }

    fn policy(&mut self) -> Parsed<Spanned<Policy>> {
        let start = self.tokens.take()?.span.start;
        let Spanned { span, node } = self.tokens.take()?;
        let policy = match node {
            Token::Word("accept") => Policy::Accept,
            Token::Word("drop") => Policy::Drop,
            Token::Variable(_) => return refuse(span, &refusals::VARIABLE_HERE),
            _ => return expected(span, "`accept` or `drop`"),
        };
        Ok(Spanned::new(self.tokens.span_from(start), policy))
    }
}

fn too_large(span: Span) -> Error {
    let what = "a priority";
    let max = i32::MAX.unsigned_abs();
    Error::new(span, ErrorKind::TooLarge { what, max })
}

/// Refuses a priority at which nft refuses the chain, and one at which its order depends on what
/// the kernel did before.
fn check_priority(kind: ChainKind, hook: Hook, priority: Spanned<i32>) -> Parsed<()> {
    if kind == ChainKind::Nat && priority.node <= TRACKING {
        return refuse(priority.span, &refusals::NAT_EARLY);
    }
    let tracks = matches!(hook, Hook::Prerouting | Hook::Output);
    if tracks && priority.node == TRACKING {
        return refuse(priority.span, &refusals::AT_TRACKING);
    }
    Ok(())
}
