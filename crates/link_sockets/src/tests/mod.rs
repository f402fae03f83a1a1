//! Both ends, joined in memory, with a stack behind the one; and each end alone, with a liar at the
//! other one.

mod kept;
mod lies;
mod scene;
mod sockets;
