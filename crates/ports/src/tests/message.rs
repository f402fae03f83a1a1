//! Registers of a device that is another process, which answers as a test says.

use crate::message::{Bar, Connection};
use crate::puppet::{Scene, Setup, ended};
use crate::{Errno, Handle};
use abi::doorbell::{ASLEEP_WORD, MAGIC_WORD, WORDS, magic, offset_word, value_word};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use hw::Registers;
use vfio_user::{HEADER_BYTES, PATIENCE, RegisterRead, RegisterValue, Width};
use zerocopy::IntoBytes;

const BAR: u32 = 2;
const NOTHING: u32 = u32::MAX;

fn bar_of(number: u32, page: Option<&'static [AtomicU64; WORDS]>) -> (Scene, Bar) {
    let scene = Setup {
        cards: alloc::vec!["card"],
        ..Setup::default()
    };
    let scene = scene.start();
    let connection = Rc::new(Connection::new(scene.runtime, Handle(7), 1, page));
    let bytes = 4096;
    let bar = Bar {
        connection,
        number,
        bytes,
    };
    (scene, bar)
}

/// The answer to message `id`, which reads the register at this offset.
fn value(id: u16, offset: u64, value: u32) -> Vec<u8> {
    let mut reply = RegisterValue::write(id, BAR, offset, Width::Word, value);
    reply.header = RegisterRead::new(id, BAR, offset, Width::Word)
        .header
        .reply(20);
    reply.as_bytes().to_vec()
}

fn answer(scene: &Scene, bytes: Result<Vec<u8>, Errno>) {
    scene.host.reads.borrow_mut().push_back(bytes);
}

#[test]
fn a_register_is_read_and_written_by_message() {
    let (scene, bar) = bar_of(BAR, None);
    answer(&scene, Err(Errno::INTERRUPTED));
    answer(&scene, Ok(value(1, 8, 77)));
    assert_eq!(bar.read32(8), 77);
    let mut written = RegisterRead::new(2, BAR, 12, Width::Word);
    written.header = RegisterValue::write(2, BAR, 12, Width::Word, 5)
        .header
        .reply(16);
    answer(&scene, Ok(written.as_bytes().to_vec()));
    bar.write32(12, 5);
    let sent = scene.host.written.borrow();
    let write = RegisterValue::write(2, BAR, 12, Width::Word, 5);
    let read = RegisterRead::new(1, BAR, 8, Width::Word);
    let expected = [read.as_bytes(), write.as_bytes()];
    assert!(sent.iter().map(|(_, bytes)| &**bytes).eq(expected));
    assert_eq!(scene.host.text(), "");
}

#[test]
fn a_narrow_register_is_read_and_written_in_its_own_width() {
    let (scene, bar) = bar_of(BAR, None);
    let read = RegisterRead::new(1, BAR, 10, Width::Half);
    let mut reply = RegisterValue::write(1, BAR, 10, Width::Half, 0x1234);
    reply.header = read.header.reply(18);
    answer(&scene, Ok(reply.message().to_vec()));
    assert_eq!(bar.read_narrow(10, 2), 0x1234);
    let write = RegisterValue::write(2, BAR, 9, Width::Byte, 0xab);
    let mut written = RegisterRead::new(2, BAR, 9, Width::Byte);
    written.header = { write.header }.reply(16);
    answer(&scene, Ok(written.as_bytes().to_vec()));
    bar.write_narrow(9, 1, 0xab);
    let sent = scene.host.written.borrow();
    let expected = [read.as_bytes(), write.message()];
    assert!(sent.iter().map(|(_, bytes)| &**bytes).eq(expected));
    drop(sent);
    // An answer of a whole word is none to a question about a half of it.
    answer(&scene, Ok(value(3, 10, 77)));
    assert_eq!(bar.read_narrow(10, 2), NOTHING);
    assert!(scene.host.text().contains("asked no more"));
}

#[test]
fn an_answer_in_parts_is_put_together_within_its_time() {
    let (scene, bar) = bar_of(BAR, None);
    let whole = value(1, 8, 77);
    answer(&scene, Ok(whole[..3].to_vec()));
    answer(&scene, Ok(whole[3..HEADER_BYTES].to_vec()));
    answer(&scene, Ok(whole[HEADER_BYTES..].to_vec()));
    assert_eq!(bar.read32(8), 77);
}

#[test]
fn a_device_that_answers_wrongly_or_not_at_all_is_asked_no_more() {
    let refused = RegisterRead::new(1, BAR, 8, Width::Word).header.refusal(5);
    let answers = [
        (Ok(value(2, 8, 77)), "asked no more"),
        (Ok(value(1, 4, 77)), "a reply about another register"),
        (Ok(refused.as_bytes().to_vec()), "it refuses (errno 5)"),
        (Err(Errno::AGAIN), "it does not answer"),
        (Err(Errno::INVALID), "errno 22"),
    ];
    for (bytes, text) in answers {
        let (scene, bar) = bar_of(BAR, None);
        answer(&scene, bytes);
        assert_eq!(bar.read32(8), NOTHING);
        answer(&scene, Ok(value(2, 8, 77)));
        assert_eq!(bar.read32(8), NOTHING);
        bar.write32(8, 1);
        assert_eq!(scene.host.written.borrow().len(), 1);
        let said = scene.host.text();
        assert!(said.starts_with("outboard: device card: asked no more"));
        assert!(said.contains(text) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn whoever_answers_byte_by_byte_gains_no_time() {
    let (scene, bar) = bar_of(BAR, None);
    let whole = value(1, 8, 77);
    whole
        .iter()
        .for_each(|byte| answer(&scene, Ok(Vec::from([*byte]))));
    scene.host.step.set(PATIENCE.as_nanos() as u64 / 8);
    assert_eq!(bar.read32(8), NOTHING);
    assert!(scene.host.reads.borrow().len() > 20);
    assert!(scene.host.text().contains("it does not answer"));
}

#[test]
fn the_guest_ends_with_the_process_that_was_the_device() {
    for gone in [Ok(Vec::new()), Err(Errno::RESET), Err(Errno::PIPE)] {
        let (scene, bar) = bar_of(BAR, None);
        answer(&scene, gone);
        let status = ended(|| drop(Vec::from([bar.read32(8)])));
        assert_eq!(status, Some(abi::exit::DEVICE_GONE));
        let text = "outboard: device card: the process that it was has ended\n";
        assert_eq!(scene.host.text(), text);
    }
}

#[test]
fn doorbells_are_rung_in_memory_and_wake_a_device_that_sleeps() {
    let page: &'static [AtomicU64; WORDS] =
        Box::leak(Box::new([const { AtomicU64::new(0) }; WORDS]));
    page[MAGIC_WORD].store(magic(2), Ordering::Relaxed);
    page[offset_word(0)].store(0x18, Ordering::Relaxed);
    // Nobody can ring this one: it is no register.
    page[offset_word(1)].store(0x22, Ordering::Relaxed);
    let (scene, bar) = bar_of(0, Some(page));
    bar.write32(0x18, 9);
    assert_eq!(page[value_word(0)].load(Ordering::Relaxed), 9);
    assert_eq!(bar.read32(0x18), 9);
    assert!(scene.host.written.borrow().is_empty());
    page[ASLEEP_WORD].store(1, Ordering::Relaxed);
    bar.write32(0x18, 10);
    let sent = scene.host.written.borrow();
    assert_eq!(sent[0].1, RegisterRead::wake().as_bytes());
    drop(sent);
    // Other registers go by message.
    assert_eq!(bar.read32(0x20), NOTHING);
    assert_eq!(scene.host.written.borrow().len(), 2);
}
