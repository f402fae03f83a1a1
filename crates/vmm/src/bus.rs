//! What a processor finds at addresses and ports when it has left the guest.

use crate::counters::Counters;
use crate::ioregionfd::wire::Direction;
use crate::ioregionfd::{Commands, NoAnswer};
use crate::layout::{PCI_MEMORY, PCI_PORTS};
use crate::options::Device;
use crate::pci::{self, Target};
use crate::ranges::{BARS, CONFIG, Place, Ranges};
use crate::window::Shared;
use models::config::{ConfigSpace, Seen, WINDOW_DATA_BYTES};
use std::fmt;
use std::ops::Range;
use vmm_sys_util::eventfd::EventFd;

/// Where the command register is in configuration space (PCI 3.0, 6.2.2).
pub const COMMAND: u64 = 4;

/// How a device is asked.
pub enum Front {
    /// It is in this process. A write of a register may kick the thread that lets it work.
    Here(&'static Shared, Option<EventFd>),
    /// It answers commands. Where KVM sends them, too, none is under way while the only processor
    /// is here.
    Socket(Commands),
}

impl Front {
    /// An access of the guest: what is read is put into `data`, what is written is there.
    ///
    /// # Errors
    /// Why the device does not answer.
    pub fn access(
        &self,
        direction: Direction,
        place: Place,
        data: &mut [u8],
    ) -> Result<(), NoAnswer> {
        match self {
            Self::Socket(commands) => commands.ask(direction, place, data),
            Self::Here(device, kick) => {
                device.enter().access(direction, place, data);
                if let Some(kick) = kick
                    && direction == Direction::Write
                {
                    // An event that is full has not been seen: once is enough.
                    let _ = kick.write(1);
                }
                Ok(())
            }
        }
    }
}

/// What says where the registers of a device are.
pub enum Home {
    /// A window of virtio over memory-mapped I/O, which stays where it is.
    Window(u64),
    /// The configuration space of a PCI device, which the guest writes.
    Function(Box<ConfigSpace>),
}

impl Home {
    /// Where a BAR should be.
    fn address(&self, bar: u8) -> Option<u64> {
        match self {
            Self::Window(begin) => Some(*begin),
            Self::Function(config) => config.address(bar.into()),
        }
    }
}

/// A device, and where its registers are.
pub struct Slot {
    /// What the user asked for.
    pub device: Device,
    /// How it is asked.
    pub front: Front,
    /// What is counted of it.
    pub counters: Counters,
    /// What of its registers lies where.
    pub ranges: Ranges,
    /// What says where that should be.
    pub home: Home,
    /// Where each BAR is.
    pub at: [Option<u64>; BARS],
    /// Events of its queues.
    pub events: Vec<EventFd>,
    /// BARs of which it was said that they cannot be where the guest wants them.
    pub refused: [bool; BARS],
}

impl Slot {
    /// Where an access lies, if it lies in the device.
    fn find(&self, space: Space, address: u64, bytes: usize) -> Option<Place> {
        (0..).zip(self.at).find_map(|(bar, begin)| {
            let offset = address.checked_sub(begin?)?;
            let place = Place { bar, offset };
            let fits = space.is_of(&self.ranges, bar) && self.ranges.has(place, bytes);
            fits.then_some(place)
        })
    }

    /// An access of its configuration space.
    fn configure(
        &mut self,
        direction: Direction,
        range: Range<usize>,
        data: &mut [u8],
    ) -> Result<(), Silent> {
        let Home::Function(config) = &mut self.home else {
            nothing(direction, data);
            return Ok(());
        };
        let seen = config.seen(&range);
        // What the device is told of, or asked for: the place, and the bytes there.
        let mut access = seen.map(|Seen { bar, offset, bytes }| (Place { bar, offset }, bytes));
        let mut shown = [0; WINDOW_DATA_BYTES];
        if direction == Direction::Write {
            let before = config.command();
            config.write(range.start, data);
            shown = config.shown();
            if config.command() != before {
                let place = Place {
                    bar: CONFIG,
                    offset: COMMAND,
                };
                shown[..2].copy_from_slice(&config.command().to_le_bytes());
                access = Some((place, 2));
            }
        }
        if let Some((place, bytes)) = access {
            let done = self.front.access(direction, place, &mut shown[..bytes]);
            done.map_err(silent(&self.device))?;
        }
        if direction == Direction::Read {
            if let Some((_, bytes)) = access {
                config.show(&shown[..bytes]);
            }
            data.copy_from_slice(config.read(range));
        }
        Ok(())
    }
}

/// That a device does not answer.
fn silent(device: &Device) -> impl Fn(NoAnswer) -> Silent {
    |why| Silent {
        name: device.name.clone(),
        why,
    }
}

/// The two kinds of addresses that a processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Guest-physical addresses.
    Memory,
    /// Ports.
    Ports,
}

impl Space {
    /// Whether a processor accesses so many bytes at once. A string instruction, which does so to a
    /// port one time after the other, leaves KVM once for all: no device here knows of any.
    fn has_accesses_of(self, bytes: usize) -> bool {
        matches!(bytes, 1 | 2 | 4) || bytes == 8 && self == Self::Memory
    }

    /// Whether a BAR lies in this one.
    fn is_of(self, ranges: &Ranges, bar: u8) -> bool {
        ranges.is_port(bar) == (self == Self::Ports)
    }
}

/// What an access of a port has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// None of these devices.
    Nobody,
    /// Configuration space: BARs may have [moved](Bus::plan).
    Configuration,
    /// A register.
    Register,
}

/// A device that does not answer.
#[derive(Debug)]
pub struct Silent {
    /// What the user calls it.
    pub name: String,
    /// Why.
    pub why: NoAnswer,
}

/// A BAR that is not where it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The number of the device.
    pub slot: usize,
    /// The BAR.
    pub bar: u8,
    /// Where it is.
    pub from: Option<u64>,
    /// Where it should be.
    pub to: Option<u64>,
}

/// Why a BAR cannot be where the guest wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The bridge passes no access on to there.
    Outside(u64),
    /// Another one is there.
    Taken(u64),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside(address) => write!(f, "{address:#x} is outside of the bus"),
            Self::Taken(address) => write!(f, "another BAR is at {address:#x}"),
        }
    }
}

/// What follows from what the guest wrote into configuration space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// BARs that have to move.
    pub changes: Vec<Change>,
    /// Device, BAR and reason of those that are nowhere though they should be somewhere.
    pub refused: Vec<(usize, u8, Refused)>,
}

/// All devices, in their order.
pub struct Bus {
    /// The devices.
    pub slots: Vec<Slot>,
    bridge: ConfigSpace,
    /// CONFIG_ADDRESS.
    address: u32,
}

impl Bus {
    /// A bus with these devices, none of whose registers is anywhere yet.
    pub fn new(slots: Vec<Slot>) -> Self {
        Self {
            slots,
            bridge: ConfigSpace::new(&pci::bridge()),
            address: 0,
        }
    }

    /// An access of the guest: what is read is put into `data`, what is written is there. Where
    /// nothing is, all bits are read, and nothing is written; so it is with sizes that no register
    /// has. Whether there is something.
    ///
    /// # Errors
    /// The device that does not answer.
    pub fn access(
        &self,
        space: Space,
        direction: Direction,
        address: u64,
        data: &mut [u8],
    ) -> Result<bool, Silent> {
        let found = self.slots.iter().find_map(|slot| {
            let place = slot.find(space, address, data.len())?;
            Some((slot, place))
        });
        let found = found.filter(|_| space.has_accesses_of(data.len()));
        match found {
            None => nothing(direction, data),
            Some((slot, place)) => {
                let done = slot.front.access(direction, place, data);
                done.map_err(silent(&slot.device))?;
            }
        }
        Ok(found.is_some())
    }

    /// An access of a port: what it reached. What nobody has is left as it is.
    ///
    /// # Errors
    /// The device that does not answer.
    pub fn port(
        &mut self,
        direction: Direction,
        port: u16,
        data: &mut [u8],
    ) -> Result<Reached, Silent> {
        let Some(target) = pci::target(port, data.len(), self.address) else {
            let found = self.access(Space::Ports, direction, port.into(), data)?;
            return Ok(match found {
                true => Reached::Register,
                false => Reached::Nobody,
            });
        };
        match (target, direction) {
            (Target::Address, Direction::Read) => {
                data.copy_from_slice(&self.address.to_le_bytes());
            }
            (Target::Address, Direction::Write) => {
                let word = <[u8; 4]>::try_from(&*data).unwrap_or_default();
                self.address = pci::written(u32::from_le_bytes(word));
            }
            (Target::Bridge(range), Direction::Read) => {
                data.copy_from_slice(self.bridge.read(range));
            }
            (Target::Bridge(range), Direction::Write) => self.bridge.write(range.start, data),
            (Target::Device(number, range), _) => match self.slots.get_mut(number) {
                Some(slot) => slot.configure(direction, range, data)?,
                None => nothing(direction, data),
            },
            (Target::Nobody, _) => nothing(direction, data),
        }
        Ok(Reached::Configuration)
    }

    /// What has to move, so that each BAR is where configuration space says. Of two that want to be
    /// in one place, the first one is there.
    pub fn plan(&self) -> Plan {
        let mut plan = Plan::default();
        let mut taken: Vec<(bool, Range<u64>)> = Vec::new();
        for (number, slot) in self.slots.iter().enumerate() {
            for bar in slot.ranges.bars() {
                let is_port = slot.ranges.is_port(bar);
                let bytes = slot.ranges.bytes(bar);
                let mut to = slot.home.address(bar);
                if let Some(begin) = to {
                    let range = begin..begin.saturating_add(bytes);
                    let is_free = taken.iter().all(|(port, other)| {
                        *port != is_port || other.end <= range.start || range.end <= other.start
                    });
                    let moves = matches!(slot.home, Home::Function(_));
                    let why = match moves {
                        true if !passes(is_port, &range) => Some(Refused::Outside(begin)),
                        _ if !is_free => Some(Refused::Taken(begin)),
                        _ => None,
                    };
                    match why {
                        None => taken.push((is_port, range)),
                        Some(why) => {
                            to = None;
                            plan.refused.push((number, bar, why));
                        }
                    }
                }
                let from = slot.at[usize::from(bar)];
                if from != to {
                    plan.changes.push(Change {
                        slot: number,
                        bar,
                        from,
                        to,
                    });
                }
            }
        }
        plan
    }
}

/// Whether the bridge passes accesses on to there.
fn passes(is_port: bool, range: &Range<u64>) -> bool {
    let all = if is_port { PCI_PORTS } else { PCI_MEMORY };
    all.start <= range.start && range.end <= all.end
}

/// An access where nothing is.
fn nothing(direction: Direction, data: &mut [u8]) {
    if direction == Direction::Read {
        data.fill(0xff);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::File;
    use crate::function::Function;
    use crate::ioregionfd::connect;
    use crate::options::{Access, Bus as Kinds, Kind};
    use crate::window::Served;
    use hw::sim::View;
    use linux::memory;
    use models::virtio::{Mmio, Pci, VirtioRng};
    use models::wire::Loop;
    use models::{Device as _, Intel82540, Misbehaviour};
    use std::os::fd::AsFd;

    const BEGIN: u64 = 0xc000_1000;
    /// Where the card's registers are at first, and its ports.
    const CARD: u64 = 0xd000_0000;
    const PORTS: u64 = 0xc000;

    fn slot(ranges: Ranges, home: Home, front: Front) -> Slot {
        Slot {
            device: Device {
                name: "entropy".into(),
                kind: Kind::Rng,
                bus: Kinds::Mmio,
                access: Access::Exit,
                posted: false,
                busy: false,
            },
            front,
            counters: File::new(&ranges).unwrap().view().unwrap(),
            ranges,
            home,
            at: [None; BARS],
            events: Vec::new(),
            refused: [false; BARS],
        }
    }

    fn here(ranges: Ranges, window: Box<dyn crate::window::Window>) -> Front {
        let file = memory::sealed("guest", 4096).unwrap();
        let served = Served {
            window,
            ranges,
            memory: View::of_file(file.as_fd(), 0, 4096, 0, true).unwrap(),
            counters: File::new(&ranges).unwrap().view().unwrap(),
        };
        Front::Here(Box::leak(Box::new(Shared::new(served))), None)
    }

    fn entropy() -> Slot {
        let ranges = Ranges::window(1);
        let device = Mmio::new(VirtioRng::new().unwrap(), &Misbehaviour::default());
        slot(ranges, Home::Window(BEGIN), here(ranges, Box::new(device)))
    }

    fn card() -> Slot {
        let device = Intel82540::new([2; 6], Loop::new(), &Misbehaviour::default());
        let identity = device.identity();
        let ranges = Ranges::of(&identity, |_, _| None);
        let mut config = ConfigSpace::new(&identity);
        config.write(0x10, &(CARD as u32).to_le_bytes());
        config.write(0x18, &(PORTS as u32).to_le_bytes());
        config.write(4, &[3]);
        let device = Function::new(device, &identity, None);
        let front = here(ranges, Box::new(device));
        slot(ranges, Home::Function(Box::new(config)), front)
    }

    /// All moves, without KVM.
    fn follow(bus: &mut Bus) -> Plan {
        let plan = bus.plan();
        for change in &plan.changes {
            let place = &mut bus.slots[change.slot].at[usize::from(change.bar)];
            assert_eq!(*place, change.from);
            *place = change.to;
        }
        assert_eq!(bus.plan().changes, []);
        plan
    }

    fn read(bus: &Bus, address: u64) -> u32 {
        let mut data = [7; 4];
        let done = bus.access(Space::Memory, Direction::Read, address, &mut data);
        done.unwrap();
        u32::from_le_bytes(data)
    }

    /// Configuration space of the device `number`, behind the bridge.
    fn config(bus: &mut Bus, number: u32, register: u32, written: Option<u32>) -> u32 {
        let mut address = (0x8000_0000 | number << 11 | register).to_le_bytes();
        let mut port = |direction, port, data: &mut [u8]| {
            let reached = bus.port(direction, port, data).unwrap();
            assert_eq!(reached, Reached::Configuration);
        };
        port(Direction::Write, pci::ADDRESS, &mut address);
        let mut data = written.unwrap_or(0).to_le_bytes();
        match written {
            Some(_) => port(Direction::Write, pci::DATA, &mut data),
            None => port(Direction::Read, pci::DATA, &mut data),
        }
        u32::from_le_bytes(data)
    }

    #[test]
    fn only_whole_accesses_of_a_window_reach_its_device() {
        let mut bus = Bus::new(vec![entropy()]);
        assert_eq!(read(&bus, BEGIN), u32::MAX, "it is nowhere yet");
        follow(&mut bus);
        assert_eq!(read(&bus, BEGIN), 0x7472_6976);
        assert_eq!(read(&bus, BEGIN + 0x1fc), 0);
        for address in [
            0,
            BEGIN - 4,
            BEGIN - 1,
            BEGIN + 0x1fd,
            BEGIN + 0x200,
            u64::MAX - 1,
        ] {
            assert_eq!(read(&bus, address), u32::MAX, "{address:#x}");
            let data = &mut [0; 4];
            let done = bus.access(Space::Memory, Direction::Write, address, data);
            assert!(!done.unwrap());
        }
        let done = bus.access(Space::Memory, Direction::Read, BEGIN, &mut [0; 3]);
        assert!(!done.unwrap(), "no register has three bytes");
    }

    #[test]
    fn a_bus_has_a_bridge_and_devices() {
        let mut bus = Bus::new(vec![entropy(), card()]);
        follow(&mut bus);
        assert_eq!(config(&mut bus, 0, 8, None) >> 16, 0x0600);
        assert_eq!(
            config(&mut bus, 1, 0, None),
            u32::MAX,
            "it is not on the bus"
        );
        assert_eq!(config(&mut bus, 2, 0, None), 0x100e_8086);
        assert_eq!(config(&mut bus, 3, 0, None), u32::MAX);
        assert_eq!(config(&mut bus, 2, 0x3c, Some(18)), 18);
        assert_eq!(config(&mut bus, 2, 0x3c, None), 0x0112);
    }

    #[test]
    fn a_bar_is_sized_moved_and_switched_off() {
        let mut bus = Bus::new(vec![card()]);
        follow(&mut bus);
        let status = |bus: &Bus, begin| read(bus, begin + 8);
        let there = status(&bus, CARD);
        assert_ne!(there, u32::MAX);
        // As Linux does it: off, sized, put back, on.
        config(&mut bus, 1, 4, Some(0));
        assert_eq!(follow(&mut bus).changes.len(), 2);
        assert_eq!(status(&bus, CARD), u32::MAX);
        config(&mut bus, 1, 0x10, Some(u32::MAX));
        assert_eq!(config(&mut bus, 1, 0x10, None), 0xfffe_0000);
        config(&mut bus, 1, 0x10, Some(CARD as u32));
        assert_eq!(follow(&mut bus), Plan::default());
        config(&mut bus, 1, 4, Some(3));
        assert_eq!(follow(&mut bus).changes.len(), 2);
        assert_eq!(status(&bus, CARD), there);
        // While it answers.
        let next = CARD + 0x2_0000;
        config(&mut bus, 1, 0x10, Some(next as u32));
        let change = Change {
            slot: 0,
            bar: 0,
            from: Some(CARD),
            to: Some(next),
        };
        assert_eq!(follow(&mut bus).changes, [change]);
        assert_eq!((status(&bus, CARD), status(&bus, next)), (u32::MAX, there));
    }

    #[test]
    fn a_window_of_configuration_space_leads_to_registers() {
        const STATUS: u64 = 0x14;
        let device = Pci::new(VirtioRng::new().unwrap(), &Misbehaviour::default());
        let identity = device.identity();
        let window = u32::from(identity.window.unwrap());
        let ranges = Ranges::virtio(&identity, 1);
        let mut space = ConfigSpace::new(&identity);
        space.write(0x10, &(CARD as u32).to_le_bytes());
        space.write(4, &[2]);
        let front = here(ranges, Box::new(Function::new(device, &identity, None)));
        let home = Home::Function(Box::new(space));
        let mut bus = Bus::new(vec![slot(ranges, home, front)]);
        follow(&mut bus);
        let status = |bus: &Bus| {
            let mut data = [7];
            let done = bus.access(Space::Memory, Direction::Read, CARD + STATUS, &mut data);
            assert!(done.unwrap());
            data[0]
        };
        // BAR, offset and length, then the data.
        for (register, value) in [(4, 0), (8, STATUS as u32), (12, 1), (16, 1)] {
            config(&mut bus, 1, window + register, Some(value));
        }
        assert_eq!(status(&bus), 1);
        assert_eq!(config(&mut bus, 1, window + 16, None), 1);
        // What it shows is what is there now.
        let place = CARD + STATUS;
        let done = bus.access(Space::Memory, Direction::Write, place, &mut [0]);
        assert!(done.unwrap());
        assert_eq!(config(&mut bus, 1, window + 16, None), 0);
    }

    #[test]
    fn ports_of_a_card_lead_to_its_registers() {
        let mut bus = Bus::new(vec![card()]);
        follow(&mut bus);
        let port = |bus: &mut Bus, direction, at: u64, data: &mut [u8]| {
            bus.port(direction, (PORTS + at) as u16, data).unwrap()
        };
        // STATUS by IOADDR and IODATA.
        let reached = port(&mut bus, Direction::Write, 0, &mut [8, 0, 0, 0]);
        assert_eq!(reached, Reached::Register);
        let mut data = [0; 4];
        port(&mut bus, Direction::Read, 4, &mut data);
        assert_eq!(u32::from_le_bytes(data), read(&bus, CARD + 8));
        let reached = port(&mut bus, Direction::Read, 0x40, &mut data);
        assert_eq!((reached, data), (Reached::Nobody, [0xff; 4]));
        let reached = port(&mut bus, Direction::Write, 0, &mut [0; 8]);
        assert_eq!(reached, Reached::Nobody, "two of four bytes");
        let nobody = bus.port(Direction::Read, 0x3f8, &mut [0]).unwrap();
        assert_eq!(nobody, Reached::Nobody);
    }

    #[test]
    fn a_bar_that_cannot_be_there_is_refused_with_a_reason() {
        let mut bus = Bus::new(vec![card(), card()]);
        let plan = follow(&mut bus);
        let taken = [(1, 0, Refused::Taken(CARD)), (1, 2, Refused::Taken(PORTS))];
        assert_eq!(plan.refused, taken);
        assert_eq!(bus.slots[1].at, [None; BARS]);
        config(&mut bus, 2, 0x10, Some(CARD as u32 + 0x2_0000));
        config(&mut bus, 2, 0x18, Some(0x1000));
        let plan = follow(&mut bus);
        assert_eq!(plan.refused, [(1, 2, Refused::Outside(0x1000))]);
        assert_eq!(bus.slots[1].at[0], Some(CARD + 0x2_0000));
        config(&mut bus, 2, 0x10, Some(0xc000_0000));
        let outside = (1, 0, Refused::Outside(0xc000_0000));
        assert!(follow(&mut bus).refused.contains(&outside));
        assert!(outside.2.to_string().contains("0xc0000000"));
    }

    #[test]
    fn a_device_that_has_gone_is_named() {
        let (commands, socket) = connect().unwrap();
        drop(socket);
        let ranges = Ranges::window(1);
        let home = Home::Window(BEGIN);
        let mut bus = Bus::new(vec![slot(ranges, home, Front::Socket(commands))]);
        follow(&mut bus);
        let silent = bus.access(Space::Memory, Direction::Read, BEGIN, &mut [0; 4]);
        assert_eq!(silent.unwrap_err().name, "entropy");
    }
}
