//! Packets whose payload goes from the driver's memory to the wire at once.

use super::*;

const SIZE: u64 = 400;

fn driver(scatters: bool) -> Driver<Script> {
    let mut driver = Driver::ready(Script::default());
    driver.device.wire().large = true;
    driver.device.wire().scatters = scatters;
    driver
}

impl Driver<Script> {
    /// Puts a packet to be cut at a place of its own, so that several may wait.
    fn put_large(&mut self, frame: &[u8], place: u64, pieces: usize) {
        let ip = Ip::find(frame).unwrap();
        let mut unfinished = unfinished(frame, true);
        let pseudo = fold(ip.pseudo_header(frame, 0));
        set_word(&mut unfinished, ip.payload + 16, pseudo);
        let at = Self::buffer(65) + place * BUFFER_BYTES;
        self.memory.write(at, &unfinished).unwrap();
        let payload = frame.len() - ip.payload - 20;
        let size = frame.len().div_ceil(pieces);
        for (number, piece) in unfinished.chunks(size).enumerate() {
            let is_last = (number + 1) * size >= frame.len();
            let command = 0x2230_0000 | u64::from(is_last) << 24 | u64::from(is_last) << 27;
            let options = 1 << 31 | 1 << 40 | 1 << 41;
            let words = piece.len() as u64 | command | options | (payload as u64) << 46;
            self.put([at + (number * size) as u64, words]);
        }
    }
}

/// Packets of a connection: each with so many bytes of payload, and these flags.
fn packets(parts: &[(usize, u8)]) -> Vec<Vec<u8>> {
    let (mut sequence, mut number) = (7, 9);
    let packet = |(len, flags): &(usize, u8)| {
        let mut frame = samples::tcp(false, None, sequence, &samples::bytes(*len));
        frame[47] = *flags;
        set_word(&mut frame, 18, number);
        sequence += *len as u32;
        number += len.div_ceil(SIZE as usize) as u16;
        frame
    };
    parts.iter().map(packet).collect()
}

/// What is sent when a driver gives these packets in one turn.
fn sent(scatters: bool, packets: &[Vec<u8>], pieces: usize) -> Vec<(Vec<u8>, Offload)> {
    let mut driver = driver(scatters);
    driver.put(context(false, true, SIZE));
    for (place, packet) in (0..).zip(packets) {
        driver.put_large(packet, place, pieces);
    }
    driver.ring_transmit();
    driver.poll();
    let given = (driver.tx_next + DESCRIPTORS - 1) % DESCRIPTORS;
    assert_eq!(driver.descriptor(TX_RING, given), [0, 1 << 32], "done");
    driver.assert_lawful();
    std::mem::take(&mut driver.device.wire().sent)
}

#[test]
fn what_stays_in_place_is_sent_as_what_is_copied() {
    for pieces in [1, 2, 5] {
        let packets = packets(&[(5000, 0x18)]);
        let copied = sent(false, &packets, pieces);
        assert_eq!(copied, sent(true, &packets, pieces));
        assert_eq!(copied.len(), 1);
    }
}

#[test]
fn packets_of_a_connection_are_sent_as_one() {
    let lens = |parts: &[(usize, u8)]| -> Vec<usize> {
        let packets = packets(parts);
        let sent = sent(true, &packets, 1);
        let all: Vec<u8> = sent
            .iter()
            .flat_map(|(frame, _)| frame[54..].to_vec())
            .collect();
        let expected: Vec<u8> = packets
            .iter()
            .flat_map(|frame| frame[54..].to_vec())
            .collect();
        assert_eq!(all, expected);
        for (frame, offload) in &sent {
            let ip = Ip::find(frame).unwrap();
            assert!(ip.end == frame.len() && ip.header_is_sound(frame));
            let mut completed = frame.clone();
            let (start, offset) = offload.checksum.unwrap();
            complete(&mut completed, start, offset);
            assert_eq!(ip.payload_is_sound(&completed), Some(true));
            assert_eq!(offload.segment, Some(SIZE as u16));
        }
        sent.iter().map(|(frame, _)| frame.len() - 54).collect()
    };
    assert_eq!(lens(&[(4000, 0x10), (4000, 0x10), (3999, 0x18)]), [11_999]);
    // A packet whose last segment is short ends it, and so does one that pushes.
    assert_eq!(
        lens(&[(4000, 0x10), (3999, 0x10), (4000, 0x10)]),
        [7999, 4000]
    );
    assert_eq!(lens(&[(4000, 0x18), (4000, 0x10)]), [4000, 4000]);
    assert_eq!(lens(&[(4000, 0x10), (4000, 0x90)]), [4000, 4000], "CWR");
    // No packet is longer than 64 KiB.
    assert_eq!(lens(&[(16_000, 0x10); 5]), [64_000, 16_000]);
}

#[test]
fn packets_that_do_not_follow_are_sent_alone() {
    let mut changes: Vec<fn(&mut Vec<u8>)> = Vec::new();
    changes.push(|frame| frame[19] ^= 1);
    changes.push(|frame| frame[34] ^= 1);
    changes.push(|frame| frame[41] ^= 1);
    changes.push(|frame| frame[22] ^= 1);
    changes.push(|frame| frame[6] ^= 2);
    for change in changes {
        let mut packets = packets(&[(4000, 0x10), (4000, 0x10)]);
        change(&mut packets[1]);
        assert_eq!(sent(true, &packets, 1).len(), 2);
    }
}

/// Order is kept with frames that are not cut, and descriptors are done when they were sent.
#[test]
fn other_frames_follow_what_was_before_them() {
    let mut driver = driver(true);
    let packets = packets(&[(4000, 0x10), (4000, 0x10)]);
    let small = samples::udp(false, None, &[1; 50]);
    driver.put(context(false, true, SIZE));
    driver.put_large(&packets[0], 0, 2);
    driver.put_frame(&small, 1, 0, small.len());
    // The second one's end comes later.
    driver.put_large(&packets[1], 1, 2);
    driver.write(0x6018, driver.tx_next - 1);
    driver.poll();
    let lens = |driver: &mut Driver<Script>| -> Vec<usize> {
        driver
            .device
            .wire()
            .sent
            .iter()
            .map(|(frame, _)| frame.len())
            .collect()
    };
    assert_eq!(lens(&mut driver), [4054, small.len()]);
    assert_eq!(driver.descriptor(TX_RING, 2)[1], 1 << 32);
    driver.ring_transmit();
    driver.poll();
    assert_eq!(lens(&mut driver), [4054, small.len(), 4054]);
    driver.assert_lawful();
}

#[test]
fn what_cannot_stay_in_place_is_copied() {
    // A packet of one segment, one of more pieces than are sent at once, a descriptor that is
    // written back before its packet is sent.
    let one = packets(&[(300, 0x10)]);
    assert_eq!(sent(true, &one, 2), sent(false, &one, 2));
    let mut driver = driver(true);
    let packet = &packets(&[(4000, 0x10)])[0];
    driver.put(context(false, true, SIZE));
    driver.put_large(packet, 0, 3);
    let at = TX_RING + 2 * 16 + 8;
    let words = driver.memory.load(at).unwrap();
    driver.memory.store(at, words | 1 << 27).unwrap();
    driver.ring_transmit();
    driver.poll();
    let (frame, _) = &driver.device.wire().sent[0];
    assert_eq!(frame[54..], packet[54..]);
    assert_eq!(driver.descriptor(TX_RING, 2)[1], 1 << 32);
    driver.assert_lawful();
}
