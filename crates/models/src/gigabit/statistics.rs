//! Statistics: counters that are cleared when they are read (82574, 10.2.7; 82540, 13.7).

use crate::traffic::Traffic;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// What this model has no cause to count.
    Never,
    Oversized,
    GoodReceived,
    GoodReceivedBytes,
    BroadcastReceived,
    MulticastReceived,
    TotalReceived,
    TotalReceivedBytes,
    /// By size: 64, to 127, to 255, to 511, to 1023, larger.
    ReceivedBySize(u8),
    GoodTransmitted,
    GoodTransmittedBytes,
    TotalTransmitted,
    TotalTransmittedBytes,
    BroadcastTransmitted,
    MulticastTransmitted,
    TransmittedBySize(u8),
    /// Packets that were cut into segments.
    Segmented,
}

/// What of a counter a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Whole,
    Low,
    High,
}

/// What was counted since it was read last.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) oversized: u64,
    pub(crate) received: Traffic,
    pub(crate) total_received: u64,
    pub(crate) total_received_bytes: u64,
    pub(crate) transmitted: Traffic,
    pub(crate) total_transmitted: u64,
    pub(crate) total_transmitted_bytes: u64,
    pub(crate) segmented: u64,
}

impl Statistics {
    /// Reads a register of a counter. Of one with two halves, reading the upper one clears it.
    pub(crate) fn read(&mut self, counter: Counter, half: Half) -> u32 {
        let Some(value) = self.place(counter) else {
            return 0;
        };
        let read = match half {
            Half::Whole => *value,
            Half::Low => *value & 0xffff_ffff,
            Half::High => *value >> 32,
        };
        if half != Half::Low {
            *value = 0;
        }
        // Counters of 32 bits stick at their highest value.
        read.min(u64::from(u32::MAX)) as u32
    }

    fn place(&mut self, counter: Counter) -> Option<&mut u64> {
        use Counter::*;
        Some(match counter {
            Never => return None,
            Oversized => &mut self.oversized,
            GoodReceived => &mut self.received.frames,
            GoodReceivedBytes => &mut self.received.bytes,
            BroadcastReceived => &mut self.received.broadcast,
            MulticastReceived => &mut self.received.multicast,
            ReceivedBySize(class) => &mut self.received.by_size[usize::from(class)],
            TotalReceived => &mut self.total_received,
            TotalReceivedBytes => &mut self.total_received_bytes,
            GoodTransmitted => &mut self.transmitted.frames,
            GoodTransmittedBytes => &mut self.transmitted.bytes,
            TotalTransmitted => &mut self.total_transmitted,
            TotalTransmittedBytes => &mut self.total_transmitted_bytes,
            BroadcastTransmitted => &mut self.transmitted.broadcast,
            MulticastTransmitted => &mut self.transmitted.multicast,
            TransmittedBySize(class) => &mut self.transmitted.by_size[usize::from(class)],
            Segmented => &mut self.segmented,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_cleared_when_they_are_read() {
        let mut statistics = Statistics::default();
        statistics.received.count(&[0xff; 60], 60, 3);
        statistics.received.count(&[1; 60], 1514, 1 << 32);
        let mut read = |counter, half| statistics.read(counter, half);
        use Half::{High, Low, Whole};
        let size = Counter::ReceivedBySize;
        assert_eq!([read(size(0), Whole), read(size(0), Whole)], [3, 0]);
        assert_eq!([read(size(5), Whole), read(size(5), Whole)], [u32::MAX, 0]);
        let bytes = Counter::GoodReceivedBytes;
        assert_eq!([read(bytes, Low), read(bytes, Low)], [3 * 64; 2]);
        assert_eq!([read(bytes, High), read(bytes, Low)], [1518, 0]);
    }
}
