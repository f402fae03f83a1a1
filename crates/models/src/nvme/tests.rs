use super::*;
use crate::disk::sample;
use crate::violation::Severity;
use hw::sim::{View, arena};

const IOVA: u64 = 0x10_0000;
const BYTES: usize = 1 << 20;
const DISK_BYTES: u64 = 1 << 20;
/// Where queues and buffers lie; queue `n` and its completions have two pages.
const QUEUE: u64 = IOVA;
const BUFFER: u64 = IOVA + 0x4_0000;
const ENTRIES: u32 = 8;

/// A driver for tests, which keeps to the rules, and can be told not to.
struct Driver {
    nvme: Nvme,
    memory: View,
    tails: [u32; QUEUES],
    heads: [u32; QUEUES],
    next_id: u16,
}

/// Dwords of a command that are not zero: number and value.
type Dwords<'a> = &'a [(usize, u32)];

/// An answer: status, dword 0, submission head.
type Answer = (u16, u32, u16);

impl Driver {
    fn new(disk: Disk, how: &str) -> Self {
        let (_, memory) = arena(BYTES, IOVA);
        Self {
            nvme: Nvme::new(disk, &how.parse().unwrap()),
            memory,
            tails: [0; QUEUES],
            heads: [0; QUEUES],
            next_id: 0x7100,
        }
    }

    /// With its admin queues.
    fn enabled(disk: Disk, how: &str) -> Self {
        let mut driver = Self::new(disk, how);
        driver.enable(0x0046_0001);
        driver
    }

    /// With a pair of queues for I/O.
    fn up(how: &str) -> Self {
        let mut driver = Self::enabled(sample(DISK_BYTES), how);
        driver.create(1);
        driver
    }

    fn read(&mut self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.nvme.read(0, offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn write(&mut self, offset: u64, value: u32) {
        self.nvme.write(0, offset, &value.to_le_bytes());
    }

    fn poll(&mut self) -> u32 {
        self.nvme.poll(&self.memory, Duration::ZERO).transmitted
    }

    fn enable(&mut self, cc: u32) {
        self.write(0x24, (ENTRIES - 1) * 0x1_0001);
        self.write(0x28, QUEUE as u32);
        self.write(0x30, QUEUE as u32 + 0x1000);
        self.write(0x14, cc);
        self.poll();
    }

    fn submissions(queue: usize) -> u64 {
        QUEUE + 0x2000 * queue as u64
    }

    /// Writes a command; the device is not told.
    fn put(&mut self, queue: usize, dwords: Dwords<'_>) -> u16 {
        let place = Self::submissions(queue) + 64 * u64::from(self.tails[queue]);
        self.memory.write(place, &[0; 64]).unwrap();
        for (dword, value) in dwords {
            let place = place + 4 * *dword as u64;
            self.memory.write(place, &value.to_le_bytes()).unwrap();
        }
        let id = self.next_id;
        self.next_id += 1;
        self.memory.write(place + 2, &id.to_le_bytes()).unwrap();
        self.tails[queue] = (self.tails[queue] + 1) % ENTRIES;
        id
    }

    fn ring(&mut self, queue: usize) {
        self.write(0x1000 + 8 * queue as u64, self.tails[queue]);
    }

    /// The next answer, if there is one.
    fn take(&mut self, queue: usize) -> Option<(u16, Answer)> {
        let head = self.heads[queue];
        let place = Self::submissions(queue) + 0x1000 + 16 * u64::from(head % ENTRIES);
        let [first, last] = [0, 8].map(|at| self.memory.load(place + at).unwrap());
        let phase = (head / ENTRIES).is_multiple_of(2);
        if (last >> 48 & 1 == 1) != phase {
            return None;
        }
        assert_eq!(last >> 16 & 0xffff, queue as u64);
        self.heads[queue] += 1;
        self.write(0x1004 + 8 * queue as u64, self.heads[queue] % ENTRIES);
        let answer = ((last >> 49) as u16, first as u32, last as u16);
        Some(((last >> 32) as u16, answer))
    }

    /// Has a command done.
    fn ask(&mut self, queue: usize, dwords: Dwords<'_>) -> Answer {
        let id = self.put(queue, dwords);
        self.ring(queue);
        self.poll();
        let (answered, answer) = self.take(queue).expect("an answer");
        assert_eq!(answered, id);
        answer
    }

    fn create(&mut self, queue: u32) {
        let at = Self::submissions(queue as usize) as u32;
        let size = (ENTRIES - 1) << 16 | queue;
        let interrupts = queue << 16 | 0b11;
        let dwords = [(0, 5), (6, at + 0x1000), (10, size), (11, interrupts)];
        assert_eq!(self.ask(0, &dwords).0, 0);
        let dwords = [(0, 1), (6, at), (10, size), (11, queue << 16 | 1)];
        assert_eq!(self.ask(0, &dwords).0, 0);
    }

    /// A transfer of one block or more from the buffer, or to it.
    fn transfer(&mut self, opcode: u32, block: u32, blocks: u32) -> u16 {
        let second = BUFFER as u32 + 4096;
        let dwords = [
            (0, opcode),
            (1, 1),
            (6, BUFFER as u32),
            (8, second),
            (10, block),
            (12, blocks - 1),
        ];
        self.ask(1, &dwords).0
    }

    fn assert_good(&self) {
        assert!(self.nvme.violations.is_empty(), "{}", self.nvme.violations);
    }

    /// The only thing that the driver did wrong.
    fn assert_one(&self, says: &str) {
        let reports = self.nvme.violations.reports();
        assert_eq!(reports.len(), 1, "{}", self.nvme.violations);
        let text = reports[0].to_string();
        assert!(text.contains(says), "{text}");
    }
}

/// Do not retry.
const FINAL: u16 = 1 << 14;

#[test]
fn a_controller_takes_its_time_to_become_ready_and_to_stop() {
    let mut driver = Driver::new(sample(DISK_BYTES), "");
    assert_eq!([driver.read(0), driver.read(4)], [0x1401_03ff, 0x20]);
    assert_eq!([driver.read(8), driver.read(0x1c)], [0x0001_0400, 0]);
    driver.write(0x24, 0x0007_0007);
    driver.write(0x28, IOVA as u32);
    driver.write(0x30, IOVA as u32 + 0x1000);
    driver.write(0x14, 0x0046_0001);
    assert_eq!(
        [driver.read(0x1c), driver.read(0x1c), driver.read(0x1c)],
        [0, 0, 1]
    );
    driver.write(0x14, 0x0046_0000);
    assert_eq!(
        [driver.read(0x1c), driver.read(0x1c), driver.read(0x1c)],
        [1, 1, 0]
    );
    assert_eq!(
        driver.read(0x24),
        0x0007_0007,
        "a controller reset leaves it"
    );
    driver.enable(0x0046_0001);
    driver.write(0x14, 0x0046_4001);
    assert_eq!(driver.read(0x1c), 0b1001, "it is shut down");
    driver.assert_good();
    driver.nvme.reset();
    assert_eq!(
        [driver.read(0x24), driver.read(0x14), driver.read(0x1c)],
        [0; 3]
    );
}

#[test]
fn a_configuration_that_cannot_be_is_fatal() {
    for (cc, says) in [
        (0x0046_0011, "CSS must be"),
        (0x0046_0081, "MPS must lie"),
        (0x0046_0801, "AMS must be"),
    ] {
        let mut driver = Driver::new(sample(DISK_BYTES), "");
        driver.enable(cc);
        assert_eq!(driver.read(0x1c), 0b10);
        driver.assert_one(says);
    }
    let mut driver = Driver::enabled(sample(DISK_BYTES), "");
    driver.write(0x14, 0x0046_0081);
    driver.assert_one("CC.EN must be 0 while CSS, MPS or AMS change");
    let mut driver = Driver::enabled(sample(DISK_BYTES), "");
    driver.write(0x24, 0x0001_0001);
    driver.assert_one("CC.EN must be 0 while it changes");
    let mut driver = Driver::enabled(sample(DISK_BYTES), "");
    driver.write(0x14, 0x0046_0000);
    driver.write(0x14, 0x0046_0001);
    driver.assert_one("CSTS.RDY must be 0 when EN is set");
}

#[test]
fn it_says_what_it_is() {
    let mut driver = Driver::enabled(sample(DISK_BYTES), "");
    let identify = |driver: &mut Driver, what: u32, namespace: u32| {
        let dwords = [(0, 6), (1, namespace), (6, BUFFER as u32), (10, what)];
        let (status, ..) = driver.ask(0, &dwords);
        let mut page = vec![0; 4096];
        driver.memory.read(BUFFER, &mut page).unwrap();
        (status, page)
    };
    let (status, page) = identify(&mut driver, 1, 0);
    assert_eq!((status, &page[4..16]), (0, &b"sample.img  "[..]));
    assert_eq!(
        (page[77], &page[512..514], page[525] & 1),
        (8, &[0x66, 0x44][..], 1)
    );
    assert!(page[768..].starts_with(b"nqn.2014-08.org.nvmexpress:uuid:"));
    let (status, page) = identify(&mut driver, 0, 1);
    assert_eq!(
        (status, &page[..8]),
        (0, &(DISK_BYTES / 512).to_le_bytes()[..])
    );
    assert_eq!(page[128..132], [0, 0, 9, 0]);
    let (status, page) = identify(&mut driver, 0, 2);
    assert_eq!((status, page.iter().all(|byte| *byte == 0)), (0, true));
    let (status, page) = identify(&mut driver, 2, 0);
    assert_eq!((status, &page[..8]), (0, &[1, 0, 0, 0, 0, 0, 0, 0][..]));
    let (_, page) = identify(&mut driver, 2, 1);
    assert_eq!(page[..4], [0; 4]);
    let (_, page) = identify(&mut driver, 3, 1);
    assert_eq!(page[..2], [3, 16]);
    assert_eq!(identify(&mut driver, 0x1c, 0).0, FINAL | 2);
    // Queues, and what is no feature.
    assert_eq!(
        driver.ask(0, &[(0, 9), (10, 7), (11, 0x3f_003f)]),
        (0, 0x3_0003, 0)
    );
    assert_eq!(driver.ask(0, &[(0, 10), (10, 6)]).1, 1);
    assert_eq!(driver.ask(0, &[(0, 9), (10, 0x7e)]).0, FINAL | 2);
    let log = [(0, 2), (6, BUFFER as u32), (10, 127 << 16 | 2)];
    assert_eq!(driver.ask(0, &log).0, 0);
    assert_eq!(
        driver.ask(0, &[(0, 2), (6, BUFFER as u32), (10, 0x70)]).0,
        FINAL | 0x109
    );
    driver.assert_good();
}

#[test]
fn what_is_written_is_read_back() {
    let mut driver = Driver::up("");
    let bytes: Vec<u8> = (0..8192).map(|at| (at / 512 + at) as u8).collect();
    driver.memory.write(BUFFER, &bytes).unwrap();
    assert_eq!(driver.transfer(1, 5, 16), 0);
    assert_eq!(driver.nvme.disk.file_bytes(5 * 512, 8192), bytes);
    driver.memory.write(BUFFER, &[0; 8192]).unwrap();
    assert_eq!(driver.transfer(2, 5, 16), 0);
    let mut found = vec![0; 8192];
    driver.memory.read(BUFFER, &mut found).unwrap();
    assert_eq!(found, bytes);
    assert_eq!(driver.ask(1, &[(0, 0), (1, u32::MAX)]).0, 0);
    // Zeros, and ranges that are given back.
    assert_eq!(driver.ask(1, &[(0, 8), (1, 1), (10, 6), (12, 1)]).0, 0);
    driver.memory.store(BUFFER, 2 << 32).unwrap();
    driver.memory.store(BUFFER + 8, 12).unwrap();
    let discard = [(0, 9), (1, 1), (6, BUFFER as u32), (11, 4)];
    assert_eq!(driver.ask(1, &discard).0, 0);
    let zeros = |driver: &Driver, block: u64| {
        let bytes = driver.nvme.disk.file_bytes(block * 512, 1024);
        bytes.iter().all(|byte| *byte == 0)
    };
    assert!(zeros(&driver, 6) && zeros(&driver, 12) && !zeros(&driver, 8));
    driver.assert_good();
    assert_eq!(driver.nvme.take_interrupts(), 0b11);
}

#[test]
fn what_cannot_be_done_is_said_and_reported() {
    let last = DISK_BYTES as u32 / 512;
    let buffer = BUFFER as u32;
    let cases: [(Dwords<'_>, u16, &str); 8] = [
        (&[(0, 2), (1, 2)], 0x0b, "NSID must be"),
        (
            &[(0, 2), (1, 1), (6, buffer), (10, last)],
            0x80,
            "blocks must be those",
        ),
        (&[(0, 2), (1, 1), (6, buffer + 2)], 0x13, "PRP1 must begin"),
        (
            &[(0, 2), (1, 1), (6, 0x1000)],
            0x04,
            "outside of DMA memory",
        ),
        (
            &[(0, 2), (1, 1), (6, buffer), (12, 0xffff)],
            0x80,
            "blocks must be",
        ),
        (
            &[(0, 2), (1, 1), (6, buffer), (12, 1 << 29)],
            0x02,
            "PRINFO must be",
        ),
        (
            &[(0, 0x4002), (1, 1), (6, buffer)],
            0x02,
            "FUSE and PSDT must be 0",
        ),
        (&[(0, 0x7f), (1, 1)], 0x01, ""),
    ];
    for (dwords, status, says) in cases {
        let mut driver = Driver::up("");
        assert_eq!(driver.ask(1, dwords).0, FINAL | status, "{dwords:?}");
        match says {
            "" => driver.assert_good(),
            says => driver.assert_one(says),
        }
    }
    let mut driver = Driver::enabled(sample(4 << 20), "");
    driver.create(1);
    let dwords = [(0, 2), (1, 1), (6, buffer), (12, 2048)];
    assert_eq!(driver.ask(1, &dwords).0, FINAL | 2);
    driver.assert_one("not be longer than MDTS");
    let mut driver = Driver::enabled(sample(DISK_BYTES).read_only(), "");
    driver.create(1);
    assert_eq!(driver.transfer(2, 0, 1), 0);
    driver.assert_good();
    assert_eq!(driver.transfer(1, 0, 1), FINAL | 0x20);
    driver.assert_one("must not be written");
}

#[test]
fn queues_are_made_and_deleted_in_their_order() {
    let mut driver = Driver::up("");
    let at = Driver::submissions(2) as u32;
    let size = (ENTRIES - 1) << 16;
    let refused: [(Dwords<'_>, u16); 8] = [
        (&[(0, 5), (6, at), (10, size), (11, 1)], 0x101),
        (&[(0, 5), (6, at), (10, size | 9), (11, 1)], 0x101),
        (&[(0, 5), (6, at), (10, size | 1), (11, 1)], 0x101),
        (&[(0, 5), (6, at), (10, 2), (11, 1)], 0x102),
        (&[(0, 5), (6, at), (10, size | 2), (11, 0)], 0x02),
        (&[(0, 5), (6, at + 8), (10, size | 2), (11, 1)], 0x13),
        (&[(0, 5), (6, at), (10, size | 2), (11, 9 << 16 | 3)], 0x108),
        (&[(0, 1), (6, at), (10, size | 2), (11, 2 << 16 | 1)], 0x100),
    ];
    for (dwords, status) in refused {
        assert_eq!(driver.ask(0, dwords).0, FINAL | status, "{dwords:?}");
    }
    assert_eq!(driver.ask(0, &[(0, 4), (10, 1)]).0, FINAL | 0x10c);
    for (opcode, status) in [(0, 0), (0, FINAL | 0x101), (4, 0), (4, FINAL | 0x101)] {
        assert_eq!(driver.ask(0, &[(0, opcode), (10, 1)]).0, status);
    }
    driver.write(0x1008, 1);
    let reports = driver.nvme.violations.to_string();
    assert!(
        reports.contains("SQyTDBL was written: the queue must exist"),
        "{reports}"
    );
    let fails = driver.nvme.violations.severities();
    assert_eq!(fails.get(&Severity::Fails), Some(&12));
}

#[test]
fn doorbells_and_identifiers_are_checked() {
    for (offset, value, says) in [
        (0x1008, ENTRIES, "tail 8 of request queue 1 in a ring of 8"),
        (0x100c, 3, "must not pass entries that were not posted"),
    ] {
        let mut driver = Driver::up("");
        driver.write(offset, value);
        assert_eq!(driver.poll(), 0);
        driver.assert_one(says);
    }
    let mut driver = Driver::up("");
    driver.put(1, &[(0, 0), (1, 1)]);
    driver.ring(1);
    driver.write(0x1008, 0);
    driver.assert_one("tail 0 of request queue 1 moved beyond head 0");
    // The same identifier twice at once.
    let mut driver = Driver::up("");
    driver.put(1, &[(0, 0), (1, 1)]);
    driver.next_id -= 1;
    driver.put(1, &[(0, 0), (1, 1)]);
    driver.ring(1);
    assert_eq!(driver.poll(), 2);
    driver.assert_one("CID must be that of no other outstanding command");
    // One after the other, it is nothing.
    let mut driver = Driver::up("");
    for _ in 0..3 * ENTRIES {
        assert_eq!(driver.ask(1, &[(0, 0), (1, 1)]).0, 0);
        driver.next_id -= 1;
    }
    driver.assert_good();
}

#[test]
fn a_driver_that_takes_no_answers_gets_no_more() {
    let mut driver = Driver::up("");
    for _ in 0..ENTRIES - 1 {
        driver.put(1, &[(0, 0), (1, 1)]);
    }
    driver.ring(1);
    assert_eq!(driver.poll(), ENTRIES - 1);
    driver.put(1, &[(0, 0), (1, 1)]);
    driver.ring(1);
    assert_eq!(driver.poll(), 0, "there is no room for its answer");
    assert!(driver.take(1).is_some());
    assert_eq!(driver.poll(), 1);
    driver.assert_good();
}

#[test]
fn events_wait_and_too_many_are_refused() {
    let mut driver = Driver::enabled(sample(DISK_BYTES), "");
    for _ in 0..4 {
        driver.put(0, &[(0, 0x0c)]);
    }
    driver.ring(0);
    assert_eq!(driver.poll(), 4);
    assert_eq!(driver.take(0), None);
    assert_eq!(driver.ask(0, &[(0, 0x0c)]).0, FINAL | 0x105);
    driver.assert_one("no more of these than AERL says");
}

#[test]
fn a_command_that_hangs_can_be_aborted() {
    let mut driver = Driver::up("transmit-hang=1");
    let id = driver.put(1, &[(0, 0), (1, 1)]);
    driver.ring(1);
    driver.poll();
    assert_eq!(driver.take(1), None);
    let abort = |id: u16| [(0, 8), (10, u32::from(id) << 16 | 1)];
    assert_eq!(driver.ask(0, &abort(id ^ 1)).1, 1);
    assert_eq!(driver.ask(0, &abort(id)).1, 0);
    let (answered, (status, ..)) = driver.take(1).expect("an answer");
    assert_eq!((answered, status), (id, FINAL | 7));
    driver.assert_good();
}

#[test]
fn faults_are_what_they_are_called() {
    let answers = |how: &str| {
        let mut driver = Driver::up(how);
        let id = driver.put(1, &[(0, 0), (1, 1)]);
        driver.ring(1);
        driver.poll();
        let first = driver.take(1);
        driver.nvme.take_interrupts();
        (id, first, driver.take(1))
    };
    let (id, first, second) = answers("");
    assert_eq!((first, second), (Some((id, (0, 0, 1))), None));
    let (id, first, second) = answers("twice=1");
    assert_eq!(
        (first, second),
        (Some((id, (0, 0, 1))), Some((id, (0, 0, 1))))
    );
    assert_eq!(answers("skip=1").1, None);
    let (id, first, _) = answers("garbage=1,seed=3");
    assert_ne!(first.map(|(id, _)| id), Some(id));
    let (_, first, _) = answers("status=1,seed=3");
    assert_ne!(first.map(|(_, (status, ..))| status), Some(0));
    let mut driver = Driver::new(sample(DISK_BYTES), "gone=1");
    driver.poll();
    assert_eq!(driver.read(0x1c), u32::MAX);
    let mut driver = Driver::up("lost-interrupt=1");
    driver.ask(1, &[(0, 0), (1, 1)]);
    assert_eq!(driver.nvme.take_interrupts(), 0);
    let mut driver = Driver::up("wild-write=1,seed=1");
    driver.transfer(2, 0, 1);
    driver.memory.write(BUFFER, &[0; 512]).unwrap();
    driver.poll();
    assert_ne!(driver.memory.load(BUFFER), Ok(0));
}
