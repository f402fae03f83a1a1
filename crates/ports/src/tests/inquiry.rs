//! Questions of the host about sockets.

use crate::inquiry::{Inquiry, Listed};
use crate::puppet::Setup;
use crate::share::SharedFile;
use abi::flows::Name;
use abi::inquiry::{Answer, Subject, records_max};
use abi::sockets::Record;
use alloc::vec::Vec;
use zerocopy::IntoBytes;

/// Most records of an answer.
const RECORDS_MAX: usize = records_max::<Record>();

fn record(number: usize) -> Record {
    Record {
        local_port: number as u16,
        sent_again: 7,
        ..Record::default()
    }
}

#[test]
fn a_question_is_answered_once_with_as_many_records_as_fit() {
    let scene = Setup::network(1500, 0).start();
    let mut inquiry = Inquiry::new(&scene.runtime.share, &[Subject::Sockets]);
    assert_eq!(inquiry.question(), None);
    scene.ask(1, Subject::Sockets, 40);
    let question = inquiry.question().unwrap();
    assert_eq!(question.from, 40);
    let mut taken = 0;
    inquiry.answer(question, |take| {
        taken = (0..1000)
            .take_while(|number| take(&record(*number)))
            .count();
        Listed {
            next: 40 + taken as u64,
            half_open: 2,
            time_wait: 3,
            ended: 0,
        }
    });
    assert_eq!((taken, inquiry.question()), (RECORDS_MAX, None));
    let (answer, records) = scene.answer::<Record>();
    assert_eq!((answer.number, answer.next), (1, 40 + RECORDS_MAX as u64));
    assert_eq!((answer.half_open, answer.time_wait), (2, 3));
    let expected: Vec<_> = (0..RECORDS_MAX).map(record).collect();
    assert_eq!(records, expected);
    scene.ask(2, Subject::Sockets, 0);
    let question = inquiry.question().unwrap();
    inquiry.answer::<Record>(question, |_| Listed::default());
    let empty = Answer {
        number: 2,
        ..Answer::default()
    };
    assert_eq!(scene.answer::<Record>(), (empty, Vec::new()));
}

#[test]
fn without_a_shared_file_nobody_asks() {
    assert_eq!(
        Inquiry::new(&SharedFile::default(), &[Subject::Sockets]).question(),
        None
    );
}

#[test]
fn each_subject_has_its_own_listener() {
    let scene = Setup::network(1500, 0).start();
    let share = &scene.runtime.share;
    let mut sockets = Inquiry::new(share, &[Subject::Sockets]);
    let mut flows = Inquiry::new(share, &[Subject::Flows, Subject::FlowsEnd]);
    let name = |last| Name {
        source: [last; 16],
        ports: [last.into(), 2],
        ..Name::default()
    };
    scene.details([name(1), name(2)].as_bytes());
    scene.ask(7, Subject::FlowsEnd, 2);
    assert_eq!(sockets.question(), None);
    let question = flows.question().unwrap();
    assert_eq!((question.subject, question.from), (Subject::FlowsEnd, 2));
    assert_eq!(
        [0, 1].map(|n| flows.detail(n)),
        [1, 2].map(|n| Some(name(n)))
    );
    assert_eq!(flows.detail::<Name>(abi::flows::NAMES_MAX), None);
    flows.answer::<Name>(question, |_| Listed {
        ended: 2,
        ..Listed::default()
    });
    let (answer, _) = scene.answer::<Name>();
    assert_eq!(
        (answer.subject, answer.ended),
        (Subject::FlowsEnd as u64, 2)
    );
    assert_eq!((sockets.question(), flows.question()), (None, None));
}
