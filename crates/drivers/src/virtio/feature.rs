//! Features that no kind of device has for itself (6): bits that are negotiated with each.

/// Notifications either way at an index that the other side names (2.7.7, 2.7.10).
pub const EVENT_IDX: u64 = 1 << 29;
/// As the specification has it, not as it was before.
pub const VERSION_1: u64 = 1 << 32;
/// Addresses are those of the platform: the IOMMU translates them.
pub const ACCESS_PLATFORM: u64 = 1 << 33;
/// Memory is ordered as between processors and real devices. The driver always does that.
pub const ORDER_PLATFORM: u64 = 1 << 36;

/// What every driver here accepts.
pub(crate) const COMMON: u64 = EVENT_IDX | VERSION_1 | ACCESS_PLATFORM | ORDER_PLATFORM;
