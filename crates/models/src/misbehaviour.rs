//! What a device does wrong, on demand and repeatably.

use fastrand::Rng;
use std::fmt;
use std::str::FromStr;

/// A fault that a device may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is gone, as if pulled out: all registers read all ones, until the bus is reset.
    Gone,
    /// A received frame has any length.
    Length,
    /// A received frame has any status and errors, but is done.
    Status,
    /// All else that a descriptor says of a received frame is anything.
    Garbage,
    /// A received frame is said to be any number of segments that were coalesced.
    Coalesced,
    /// A descriptor is done before its frame was written, or sent.
    EarlyDone,
    /// A descriptor is left out.
    Skip,
    /// The link goes down for a while.
    LinkFlap,
    /// An interrupt is lost.
    LostInterrupt,
    /// Nothing is sent any more, until a reset.
    TransmitHang,
    /// A buffer that was given back is written to. Device and driver must share a thread.
    WildWrite,
    /// A command is said to be done twice.
    Twice,
}

/// All faults, with their names.
const FAULTS: [(&str, Fault); 12] = [
    ("gone", Fault::Gone),
    ("length", Fault::Length),
    ("status", Fault::Status),
    ("garbage", Fault::Garbage),
    ("joined", Fault::Coalesced),
    ("early-done", Fault::EarlyDone),
    ("skip", Fault::Skip),
    ("link-flap", Fault::LinkFlap),
    ("lost-interrupt", Fault::LostInterrupt),
    ("transmit-hang", Fault::TransmitHang),
    ("wild-write", Fault::WildWrite),
    ("twice", Fault::Twice),
];

/// Bits of a register that always read the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StuckBits {
    /// Offset of the register, in bytes.
    pub offset: usize,
    /// The bits.
    pub mask: u32,
    /// What they read.
    pub value: u32,
}

/// How a device misbehaves. By default it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misbehaviour {
    /// The same seed gives the same faults at the same events.
    pub seed: u64,
    /// Faults, each at one in so many of its events.
    pub faults: Vec<(Fault, u32)>,
    /// Bits that are stuck.
    pub stuck: Vec<StuckBits>,
}

/// Text that is no misbehaviour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoFault(String);

impl fmt::Display for NoFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = FAULTS.iter().map(|(name, _)| *name).collect();
        write!(
            f,
            "`{}` is no fault: write seed=N, stuck=OFFSET:MASK:VALUE or FAULT=N, one in N; \
             a FAULT is {}",
            self.0,
            names.join(", ")
        )
    }
}

impl std::error::Error for NoFault {}

/// Parts separated by commas, such as `seed=7,length=100,stuck=0x42a4:0x40000000:0`.
impl FromStr for Misbehaviour {
    type Err = NoFault;

    fn from_str(text: &str) -> Result<Self, NoFault> {
        let mut all = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            all.add(part).ok_or_else(|| NoFault(part.into()))?;
        }
        Ok(all)
    }
}

impl Misbehaviour {
    fn add(&mut self, part: &str) -> Option<()> {
        let (name, value) = part.split_once('=')?;
        match name {
            "seed" => self.seed = number(value)?,
            "stuck" => {
                let mut numbers = value.split(':').map(number);
                let mut next = || u32::try_from(numbers.next()??).ok();
                let (offset, mask, value) = (next()? as usize, next()?, next()?);
                self.stuck.push(StuckBits {
                    offset,
                    mask,
                    value,
                });
            }
            _ => {
                let (_, fault) = FAULTS.iter().find(|(known, _)| *known == name)?;
                let one_in = u32::try_from(number(value)?)
                    .ok()
                    .filter(|one_in| *one_in > 0)?;
                self.faults.push((*fault, one_in));
            }
        }
        Some(())
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Misbehaviour at work: a device asks at each event whether it goes wrong.
#[derive(Debug)]
pub(crate) struct Faults {
    random: Rng,
    one_in: [u32; FAULTS.len()],
    any: bool,
    stuck: Vec<StuckBits>,
}

impl Faults {
    pub(crate) fn new(misbehaviour: &Misbehaviour) -> Self {
        let mut one_in = [0; FAULTS.len()];
        for (fault, rate) in &misbehaviour.faults {
            one_in[*fault as usize] = *rate;
        }
        Self {
            random: Rng::with_seed(misbehaviour.seed),
            one_in,
            any: !misbehaviour.faults.is_empty(),
            stuck: misbehaviour.stuck.clone(),
        }
    }

    /// Whether this event goes wrong.
    #[inline]
    pub(crate) fn strikes(&mut self, fault: Fault) -> bool {
        self.any && {
            let one_in = self.one_in[fault as usize];
            one_in > 0 && self.random.u32(..one_in) == 0
        }
    }

    /// Whether nothing ever goes wrong: what is not done byte by byte may go another way.
    pub(crate) fn is_off(&self) -> bool {
        !self.any
    }

    /// Any number.
    pub(crate) fn number(&mut self) -> u64 {
        self.random.u64(..)
    }

    /// What a register reads.
    pub(crate) fn read(&self, offset: usize, value: u32) -> u32 {
        let of = |stuck: &&StuckBits| stuck.offset == offset;
        self.stuck.iter().filter(of).fold(value, |value, stuck| {
            value & !stuck.mask | stuck.value & stuck.mask
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misbehaviour_is_written_in_words() {
        let text = "seed=7,length=100,gone=1,stuck=0x42a4:0x40000000:0";
        let expected = Misbehaviour {
            seed: 7,
            faults: vec![(Fault::Length, 100), (Fault::Gone, 1)],
            stuck: vec![StuckBits {
                offset: 0x42a4,
                mask: 1 << 30,
                value: 0,
            }],
        };
        assert_eq!(text.parse(), Ok(expected));
        assert_eq!("".parse(), Ok(Misbehaviour::default()));
        for bad in [
            "length",
            "length=0",
            "lenght=1",
            "stuck=1:2",
            "seed=x",
            "gone=4294967296",
        ] {
            let error = bad.parse::<Misbehaviour>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("`{bad}` is no fault")),
                "{error}"
            );
        }
    }

    #[test]
    fn the_same_seed_strikes_at_the_same_events() {
        let misbehaviour: Misbehaviour = "seed=3,skip=4".parse().unwrap();
        let strikes = || {
            let mut faults = Faults::new(&misbehaviour);
            (0..1000)
                .map(|_| faults.strikes(Fault::Skip))
                .collect::<Vec<_>>()
        };
        assert_eq!(strikes(), strikes());
        let struck = strikes().into_iter().filter(|struck| *struck).count();
        assert!((150..350).contains(&struck), "{struck}");
        assert!(!Faults::new(&misbehaviour).strikes(Fault::Gone));
    }
}
