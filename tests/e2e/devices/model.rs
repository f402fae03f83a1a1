//! The software NIC between two networks of the kernel's: what its wires do to real traffic.

use crate::harness::network::Network;
use device::{Batch, Nic, Pool};
use drivers::net::ixgbe;
use hw::DmaArena;
use libtest_mimic::{Failed, Trial};
use linux::tap::Tap;
use models::wire::{TapWire, Wire};
use models::{Device, Intel82599, Local, Violations};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testbed::segment::{Address, Segment};
use testbed::topology::{Pair, connect};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than a wire goes without looking at its tap.
const LOOKED_AT: Duration = Duration::from_millis(300);
const DMA_BYTES: usize = 32 << 20;
/// What goes through in each direction.
const BLOCKS: usize = 256;
const BLOCK_BYTES: usize = 64 << 10;
const PORT: u16 = 7;
const ADDRESSES: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0x10], [2, 0, 0, 0, 0, 0x20]];

pub fn trials(network: &Network) -> Vec<Trial> {
    vec![
        network.trial("model_joins_two_networks".into(), joins_two_networks),
        network.trial("model_sees_its_tap_go_down".into(), sees_its_tap_go_down),
    ]
}

/// A tap of another network namespace: the interface there decides, and not one of its name here.
fn sees_its_tap_go_down() -> Result<(), Failed> {
    let (here, there) = (Segment::new()?, Segment::new()?);
    let address = Address {
        ip: [10, 0, 0, 1].into(),
        prefix: 24,
        mtu: 1500,
    };
    let _other = here.tap("tap0", true, address)?;
    let tap = there.tap("tap0", true, address)?;
    let mut wire = here.run(|| TapWire::new(tap).map_err(io::Error::other))?;
    for up in [true, false, true] {
        there.netlink(|netlink| match up {
            true => netlink.set_up("tap0"),
            false => netlink.set_down("tap0"),
        })?;
        let deadline = Instant::now() + PATIENCE;
        while wire.is_up() != up {
            if Instant::now() > deadline {
                return Err(format!("the wire of a tap that is up: {up} says otherwise").into());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
    here.netlink(|netlink| netlink.set_down("tap0"))?;
    thread::sleep(LOOKED_AT);
    match wire.is_up() {
        true => Ok(()),
        false => Err("the wire follows another namespace's tap".into()),
    }
}

/// Two models on taps, and between their drivers whoever passes frames on: TCP arrives whole, cut
/// by one model and joined by the other, and so do datagrams.
fn joins_two_networks() -> Result<(), Failed> {
    let (pair, taps) = Pair::tapped(true)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let forwarder = scope.spawn(|| forward(taps, &stop));
        let result = exchange(&pair);
        stop.store(true, Ordering::Relaxed);
        let forwarded = forwarder.join().map_err(|_| "the forwarder panicked")?;
        result.and(forwarded)
    })
}

fn exchange(pair: &Pair) -> Result<(), Failed> {
    let (mut near, mut far) = connect(&pair.a, &pair.b, PORT, PATIENCE)?;
    bulk(&mut near, &mut far)?;
    bulk(&mut far, &mut near)?;
    let at = |address: SocketAddr| move || UdpSocket::bind(address);
    let sender = pair.a.segment.run(at(pair.a.at(PORT)))?;
    let receiver = pair.b.segment.run(at(pair.b.at(PORT)))?;
    receiver.set_read_timeout(Some(PATIENCE))?;
    for len in [0usize, 1, 17, 18, 1000, 1472, 4000] {
        let sent: Vec<u8> = (0..len).map(|index| index as u8).collect();
        sender.send_to(&sent, pair.b.at(PORT))?;
        let mut received = [0; 8000];
        let (count, _) = receiver.recv_from(&mut received)?;
        if received[..count] != sent {
            return Err(format!("{len} bytes came as {count} others").into());
        }
    }
    Ok(())
}

/// A block of a transfer; no two neighbours are alike.
fn block(number: usize) -> Vec<u8> {
    (0..BLOCK_BYTES)
        .map(|index| (index * 7 + index / 251 + number) as u8)
        .collect()
}

/// Sends blocks, and looks whether they arrive.
fn bulk(from: &mut TcpStream, to: &mut TcpStream) -> Result<(), Failed> {
    to.set_read_timeout(Some(PATIENCE))?;
    from.set_write_timeout(Some(PATIENCE))?;
    thread::scope(|scope| {
        let sending =
            scope.spawn(|| (0..BLOCKS).try_for_each(|number| from.write_all(&block(number))));
        let mut received = vec![0; BLOCK_BYTES];
        for number in 0..BLOCKS {
            to.read_exact(&mut received)?;
            if received != block(number) {
                return Err(Failed::from(format!("block {number} is not what was sent")));
            }
        }
        sending.join().map_err(|_| "the sender panicked")??;
        Ok(())
    })
}

/// A NIC whose driver and model share a thread.
struct Card {
    device: Rc<Local<Intel82599<TapWire>>>,
    driver: ixgbe::Driver,
}

impl Card {
    /// In memory of the image's, as all its cards are: frames go from one to the other.
    fn new(
        tap: Tap,
        address: [u8; 6],
        arena: &mut DmaArena,
        now: Rc<Cell<u64>>,
    ) -> Result<Self, Failed> {
        let device = Intel82599::new(address, TapWire::new(tap)?, &"".parse()?);
        let device = Local::new(device);
        let pool = Pool::dma(arena, ixgbe::BUFFERS, ixgbe::BUFFER_BYTES)?;
        let clock = move || {
            now.set(now.get() + 1000);
            now.get()
        };
        let config = ixgbe::Config::FORWARD;
        let driver = ixgbe::Driver::new(device.mmio(), arena, pool, config, clock)?;
        Ok(Self { device, driver })
    }

    fn lawful(&self) -> Result<(), Failed> {
        let violations: Violations = self.device.device().violations().clone();
        if violations.is_empty() {
            Ok(())
        } else {
            Err(violations.to_string().into())
        }
    }
}

fn forward(taps: [Tap; 2], stop: &AtomicBool) -> Result<(), Failed> {
    let start = Instant::now();
    let now = Rc::new(Cell::new(0));
    let [left, right] = taps;
    let (mut arena, memory) = hw::sim::arena(DMA_BYTES, abi::pci::DMA_BASE);
    let mut cards = [
        Card::new(left, ADDRESSES[0], &mut arena, now.clone())?,
        Card::new(right, ADDRESSES[1], &mut arena, now.clone())?,
    ];
    let mut batch = Batch::new();
    let mut turns = 0u32;
    while !stop.load(Ordering::Relaxed) {
        let elapsed = start.elapsed();
        now.set(now.get().max(elapsed.as_nanos() as u64));
        for card in &cards {
            card.device.poll(&memory, elapsed);
        }
        for (from, to) in [(0, 1), (1, 0)] {
            cards[from].driver.receive(&mut batch);
            cards[to].driver.transmit(&mut batch);
        }
        turns = turns.wrapping_add(1);
        if turns.is_multiple_of(1024) {
            for card in &mut cards {
                card.driver.tend(now.get());
            }
        }
    }
    cards.iter().try_for_each(Card::lawful)
}
