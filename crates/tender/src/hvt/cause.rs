//! Why the tender ends a guest, by who is to blame.

use crate::memory::Gpa;
use crate::sys::guest::Outside;
use abi::hvt::call;
use abi::manifest::Entry;
use abi::pci::Request;
use abi::ring::Jump;
use image::Image;
use rustix::io::Errno;
use std::fmt;

/// Alignment of arguments of hypercalls, in bytes: that of their largest field.
pub const ARGUMENT_ALIGN: u64 = 8;

/// Why the tender ends a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The guest is to blame: it asked for something that it must not.
    Violation(Violation),
    /// A device went away: its index in the manifest.
    DeviceGone(usize),
    /// The host is to blame: this step failed.
    Host(HostStep, Errno),
}

/// A step of serving a guest that fails only if the host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostStep {
    /// To set the timer of the guest.
    Timer,
    /// To wait for the guest's devices.
    Wait,
    /// To wake the guest up.
    Wake,
    /// To run the guest's processor.
    Run,
}

impl Cause {
    /// The device that it is about: its index in the manifest.
    pub fn device(&self) -> Option<usize> {
        match self {
            Self::DeviceGone(index)
            | Self::Violation(Violation::Ring(index, _) | Violation::Buffer(index, _)) => {
                Some(*index)
            }
            Self::Violation(_) | Self::Host(..) => None,
        }
    }
}

/// Names in messages: that of the program that says them, and those of all devices of an image by
/// their index: those of the manifest's entries, and PCIe devices behind them.
#[derive(Debug, Default)]
pub struct Names {
    /// The program's.
    pub program: &'static str,
    devices: Vec<String>,
}

impl Names {
    /// Those of `image`, in messages of `program`.
    pub fn of(program: &'static str, image: &Image) -> Self {
        let entries = image.entries.iter().map(Entry::name);
        let pci = image.pci.iter().map(Request::name);
        let names = entries.chain(pci);
        Self {
            program,
            devices: names.map(|name| name.unwrap_or_default().into()).collect(),
        }
    }

    /// What is said behind a reason that is about a device.
    fn said(&self, cause: &Cause) -> Option<&str> {
        let name = self.devices.get(cause.device()?)?;
        Some(name)
    }
}

/// A cause, and behind it the name of the device that it is about.
#[derive(Debug)]
pub struct Named<'a>(pub &'a Cause, pub &'a Names);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(cause, names) = self;
        cause.fmt(f)?;
        match names.said(cause) {
            Some(name) => write!(f, "; its name is {name}"),
            None => Ok(()),
        }
    }
}

impl From<Violation> for Cause {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl fmt::Display for HostStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timer => "set the guest's timer",
            Self::Wait => "wait for the guest's devices",
            Self::Wake => "wake the guest up",
            Self::Run => "run the guest in KVM",
        })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violation(violation) => violation.fmt(f),
            Self::DeviceGone(index) => {
                write!(f, "device {index} of its manifest went away while in use")
            }
            // By its number: the text of it would be allocated, which the jail may not allow.
            Self::Host(step, errno) => {
                write!(
                    f,
                    "the host cannot {step}: os error {}",
                    errno.raw_os_error()
                )
            }
        }
    }
}

impl std::error::Error for Cause {}

/// What a guest asked for that it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A port that is no call.
    Port(u16),
    /// A call whose argument, or what that points to, is no guest memory: the call's number, the
    /// address, the length.
    Pointer(u16, Gpa, u64),
    /// An argument at an odd address: the call's number, the address.
    Unaligned(u16, Gpa),
    /// An index of a ring that makes no sense: the device's index in the manifest.
    Ring(usize, Jump),
    /// A buffer in a ring that is no guest memory.
    Buffer(usize, Outside),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, "it wrote to port {port:#x}, which is no hypercall"),
            Self::Pointer(number, address, length) => write!(
                f,
                "it passed {length} bytes at {address:#x}, outside of its memory, to the \
                 hypercall {}",
                name(*number)
            ),
            Self::Unaligned(number, address) => write!(
                f,
                "it passed an argument at {address:#x}, no multiple of {ARGUMENT_ALIGN}, to the \
                 hypercall {}",
                name(*number)
            ),
            Self::Ring(index, Jump { from, to }) => write!(
                f,
                "it set the index of the ring of device {index} of its manifest from {from} to {to}"
            ),
            Self::Buffer(index, Outside { address, length }) => write!(
                f,
                "it passed a buffer of {length} bytes at {address:#x}, outside of its memory, to \
                 the ring of device {index} of its manifest"
            ),
        }
    }
}

impl std::error::Error for Violation {}

fn name(number: u16) -> &'static str {
    match number {
        call::WALL_TIME => "walltime",
        call::PUTS => "puts",
        call::POLL => "poll",
        call::BLOCK_WRITE => "block_write",
        call::BLOCK_READ => "block_read",
        call::NET_WRITE => "net_write",
        call::NET_READ => "net_read",
        call::HALT => "halt",
        call::MESSAGE_SEND => "message_send",
        call::MESSAGE_RECEIVE => "message_receive",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named() {
        let names = Names {
            program: "",
            devices: ["", "lan", "nic0"].map(String::from).to_vec(),
        };
        let gone = Cause::DeviceGone(2);
        assert_eq!(
            Named(&gone, &names).to_string(),
            "device 2 of its manifest went away while in use; its name is nic0"
        );
        let ring = Violation::Ring(1, Jump { from: 0, to: 257 }).into();
        let said = Named(&ring, &names).to_string();
        assert!(said.ends_with("from 0 to 257; its name is lan"), "{said}");
        let unknown = Cause::DeviceGone(7);
        assert_eq!(Named(&unknown, &names).to_string(), unknown.to_string());
        let port = Violation::Port(3).into();
        assert!(!Named(&port, &names).to_string().contains("name"));
    }
}
