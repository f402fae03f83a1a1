//! Frames that are large, or that lie in several buffers.

use super::*;
use device::{FRAME_BYTES_MAX, segments};

/// A driver that takes large frames.
fn large() -> Bench {
    const DMA_BYTES: usize = COUNT * (LARGE_BUFFER_BYTES + 64) + 6 * 4096;
    let (puppet, transport, mut arena) = Puppet::new(DMA_BYTES);
    let pool = Pool::dma(&mut arena, COUNT, LARGE_BUFFER_BYTES).unwrap();
    Bench::over(puppet, transport, &mut arena, pool, Config::LARGE).unwrap()
}

#[test]
fn a_large_frame_says_how_it_is_to_be_cut() {
    let mut bench = large();
    let wanted = GUEST_TSO4 | GUEST_TSO6 | GUEST_ECN;
    assert_eq!(bench.puppet.device().accepted.get() & wanted, wanted);
    let frame = tcp(60_000);
    for _ in 0..2 * N {
        assert!(bench.puppet.deliver(header(1448), &frame).unwrap());
        let mut batch = bench.receive();
        let received = batch.iter().next().unwrap();
        assert_eq!(received.bytes(), frame);
        let gso = received.offload().gso.unwrap();
        assert_eq!((gso.size, gso.header), (1448, 54));
        assert!(segments(received.bytes(), gso).is_some());
        // It goes on as it is, to be cut by the next device.
        assert_eq!(bench.nic.transmit(&mut batch).frames, 1);
        let sent = bench.puppet.drain().unwrap().remove(0);
        assert_eq!(sent[..10], header(1448)[..10]);
        assert_eq!(sent[VIRTIO_BYTES..], frame);
    }
    bench.works();
    assert_eq!(bench.free(), COUNT - N);
}

#[test]
fn a_batch_of_large_frames_is_full_by_bytes() {
    let mut bench = large();
    let frame = tcp(60_000);
    for _ in 0..N {
        assert!(bench.puppet.deliver(header(1448), &frame).unwrap());
    }
    let full = device::BATCH_BYTES_MAX.div_ceil(frame.len());
    assert_eq!(bench.receive().len(), full);
    assert_eq!(bench.receive().len(), full);
}

#[test]
fn the_largest_frame_fits() {
    let mut bench = large();
    let frame = bytes(FRAME_BYTES_MAX, 7);
    assert!(bench.puppet.deliver(PLAIN, &frame).unwrap());
    assert_eq!(bench.receive().iter().next().unwrap().bytes(), frame);
    bench
        .puppet
        .give_back(0, 1, (VIRTIO_BYTES + FRAME_BYTES_MAX + 1) as u32)
        .unwrap();
    assert!(bench.receive().is_empty());
    assert_eq!(bench.nic.counts().rx_lie, 1);
}

#[test]
fn large_frames_need_large_buffers_and_their_memory_is_known() {
    let (puppet, transport, mut arena) = Puppet::new(DMA_BYTES);
    let pool = Pool::dma(&mut arena, COUNT, BUFFER_BYTES).unwrap();
    let error = Bench::over(puppet, transport, &mut arena, pool, Config::LARGE).err();
    let (wanted, found) = (FRAME_BYTES_MAX, 2048);
    assert_eq!(error, Some(Error::BufferSize { wanted, found }));
    let (puppet, transport, mut arena) = Puppet::new(LARGE_DMA_BYTES);
    let pool = Pool::dma(&mut arena, LARGE_BUFFERS, LARGE_BUFFER_BYTES).unwrap();
    let nic =
        Driver::<_, LARGE_RING>::new(transport, &mut arena, pool, Config::LARGE, puppet.clock());
    assert!(nic.is_ok());
}

#[test]
fn what_was_not_agreed_on_is_an_error() {
    // No large frames.
    let mut bench = Bench::new();
    bench.puppet.deliver(header(100), &tcp(1000)).unwrap();
    assert!(bench.receive().is_empty());
    assert_eq!(bench.nic.counts().rx_error, 1);
    // But checksums.
    bench.puppet.deliver(header(0), &tcp(1000)).unwrap();
    let batch = bench.receive();
    let offload = batch.iter().next().unwrap().offload();
    assert_eq!(offload.checksum, Some(TCP_AT));
    bench.works();
    // No checksums.
    let mut bench = Bench::with(|puppet| {
        let offered = puppet.device().offered.get();
        puppet.device().offered.set(offered & !GUEST_CSUM);
    });
    bench.puppet.deliver(header(0), &tcp(1000)).unwrap();
    assert!(bench.receive().is_empty());
    assert_eq!(bench.nic.counts().rx_error, 1);
    bench.works();
}

#[test]
fn a_header_that_contradicts_the_frame_is_an_error() {
    let mut bench = large();
    let mut wrong = vec![(header(1448), bytes(2000, 1)), (header(3), tcp(2000))];
    let mut elsewhere = header(0);
    elsewhere[6] = 26;
    wrong.push((elsewhere, tcp(100)));
    let mut udp = header(1448);
    udp[1] = 5;
    wrong.push((udp, tcp(2000)));
    for (number, (header, frame)) in wrong.into_iter().enumerate() {
        assert!(bench.puppet.deliver(header, &frame).unwrap());
        assert!(bench.receive().is_empty());
        assert_eq!(bench.nic.counts().rx_error, number as u64 + 1);
    }
    bench.works();
    assert_eq!(bench.free(), COUNT - N);
}

#[test]
fn a_frame_in_several_buffers_becomes_one() {
    let mut bench = large();
    for most in [13, 100, 1500, 30_000] {
        let frame = tcp(1400);
        let parts = (VIRTIO_BYTES + frame.len()).div_ceil(most) as u16;
        if usize::from(parts) > N {
            continue;
        }
        let mut header = header(100);
        header[10..12].copy_from_slice(&parts.to_le_bytes());
        // The first one has to hold a whole Ethernet header here.
        let most = most.max(VIRTIO_BYTES + 14);
        let parts = (VIRTIO_BYTES + frame.len()).div_ceil(most) as u16;
        header[10..12].copy_from_slice(&parts.to_le_bytes());
        assert!(bench.puppet.deliver_in(header, &frame, most).unwrap());
        let batch = bench.receive();
        let received = batch.iter().next().expect("a frame");
        assert_eq!(received.bytes(), frame, "{most}");
        assert_eq!(received.offload().gso.unwrap().size, 100);
    }
    bench.works();
    assert_eq!(bench.nic.counts().rx_lie, 0);
    assert_eq!(bench.free(), COUNT - N);
}

#[test]
fn a_frame_that_no_buffer_holds_is_dropped_whole() {
    let mut bench = Bench::new();
    let parts = |count: u16| {
        let mut header = PLAIN;
        header[10..12].copy_from_slice(&count.to_le_bytes());
        header
    };
    let frame = bytes(2500, 1);
    assert!(bench.puppet.deliver_in(parts(2), &frame, 2060).unwrap());
    assert!(bench.receive().is_empty());
    assert_eq!(bench.nic.counts().no_buffer, 1);
    // Nor where no buffer is free but the one that replaces the first.
    let mut kept: Vec<_> = std::iter::from_fn(|| bench.pool.alloc(60)).collect();
    for left in [1, 2] {
        kept.pop();
        assert!(
            bench
                .puppet
                .deliver_in(parts(2), &bytes(100, 1), 60)
                .unwrap()
        );
        assert!(bench.receive().is_empty());
        assert_eq!(bench.nic.counts().no_buffer, 1 + left);
    }
    kept.pop();
    assert!(
        bench
            .puppet
            .deliver_in(parts(2), &bytes(100, 1), 60)
            .unwrap()
    );
    assert_eq!(
        bench.receive().iter().next().unwrap().bytes(),
        bytes(100, 1)
    );
    drop(kept);
    bench.works();
    assert_eq!(bench.free(), COUNT - N);
}

#[test]
fn pieces_that_cannot_be_are_lies() {
    let parts = |count: u16| {
        let mut header = PLAIN;
        header[10..12].copy_from_slice(&count.to_le_bytes());
        header
    };
    for count in [0, 2, 3, N as u16, u16::MAX] {
        let mut bench = Bench::new();
        assert!(bench.puppet.deliver(parts(count), &bytes(60, 1)).unwrap());
        assert!(bench.receive().is_empty());
        assert_eq!(bench.nic.counts().rx_lie, 1, "{count}");
        bench.recover();
    }
    // Without that feature nobody looks at the number.
    let mut bench = Bench::with(|puppet| {
        let offered = puppet.device().offered.get();
        puppet.device().offered.set(offered & !MRG_RXBUF);
    });
    for count in [0, 1, 7] {
        assert!(bench.puppet.deliver(parts(count), &bytes(60, 1)).unwrap());
        assert_eq!(bench.receive().len(), 1, "{count}");
    }
    // A piece that is longer than its buffer.
    let mut bench = Bench::new();
    assert!(
        bench
            .puppet
            .deliver_in(parts(2), &bytes(100, 1), 60)
            .unwrap()
    );
    bench.puppet.set_used(0, 1).unwrap();
    bench.puppet.scribble(0, 0, 1, 2061).unwrap();
    bench.puppet.set_used(0, 2).unwrap();
    assert!(bench.receive().is_empty());
    assert_eq!(bench.nic.counts().rx_lie, 1);
    bench.recover();
}
