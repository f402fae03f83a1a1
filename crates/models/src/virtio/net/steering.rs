//! Which queue a received frame goes to: that of the pair on which the driver sent last of the same
//! flow (5.1.6.5.5).

use super::super::queue::Virtqueue;
use crate::packet::headers::{Ip, TCP, UDP};

/// Places for flows, by their hash; flows of one place share it.
const PLACES: usize = 256;

/// The pairs that the driver uses, and who sent what on which.
#[derive(Debug)]
pub(super) struct Steering {
    pairs: u16,
    /// The pair of each place, of those that were sent on.
    sent_on: [Option<u8>; PLACES],
}

impl Default for Steering {
    fn default() -> Self {
        Self {
            pairs: 1,
            sent_on: [None; PLACES],
        }
    }
}

impl Steering {
    /// Pairs that the driver uses.
    pub(super) fn pairs(&self) -> u16 {
        self.pairs
    }

    pub(super) fn set_pairs(&mut self, pairs: u16) {
        *self = Self {
            pairs,
            ..Self::default()
        };
    }

    /// Whoever has the driver's commands lets as many pairs run as the driver uses.
    pub(super) fn follow(&mut self, frames: &[Virtqueue]) {
        let runs = frames
            .iter()
            .step_by(2)
            .take_while(|queue| queue.is_ready());
        let pairs = runs.count().max(1) as u16;
        if pairs != self.pairs {
            self.set_pairs(pairs);
        }
    }

    /// A frame that begins like this was sent on a pair.
    #[inline]
    pub(super) fn note(&mut self, pair: u16, headers: &[u8], bytes: usize) {
        if self.pairs > 1
            && let Some(place) = place(headers, bytes)
        {
            self.sent_on[place] = Some(pair as u8);
        }
    }

    /// The pair of a frame.
    #[inline]
    pub(super) fn pair(&self, frame: &[u8]) -> u16 {
        if self.pairs <= 1 {
            return 0;
        }
        let Some(place) = place(frame, frame.len()) else {
            return 0;
        };
        let pair = self.sent_on[place].map_or(place as u16, u16::from);
        pair % self.pairs
    }
}

/// The place of a flow, the same in both directions.
fn place(headers: &[u8], bytes: usize) -> Option<usize> {
    let ip = Ip::find_in(headers, bytes)?;
    let addresses = if ip.v6 { 8..40 } else { 12..20 };
    let addresses = headers.get(ip.start..)?.get(addresses)?;
    let with_ports = matches!(ip.protocol, TCP | UDP) && !ip.fragment;
    let ports = match with_ports {
        true => headers.get(ip.payload..)?.get(..4)?,
        false => &[],
    };
    // A sum does not change when both ends change places.
    let words = addresses.chunks(2).chain(ports.chunks(2));
    let sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    Some(sum.wrapping_mul(0x9e37_79b1) as usize >> 24 & (PLACES - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::samples;

    #[test]
    fn a_flow_comes_in_where_it_went_out() {
        for v6 in [false, true] {
            let out = samples::tcp(v6, None, 1, b"x");
            let mut back = out.clone();
            let ip = if v6 { 22..54 } else { 26..34 };
            let half = ip.len() / 2;
            back[ip].rotate_left(half);
            let ports = if v6 { 54..58 } else { 34..38 };
            back[ports].rotate_left(2);
            let mut steering = Steering::default();
            assert_eq!(steering.pair(&back), 0);
            steering.set_pairs(4);
            for pair in [3, 1] {
                steering.note(pair, &out, out.len());
                assert_eq!(steering.pair(&back), pair);
            }
            steering.set_pairs(2);
            assert!(steering.pair(&back) < 2);
        }
        assert_eq!(Steering::default().pair(&[0; 3]), 0);
    }
}
