//! What a model is in the list of them.

use crate::device::Device;
use crate::disk::Disk;
use crate::misbehaviour::Misbehaviour;
use crate::virtio::VirtioDevice;
use crate::wire::Wire;
use std::{fmt, io};

/// A device that can be had by its name.
#[derive(Clone, Copy)]
pub struct Model {
    /// What it is called on a command line.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Makes one.
    pub make: Make,
    /// Makes the [back end](crate::vhost_user) of one, if it is a virtio device.
    pub back_end: Option<Make<dyn VirtioDevice>>,
}

/// How a device is made, by what it is connected to.
pub enum Make<D: ?Sized + 'static = dyn Device> {
    /// A NIC, at a wire.
    Nic(fn(Setup) -> Box<D>),
    /// A disk, over a file.
    Disk(fn(DiskSetup) -> Box<D>),
    /// A device that is connected to nothing; the error is what the kernel says.
    Alone(fn(&Misbehaviour) -> io::Result<Box<D>>),
}

impl<D: ?Sized> Clone for Make<D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: ?Sized> Copy for Make<D> {}

/// What a NIC is made of.
pub struct Setup {
    /// Its Ethernet address.
    pub address: [u8; 6],
    /// What it is connected to.
    pub wire: Box<dyn Wire>,
    /// The longest packet that its driver may send, in bytes, if it is a virtio network card and
    /// says so.
    pub mtu: Option<u16>,
    /// What it does wrong.
    pub misbehaviour: Misbehaviour,
}

/// What a disk is made of.
#[derive(Debug)]
pub struct DiskSetup {
    /// What it keeps its blocks in.
    pub disk: Disk,
    /// What it does wrong.
    pub misbehaviour: Misbehaviour,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Model").field(&self.name).finish()
    }
}
