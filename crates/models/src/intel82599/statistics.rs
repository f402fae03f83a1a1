//! Statistics: counters that are cleared when they are read (datasheet, 8.2.3.23).

use super::registers::{Id, Register, many};

/// Queues with counters of their own (8.2.3.23).
pub(crate) const COUNTED_QUEUES: usize = 16;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// What this model has no cause to count.
    Never,
    /// Frames dropped since the packet buffer was full.
    Missed,
    LengthErrors,
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
    TotalTransmitted,
    GoodTransmittedBytes,
    BroadcastTransmitted,
    MulticastTransmitted,
    TransmittedBySize(u8),
    ChecksumErrors,
    QueueReceived,
    QueueReceivedBytes,
    QueueDropped,
    QueueTransmitted,
    QueueTransmittedBytes,
}

/// Which half of a counter a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Low,
    High,
}

/// The register of a counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterRegister {
    pub(crate) register: Register,
    counter: Counter,
    part: Part,
}

const fn count(
    counter: Counter,
    part: Part,
    name: &'static str,
    place: (usize, usize, usize),
) -> CounterRegister {
    CounterRegister {
        register: many(Id::Counter, name, place, [0, 0, 0], "8.2.3.23"),
        counter,
        part,
    }
}

use Counter::*;
use Part::{High, Low, Whole};

#[rustfmt::skip]
pub(crate) const COUNTERS: &[CounterRegister] = &[
    count(Never, Whole, "CRCERRS", (0x04000, 1, 4)),
    count(Never, Whole, "ILLERRC", (0x04004, 1, 4)),
    count(Never, Whole, "ERRBC", (0x04008, 1, 4)),
    count(Missed, Whole, "RXMPC", (0x03fa0, 8, 4)),
    count(Never, Whole, "MLFC", (0x04034, 1, 4)),
    count(Never, Whole, "MRFC", (0x04038, 1, 4)),
    count(LengthErrors, Whole, "RLEC", (0x04040, 1, 4)),
    count(Never, Whole, "SSVPC", (0x08780, 1, 4)),
    count(Never, Whole, "LXONRXCNT", (0x041a4, 1, 4)),
    count(Never, Whole, "LXOFFRXCNT", (0x041a8, 1, 4)),
    count(Never, Whole, "PXONRXCNT", (0x04140, 8, 4)),
    count(Never, Whole, "PXOFFRXCNT", (0x04160, 8, 4)),
    count(Never, Whole, "PXON2OFFCNT", (0x03240, 8, 4)),
    count(Never, Whole, "LXONTXC", (0x03f60, 1, 4)),
    count(Never, Whole, "LXOFFTXC", (0x03f68, 1, 4)),
    count(Never, Whole, "PXONTXC", (0x03f00, 8, 4)),
    count(Never, Whole, "PXOFFTXC", (0x03f20, 8, 4)),
    count(ReceivedBySize(0), Whole, "PRC64", (0x0405c, 1, 4)),
    count(ReceivedBySize(1), Whole, "PRC127", (0x04060, 1, 4)),
    count(ReceivedBySize(2), Whole, "PRC255", (0x04064, 1, 4)),
    count(ReceivedBySize(3), Whole, "PRC511", (0x04068, 1, 4)),
    count(ReceivedBySize(4), Whole, "PRC1023", (0x0406c, 1, 4)),
    count(ReceivedBySize(5), Whole, "PRC1522", (0x04070, 1, 4)),
    count(GoodReceived, Whole, "GPRC", (0x04074, 1, 4)),
    count(BroadcastReceived, Whole, "BPRC", (0x04078, 1, 4)),
    count(MulticastReceived, Whole, "MPRC", (0x0407c, 1, 4)),
    count(GoodReceivedBytes, Low, "GORCL", (0x04088, 1, 4)),
    count(GoodReceivedBytes, High, "GORCH", (0x0408c, 1, 4)),
    count(GoodTransmitted, Whole, "GPTC", (0x04080, 1, 4)),
    count(GoodTransmittedBytes, Low, "GOTCL", (0x04090, 1, 4)),
    count(GoodTransmittedBytes, High, "GOTCH", (0x04094, 1, 4)),
    count(Never, Whole, "RUC", (0x040a4, 1, 4)),
    count(Never, Whole, "RFC", (0x040a8, 1, 4)),
    count(Oversized, Whole, "ROC", (0x040ac, 1, 4)),
    count(Never, Whole, "RJC", (0x040b0, 1, 4)),
    count(Never, Whole, "MNGPRC", (0x040b4, 1, 4)),
    count(Never, Whole, "MNGPDC", (0x040b8, 1, 4)),
    count(TotalReceivedBytes, Low, "TORL", (0x040c0, 1, 4)),
    count(TotalReceivedBytes, High, "TORH", (0x040c4, 1, 4)),
    count(TotalReceived, Whole, "TPR", (0x040d0, 1, 4)),
    count(TotalTransmitted, Whole, "TPT", (0x040d4, 1, 4)),
    count(TransmittedBySize(0), Whole, "PTC64", (0x040d8, 1, 4)),
    count(TransmittedBySize(1), Whole, "PTC127", (0x040dc, 1, 4)),
    count(TransmittedBySize(2), Whole, "PTC255", (0x040e0, 1, 4)),
    count(TransmittedBySize(3), Whole, "PTC511", (0x040e4, 1, 4)),
    count(TransmittedBySize(4), Whole, "PTC1023", (0x040e8, 1, 4)),
    count(TransmittedBySize(5), Whole, "PTC1522", (0x040ec, 1, 4)),
    count(MulticastTransmitted, Whole, "MPTC", (0x040f0, 1, 4)),
    count(BroadcastTransmitted, Whole, "BPTC", (0x040f4, 1, 4)),
    count(Never, Whole, "MSPDC", (0x04010, 1, 4)),
    count(ChecksumErrors, Whole, "XEC", (0x04120, 1, 4)),
    count(QueueReceived, Whole, "QPRC", (0x01030, 16, 64)),
    count(QueueReceivedBytes, Low, "QBRC_L", (0x01034, 16, 64)),
    count(QueueReceivedBytes, High, "QBRC_H", (0x01038, 16, 64)),
    count(QueueDropped, Whole, "QPRDC", (0x01430, 16, 64)),
    count(QueueTransmitted, Whole, "QPTC", (0x08680, 16, 4)),
    count(QueueTransmittedBytes, Low, "QBTC_L", (0x08700, 16, 8)),
    count(QueueTransmittedBytes, High, "QBTC_H", (0x08704, 16, 8)),
    count(Never, Whole, "RXNFGPC", (0x041b0, 1, 4)),
    count(Never, Low, "RXNFGBCL", (0x041b4, 1, 4)),
    count(Never, High, "RXNFGBCH", (0x041b8, 1, 4)),
    count(Never, Whole, "FCCRC", (0x05118, 1, 4)),
    count(Never, Whole, "FCOERPDC", (0x0241c, 1, 4)),
    count(Never, Whole, "FCLAST", (0x02424, 1, 4)),
    count(Never, Whole, "FCOEPRC", (0x02428, 1, 4)),
    count(Never, Whole, "FCOEDWRC", (0x0242c, 1, 4)),
    count(Never, Whole, "FCOEPTC", (0x08784, 1, 4)),
    count(Never, Whole, "FCOEDWTC", (0x08788, 1, 4)),
    count(Never, Whole, "RXDGPC", (0x02f50, 1, 4)),
    count(Never, Low, "RXDGBCL", (0x02f54, 1, 4)),
    count(Never, High, "RXDGBCH", (0x02f58, 1, 4)),
    count(Never, Whole, "RXDDPC", (0x02f5c, 9, 4)),
    count(Never, Whole, "TXDGPC", (0x087a0, 1, 4)),
    count(Never, Low, "TXDGBCL", (0x087a4, 1, 4)),
    count(Never, High, "TXDGBCH", (0x087a8, 1, 4)),
];

/// What was counted since it was read last.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) missed: u64,
    pub(crate) length_errors: u64,
    pub(crate) oversized: u64,
    pub(crate) checksum_errors: u64,
    pub(crate) received: Traffic,
    pub(crate) total_received: u64,
    pub(crate) total_received_bytes: u64,
    pub(crate) transmitted: Traffic,
    pub(crate) total_transmitted: u64,
    pub(crate) rx_queues: [QueueTraffic; COUNTED_QUEUES],
    pub(crate) tx_queues: [QueueTraffic; COUNTED_QUEUES],
}

/// Frames in one direction; bytes include the frame check sequence.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    frames: u64,
    bytes: u64,
    broadcast: u64,
    multicast: u64,
    by_size: [u64; 6],
}

/// Frames of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueTraffic {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) dropped: u64,
}

/// Bytes of the frame check sequence.
pub(crate) const CHECK_BYTES: usize = 4;

impl Traffic {
    /// Counts `times` frames that begin like this one and have `len` bytes, without their check
    /// sequence.
    #[inline]
    pub(crate) fn count(&mut self, frame: &[u8], len: usize, times: u64) {
        let bytes = (len + CHECK_BYTES) as u64;
        self.frames += times;
        self.bytes += times * bytes;
        let class = match bytes {
            ..=64 => 0,
            65..=127 => 1,
            128..=255 => 2,
            256..=511 => 3,
            512..=1023 => 4,
            _ => 5,
        };
        self.by_size[class] += times;
        match frame.first_chunk::<6>() {
            Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => self.broadcast += times,
            Some([first, ..]) if first & 1 != 0 => self.multicast += times,
            _ => {}
        }
    }
}

impl Statistics {
    /// Reads the register of a counter, and clears what was read.
    pub(crate) fn read(&mut self, offset: usize) -> u32 {
        let found = COUNTERS.iter().find_map(|counter| {
            let register = counter.register;
            let distance = offset.checked_sub(register.offset)?;
            let index = distance / register.stride;
            (distance % register.stride == 0 && index < register.count).then_some((counter, index))
        });
        let Some((counter, index)) = found else {
            return 0;
        };
        let Some(value) = self.place(counter.counter, index) else {
            return 0;
        };
        let read = match counter.part {
            Whole => *value,
            Low => *value & 0xffff_ffff,
            High => *value >> 32,
        };
        match counter.part {
            Whole => *value = 0,
            Low => *value &= !0xffff_ffff,
            High => *value &= 0xffff_ffff,
        }
        // Counters of 32 bits stick at their highest value.
        read.min(u64::from(u32::MAX)) as u32
    }

    fn place(&mut self, counter: Counter, index: usize) -> Option<&mut u64> {
        Some(match counter {
            Never => return None,
            // All frames go through the first packet buffer.
            Missed if index > 0 => return None,
            Missed => &mut self.missed,
            LengthErrors => &mut self.length_errors,
            Oversized => &mut self.oversized,
            ChecksumErrors => &mut self.checksum_errors,
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
        statistics.received.count(&[0xff; 60], 60, 3);
        statistics.received.count(&[1; 60], 1514, 1 << 32);
        assert_eq!([statistics.read(0x405c), statistics.read(0x405c)], [3, 0]);
        assert_eq!([statistics.read(0x4078), statistics.read(0x4078)], [3, 0]);
        assert_eq!(statistics.read(0x4070), u32::MAX);
        assert_eq!(
            [statistics.read(0x4088), statistics.read(0x408c)],
            [3 * 64, 1518]
        );
        assert_eq!([statistics.read(0x4088), statistics.read(0x408c)], [0, 0]);
        statistics.rx_queues[15].dropped = 9;
        assert_eq!(
            [
                statistics.read(0x1430 + 0x3c0),
                statistics.read(0x1430 + 0x3c0)
            ],
            [9, 0]
        );
    }
}
