//! Starts an image with what its manifest names and nothing else.

pub mod netlink;
pub mod sys;
