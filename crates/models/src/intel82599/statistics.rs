//! Statistics: counters that are cleared when they are read (datasheet, 8.2.3.23).

use super::registers::{Counter, Half};
use crate::traffic::Traffic;

/// Queues with counters of their own (8.2.3.23).
pub(crate) const COUNTED_QUEUES: usize = 16;

/// What was counted since it was read last.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) missed: u64,
    pub(crate) length_errors: u64,
    pub(crate) oversized: u64,
    pub(crate) checksum_errors: u64,
    pub(crate) flow_matched: u64,
    pub(crate) flow_missed: u64,
    pub(crate) received: Traffic,
    pub(crate) total_received: u64,
    pub(crate) total_received_bytes: u64,
    pub(crate) transmitted: Traffic,
    pub(crate) total_transmitted: u64,
    pub(crate) rx_queues: [QueueTraffic; COUNTED_QUEUES],
    pub(crate) tx_queues: [QueueTraffic; COUNTED_QUEUES],
}

/// Frames of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueTraffic {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) dropped: u64,
}

impl Statistics {
    /// Reads a register of a counter, and clears what was read; of counters of queues, `index` says
    /// which.
    pub(crate) fn read(&mut self, counter: Counter, half: Half, index: usize) -> u32 {
        let Some(value) = self.place(counter, index) else {
            return 0;
        };
        let read = match half {
            Half::Whole => *value,
            Half::Low => *value & 0xffff_ffff,
            Half::High => *value >> 32,
        };
        match half {
            Half::Whole => *value = 0,
            Half::Low => *value &= !0xffff_ffff,
            Half::High => *value &= 0xffff_ffff,
        }
        // Counters of 32 bits stick at their highest value.
        read.min(u64::from(u32::MAX)) as u32
    }

    fn place(&mut self, counter: Counter, index: usize) -> Option<&mut u64> {
        use Counter::*;
        Some(match counter {
            Never => return None,
            // All frames go through the first packet buffer.
            Missed if index > 0 => return None,
            Missed => &mut self.missed,
            LengthErrors => &mut self.length_errors,
            Oversized => &mut self.oversized,
            ChecksumErrors => &mut self.checksum_errors,
            FlowMatched => &mut self.flow_matched,
            FlowMissed => &mut self.flow_missed,
            GoodReceived => &mut self.received.frames,
            GoodReceivedBytes => &mut self.received.bytes,
            BroadcastReceived => &mut self.received.broadcast,
            MulticastReceived => &mut self.received.multicast,
            ReceivedBySize(class) => &mut self.received.by_size[usize::from(class)],
            TotalReceived => &mut self.total_received,
            TotalReceivedBytes => &mut self.total_received_bytes,
            GoodTransmitted => &mut self.transmitted.frames,
            TotalTransmitted => &mut self.total_transmitted,
            GoodTransmittedBytes => &mut self.transmitted.bytes,
            BroadcastTransmitted => &mut self.transmitted.broadcast,
            MulticastTransmitted => &mut self.transmitted.multicast,
            TransmittedBySize(class) => &mut self.transmitted.by_size[usize::from(class)],
            QueueReceived => &mut self.rx_queues[index].frames,
            QueueReceivedBytes => &mut self.rx_queues[index].bytes,
            QueueDropped => &mut self.rx_queues[index].dropped,
            QueueTransmitted => &mut self.tx_queues[index].frames,
            QueueTransmittedBytes => &mut self.tx_queues[index].bytes,
        })
    }
}

/// The counters of a queue (8.2.3.23, RQSMR and TQSM: four queues to a register).
pub(crate) fn counters_of(queue: usize, map: u32) -> usize {
    (map >> (8 * (queue & 3))) as usize & (COUNTED_QUEUES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_cleared_when_they_are_read() {
        let mut statistics = Statistics::default();
        statistics.rx_queues[15].dropped = 9;
        statistics.received.count(&[0xff; 60], 60, 3);
        statistics.received.count(&[1; 60], 1514, 1 << 32);
        let mut twice = |counter, half, index| {
            let mut read = || statistics.read(counter, half, index);
            [read(), read()]
        };
        use Half::{High, Low, Whole};
        assert_eq!(twice(Counter::ReceivedBySize(0), Whole, 0), [3, 0]);
        assert_eq!(twice(Counter::BroadcastReceived, Whole, 0), [3, 0]);
        assert_eq!(twice(Counter::ReceivedBySize(5), Whole, 0), [u32::MAX, 0]);
        assert_eq!(twice(Counter::GoodReceivedBytes, Low, 0), [3 * 64, 0]);
        assert_eq!(twice(Counter::GoodReceivedBytes, High, 0), [1518, 0]);
        assert_eq!(twice(Counter::QueueDropped, Whole, 15), [9, 0]);
    }
}
