//! Guest memory: the door to it while a guest is started, and what lies where in it.

mod gpa;
mod plan;

pub use gpa::Gpa;
pub use plan::{HEAP_BYTES_MIN, Plan, Region, Segment, TooSmall, plan, readable, writable_end};

/// The one door to the memory of a guest that is being started.
pub trait Memory {
    /// The `length` bytes from a guest address on, if guest memory has them.
    fn bytes(&mut self, address: Gpa, length: u64) -> Option<&mut [u8]>;
}
