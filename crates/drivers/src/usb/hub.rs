//! Hubs (USB 2.0, 11; USB 3.2, 10.16): their ports, by requests to them.

use super::context::{HubContext, Speed};
use super::error::Error;
use super::host::{Device, Host};
use super::port::{RECOVERY_NANOSECONDS, RESET_NANOSECONDS};
use super::wait::{MILLISECOND, late};

/// Ports of a hub that are used: a route has four bits for each.
pub const PORTS_MAX: u8 = 15;
/// How long what is connected may take to be so, once a port has power (USB 2.0, 7.1.7.3), in
/// nanoseconds.
const CONNECT_NANOSECONDS: u64 = 200 * MILLISECOND;
/// From one look at a port that is reset to the next, in nanoseconds.
const LOOK_NANOSECONDS: u64 = 10 * MILLISECOND;

/// Requests to a hub, and to a port of it (USB 2.0, 11.24.2).
const HUB_OUT: u8 = 0x20;
const PORT_OUT: u8 = 0x23;
const HUB_IN: u8 = 0xa0;
const PORT_IN: u8 = 0xa3;
const GET_STATUS: u8 = 0;
const CLEAR_FEATURE: u8 = 1;
const SET_FEATURE: u8 = 3;
const GET_DESCRIPTOR: u8 = 6;
/// USB 3.2, 10.16.2.9.
const SET_HUB_DEPTH: u8 = 12;
/// Kinds of descriptors of a hub, as it is no faster than USB 2, or is.
const DESCRIPTOR: u8 = 0x29;
const DESCRIPTOR_SUPER: u8 = 0x2a;
/// Features of a port.
const RESET: u8 = 4;
const POWER: u8 = 8;
const CHANGED_CONNECTION: u8 = 16;
const CHANGED_RESET: u8 = 20;

/// A hub that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hub {
    pub device: Device,
    pub ports: u8,
}

/// What a hub says of a port: what is, and what has changed (11.24.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    is: u16,
    changed: u16,
}

impl Status {
    fn of(answer: &[u8]) -> Result<Self, Error> {
        match *answer {
            [a, b, c, d, ..] => Ok(Self {
                is: u16::from_le_bytes([a, b]),
                changed: u16::from_le_bytes([c, d]),
            }),
            _ => Err(Error::Config("the status of a port")),
        }
    }

    fn is_connected(self) -> bool {
        self.is & 1 << 0 != 0
    }

    fn is_enabled(self) -> bool {
        self.is & 1 << 1 != 0
    }

    fn is_in_reset(self) -> bool {
        self.is & 1 << 4 != 0
    }

    fn has_changed_connection(self) -> bool {
        self.changed & 1 << 0 != 0
    }

    /// How fast what is connected is, behind a hub that is so fast.
    fn speed(self, hub: Speed) -> Speed {
        match hub {
            Speed::Super(number) => Speed::Super(number),
            _ if self.is & 1 << 9 != 0 => Speed::Low,
            _ if self.is & 1 << 10 != 0 => Speed::High,
            _ => Speed::Full,
        }
    }
}

/// What a hub says of itself (11.23.2.1): its context, and how long its ports take for power, in
/// nanoseconds.
fn described(answer: &[u8]) -> Result<(HubContext, u64), Error> {
    let wrong = Error::Config("its ports");
    let [
        length,
        DESCRIPTOR | DESCRIPTOR_SUPER,
        ports,
        low,
        _,
        power,
        ..,
    ] = *answer
    else {
        return Err(wrong);
    };
    if length < 7 {
        return Err(wrong);
    }
    let context = HubContext {
        ports,
        think_time: low >> 5 & 3,
    };
    Ok((context, u64::from(power) * 2 * MILLISECOND))
}

impl Hub {
    /// Makes a device that is a hub one that is used: its configuration has this value.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn open(host: &mut Host, device: Device, configuration: u8) -> Result<Self, Error> {
        let request = super::descriptor::set_configuration(configuration);
        host.control(&device, request).await?;
        let is_super = matches!(device.place.speed, Speed::Super(_));
        let (kind, bytes) = if is_super {
            (DESCRIPTOR_SUPER, 12)
        } else {
            (DESCRIPTOR, 71)
        };
        host.control(&device, [HUB_IN, GET_DESCRIPTOR, 0, kind, 0, 0, bytes, 0])
            .await?;
        let (context, power) = described(&host.answer)?;
        host.set_hub(&device, context).await?;
        if is_super {
            let depth = device.place.depth as u8;
            host.control(&device, [HUB_OUT, SET_HUB_DEPTH, depth, 0, 0, 0, 0, 0])
                .await?;
        }
        let ports = context.ports.min(PORTS_MAX);
        let hub = Self { device, ports };
        for port in 1..=ports {
            hub.set(host, port, SET_FEATURE, POWER).await?;
        }
        host.sleep(power + CONNECT_NANOSECONDS).await;
        Ok(hub)
    }

    async fn set(&self, host: &mut Host, port: u8, request: u8, feature: u8) -> Result<(), Error> {
        host.control(&self.device, [PORT_OUT, request, feature, 0, port, 0, 0, 0])
            .await
    }

    async fn status(&self, host: &mut Host, port: u8) -> Result<Status, Error> {
        host.control(&self.device, [PORT_IN, GET_STATUS, 0, 0, port, 0, 4, 0])
            .await?;
        Status::of(&host.answer)
    }

    /// Whether what was connected to a port is connected no more, or was not at some time since the
    /// port was [taken](Self::take_port).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn has_lost(&self, host: &mut Host, port: u8) -> Result<bool, Error> {
        let status = self.status(host, port).await?;
        Ok(!status.is_connected() || status.has_changed_connection())
    }

    /// Resets what is connected to a port, and says how fast it is; `None` if there is nothing.
    ///
    /// # Errors
    /// [`Error`], if it does not get ready.
    pub async fn take_port(&self, host: &mut Host, port: u8) -> Result<Option<Speed>, Error> {
        if !self.status(host, port).await?.is_connected() {
            return Ok(None);
        }
        self.set(host, port, CLEAR_FEATURE, CHANGED_CONNECTION)
            .await?;
        self.set(host, port, SET_FEATURE, RESET).await?;
        let since = host.now();
        let status = loop {
            host.sleep(LOOK_NANOSECONDS).await;
            let status = self.status(host, port).await?;
            if status.is_enabled() && !status.is_in_reset() {
                break status;
            }
            if late(since, host.now(), RESET_NANOSECONDS) {
                return Err(Error::Config("that its port cannot be reset"));
            }
        };
        self.set(host, port, CLEAR_FEATURE, CHANGED_RESET).await?;
        host.sleep(RECOVERY_NANOSECONDS).await;
        Ok(Some(status.speed(self.device.place.speed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_hub_says_has_its_fields_where_the_specification_has_them() {
        let answer = [9, 0x29, 4, 0x69, 0, 50, 100, 0, 0xff];
        let context = HubContext {
            ports: 4,
            think_time: 3,
        };
        assert_eq!(described(&answer), Ok((context, 100 * MILLISECOND)));
        for wrong in [
            &[][..],
            &answer[..5],
            &[9, 0x28, 4, 0, 0, 50],
            &[2, 0x29, 4, 0, 0, 1],
        ] {
            assert!(described(wrong).is_err());
        }
        let status = Status::of(&[0x03, 0x05, 0x01, 0]).unwrap();
        assert!(status.is_connected() && status.is_enabled() && status.has_changed_connection());
        assert_eq!(status.speed(Speed::High), Speed::High);
        assert_eq!(status.speed(Speed::Super(5)), Speed::Super(5));
        assert!(Status::of(&[1, 2, 3]).is_err());
    }
}
