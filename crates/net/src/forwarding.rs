//! What a router counts of packets that it does not send on, and of frames that none of its ports
//! takes. It is told with what the stack counts.

use crate::counts::reasons;

reasons! {
    /// Why a packet for somebody else was not sent on.
    pub enum Dropped {
        /// It is shorter than its header says.
        Short = "forward_short",
        /// It came to a group, or is from or to what no router passes on, or from our own address.
        Scope = "forward_scope",
        /// No route leads to its destination.
        Route = "forward_no_route",
        /// It may make no more hops.
        Hops = "forward_hops",
        /// It exceeds what its next link carries, and may not be cut.
        TooBig = "forward_too_big",
        /// The port that it was to leave by has no free buffer for its fragments.
        Buffer = "forward_no_buffer",
        /// Too many wait for the next hop's address.
        Neighbour = "forward_no_neighbour",
    }
}

reasons! {
    /// Why a frame was dropped at a port that carries VLANs (IEEE 802.1Q).
    pub enum Untagged {
        /// It has no tag, and the port has no addresses of its own.
        None = "vlan_untagged",
        /// Its tag names a VLAN that the port does not have.
        Unknown = "vlan_unknown",
        /// It has two tags, or a provider's.
        Nested = "vlan_nested",
        /// It ends inside of its tag.
        Short = "vlan_short",
        /// What was left to do to it lies inside of its tag.
        Offload = "vlan_offload",
        /// There was no room for a tag in front of it.
        Room = "vlan_no_room",
    }
}
