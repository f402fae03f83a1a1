//! What a user may have meant by a name that there is not.

/// How alike two names must be, from 0 to 1 (Jaro's similarity): that of `clap`, which suggests the
/// commands of `outboard`.
const ALIKE_MIN: f64 = 0.7;
/// Names that are listed at most.
const LISTED_MAX: usize = 12;

/// The one of `names` that is most like `typed`, if one is like it.
pub fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let alike = names.filter(|name| is_alike(typed, name));
    let alike = alike.map(|name| (strsim::jaro(typed, name), name));
    alike
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

/// Whether one may have been typed for the other: one mistake, or few in a long name. What two
/// names have in front, as that of a guest and its port, does not make them alike.
fn is_alike(typed: &str, name: &str) -> bool {
    let mistakes = strsim::osa_distance(typed, name);
    let few = mistakes <= (typed.chars().count() / 2).max(2);
    mistakes == 1 && typed.chars().count() > 1 || few && strsim::jaro(typed, name) > ALIKE_MIN
}

/// `a`, `a and b`, `a, b and c`: the first names of a list that may be long.
pub fn listed<S: AsRef<str>>(names: &[S]) -> String {
    let shown = names.iter().take(LISTED_MAX).map(AsRef::as_ref);
    let shown: Vec<&str> = shown.collect();
    match (names.len() - shown.len(), shown.as_slice()) {
        (0, [front @ .., last]) if !front.is_empty() => format!("{} and {last}", front.join(", ")),
        (0, _) => shown.concat(),
        (more, _) => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_alike_is_meant() {
        let ports = ["private", "public"];
        let meant = |typed| nearest(typed, ports.into_iter());
        assert_eq!(meant("privat"), Some("private"));
        assert_eq!(meant("publik"), Some("public"));
        assert_eq!(meant("wan"), None);
        assert_eq!(nearest("fv", ["fw"].into_iter()), Some("fw"));
        assert_eq!(nearest("b", ["a"].into_iter()), None);
        assert_eq!(nearest("fw-1-lan", ["fw-1-public"].into_iter()), None);
        assert_eq!(nearest("tap1", [].into_iter()), None);
    }

    #[test]
    fn lists_are_short() {
        assert_eq!(listed::<&str>(&[]), "");
        assert_eq!(listed(&["a"]), "a");
        assert_eq!(listed(&["a", "b"]), "a and b");
        assert_eq!(listed(&["a", "b", "c"]), "a, b and c");
        let many = vec!["x"; 40];
        assert!(listed(&many).ends_with("x, x and 28 more"));
    }
}
