//! Segments that are received as one packet (datasheet, 7.11).

use super::*;
use crate::packet::checksum::word;

const SIZE: u16 = 400;
/// Segments that a buffer has room for.
const MOST: usize = 4;
const PSH: u8 = 8;

impl Driver<Script> {
    /// 4.6.7.2: a driver that has segments joined.
    fn coalescing(how: &str) -> Self {
        let mut driver = Self::misbehaving(Script::default(), how);
        driver.split |= 2 << 8;
        driver.reset();
        driver.write(0xea00, 1 << 4);
        driver.write(0x102c, 1);
        driver.start_receive();
        driver.start_transmit();
        driver.start_interrupts();
        driver.write(0x820, 4 << 3);
        driver.poll();
        driver.wait(0x42a4, 1 << 30);
        driver
    }

    /// Lets a large frame come in.
    fn large(&mut self, frame: &[u8]) {
        let offload = Offload {
            checksum: Some((34, 16)),
            segment: Some(SIZE),
        };
        self.device
            .wire()
            .incoming
            .push_back((frame.to_vec(), offload));
    }

    /// All that is received now, with how many segments each packet is said to be.
    fn receive_all(&mut self) -> Vec<(Vec<u8>, u64)> {
        let mut all = Vec::new();
        for _ in 0..20 {
            self.poll();
            while let Some((bytes, words)) = self.receive_buffer() {
                assert_eq!(words[1] & 0x23, 0x23, "done, whole, checked");
                let joined = words[0] >> 17 & 0xf;
                all.push((bytes, joined.max(2) - 1));
            }
        }
        all
    }
}

/// A frame of so many segments whose flags are these, with these options.
fn frame(v6: bool, tag: Option<u16>, segments: usize, flags: u8, options: &[u8]) -> Vec<u8> {
    let payload = samples::bytes(segments * usize::from(SIZE) - 10);
    let mut frame = samples::tcp(v6, tag, u32::MAX - 700, &[options, &payload].concat());
    let tcp = Ip::find(&frame).unwrap().payload;
    frame[tcp + 12] += (options.len() as u8 / 4) << 4;
    frame[tcp + 13] = flags;
    frame
}

const TIMESTAMP: [u8; 12] = [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8];

#[test]
fn joined_packets_are_the_frame_in_pieces() {
    for (tag, segments) in [(None, 45), (Some(7), 10)] {
        let mut driver = Driver::coalescing("");
        let whole = frame(false, tag, segments, 0x10 | PSH, &TIMESTAMP);
        let header = Ip::find(&whole).unwrap().payload + 32;
        driver.large(&whole);
        let received = driver.receive_all();
        assert_eq!(received.len(), segments.div_ceil(MOST));
        let (mut payload, mut before) = (Vec::new(), 0u16);
        for (number, (packet, joined)) in received.iter().enumerate() {
            let ip = Ip::find(packet).unwrap();
            assert!(ip.header_is_sound(packet) && ip.end == packet.len());
            let expected = packet[header..].len().div_ceil(usize::from(SIZE));
            assert_eq!(*joined, expected as u64);
            let sequence: [u8; 4] = packet[ip.payload + 4..ip.payload + 8].try_into().unwrap();
            let expected = (u32::MAX - 700).wrapping_add(payload.len() as u32);
            assert_eq!(u32::from_be_bytes(sequence), expected);
            let is_last = number + 1 == received.len();
            assert_eq!(packet[ip.payload + 13] & PSH != 0, is_last);
            assert_eq!(word(packet, ip.start + 4), Some(9 + before));
            before += *joined as u16;
            payload.extend_from_slice(&packet[header..]);
        }
        assert_eq!(payload, whole[header..]);
        // Counters count what came, not what was made of it.
        let bytes = segments * (header + 4) + payload.len();
        assert_eq!(
            (
                driver.read(0x4074),
                driver.read(0x1030),
                driver.read(0x4088)
            ),
            (segments as u32, segments as u32, bytes as u32)
        );
        driver.assert_lawful();
    }
}

/// 7.11: what is of one packet's concern stays with that one.
#[test]
fn only_what_all_segments_share_is_joined() {
    let of = |frame: &[u8], prepare: fn(&mut Driver<Script>)| {
        let mut driver = Driver::coalescing("");
        prepare(&mut driver);
        driver.large(frame);
        let received = driver.receive_all();
        for (packet, joined) in &received {
            let ip = Ip::find(packet).unwrap();
            let is_alone = *joined == 1;
            assert!(!is_alone || ip.payload_is_sound(packet) == Some(true));
        }
        received
            .iter()
            .map(|(_, joined)| *joined)
            .collect::<Vec<_>>()
    };
    let counts = |flags, options: &[u8], prepare: fn(&mut Driver<Script>)| {
        of(&frame(false, None, 8, flags, options), prepare)
    };
    let nothing = |_: &mut Driver<Script>| {};
    let alone = vec![1; 8];
    assert_eq!(counts(0x10, &[], nothing), [4, 4]);
    assert_eq!(counts(0x90, &[], nothing), [1, 4, 3], "CWR");
    assert_eq!(counts(0x11, &[], nothing), [4, 3, 1], "FIN");
    for flags in [0x30, 0x50, 0x12, 0x14, 0x00] {
        assert_eq!(counts(flags, &[], nothing), alone, "{flags:#x}");
    }
    assert_eq!(
        counts(0x10, &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 9], nothing),
        alone
    );
    assert_eq!(
        counts(0x10, &[], |driver| driver.write(0x5008, 1 << 5)),
        alone
    );
    let keep_check = |driver: &mut Driver<Script>| driver.change(0x4240, 0, 1 << 1);
    let kept = counts(0x10, &[], keep_check);
    assert_eq!(kept, alone, "check sequences");
    assert_eq!(of(&frame(true, None, 8, 0x10, &[]), nothing), alone, "IPv6");
}

#[test]
fn each_mistake_in_setting_it_up_is_reported() {
    type Mistake = fn(&mut Driver<Script>);
    let mistakes: [(&str, Mistake); 7] = [
        ("RXDCTL: BSIZEHEADER", |driver| driver.split = 1 << 25 | 2),
        ("RXDCTL: PSRTYPE", |driver| driver.write(0xea00, 0)),
        ("RXDCTL: MAXDESC", |driver| {
            driver.write(0x102c, 0xd);
            driver.split |= 4;
        }),
        ("RXCTRL: RXCRCSTRP", |driver| {
            driver.change(0x4240, 0, 1 << 1);
            driver.change(0x2f00, 0, 1 << 1);
        }),
        ("RXCTRL: RSC_DIS", |driver| driver.write(0x5008, 1 << 5)),
        ("RDT: INTERVAL", |driver| driver.write(0x820, 0)),
        ("RDT: IVAR", |driver| driver.write(0x900, 0)),
    ];
    for (name, mistake) in mistakes {
        let mut driver = Driver::coalescing("");
        driver.large(&frame(false, None, 3, 0x10, &[]));
        driver.change(0x1028, 0, 1 << 25);
        driver.write(0x3000, 0);
        mistake(&mut driver);
        driver.write(0x1014, driver.split);
        driver.change(0x1028, 1 << 25, 0);
        driver.wait(0x1028, 1 << 25);
        driver.change(0x8d00, 1 << 1, 0);
        driver.wait(0x8d04, 1);
        driver.write(0x3000, 1);
        driver.change(0x8d00, 0, 1 << 1);
        driver.receive_all();
        let (register, rule) = name.split_once(": ").unwrap();
        // Larger buffers overlap as well, once they are told of.
        let Some(Violation::Order {
            register: told,
            rule: why,
        }) = driver
            .device
            .violations()
            .reports()
            .first()
            .map(|report| report.violation)
        else {
            panic!("{name}: {}", driver.device.violations());
        };
        assert!(
            told == register && why.contains(rule),
            "{name}: {told}: {why}"
        );
    }
}

#[test]
fn a_device_may_lie_about_how_many_it_joined() {
    let mut driver = Driver::coalescing("joined=1,seed=2");
    driver.large(&frame(false, None, 16, 0x10, &[]));
    let joined: Vec<u64> = driver
        .receive_all()
        .iter()
        .map(|(_, joined)| *joined)
        .collect();
    assert_eq!(joined.len(), 4);
    assert_ne!(joined, [4; 4]);
    driver.assert_lawful();
}

/// Frames whose payload is read to where the last one's was, whatever they are.
#[test]
fn what_is_placed_is_received_as_what_is_copied() {
    const SIZE: u16 = 1400;
    let tcp = |tag, segments: usize, flags| {
        let payload = samples::bytes(segments * usize::from(SIZE) - 10);
        let mut frame = samples::tcp(false, tag, 5, &payload);
        let flags_at = Ip::find(&frame).unwrap().payload + 13;
        frame[flags_at] = flags;
        (frame, Some(SIZE))
    };
    let udp = |len| (samples::udp(false, None, &samples::bytes(len)), None);
    let mut other = tcp(None, 5, 0x10);
    other.0[0] = 4;
    let mut longer = tcp(None, 5, 0x10);
    longer.1 = Some(1000);
    let frames = [
        tcp(None, 28, 0x10),
        tcp(None, 28, 0x18),
        tcp(None, 3, 0x10),
        tcp(None, 29, 0x10),
        udp(1000),
        udp(40),
        tcp(None, 9, 0x10),
        tcp(None, 9, 0x11),
        tcp(None, 9, 0x10),
        other,
        tcp(None, 20, 0x10),
        longer,
        tcp(Some(3), 7, 0x10),
        tcp(Some(3), 22, 0x10),
        tcp(Some(3), 30, 0x10),
    ];
    let run = |scatters| {
        let mut driver = Driver::coalescing("");
        driver.change(0x1028, 0, 1 << 25);
        driver.write(0x1014, driver.split & !0x1f | 16);
        driver.change(0x1028, 1 << 25 | 1 << 30, 0);
        driver.wait(0x1028, 1 << 25);
        driver.device.wire().scatters = scatters;
        let mut received = Vec::new();
        for (frame, segment) in &frames {
            let offload = Offload {
                checksum: segment.map(|_| (34, 16)),
                segment: *segment,
            };
            let incoming = &mut driver.device.wire().incoming;
            incoming.push_back((frame.clone(), offload));
            received.append(&mut driver.receive_all());
        }
        let counts = [0x4074, 0x40d0, 0x4088, 0x1030].map(|offset| driver.read(offset));
        driver.assert_lawful();
        let mut payload = Vec::new();
        for (packet, joined) in &received {
            let ip = Ip::find(packet).unwrap();
            assert!(ip.header_is_sound(packet) && ip.end == packet.len());
            let is_sound = *joined > 1 || ip.payload_is_sound(packet) == Some(true);
            assert!(is_sound, "{} bytes", packet.len());
            payload.extend_from_slice(&packet[ip.payload..][20..]);
        }
        let segments: u64 = received.iter().map(|(_, joined)| joined).sum();
        let split = driver.device.wire().split;
        (split, (payload, counts, segments))
    };
    let ((none, copied), (some, placed)) = (run(false), run(true));
    assert_eq!((none, some), (0, 12));
    assert_eq!(copied, placed);
}
