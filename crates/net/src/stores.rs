//! The order of stores to memory that outlives the image.

use core::sync::atomic::{Ordering, compiler_fence};

/// What was written before this stays before what is written behind it. The image has one thread,
/// and whoever takes its memory up comes after its end: only the compiler could change the order.
#[inline]
pub(crate) fn in_order() {
    compiler_fence(Ordering::SeqCst);
    #[cfg(test)]
    {
        crate::tcp::tests::vault::moment();
        crate::notes::tests::moment();
        crate::dhcp::server::shelf::tests::moment();
    }
}
