//! Messages of the protocol (QEMU `docs/interop/vhost-user.rst`). All numbers are in the byte order
//! of the machine, on which both sides are.

use ::vfio_user::HeaderError;
use ::vfio_user::socket::Head;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What the front end asks for ("Front-end message types").
pub(crate) mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
    pub const RESET_DEVICE: u32 = 34;
    pub const GET_MAX_MEM_SLOTS: u32 = 36;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
}

/// Name of a request, for whoever reads an error.
pub(crate) fn name(number: u32) -> &'static str {
    match number {
        request::GET_FEATURES => "GET_FEATURES",
        request::SET_FEATURES => "SET_FEATURES",
        request::SET_OWNER => "SET_OWNER",
        request::RESET_OWNER => "RESET_OWNER",
        request::SET_MEM_TABLE => "SET_MEM_TABLE",
        request::SET_VRING_NUM => "SET_VRING_NUM",
        request::SET_VRING_ADDR => "SET_VRING_ADDR",
        request::SET_VRING_BASE => "SET_VRING_BASE",
        request::GET_VRING_BASE => "GET_VRING_BASE",
        request::SET_VRING_KICK => "SET_VRING_KICK",
        request::SET_VRING_CALL => "SET_VRING_CALL",
        request::SET_VRING_ERR => "SET_VRING_ERR",
        request::GET_PROTOCOL_FEATURES => "GET_PROTOCOL_FEATURES",
        request::SET_PROTOCOL_FEATURES => "SET_PROTOCOL_FEATURES",
        request::GET_QUEUE_NUM => "GET_QUEUE_NUM",
        request::SET_VRING_ENABLE => "SET_VRING_ENABLE",
        request::GET_CONFIG => "GET_CONFIG",
        request::SET_CONFIG => "SET_CONFIG",
        request::GET_INFLIGHT_FD => "GET_INFLIGHT_FD",
        request::SET_INFLIGHT_FD => "SET_INFLIGHT_FD",
        request::RESET_DEVICE => "RESET_DEVICE",
        request::GET_MAX_MEM_SLOTS => "GET_MAX_MEM_SLOTS",
        request::ADD_MEM_REG => "ADD_MEM_REG",
        request::REM_MEM_REG => "REM_MEM_REG",
        _ => "an unknown request",
    }
}

/// What both sides can do beyond the first version ("Protocol features").
pub(crate) mod protocol {
    pub const MQ: u64 = 1 << 0;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const CONFIG: u64 = 1 << 9;
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
    pub const RESET_DEVICE: u64 = 1 << 13;
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    /// Those that this side has.
    pub const ALL: u64 =
        MQ | REPLY_ACK | CONFIG | INFLIGHT_SHMFD | RESET_DEVICE | CONFIGURE_MEM_SLOTS;
}

/// The feature, among those of virtio, that there are protocol features.
pub(crate) const PROTOCOL_FEATURES: u64 = 1 << 30;

/// Bits of [`Header::flags`].
pub(crate) mod flag {
    /// Mask of the version, and the only one there is.
    pub const VERSION: u32 = 3;
    pub const VERSION_1: u32 = 1;
    pub const REPLY: u32 = 1 << 2;
    pub const NEED_REPLY: u32 = 1 << 3;
}

/// What every message begins with.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// What is asked for.
    pub request: u32,
    /// Version of the protocol, and whether it is a reply, or wants one.
    pub flags: u32,
    /// Bytes behind the header.
    pub bytes: u32,
}

impl Header {
    /// That of the reply to this request, with `bytes` behind the header.
    pub(crate) fn reply(&self, bytes: usize) -> Self {
        Self {
            request: self.request,
            flags: flag::VERSION_1 | flag::REPLY,
            bytes: bytes as u32,
        }
    }
}

impl Head for Header {
    fn behind(&self, room: usize) -> Result<usize, HeaderError> {
        if self.flags & flag::VERSION != flag::VERSION_1 || self.flags & flag::REPLY != 0 {
            return Err(HeaderError::Type(self.flags));
        }
        match self.bytes as usize {
            bytes if bytes <= room => Ok(bytes),
            _ => Err(HeaderError::Room(self.bytes, room)),
        }
    }
}

/// A number of a queue.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RingState {
    pub(crate) index: u32,
    pub(crate) number: u32,
}

/// Where the areas of a queue lie, in the address space of the front end.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RingAddress {
    pub(crate) index: u32,
    pub(crate) flags: u32,
    pub(crate) descriptors: u64,
    pub(crate) used: u64,
    pub(crate) available: u64,
    pub(crate) log: u64,
}

/// Memory of the driver's.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Region {
    /// Where the driver finds it.
    pub(crate) guest: u64,
    pub(crate) bytes: u64,
    /// Where the front end finds it.
    pub(crate) user: u64,
    /// Where it begins in its file.
    pub(crate) offset: u64,
}

/// Memory of inflight chains.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct InflightFile {
    pub(crate) bytes: u64,
    pub(crate) offset: u64,
    pub(crate) queues: u16,
    pub(crate) size: u16,
    pub(crate) padding: u32,
}

/// A range of the configuration of the device.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Config {
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
    pub(crate) flags: u32,
}
