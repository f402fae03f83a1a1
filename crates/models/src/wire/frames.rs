//! Frames as a card knows them that cuts none on their way in: what comes in over a wire that
//! carries large frames is cut here, as its sender would have cut it; and what a driver wants
//! segmented goes out whole where the wire takes that.

use super::{Offload, Wire};
use crate::packet::complete;
use crate::packet::headers::{FRAME_MIN, IP_BYTES_MAX};
use crate::packet::segment::Plan;

/// Frames that come in, one by one.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// The frame that comes next, unless there is none.
    next: Vec<u8>,
    ready: bool,
    /// Its checksums are known to be right.
    sound: bool,
    /// A large frame, how it is cut, and how many segments of it came.
    large: Vec<u8>,
    plan: Option<Plan>,
    cut: usize,
}

impl Frames {
    /// The next frame and whether its checksums are known to be right; the same until it is
    /// [taken](Self::take).
    pub(crate) fn peek(&mut self, wire: &mut impl Wire) -> Option<(&[u8], bool)> {
        if !self.ready && !self.cut_next() {
            let (frame, offload) = wire.peek()?;
            match offload.segment.and_then(|size| Plan::read(frame, size)) {
                Some(plan) => {
                    self.large.clear();
                    self.large.extend_from_slice(frame);
                    (self.plan, self.cut) = (Some(plan), 0);
                    wire.take();
                    self.cut_next();
                }
                None => {
                    self.next.clear();
                    self.next.extend_from_slice(frame);
                    self.sound = offload.checksum.is_some();
                    if let Some((start, offset)) = offload.checksum {
                        complete(&mut self.next, start, offset);
                    }
                    self.ready = true;
                    wire.take();
                }
            }
            if self.next.len() < FRAME_MIN {
                self.next.resize(FRAME_MIN, 0);
            }
        }
        self.ready.then_some((&self.next, self.sound))
    }

    /// The next frame is done with.
    pub(crate) fn take(&mut self) {
        self.ready = false;
    }

    /// Forgets what has not been taken.
    pub(crate) fn clear(&mut self) {
        (self.ready, self.plan) = (false, None);
    }

    /// Makes the next segment of the large frame, if there is one.
    fn cut_next(&mut self) -> bool {
        let Some(plan) = self.plan else {
            return false;
        };
        if !plan.write(&self.large, self.cut, &mut self.next) {
            self.plan = None;
            return false;
        }
        if self.next.len() < FRAME_MIN {
            self.next.resize(FRAME_MIN, 0);
        }
        self.cut += 1;
        (self.ready, self.sound) = (true, true);
        true
    }
}

/// Sends a packet that is to be cut, whole if the wire takes it so. `count` is told of the frames
/// that it makes: how they begin, how long they are, and how many of this length there are.
pub(crate) fn send_segments(
    plan: &Plan,
    frame: &mut [u8],
    segment: &mut Vec<u8>,
    wire: &mut impl Wire,
    mut count: impl FnMut(&[u8], usize, u64),
) {
    let (bytes, segments) = (frame.len(), plan.count(frame.len()));
    if segments > 1 && wire.takes_large_frames() && bytes - plan.ip.start <= IP_BYTES_MAX {
        count(frame, plan.header + plan.size, segments as u64 - 1);
        count(frame, bytes - (segments - 1) * plan.size, 1);
        let offload = plan.leave_to_wire(frame, bytes);
        wire.send(frame, offload);
        return;
    }
    for index in 0..segments {
        plan.write(frame, index, segment);
        if segment.len() < FRAME_MIN {
            segment.resize(FRAME_MIN, 0);
        }
        count(segment, segment.len(), 1);
        wire.send(segment, Offload::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::headers::Ip;
    use crate::packet::samples;
    use crate::wire::script::Script;

    #[test]
    fn large_frames_come_in_cut_and_short_ones_padded() {
        let mut large = samples::tcp(false, None, 1, &samples::bytes(2500));
        let plan = Plan::read(&large, 1000).unwrap();
        let bytes = large.len();
        let offload = plan.leave_to_wire(&mut large, bytes);
        let mut wire = Script::default();
        wire.incoming.push_back((large, offload));
        wire.incoming.push_back((vec![1; 20], Offload::default()));
        let mut frames = Frames::default();
        let mut lengths = Vec::new();
        while let Some((frame, sound)) = frames.peek(&mut wire) {
            let (frame, again) = (frame.to_vec(), sound);
            assert_eq!(frames.peek(&mut wire), Some((&frame[..], again)));
            if let Some(ip) = Ip::find(&frame) {
                assert!(sound && ip.header_is_sound(&frame));
                assert_eq!(ip.payload_is_sound(&frame), Some(true));
            }
            lengths.push(frame.len());
            frames.take();
        }
        assert_eq!(lengths, [1054, 1054, 554, FRAME_MIN]);
    }

    #[test]
    fn a_checksum_that_was_left_to_do_is_completed() {
        let mut frame = samples::udp(false, None, &samples::bytes(100));
        let ip = Ip::find(&frame).unwrap();
        let pseudo = crate::packet::checksum::fold(ip.pseudo_header(&frame, 108));
        crate::packet::checksum::set_word(&mut frame, ip.payload + 6, pseudo);
        let checksum = Some((ip.payload as u16, 6));
        let mut wire = Script::default();
        let segment = None;
        wire.incoming
            .push_back((frame, Offload { checksum, segment }));
        let mut frames = Frames::default();
        let (frame, sound) = frames.peek(&mut wire).unwrap();
        assert_eq!((sound, ip.payload_is_sound(frame)), (true, Some(true)));
        frames.clear();
        assert!(frames.peek(&mut wire).is_none());
    }

    #[test]
    fn segments_go_out_whole_or_cut_and_count_the_same() {
        for large in [false, true] {
            let mut frame = samples::tcp(true, None, 1, &samples::bytes(2100));
            let plan = Plan::read(&frame, 1000).unwrap();
            let mut wire = Script {
                large,
                ..Script::default()
            };
            let mut counted = 0;
            let count = |_: &[u8], len: usize, times| counted += len as u64 * times;
            send_segments(&plan, &mut frame, &mut Vec::new(), &mut wire, count);
            assert_eq!(wire.sent.len(), if large { 1 } else { 3 });
            assert_eq!(counted, 3 * 74 + 2100);
        }
    }
}
