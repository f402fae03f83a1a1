//! Where the registers of a device are: in the BARs of a PCI device (PCI 3.0, 6.2.5), and a window
//! of virtio's over memory-mapped I/O is as good as a BAR.

use models::virtio::{mmio, pci};
use models::{Identity, Space, config};
use std::ops::Range;

/// BARs that a device may have.
pub const BARS: usize = 6;
/// What is no BAR, but configuration space, as VFIO numbers what a device has. Of that, a device is
/// told what is written to its command register.
pub const CONFIG: u8 = 7;
/// Bits of a [number](Place::number) that are the offset. No BAR is larger.
const OFFSET_BITS: u32 = 32;

/// Where a register is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The BAR; 0 for a window, and perhaps [`CONFIG`].
    pub bar: u8,
    /// Where in it, in bytes.
    pub offset: u64,
}

impl Place {
    /// The place as a number, which KVM has for a region that begins there.
    pub fn number(self) -> u64 {
        u64::from(self.bar) << OFFSET_BITS | self.offset
    }

    /// The place that has a number.
    pub fn from_number(number: u64) -> Option<Self> {
        Some(Self {
            bar: u8::try_from(number >> OFFSET_BITS).ok()?,
            offset: number & u64::from(u32::MAX),
        })
    }
}

/// Registers that notify queues, for each of which the kernel has an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbells {
    /// Where the first one is.
    pub first: Place,
    /// Bytes from one to the next; 0 if all queues have the same, and what is written says which.
    pub stride: u64,
    /// Bytes of a notification, which is the number of the queue.
    pub bytes: u64,
    /// How many queues have an event.
    pub queues: usize,
}

impl Doorbells {
    /// Where a queue is notified.
    pub fn place(&self, queue: u16) -> Place {
        let Place { bar, offset } = self.first;
        Place {
            bar,
            offset: offset + u64::from(queue) * self.stride,
        }
    }
}

/// What lies where.
#[derive(Clone, Copy, Debug)]
pub struct Ranges {
    /// Bytes of each BAR; 0 for none.
    pub sizes: [u64; BARS],
    /// What each of them is.
    pub spaces: [Space; BARS],
    /// How queues are notified, if there are queues.
    pub doorbells: Option<Doorbells>,
    /// What the register that has a byte of a BAR is called.
    pub name: fn(u8, u64) -> Option<&'static str>,
}

impl Ranges {
    /// A window of virtio over memory-mapped I/O, in which so many queues have an event.
    pub fn window(queues: usize) -> Self {
        Self {
            sizes: [mmio::BYTES, 0, 0, 0, 0, 0],
            spaces: [Space::Low; BARS],
            doorbells: Some(Doorbells {
                first: Place {
                    bar: 0,
                    offset: mmio::NOTIFY,
                },
                stride: 0,
                bytes: 4,
                queues,
            }),
            name: |_, offset| match offset {
                mmio::CONFIG.. => Some("configuration"),
                _ => mmio::name(offset / 4 * 4),
            },
        }
    }

    /// The BARs of a PCI device without queues.
    pub fn of(identity: &Identity, name: fn(u8, u64) -> Option<&'static str>) -> Self {
        Self {
            sizes: identity.bars,
            spaces: identity.spaces,
            doorbells: None,
            name,
        }
    }

    /// The BARs of a virtio device, of which so many queues have an event.
    pub fn virtio(identity: &Identity, queues: usize) -> Self {
        Self {
            doorbells: Some(Doorbells {
                first: Place {
                    bar: 0,
                    offset: pci::NOTIFY,
                },
                stride: pci::NOTIFY_MULTIPLIER,
                bytes: 2,
                queues,
            }),
            ..Self::of(identity, pci::name)
        }
    }

    /// Whether there is a BAR in I/O space.
    pub fn is_port(&self, bar: u8) -> bool {
        self.spaces.get(usize::from(bar)) == Some(&Space::Io)
    }

    /// BARs that there are.
    pub fn bars(&self) -> impl Iterator<Item = u8> + use<> {
        let sizes = self.sizes;
        (0..)
            .zip(sizes)
            .filter(|(_, size)| *size > 0)
            .map(|(bar, _)| bar)
    }

    /// Bytes of a BAR, or of configuration space; 0 if there is none.
    pub fn bytes(&self, bar: u8) -> u64 {
        match bar {
            CONFIG => config::BYTES as u64,
            _ => self.sizes.get(usize::from(bar)).copied().unwrap_or(0),
        }
    }

    /// Whether there are so many bytes.
    pub fn has(&self, place: Place, bytes: usize) -> bool {
        let end = place.offset.checked_add(bytes as u64);
        end.is_some_and(|end| end <= self.bytes(place.bar))
    }

    /// The parts of a BAR that have no event: KVM gives no address to an event and a region.
    pub fn regions(&self, bar: u8) -> impl Iterator<Item = Range<u64>> + use<> {
        let end = self.bytes(bar);
        let rung = match &self.doorbells {
            Some(doorbells) if doorbells.first.bar == bar => {
                let begin = doorbells.first.offset;
                let queues = doorbells.queues as u64;
                begin..begin + doorbells.bytes.max(doorbells.stride * queues)
            }
            _ => end..end,
        };
        let regions = [0..rung.start, rung.end..end];
        regions.into_iter().filter(|region| !region.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions(ranges: &Ranges, bar: u8) -> Vec<(u64, u64)> {
        let regions = ranges.regions(bar);
        regions.map(|region| (region.start, region.end)).collect()
    }

    #[test]
    fn regions_lie_around_doorbells() {
        let window = Ranges::window(3);
        assert_eq!(regions(&window, 0), [(0, 0x50), (0x54, 0x200)]);
        assert_eq!(regions(&window, 1), []);
        let identity = Identity {
            bars: [0x4000, 0, 0x40, 0, 0, 0],
            ..Identity::default()
        };
        let function = Ranges::virtio(&identity, 3);
        assert_eq!(regions(&function, 0), [(0, 0x3000), (0x300c, 0x4000)]);
        assert_eq!(regions(&function, 2), [(0, 0x40)]);
        let plain = Ranges::of(&identity, |_, _| None);
        assert_eq!(regions(&plain, 0), [(0, 0x4000)]);
        assert_eq!(plain.bars().collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn a_place_has_a_number_and_nothing_leaves_its_bar() {
        let place = |bar, offset| Place { bar, offset };
        for place in [place(0, 0), place(5, 0x1_fffc), place(CONFIG, 4)] {
            assert_eq!(Place::from_number(place.number()), Some(place));
        }
        assert_eq!(Place::from_number(u64::MAX), None);
        let window = Ranges::window(1);
        for (at, bytes, there) in [
            (place(0, 0x1fc), 4, true),
            (place(0, 0x1fd), 4, false),
            (place(0, u64::MAX), 1, false),
            (place(1, 0), 1, false),
            (place(6, 0), 1, false),
            (place(CONFIG, 4), 2, true),
            (place(CONFIG, 255), 2, false),
        ] {
            assert_eq!(window.has(at, bytes), there, "{at:?}");
        }
    }

    #[test]
    fn registers_of_a_window_have_names() {
        let name = Ranges::window(1).name;
        assert_eq!(name(0, 0x62), Some("InterruptStatus"));
        assert_eq!(name(0, 0x18), None);
        assert_eq!(name(0, 0x1ff), Some("configuration"));
    }
}
