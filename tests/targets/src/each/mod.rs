//! One file for each target: the function that an input is fed to.

mod ahci;
pub mod conntrack;
mod dhcp;
mod e1000e;
mod frame;
mod fs_ext2;
mod fs_fat;
mod fs_iso;
mod hypercall;
mod image;
mod ioregionfd;
mod ixgbe;
mod link;
mod link_sockets;
mod manifest;
pub mod model;
mod model_nvme;
mod model_virtio_blk;
mod model_virtio_net;
mod model_virtio_rng;
mod nbd;
mod net;
mod nvme;
mod resolver;
mod ring;
mod router;
mod rules_parse;
mod rules_state;
mod rules_verdict;
mod tcp;
mod usb;
mod vfio_user_client;
mod vfio_user_server;
mod vhost_user;
mod virtio_net;
mod zone;

/// A reader of hostile bytes.
pub struct Target {
    /// Its name: that of its file, of its libFuzzer target, and of its corpus.
    pub name: &'static str,
    /// Feeds it an input.
    ///
    /// # Panics
    /// If the reader breaks one of its promises.
    pub feed: fn(&[u8]),
    /// Mutations that the tests feed it: what takes some seconds where nothing is optimised.
    pub mutations: u64,
}

const fn target(name: &'static str, feed: fn(&[u8]), mutations: u64) -> Target {
    Target {
        name,
        feed,
        mutations,
    }
}

/// All of them, by name.
pub const ALL: &[Target] = &[
    target("ahci", ahci::feed, 2000),
    target("conntrack", conntrack::feed, 3000),
    target("dhcp", dhcp::feed, 4000),
    target("e1000e", e1000e::feed, 2500),
    target("frame", frame::feed, 15_000),
    target("fs_ext2", fs_ext2::feed, 2000),
    target("fs_fat", fs_fat::feed, 2000),
    target("fs_iso", fs_iso::feed, 4000),
    target("hypercall", hypercall::feed, 1200),
    target("image", image::feed, 15_000),
    target("ioregionfd", ioregionfd::feed, 15_000),
    target("ixgbe", ixgbe::feed, 1500),
    target("link", link::feed, 12_000),
    target("link_sockets", link_sockets::feed, 3000),
    target("manifest", manifest::feed, 15_000),
    target("model", model::feed, 1500),
    target("model_nvme", model_nvme::feed, 3000),
    target("model_virtio_blk", model_virtio_blk::feed, 5000),
    target("model_virtio_net", model_virtio_net::feed, 3000),
    target("model_virtio_rng", model_virtio_rng::feed, 7000),
    target("nbd", nbd::feed, 4000),
    target("net", net::feed, 4000),
    target("nvme", nvme::feed, 2000),
    target("resolver", resolver::feed, 1000),
    target("ring", ring::feed, 12_000),
    target("router", router::feed, 3000),
    target("rules_parse", rules_parse::feed, 3000),
    target("rules_state", rules_state::feed, 600),
    target("rules_verdict", rules_verdict::feed, 400),
    target("tcp", tcp::feed, 12_000),
    target("usb", usb::feed, 400),
    target("vfio_user_client", vfio_user_client::feed, 4000),
    target("vfio_user_server", vfio_user_server::feed, 1500),
    target("vhost_user", vhost_user::feed, 4000),
    target("virtio_net", virtio_net::feed, 4000),
    target("zone", zone::feed, 12_000),
];
