//! How the device is to be set up.

/// How the device is to be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Which frames are received.
    pub filter: Filter,
}

impl Config {
    /// What forwards frames wants: all of them.
    pub const FORWARD: Self = Self {
        filter: Filter::None,
    };
}

/// Which frames are received. Forwarders need all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All, whoever they are for (promiscuous).
    None,
    /// Those for the device's own address, multicast and broadcast.
    Own,
}
