//! iperf3's protocol, as a server: a control connection that carries states of one byte and texts
//! in JSON, and streams that carry data (esnet/iperf, `iperf_api.h`).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod protocol;
pub mod server;
