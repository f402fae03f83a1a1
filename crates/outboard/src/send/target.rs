//! Which port of which guest is meant by `fw-private`.

/// Splits `target` into the name of a guest and that of a port of it, both known. Names may have
/// hyphens in them: the guest with the longest name is taken.
pub(super) fn split(target: &str, is_known: impl Fn(&str, &str) -> bool) -> Option<(&str, &str)> {
    let splits = target.rmatch_indices('-');
    let mut splits = splits.map(|(at, _)| (&target[..at], &target[at + 1..]));
    splits.find(|(guest, port)| is_known(guest, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [(&str, &str); 4] = [
        ("fw", "private"),
        ("fw-2", "private"),
        ("fw", "2-private"),
        ("a-", "-b"),
    ];

    fn found(target: &str) -> Option<(&str, &str)> {
        split(target, |guest, port| KNOWN.contains(&(guest, port)))
    }

    #[test]
    fn the_longest_name_of_a_guest_is_taken() {
        assert_eq!(found("fw-private"), Some(("fw", "private")));
        assert_eq!(found("fw-2-private"), Some(("fw-2", "private")));
        assert_eq!(found("a---b"), Some(("a-", "-b")));
        for unknown in ["fw", "fw-", "-private", "fw-public", "", "-", "fw-2"] {
            assert_eq!(found(unknown), None, "{unknown}");
        }
    }
}
