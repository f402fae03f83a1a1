//! The fields of a `PCI_BASIC` device.

use abi::manifest::name_field;
use abi::pci::{Request, request_flag};
use serde::Deserialize;

/// A PCIe device as it is declared. Ids that are absent are no ids: any device would do.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    pub name: String,
    class: Option<u64>,
    subclass: Option<u64>,
    progif: Option<u64>,
    vendor: Option<u64>,
    device_id: Option<u64>,
    #[serde(default)]
    bus_master_enable: bool,
    #[serde(default)]
    map_bar0: bool,
    #[serde(default)]
    map_bar1: bool,
    #[serde(default)]
    map_bar2: bool,
    #[serde(default)]
    map_bar3: bool,
    #[serde(default)]
    map_bar4: bool,
    #[serde(default)]
    map_bar5: bool,
    /// DMA memory that is there because of this device, in bytes.
    #[serde(default)]
    pub dma_size: u64,
}

impl Declaration {
    /// The device as an image asks for it.
    ///
    /// # Errors
    /// What is wrong with a field, without the device's name; `None` if it is the name.
    pub fn request(&self) -> Result<Request, Option<String>> {
        let name = name_field(&self.name).ok_or(None)?;
        let flags = if self.bus_master_enable {
            request_flag::BUS_MASTER
        } else {
            0
        };
        Ok(Request {
            name,
            class: number("class", self.class)?,
            subclass: number("subclass", self.subclass)?,
            progif: number("progif", self.progif)?,
            bars: self.bars(),
            vendor: number("vendor", self.vendor)?,
            device: number("device_id", self.device_id)?,
            flags,
        })
    }

    /// Bit i for BAR i.
    fn bars(&self) -> u8 {
        let mapped = [
            self.map_bar0,
            self.map_bar1,
            self.map_bar2,
            self.map_bar3,
            self.map_bar4,
            self.map_bar5,
        ];
        let bits = mapped.iter().rev();
        bits.fold(0, |bits, mapped| bits << 1 | u8::from(*mapped))
    }
}

/// The number that a field must have.
fn number<T: TryFrom<u64>>(field: &str, value: Option<u64>) -> Result<T, Option<String>> {
    let bits = 8 * size_of::<T>();
    let Some(value) = value else {
        return Err(Some(format!(
            "\"{field}\" is missing; `outboard pci list` shows the numbers of devices"
        )));
    };
    T::try_from(value).map_err(|_| {
        let most = (1u64 << bits) - 1;
        Some(format!(
            "\"{field}\" is {value}; write a number from 0 to {most}"
        ))
    })
}
