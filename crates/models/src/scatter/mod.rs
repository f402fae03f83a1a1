//! Payload between a wire and DMA memory without a copy, for any NIC.
//!
//! A NIC copies and judges headers. The payload of large packets stays where it is: the wire reads
//! it from the driver's buffers, and writes it there. A model asks for that in three places; it
//! gives the same frames, the same descriptors and the same counters where all bytes are copied.
//!
//! | type | what |
//! |---|---|
//! | [`Gather`] | a packet as its descriptors give it: copied, or headers and fragments |
//! | [`Aggregate`] | packets of one connection that are sent as one large frame |
//! | [`Prediction`] | where the payload of the next large frame belongs |
//! | [`Source`] | a frame that is copied, buffer by buffer |

mod aggregate;
mod gather;
mod prediction;
mod source;

pub(crate) use aggregate::Aggregate;
pub(crate) use gather::{Fragment, Gather};
pub(crate) use prediction::{Places, Prediction};
pub(crate) use source::{Parts, Source};

use arrayvec::ArrayVec;
use hw::sim::vectored::SPANS_MAX;

/// Fragments of a frame, in order: as many as one call of the kernel takes.
type Fragments = ArrayVec<Fragment, SPANS_MAX>;
