//! Tokens: what stands in the text, one at a time.
//!
//! A comment on a line of its own is no line at all, and a backslash at the end of a line joins it
//! with the next one, as in nft's scanner.

use super::ast::{Span, Spanned};
use super::error::{Error, ErrorKind};
use core::net::{Ipv4Addr, Ipv6Addr};
use core::str::FromStr;
use winnow::combinator::{dispatch, opt, peek, preceded};
use winnow::error::ParserError;
use winnow::prelude::*;
use winnow::stream::{LocatingSlice, Location, Stream};
use winnow::token::{any, take, take_till, take_while};

type Input<'a> = LocatingSlice<&'a str>;
type Parsed<T> = Result<T, Error>;

/// The smallest thing that has a meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    /// A bare word, perhaps with `*` at its end.
    Word(&'a str),
    /// A string, without its quotes.
    Text(&'a str),
    /// A number.
    Number(u64),
    /// A time in milliseconds.
    Time(u32),
    /// An IPv4 address.
    Ipv4(Ipv4Addr),
    /// An IPv6 address.
    Ipv6(Ipv6Addr),
    /// A MAC address.
    Mac([u8; 6]),
    /// `$` and a name.
    Variable(&'a str),
    /// `@` and a name.
    Set(&'a str),
    /// Punctuation.
    Mark(&'static str),
    /// The end of a line.
    Newline,
    /// The end of the text.
    End,
}

/// The text as tokens, with one of them in sight.
pub struct Tokens<'a> {
    input: Input<'a>,
    next: Spanned<Token<'a>>,
    /// Whether nothing but blanks stands between the beginning of the line and `input`.
    line_start: bool,
    /// Offset behind the last token that was taken.
    end: u32,
}

impl<'a> Tokens<'a> {
    /// The tokens of `text`, which is at most `u32::MAX` bytes long.
    pub fn new(text: &'a str) -> Parsed<Self> {
        let mut tokens = Self {
            input: LocatingSlice::new(text),
            next: Spanned::new(Span::default(), Token::Newline),
            line_start: true,
            end: 0,
        };
        tokens.next = tokens.read()?;
        Ok(tokens)
    }

    /// The next token, which stays where it is.
    pub fn peek(&self) -> Spanned<Token<'a>> {
        self.next
    }

    /// Takes the next token.
    pub fn take(&mut self) -> Parsed<Spanned<Token<'a>>> {
        let next = self.read()?;
        self.end = self.next.span.end;
        Ok(core::mem::replace(&mut self.next, next))
    }

    /// From `start` to the end of the last token that was taken.
    pub fn span_from(&self, start: u32) -> Span {
        let end = self.end.max(start);
        Span { start, end }
    }

    /// How many commas there are in front of the next closing brace: about as many as elements.
    pub fn commas(&self) -> usize {
        let rest = self.input.as_bytes().iter();
        let list = rest.take_while(|byte| **byte != b'}');
        list.filter(|byte| **byte == b',').count()
    }

    fn read(&mut self) -> Parsed<Spanned<Token<'a>>> {
        self.skip_blanks()?;
        let (token, range) = token.with_span().parse_next(&mut self.input)?;
        self.line_start = token == Token::Newline;
        Ok(Spanned::new(span(range.start, range.end), token))
    }

    /// Skips blanks, joined lines and comments.
    fn skip_blanks(&mut self) -> Parsed<()> {
        loop {
            let joined = blanks(&mut self.input)?;
            self.line_start |= joined;
            if opt('#').parse_next(&mut self.input)?.is_none() {
                return Ok(());
            }
            take_till(0.., '\n').void().parse_next(&mut self.input)?;
            if self.line_start {
                opt('\n').void().parse_next(&mut self.input)?;
            }
        }
    }
}

/// Skips blanks and joined lines; whether there was one of the latter.
fn blanks(input: &mut Input<'_>) -> Parsed<bool> {
    let mut joined = false;
    loop {
        take_while(0.., (' ', '\t')).void().parse_next(input)?;
        if opt("\\\n").parse_next(input)?.is_none() {
            return Ok(joined);
        }
        joined = true;
    }
}

fn token<'a>(input: &mut Input<'a>) -> Parsed<Token<'a>> {
    if input.is_empty() {
        return Ok(Token::End);
    }
    dispatch! {
        peek(any);
        '\n' => '\n'.value(Token::Newline),
        '"' => text.map(Token::Text),
        '$' => preceded('$', name).map(Token::Variable),
        '@' => preceded('@', name).map(Token::Set),
        '0'..='9' => number_or_address,
        'a'..='z' | 'A'..='Z' | '_' => word_or_address,
        ':' => colon,
        _ => mark,
    }
    .parse_next(input)
}

/// A string: no escapes, and no end but a quotation mark.
fn text<'a>(input: &mut Input<'a>) -> Parsed<&'a str> {
    let start = input.current_token_start();
    '"'.void().parse_next(input)?;
    let text: &str = take_till(0.., ('"', '\n')).parse_next(input)?;
    let end = input.current_token_start();
    if opt('"').parse_next(input)?.is_none() {
        return Err(Error::new(span(start, end), ErrorKind::UnterminatedString));
    }
    match text.char_indices().find(|(_, it)| it.is_control()) {
        Some((at, character)) => {
            let at = start + 1 + at;
            let place = span(at, at + character.len_utf8());
            Err(Error::new(place, ErrorKind::ControlCharacter))
        }
        None => Ok(text),
    }
}

/// What stands behind `$` and `@`.
fn name<'a>(input: &mut Input<'a>) -> Parsed<&'a str> {
    let start = input.current_token_start();
    let name = take_while(0.., is_word).parse_next(input)?;
    if name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
        return Ok(name);
    }
    let end = input.current_token_start();
    Err(Error::new(
        span(start, end),
        ErrorKind::Expected("a name right behind `$` or `@`"),
    ))
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '/' | '-' | '_' | '.')
}

fn is_address(character: char) -> bool {
    character.is_ascii_hexdigit() || matches!(character, ':' | '.')
}

fn word_or_address<'a>(input: &mut Input<'a>) -> Parsed<Token<'a>> {
    let group = peek((take_while(1..=4, is_hexadecimal), ':').void());
    if opt(group).parse_next(input)?.is_some() {
        return colons(input);
    }
    (take_while(1.., is_word), opt('*'))
        .take()
        .map(Token::Word)
        .parse_next(input)
}

fn is_hexadecimal(character: char) -> bool {
    character.is_ascii_hexdigit()
}

/// A colon begins an address if there are two of them.
fn colon<'a>(input: &mut Input<'a>) -> Parsed<Token<'a>> {
    match opt(peek("::")).parse_next(input)? {
        Some(_) => colons(input),
        None => mark(input),
    }
}

/// A MAC or IPv6 address.
fn colons<'a>(input: &mut Input<'a>) -> Parsed<Token<'a>> {
    let (address, range) = take_while(1.., is_address).with_span().parse_next(input)?;
    let address: &str = address;
    if let Some(mac) = mac(address) {
        return Ok(Token::Mac(mac));
    }
    let wrong = ErrorKind::BadLiteral("IPv6 or MAC address");
    match ipv6(address) {
        Some(address) => Ok(Token::Ipv6(address)),
        None => Err(Error::new(span(range.start, range.end), wrong)),
    }
}

/// An IPv6 address. As in nft, an IPv4 address is its end only behind `::` and `::ffff:`.
fn ipv6(address: &str) -> Option<Ipv6Addr> {
    if address.contains('.') {
        let rest = address.strip_prefix("::")?;
        let quad = match rest.split_once(':') {
            Some((group, quad)) if group.eq_ignore_ascii_case("ffff") => quad,
            Some(_) => return None,
            None => rest,
        };
        Ipv4Addr::from_str(quad).ok()?;
    }
    Ipv6Addr::from_str(address).ok()
}

/// Six groups of one or two hexadecimal digits.
fn mac(address: &str) -> Option<[u8; 6]> {
    let mut groups = address.split(':');
    let mut mac = [0; 6];
    for byte in &mut mac {
        let group = groups.next().filter(|group| group.len() <= 2)?;
        *byte = u8::from_str_radix(group, 16).ok()?;
    }
    groups.next().is_none().then_some(mac)
}

fn number_or_address<'a>(input: &mut Input<'a>) -> Parsed<Token<'a>> {
    let rest: &str = input.as_ref();
    let is_part = |it: char| it.is_ascii_alphanumeric() || matches!(it, ':' | '.' | '_');
    let word = rest.split(|it| !is_part(it)).next().unwrap_or(rest);
    // A port stands behind an IPv4 address.
    let address = word.split(':').next().filter(|it| it.contains('.'));
    let length = address.unwrap_or(word).len();
    let (token, range) = take(length).with_span().parse_next(input)?;
    let token: &str = token;
    let parsed = match token {
        "8021q" | "8021ad" => Ok(Token::Word(token)),
        _ if token.contains(':') => {
            let address = ipv6(token).map(Token::Ipv6);
            let address = mac(token).map(Token::Mac).or(address);
            address.ok_or(ErrorKind::BadLiteral("IPv6 or MAC address"))
        }
        _ if token.contains('.') => {
            let address = Ipv4Addr::from_str(token).map(Token::Ipv4);
            address.map_err(|_| ErrorKind::BadLiteral("IPv4 address"))
        }
        _ => match time(token) {
            Some(milliseconds) => Ok(Token::Time(milliseconds)),
            None => number(token).map(Token::Number),
        },
    };
    parsed.map_err(|kind| Error::new(span(range.start, range.end), kind))
}

/// Units of time, the longest first, and their milliseconds.
pub(super) const TIME_UNITS: [(&str, u32); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// A time, such as `1d2h`: each unit at most once, the longer ones first. None if it is something
/// else.
fn time(token: &str) -> Option<u32> {
    let mut rest = token;
    let mut milliseconds = 0u32;
    for (unit, length) in TIME_UNITS {
        let digits = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(0);
        let (count, behind) = rest.split_at(digits);
        let letters = behind.find(|it: char| it.is_ascii_digit());
        let (word, behind) = behind.split_at(letters.unwrap_or(behind.len()));
        if word != unit {
            continue;
        }
        let count: u32 = count.parse().ok()?;
        milliseconds = milliseconds.checked_add(count.checked_mul(length)?)?;
        rest = behind;
    }
    (rest.is_empty() && token.len() > 1).then_some(milliseconds)
}

fn number(token: &str) -> Result<u64, ErrorKind> {
    let hexadecimal = token.strip_prefix("0x").or(token.strip_prefix("0X"));
    let number = match (hexadecimal, token.strip_prefix('0')) {
        (Some(digits), _) => u64::from_str_radix(digits, 16),
        (None, Some(digits)) if digits.starts_with(|it: char| it.is_ascii_digit()) => {
            return u64::from_str_radix(digits, 8).map_err(|_| ErrorKind::BadOctal);
        }
        (None, _) => token.parse(),
    };
    number.map_err(|_| ErrorKind::BadLiteral("number"))
}

/// Punctuation. Of two marks that fit, the longer one is meant.
fn mark<'a>(input: &mut Input<'a>) -> Parsed<Token<'a>> {
    const MARKS: [&str; 26] = [
        "==", "!=", "<=", ">=", "<<", ">>", "{", "}", "(", ")", ";", ",", "=", "/", "-", "+", "&",
        "|", "!", "<", ">", ".", "^", ":", "[", "]",
    ];
    let rest: &str = input.as_ref();
    if let Some(mark) = MARKS.into_iter().find(|mark| rest.starts_with(mark)) {
        input.next_slice(mark.len());
        return Ok(Token::Mark(mark));
    }
    let start = input.current_token_start();
    let character = any.parse_next(input)?;
    let place = span(start, start + character.len_utf8());
    Err(Error::new(place, ErrorKind::UnknownCharacter(character)))
}

/// Offsets as a span; the text is short enough for 32 bits.
fn span(start: usize, end: usize) -> Span {
    let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    Span {
        start: offset(start),
        end: offset(end),
    }
}

impl ParserError<Input<'_>> for Error {
    type Inner = Self;

    /// What the primitives of winnow fail with; each token's own parser says more.
    fn from_input(input: &Input<'_>) -> Self {
        let at = input.current_token_start();
        Self::new(span(at, at), ErrorKind::Expected("something else"))
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}
