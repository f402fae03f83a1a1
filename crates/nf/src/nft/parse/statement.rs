//! Rules and their statements.

use super::{Parsed, Parser, expected, refuse, unknown};
use crate::fields::{self, Field, Type};
use crate::nft::ast::{
    ChangeKind, Family, Match, Name, ObjectKind, Operator, Rule, Spanned, Statement, Verdict,
};
use crate::nft::error::{Error, ErrorKind};
use crate::nft::lex::Token;
use crate::nft::{refusals, spelling};
use alloc::vec::Vec;

/// Longest prefix of `log`, in bytes (the kernel's NF_LOG_PREFIXLEN without its end).
const LOG_PREFIX_MAX: usize = 127;

impl<'a> Parser<'a, '_> {
    pub(super) fn rule(&mut self) -> Parsed<Spanned<Rule<'a>>> {
        let start = self.tokens.peek().span.start;
        let mut statements: Vec<Spanned<Statement<'a>>> = Vec::new();
        let mut comment = None;
        loop {
            let Spanned { span, node } = self.tokens.peek();
            match node {
                Token::Newline | Token::Mark(";") => break,
                Token::Word("comment") if !statements.is_empty() => {
                    comment = Some(self.comment()?);
                    break;
                }
                Token::Mark("}") | Token::End => return expected(span, super::SEPARATOR),
                _ => {}
            }
            let max = self.limits.statements;
            if statements.len() == max {
                let what = "statements in one rule";
                return Err(Error::new(span, ErrorKind::Limit { what, max }));
            }
            let statement = self.statement()?;
            check_order(&statements, &statement)?;
            statements.push(statement);
        }
        let rule = Rule {
            statements: statements.into_boxed_slice(),
            comment,
        };
        Ok(Spanned::new(self.tokens.span_from(start), rule))
    }

    fn statement(&mut self) -> Parsed<Spanned<Statement<'a>>> {
        let Spanned { span, node } = self.tokens.take()?;
        let statement = match node {
            Token::Word("accept") => Statement::Verdict(Verdict::Accept),
            Token::Word("drop") => Statement::Verdict(Verdict::Drop),
            Token::Word("return") => Statement::Verdict(Verdict::Return),
            Token::Word("jump") => Statement::Verdict(Verdict::Jump(self.target()?)),
            Token::Word("goto") => Statement::Verdict(Verdict::Goto(self.target()?)),
            Token::Word("counter") => self.counter()?,
            Token::Word("log") => self.log()?,
            Token::Word("limit") => self.limit()?,
            Token::Word("ct") if self.tokens.peek().node == Token::Word("count") => {
                Statement::Count(self.count()?)
            }
            Token::Word("ct") if self.tokens.peek().node == Token::Word("timeout") => {
                self.timeout_set()?
            }
            Token::Word("add") => self.change(ChangeKind::Add)?,
            Token::Word("update") => self.change(ChangeKind::Update)?,
            Token::Word("delete") => self.change(ChangeKind::Delete)?,
            Token::Word("quota") => self.quota()?,
            Token::Word("notrack") if self.family != Family::Bridge => Statement::Notrack,
            Token::Word("flow") if self.family != Family::Bridge => self.flow()?,
            Token::Word("fib") if self.family != Family::Bridge => self.fib()?,
            Token::Word("reject") if self.family != Family::Bridge => self.reject()?,
            Token::Word("protocol" | "l4proto") => return refuse(span, &refusals::BARE_META),
            Token::Set(_) => return refuse(span, &refusals::RAW_PAYLOAD),
            Token::Word("rt") if self.names_routing_header() => {
                return refuse(span, &refusals::ROUTING_HEADER);
            }
            Token::Word(word) => match self.nat(word)? {
                Some(nat) => nat,
                None => self.comparison_of(Spanned::new(span, word))?,
            },
            node => return unknown(span, node, refusals::STATEMENTS, "a statement"),
        };
        Ok(Spanned::new(self.tokens.span_from(span.start), statement))
    }

    /// What begins with a field.
    fn comparison_of(&mut self, word: Spanned<&'a str>) -> Parsed<Statement<'a>> {
        let Spanned { span, node } = word;
        if let Some(field) = self.field(node)? {
            let span = self.tokens.span_from(span.start);
            return self.condition(Spanned::new(span, field));
        }
        match spelling::meant(node) {
            Some(meant) => Err(Error::new(span, ErrorKind::Misspelt(meant))),
            None => {
                let (refusals, what) = (refusals::STATEMENTS, "a statement");
                unknown(span, Token::Word(node), refusals, what)
            }
        }
    }

    /// Whether a field of IPv6's routing header comes next. `rt` in front of other words is about a
    /// route.
    fn names_routing_header(&self) -> bool {
        let next = self.tokens.peek().node;
        matches!(
            next,
            Token::Word("nexthdr" | "hdrlength" | "type" | "seg-left")
        )
    }

    pub(super) fn target(&mut self) -> Parsed<Name<'a>> {
        let next = self.tokens.peek();
        if let Token::Variable(_) = next.node {
            return refuse(next.span, &refusals::VARIABLE_HERE);
        }
        self.name("the name of a chain")
    }

    /// `packets N bytes M`, or nothing.
    pub(super) fn counter(&mut self) -> Parsed<Statement<'a>> {
        let next = self.tokens.peek();
        let (mut packets, mut bytes) = (0, 0);
        match next.node {
            Token::Word("name") => return self.named(ObjectKind::Counter),
            Token::Word("packets") => {
                self.tokens.take()?;
                packets = self.start()?;
                self.word("bytes")?;
                bytes = self.start()?;
            }
            _ => {}
        }
        Ok(Statement::Counter { packets, bytes })
    }

    /// What a counter starts from.
    pub(super) fn start(&mut self) -> Parsed<u64> {
        let Spanned { span, node } = self.tokens.take()?;
        match node {
            Token::Number(number) => Ok(number),
            _ => expected(span, "a number"),
        }
    }

    fn log(&mut self) -> Parsed<Statement<'a>> {
        let mut prefix = None;
        loop {
            let Spanned { span, node } = self.tokens.peek();
            match node {
                Token::Word("prefix") => {
                    let mut first = prefix.map(|prefix: Name<'a>| prefix.span);
                    super::once(&mut first, span, "prefix")?;
                    self.tokens.take()?;
                    let string = self.string("prefix of `log`", LOG_PREFIX_MAX)?;
                    if string.node.contains('$') {
                        return refuse(string.span, &refusals::LOG_VARIABLE);
                    }
                    prefix = Some(string);
                }
                Token::Word(
                    "level" | "group" | "snaplen" | "queue-threshold" | "flags" | "sequence",
                ) => return refuse(span, &refusals::LOG_OPTION),
                _ => return Ok(Statement::Log { prefix }),
            }
        }
    }

    /// The field that begins with `first`, whose second word, if it has one, comes next. None if no
    /// field begins so.
    pub(super) fn field(&mut self, first: &str) -> Parsed<Option<Field>> {
        if let Some(field) = Field::find_single(first) {
            return Ok(Some(field));
        }
        if first == "mark" {
            return Ok(Field::find("meta", first));
        }
        let Some(header) = Field::find_header(first) else {
            return Ok(None);
        };
        if header == "ct" {
            return self.connection_field().map(Some);
        }
        let Spanned { span, node } = self.tokens.take()?;
        let unknown = Error::new(span, ErrorKind::ExpectedField { header });
        let Token::Word(word) = node else {
            return Err(unknown);
        };
        if let Some(field) = Field::find(header, word) {
            return Ok(Some(field));
        }
        match refusals::find(refusals::META, word) {
            Some(refusal) if header == "meta" => refuse(span, refusal),
            _ if header != "meta" && fields::UNREAD.contains(&word) => {
                refuse(span, &refusals::FIELD)
            }
            _ => Err(unknown),
        }
    }

    /// The field that `ct` and the next words name.
    fn connection_field(&mut self) -> Parsed<Field> {
        let start = self.tokens.peek().span.start;
        let mut fields: Vec<(Field, &str)> = Field::all()
            .filter_map(|field| Some((field, field.name().strip_prefix("ct ")?)))
            .collect();
        loop {
            let Spanned { span, node } = self.tokens.take()?;
            let Token::Word(word) = node else {
                return Err(Error::new(span, ErrorKind::ExpectedField { header: "ct" }));
            };
            fields = fields
                .into_iter()
                .filter_map(|(field, rest)| {
                    let rest = rest.strip_prefix(word)?;
                    let ends = rest.is_empty() || rest.starts_with(' ');
                    ends.then(|| (field, rest.trim_start()))
                })
                .collect();
            if let Some((field, _)) = fields.iter().find(|(_, rest)| rest.is_empty()) {
                return Ok(*field);
            }
            if fields.is_empty() {
                let span = self.tokens.span_from(start);
                return match refusals::find(refusals::CONNECTION, word) {
                    Some(refusal) => refuse(span, refusal),
                    None => Err(Error::new(span, ErrorKind::ExpectedField { header: "ct" })),
                };
            }
        }
    }

    /// What stands behind the field of a condition.
    fn condition(&mut self, field: Spanned<Field>) -> Parsed<Statement<'a>> {
        let fields = self.fields(field)?;
        if self.tokens.peek().node == Token::Word("vmap") {
            return self.vmap(fields);
        }
        if fields.len() > 1 {
            return self.joint(fields);
        }
        if field.node.value_type().is_flags() {
            return self.flags(field.node).map(Statement::Flags);
        }
        if field.node.value_type() == Type::Mark {
            match self.tokens.peek().node {
                Token::Word("set") => return self.mark_set(field.node),
                Token::Mark("&") | Token::Word("and") => return self.masked_mark(field),
                _ => {}
            }
        }
        if field.node.value_type() == Type::Zone && self.tokens.peek().node == Token::Word("set") {
            return self.zone_set(field.node);
        }
        self.comparison_with(field)
    }

    /// What stands behind the field of a comparison.
    pub(super) fn comparison_with(&mut self, field: Spanned<Field>) -> Parsed<Statement<'a>> {
        let operator = match self.operator()? {
            Some(operator) => operator,
            None => Spanned::new(field.span, Operator::Equal),
        };
        let operand = self.operand()?;
        let behind = self.tokens.peek();
        match behind.node {
            Token::Mark(",") => expected(behind.span, "a set of the values: `{ ..., ... }`"),
            _ => Ok(Statement::Match(Match {
                field,
                operator,
                operand,
            })),
        }
    }

    /// How something is compared, if it is said.
    pub(super) fn operator(&mut self) -> Parsed<Option<Spanned<Operator>>> {
        let Spanned { span, node } = self.tokens.peek();
        let operator = match node {
            Token::Mark("==") | Token::Word("eq") => Some(Operator::Equal),
            Token::Mark("!=") | Token::Word("ne") => Some(Operator::NotEqual),
            Token::Mark("<") | Token::Word("lt") => Some(Operator::Less),
            Token::Mark("<=") | Token::Word("le") => Some(Operator::LessOrEqual),
            Token::Mark(">") | Token::Word("gt") => Some(Operator::Greater),
            Token::Mark(">=") | Token::Word("ge") => Some(Operator::GreaterOrEqual),
            Token::Mark("!") => return expected(span, "`!=`"),
            Token::Mark("=") => return expected(span, "`==`, or nothing"),
            _ => None,
        };
        match operator {
            Some(operator) => Ok(Some(Spanned::new(self.tokens.take()?.span, operator))),
            None => Ok(None),
        }
    }
}

/// A verdict ends a rule, and there is one counter in it.
fn check_order(
    before: &[Spanned<Statement<'_>>],
    statement: &Spanned<Statement<'_>>,
) -> Parsed<()> {
    let last = before.last().map(|last| &last.node);
    let ends = |statement: &Statement<'_>| {
        use Statement::{Nat, Reject, Verdict, Vmap};
        matches!(statement, Verdict(_) | Nat(_) | Reject(_) | Vmap(_))
    };
    if last.is_some_and(ends) {
        return Err(Error::new(statement.span, ErrorKind::AfterVerdict));
    }
    let is_counter = |it: &Spanned<_>| matches!(it.node, Statement::Counter { .. });
    if is_counter(statement) && before.iter().any(is_counter) {
        return refuse(statement.span, &refusals::SECOND_COUNTER);
    }
    Ok(())
}
