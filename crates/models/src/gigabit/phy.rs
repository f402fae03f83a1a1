//! The transceiver: registers behind MDIC, sixteen bits each (datasheet, chapter 9; IEEE 802.3,
//! clause 22). The first sixteen of a page are the same on all pages but for a few; what this model
//! knows of others only holds what was written.

use crate::settling::Settling;

/// Registers of a page.
pub(crate) const REGISTERS: usize = 32;
/// Registers below this are the same on all pages (9.5).
const SHARED: usize = 16;
/// The register that chooses the page: of those from 16 up, it is the same on all (9.5).
const PAGE: usize = 22;
/// Pages that hold something of their own; others share the last one's.
const PAGES: usize = 4;

/// Numbers of registers (9.5).
mod number {
    pub(super) const CONTROL: usize = 0;
    pub(super) const STATUS: usize = 1;
    pub(super) const IDENTIFIER_1: usize = 2;
    pub(super) const IDENTIFIER_2: usize = 3;
    pub(super) const ADVERTISED: usize = 4;
    pub(super) const PARTNER: usize = 5;
    pub(super) const EXPANSION: usize = 6;
    pub(super) const GIGABIT_CONTROL: usize = 9;
    pub(super) const GIGABIT_STATUS: usize = 10;
    pub(super) const EXTENDED_STATUS: usize = 15;
    pub(super) const COPPER_STATUS: usize = 17;
}

/// Of the control register: reset, loopback, speed selection, negotiation, power down, and
/// negotiation anew (9.5).
const RESET: u16 = 1 << 15;
const LOOPBACK: u16 = 1 << 14;
const POWER_DOWN: u16 = 1 << 11;
const RESTART: u16 = 1 << 9;
/// At first: negotiation, full duplex, 1000 Mb/s.
const CONTROL: u16 = 0x1140;
/// Of the status register: all that it can but 100BASE-T4, with extended registers.
const STATUS: u16 = 0x7949;
const STATUS_NEGOTIATED: u16 = 1 << 5;
const STATUS_LINK: u16 = 1 << 2;
/// All speeds of 10 and 100 Mb/s, as IEEE 802.3.
const ADVERTISED: u16 = 0x01e1;
/// What the other end can: the same, and it has noticed ours.
const PARTNER: u16 = 0x41e1;
/// The other end negotiates, and a new page was received.
const EXPANSION: u16 = 0x000d;
/// 1000BASE-T full duplex.
const GIGABIT_CONTROL: u16 = 0x0200;
/// The other end can that, and both receivers are fine.
const GIGABIT_STATUS: u16 = 0x3800;
/// 1000BASE-T, both duplexes.
const EXTENDED_STATUS: u16 = 0x3000;
/// Of the copper status register: 1000 Mb/s, full duplex, settled, link up.
const COPPER_LINK: u16 = 0xac00;

/// The transceiver.
#[derive(Debug)]
pub(crate) struct Phy {
    identifier: [u16; 2],
    /// Registers of all pages below 16, and those of each page above.
    registers: [[u16; REGISTERS]; PAGES],
    page: u16,
    /// Somebody is at the other end.
    plugged: bool,
    negotiated: Settling,
    /// The link was down since the status register was read (IEEE 802.3, 22.2.4.2.13).
    was_down: bool,
}

impl Phy {
    /// As after a reset of its own.
    pub(crate) fn new(identifier: [u16; 2]) -> Self {
        let mut phy = Self {
            identifier,
            registers: [[0; REGISTERS]; PAGES],
            page: 0,
            plugged: false,
            negotiated: Settling::default(),
            was_down: true,
        };
        phy.reset();
        phy.negotiated.want(true);
        phy
    }

    /// Registers of the standard are as at first.
    fn reset(&mut self) {
        let first = &mut self.registers[0];
        first[number::CONTROL] = CONTROL;
        first[number::ADVERTISED] = ADVERTISED;
        first[number::GIGABIT_CONTROL] = GIGABIT_CONTROL;
    }

    /// Whether what is sent comes back.
    pub(crate) fn loops(&self) -> bool {
        self.registers[0][number::CONTROL] & LOOPBACK != 0
    }

    /// Somebody is at the other end of the wire, or not.
    pub(crate) fn plug(&mut self, plugged: bool) {
        self.plugged = plugged;
        self.was_down |= !self.has_link();
    }

    /// Whether there is a link.
    pub(crate) fn has_link(&self) -> bool {
        let is_on = self.registers[0][number::CONTROL] & POWER_DOWN == 0;
        self.plugged && is_on && (self.negotiated.is_settled() || self.loops())
    }

    /// Negotiation ends.
    pub(crate) fn pass_time(&mut self) {
        self.negotiated.settle();
    }

    /// Where a register lies.
    fn place(&mut self, register: usize) -> &mut u16 {
        let page = match register {
            ..SHARED => 0,
            _ => usize::from(self.page).min(PAGES - 1),
        };
        &mut self.registers[page][register % REGISTERS]
    }

    /// Reads a register.
    pub(crate) fn read(&mut self, register: usize) -> u16 {
        let has_link = self.has_link();
        let only = |is: bool, value: u16| if is { value } else { 0 };
        match register {
            number::STATUS => self.read_status(),
            number::IDENTIFIER_1 => self.identifier[0],
            number::IDENTIFIER_2 => self.identifier[1],
            number::PARTNER => only(has_link, PARTNER),
            number::EXPANSION => only(has_link, EXPANSION),
            number::GIGABIT_STATUS => only(has_link, GIGABIT_STATUS),
            number::EXTENDED_STATUS => EXTENDED_STATUS,
            number::COPPER_STATUS if self.page == 0 => only(has_link, COPPER_LINK),
            PAGE => self.page,
            _ => *self.place(register),
        }
    }

    /// A link that was down since the last read is told as down once.
    fn read_status(&mut self) -> u16 {
        self.negotiated.read();
        let has_link = self.has_link();
        let was_down = std::mem::replace(&mut self.was_down, !has_link);
        let only = |is: bool, value: u16| if is { value } else { 0 };
        STATUS | only(has_link && !was_down, STATUS_LINK) | only(has_link, STATUS_NEGOTIATED)
    }

    /// Writes a register; those that can only be read stay as they are.
    pub(crate) fn write(&mut self, register: usize, value: u16) {
        match register {
            PAGE => self.page = value,
            number::CONTROL => self.control(value),
            _ => *self.place(register) = value,
        }
    }

    fn control(&mut self, value: u16) {
        // A reset keeps what was chosen (9.5).
        let was_off = self.registers[0][number::CONTROL] & POWER_DOWN != 0;
        self.registers[0][number::CONTROL] = value & !(RESET | RESTART);
        if value & (RESET | RESTART) != 0 || was_off {
            self.negotiate();
        }
        self.was_down |= !self.has_link();
    }

    /// The link is down until both ends agree.
    fn negotiate(&mut self) {
        self.negotiated.want(false);
        self.negotiated.settle();
        self.negotiated.want(true);
        self.was_down = true;
    }

    /// The power was off: all is as at first.
    pub(crate) fn reset_all(&mut self) {
        *self = Self::new(self.identifier);
    }

    /// CTRL.PHY_RST (82574, 10.2.2.1; 82540, 13.4.1): all is as at first.
    pub(crate) fn reset_hardware(&mut self) {
        let plugged = self.plugged;
        *self = Self::new(self.identifier);
        self.negotiate();
        self.plugged = plugged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugged() -> Phy {
        let mut phy = Phy::new([0x0141, 0x0cb1]);
        phy.plug(true);
        phy.pass_time();
        phy
    }

    #[test]
    fn a_link_that_was_down_is_told_once() {
        let mut phy = plugged();
        assert_eq!(phy.read(1) & 0x24, 0x20, "it was down at first");
        assert_eq!(phy.read(1) & 0x24, 0x24);
        phy.plug(false);
        assert_eq!(phy.read(1) & 0x24, 0);
        phy.plug(true);
        assert_eq!([phy.read(1) & 4, phy.read(1) & 4], [0, 4]);
    }

    #[test]
    fn negotiation_takes_its_time_and_power_can_be_off() {
        let mut phy = plugged();
        phy.write(0, 0x1340);
        assert_eq!(phy.read(0), 0x1140, "it clears itself");
        assert!(!phy.has_link());
        phy.pass_time();
        assert!(phy.has_link());
        phy.write(0, 0x1940);
        phy.pass_time();
        assert!(!phy.has_link());
        phy.write(0, 0x1140);
        assert!(!phy.has_link());
        phy.pass_time();
        assert!(phy.has_link() && !phy.loops());
        phy.write(0, 0x4140);
        assert!(phy.has_link() && phy.loops());
    }

    #[test]
    fn pages_hold_registers_of_their_own() {
        let mut phy = plugged();
        for page in 0..3 {
            phy.write(22, page);
            phy.write(16, 0x100 + page);
        }
        phy.write(4, 7);
        for page in 0..3 {
            phy.write(22, page);
            assert_eq!([phy.read(22), phy.read(16)], [page, 0x100 + page]);
            assert_eq!(phy.read(4), 7);
        }
        assert_eq!([phy.read(2), phy.read(3)], [0x0141, 0x0cb1]);
    }
}
