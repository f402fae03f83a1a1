//! A USB controller that reports whatever it likes, and a disk behind it that says anything of
//! itself: their driver must neither panic nor hand a request out twice, and once both behave,
//! every request must come back.

use crate::requests::{self, Requests, steps};
use drivers::block::usb::puppet::{Fault, Node, PORTSC, Puppet, USBCMD, USBSTS};
use drivers::block::usb::{DMA_BYTES, Driver};
use std::cell::RefCell;
use std::rc::Rc;

const BLOCKS: u64 = 64;
const ARENA_BYTES: usize = DMA_BYTES + requests::ARENA_BYTES;
/// What passes between two looks at the clock, in nanoseconds.
const TICK: u64 = 50_000_000;
/// Looks within which a driver has noticed that a device hangs, and has reset it as often as it
/// ever does.
const LOOKS_MAX: usize = 200_000;
/// Where the DMA memory of the puppet lies.
const IOVA: u64 = 0x1_0000_0000;
/// The byte that its serial number begins with while it behaves.
const SERIAL: u8 = b'a';

struct Subject {
    puppet: Rc<Puppet>,
    driver: Driver,
    requests: Requests,
    modes: Vec<u8>,
}

thread_local! {
    /// One for all inputs, each of which finds it as new.
    static SUBJECT: RefCell<Option<Subject>> = const { RefCell::new(None) };
}

/// Nothing at the first port, and at the second one a hub whose second port has the disk.
fn ports() -> [Node; 2] {
    [Node::Empty, Node::Hub(3, vec![Node::Empty, Node::Disk(3)])]
}

impl Subject {
    fn new() -> Self {
        let (puppet, bar, mut arena) = Puppet::new(ARENA_BYTES, BLOCKS, &ports());
        let driver = Driver::new(bar, &mut arena, puppet.clock(TICK));
        let modes = puppet.disk.borrow().modes.clone();
        Self {
            driver: driver.expect("the puppet comes up"),
            requests: Requests::new(&mut arena),
            puppet,
            modes,
        }
    }

    fn run(&mut self, bytes: &[u8]) {
        for (what, small, large, more) in steps(bytes) {
            self.step(what, small, large, more);
        }
        self.recover();
    }

    /// One step. Where there is no memory, the puppet finds none: its errors are no news.
    fn step(&mut self, what: u8, small: u16, large: u32, more: u8) {
        let puppet = &self.puppet;
        match what % 10 {
            0 => self.requests.ask(&mut self.driver, small, large, more),
            1 | 2 => self.requests.look(&mut self.driver),
            3 => puppet
                .disk
                .borrow_mut()
                .faults
                .push_back(fault(small, more)),
            4 => {
                const ANY: [usize; 4] = [USBCMD, USBSTS, PORTSC, PORTSC + 0x10];
                puppet.set(ANY[usize::from(more) % ANY.len()], large);
            }
            5 => {
                let at = IOVA + u64::from(small) * 8;
                let _ = puppet.view().store(at, u64::from(large) << (more % 33));
            }
            6 => puppet.sleep(u64::from(large) << (small % 4)),
            7 => {
                let about = IOVA + u64::from(small) * 16;
                let kind = u64::from(large & 0x3f) << 42;
                let of = u64::from(large >> 8 & 3) << 56 | u64::from(large >> 16 & 7) << 48;
                let _ = puppet.report(about, more % 32, large >> 24, kind | of);
            }
            8 => {
                let mut disk = puppet.disk.borrow_mut();
                match more % 2 {
                    0 => disk.serial[2] = more,
                    _ => disk.modes[usize::from(small % 16)] = large as u8,
                }
            }
            _ => {
                puppet.is_silent.set(more & 1 != 0);
                puppet.is_eager.set(more & 2 != 0);
                if more & 12 == 12 {
                    puppet.disturb(1, 0, more & 16 != 0);
                }
            }
        }
    }

    /// The device behaves from now on.
    fn recover(&mut self) {
        let puppet = self.puppet.clone();
        puppet.is_silent.set(false);
        puppet.is_eager.set(false);
        {
            let mut disk = puppet.disk.borrow_mut();
            disk.serial[2] = SERIAL;
            disk.modes.clone_from(&self.modes);
            disk.faults.clear();
        }
        for _ in 0..LOOKS_MAX {
            if self.requests.in_flight() == 0 {
                break;
            }
            self.requests.look(&mut self.driver);
        }
        assert_eq!(self.requests.in_flight(), 0, "every request comes back");
    }

    /// Whether the next input finds it as new: no buffer was lost.
    fn is_as_new(&mut self) -> bool {
        self.requests.have_buffers() && {
            self.puppet.plug(&ports());
            self.driver.renew().expect("the puppet comes up");
            true
        }
    }
}

/// Something that a disk does wrong.
fn fault(small: u16, more: u8) -> Fault {
    let [low, high] = small.to_le_bytes();
    match more % 10 {
        0 => Fault::Silence,
        1 => Fault::Sense(low, high),
        2 => Fault::StalledSense(low, high),
        3 => Fault::StalledStatus(low % 4),
        4 => Fault::StalledCommand,
        5 => Fault::Short,
        6 => Fault::Signature,
        7 => Fault::Tag,
        8 => Fault::Residue(small.into()),
        _ => Fault::Status(low),
    }
}

pub fn feed(bytes: &[u8]) {
    SUBJECT.with_borrow_mut(|subject| {
        let one = subject.get_or_insert_with(Subject::new);
        one.run(bytes);
        if !one.is_as_new() {
            *subject = None;
        }
    });
}
