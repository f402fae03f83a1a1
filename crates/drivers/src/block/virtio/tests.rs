//! The driver against a puppet that serves requests while the driver looks at its clock.

use super::*;
use crate::net::recovery::RESETS_MAX;
use crate::virtio::mmio::Mmio;
use crate::virtio::pci::Pci;
use crate::virtio::puppet::{FEATURES, Puppet};
use crate::virtio::request::REQUEST_NANOSECONDS;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use hw::leaked;

const SECTORS: u64 = 1024;
const BYTES: usize = (SECTORS * SECTOR_BYTES) as usize;
const ARENA_BYTES: usize = 2 * DMA_BYTES;

/// What the device does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Good,
    /// It says so, with this status.
    Fails(u8),
    /// It says that it is done and has written no status.
    SaysNothing,
    Silent,
    /// It gives back what it does not have.
    OtherHead,
    /// It says that it has used more than it had.
    IndexJumps,
}

/// The device's end.
struct Disk {
    puppet: Puppet,
    bytes: RefCell<Vec<u8>>,
    behaviour: Cell<Behaviour>,
    /// Sector and bytes of each request.
    requests: RefCell<Vec<(u64, u32)>>,
    now: Cell<u64>,
}

impl Disk {
    fn new(puppet: Puppet) -> Rc<Self> {
        let bytes = (0..BYTES).map(|at| (at / 512 + at) as u8).collect();
        Rc::new(Self {
            puppet,
            bytes: RefCell::new(bytes),
            behaviour: Cell::new(Behaviour::Good),
            requests: RefCell::default(),
            now: Cell::new(0),
        })
    }

    fn clock(self: &Rc<Self>) -> impl Fn() -> u64 + use<> {
        let disk = Rc::clone(self);
        move || {
            disk.serve();
            disk.now.set(disk.now.get() + 1_000_000);
            disk.now.get()
        }
    }

    /// Does what the next request says, if there is one.
    fn serve(&self) {
        let behaviour = self.behaviour.get();
        if behaviour == Behaviour::Silent || !self.puppet.device().queues.borrow()[0].enabled {
            return;
        }
        let Some((head, buffers)) = self.puppet.fetch(0).unwrap() else {
            return;
        };
        let [
            (header_at, 16, false),
            (data_at, length, reads),
            (status_at, 1, true),
        ] = buffers[..]
        else {
            panic!("header, data, status: {buffers:?}");
        };
        let mut header = [0; 16];
        self.puppet.view().read(header_at, &mut header).unwrap();
        let kind = u32::from_le_bytes(*header.first_chunk().unwrap());
        let sector = u64::from_le_bytes(*header.last_chunk().unwrap());
        assert_eq!(header[4..8], [0; 4]);
        assert_eq!(kind, u32::from(!reads));
        self.requests.borrow_mut().push((sector, length));
        let start = (sector * SECTOR_BYTES) as usize;
        let bytes = &mut self.bytes.borrow_mut()[start..start + length as usize];
        match reads {
            true => self.puppet.view().write(data_at, bytes).unwrap(),
            false => self.puppet.view().read(data_at, bytes).unwrap(),
        }
        let status = match behaviour {
            Behaviour::Fails(status) => status,
            _ => STATUS_OK,
        };
        if behaviour != Behaviour::SaysNothing {
            self.puppet.view().write(status_at, &[status]).unwrap();
        }
        match behaviour {
            Behaviour::OtherHead => self.puppet.give_back(0, head + 1, 1).unwrap(),
            Behaviour::IndexJumps => {
                let used = self.puppet.used(0);
                self.puppet.set_used(0, used.wrapping_add(2)).unwrap();
            }
            // What it says that it wrote is not believed.
            _ => self.puppet.give_back(0, head, u32::MAX).unwrap(),
        }
    }
}

/// A configuration with so many sectors, most bytes of a buffer, and bytes of a block.
fn config(sectors: u64, most: u32, block: u32) -> Vec<u8> {
    let mut config = vec![0; 60];
    config[..8].copy_from_slice(&sectors.to_le_bytes());
    config[8..12].copy_from_slice(&most.to_le_bytes());
    config[20..24].copy_from_slice(&block.to_le_bytes());
    config
}

type Disks = (Rc<Disk>, Result<Driver<Pci>, Error>);

/// A disk with these features besides.
fn disk_with(features: u64, config: &[u8]) -> Disks {
    let (puppet, transport, mut arena) = Puppet::pci(KIND, config, ARENA_BYTES);
    puppet.device().offered.set(FEATURES | features);
    let disk = Disk::new(puppet);
    let driver = Driver::new(transport, &mut arena, disk.clock());
    (disk, driver)
}

fn disk() -> (Rc<Disk>, Driver<Pci>) {
    let (disk, driver) = disk_with(0, &config(SECTORS, 0, 0));
    (disk, driver.unwrap())
}

/// All of it is read, changed, and read again.
fn works<T: Transport>(disk: &Disk, driver: &mut Driver<T>) {
    let mut bytes = vec![0; BYTES];
    driver.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, *disk.bytes.borrow());
    bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
    let (left, right) = bytes.split_at(BYTES / 2);
    driver.write(0, left).unwrap();
    driver.write(BYTES as u64 / 2, right).unwrap();
    assert_eq!(bytes, *disk.bytes.borrow());
    let mut sector = [0; 512];
    driver.read(5 * 512, &mut sector).unwrap();
    assert_eq!(sector[..], bytes[5 * 512..6 * 512]);
}

#[test]
fn blocks_are_read_and_written_over_either_transport() {
    let (disk, mut driver) = disk();
    assert_eq!(
        (driver.capacity(), driver.block_size()),
        (BYTES as u64, 512)
    );
    works(&disk, &mut driver);
    let (puppet, registers, mut arena) = Puppet::mmio(KIND, &config(SECTORS, 0, 0), ARENA_BYTES);
    let transport = Mmio::new(registers);
    let disk = Disk::new(puppet);
    let mut driver = Driver::new(transport, &mut arena, disk.clock()).unwrap();
    works(&disk, &mut driver);
}

#[test]
fn a_transfer_is_no_larger_than_the_device_wants() {
    let (disk, driver) = disk_with(HAS_SIZE_MAX | HAS_BLK_SIZE, &config(SECTORS, 10_000, 4096));
    let mut driver = driver.unwrap();
    assert_eq!(driver.block_size(), 4096);
    driver.read(4096, &mut [0; 5 * 4096]).unwrap();
    let expected = [(8, 8192), (24, 8192), (40, 4096)];
    assert_eq!(*disk.requests.borrow(), expected);
    let (disk, mut driver) = self::disk();
    driver.read(0, &mut [0; TRANSFER_BYTES + 512]).unwrap();
    let expected = [(0, TRANSFER_BYTES as u32), (128, 512)];
    assert_eq!(*disk.requests.borrow(), expected);
}

#[test]
fn what_is_not_on_the_disk_is_not_asked_for() {
    let (disk, mut driver) = disk();
    let end = BYTES as u64;
    for (offset, length) in [
        (1, 512),
        (0, 511),
        (end, 512),
        (end - 512, 1024),
        (u64::MAX - 511, 512),
    ] {
        let mut bytes = vec![0; length];
        assert_eq!(driver.read(offset, &mut bytes), Err(BlockError::OutOfRange));
        assert_eq!(driver.write(offset, &bytes), Err(BlockError::OutOfRange));
    }
    assert!(disk.requests.borrow().is_empty());
    assert_eq!(driver.read(end, &mut []), Ok(()));
}

#[test]
fn a_disk_that_is_read_only_is_not_written() {
    let (disk, driver) = disk_with(READ_ONLY, &config(SECTORS, 0, 0));
    let mut driver = driver.unwrap();
    assert_eq!(driver.write(0, &[1; 512]), Err(BlockError::ReadOnly));
    assert!(driver.read(0, &mut [0; 512]).is_ok());
    assert_eq!(*disk.requests.borrow(), [(0, 512)]);
}

#[test]
fn a_configuration_that_cannot_be_is_refused() {
    let both = HAS_SIZE_MAX | HAS_BLK_SIZE;
    let refused = |config: Vec<u8>| disk_with(both, &config).1.err().unwrap();
    for block in [0, 256, 513, 128 << 10, u32::MAX] {
        let error = refused(config(SECTORS, u32::MAX, block));
        assert_eq!(error, Error::Config("its size of a block"), "{block}");
    }
    let error = refused(config(SECTORS, 4095, 4096));
    assert_eq!(error, Error::Config("its most bytes of a transfer"));
    let error = refused(config(u64::MAX, 4096, 512));
    assert_eq!(error, Error::Config("its capacity"));
    // What is no whole block is left out.
    let (_, driver) = disk_with(both, &config(9, 4096, 4096));
    assert_eq!(driver.unwrap().capacity(), 4096);
}

#[test]
fn a_request_that_fails_fails_alone() {
    let (disk, mut driver) = disk();
    let bad = [
        (Behaviour::Fails(1), 1),
        (Behaviour::Fails(2), 2),
        (Behaviour::Fails(STATUS_NONE), 0xff),
        (Behaviour::SaysNothing, 0xff),
    ];
    for (behaviour, status) in bad {
        disk.behaviour.set(behaviour);
        let mut bytes = [7; 512];
        let failed = Err(BlockError::Device(status));
        assert_eq!(driver.read(0, &mut bytes), failed);
        assert_eq!(bytes, [7; 512], "nothing is handed out");
        assert_eq!(driver.write(0, &bytes), failed);
        disk.behaviour.set(Behaviour::Good);
        assert!(driver.read(0, &mut bytes).is_ok());
    }
    let resets = disk.puppet.device().statuses.borrow().len();
    assert_eq!(resets, 5, "nobody reset it");
}

#[test]
fn a_device_that_lies_or_is_silent_is_reset_and_works_again() {
    for behaviour in [
        Behaviour::OtherHead,
        Behaviour::IndexJumps,
        Behaviour::Silent,
    ] {
        let (disk, mut driver) = disk();
        for _ in 0..RESETS_MAX {
            disk.behaviour.set(behaviour);
            let began = disk.now.get();
            assert_eq!(driver.read(0, &mut [0; 512]), Err(BlockError::Reset));
            let took = disk.now.get() - began;
            assert!(took < 2 * REQUEST_NANOSECONDS, "{behaviour:?}: {took}");
            disk.behaviour.set(Behaviour::Good);
            works(&disk, &mut driver);
        }
        // Once more, and it is given up.
        let before = leaked();
        disk.behaviour.set(behaviour);
        assert!(driver.read(0, &mut [0; 512]).is_err());
        assert!(leaked() >= before + 3, "it may still write them");
        disk.behaviour.set(Behaviour::Good);
        let requests = disk.requests.borrow().len();
        assert_eq!(driver.read(0, &mut [0; 512]), Err(BlockError::Gone));
        assert_eq!(driver.write(0, &[0; 512]), Err(BlockError::Gone));
        assert_eq!(disk.requests.borrow().len(), requests);
    }
}

#[test]
fn a_disk_that_is_another_one_behind_a_reset_is_none() {
    let (disk, mut driver) = disk();
    disk.puppet.device().config.borrow_mut()[..8].copy_from_slice(&7u64.to_le_bytes());
    disk.behaviour.set(Behaviour::Silent);
    assert!(driver.read(0, &mut [0; 512]).is_err());
    disk.behaviour.set(Behaviour::Good);
    assert_eq!(driver.read(0, &mut [0; 512]), Err(BlockError::OutOfRange));
    assert_eq!(driver.capacity(), 0);
}

#[test]
fn a_driver_that_is_dropped_resets_its_device() {
    let (disk, driver) = disk();
    drop(driver);
    assert_eq!(disk.puppet.device().status.get(), 0);
}
