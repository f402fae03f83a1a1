//! A client says anything to a software device, with any descriptors: each command must be answered
//! or refused, and whatever memory it lends, the device reaches nothing else.

use models::Misbehaviour;
use models::vfio_user::{PAYLOAD_MAX, Session};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::time::Duration;
use vfio_user::{Header, command, flag};

/// Commands of one client; it has no more to say than its input.
const COMMANDS_MAX: usize = 64;
const MEMORY: u64 = 1 << 20;

fn memory(seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("dma", flags).expect("there is memory");
    ftruncate(&file, MEMORY).expect("there is memory");
    fcntl_add_seals(&file, seals).expect("it can be sealed");
    file
}

fn descriptor(kind: u8) -> Option<OwnedFd> {
    match kind % 8 {
        0 => Some(memory(SealFlags::SHRINK)),
        1 => Some(memory(SealFlags::empty())),
        2 => eventfd(0, EventfdFlags::empty()).ok(),
        3 => std::io::pipe().ok().map(|(_, end)| end.into()),
        _ => None,
    }
}

/// The next `N` bytes of the input.
fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*first)
}

pub fn feed(input: &[u8]) {
    let mut input = input;
    let Some([number]) = take(&mut input) else {
        return;
    };
    let mut device = crate::each::model::device(number, Misbehaviour::default());
    let mut session = Session::new(&mut device).expect("there is memory");
    let mut reply = vec![0; PAYLOAD_MAX];
    let version = Header::command(0, command::VERSION, 4);
    let known = session.command(&mut device, &version, &[0, 0, 1, 0], vec![], &mut reply);
    assert!(known.is_ok());
    for turn in 0..COMMANDS_MAX {
        let Some([number, flags, len, first, second]) = take(&mut input) else {
            break;
        };
        let (payload, rest) = input.split_at(input.len().min(len.into()));
        input = rest;
        let mut header = Header::command(turn as u16, number.into(), payload.len());
        header.flags = u32::from(flags) & (flag::NO_REPLY | u32::from(flags >> 7));
        let descriptors = [first, second].into_iter().filter_map(descriptor).collect();
        match session.command(&mut device, &header, payload, descriptors, &mut reply) {
            Ok(answer) => assert!(answer.payload <= PAYLOAD_MAX),
            Err(why) => assert!(!why.to_string().contains(char::is_control) && why.errno() > 0),
        }
        session.poll(&mut device, Duration::from_millis(turn as u64));
        if session.sleep(&mut device) {
            session.wake();
        }
    }
}
