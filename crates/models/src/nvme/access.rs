//! Reads and writes of registers: what each does, and what a driver may not do.

use super::Nvme;
use super::queue::{Completions, ENTRY_SIZES, Submissions, name};
use super::registers::{Id, Place, RegisterFile, at, bit, cc};
use super::status::{Failure, Status};
use crate::registers::Registers;
use crate::violation::Violation;

/// Bytes of a page, in which admin queues begin.
const PAGE_MASK: u64 = 0xfff;

impl Registers for Nvme {
    type Id = Id;

    fn file(&self) -> &RegisterFile {
        &self.file
    }

    fn read_register(&mut self, place: &Place) -> u32 {
        let value = match place.register.id {
            Id::Status => self.status(),
            // Both read the mask.
            Id::MaskSet | Id::MaskClear => self.mask,
            _ => self.file.held(place),
        };
        self.faults.read(place.offset, value)
    }

    fn write_register(&mut self, place: &Place, value: u32) {
        let register = place.register;
        let held = self.file.held(place);
        let bits = register.reserved(value);
        if bits != 0 {
            self.violations.add(Violation::Reserved {
                register: register.name,
                section: register.section,
                bits,
            });
        }
        if register.writable == 0 {
            if value != held {
                self.violations.add(Violation::ReadOnly {
                    register: register.name,
                    section: register.section,
                    value,
                });
            }
            return;
        }
        let written = register.written(held, value);
        self.file.hold(place, written);
        match register.id {
            Id::MaskSet => self.mask |= written,
            Id::MaskClear => self.mask &= !written,
            Id::Configuration => self.configure(held, written),
            Id::AdminQueues if self.is_enabled() && written != held => {
                self.order(register.name, "CC.EN must be 0 while it changes (3.1.3.8)");
            }
            Id::Tail => self.ring_tail(place.index, value),
            Id::Head => self.ring_head(place.index, value),
            _ => {}
        }
    }

    fn report(&mut self, violation: Violation) {
        self.violations.add(violation);
    }
}

impl Nvme {
    fn order(&mut self, register: &'static str, rule: &'static str) {
        self.violations.add(Violation::Order { register, rule });
    }

    fn value(&mut self, register: &'static str, value: u32, rule: &'static str) {
        self.violations.add(Violation::Value {
            register,
            value,
            rule,
        });
    }

    /// CC.EN.
    pub(crate) fn is_enabled(&self) -> bool {
        self.file.has(at::CC, bit::EN)
    }

    /// CSTS.
    fn status(&mut self) -> u32 {
        let when = |is: bool, bits: u32| if is { bits } else { 0 };
        when(self.ready.read(), bit::RDY)
            | when(self.is_fatal, bit::CFS)
            | when(self.is_shut_down, bit::SHUT_DOWN)
    }

    /// CC was written (3.1.3.5).
    fn configure(&mut self, before: u32, now: u32) {
        let was_enabled = before & bit::EN != 0;
        match (was_enabled, now & bit::EN != 0) {
            (false, true) => self.enable(now),
            (true, false) => self.disable(),
            (true, true) if (before ^ now) & bit::FIXED != 0 => {
                self.order(
                    "CC",
                    "CC.EN must be 0 while CSS, MPS or AMS change (3.1.3.5)",
                );
            }
            _ => {}
        }
        if cc::shutdown(now) != 0 && !self.is_shut_down {
            // What was given is kept; a disk that cannot says so with the next command.
            let _ = self.disk.flush();
            self.is_shut_down = true;
        }
    }

    fn enable(&mut self, configuration: u32) {
        if !self.ready.is_settled() {
            self.order("CC", "CSTS.RDY must be 0 when EN is set (3.5.1)");
        }
        let sizes = self.file.get(at::AQA);
        let both = |offset: usize| {
            let [low, high] = [0, 4].map(|half| u64::from(self.file.get(offset + half)));
            low | high << 32
        };
        let [submissions, completions] = [both(at::ASQ), both(at::ACQ)];
        let rule = if cc::command_set(configuration) != 0 {
            Some("CSS must be a command set of CAP.CSS (3.1.3.5)")
        } else if cc::page_size(configuration) != 0 {
            Some("MPS must lie between CAP.MPSMIN and CAP.MPSMAX (3.1.3.5)")
        } else if cc::arbitration(configuration) != 0 {
            Some("AMS must be a mechanism of CAP.AMS (3.1.3.5)")
        } else if sizes & 0xfff == 0 || sizes >> 16 & 0xfff == 0 {
            Some("AQA must give each queue two entries at least (3.1.3.8)")
        } else if (submissions | completions) & PAGE_MASK != 0 {
            Some("ASQ and ACQ must begin at pages (3.1.3.9)")
        } else {
            None
        };
        if let Some(rule) = rule {
            self.value("CC", configuration, rule);
            self.is_fatal = true;
            return;
        }
        let size = |shift: u32| (sizes >> shift & 0xfff) + 1;
        self.submissions[0] = Some(Submissions::new(submissions, size(0), 0));
        self.completions[0] = Some(Completions::new(completions, size(16), Some(0)));
        self.ready.want(true);
    }

    /// A controller reset (3.7.2): what describes the admin queues stays.
    fn disable(&mut self) {
        self.forget();
        self.ready.want(false);
    }

    /// Entries of I/O queues have the sizes that CC says.
    pub(crate) fn check_entry_sizes(&self) -> Result<(), Failure> {
        match cc::entry_sizes(self.file.get(at::CC)) == ENTRY_SIZES {
            true => Ok(()),
            false => Err(Failure::Rule(
                Status::INVALID_FIELD,
                "CC.IOSQES and CC.IOCQES must be 6 and 4 when a queue is created (3.1.3.5)",
            )),
        }
    }

    /// A submission tail was written.
    fn ring_tail(&mut self, number: usize, tail: u32) {
        let queue = name(number);
        let Some(submissions) = &mut self.submissions[number] else {
            return self.order("SQyTDBL", "the queue must exist (PCIe 3.1.2.1)");
        };
        let (size, head) = (submissions.size, submissions.head);
        if tail >= size {
            return self.violations.add(Violation::TailOutside {
                queue,
                tail,
                descriptors: size,
            });
        }
        let new = (tail + size - submissions.tail) % size;
        if submissions.waiting() + new >= size {
            return self
                .violations
                .add(Violation::TailPastHead { queue, tail, head });
        }
        submissions.tail = tail;
    }

    /// A completion head was written.
    fn ring_head(&mut self, number: usize, head: u32) {
        let Some(completions) = &mut self.completions[number] else {
            return self.order("CQyHDBL", "the queue must exist (PCIe 3.1.2.2)");
        };
        let size = completions.size;
        let taken = (head % size + size - completions.head) % size;
        if head >= size || taken > completions.unseen() {
            let rule = "it must not pass entries that were not posted (PCIe 3.1.2.2)";
            return self.value("CQyHDBL", head, rule);
        }
        completions.head = head;
    }
}
