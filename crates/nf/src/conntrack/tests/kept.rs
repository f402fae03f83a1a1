//! Tables that outlive their image.

/// Something was stored, and something else is about to be.
pub(in super::super) fn moment() {}
