//! How the device is to be set up.

/// How the device is to be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Largest payload of an Ethernet frame, in bytes, unless the device says that its own is
    /// smaller.
    pub mtu: usize,
    /// Whether it may hand on TCP segments as one large frame (5.1.6.4). Buffers have to be of
    /// [`super::LARGE_BUFFER_BYTES`]; who receives such a frame finds in its offload how it is to
    /// be cut again.
    pub large: bool,
}

impl Config {
    /// What forwards frames wants: all of them, and 1500 bytes.
    pub const FORWARD: Self = Self {
        mtu: 1500,
        large: false,
    };
    /// The same for who can pass large frames on, to be cut by the next device.
    pub const LARGE: Self = Self {
        large: true,
        ..Self::FORWARD
    };
}
