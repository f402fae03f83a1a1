//! What drivers ask a card for before and beside frames: its EEPROM, its module, its link, and
//! what their self tests write.

use super::*;

impl<W: Wire> Driver<W> {
    /// A word of the EEPROM, through EERD (8.2.3.2.2).
    fn eeprom(&mut self, word: u32) -> u16 {
        self.write(0x10014, word << 2 | 1);
        self.wait(0x10014, 1 << 1);
        (self.read(0x10014) >> 16) as u16
    }

    /// Drives the bus to the module, as I2CCTL does, and returns its data line.
    fn bus(&mut self, clock: bool, data: bool) -> bool {
        self.write(0x28, u32::from(clock) << 1 | u32::from(data) << 3);
        let lines = self.read(0x28);
        assert_eq!(lines & 1, u32::from(clock));
        lines & 1 << 2 != 0
    }

    fn bus_bit(&mut self, out: bool) -> bool {
        self.bus(false, out);
        let data = self.bus(true, out);
        self.bus(false, out);
        data
    }

    fn bus_start(&mut self) {
        self.bus(false, true);
        self.bus(true, true);
        self.bus(true, false);
        self.bus(false, false);
    }

    fn bus_write(&mut self, byte: u8) {
        (0..8).for_each(|bit| _ = self.bus_bit(byte << bit & 0x80 != 0));
        assert!(!self.bus_bit(true), "{byte:#x} is acknowledged");
    }

    /// A byte of the module's memory.
    fn module(&mut self, address: u8, place: u8) -> u8 {
        self.bus_start();
        self.bus_write(address);
        self.bus_write(place);
        self.bus_start();
        self.bus_write(address | 1);
        let byte = (0..8).fold(0, |byte, _| byte << 1 | u8::from(self.bus_bit(true)));
        self.bus_bit(true);
        self.bus(false, false);
        self.bus(true, false);
        self.bus(true, true);
        byte
    }
}

/// A wire that can be pulled out.
struct Plug {
    is_in: bool,
}

impl Wire for Plug {
    fn is_up(&mut self) -> bool {
        self.is_in
    }

    fn peek(&mut self) -> Option<(&[u8], Offload)> {
        None
    }

    fn take(&mut self) {}

    fn send(&mut self, _: &[u8], _: Offload) {}
}

#[test]
fn the_eeprom_adds_up_and_says_how_long_it_is() {
    let mut driver = Driver::ready(Loop::new());
    let sum = (0..0x40).fold(0u16, |sum, word| sum.wrapping_add(driver.eeprom(word)));
    assert_eq!(sum, 0xbaba);
    // The longest address that EERD takes is answered too.
    assert_eq!(driver.eeprom(0x3fff), 0xffff);
    assert_eq!(driver.read(0x10010) >> 11 & 0xf, 7);
    let firmware = driver.read(0x10148);
    assert_eq!(firmware & 1 << 15, 1 << 15, "valid");
    assert_eq!(firmware & 0x01f8_0000, 0, "without an error");
    driver.assert_lawful();
}

#[test]
fn the_module_is_read_bit_by_bit_and_survives_a_reset_in_the_middle() {
    let mut driver = Driver::new(Loop::new());
    let identity: Vec<u8> = (0..4).map(|place| driver.module(0xa0, place)).collect();
    assert_eq!(identity, [3, 4, 7, 0x10]);
    let celsius = driver.module(0xa2, 96);
    assert!((0..75).contains(&celsius), "{celsius}");
    driver.bus_start();
    driver.bus_write(0xa0);
    driver.reset();
    assert_eq!(driver.module(0xa0, 3), 0x10);
    driver.assert_lawful();
}

#[test]
fn a_mac_that_is_looped_back_hears_itself_and_nobody_else_does() {
    let (near, mut far) = pair();
    let mut driver = Driver::ready(near);
    let mut exchange = |driver: &mut Driver<Pair>| {
        driver.transmit(&[0xff; 60]);
        driver.poll();
        driver.poll();
        let received = driver.receive_buffer().map(|(bytes, _)| bytes);
        let sent = far.peek().is_some();
        far.take();
        (received, sent)
    };
    assert_eq!(exchange(&mut driver), (None, true));
    driver.change(0x4240, 1 << 15, 0);
    assert_eq!(exchange(&mut driver), (Some(vec![0xff; 60]), false));
    driver.change(0x4240, 0, 1 << 15);
    assert_eq!(exchange(&mut driver), (None, true));
    driver.assert_lawful();
}

#[test]
fn a_link_that_is_forced_needs_no_other_side() {
    let mut driver = Driver::ready(Plug { is_in: true });
    driver.device.wire().is_in = false;
    driver.poll();
    assert_eq!(driver.read(0x42a4) >> 30 & 1, 0);
    // The causes are read without being cleared, and cleared by writing them.
    assert_eq!(driver.read(0x808), 1 << 20);
    assert_eq!(driver.read(0x808), 1 << 20);
    driver.write(0x800, 1 << 20);
    assert_eq!(driver.read(0x808), 0);
    driver.change(0x42a0, 1 << 0, 0);
    driver.poll();
    assert_eq!(driver.read(0x42a4) >> 30 & 1, 1);
    assert_eq!(driver.read(0x808), 1 << 20);
    // Negotiation is for backplanes: it begins with their modes alone.
    assert_eq!(driver.read(0x42b0), 0);
    driver.change(0x42a0, 1 << 15, 0);
    assert_ne!(driver.read(0x42b0) & 0xf << 16, 0);
}

#[test]
fn registers_hold_what_self_tests_write() {
    let mut driver = Driver::new(Loop::new());
    // What is read is what was written, but for these bits.
    let registers = [
        (0x3220, 0x8007_fff0),
        (0x3260, 0x8007_fff0),
        (0x3008, u32::MAX),
        (0x3200, u32::MAX),
        (0x1000, 0xffff_ff80),
        (0x1004, u32::MAX),
        (0x1008, 0x000f_ff80),
        (0x6000, 0xffff_ff80),
        (0x6008, 0x000f_ff80),
        (0x5400, u32::MAX),
        (0x5404, 0x8000_ffff),
        (0x5200, u32::MAX),
        (0x5810, 0),
        (0xee2c, !7),
    ];
    for (offset, mask) in registers {
        for pattern in [0x5a5a_5a5a, 0xa5a5_a5a5, 0, u32::MAX] {
            driver.write(offset, pattern);
            assert_eq!(driver.read(offset), pattern & mask, "{offset:#x}");
        }
    }
    driver.write(0xee00, 1);
    assert_eq!(driver.read(0xee00), 1 | 1 << 3, "it is ready");
    // Both words of a filter at once; what it says is done when it is read.
    driver.device.write(0, 0xee28, &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(driver.read(0xee28), 0x0403_0201);
    assert_eq!(driver.read(0xee2c), 0x0807_0600);
}

#[test]
fn a_driver_that_only_waited_is_told_less() {
    let start = |waits: bool| {
        let mut driver = Driver::new(Loop::new());
        driver.write(0, 1 << 26);
        if waits {
            driver.poll();
        }
        driver.wait(0x2f00, 1 << 3);
        driver.start_receive();
        driver.violations()
    };
    assert_eq!(start(true), ["advice"]);
    assert_eq!(start(false), ["order"]);
}

#[test]
fn frames_are_spread_over_queues() {
    let mut driver = Driver::ready(Loop::new());
    // Queue 1, at another place than the transmit ring's.
    let ring = IOVA + 0x2000;
    for index in 0..DESCRIPTORS {
        let at = ring + u64::from(index) * 16;
        driver
            .memory
            .store(at, Driver::<Loop>::buffer(16 + index))
            .unwrap();
        driver.memory.store(at + 8, 0).unwrap();
    }
    driver.write(0x1040, ring as u32);
    driver.write(0x1044, (ring >> 32) as u32);
    driver.write(0x1048, DESCRIPTORS * 16);
    driver.write(0x1054, driver.split);
    driver.change(0x1068, 1 << 25, 0);
    driver.wait(0x1068, 1 << 25);
    driver.write(0x1058, DESCRIPTORS - 1);
    driver.change(0x104c, 0, 1 << 12);
    // Its vector is 3; frames of UDP over IPv4 go there, and what is not hashed does not.
    driver.write(0x900, 0x0083_8180);
    driver.write(0x880, 1 << 3);
    (0..10).for_each(|word| driver.write(0xeb80 + 4 * word, 0x0102_0408 << word));
    (0..32).for_each(|word| driver.write(0xeb00 + 4 * word, 0x0101_0101));
    driver.write(0xec80, 1 | 1 << 22);
    driver.write(0x5000, 1 << 13);
    driver.transmit(&samples::udp(false, None, &[7; 100]));
    driver.poll();
    driver.poll();
    assert_eq!(driver.device.take_interrupts() & !2, 1 << 3);
    let [first, second] = driver.descriptor(ring, 0);
    assert_eq!((first & 0xf, second & 1), (7, 1));
    assert_ne!(first >> 32, 0, "the hash");
    assert!(driver.receive_buffer().is_none());
    let tcp = samples::tcp(false, None, 1, &[7; 100]);
    driver.transmit(&tcp);
    driver.poll();
    driver.poll();
    let (_, [first, _]) = driver.receive_buffer().unwrap();
    assert_eq!((first & 0xf, first >> 32), (0, 0));
    // A perfect filter of TCP over IPv4, with report: its number is in the descriptor.
    driver.write(0xee00, 1 | 1 << 4 | 1 << 5);
    driver.write(0xee70, !(1 << 3));
    for mask in [0xee3c, 0xee40, 0xee44] {
        driver.write(mask, u32::MAX);
    }
    driver.write(0xee28, 9 << 16);
    driver.write(0xee2c, 1 | 2 << 5 | 1 << 15 | 1 << 16);
    driver.transmit(&tcp);
    driver.poll();
    driver.poll();
    let [first, second] = driver.descriptor(ring, 1);
    assert_eq!((first & 0xf, first >> 32, second & 1), (0xf, 9 << 16, 1));
    assert_eq!([driver.read(0xee58), driver.read(0xee5c)], [1, 0]);
    driver.assert_lawful();
}
