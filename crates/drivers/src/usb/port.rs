//! The controller's own ports (xHCI 1.2, 4.3, 4.15, 4.19; USB 2.0, 7.1.7).

use super::context::Speed;
use super::error::Error;
use super::host::Host;
use super::init;
use super::registers::*;
use super::wait::{MILLISECOND, again, late};

/// How long a port may take for its reset, in nanoseconds.
pub const RESET_NANOSECONDS: u64 = 1000 * MILLISECOND;
/// How long a device is left alone behind its reset (USB 2.0, 7.1.7.5 says 10 ms), in nanoseconds.
pub const RECOVERY_NANOSECONDS: u64 = 20 * MILLISECOND;

impl Host {
    /// Ports of the controller.
    pub fn ports(&self) -> u8 {
        self.capabilities.ports
    }

    /// Whether what was connected to a port of the controller's is connected no more, or was not at
    /// some time since the port was [taken](Self::take_port).
    pub fn has_lost(&self, port: u8) -> bool {
        let status = self.bar.read(self.places().port(port));
        status & PORT_CONNECTED == 0 || status & PORT_CONNECTION_CHANGED != 0
    }

    /// Gives all ports power.
    pub fn power(&self) {
        for port in 1..=self.ports() {
            let register = self.places().port(port);
            let status = self.bar.read(register);
            if status & PORT_POWER == 0 {
                self.bar.write(register, status & PORT_KEPT | PORT_POWER);
            }
        }
    }

    /// Resets what is connected to a port, and says how fast it is; `None` if there is nothing.
    ///
    /// # Errors
    /// [`Error`], if it does not get ready.
    pub async fn take_port(&mut self, port: u8) -> Result<Option<Speed>, Error> {
        let register = self.places().port(port);
        let status = self.bar.read(register);
        if status == ALL_ONES {
            return Err(Error::Gone);
        }
        if status & PORT_CONNECTED == 0 {
            return Ok(None);
        }
        // From here on, a change is news.
        let kept = status & PORT_KEPT;
        self.bar.write(register, kept | PORT_CHANGES);
        let protocol = init::protocol(&self.bar, &self.capabilities, port);
        // Behind its own reset, the controller has brought a link of USB 3 up itself.
        if !(protocol.is_super && status & PORT_ENABLED != 0) {
            let reset = match protocol.is_super {
                true => PORT_WARM_RESET,
                false => PORT_RESET,
            };
            self.bar.write(register, kept | reset);
            self.sees_reset(register).await?;
        }
        self.sleep(RECOVERY_NANOSECONDS).await;
        let status = self.bar.read(register);
        if status & PORT_CONNECTED == 0 || status & PORT_ENABLED == 0 {
            return Err(Error::Unplugged);
        }
        Ok(Speed::of((status >> PORT_SPEED_SHIFT) as u8 & 0xf))
    }

    async fn sees_reset(&self, register: hw::Register) -> Result<(), Error> {
        let since = self.now();
        loop {
            let status = self.bar.read(register);
            if status & (PORT_RESET | PORT_ENABLED) == PORT_ENABLED {
                // What was taken out since has left the port disabled.
                self.bar.write(register, status & PORT_KEPT | PORT_CHANGES);
                return Ok(());
            }
            if late(since, self.now(), RESET_NANOSECONDS) {
                return Err(Error::Config("that its port cannot be reset"));
            }
            again().await;
        }
    }
}
