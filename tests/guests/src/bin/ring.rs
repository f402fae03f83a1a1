//! Writes into the ring of its disk what its arguments say, past the runtime:
//!
//! - `entry ADDRESS LENGTH OFFSET`: the first entry; an address `self` is that of some memory
//! - `post INDEX`, `done INDEX`: the guest's index, the host's
//! - `mute`: makes the runtime believe that the host need not be woken up
//! - `kick`: the event by which the host is woken up; `wait`: some time for it to end us; `spin`:
//!   more of it, in which nothing is asked of it
//! - `read`: reads the disk, by the runtime
//!
//! Then it says what the host has answered in the first entry.

#![no_std]
#![no_main]

use abi::ring::{BASE, KICK_PORT, KICK_VALUE, first_word, receive, word};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use unikernel::{Instant, println};

unikernel::entry!(main);

const DISK: usize = 1;
const WAIT_NANOSECONDS: u64 = 300_000_000;
const SPIN_NANOSECONDS: u64 = 20_000_000_000;

fn ring_word(word: usize) -> &'static AtomicU64 {
    let words = core::ptr::with_exposed_provenance::<AtomicU64>(BASE as usize);
    // SAFETY: all rings are mapped where this host says, and their words are only used as atomics.
    unsafe { &*words.add(word) }
}

fn queue_word(word: usize) -> &'static AtomicU64 {
    ring_word(first_word(receive(DISK)) + word)
}

fn main() {
    let mut words = unikernel::arguments();
    let mut buffer = [0u8; 512];
    let own = (&raw mut buffer).expose_provenance() as u64;
    let mut disk = unikernel::block("disk").expect("disk");
    while let Some(command) = words.next() {
        let mut number = || match words.next().expect("a number") {
            "self" => own,
            digits => match digits.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).expect("a number"),
                None => digits.parse().expect("a number"),
            },
        };
        match command {
            "entry" => {
                for field in [word::ADDRESS, word::LENGTH, word::OFFSET] {
                    queue_word(word::ENTRIES + field).store(number(), Ordering::Relaxed);
                }
            }
            "post" => queue_word(word::POSTED).store(number(), Ordering::Release),
            "done" => queue_word(word::DONE).store(number(), Ordering::Release),
            "mute" => ring_word(word::ASLEEP).store(0, Ordering::Relaxed),
            // SAFETY: the port is an event of the host's, which touches no memory.
            "kick" => unsafe { asm!("out dx, eax", in("dx") KICK_PORT, in("eax") KICK_VALUE) },
            "wait" => {
                let Instant(now) = unikernel::monotonic();
                unikernel::wait(Some(Instant(now + WAIT_NANOSECONDS)));
            }
            "spin" => {
                let Instant(now) = unikernel::monotonic();
                while unikernel::monotonic() < Instant(now + SPIN_NANOSECONDS) {
                    core::hint::spin_loop();
                }
            }
            "read" => println!("read: {:?}", disk.read(0, &mut [0; 512])),
            other => panic!("no command {other}"),
        }
    }
    let result = queue_word(word::ENTRIES + word::RESULT).load(Ordering::Relaxed);
    println!("result {}", result.cast_signed());
    core::hint::black_box(&mut buffer);
}
