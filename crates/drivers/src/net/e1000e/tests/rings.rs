//! The rings alone: the test is the device, and writes their words.

use super::*;

#[test]
fn received_frames_come_in_order_and_their_buffers_return() {
    let mut rings = Rings::new();
    let mut receive = Receiver::<N>::new(&mut rings.arena, rings.pool).unwrap();
    assert!(receive.is_starved() && receive.fill(&mut rings.counts));
    assert_eq!(rings.pool.free(), COUNT - (N - 1));
    let base = receive.ring().iova().raw();
    for index in 0..5 * N {
        assert!(!receive.is_ready());
        // The device fills the buffer and writes the descriptor back.
        let length = 60 + index % 1000;
        let buffer = rings.word(base, index, 0);
        rings
            .view
            .write(buffer, &std::vec![index as u8; length])
            .unwrap();
        rings.set_word(base, index, 0, u64::MAX);
        rings.set_word(base, index, 1, DONE | (length as u64) << 32);
        assert!(receive.is_ready());
        let mut batch = Batch::new();
        receive.receive(&mut batch, &mut rings.counts).unwrap();
        let frames: Vec<_> = batch.drain().collect();
        assert_eq!(frames.len(), 1);
        assert!(frames[0].bytes().iter().all(|byte| *byte == index as u8));
        assert_eq!(frames[0].len(), length);
        receive.refill(&mut rings.counts);
        let has = receive.tail().wrapping_sub(index as u32 + 1) as usize % N;
        assert!(has >= N - 32, "refilled in time");
    }
    // A device whose control register says that its reset is over.
    let control = Mmio::shared(std::vec![AtomicU32::new(0)].leak());
    let reset = control.shows(CTRL, CTRL_RST, 0).unwrap();
    receive.clear(&reset);
    let counts = NicCounts {
        polls_busy: 5 * N as u64,
        ..NicCounts::default()
    };
    assert_eq!((rings.pool.free(), rings.counts), (COUNT, counts));
}

#[test]
fn a_pool_without_buffers_is_counted_and_starves_nobody_for_ever() {
    let mut rings = Rings::new();
    let mut receive = Receiver::<N>::new(&mut rings.arena, rings.pool).unwrap();
    let mut kept: Vec<_> = (0..COUNT - 10).map(|_| rings.frame(60, 0)).collect();
    assert!(receive.fill(&mut rings.counts));
    assert_eq!((receive.tail(), rings.counts.no_buffer), (10, 1));
    kept.truncate(0);
    assert!(receive.refill(&mut rings.counts));
    assert_eq!(receive.tail(), N as u32 - 1);
}

#[test]
fn frames_return_when_their_batch_is_reported_and_not_before() {
    let mut rings = Rings::new();
    let mut transmit = Transmitter::<N>::new(&mut rings.arena, 1518).unwrap();
    let base = transmit.ring().iova().raw();
    let mut batch = Batch::new();
    for _ in 0..3 {
        batch.push(rings.frame(100, 7)).unwrap();
    }
    assert_eq!(transmit.transmit(&mut batch, &mut rings.counts).frames, 3);
    assert_eq!((transmit.tail(), rings.pool.free()), (3, COUNT - 3));
    let reported = |index| rings.word(base, index, 1) & descriptor::TX_RS != 0;
    assert_eq!([0, 1, 2].map(reported), [false, false, true]);
    // Only the report counts, whatever else the device writes.
    rings.set_word(base, 0, 1, u64::MAX);
    transmit.reclaim();
    assert!(transmit.pending().is_some() && rings.pool.free() == COUNT - 3);
    rings.set_word(base, 2, 1, rings.word(base, 2, 1) | SENT);
    transmit.reclaim();
    assert!(transmit.pending().is_none() && rings.pool.free() == COUNT);
}

#[test]
fn what_cannot_be_sent_is_dropped_and_counted() {
    let mut rings = Rings::new();
    let mut transmit = Transmitter::<N>::new(&mut rings.arena, 1518).unwrap();
    let plain = Pool::new(std::vec![0; 4096].leak(), 4096);
    let mut segments = rings.frame(1000, 0);
    let gso = offload::Gso {
        kind: offload::GsoKind::TcpV4,
        size: 100,
        header: 54,
        ecn: false,
    };
    segments.set_offload(offload::Offload {
        checksum: None,
        gso: Some(gso),
    });
    let mut batch = Batch::new();
    let refused = [rings.frame(1519, 0), rings.frame(16, 0), segments];
    for frame in refused.into_iter().chain(plain.alloc(60)) {
        batch.push(frame).unwrap();
    }
    let sent = transmit.transmit(&mut batch, &mut rings.counts);
    assert_eq!((sent, transmit.tail()), (Sent::default(), 0));
    assert_eq!((rings.counts.tx_refused, rings.pool.free()), (4, COUNT));
    for _ in 0..2 {
        for _ in 0..BATCH_FRAMES_MAX {
            batch.push(rings.frame(60, 0)).unwrap();
        }
        transmit.transmit(&mut batch, &mut rings.counts);
    }
    let sent = COUNT - rings.pool.free();
    let lost = rings.counts.tx_no_room as usize;
    assert_eq!(lost, 2 * BATCH_FRAMES_MAX - sent);
    // Room is kept for a context and for the end of a page.
    let descriptors = transmit.tail() as usize;
    assert!(descriptors >= sent && (N - 3..N).contains(&descriptors));
}

#[test]
fn no_descriptor_crosses_the_end_of_a_page() {
    let mut rings = Rings::new();
    let mut transmit = Transmitter::<N>::new(&mut rings.arena, 1518).unwrap();
    let base = transmit.ring().iova().raw();
    let mut batch = Batch::new();
    let mut crossing = 0;
    for _ in 0..16 {
        let frame = rings.frame(1514, 3);
        let address = frame.iova().unwrap().raw();
        crossing += usize::from(address / 4096 != (address + 1513) / 4096);
        batch.push(frame).unwrap();
    }
    transmit.transmit(&mut batch, &mut rings.counts);
    let descriptors = transmit.tail() as usize;
    assert!(crossing > 0 && descriptors == 16 + crossing);
    let (mut bytes, mut ends) = (0, 0);
    for index in 0..descriptors {
        let address = rings.word(base, index, 0);
        let word = rings.word(base, index, 1);
        let length = word & 0xfffff;
        assert_eq!(address / 4096, (address + length - 1) / 4096);
        bytes += length;
        ends += word >> 24 & 1;
    }
    assert_eq!((bytes, ends), (16 * 1514, 16));
}

#[test]
fn a_checksum_is_left_to_the_device_and_described_once() {
    let mut rings = Rings::new();
    let mut transmit = Transmitter::<N>::new(&mut rings.arena, 1518).unwrap();
    let base = transmit.ring().iova().raw();
    let mut batch = Batch::new();
    for (start, offset) in [(34, 16), (34, 16), (34, 6), (300, 16)] {
        let mut frame = rings.frame(400, 1);
        frame.set_offload(offload::Offload {
            checksum: Some(offload::Checksum { start, offset }),
            gso: None,
        });
        batch.push(frame).unwrap();
    }
    transmit.transmit(&mut batch, &mut rings.counts);
    let is_context = |index| rings.word(base, index, 1) & 1 << 20 == 0;
    let inserts = |index| rings.word(base, index, 1) & 1 << 41 != 0;
    let contexts: Vec<_> = (0..6).map(is_context).collect();
    assert_eq!(contexts, [true, false, false, true, false, false]);
    assert_eq!([1, 2, 4, 5].map(inserts), [true, true, true, false]);
    // Too far behind for a descriptor: completed in software.
    let mut field = [0; 2];
    rings
        .view
        .read(rings.word(base, 5, 0) + 316, &mut field)
        .unwrap();
    assert_ne!(field, [1; 2]);
}
