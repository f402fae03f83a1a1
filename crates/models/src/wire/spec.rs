//! Wires in words.

use super::{Flood, Loop, Pcap, PcapFault, SocketWire, TapFault, TapWire, Wire};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

/// Shortest and longest frame of a flood, in bytes, with the frame check sequence.
const FLOOD_BYTES: std::ops::RangeInclusive<usize> = 64..=1518;
/// Flows of a flood: frames of one after the other have another port each.
const FLOOD_FRAMES: u16 = 256;

/// What a NIC is to be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// `loop`: a plug that sends back what comes in.
    Loop,
    /// `flood[:BYTES]`: a generator and a sink.
    Flood(usize),
    /// `pcap:PLAY`, `pcap:PLAY,RECORD`, `pcap:,RECORD`: captures.
    Pcap(Option<PathBuf>, Option<PathBuf>),
    /// `tap:NAME`: a tap.
    Tap(String),
    /// `tap:@FD`: a tap that is open already.
    Descriptor(i32),
    /// `model:SOCKET`: another model, which is given the same name.
    Model(PathBuf),
}

/// Text that names no wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoWire(String);

impl fmt::Display for NoWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no wire: write tap:NAME, model:SOCKET, pcap:PLAY,RECORD, loop, or \
             flood:BYTES of {} to {}",
            self.0,
            FLOOD_BYTES.start(),
            FLOOD_BYTES.end()
        )
    }
}

impl std::error::Error for NoWire {}

/// A wire that cannot be had.
#[derive(Debug)]
pub enum WireFault {
    /// A capture.
    Pcap(PcapFault),
    /// A tap, by its name.
    Tap(String, TapFault),
    /// A socket.
    Model(PathBuf, io::Error),
}

impl fmt::Display for WireFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pcap(fault) => write!(f, "capture: {fault}"),
            Self::Tap(name, fault) => {
                write!(
                    f,
                    "tap {name}: {fault}; type: sudo ip tuntap add dev {name} mode tap user $USER; \
                     sudo ip link set {name} up"
                )
            }
            Self::Model(path, error) => write!(f, "wire {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for WireFault {}

impl FromStr for Spec {
    type Err = NoWire;

    fn from_str(text: &str) -> Result<Self, NoWire> {
        Self::parse(text).ok_or_else(|| NoWire(text.into()))
    }
}

impl Spec {
    fn parse(text: &str) -> Option<Self> {
        let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
        Some(match text.split_once(':').unwrap_or((text, "")) {
            ("loop", "") => Self::Loop,
            ("flood", "") => Self::Flood(*FLOOD_BYTES.start()),
            ("flood", bytes) => Self::Flood(
                bytes
                    .parse()
                    .ok()
                    .filter(|bytes| FLOOD_BYTES.contains(bytes))?,
            ),
            ("pcap", files) => {
                let (play, record) = files.split_once(',').unwrap_or((files, ""));
                let (play, record) = (path(play), path(record));
                if play.is_none() && record.is_none() {
                    return None;
                }
                Self::Pcap(play, record)
            }
            ("tap", name) if !name.is_empty() => match name.strip_prefix('@') {
                Some(number) => Self::Descriptor(number.parse().ok()?),
                None => Self::Tap(name.into()),
            },
            ("model", socket) => Self::Model(path(socket)?),
            _ => return None,
        })
    }

    /// Makes the wire, for a NIC with this address.
    ///
    /// # Errors
    /// If it cannot be had.
    pub fn open(&self, address: [u8; 6]) -> Result<Box<dyn Wire>, WireFault> {
        Ok(match self {
            Self::Loop => Box::new(Loop::new()),
            Self::Flood(bytes) => Box::new(Flood::new(flood(*bytes, address))),
            Self::Pcap(play, record) => {
                Box::new(Pcap::open(play.as_deref(), record.as_deref()).map_err(WireFault::Pcap)?)
            }
            Self::Tap(name) => {
                Box::new(TapWire::open(name).map_err(|fault| WireFault::Tap(name.clone(), fault))?)
            }
            Self::Descriptor(number) => Box::new(TapWire::adopt(*number).map_err(|fault| {
                let name = format!("@{number}");
                WireFault::Tap(name, fault)
            })?),
            Self::Model(path) => Box::new(
                SocketWire::open(path).map_err(|error| WireFault::Model(path.clone(), error))?,
            ),
        })
    }
}

/// UDP datagrams over IPv4 of `bytes` bytes with their check sequence, for this address. They have
/// no checksum of UDP: it is optional (RFC 768).
fn flood(bytes: usize, address: [u8; 6]) -> Vec<Vec<u8>> {
    use crate::packet::checksum::{fold, set_word, sum};
    let len = bytes - 4;
    let mut frame = vec![0; len];
    frame[..6].copy_from_slice(&address);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 0xfe, 0x08, 0x00]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 1, 1]);
    set_word(&mut frame, 16, (len - 14) as u16);
    let checksum = !fold(sum(&frame[14..34]));
    set_word(&mut frame, 24, checksum);
    set_word(&mut frame, 36, 9);
    set_word(&mut frame, 38, (len - 34) as u16);
    (0..FLOOD_FRAMES)
        .map(|number| {
            set_word(&mut frame, 34, 1024 + number);
            frame.clone()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::headers::Ip;

    #[test]
    fn wires_are_written_in_words() {
        let path = |text: &str| Some(PathBuf::from(text));
        let good = [
            ("loop", Spec::Loop),
            ("flood", Spec::Flood(64)),
            ("flood:1518", Spec::Flood(1518)),
            ("pcap:a", Spec::Pcap(path("a"), None)),
            ("pcap:a,b", Spec::Pcap(path("a"), path("b"))),
            ("pcap:,b", Spec::Pcap(None, path("b"))),
            ("tap:t0", Spec::Tap("t0".into())),
            ("tap:@7", Spec::Descriptor(7)),
            ("model:/run/w", Spec::Model("/run/w".into())),
        ];
        for (text, spec) in good {
            assert_eq!(text.parse(), Ok(spec));
        }
        for bad in [
            "", "loop:1", "flood:63", "flood:x", "pcap:", "pcap:,", "tap:", "tap:@", "tap:@x",
            "model:", "tun:x",
        ] {
            let error = bad.parse::<Spec>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{bad}` is no wire")), "{error}");
        }
    }

    #[test]
    fn a_flood_is_of_sound_datagrams() {
        for bytes in [64, 65, 1518] {
            for frame in flood(bytes, [2; 6]) {
                let ip = Ip::find(&frame).unwrap();
                assert_eq!((frame.len(), ip.end), (bytes - 4, bytes - 4));
                assert!(ip.header_is_sound(&frame) && ip.transport(&frame).is_some());
                assert_eq!(ip.payload_is_sound(&frame), None);
            }
        }
    }
}
