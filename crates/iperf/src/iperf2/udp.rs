//! Datagrams: they are counted, and the last one is answered with what was counted.
//!
//! Nothing is sent back, whatever a client wants: the address that a datagram comes from may be
//! anybody's, who would get all that a test sends.

use super::wish::{Mode, Wish};
use super::{tell, word};
use crate::System;
use crate::count::Count;
use crate::protocol::Error;
use alloc::collections::BTreeMap;
use alloc::vec;
use core::net::SocketAddr;
use core::time::Duration;
use net::socket::Datagrams;
use ports::Instant;

/// Clients over UDP whose datagrams are counted at a time.
const CLIENTS_MAX: usize = 128;
/// After so long without a datagram a client is forgotten.
const FORGET: Duration = Duration::from_secs(10);
/// Longest datagram.
const DATAGRAM: usize = 64 << 10;
/// Number, time, and the number's upper half.
const HEADER: usize = 16;
/// A server's report behind it, as version 1 has it.
const REPORT: usize = 40;
/// A flag of what follows the header: the number has 64 bits (`HEADER_SEQNO64B`).
const LONG_NUMBERS: u32 = 0x0800_0000;
/// A flag of the report: it is one (`HEADER_VERSION1`).
const VERSION1: u32 = 0x8000_0000;

/// What is counted of a client.
struct Client {
    count: Count,
    began: Instant,
    last: Instant,
    ended: bool,
}

/// A datagram's number, and whether it is the last one; the time when it was sent, in seconds.
fn read_header(bytes: &[u8]) -> Option<(u64, bool, f64)> {
    let word = |at: usize| word(bytes, at);
    let time = f64::from(word(4)?) + f64::from(word(8)?) / 1e6;
    let low = word(0)?;
    let long = word(HEADER).is_some_and(|flags| flags & LONG_NUMBERS != 0);
    let number = match long {
        true => i64::from(word(12)?) << 32 | i64::from(low),
        false => i64::from(low as i32),
    };
    // Numbers begin with 0 or 1, by version.
    Some((number.unsigned_abs(), number < 0, time))
}

/// The answer to the last datagram: its header, and what was counted.
fn report(header: &[u8; HEADER], client: &Client) -> [u8; HEADER + REPORT] {
    let count = client.count.net();
    let (seconds, micros) = parts(client.last - client.began);
    let (jitter, jitter_micros) = parts(Duration::from_secs_f64(count.jitter.clamp(0.0, 1e6)));
    let words = [
        VERSION1,
        (count.bytes >> 32) as u32,
        count.bytes as u32,
        seconds,
        micros,
        count.lost as u32,
        count.out_of_order as u32,
        count.packets as u32,
        jitter,
        jitter_micros,
    ];
    let mut bytes = [0; HEADER + REPORT];
    bytes[..HEADER].copy_from_slice(header);
    for (place, word) in bytes[HEADER..].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

fn parts(time: Duration) -> (u32, u32) {
    (time.as_secs() as u32, time.subsec_micros())
}

/// Serves clients.
///
/// # Errors
/// If no datagram can come any more.
pub async fn serve(mut socket: impl Datagrams, system: &System) -> Result<(), Error> {
    let mut clients: BTreeMap<SocketAddr, Client> = BTreeMap::new();
    let mut place = vec![0; DATAGRAM];
    loop {
        let (len, from) = socket.receive(&mut place).await?;
        let now = system.clock.now();
        let (Some((number, is_last, sent)), Some(header)) =
            (read_header(&place[..len]), place.first_chunk::<HEADER>())
        else {
            continue;
        };
        if !clients.contains_key(&from) && clients.len() >= CLIENTS_MAX {
            clients.retain(|_, client| now - client.last < FORGET);
            if clients.len() >= CLIENTS_MAX {
                continue;
            }
        }
        let client = clients.entry(from).or_insert_with(|| {
            refuse(place[..len].get(HEADER..).unwrap_or_default(), from, system);
            Client::new(number, now)
        });
        if is_last && !client.ended {
            client.ended = true;
            let Count { lost, packets, .. } = client.count.net();
            let passed = client.last - client.began;
            let more = format_args!(", {lost}/{packets} lost");
            tell(system, from, client.count.bytes, passed, more);
        } else if !is_last {
            if client.ended {
                *client = Client::new(number, now);
            }
            client.last = now;
            let transit = now.0 as f64 / 1e9 - sent;
            client.count.arrived(len, number.saturating_add(1), transit);
        }
        if is_last {
            // A client that does not get it asks again.
            let _ = socket.send(&report(header, client), from);
        }
    }
}

/// Tells that a client wants what there is over TCP alone, if it does.
fn refuse(wish: &[u8], from: SocketAddr, system: &System) {
    if Wish::read(wish).mode != Mode::Forward {
        let why = "nothing is sent over UDP: anybody can write this address into a datagram";
        (system.print)(format_args!("iperf: {from}: {why}"));
    }
}

impl Client {
    /// One whose first datagram has this number.
    fn new(number: u64, now: Instant) -> Self {
        let count = Count {
            // Whether numbers begin with 0 or 1 is the client's choice.
            packets: u64::from(number > 0),
            omitted_packets: u64::from(number > 0),
            ..Count::default()
        };
        Self {
            count,
            began: now,
            last: now,
            ended: false,
        }
    }
}
