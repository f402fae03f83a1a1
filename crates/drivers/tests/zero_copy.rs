//! Forwarding a frame allocates nothing and copies nothing.

use device::{Batch, Nic, Pool};
use drivers::net::ixgbe::puppet::Puppet;
use drivers::net::ixgbe::{BUFFER_BYTES, BUFFERS, Config, Driver, RING};

/// Buffers, aligned to cache lines, and rings.
const DMA_BYTES: usize = BUFFERS * (BUFFER_BYTES + 64) + 4 * 16 * RING;
const FRAMES: usize = 5 * RING;

fn nic() -> (Puppet, Driver) {
    let (puppet, bar, mut arena) = Puppet::new(DMA_BYTES);
    let pool = Pool::dma(&mut arena, BUFFERS, BUFFER_BYTES).unwrap();
    let nic = Driver::new(bar, &mut arena, pool, Config::FORWARD, puppet.clock());
    (puppet, nic.unwrap())
}

#[test]
fn a_forwarded_frame_stays_where_the_device_wrote_it() {
    let ((mut left, mut from), (mut right, mut to)) = (nic(), nic());
    for number in 0..FRAMES {
        let written = left.receive_address().unwrap();
        assert!(left.deliver(&[number as u8; 60]).unwrap());
        let mut batch = Batch::new();
        from.receive(&mut batch);
        to.transmit(&mut batch);
        let sent = right.drain().unwrap();
        let addresses: Vec<_> = sent.iter().map(|[address, _]| *address).collect();
        assert_eq!(addresses, [written]);
    }
}

#[test]
fn forwarding_allocates_nothing() {
    let ((mut left, mut from), (mut right, mut to)) = (nic(), nic());
    let mut batch = Batch::new();
    let mut sent = 0;
    let counted = allocation_counter::measure(|| {
        for _ in 0..FRAMES / 32 {
            for _ in 0..32 {
                left.write_back(60).unwrap();
            }
            from.receive(&mut batch);
            to.transmit(&mut batch);
            right.report(|_| sent += 1).unwrap();
            from.tend(0);
            to.tend(0);
        }
    });
    assert_eq!((counted.count_total, sent), (0, FRAMES));
}
