//! What a processor finds at the addresses of devices when it has left the guest.

use crate::counters::Counters;
use crate::ioregionfd::wire::Direction;
use crate::ioregionfd::{Commands, NoAnswer};
use crate::options::Device;
use crate::window::Shared;
use models::virtio::mmio::BYTES as WINDOW_BYTES;

/// How a device is asked.
pub enum Front {
    /// It is in this process.
    Here(&'static Shared),
    /// It answers commands. Where KVM sends them, too, none is under way while the only processor
    /// is here.
    Socket(Commands),
}

/// A device at its window.
pub struct Slot {
    /// What the user asked for.
    pub device: Device,
    /// Where its window begins.
    pub begin: u64,
    /// How it is asked.
    pub front: Front,
    /// What is counted of it.
    pub counters: Counters,
}

/// All devices, in the order of their windows.
pub struct Bus(pub Vec<Slot>);

/// A device that does not answer.
#[derive(Debug)]
pub struct Silent {
    /// What the user calls it.
    pub name: String,
    /// Why.
    pub why: NoAnswer,
}

impl Bus {
    /// An access of the guest: what is read is put into `data`, what is written is there. Where
    /// nothing is, all bits are read, and nothing is written.
    ///
    /// # Errors
    /// The device that does not answer.
    pub fn access(
        &self,
        direction: Direction,
        address: u64,
        data: &mut [u8],
    ) -> Result<(), Silent> {
        let found = self.0.iter().find_map(|slot| {
            let offset = address.checked_sub(slot.begin)?;
            let end = offset.checked_add(data.len() as u64)?;
            (end <= WINDOW_BYTES).then_some((slot, offset))
        });
        match found {
            None => {
                if direction == Direction::Read {
                    data.fill(0xff);
                }
                Ok(())
            }
            Some((slot, offset)) => match &slot.front {
                Front::Here(device) => {
                    device.enter().access(direction, offset, data);
                    Ok(())
                }
                Front::Socket(commands) => {
                    commands.ask(direction, offset, data).map_err(|why| Silent {
                        name: slot.device.name.clone(),
                        why,
                    })
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::File;
    use crate::ioregionfd::connect;
    use crate::options::{Access, Kind};
    use crate::window::Served;
    use hw::sim::View;
    use linux::memory;
    use models::Misbehaviour;
    use models::virtio::{Mmio, VirtioRng};
    use std::os::fd::AsFd;

    const BEGIN: u64 = 0xc000_1000;

    fn slot(begin: u64, front: Front) -> Slot {
        Slot {
            device: Device {
                name: "entropy".into(),
                kind: Kind::Rng,
                access: Access::Exit,
                posted: false,
                busy: false,
            },
            begin,
            front,
            counters: File::new().unwrap().view().unwrap(),
        }
    }

    fn here() -> &'static Shared {
        let file = memory::sealed("guest", 4096).unwrap();
        let source = VirtioRng::new().unwrap();
        Box::leak(Box::new(Shared::new(Served {
            window: Box::new(Mmio::new(source, &Misbehaviour::default())),
            memory: View::of_file(file.as_fd(), 0, 4096, 0, true).unwrap(),
            counters: File::new().unwrap().view().unwrap(),
        })))
    }

    #[test]
    fn only_whole_accesses_of_a_window_reach_its_device() {
        let bus = Bus(vec![slot(BEGIN, Front::Here(here()))]);
        let read = |address| {
            let mut data = [7; 4];
            bus.access(Direction::Read, address, &mut data).unwrap();
            u32::from_le_bytes(data)
        };
        assert_eq!(read(BEGIN), 0x7472_6976);
        assert_eq!(read(BEGIN + 0x1fc), 0);
        for address in [
            0,
            BEGIN - 4,
            BEGIN - 1,
            BEGIN + 0x1fd,
            BEGIN + 0x200,
            u64::MAX - 1,
        ] {
            assert_eq!(read(address), u32::MAX, "{address:#x}");
            bus.access(Direction::Write, address, &mut [0; 4]).unwrap();
        }
    }

    #[test]
    fn a_device_that_has_gone_is_named() {
        let (commands, socket) = connect().unwrap();
        drop(socket);
        let bus = Bus(vec![slot(BEGIN, Front::Socket(commands))]);
        let silent = bus.access(Direction::Read, BEGIN, &mut [0; 4]).unwrap_err();
        assert_eq!(silent.name, "entropy");
    }
}
