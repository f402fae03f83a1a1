//! Questions of the host about elements of sets that rules change: a list, part by part, and
//! changes of some of them.
//!
//! One question is answered in a batch. It looks at [`nf::elements::LOOKED_AT_MAX`] places at most,
//! or changes [`CHANGES_MAX`] elements at most, so whoever asks does not slow frames down.

use abi::elements::{CHANGES_MAX, Change, Record, set_number};
use abi::inquiry::Subject;
use nf::RuleSet;
use nf::elements::{Element, Hand};
use ports::Runtime;
use ports::inquiry::{Inquiry, Listed, Question};

/// What is answered here.
pub(crate) const SUBJECTS: &[Subject] = &[
    Subject::Elements,
    Subject::ElementsAdd,
    Subject::ElementsDelete,
];

/// Answers the question that waits.
#[cold]
pub(crate) fn answer(
    inquiry: &mut Inquiry,
    question: Question,
    rules: &RuleSet,
    runtime: &Runtime,
) {
    let now = runtime.host.monotonic();
    if question.subject == Subject::Elements {
        return inquiry.answer::<Record>(question, |take| Listed {
            next: rules.elements(question.from, now, &mut |it| take(&record_of(it))),
            ..Listed::default()
        });
    }
    let count = usize::try_from(question.from).unwrap_or(usize::MAX);
    let changes = (0..count.min(CHANGES_MAX)).filter_map(|number| inquiry.detail(number));
    let made = changes.filter(|Change { set, key, timeout }| {
        let is_set = |name: &str| set_number(name) == *set;
        match question.subject {
            Subject::ElementsDelete => rules.delete_element(is_set, key, now),
            _ => {
                let (key, timeout) = (*key, *timeout);
                rules.add_element(is_set, &Hand { key, timeout }, now)
            }
        }
    });
    let ended = made.count() as u64;
    inquiry.answer::<Record>(question, |_| Listed {
        ended,
        ..Listed::default()
    });
}

fn record_of(element: &Element<'_>) -> Record {
    Record {
        set: set_number(element.set),
        key: element.key,
        timeout: element.timeout.unwrap_or(0),
        left: element.left,
        counted: element.counted,
    }
}
