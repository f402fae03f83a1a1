//! A wire that a test writes, with and without copies.

use crate::wire::{Incoming, Offload, Wire};
use hw::sim::vectored::{self, SpanMut};
use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::AsFd;

/// What is on the wire, and what was sent.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) incoming: VecDeque<(Vec<u8>, Offload)>,
    pub(crate) sent: Vec<(Vec<u8>, Offload)>,
    pub(crate) large: bool,
    /// It takes fragments, and puts payload into places.
    pub(crate) scatters: bool,
    /// Bytes of a frame that were put there, and how many frames had some.
    pub(crate) placed: usize,
    pub(crate) split: usize,
}

impl Wire for Script {
    fn peek(&mut self) -> Option<(&[u8], Offload)> {
        self.incoming
            .front()
            .map(|(frame, offload)| (&frame[..], *offload))
    }

    fn take(&mut self) {
        self.incoming.pop_front();
        self.placed = 0;
    }

    fn peek_split(&mut self, front: usize, places: &[SpanMut<'_>]) -> Option<Incoming<'_>> {
        let (frame, offload) = self.incoming.front_mut()?;
        if self.scatters && !places.is_empty() && frame.len() > front {
            let (reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(frame).unwrap();
            let len = frame.len();
            frame.truncate(front);
            assert_eq!(vectored::read(reader.as_fd(), frame, places).unwrap(), len);
            self.placed = len - front;
            self.split += 1;
        }
        Some(Incoming {
            frame,
            placed: self.placed,
            offload: *offload,
        })
    }

    fn linearize(&mut self, places: &[SpanMut<'_>]) {
        let (frame, _) = self.incoming.front_mut().unwrap();
        let mut left = std::mem::take(&mut self.placed);
        for place in places {
            let at = frame.len();
            frame.resize(at + left, 0);
            let copied = place.as_span().copy_to(&mut frame[at..]);
            frame.truncate(at + copied);
            left -= copied;
        }
    }

    fn takes_large_frames(&self) -> bool {
        self.large
    }

    fn sends_fragments(&self) -> bool {
        self.scatters
    }

    fn send(&mut self, frame: &[u8], offload: Offload) {
        self.sent.push((frame.to_vec(), offload));
    }
}
