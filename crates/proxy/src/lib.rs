//! Programs as they are, on the sockets of a stack in an image: their socket calls, answered.
//!
//! | module | what |
//! |---|---|
//! | [`link`] | this process's end of a link that carries sockets |

#![forbid(unsafe_code)]

pub mod link;
