use super::*;
use crate::disk::sample;
use crate::violation::Severity;
use crate::virtio::testing::{Buffer, Driver, IOVA};

const DISK_BYTES: u64 = 1 << 20;
const ALL: u64 = FEATURES | FEATURES_WRITABLE;

fn up(features: u64) -> Driver<VirtioBlk> {
    Driver::up(VirtioBlk::new(sample(DISK_BYTES)), features)
}

fn header(driver: &mut Driver<VirtioBlk>, kind: u32, sector: u64) -> Buffer {
    let bytes = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
    driver.filled(&bytes)
}

/// A request, and its answer.
fn request(driver: &mut Driver<VirtioBlk>, kind: u32, sector: u64, data: &[Buffer]) -> (u8, u32) {
    let mut buffers = vec![header(driver, kind, sector)];
    buffers.extend(data);
    let status = driver.buffer(1, true);
    buffers.push(status);
    let head = driver.offer(0, &buffers);
    driver.notify(0);
    driver.poll();
    let (used, written) = driver.used(0).unwrap();
    assert_eq!(used, u32::from(head));
    (driver.bytes(status)[0], written)
}

fn segment(driver: &mut Driver<VirtioBlk>, sector: u64, count: u32, flags: u32) -> Buffer {
    let words = [
        &sector.to_le_bytes()[..],
        &count.to_le_bytes(),
        &flags.to_le_bytes(),
    ];
    driver.filled(&words.concat())
}

fn pattern(len: usize) -> Vec<u8> {
    crate::packet::samples::bytes(len)
}

#[test]
fn what_is_written_is_read_back_in_any_pieces() {
    let mut driver = up(ALL);
    let data = pattern(4096);
    let parts: Vec<_> = data.chunks(1000).map(|part| driver.filled(part)).collect();
    assert_eq!(request(&mut driver, 1, 5, &parts), (0, 1));
    assert_eq!(driver.pci.device().disk.file_bytes(5 * 512, 4096), data);
    let places = [4000, 96].map(|len| driver.buffer(len, true));
    assert_eq!(request(&mut driver, 0, 5, &places), (0, 4097));
    let read = [driver.bytes(places[0]), driver.bytes(places[1])].concat();
    assert_eq!(read, data);
    assert_eq!(request(&mut driver, 4, 0, &[]), (0, 1));
    let name = driver.buffer(20, true);
    assert_eq!(request(&mut driver, 8, 0, &[name]), (0, 21));
    assert_eq!(&driver.bytes(name)[..12], b"sample.img\0\0");
    driver.assert_good();
    assert_eq!(driver.pci.take_interrupts(), 2);
}

#[test]
fn requests_of_many_segments_are_whole() {
    let mut driver = up(ALL);
    let size = driver.rings[0].size as usize;
    let data = pattern(512 * (size - 2));
    let parts: Vec<_> = data.chunks(512).map(|part| driver.filled(part)).collect();
    assert_eq!(request(&mut driver, 1, 0, &parts), (0, 1));
    assert_eq!(driver.pci.device().disk.file_bytes(0, data.len()), data);
    driver.assert_good();
}

#[test]
fn zeros_and_discards_clear_what_they_name() {
    let mut driver = up(ALL);
    let data = driver.filled(&pattern(16384));
    assert_eq!(request(&mut driver, 1, 0, &[data]), (0, 1));
    let (first, second) = (segment(&mut driver, 1, 2, 0), segment(&mut driver, 8, 8, 1));
    assert_eq!(request(&mut driver, 13, 0, &[first, second]), (0, 1));
    let discarded = segment(&mut driver, 16, 8, 0);
    assert_eq!(request(&mut driver, 11, 0, &[discarded]), (0, 1));
    let mut expected = pattern(16384);
    for sectors in [1..3, 8..16, 16..24] {
        expected[sectors.start * 512..sectors.end * 512].fill(0);
    }
    assert_eq!(driver.pci.device().disk.file_bytes(0, 16384), expected);
    driver.assert_good();
}

#[test]
fn every_bad_request_has_its_answer_and_report() {
    let mut driver = up(ALL);
    let last = DISK_BYTES / 512;
    let data = driver.filled(&[1; 512]);
    let odd = driver.filled(&[1; 100]);
    let place = driver.buffer(512, true);
    let far = segment(&mut driver, last, 1, 0);
    let unmap = segment(&mut driver, 0, 1, 1);
    let flags = segment(&mut driver, 0, 1, 2);
    let long = segment(&mut driver, 0, DISCARD_SECTORS_MAX + 1, 0);
    let many = driver.filled(&[0; 17 * 16]);
    let outside = Buffer {
        iova: IOVA - 512,
        ..data
    };
    for (kind, sector, buffer, status, part) in [
        (1, last, data, 1, "beyond capacity"),
        (1, u64::MAX, data, 1, "beyond capacity"),
        (0, last, place, 1, "beyond capacity"),
        (1, 0, odd, 1, "whole sectors"),
        (1, 0, outside, 1, "outside of DMA memory"),
        (11, 0, far, 1, "beyond capacity"),
        (11, 0, unmap, 2, "must not have unmap"),
        (13, 0, flags, 2, "reserved flags"),
        (11, 0, long, 1, "longer than the device takes"),
        (11, 0, many, 1, "more segments than"),
        (11, 0, odd, 1, "whole segments"),
        (77, 0, data, 2, "no such type"),
        (8, 0, data, 1, "a buffer of 20 bytes"),
    ] {
        assert_eq!(
            request(&mut driver, kind, sector, &[buffer]).0,
            status,
            "{part}"
        );
        driver.assert_report(part);
    }
    // No room for a status, and no header.
    let head = header(&mut driver, 4, 0);
    driver.offer(0, &[head]);
    driver.poll();
    assert_eq!(driver.used(0).unwrap().1, 0);
    driver.assert_report("room for status");
    let status = driver.buffer(1, true);
    driver.offer(
        0,
        &[odd, status].map(|buffer| Buffer {
            bytes: buffer.bytes.min(8),
            ..buffer
        }),
    );
    driver.poll();
    driver.assert_report("must have a header");
    assert_eq!(driver.status(), 15);
    let severities = driver.pci.violations().severities();
    assert_eq!(severities.keys().collect::<Vec<_>>(), [&Severity::Fails]);
}

#[test]
fn a_disk_that_is_only_to_be_read_is_not_written() {
    let disk = sample(DISK_BYTES).read_only();
    let mut driver = Driver::up(VirtioBlk::new(disk), FEATURES | feature::RO);
    let data = driver.filled(&[1; 512]);
    assert_eq!(request(&mut driver, 1, 0, &[data]).0, 1);
    driver.assert_report("must not be written");
    let place = driver.buffer(512, true);
    assert_eq!(request(&mut driver, 0, 0, &[place]).0, 0);
    let zeros = segment(&mut driver, 0, 1, 0);
    assert_eq!(request(&mut driver, 13, 0, &[zeros]).0, 2);
}

#[test]
fn the_configuration_says_what_the_disk_is() {
    let mut driver = up(ALL);
    assert_eq!((driver.read(0x2000, 4), driver.read(0x2004, 4)), (2048, 0));
    assert_eq!(
        (driver.read(0x2008, 4), driver.read(0x200c, 4)),
        (SIZE_MAX, SEG_MAX)
    );
    assert_eq!((driver.read(0x2014, 4), driver.read(0x2018, 1)), (512, 3));
    assert_eq!((driver.read(0x2020, 1), driver.read(0x2022, 2)), (1, 4));
    driver.write(0x2020, 1, 0);
    assert_eq!(driver.read(0x2020, 1), 0);
    driver.assert_good();
    driver.write(0x2020, 1, 2);
    driver.write(0x2000, 4, 2);
    driver.assert_report("device configuration");
    // Who cannot flush writes through.
    let mut driver = up(0);
    assert_eq!(driver.read(0x2020, 1), 0);
    driver.write(0x2020, 1, 1);
    assert_eq!(driver.read(0x2020, 1), 0);
}

#[test]
fn every_queue_has_requests() {
    let mut driver = up(ALL);
    for queue in 0..4 {
        let head = header(&mut driver, 4, 0);
        let status = driver.buffer(1, true);
        driver.offer(queue, &[head, status]);
    }
    assert_eq!(driver.poll().transmitted, 4);
    assert!((0..4).all(|queue| driver.used(queue).is_some()));
    assert_eq!(driver.pci.take_interrupts(), 0b11110);
}

#[test]
fn it_goes_wrong_on_demand() {
    for (faults, answers) in [("status=1", true), ("transmit-hang=1", false)] {
        let mut driver = Driver::new(VirtioBlk::new(sample(DISK_BYTES)), faults);
        driver.bring_up(ALL, 64);
        let (head, status) = (header(&mut driver, 4, 0), driver.buffer(1, true));
        driver.offer(0, &[head, status]);
        driver.poll();
        assert_eq!(driver.used(0).is_some(), answers);
        assert_eq!(driver.bytes(status)[0] != 0, answers);
    }
}
