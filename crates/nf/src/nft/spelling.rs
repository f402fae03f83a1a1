//! Words that begin a statement, and what may have been typed for them.

use super::error::Spelling;
use super::refusals;

macro_rules! spellings {
    ($($word:literal)*) => {
        &[$(Spelling { word: $word, help: concat!("did you mean `", $word, "`?") }),*]
    };
}

/// Words that begin a statement. One mistake in a shorter word makes another word.
static SPELLINGS: &[Spelling] = spellings![
    "accept" "drop" "return" "jump" "goto" "counter" "iifname" "oifname" "ether" "icmp" "icmpv6"
];

/// The word that is meant by `typed`, which is none, if one mistake was made.
pub(super) fn meant(typed: &str) -> Option<&'static Spelling> {
    if refusals::find(refusals::STATEMENTS, typed).is_some() {
        return None; // A word of nft's, of which there is more to say.
    }
    SPELLINGS
        .iter()
        .find(|spelling| is_near(typed, spelling.word))
}

/// Whether one letter is wrong, missing, too much, or changed places with its neighbour.
fn is_near(typed: &str, word: &str) -> bool {
    let (a, b) = (typed.as_bytes(), word.as_bytes());
    let same = |(a, b): &(&u8, &u8)| a == b;
    let front = a.iter().zip(b).take_while(same).count();
    let (a, b) = (&a[front..], &b[front..]);
    let back = a.iter().rev().zip(b.iter().rev()).take_while(same).count();
    match (&a[..a.len() - back], &b[..b.len() - back]) {
        ([a, c], [b, d]) => (a, c) == (d, b),
        (a, b) => a.len() <= 1 && b.len() <= 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mistake_is_seen_through() {
        for (typed, word) in [
            ("acept", "accept"),
            ("accept1", "accept"),
            ("dorp", "drop"),
            ("couter", "counter"),
            ("goto1", "goto"),
            ("iifnam", "iifname"),
        ] {
            let meant = meant(typed).expect(typed);
            assert_eq!(meant.word, word);
        }
        for typed in [
            "",
            "a",
            "acpet1",
            "foo",
            "iif",
            "reject",
            "count",
            "\u{e4}ccep",
        ] {
            assert_eq!(meant(typed), None, "{typed}");
        }
    }
}
