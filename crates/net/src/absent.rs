//! A version of IP that an image does without.

use crate::address::Address;
use crate::ethernet::{Arrival, Link};
use crate::icmp::{Refusal, Report};
use crate::layer::{Filled, Unsent};
use crate::version::{Arrived, Packet, Received, Version};
use core::marker::PhantomData;
use ports::Instant;

/// A version of IP, with addresses of this type, that is not there: no route leads anywhere, and
/// what comes is dropped.
pub struct Absent<A>(PhantomData<A>);

impl<A> Default for Absent<A> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<A: Address, L: Link> Version<L> for Absent<A> {
    type Address = A;

    fn source(&self, _: A) -> Option<A> {
        None
    }

    fn mtu(&self, _: &L, _: A, _: Instant) -> usize {
        0
    }

    fn largest(&self, _: &L, _: A, _: Instant) -> usize {
        0
    }

    fn write(
        &mut self,
        _: &mut L,
        _: Packet<A>,
        _: usize,
        _: impl FnOnce(&mut [u8]) -> Filled,
        _: Instant,
    ) -> Result<(), Unsent> {
        Err(Unsent::NoRoute)
    }

    fn accept(&mut self, _: &mut L, _: Arrival, _: Instant) -> Option<Arrived<A>> {
        None
    }

    fn refuse(&mut self, _: &mut L, _: Received<A>, _: Refusal, _: Instant) {}

    fn too_big(&mut self, _: &L, _: &Report<A>, _: bool, _: Instant) -> Option<usize> {
        None
    }

    fn confirm(&mut self, _: A, _: Instant) {}

    fn resolve(&mut self, _: &mut L, _: Arrival, _: Instant) {}

    fn poll(&mut self, _: &mut L, _: Instant) {}

    fn deadline(&self) -> Option<Instant> {
        None
    }
}
