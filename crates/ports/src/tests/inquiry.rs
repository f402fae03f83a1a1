//! Questions of the host about sockets.

use crate::inquiry::{Inquiry, Listed};
use crate::puppet::Setup;
use crate::share::SharedFile;
use abi::sockets::{RECORDS_MAX, Record};
use alloc::vec::Vec;

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
    let mut inquiry = Inquiry::new(&scene.runtime.share);
    assert_eq!(inquiry.question(), None);
    scene.ask(1, 40);
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
        }
    });
    assert_eq!((taken, inquiry.question()), (RECORDS_MAX, None));
    let (answer, records) = scene.answer();
    assert_eq!((answer.number, answer.next), (1, 40 + RECORDS_MAX as u64));
    assert_eq!((answer.half_open, answer.time_wait), (2, 3));
    let expected: Vec<_> = (0..RECORDS_MAX).map(record).collect();
    assert_eq!(records, expected);
    scene.ask(2, 0);
    let question = inquiry.question().unwrap();
    inquiry.answer(question, |_| Listed::default());
    assert_eq!(
        scene.answer(),
        (
            abi::sockets::Answer {
                number: 2,
                ..Default::default()
            },
            Vec::new()
        )
    );
}

#[test]
fn without_a_shared_file_nobody_asks() {
    assert_eq!(Inquiry::new(&SharedFile::default()).question(), None);
}
