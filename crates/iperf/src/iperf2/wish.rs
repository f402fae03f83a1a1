//! What a client wants, as the first bytes of its connection say, or those behind the header of a
//! datagram (`client_hdr_v1`, `client_hdrext`).

use super::word;
use core::time::Duration;

/// Bytes in which a client of 2.1 says all that is read here; one of version 1 says less.
pub const BYTES: usize = 60;
/// Bytes of version 1 (`client_hdr_v1`).
const BYTES_V1: usize = 24;
/// What version 1 has follows, and data is to come back on a connection of the server's
/// (`HEADER_VERSION1`).
const BACK: u32 = 0x8000_0000;
/// More follows behind that (`HEADER_EXTEND`).
const EXTENDED: u32 = 0x4000_0000;
/// The flags there count (`HEADER_VERSION2`).
const VERSION2: u32 = 0x0400_0000;
/// The data that comes back does so at once (`RUN_NOW`).
const NOW: u32 = 1;
/// A flag there: the server alone sends (`HEADER_REVERSE`).
const REVERSE: u32 = 0x0400_0000;
/// Another: both send, on this connection (`HEADER_FULLDUPLEX`).
const FULL_DUPLEX: u32 = 0x0800_0000;
/// Where the fields are.
const PORT: usize = 8;
const AMOUNT: usize = 20;
const FLAGS: usize = 32;
const RATE: usize = 48;
/// Unit of an amount that is a time.
const TICK: Duration = Duration::from_millis(10);

/// Who sends, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The client.
    Forward,
    /// The server, on the client's connection (`-R`).
    Reverse,
    /// Both on the client's connection (`--full-duplex`).
    FullDuplex,
    /// Both at once, the server on a connection of its own to this port of the client (`-d`).
    Dual(u16),
    /// The same, the server after the client (`-r`).
    Tradeoff(u16),
}

/// How much is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Bytes.
    Bytes(u64),
    /// As long as this.
    Time(Duration),
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Who sends, and where.
    pub mode: Mode,
    /// How much the server sends.
    pub amount: Amount,
    /// How fast, in bits per second; `None` without a bound.
    pub rate: Option<u64>,
}

/// How many bytes tell the wish of a client that begins with these; `None` before that is clear.
pub fn len(bytes: &[u8]) -> Option<usize> {
    let flags = word(bytes, 0)?;
    Some(match (flags & EXTENDED != 0, flags & BACK != 0) {
        (true, _) => BYTES,
        (false, true) => BYTES_V1,
        (false, false) => 0,
    })
}

impl Wish {
    /// Reads it; what the bytes do not say is that the client alone sends.
    pub fn read(bytes: &[u8]) -> Self {
        let flags = word(bytes, 0).unwrap_or(0);
        let extended = (flags & EXTENDED != 0).then_some(bytes);
        let field = |at| extended.and_then(|bytes| word(bytes, at)).unwrap_or(0);
        let more = if flags & VERSION2 != 0 {
            field(FLAGS)
        } else {
            0
        };
        let port = word(bytes, PORT).and_then(|port| u16::try_from(port).ok());
        let mode = match port.filter(|port| flags & BACK != 0 && *port > 0) {
            Some(port) if flags & NOW != 0 => Mode::Dual(port),
            Some(port) => Mode::Tradeoff(port),
            None if more & REVERSE != 0 => Mode::Reverse,
            None if more & FULL_DUPLEX != 0 => Mode::FullDuplex,
            None => Mode::Forward,
        };
        let amount = word(bytes, AMOUNT).unwrap_or(0).cast_signed();
        let amount = match amount {
            0.. => Amount::Bytes(amount.unsigned_abs().into()),
            _ => Amount::Time(TICK * amount.unsigned_abs()),
        };
        let rate = Some(u64::from(field(RATE))).filter(|rate| *rate > 0);
        Self { mode, amount, rate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// What a stock client of 2.1.8 sends first, with these flags, port, amount and rate.
    fn first(flags: u32, port: u32, amount: u32, more: u32, rate: u32) -> Vec<u8> {
        let version = [0x0002_0001, 0x0008_0003];
        let words = [flags, 1, port, 0, 0, amount, 0, 0, more];
        bytes(&[&words[..], &version, &[0, rate, 0, 0]].concat())
    }

    #[test]
    fn wishes_are_those_of_the_stock_client() {
        let second = Amount::Time(Duration::from_secs(1));
        for (bytes, mode, amount, rate) in [
            // -t 1 -b 5M
            (
                first(0x4001_0078, 5001, -100_i32 as u32, 0, 0x50_0000),
                Mode::Forward,
                second,
                Some(5 << 20),
            ),
            // -R -n 300K
            (
                first(0x4401_0078, 5001, 300 << 10, 0x0400_0000, 0),
                Mode::Reverse,
                Amount::Bytes(300 << 10),
                None,
            ),
            // --full-duplex -t 1
            (
                first(0x4401_0078, 5001, -100_i32 as u32, 0x0800_0000, 0),
                Mode::FullDuplex,
                second,
                None,
            ),
            // -d -n 300K
            (
                first(0xc001_0079, 5001, 300 << 10, 0, 0),
                Mode::Dual(5001),
                Amount::Bytes(300 << 10),
                None,
            ),
            // -r -t 1 -L 6001
            (
                first(0xc001_0078, 6001, -100_i32 as u32, 0, 0),
                Mode::Tradeoff(6001),
                second,
                None,
            ),
            // -d of a client of version 1
            (
                bytes(&[0x8000_0001, 1, 5001, 0, 0, -100_i32 as u32]),
                Mode::Dual(5001),
                second,
                None,
            ),
        ] {
            assert_eq!(len(&bytes), Some(bytes.len()));
            assert_eq!(Wish::read(&bytes), Wish { mode, amount, rate });
        }
    }

    #[test]
    fn data_alone_is_no_wish() {
        assert_eq!(len(b"012"), None);
        assert_eq!(len(b"0123456789"), Some(0));
        assert_eq!(Wish::read(b"0123456789").mode, Mode::Forward);
        assert_eq!(Wish::read(&[]).mode, Mode::Forward);
        for port in [0, 65_536, u32::MAX] {
            let bytes = first(0xc001_0079, port, 1, 0, 0);
            assert_eq!(Wish::read(&bytes).mode, Mode::Forward);
        }
        let longest = first(0xc001_0079, 1, i32::MIN as u32, 0, u32::MAX);
        let most = Amount::Time(TICK * (1 << 31));
        assert_eq!(Wish::read(&longest).amount, most);
    }
}
