//! A front end says anything to a back end of vhost-user, with any descriptors: each message must
//! be answered or refused, whatever its driver writes into the memory that it lends, and if it
//! takes that away again.

use models::Misbehaviour;
use models::vhost_user::{Answer, BackEnd, Header, PAYLOAD_MAX};
use models::virtio::VirtioNet;
use models::wire::Loop;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::time::Duration;

/// Messages of one front end; it has no more to say than its input.
const MESSAGES_MAX: usize = 64;
const MEMORY: u64 = 1 << 20;
/// Bytes of the memory that an input can fill.
const WRITTEN_MAX: usize = 255;
/// Version 1 of the protocol.
const VERSION: u32 = 1;

/// What begins a session as a front end has it that behaves: features, memory, and a queue.
const BEGINNING: [(u32, u8, &[u64]); 6] = [
    (2, NONE, &[1 << 32 | 1 << 30 | 1 << 29]),
    (5, SEALED, &[1, 0x1_0000, MEMORY, 0x7000_0000, 0]),
    (8, NONE, &[64 << 32 | 1]),
    (9, NONE, &[1, 0x7000_0000, 0x7000_2000, 0x7000_1000, 0]),
    (12, EVENT, &[1]),
    (18, NONE, &[1 << 32 | 1]),
];
/// Kinds of descriptors.
const SEALED: u8 = 0;
const UNSEALED: u8 = 1;
const EVENT: u8 = 2;
const PIPE: u8 = 3;
const NONE: u8 = 4;
/// Bits of an input's first byte: the session begins as it should, and memory may be unsealed.
const BEGINS: u8 = 1;
const TRUSTS: u8 = 2;
/// Bits of a message's flags: an answer, please; memory that is not sealed goes away.
const ANSWER: u8 = 8;
const TAKES_AWAY: u8 = 16;

fn memory(seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("memory", flags).expect("there is memory");
    ftruncate(&file, MEMORY).expect("there is memory");
    fcntl_add_seals(&file, seals).expect("it can be sealed");
    file
}

/// The next `N` bytes of the input.
fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*first)
}

struct Session {
    device: BackEnd<VirtioNet<Loop>>,
    sealed: OwnedFd,
    unsealed: OwnedFd,
    turns: u64,
}

impl Session {
    fn descriptor(&self, kind: u8) -> Option<OwnedFd> {
        match kind % 8 {
            SEALED => self.sealed.try_clone().ok(),
            UNSEALED => self.unsealed.try_clone().ok(),
            EVENT => eventfd(0, EventfdFlags::empty()).ok(),
            PIPE => std::io::pipe().ok().map(|(_, end)| end.into()),
            _ => None,
        }
    }

    fn say(&mut self, request: u32, flags: u32, payload: &[u8], kinds: &[u8]) {
        let header = Header {
            request,
            flags: VERSION | flags,
            bytes: payload.len() as u32,
        };
        let kinds = kinds.iter();
        let descriptors = kinds.filter_map(|kind| self.descriptor(*kind)).collect();
        let mut reply = [0; PAYLOAD_MAX];
        let said = self
            .device
            .message(&header, payload, descriptors, &mut reply);
        match said {
            Ok(Answer::Bytes(bytes) | Answer::File(bytes, _)) => assert!(bytes <= PAYLOAD_MAX),
            Ok(Answer::Done) => {}
            Err(why) => assert!(!why.to_string().contains(char::is_control)),
        }
        self.turns += 1;
        self.device.poll(Duration::from_millis(self.turns));
        self.device.hear();
    }
}

pub fn feed(input: &[u8]) {
    let mut input = input;
    let card = VirtioNet::new([2, 0, 0, 0, 0, 1], Loop::new()).without_control();
    let mut session = Session {
        device: BackEnd::new(card, &Misbehaviour::default()),
        sealed: memory(SealFlags::SHRINK),
        unsealed: memory(SealFlags::empty()),
        turns: 0,
    };
    let Some([begins, len]) = take(&mut input) else {
        return;
    };
    // What the driver has written where the queue will be.
    let (written, rest) = input.split_at(input.len().min(WRITTEN_MAX.min(len.into())));
    input = rest;
    for file in [&session.sealed, &session.unsealed] {
        for at in [0, 0x1000] {
            rustix::io::pwrite(file, written, at).expect("there is room");
        }
    }
    let trusts = begins & TRUSTS != 0;
    if trusts {
        session.device.accept_unsealed();
    }
    if begins & BEGINS != 0 {
        for (request, kind, words) in BEGINNING {
            let kind = if kind == SEALED && trusts {
                UNSEALED
            } else {
                kind
            };
            let payload: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            session.say(request, 0, &payload, &[kind]);
        }
    }
    for _ in 0..MESSAGES_MAX {
        let Some([request, flags, len, first, second]) = take(&mut input) else {
            break;
        };
        let (payload, rest) = input.split_at(input.len().min(len.into()));
        input = rest;
        if flags & TAKES_AWAY != 0 {
            ftruncate(&session.unsealed, 0).expect("it is not sealed");
        }
        let (request, answer) = (u32::from(request), u32::from(flags & ANSWER));
        session.say(request, answer, payload, &[first, second]);
    }
    session.device.disconnect();
    assert!(session.device.kicks().next().is_none());
}
