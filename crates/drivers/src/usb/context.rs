//! What the controller is told of a device (xHCI 1.2, 6.2): a context of the device itself, and one
//! of each of its endpoints.

use super::registers::Places;
use hw::{DmaArena, DmaRing, Iova, Mmio, OutOfDma};

/// How fast a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    Full,
    Low,
    High,
    /// The controller's number of it (7.2.2.1.1): 4, or more for what is faster.
    Super(u8),
}

impl Speed {
    /// Of the controller's number.
    pub fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Full),
            2 => Some(Self::Low),
            3 => Some(Self::High),
            4..=7 => Some(Self::Super(number)),
            _ => None,
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Full => 1,
            Self::Low => 2,
            Self::High => 3,
            Self::Super(number) => number,
        }
    }

    /// Bytes of a packet of a device that has not said yet how many (4.3).
    pub fn first_packet(self) -> u16 {
        match self {
            Self::Full | Self::Low => 8,
            Self::High => 64,
            Self::Super(_) => 512,
        }
    }

    /// Whether packets of a bulk endpoint may have so many bytes (USB 2.0, 5.8.3; USB 3.2, 9.6.6).
    pub fn has_bulk_packet(self, bytes: u16) -> bool {
        match self {
            Self::Low => false,
            Self::Full => matches!(bytes, 8 | 16 | 32 | 64),
            Self::High => bytes == 512,
            Self::Super(_) => bytes == 1024,
        }
    }
}

/// Where a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The controller's port, counted from 1.
    pub root: u8,
    /// Ports of the hubs on the way, four bits each, that of the first hub lowest (USB 3.2, 8.9).
    pub route: u32,
    /// Hubs on the way.
    pub depth: usize,
    /// Slot and port of the hub that translates for it to high speed (USB 2.0, 11.14).
    pub translator: Option<(u8, u8)>,
    pub speed: Speed,
}

/// What a hub is like (6.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HubContext {
    pub ports: u8,
    /// TT Think Time.
    pub think_time: u8,
}

/// The context of a device, all of whose endpoints up to the `last` one are used.
pub fn slot(place: &Place, hub: Option<HubContext>, last: u8) -> [u64; 2] {
    let speed = u64::from(place.speed.number()) << 20;
    let is_hub = u64::from(hub.is_some()) << 26;
    let ports = hub.map_or(0, |hub| u64::from(hub.ports)) << 56;
    let root = u64::from(place.root) << 48;
    let (slot, port) = place.translator.unwrap_or((0, 0));
    let think_time = match place.speed {
        Speed::High => hub.map_or(0, |hub| u64::from(hub.think_time)) << 16,
        _ => 0,
    };
    [
        u64::from(place.route) | speed | is_hub | u64::from(last) << 27 | root | ports,
        u64::from(slot) | u64::from(port) << 8 | think_time,
    ]
}

/// Kinds of endpoints (6.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    BulkOut = 2,
    Control = 4,
    BulkIn = 6,
}

/// The context of an endpoint whose ring begins at `ring`.
pub fn endpoint(kind: Kind, packet: u16, burst: u8, ring: u64) -> [u64; 3] {
    /// Three errors in a row, and it is halted.
    const ERRORS: u64 = 3 << 1;
    let average = match kind {
        Kind::Control => 8,
        Kind::BulkOut | Kind::BulkIn => 3072,
    };
    let second = ERRORS | (kind as u64) << 3 | u64::from(burst) << 8 | u64::from(packet) << 16;
    [second << 32, ring, average]
}

/// Endpoints of a device: the control endpoint is 1, the others twice their number, and one more
/// if they are to the host (4.5.1).
pub const CONTROL: u8 = 1;
/// Contexts that are told: what is told, the device, and the endpoints (6.2.5).
const INPUT_WORDS: usize = 512;

/// What the controller is told with a command.
pub struct Input {
    words: DmaRing<1, INPUT_WORDS>,
    /// Words of a context.
    stride: usize,
}

impl Input {
    /// Contexts of 64 bytes, or of 32.
    ///
    /// # Errors
    /// If less DMA memory is left.
    pub fn new(arena: &mut DmaArena, is_large: bool) -> Result<Self, OutOfDma> {
        let stride = if is_large { 8 } else { 4 };
        Ok(Self {
            words: arena.ring()?,
            stride,
        })
    }

    /// Where the controller finds it.
    pub fn iova(&self) -> Iova {
        self.words.iova()
    }

    /// One behind the last byte.
    pub fn end(&self) -> u64 {
        self.iova().raw() + 8 * INPUT_WORDS as u64
    }

    /// Tells the contexts of these numbers, and nothing else: 0 is the device.
    pub fn tell(&self, contexts: &[(u8, &[u64])]) {
        (0..INPUT_WORDS).for_each(|index| self.words.store(index, 0, 0));
        let added = contexts
            .iter()
            .fold(0, |all, (number, _)| all | 1 << number);
        self.words.store(0, 0, added << 32);
        for (number, words) in contexts {
            let at = (usize::from(*number) + 1) * self.stride;
            for (index, word) in words.iter().enumerate() {
                self.words.store(at + index, 0, *word);
            }
        }
    }
}

/// Slots that the driver uses, at most, and where contexts of devices are told.
pub const SLOTS_MAX: usize = 31;

/// Where the controller finds the contexts of devices (6.1), and the pages that it asks for.
pub struct Contexts {
    array: DmaRing<1, { SLOTS_MAX + 1 }>,
}

impl Contexts {
    /// None of them.
    ///
    /// # Errors
    /// If less DMA memory is left.
    pub fn new(arena: &mut DmaArena) -> Result<Self, OutOfDma> {
        Ok(Self {
            array: arena.ring()?,
        })
    }

    /// Makes it what the controller finds that was reset: its pages, and no device.
    pub fn begin(&self, bar: &Mmio, places: &Places, pages: u64) {
        (1..=SLOTS_MAX).for_each(|slot| self.array.store(slot, 0, 0));
        self.array.store(0, 0, pages);
        let (low, high) = self.array.iova().halves();
        let [place, place_high] = places.contexts();
        bar.write(place, low);
        bar.write(place_high, high);
    }

    /// One behind the last byte.
    pub fn end(&self) -> u64 {
        self.array.iova().raw() + 8 * (SLOTS_MAX as u64 + 1)
    }

    /// Where the controller keeps what it knows of this slot.
    pub fn set(&self, slot: u8, context: u64) {
        self.array.publish(usize::from(slot), 0, context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_those_of_the_specification() {
        let place = Place {
            root: 5,
            route: 0x21,
            depth: 2,
            translator: Some((7, 3)),
            speed: Speed::Full,
        };
        let [first, second] = slot(&place, None, 4);
        assert_eq!(first as u32, 4 << 27 | 1 << 20 | 0x21);
        assert_eq!((first >> 32, second), (5 << 16, 3 << 8 | 7));
        let hub = HubContext {
            ports: 4,
            think_time: 2,
        };
        let place = Place {
            speed: Speed::High,
            translator: None,
            ..place
        };
        let [first, second] = slot(&place, Some(hub), 1);
        assert_eq!(first as u32, 1 << 27 | 1 << 26 | 3 << 20 | 0x21);
        assert_eq!((first >> 32, second), (4 << 24 | 5 << 16, 2 << 16));
        let [first, place, average] = endpoint(Kind::BulkIn, 1024, 3, 0x1001);
        assert_eq!(first >> 32, 1024 << 16 | 3 << 8 | 6 << 3 | 3 << 1);
        assert_eq!((place, average, first as u32), (0x1001, 3072, 0));
    }
}
