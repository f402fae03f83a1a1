//! What a model is in the list of them.

use crate::device::Device;
use crate::misbehaviour::Misbehaviour;
use crate::wire::Wire;
use std::fmt;

/// A device that can be had by its name.
#[derive(Clone, Copy)]
pub struct Model {
    /// What it is called on a command line.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Makes one.
    pub make: fn(Setup) -> Box<dyn Device>,
}

/// What a device is made of.
pub struct Setup {
    /// Its Ethernet address.
    pub address: [u8; 6],
    /// What it is connected to.
    pub wire: Box<dyn Wire>,
    /// What it does wrong.
    pub misbehaviour: Misbehaviour,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Model").field(&self.name).finish()
    }
}
