//! What became of a captured frame, in words.

use abi::share::{CAPTURE_PASSED, CAPTURE_RULE, PORT_APPLIANCE, PORT_COUNTERS};
use nf::Malformed;

/// The comment on a frame with this fate; empty if it was not dropped. `reads_frames` says whether
/// the image counts the reasons of [`Malformed`].
pub fn comment(fate: u32, generation: u64, reads_frames: bool) -> String {
    if fate == CAPTURE_PASSED {
        return String::new();
    }
    if let Some(rule) = fate.checked_sub(CAPTURE_RULE) {
        return format!("dropped by rule {rule} of set {generation}");
    }
    let number = fate as usize;
    let malformed = number.checked_sub(PORT_APPLIANCE).filter(|_| reads_frames);
    let malformed = malformed.and_then(|index| Malformed::ALL.get(index));
    match (PORT_COUNTERS.get(number), malformed) {
        (Some(name), _) => format!("dropped: {name}"),
        (None, Some(reason)) => format!("dropped: malformed, {reason}"),
        (None, None) => format!("dropped: counter_{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::capture::Fate;
    use abi::share::PortCounter;

    #[test]
    fn each_fate_has_its_words() {
        let truncated = PORT_APPLIANCE + Malformed::TruncatedIp.index();
        for (fate, words) in [
            (Fate::Passed, ""),
            (Fate::Rule(3), "dropped by rule 3 of set 2"),
            (PortCounter::TxTooBig.into(), "dropped: too_big"),
            (
                Fate::Counter(truncated as u16),
                "dropped: malformed, truncated_ip",
            ),
            (Fate::Counter(31), "dropped: counter_31"),
        ] {
            assert_eq!(comment(fate.number(), 2, true), words);
        }
        let words = comment(truncated as u32, 0, false);
        assert_eq!(words, format!("dropped: counter_{truncated}"));
    }
}
