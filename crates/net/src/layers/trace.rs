//! A port that tells what crosses it, as blocks of a capture in the format pcapng: for tests and
//! simulations, whose images nobody can capture from outside.
//!
//! Frames are recorded as they cross the port, whole: one that the port is to cut is one frame, and
//! its checksum may be open. Over [`super::faults`] the trace shows what the stack has sent, and
//! under it what has come through.

use crate::pcapng::{Blocks, Packet};
use alloc::boxed::Box;
use device::{Batch, Frame, Netif, Offloads, WaitHandle};
use ports::Instant;

/// Who has made a capture.
const APPLICATION: &str = concat!("net ", env!("CARGO_PKG_VERSION"));
/// Bytes of a frame that are recorded at most, as a capture says it: no limit.
const SNAP: u32 = 0;

/// A port whose frames are recorded.
pub struct Trace<C, T> {
    port: Box<dyn Netif>,
    clock: C,
    take: T,
    blocks: Blocks,
}

impl<C: Fn() -> Instant, T: FnMut(&[u8])> Trace<C, T> {
    /// Records what crosses `port`, at the time that `clock` tells. `take` is given one block after
    /// another, which make a capture as they are; how many it keeps is its own business. The first
    /// two are the header of the capture.
    pub fn new(port: Box<dyn Netif>, clock: C, mut take: T) -> Self {
        let mut blocks = Blocks::default();
        take(blocks.section(APPLICATION));
        take(blocks.interface(port.name(), SNAP));
        Self {
            port,
            clock,
            take,
            blocks,
        }
    }

    fn record<'a>(&mut self, frames: impl Iterator<Item = &'a Frame>, outbound: bool) {
        let time = (self.clock)().0;
        for frame in frames {
            let bytes = frame.bytes();
            (self.take)(self.blocks.packet(&Packet {
                time,
                outbound,
                length: bytes.len() as u32,
                bytes,
                comment: "",
            }));
        }
    }
}

impl<C: Fn() -> Instant, T: FnMut(&[u8])> Netif for Trace<C, T> {
    fn name(&self) -> &str {
        self.port.name()
    }

    fn mac(&self) -> [u8; 6] {
        self.port.mac()
    }

    fn mtu(&self) -> usize {
        self.port.mtu()
    }

    fn offloads(&self) -> Offloads {
        self.port.offloads()
    }

    fn max_frame(&self) -> usize {
        self.port.max_frame()
    }

    fn alloc(&mut self, len: usize) -> Option<Frame> {
        self.port.alloc(len)
    }

    fn receive(&mut self, batch: &mut Batch) {
        let before = batch.len();
        self.port.receive(batch);
        self.record(batch.iter().skip(before), false);
    }

    fn transmit(&mut self, batch: &mut Batch) {
        self.record(batch.iter(), true);
        self.port.transmit(batch);
    }

    fn wait_handle(&self) -> WaitHandle {
        self.port.wait_handle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, at};
    use alloc::rc::Rc;
    use alloc::vec;
    use alloc::vec::Vec;
    use core::cell::RefCell;
    use pcap_parser::traits::PcapReaderIterator;
    use pcap_parser::{Block, OptionCode, PcapBlockOwned, PcapNGReader};

    /// Time, whether it was sent, and the bytes of each packet of a capture.
    fn read(capture: &[u8]) -> Vec<(u64, bool, Vec<u8>)> {
        let mut reader = PcapNGReader::new(1 << 17, capture).unwrap();
        let mut packets = Vec::new();
        while let Ok((offset, block)) = reader.next() {
            if let PcapBlockOwned::NG(Block::EnhancedPacket(packet)) = block {
                let time = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                let is_flags = |code| code == OptionCode(2);
                let mut options = packet.options.iter();
                let flags = options.find(|option| is_flags(option.code)).unwrap();
                let bytes = packet.data[..packet.caplen as usize].to_vec();
                packets.push((time, flags.value[0] == 2, bytes));
            }
            reader.consume(offset);
        }
        packets
    }

    #[test]
    fn another_parser_reads_both_directions() {
        let (port, wire) = testing::port();
        let capture = Rc::new(RefCell::new(Vec::new()));
        let kept = capture.clone();
        let take = move |block: &[u8]| kept.borrow_mut().extend_from_slice(block);
        let mut trace = Trace::new(Box::new(port), || at(7), take);
        wire.arrives(&[1; 61]);
        let mut batch = Batch::new();
        batch.push(testing::frame(&[9; 60])).unwrap();
        trace.receive(&mut batch);
        assert_eq!(batch.len(), 2, "one was there before, and did not cross");
        trace.transmit(&mut batch);
        assert_eq!(wire.sent(), [vec![9; 60], vec![1; 61]]);
        let expected = [
            (at(7).0, false, vec![1; 61]),
            (at(7).0, true, vec![9; 60]),
            (at(7).0, true, vec![1; 61]),
        ];
        assert_eq!(read(&capture.borrow()), expected);
    }
}
