//! Why a frame has no key.

/// Why a frame cannot be read. Such a frame is dropped and counted by reason, before any rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than an Ethernet header.
    Runt,
    /// Ends inside a VLAN tag.
    TruncatedVlan,
    /// Ends inside the ARP packet.
    TruncatedArp,
    /// Ends inside the IP header.
    TruncatedIp,
    /// The IP version is not the one of the EtherType, or the IPv4 header is shorter than 20 bytes.
    BadIpHeader,
    /// The IP packet is longer than the frame, or shorter than its own header.
    BadIpLength,
    /// The checksum of the IPv4 header is wrong.
    BadIpChecksum,
    /// The IPv6 packet ends inside an extension header.
    TruncatedExtension,
    /// More IPv6 extension headers than are looked through.
    TooManyExtensions,
    /// The IP packet ends inside the TCP, UDP or ICMP header.
    TruncatedL4,
    /// The TCP header is shorter than 20 bytes.
    BadL4Header,
}

impl Malformed {
    /// Every reason, each at its [`Self::index`].
    pub const ALL: [Self; 11] = [
        Self::Runt,
        Self::TruncatedVlan,
        Self::TruncatedArp,
        Self::TruncatedIp,
        Self::BadIpHeader,
        Self::BadIpLength,
        Self::BadIpChecksum,
        Self::TruncatedExtension,
        Self::TooManyExtensions,
        Self::TruncatedL4,
        Self::BadL4Header,
    ];

    /// Number of the reason's counter, from 0.
    #[inline]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Name of the reason's counter.
    pub fn name(self) -> &'static str {
        match self {
            Self::Runt => "runt",
            Self::TruncatedVlan => "truncated_vlan",
            Self::TruncatedArp => "truncated_arp",
            Self::TruncatedIp => "truncated_ip",
            Self::BadIpHeader => "bad_ip_header",
            Self::BadIpLength => "bad_ip_length",
            Self::BadIpChecksum => "bad_ip_checksum",
            Self::TruncatedExtension => "truncated_extension",
            Self::TooManyExtensions => "too_many_extensions",
            Self::TruncatedL4 => "truncated_l4",
            Self::BadL4Header => "bad_l4_header",
        }
    }

    /// What is wrong, as a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Runt => "it is shorter than an Ethernet header",
            Self::TruncatedVlan => "it ends inside a VLAN tag",
            Self::TruncatedArp => "it ends inside the ARP packet",
            Self::TruncatedIp => "it ends inside the IP header",
            Self::BadIpHeader => {
                "the IP version is not the one of the EtherType, or the IPv4 header is shorter \
                 than 20 bytes"
            }
            Self::BadIpLength => {
                "the IP packet is longer than the frame, or shorter than its own header"
            }
            Self::BadIpChecksum => "the checksum of the IPv4 header is wrong",
            Self::TruncatedExtension => "the IPv6 packet ends inside an extension header",
            Self::TooManyExtensions => "it has more IPv6 extension headers than are looked through",
            Self::TruncatedL4 => "the IP packet ends inside the TCP, UDP or ICMP header",
            Self::BadL4Header => "the TCP header is shorter than 20 bytes",
        }
    }
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::Malformed;

    #[test]
    fn each_reason_is_at_its_index() {
        for (index, reason) in Malformed::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index, "{reason}");
        }
    }
}
