//! Headers of segments (RFC 9293, 3.1), and their options: 9293 3.2, 7323, 2018.

use super::seq::Seq;
use arrayvec::ArrayVec;

/// Bytes of a header without options.
pub const HEADER_SIZE: usize = 20;
/// Most bytes of a header: the length field counts 15 words.
pub const HEADER_MAX: usize = 60;
/// Where the checksum lies in the header.
pub const CHECKSUM: usize = 16;
/// Bytes that the timestamps option takes, with two bytes of padding (RFC 7323, appendix A).
pub const TIMESTAMPS_SIZE: usize = 12;
/// SACK blocks that fit into a header (RFC 2018, 3).
pub const SACK_BLOCKS_MAX: usize = 4;

/// The numbers of a header that say what a segment is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// No more data from the sender.
    pub fin: bool,
    /// Synchronise sequence numbers.
    pub syn: bool,
    /// Reset the connection.
    pub rst: bool,
    /// Push.
    pub psh: bool,
    /// The acknowledgement number counts.
    pub ack: bool,
    /// The urgent pointer counts. Urgent data is delivered in line (RFC 6093, 6).
    pub urg: bool,
}

impl Flags {
    fn parse(byte: u8) -> Self {
        let bit = |bit: u32| byte & (1 << bit) != 0;
        Self {
            fin: bit(0),
            syn: bit(1),
            rst: bit(2),
            psh: bit(3),
            ack: bit(4),
            urg: bit(5),
        }
    }

    fn byte(self) -> u8 {
        u8::from(self.fin)
            | u8::from(self.syn) << 1
            | u8::from(self.rst) << 2
            | u8::from(self.psh) << 3
            | u8::from(self.ack) << 4
            | u8::from(self.urg) << 5
    }
}

/// Data that has arrived behind a hole: the first number, and the one after the last (RFC 2018, 3).
pub type SackBlock = (Seq, Seq);

/// Options of a segment. Unknown ones are skipped (RFC 9293, 3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Largest segment that the sender of this one takes, in bytes; on SYN only.
    pub mss: Option<u16>,
    /// The sender's windows are to be shifted left by so many bits, at most 14 (RFC 7323, 2.3).
    pub scale: Option<u8>,
    /// SACK may be sent to the sender of this segment; on SYN only.
    pub sack_permitted: bool,
    /// TSval and TSecr (RFC 7323, 3.2).
    pub timestamps: Option<(u32, u32)>,
    /// What has arrived behind holes.
    pub sack: ArrayVec<SackBlock, SACK_BLOCKS_MAX>,
}

/// A segment without its payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Port of the sender.
    pub source: u16,
    /// Port of the receiver.
    pub destination: u16,
    /// Number of the first byte of the payload, or of SYN.
    pub seq: Seq,
    /// The number that its sender expects next, if `flags.ack`.
    pub ack: Seq,
    /// What it is for.
    pub flags: Flags,
    /// The window, as it stands in the header: not shifted.
    pub window: u16,
    /// Options.
    pub options: Options,
    /// Bytes of payload.
    pub len: u32,
}

/// Why some bytes are no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Fewer bytes than a header has, or than it says that it has.
    Short,
    /// The header says that it is shorter than a header.
    HeaderLength,
    /// An option is longer than its place, or shorter than it can be.
    Option,
}

/// Highest shift of a window (RFC 7323, 2.3); higher ones count as this.
pub const SCALE_MAX: u8 = 14;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
const SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

impl Segment {
    /// Reads the header at the beginning of `bytes`, which hold one segment and nothing behind it;
    /// the segment, and how long its header is. The checksum is not looked at.
    ///
    /// # Errors
    /// If it is malformed.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let fixed: &[u8; HEADER_SIZE] = bytes.first_chunk().ok_or(Malformed::Short)?;
        let header = usize::from(fixed[12] >> 4) * 4;
        if header < HEADER_SIZE {
            return Err(Malformed::HeaderLength);
        }
        let options = bytes.get(HEADER_SIZE..header).ok_or(Malformed::Short)?;
        let segment = Self {
            source: u16::from_be_bytes([fixed[0], fixed[1]]),
            destination: u16::from_be_bytes([fixed[2], fixed[3]]),
            seq: Seq(be32(&fixed[4..8])),
            ack: Seq(be32(&fixed[8..12])),
            flags: Flags::parse(fixed[13]),
            window: u16::from_be_bytes([fixed[14], fixed[15]]),
            options: Options::parse(options)?,
            // An IP packet has at most 64 KiB; with jumbograms, 4 GiB.
            len: u32::try_from(bytes.len() - header).map_err(|_| Malformed::Short)?,
        };
        Ok((segment, header))
    }

    /// Bytes of the header.
    #[inline]
    pub fn header_size(&self) -> usize {
        HEADER_SIZE + self.options.size()
    }

    /// Writes the header, with a checksum of 0, and returns its length.
    ///
    /// # Panics
    /// If `bytes` are fewer than [`Self::header_size`].
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let size = self.header_size();
        let (fixed, options) = bytes[..size].split_at_mut(HEADER_SIZE);
        fixed[0..2].copy_from_slice(&self.source.to_be_bytes());
        fixed[2..4].copy_from_slice(&self.destination.to_be_bytes());
        fixed[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        fixed[12] = ((size / 4) << 4) as u8;
        fixed[13] = self.flags.byte();
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        fixed[16..20].fill(0);
        self.options.emit(options);
        size
    }

    /// How many sequence numbers it takes: a byte has one, and SYN and FIN have one each
    /// (RFC 9293, 3.4).
    #[inline]
    pub fn sequence_len(&self) -> u32 {
        self.len + u32::from(self.flags.syn) + u32::from(self.flags.fin)
    }

    /// The number behind its last one.
    #[inline]
    pub fn end(&self) -> Seq {
        self.seq + self.sequence_len()
    }
}

impl Options {
    #[inline]
    fn parse(mut bytes: &[u8]) -> Result<Self, Malformed> {
        let mut options = Self::default();
        while let Some((&kind, rest)) = bytes.split_first() {
            if kind == END {
                break;
            }
            if kind == NO_OPERATION {
                bytes = rest;
                continue;
            }
            let &len = rest.first().ok_or(Malformed::Option)?;
            let len = usize::from(len);
            if len < 2 {
                return Err(Malformed::Option);
            }
            let (option, behind) = bytes.split_at_checked(len).ok_or(Malformed::Option)?;
            options.one(kind, &option[2..])?;
            bytes = behind;
        }
        Ok(options)
    }

    /// Takes one option in, by its kind and what is behind its length.
    fn one(&mut self, kind: u8, data: &[u8]) -> Result<(), Malformed> {
        match (kind, data) {
            (MSS, &[high, low]) => self.mss = Some(u16::from_be_bytes([high, low])),
            (SCALE, &[shift]) => self.scale = Some(shift.min(SCALE_MAX)),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, data) if data.len() == 8 => {
                self.timestamps = Some((be32(&data[..4]), be32(&data[4..])));
            }
            (SACK, data) if data.len().is_multiple_of(8) => {
                self.sack = data
                    .chunks_exact(8)
                    .take(SACK_BLOCKS_MAX)
                    .map(|block| (Seq(be32(&block[..4])), Seq(be32(&block[4..]))))
                    .collect();
            }
            (MSS | SCALE | SACK_PERMITTED | TIMESTAMPS | SACK, _) => return Err(Malformed::Option),
            _ => {}
        }
        Ok(())
    }

    /// Bytes that they take, a multiple of 4.
    #[inline]
    pub fn size(&self) -> usize {
        let mss = if self.mss.is_some() { 4 } else { 0 };
        let scale = if self.scale.is_some() { 4 } else { 0 };
        // With timestamps, it takes the place of their padding.
        let permitted = match self.sack_permitted && self.timestamps.is_none() {
            true => 4,
            false => 0,
        };
        let timestamps = if self.timestamps.is_some() {
            TIMESTAMPS_SIZE
        } else {
            0
        };
        let sack = match self.sack.len() {
            0 => 0,
            blocks => 4 + 8 * blocks,
        };
        mss + scale + permitted + timestamps + sack
    }

    /// Fills `bytes`, which are as many as they take. Each option is padded in front, so that its
    /// numbers are aligned (RFC 7323, appendix A). In a SYN, the permission of SACK pads the
    /// timestamps: 4 bytes less, in the order in which most hosts send them.
    #[inline]
    fn emit(&self, bytes: &mut [u8]) {
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        if let Some(mss) = self.mss {
            put(&[MSS, 4]);
            put(&mss.to_be_bytes());
        }
        if self.sack_permitted {
            if self.timestamps.is_none() {
                put(&[NO_OPERATION, NO_OPERATION]);
            }
            put(&[SACK_PERMITTED, 2]);
        }
        if let Some((value, echo)) = self.timestamps {
            if !self.sack_permitted {
                put(&[NO_OPERATION, NO_OPERATION]);
            }
            put(&[TIMESTAMPS, 10]);
            put(&value.to_be_bytes());
            put(&echo.to_be_bytes());
        }
        if let Some(shift) = self.scale {
            put(&[NO_OPERATION, SCALE, 3, shift]);
        }
        if !self.sack.is_empty() {
            let len = 2 + 8 * self.sack.len();
            put(&[NO_OPERATION, NO_OPERATION, SACK, len as u8]);
            for (start, end) in &self.sack {
                put(&start.0.to_be_bytes());
                put(&end.0.to_be_bytes());
            }
        }
    }
}

/// A number of four bytes.
fn be32(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |number, &byte| number << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn flags() -> impl Strategy<Value = Flags> {
        any::<u8>().prop_map(Flags::parse)
    }

    fn options() -> impl Strategy<Value = Options> {
        let scale = proptest::option::of(0..=SCALE_MAX);
        let blocks = proptest::collection::vec((any::<u32>(), any::<u32>()), 0..=3);
        let stamps = proptest::option::of(any::<(u32, u32)>());
        let parts = (any::<Option<u16>>(), scale, any::<bool>(), stamps, blocks);
        parts.prop_map(|(mss, scale, sack_permitted, timestamps, blocks)| Options {
            mss,
            scale,
            sack_permitted,
            timestamps,
            // As many as there is room for.
            sack: match (mss, scale, sack_permitted) {
                (None, None, false) => blocks.iter().map(|b| (Seq(b.0), Seq(b.1))).collect(),
                _ => ArrayVec::new(),
            },
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            numbers in any::<(u16, u16, u32, u32, u16)>(),
            flags in flags(),
            options in options(),
            payload in proptest::collection::vec(any::<u8>(), 0..50),
        ) {
            let segment = Segment {
                source: numbers.0,
                destination: numbers.1,
                seq: Seq(numbers.2),
                ack: Seq(numbers.3),
                flags,
                window: numbers.4,
                options,
                len: payload.len() as u32,
            };
            let mut bytes = [0xff; HEADER_MAX];
            let size = segment.emit(&mut bytes);
            prop_assert_eq!(size, segment.header_size());
            let whole: Vec<u8> = bytes[..size].iter().chain(&payload).copied().collect();
            prop_assert_eq!(Segment::parse(&whole), Ok((segment, size)));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok((segment, header)) = Segment::parse(&bytes) {
                prop_assert_eq!(header + segment.len as usize, bytes.len());
            }
        }
    }

    #[test]
    fn each_malformed_header_has_its_reason() {
        let parse = |bytes: &[u8]| Segment::parse(bytes).unwrap_err();
        assert_eq!(parse(&[0x50; 19]), Malformed::Short);
        assert_eq!(parse(&[0x60; 20]), Malformed::Short);
        assert_eq!(parse(&[0x40; 20]), Malformed::HeaderLength);
        for option in [[2, 0], [2, 1], [2, 5], [3, 2], [4, 3], [5, 3], [8, 4]] {
            let mut bytes = [0; 24];
            bytes[12] = 0x60;
            bytes[20..22].copy_from_slice(&option);
            assert_eq!(parse(&bytes), Malformed::Option, "{option:?}");
        }
    }

    #[test]
    fn unknown_options_are_skipped_and_a_shift_is_bounded() {
        let mut bytes = [0; 32];
        bytes[12] = 0x80;
        bytes[20..28].copy_from_slice(&[253, 4, 9, 9, 1, 3, 3, 200]);
        bytes[28..32].copy_from_slice(&[0, 2, 0, 0]);
        let (segment, header) = Segment::parse(&bytes).unwrap();
        assert_eq!((header, segment.len), (32, 0));
        assert_eq!(segment.options.scale, Some(SCALE_MAX));
        assert_eq!(segment.options.mss, None, "behind the end of the options");
    }
}
