//! A checkup of the model of the 82599, by the driver that it was written for.

use drivers::net::DRIVERS;
use drivers::net::checkup::{self, Patient, Place, Step, Verdict};
use hw::Register;
use hw::sim::{View, arena};
use models::wire::{Loop, Wire, pair};
use models::{Device, Intel82599, Local};
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

const DMA_BYTES: usize = 16 << 20;
const IOVA: u64 = 0x10_0000_0000;
const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 9];
const DEVICE: u16 = 0x10fb;
/// How long a turn of the device takes, and a look at the clock.
const TURN_NANOSECONDS: u64 = 10_000;
const LOOK_NANOSECONDS: u64 = 1000;
const LISTEN_NANOSECONDS: u64 = 2_000_000_000;
/// The vector of receive queue 0.
const VECTOR: u64 = 1 << 0;

/// Device and driver take turns: the device has its own while the driver sleeps.
struct Room<W: Wire + 'static> {
    device: Rc<Local<Intel82599<W>>>,
    memory: View,
    now: Rc<Cell<u64>>,
    found: Vec<(Step, Verdict, String)>,
    registers: usize,
}

impl<W: Wire + 'static> Place for Room<W> {
    fn now(&self) -> u64 {
        self.now.set(self.now.get() + LOOK_NANOSECONDS);
        self.now.get()
    }

    fn sleep(&mut self, until: u64) -> bool {
        while self.now.get() < until {
            self.now.set(self.now.get() + TURN_NANOSECONDS);
            let now = Duration::from_nanos(self.now.get());
            self.device.poll(&self.memory, now);
            if self.device.device().take_interrupts() & VECTOR != 0 {
                return true;
            }
        }
        false
    }

    fn interrupts(&self) -> bool {
        true
    }

    fn register(&mut self, _: &str, _: Register, _: u32) {
        self.registers += 1;
    }

    fn found(&mut self, step: Step, section: &str, verdict: Verdict, what: fmt::Arguments<'_>) {
        assert!(!section.is_empty());
        self.found.push((step, verdict, what.to_string()));
    }
}

fn examine<W: Wire + 'static>(wire: W, how: &str) -> Room<W> {
    let device = Local::new(Intel82599::new(ADDRESS, wire, &how.parse().unwrap()));
    let (mut arena, memory) = arena(DMA_BYTES, IOVA);
    let now = Rc::new(Cell::new(0));
    let clock = {
        let now = now.clone();
        move || {
            now.set(now.get() + LOOK_NANOSECONDS);
            now.get()
        }
    };
    let driver = DRIVERS.iter().find(|driver| driver.device == DEVICE);
    let driver = driver.unwrap();
    let patient = Patient {
        driver,
        examination: driver.examination.unwrap(),
        bar0: device.mmio(),
        arena: &mut arena,
        clock: &clock,
        listen: LISTEN_NANOSECONDS,
    };
    let mut room = Room {
        device,
        memory,
        now,
        found: Vec::new(),
        registers: 0,
    };
    let worst = checkup::run(patient, &mut room);
    assert_eq!(Some(worst), room.found.iter().map(|(_, of, _)| *of).max());
    room
}

impl<W: Wire + 'static> Room<W> {
    fn verdict(&self, step: Step) -> Option<Verdict> {
        let mut all = self.found.iter();
        let found = all.find(|(of, _, _)| *of == step);
        found.map(|(_, verdict, _)| *verdict)
    }
}

#[test]
fn a_card_with_a_plug_passes_each_step() {
    let room = examine(Loop::new(), "");
    let steps: Vec<_> = room.found.iter().map(|(step, ..)| *step).collect();
    assert_eq!(steps, Step::ALL, "{:?}", room.found);
    for (step, verdict, what) in &room.found {
        assert_eq!(*verdict, Verdict::Ok, "{step:?}: {what}");
    }
    assert!(room.registers > 0);
    let device = room.device.device();
    assert!(device.violations().is_empty(), "{}", device.violations());
}

#[test]
fn what_is_missing_at_the_other_end_is_no_fault_of_the_card() {
    let (near, _far) = pair();
    let room = examine(near, "");
    for step in Step::ALL {
        let expected = match step {
            Step::Receive => Verdict::Warn,
            _ => Verdict::Ok,
        };
        assert_eq!(room.verdict(step), Some(expected), "{:?}", room.found);
    }
}

#[test]
fn a_card_that_lies_is_found_out() {
    for (how, step) in [
        ("skip=20,seed=7", Step::Loopback),
        ("length=5,seed=7", Step::Counts),
        ("lost-interrupt=1", Step::Interrupt),
        ("transmit-hang=1", Step::Loopback),
    ] {
        let room = examine(Loop::new(), how);
        assert_eq!(
            room.verdict(step),
            Some(Verdict::No),
            "{how}: {:?}",
            room.found
        );
    }
    // All ones: there is nothing behind the registers.
    let room = examine(Loop::new(), "gone=1");
    assert!(
        room.found
            .iter()
            .any(|(_, verdict, _)| *verdict == Verdict::No)
    );
}
