//! Just enough of Rust's surface to tell code from comments and strings.

/// The code of a file: comments and the content of strings replaced by blanks, line for line.
pub fn code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let end = match (chars[at], chars.get(at + 1)) {
            ('/', Some('/')) => find(&chars, at, |rest| rest[0] == '\n'),
            ('/', Some('*')) => block_comment(&chars, at),
            ('"', _) => string(&chars, at),
            ('r', Some('"' | '#')) if !follows_word(&chars, at) => raw_string(&chars, at),
            ('\'', _) => character(&chars, at),
            _ => at,
        };
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(
                chars[at..end]
                    .iter()
                    .map(|c| if *c == '\n' { '\n' } else { ' ' }),
            );
            at = end;
        }
    }
    out
}

/// Whether `word` stands in `line` by itself.
pub fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .any(|part| part == word)
}

fn follows_word(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_')
}

/// The first place from `at` on of which `is` says so, or the end.
fn find(chars: &[char], at: usize, is: impl Fn(&[char]) -> bool) -> usize {
    (at..chars.len())
        .find(|i| is(&chars[*i..]))
        .unwrap_or(chars.len())
}

/// Behind a block comment that begins at `at`; they nest.
fn block_comment(chars: &[char], at: usize) -> usize {
    let (mut depth, mut i) = (0_u32, at);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => depth += 1,
            ('*', Some('/')) if depth == 1 => return i + 2,
            ('*', Some('/')) => depth -= 1,
            _ => {
                i += 1;
                continue;
            }
        }
        i += 2;
    }
    chars.len()
}

/// Behind a string that begins at `at`.
fn string(chars: &[char], at: usize) -> usize {
    let mut i = at + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(chars.len())
}

/// Behind a raw string whose `r` is at `at`; `at` itself if it is none (a raw identifier).
fn raw_string(chars: &[char], at: usize) -> usize {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    let quote = at + 1 + hashes;
    if chars.get(quote) != Some(&'"') {
        return at;
    }
    let ends = |rest: &[char]| {
        rest[0] == '"' && rest[1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
    };
    (find(chars, quote + 1, ends) + 1 + hashes).min(chars.len())
}

/// Behind a character literal that begins at `at`; `at` itself if it is a lifetime.
fn character(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), Some(_)) => (find(chars, at + 3, |rest| rest[0] == '\'') + 1).min(chars.len()),
        (Some(_), Some('\'')) => at + 3,
        _ => at,
    }
}

/// Number of lines in front of the tests of a file: the module `tests` at its end.
pub fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| {
        pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    });
    tests.unwrap_or(lines.len())
}

/// A function of a file.
pub struct Function {
    pub name: String,
    /// Where it begins, from 1.
    pub line: usize,
    /// From the line with `fn` to that with its last brace.
    pub lines: usize,
}

/// All functions of a file that have a body, those inside of others as well.
pub fn functions(text: &str) -> Vec<Function> {
    let code = code(text);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut functions = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let rest = &code[at + 3..];
        let name: String = rest.chars().take_while(|c| is_word(*c)).collect();
        if name.is_empty() || code[..at].ends_with(is_word) {
            continue;
        }
        if let Some((start, end)) = body(rest) {
            let line = code[..at].matches('\n').count() + 1;
            let lines = rest[..start + end].matches('\n').count() + 1;
            functions.push(Function { name, line, lines });
        }
    }
    functions
}

/// Where the body of a function begins behind its `fn`, and how long it is; a declaration has none.
fn body(code: &str) -> Option<(usize, usize)> {
    let mut depth = 0_i32;
    let start = code
        .char_indices()
        .find(|(_, c)| {
            match c {
                '(' | '[' => depth += 1,
                ')' | ']' => depth -= 1,
                _ => {}
            }
            depth == 0 && "{;".contains(*c)
        })
        .filter(|(_, c)| *c == '{')?
        .0;
    let mut braces = 0_i32;
    let end = code[start..].find(|c| {
        match c {
            '{' => braces += 1,
            '}' => braces -= 1,
            _ => {}
        }
        braces == 0
    });
    Some((start, end.unwrap_or(code.len() - start)))
}
