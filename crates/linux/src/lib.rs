//! Linux as host programs use it: each module wraps one part of the kernel's interface, and knows
//! nothing of guests.
//!
//! | module | what | manual |
//! |---|---|---|
//! | [`call`] | calls that a signal interrupts, made again | `signal(7)` |
//! | [`descriptor`] | descriptors that a parent passed, and closing the others | `close_range(2)` |
//! | [`event`] | numbers that wake whoever waits for them | `eventfd(2)` |
//! | [`interface`] | what a network interface is asked by its name | `netdevice(7)` |
//! | [`link`] | what the two ends of a link between images are given | |
//! | [`memory`] | memory as a file that nobody makes shorter | `memfd_create(2)` |
//! | [`mtu`] | the MTU of an interface, and when it changes | `rtnetlink(7)` |
//! | [`namespace`] | user and network namespaces without a name | `namespaces(7)` |
//! | [`netlink`] | interfaces, addresses, routes | `rtnetlink(7)` |
//! | [`notify`] | system calls of other processes that this one answers | `seccomp_unotify(2)` |
//! | [`packet`] | sockets that transmit whole frames | `packet(7)` |
//! | [`pci`] | addresses and classes of devices; what sysfs says of them | `sysfs-bus-pci` |
//! | [`process`] | children that are copies of this process | `fork(2)` |
//! | [`shared`] | memory of links, mapped | `mmap(2)` |
//! | [`signal`] | dispositions, and signals that wait | `signal(7)` |
//! | [`tap`] | Ethernet interfaces whose frames a process reads and writes | `tuntap.rst` |
//!
//! Unsafe code lies in `src/sys` only. What only the tender may need, such as VFIO, KVM and guest
//! memory, lies in the tender.

pub mod call;
mod child;
pub mod event;
pub mod interface;
pub mod link;
pub mod memory;
pub mod mounts;
pub mod mtu;
pub mod netlink;
pub mod pci;
mod sys;

pub use sys::{descriptor, namespace, notify, packet, process, shared, signal, tap};
