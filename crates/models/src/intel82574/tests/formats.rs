//! How received frames are laid down.

use super::*;

#[test]
fn tags_are_stripped_and_inserted_with_vme_alone() {
    let tagged = samples::udp(false, Some(0x6123), &[5; 100]);
    let plain = samples::udp(false, None, &[5; 100]);
    for vme in [false, true] {
        let mut driver = Driver::ready(Script::default());
        driver.change(0x0, u32::from(vme) << 30, 0);
        let incoming = (tagged.clone(), Offload::default());
        driver.device.wire().incoming.push_back(incoming);
        driver.poll();
        let (bytes, words) = driver.receive_buffer().unwrap();
        let expected = match vme {
            true => (&plain, 0x6123, 0x7b),
            false => (&tagged, 0, 0x73),
        };
        assert_eq!((&bytes, words[1] >> 48, words[1] & 0xff), expected);
        driver.put_frame(&plain, 2, 1 << 30 | 0x6123 << 48);
        driver.ring_transmit();
        driver.poll();
        let sent = if vme { &tagged } else { &plain };
        let all = [(sent.clone(), Offload::default())];
        assert_eq!(driver.device.wire().sent, all);
        driver.assert_lawful();
    }
}

#[test]
fn broken_checksums_are_told_if_they_are_checked() {
    for (mask, v4, l4) in [(0x300, 0x4000_0073, 0x2000_0063), (0, 3, 3)] {
        let mut driver = Driver::ready(Loop::new());
        driver.write(0x5000, mask);
        let mut broken = [
            samples::udp(false, None, &[1; 30]),
            samples::tcp(false, None, 1, &[9; 100]),
        ];
        broken[0][24] ^= 1;
        broken[1][100] ^= 1;
        for (frame, status) in broken.iter().zip([v4, l4]) {
            driver.transmit(frame);
            (0..2).for_each(|_| _ = driver.poll());
            let (bytes, words) = driver.receive_buffer().unwrap();
            assert_eq!(&bytes, frame);
            assert_eq!(words[1] & 0xffff_ffff, status, "{mask:#x}");
        }
        driver.assert_lawful();
    }
}

#[test]
fn small_frames_are_padded_and_the_check_sequence_stays_if_wanted() {
    for strip in [true, false] {
        let mut driver = Driver::ready(Loop::new());
        driver.change(0x100, 0, u32::from(!strip) << 26);
        let frame = samples::udp(false, None, &[1, 2, 3]);
        driver.transmit(&frame);
        (0..2).for_each(|_| _ = driver.poll());
        let (bytes, _) = driver.receive_buffer().unwrap();
        assert_eq!(bytes.len(), if strip { 60 } else { 64 });
        assert_eq!(bytes[..frame.len()], frame);
        driver.assert_lawful();
    }
}

#[test]
fn legacy_descriptors_keep_the_address_and_have_the_length_first() {
    let mut driver = Driver::ready(Loop::new());
    driver.write(0x5008, 0);
    let frame = samples::tcp(false, None, 5, &[3; 200]);
    driver.transmit(&frame);
    (0..2).for_each(|_| _ = driver.poll());
    let [first, second] = driver.descriptor(RX_RING, 0);
    assert_eq!(first, Driver::<Loop>::buffer(0));
    assert_eq!(second, frame.len() as u64 | 0x63 << 32);
    driver.assert_lawful();
}

#[test]
fn a_long_frame_spans_buffers_if_long_ones_are_let_in() {
    let mut driver = Driver::ready(Loop::new());
    let frame = samples::udp(false, None, &samples::bytes(4500));
    driver.put_frame(&frame, 3, 0);
    driver.ring_transmit();
    (0..2).for_each(|_| _ = driver.poll());
    assert!(driver.receive_buffer().is_none());
    assert_eq!(driver.read(0x40ac), 1, "oversized");
    driver.change(0x100, 1 << 5, 0);
    driver.put_frame(&frame, 3, 0);
    driver.ring_transmit();
    (0..2).for_each(|_| _ = driver.poll());
    let mut bytes = Vec::new();
    for (number, len) in [2048, 2048, frame.len() - 4096].into_iter().enumerate() {
        let (part, words) = driver.receive_buffer().unwrap();
        assert_eq!(part.len(), len);
        assert_eq!(words[1] & 2 != 0, number == 2, "end of packet");
        bytes.extend(part);
    }
    assert_eq!(bytes, frame);
    driver.assert_lawful();
}

/// Where the four buffers of a descriptor with split headers lie.
fn buffers(index: u32) -> [u64; 4] {
    let first = Driver::<Loop>::buffer(index);
    [first, first + 0x400, first + 0x1400, first + 0x2400]
}

/// Headers of up to 128 bytes are split off, and three buffers of 4 KiB follow.
fn splitting() -> Driver<Loop> {
    let mut driver = Driver::new(Loop::new());
    for index in 0..DESCRIPTORS / 2 {
        let [a, b, c, d] = buffers(index);
        driver.store(RX_RING, 2 * index, [a, b]);
        driver.store(RX_RING, 2 * index + 1, [c, d]);
    }
    driver.reset();
    driver.write(0x2170, 1 | 4 << 8 | 4 << 16 | 4 << 24);
    driver.write(0x5008, 1 << 15);
    driver.write(0x2800, RX_RING as u32);
    driver.write(0x2804, (RX_RING >> 32) as u32);
    driver.write(0x2808, DESCRIPTORS * 16);
    driver.write(0x100, RCTL | 1 << 5 | 1 << 10);
    driver.write(0x2818, DESCRIPTORS - 2);
    driver.start_transmit();
    driver.poll();
    driver
}

/// The bytes that descriptor `index` has, and its words.
fn received(driver: &Driver<Loop>, index: u32) -> (Vec<u8>, [u64; 4]) {
    let [first, second] = [2 * index, 2 * index + 1].map(|unit| driver.descriptor(RX_RING, unit));
    let lens = [second[0] >> 16, second[0] >> 32, second[0] >> 48];
    let lens = [first[1] >> 32, lens[0], lens[1], lens[2]];
    let mut bytes = Vec::new();
    for (at, len) in buffers(index).into_iter().zip(lens) {
        let start = bytes.len();
        bytes.resize(start + usize::from(len as u16), 0);
        driver.memory.read(at, &mut bytes[start..]).unwrap();
    }
    (bytes, [first[0], first[1], second[0], second[1]])
}

#[test]
fn headers_are_split_off() {
    let mut driver = splitting();
    let long = samples::tcp(false, None, 5, &samples::bytes(8000));
    let other = vec![0xff; 300];
    for frame in [&long, &other] {
        driver.put_frame(frame, 2, 0);
        driver.ring_transmit();
        (0..2).for_each(|_| _ = driver.poll());
    }
    let (bytes, words) = received(&driver, 0);
    assert_eq!(bytes, long);
    // 54 bytes of headers, and the rest in buffers of 4 KiB.
    assert_eq!(words[1] >> 32, 54);
    assert_eq!(words[2], 3904 << 32 | 4096 << 16 | 0x8000 | 54);
    assert_eq!(words[1] as u32, 0x63);
    // What has no headers fills one buffer after the other.
    let (bytes, words) = received(&driver, 1);
    assert_eq!(bytes, other);
    assert_eq!((words[1] >> 32, words[2]), (128, 172 << 16));
    assert_eq!(driver.read(0x2810), 4, "two units each");
    driver.assert_lawful();
}

#[test]
fn a_frame_that_is_too_long_for_one_descriptor_goes_on_in_the_next() {
    let mut driver = splitting();
    driver.write(0x1000, 10);
    let long = samples::udp(false, None, &samples::bytes(13_000));
    driver.put_frame(&long, 4, 0);
    driver.ring_transmit();
    (0..2).for_each(|_| _ = driver.poll());
    let (mut bytes, first) = received(&driver, 0);
    let (rest, second) = received(&driver, 1);
    bytes.extend(rest);
    assert_eq!(bytes, long);
    assert_eq!([first[1] & 3, second[1] & 3], [1, 3]);
    driver.assert_lawful();
}
