//! Streams over UDP: datagrams with the time and a number in front (`iperf_udp.c`).

use crate::count::Flow;
use crate::measure::{Pace, Test};
use crate::protocol::{Error, patiently};
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::net::SocketAddr;
use core::pin::pin;
use net::socket::{Datagrams, Error as Broken};
use net::task::{Clock, select, yield_now};
use ports::Instant;

/// What a client sends first on each stream (`UDP_CONNECT_MSG`), and the answer.
const HELLO: [u8; 4] = *b"9876";
/// As above (`UDP_CONNECT_REPLY`).
const WELCOME: [u8; 4] = *b"6789";
/// Datagrams that are sent before those that arrive, and other tasks, have their turn.
const BURST: usize = 32;
/// Longest datagram.
const DATAGRAM: usize = 64 << 10;
/// The first bytes of a datagram: seconds, microseconds, number.
const HEADER: usize = 16;

/// Writes time and number into the first bytes of a datagram.
fn write_header(place: &mut [u8], now: Instant, number: u64, long: bool) {
    let (seconds, micros) = (now.0 / 1_000_000_000, now.0 / 1000 % 1_000_000);
    place[..4].copy_from_slice(&(seconds as u32).to_be_bytes());
    place[4..8].copy_from_slice(&(micros as u32).to_be_bytes());
    match long {
        true => place[8..HEADER].copy_from_slice(&number.to_be_bytes()),
        false => place[8..12].copy_from_slice(&(number as u32).to_be_bytes()),
    }
}

/// The time in seconds and the number of a datagram; `None` if it is too short.
fn read_header(bytes: &[u8], long: bool) -> Option<(f64, u64)> {
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?.first_chunk()?;
        Some(u32::from_be_bytes(*word))
    };
    let time = f64::from(word(0)?) + f64::from(word(4)?) / 1e6;
    let number = match long {
        true => u64::from(word(8)?) << 32 | u64::from(word(12)?),
        false => u64::from(word(8)?),
    };
    Some((time, number))
}

/// Opens a stream, as a client: the server is to know where we are.
///
/// # Errors
/// If it does not answer.
pub async fn open(
    socket: &mut impl Datagrams,
    clock: &Clock,
    server: SocketAddr,
) -> Result<(), Error> {
    socket.send(&HELLO, server)?;
    let answer = async {
        let mut answer = [0; HEADER];
        loop {
            let (count, from) = socket.receive(&mut answer).await?;
            if from == server && answer[..count] == WELCOME {
                return Ok(());
            }
        }
    };
    patiently(clock, answer).await
}

/// The next client's stream, as a server; it is none of `known`.
///
/// # Errors
/// If nobody comes.
pub async fn accept(
    socket: &mut impl Datagrams,
    clock: &Clock,
    known: &[Rc<Flow>],
    client: SocketAddr,
) -> Result<SocketAddr, Error> {
    let hello = async {
        let mut bytes = [0; HEADER];
        loop {
            let (_, from) = socket.receive(&mut bytes).await?;
            if from.ip() == client.ip() && known.iter().all(|flow| flow.remote != from) {
                return Ok(from);
            }
        }
    };
    let from = patiently(clock, hello).await?;
    socket.send(&WELCOME, from)?;
    Ok(from)
}

/// Streams that share a socket: a client's one, or all of a server.
pub struct Streams<D> {
    socket: D,
    flows: BTreeMap<SocketAddr, Rc<Flow>>,
    senders: Vec<(Rc<Flow>, Pace)>,
    test: Rc<Test>,
    /// What leaves together: `count` datagrams.
    blocks: Vec<u8>,
    count: usize,
}

impl<D: Datagrams> Streams<D> {
    /// These streams.
    pub fn new(socket: D, flows: &[Rc<Flow>], test: Rc<Test>) -> Self {
        let len = test.parameters.block() as usize;
        let count = (DATAGRAM / len).clamp(1, BURST);
        Self {
            socket,
            flows: flows
                .iter()
                .map(|flow| (flow.remote, flow.clone()))
                .collect(),
            senders: Vec::new(),
            blocks: vec![0; count * len],
            count,
            test,
        }
    }

    /// Moves datagrams. It never ends by itself.
    ///
    /// # Errors
    /// If the socket fails.
    pub async fn run(mut self) -> Result<(), Error> {
        let mut place = vec![0; DATAGRAM];
        let clock = self.test.clock.clone();
        let senders = self.flows.values().filter(|flow| flow.sends);
        let pace = || Pace::new(self.test.parameters.bandwidth, clock.now());
        self.senders = senders.map(|flow| (flow.clone(), pace())).collect();
        loop {
            let due = self.send()?;
            let receive = pin!(self.receive(&mut place));
            match due {
                // Receiving ends with an error only.
                None => return receive.await,
                Some(due) if due <= clock.now() => drop(select(receive, pin!(yield_now())).await),
                Some(due) => drop(select(receive, pin!(clock.until(due))).await),
            }
        }
    }

    async fn receive(&mut self, place: &mut [u8]) -> Result<(), Error> {
        let long = self.test.parameters.udp_counters_64bit != 0;
        loop {
            let (len, from) = self.socket.receive(place).await?;
            let flow = self.flows.get(&from).filter(|flow| !flow.sends);
            if let (Some(flow), Some((sent, number))) = (flow, read_header(&place[..len], long)) {
                let transit = self.test.clock.now().0 as f64 / 1e9 - sent;
                self.test
                    .moved(flow, len, |count| count.arrived(len, number, transit));
            }
        }
    }

    /// Sends what is due, within [`BURST`]; when the next one is.
    fn send(&mut self) -> Result<Option<Instant>, Error> {
        let Self { socket, test, .. } = self;
        let now = test.clock.now();
        let long = test.parameters.udp_counters_64bit != 0;
        let len = self.blocks.len() / self.count;
        let most = BURST.div_ceil(self.senders.len().max(1)).min(self.count);
        let mut next = None;
        for (flow, pace) in &mut self.senders {
            let share = test.share(pace, len, most);
            let blocks = self.blocks.chunks_exact_mut(len).take(share);
            let numbers = flow.count.get().packets + 1..;
            for (block, number) in blocks.zip(numbers) {
                write_header(block, now, number, long);
            }
            let blocks = self.blocks.chunks_exact(len).take(share);
            let batch: ArrayVec<_, BURST> = blocks.map(|block| (block, flow.remote)).collect();
            let sent = match socket.send_batch(&batch) {
                Ok(sent) => sent,
                Err(Broken::Unsent(_)) => 0,
                Err(error) => return Err(error.into()),
            };
            for _ in 0..sent {
                pace.sent(len);
                test.moved(flow, len, |count| count.sent(len));
            }
            if !test.goes_on() {
                return Ok(None);
            }
            if sent < share {
                // The port has no room now: it has after its turn.
                return Ok(Some(now));
            }
            let due = pace.due().unwrap_or(now);
            next = Some(next.map_or(due, |next: Instant| next.min(due)));
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_the_stock_program() {
        let mut block = [0; HEADER];
        write_header(&mut block, Instant(3_000_007_000), 5, false);
        assert_eq!(block, [0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0, 0]);
        assert_eq!(read_header(&block[..12], false), Some((3.000_007, 5)));
        assert_eq!(read_header(&block[..12], true), None);
        write_header(&mut block, Instant(3_000_007_000), 1 << 40, true);
        assert_eq!(read_header(&block, true), Some((3.000_007, 1 << 40)));
        assert_eq!(read_header(&[0; 11], false), None);
    }
}
