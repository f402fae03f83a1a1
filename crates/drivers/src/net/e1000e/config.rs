//! How the device is to be set up.

/// How the device is to be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whether it receives frames to the addresses of other stations too, as forwarders need it.
    /// Otherwise it receives those to its own address, to groups and to all.
    pub promiscuous: bool,
}

impl Config {
    /// What forwards frames wants: all of them.
    pub const FORWARD: Self = Self { promiscuous: true };
}
