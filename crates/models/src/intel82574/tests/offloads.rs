//! What is left to the device.

use super::*;
use crate::packet::checksum::{fold, set_word};
use crate::packet::complete;
use crate::packet::headers::Ip;

/// A sample as a driver hands it over for checksums to be inserted.
fn unfinished(frame: &[u8], tcp: bool, whole: bool) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let ip = Ip::find(&frame).unwrap();
    let len = if whole { ip.end - ip.payload } else { 0 };
    let pseudo = fold(ip.pseudo_header(&frame, len));
    set_word(&mut frame, ip.payload + if tcp { 16 } else { 6 }, pseudo);
    if !ip.v6 {
        set_word(&mut frame, ip.start + 10, 0);
    }
    frame
}

/// A context for a sample.
fn context(v6: bool, tcp: bool, segment: Option<(u64, u64)>) -> [u64; 2] {
    let payload = if v6 { 54 } else { 34 };
    let field = payload + if tcp { 16 } else { 6 };
    let ip = if v6 { 14 } else { 14 | 24 << 8 | 33 << 16 };
    let commands = u64::from(tcp) << 24 | u64::from(!v6) << 25;
    let cut = segment.map_or(0, |(mss, len)| {
        1 << 26 | len | (payload + 20) << 40 | mss << 48
    });
    [
        ip | payload << 32 | field << 40,
        0x2000_0000 | commands | cut,
    ]
}

#[test]
fn checksums_are_inserted() {
    let mut driver = Driver::ready(Script::default());
    for (v6, tcp) in [(false, false), (false, true), (true, false), (true, true)] {
        let frame = match tcp {
            true => samples::tcp(v6, None, 9, &samples::bytes(333)),
            false => samples::udp(v6, None, &samples::bytes(333)),
        };
        driver.put(context(v6, tcp, None));
        let options = u64::from(!v6) << 40 | 1 << 41;
        driver.put_frame(&unfinished(&frame, tcp, true), 3, options);
        driver.ring_transmit();
        driver.poll();
        assert_eq!(driver.device.wire().sent.pop().unwrap().0, frame);
    }
    driver.assert_lawful();
}

#[test]
fn a_legacy_descriptor_has_one_checksum() {
    let mut driver = Driver::ready(Script::default());
    let frame = samples::tcp(false, None, 9, &samples::bytes(100));
    let mut partial = unfinished(&frame, true, true);
    partial[24..26].copy_from_slice(&frame[24..26]);
    let at = Driver::<Script>::buffer(64);
    driver.memory.write(at, &partial).unwrap();
    // CSS 34, CSO 50; EOP, IFCS, IC and RS.
    driver.put([at, 34 << 40 | 0x0f32_0000 | frame.len() as u64]);
    driver.ring_transmit();
    driver.poll();
    assert_eq!(driver.device.wire().sent.pop().unwrap().0, frame);
    let [address, word] = driver.descriptor(TX_RING, 0);
    assert_eq!((address, word >> 32 & 0xff), (at, 1));
    driver.assert_lawful();
}

#[test]
fn large_packets_are_cut_or_left_whole_for_a_wire_that_takes_them() {
    for v6 in [false, true] {
        let mut driver = Driver::ready(Script::default());
        let payload = samples::bytes(5000);
        let whole = samples::tcp(v6, None, 77, &payload);
        let frame = unfinished(&whole, true, false);
        let header = if v6 { 74 } else { 54 };
        for large in [false, true] {
            driver.device.wire().large = large;
            driver.put(context(v6, true, Some((1400, 5000))));
            let options = 1 << 26 | u64::from(!v6) << 40 | 1 << 41;
            driver.put_frame(&frame, 3, options);
            driver.ring_transmit();
            driver.poll();
            let sent = std::mem::take(&mut driver.device.wire().sent);
            let counted = [0x4080, 0x4090, 0x4094, 0x40f8].map(|at| driver.read(at));
            assert_eq!(counted, [4, 5000 + 4 * (header as u32 + 4), 0, 1]);
            if large {
                let mut completed = sent[0].0.clone();
                let (start, offset) = sent[0].1.checksum.unwrap();
                complete(&mut completed, start, offset);
                assert_eq!((sent.len(), sent[0].1.segment), (1, Some(1400)));
                assert_eq!(completed, whole);
                continue;
            }
            let parts = sent.iter().flat_map(|(s, _)| s[header..].to_vec());
            assert_eq!((sent.len(), parts.collect()), (4, payload.clone()));
            for (segment, _) in &sent {
                let ip = Ip::find(segment).unwrap();
                assert!(ip.header_is_sound(segment));
                assert_eq!(ip.payload_is_sound(segment), Some(true));
            }
        }
        driver.assert_lawful();
    }
}

#[test]
fn what_is_to_be_cut_must_be_as_the_context_says() {
    let payload = samples::bytes(3000);
    let frame = unfinished(&samples::tcp(false, None, 7, &payload), true, false);
    let good = context(false, true, Some((1400, 3000)));
    let options = 1 << 26 | 3 << 40;
    let send = |context: [u64; 2], options: u64| {
        let mut driver = Driver::ready(Script::default());
        driver.put(context);
        driver.put_frame(&frame, 1, options);
        driver.ring_transmit();
        driver.poll();
        (driver.violations(), driver.device.wire().sent.len())
    };
    assert_eq!(send(good, options), (vec![], 3));
    let wrong = [
        [good[0] + 1, good[1]],
        [good[0] + (1 << 8), good[1]],
        [good[0] + (1 << 40), good[1]],
        [good[0], good[1] + 1],
        [good[0], good[1] ^ 1 << 24],
        [good[0], good[1] ^ 1 << 25],
        [good[0], good[1] & !(0xffff << 48)],
        [good[0], good[1] & !(0xff << 40)],
    ];
    for context in wrong {
        assert_eq!(send(context, options), (vec!["packet"], 0), "{context:x?}");
    }
    assert_eq!(send(good, 1 << 26 | 1 << 40), (vec!["packet"], 0));
    // A context of the other kind is another one.
    assert_eq!(send(context(false, true, None), options).1, 0);
}

#[test]
fn a_packet_with_cwr_is_cut_here() {
    let mut driver = Driver::ready(Script::default());
    driver.device.wire().large = true;
    let mut frame = samples::tcp(false, None, 7, &samples::bytes(3000));
    frame[47] |= 0x80;
    let frame = unfinished(&frame, true, false);
    driver.put(context(false, true, Some((1400, 3000))));
    driver.put_frame(&frame, 1, 1 << 26 | 3 << 40);
    driver.ring_transmit();
    driver.poll();
    let sent = &driver.device.wire().sent;
    assert_eq!(sent.len(), 3);
    assert!(sent.iter().all(|(segment, _)| segment[47] & 0x80 != 0));
    driver.assert_lawful();
}

#[test]
fn large_frames_of_the_wire_arrive_as_segments_even_with_few_descriptors() {
    let mut driver = Driver::ready(Script::default());
    let payload = samples::bytes(20_000);
    let partial = unfinished(&samples::tcp(false, None, 5, &payload), true, true);
    let offload = Offload {
        checksum: Some((34, 16)),
        segment: Some(1460),
    };
    driver.device.wire().incoming.push_back((partial, offload));
    let mut received = Vec::new();
    for _ in 0..10 {
        driver.poll();
        while let Some((bytes, words)) = driver.receive_buffer() {
            assert_eq!(words[1] & 0xffff_ffff, 0x63);
            let ip = Ip::find(&bytes).unwrap();
            assert_eq!(ip.payload_is_sound(&bytes), Some(true));
            received.extend_from_slice(&bytes[54..]);
        }
    }
    assert_eq!(received, payload);
    driver.assert_lawful();
}

#[test]
fn hashes_choose_the_queue_and_are_told() {
    let mut driver = Driver::ready(Loop::new());
    driver.write(0x5000, 1 << 13);
    (0..10).for_each(|word| driver.write(0x5c80 + 4 * word, 0x0101_0101 * word as u32 + 7));
    driver.write(0x5818, 1 << 16 | 1);
    let frame = samples::tcp(false, None, 5, &[3; 200]);
    driver.transmit(&frame);
    (0..2).for_each(|_| _ = driver.poll());
    let (_, words) = driver.receive_buffer().unwrap();
    assert_eq!(words[0] as u32, 1, "TCP over IPv4, in the first queue");
    assert_ne!(words[0] >> 32, 0);
    // All go to the second one now, which has no ring.
    (0..32).for_each(|entry| driver.write(0x5c00 + 4 * entry, 0x8080_8080));
    driver.transmit(&frame);
    (0..2).for_each(|_| _ = driver.poll());
    assert!(driver.receive_buffer().is_none());
    driver.assert_lawful();
}
