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
