//! Registers of the 82574L that this driver uses: offsets and bits, by section of the datasheet's
//! chapter 10.

use hw::Register;

/// What a register reads where there is no device.
pub const ALL_ONES: u32 = u32::MAX;

/// Size of BAR 0 in bytes.
pub const BAR_BYTES: usize = 128 << 10;

// General registers (10.2.2).

/// Device control.
pub const CTRL: Register = Register::new("CTRL", 0x0000, "10.2.2");
/// Asks the device to start no more requests of its own.
pub const CTRL_GIO_MASTER_DISABLE: u32 = 1 << 2;
/// Set link up: the MAC may talk to the PHY.
pub const CTRL_SLU: u32 = 1 << 6;
/// Force speed.
pub const CTRL_FRCSPD: u32 = 1 << 11;
/// Force duplex.
pub const CTRL_FRCDPX: u32 = 1 << 12;
/// Global reset; clears itself.
pub const CTRL_RST: u32 = 1 << 26;
/// Obey pause frames.
pub const CTRL_RFCE: u32 = 1 << 27;
/// Send pause frames.
pub const CTRL_TFCE: u32 = 1 << 28;
/// Take VLAN tags off received frames.
pub const CTRL_VME: u32 = 1 << 30;

/// Device status.
pub const STATUS: Register = Register::new("STATUS", 0x0008, "10.2.2");
/// Link up.
pub const STATUS_LU: u32 = 1 << 1;
/// Where the speed of the link begins: 10, 100, 1000 and 1000 Mb/s.
pub const STATUS_SPEED_SHIFT: u32 = 6;
/// The device may start requests of its own.
pub const STATUS_GIO_MASTER_ENABLE: u32 = 1 << 19;

/// EEPROM control.
pub const EEC: Register = Register::new("EEC", 0x0010, "10.2.2");
/// What the EEPROM holds has been read.
pub const EEC_AUTO_RD: u32 = 1 << 9;

/// Extended device control.
pub const CTRL_EXT: Register = Register::new("CTRL_EXT", 0x0018, "10.2.2");
/// Tells the firmware that there is a driver.
pub const CTRL_EXT_DRV_LOAD: u32 = 1 << 28;

/// Access to the PHY.
pub const MDIC: Register = Register::new("MDIC", 0x0020, "10.2.2.7");
/// Writes register 0 of the PHY, whose address is 1.
pub const MDIC_WRITE_CONTROL: u32 = 1 << 21 | 1 << 26;
/// The access is over.
pub const MDIC_READY: u32 = 1 << 28;
/// Register 0 of the PHY (IEEE 802.3, 22.2.4.1), as after its reset: it negotiates, and its power
/// is on.
pub const PHY_CONTROL: u32 = 1 << 6 | 1 << 8 | 1 << 12;

/// Extended configuration control.
pub const EXTCNF_CTRL: Register = Register::new("EXTCNF_CTRL", 0x0f00, "10.2.2.15");
/// Software asks for the PHY, and has it once this reads 1.
pub const EXTCNF_CTRL_MDIO_SW: u32 = 1 << 5;

/// Flow control: address of pause frames, low, high, and their type.
pub const FCAL: Register = Register::new("FCAL", 0x0028, "10.2.2");
/// See [`FCAL`].
pub const FCAH: Register = Register::new("FCAH", 0x002c, "10.2.2");
/// See [`FCAL`].
pub const FCT: Register = Register::new("FCT", 0x0030, "10.2.2");
/// Flow control: timer value to send.
pub const FCTTV: Register = Register::new("FCTTV", 0x0170, "10.2.2");

// PCIe registers (10.2).

/// PCIe control.
pub const GCR: Register = Register::new("GCR", 0x5b00, "10.2");
/// Reserved; software has to set it.
pub const GCR_RESERVED_SET: u32 = 1 << 22;

/// PCIe control 2.
pub const GCR2: Register = Register::new("GCR2", 0x5b64, "10.2.3.15");
/// Against an erratum, as in Linux's driver: completions that go astray, most of all with ASPM,
/// would end sending.
pub const GCR2_COMPLETIONS: u32 = 1 << 0;

// Interrupt registers (10.2.4).

/// Causes; writing ones clears them.
pub const ICR: Register = Register::new("ICR", 0x00c0, "10.2.4");
/// Throttling, in units of 256 ns; 0 is none.
pub const ITR: Register = Register::new("ITR", 0x00c4, "10.2.4");
/// Enables causes.
pub const IMS: Register = Register::new("IMS", 0x00d0, "10.2.4");
/// Disables causes.
pub const IMC: Register = Register::new("IMC", 0x00d8, "10.2.4");
/// Causes that are cleared when their MSI-X message leaves.
pub const EIAC: Register = Register::new("EIAC", 0x00dc, "10.2.4");
/// Vectors of causes in MSI-X mode.
pub const IVAR: Register = Register::new("IVAR", 0x00e4, "10.2.4");
/// Throttling of the first MSI-X vector.
pub const EITR: Register = Register::new("EITR", 0x00e8, "10.2.4");
// Bits of [`ICR`], [`IMS`] and [`IMC`].
/// The state of the link changed.
pub const CAUSE_LSC: u32 = 1 << 2;
/// A received frame was written back.
pub const CAUSE_RXT0: u32 = 1 << 7;
/// The same in MSI-X mode, of queue 0.
pub const CAUSE_RXQ0: u32 = 1 << 20;
/// In MSI-X mode: causes that are no queue's.
pub const CAUSE_OTHER: u32 = 1 << 24;
// Fields of [`IVAR`], each with a vector number in its low bits; here all have vector 0.
/// The field of receive queue 0 is valid.
pub const IVAR_RXQ0_VALID: u32 = 1 << 3;
/// The field of other causes is valid.
pub const IVAR_OTHER_VALID: u32 = 1 << 19;

// Receive registers (10.2.5).

/// Receive control.
pub const RCTL: Register = Register::new("RCTL", 0x0100, "10.2.5");
// Bits of [`RCTL`]. With none of BSIZE and BSEX set, buffers have 2048 bytes; without LPE, frames
// of more than 1522 bytes are discarded; without SBP, bad ones are.
/// Enable.
pub const RCTL_EN: u32 = 1 << 1;
/// Accept all unicast frames.
pub const RCTL_UPE: u32 = 1 << 3;
/// Accept all multicast frames.
pub const RCTL_MPE: u32 = 1 << 4;
/// Loopback of the MAC.
pub const RCTL_LBM_MAC: u32 = 1 << 6;
/// Accept broadcast frames.
pub const RCTL_BAM: u32 = 1 << 15;
/// Strip the checksum of the frame.
pub const RCTL_SECRC: u32 = 1 << 26;

/// Flow control: below this fill level of the packet buffer XON is sent; 0: none.
pub const FCRTL: Register = Register::new("FCRTL", 0x2160, "10.2.5");
/// Flow control: above this fill level XOFF is sent.
pub const FCRTH: Register = Register::new("FCRTH", 0x2168, "10.2.5");
/// Ring: address, low.
pub const RDBAL: Register = Register::new("RDBAL", 0x2800, "10.2.5");
/// Ring: address, high.
pub const RDBAH: Register = Register::new("RDBAH", 0x2804, "10.2.5");
/// Ring: bytes.
pub const RDLEN: Register = Register::new("RDLEN", 0x2808, "10.2.5");
/// Ring: the device's index.
pub const RDH: Register = Register::new("RDH", 0x2810, "10.2.5");
/// Ring: the driver's index.
pub const RDT: Register = Register::new("RDT", 0x2818, "10.2.5");
/// Delay of interrupts after a frame.
pub const RDTR: Register = Register::new("RDTR", 0x2820, "10.2.5");
/// Descriptor control.
pub const RXDCTL: Register = Register::new("RXDCTL", 0x2828, "10.2.5");
/// Largest delay of interrupts.
pub const RADV: Register = Register::new("RADV", 0x282c, "10.2.5");
/// Checksums of received packets.
pub const RXCSUM: Register = Register::new("RXCSUM", 0x5000, "10.2.5");
/// Filter control.
pub const RFCTL: Register = Register::new("RFCTL", 0x5008, "10.2.5");
/// Extended descriptors.
pub const RFCTL_EXSTEN: u32 = 1 << 15;
/// Multicast table: 128 registers.
pub const MTA: Register = Register::new("MTA", 0x5200, "10.2.5");
/// Registers of [`MTA`].
pub const MTA_COUNT: usize = 128;
/// Receive addresses, low; each is followed by its high part, [`RAH`].
pub const RAL: Register = Register::new("RAL", 0x5400, "10.2.5");
/// Receive addresses, high.
pub const RAH: Register = Register::new("RAH", 0x5404, "10.2.5");
/// Receive addresses.
pub const RA_COUNT: usize = 16;
/// Bytes from one receive address to the next.
pub const RA_STRIDE: usize = 8;
/// Address valid.
pub const RAH_AV: u32 = 1 << 31;

// Bits of [`RXDCTL`] and [`TXDCTL`].
/// Write descriptors back one by one.
pub const XDCTL_WTHRESH_1: u32 = 1 << 16;
/// Transmit: count descriptors for the threshold; software has to set it.
pub const XDCTL_COUNT_DESC: u32 = 1 << 22;
/// Thresholds are in descriptors, not in cache lines.
pub const XDCTL_GRAN: u32 = 1 << 24;

// Transmit registers (10.2.6).

/// Transmit control.
pub const TCTL: Register = Register::new("TCTL", 0x0400, "10.2.6");
/// Enable.
pub const TCTL_EN: u32 = 1 << 1;
/// Pad short packets.
pub const TCTL_PSP: u32 = 1 << 3;
/// Collision threshold, as section 4.6.6 says.
pub const TCTL_CT: u32 = 0x0f << 4;
/// Collision distance for full duplex, as section 4.6.6 says.
pub const TCTL_COLD_FULL_DUPLEX: u32 = 0x3f << 12;
/// Gaps between packets.
pub const TIPG: Register = Register::new("TIPG", 0x0410, "10.2.6");
/// Value of [`TIPG`], as section 4.6.6 says: IPGT 8, IPGR1 8, IPGR2 6.
pub const TIPG_VALUE: u32 = 8 | 8 << 10 | 6 << 20;
/// Ring: address, low.
pub const TDBAL: Register = Register::new("TDBAL", 0x3800, "10.2.6");
/// Ring: address, high.
pub const TDBAH: Register = Register::new("TDBAH", 0x3804, "10.2.6");
/// Ring: bytes.
pub const TDLEN: Register = Register::new("TDLEN", 0x3808, "10.2.6");
/// Ring: the device's index.
pub const TDH: Register = Register::new("TDH", 0x3810, "10.2.6");
/// Ring: the driver's index.
pub const TDT: Register = Register::new("TDT", 0x3818, "10.2.6");
/// Descriptor control.
pub const TXDCTL: Register = Register::new("TXDCTL", 0x3828, "10.2.6");

// Statistics (10.2.7): reading clears.

/// Checksum errors.
pub const CRCERRS: Register = Register::new("CRCERRS", 0x4000, "10.2.7");
/// Alignment errors.
pub const ALGNERRC: Register = Register::new("ALGNERRC", 0x4004, "10.2.7");
/// Symbol errors.
pub const RXERRC: Register = Register::new("RXERRC", 0x400c, "10.2.7");
/// Frames for which the packet buffer had no room.
pub const MPC: Register = Register::new("MPC", 0x4010, "10.2.7");
/// Length errors.
pub const RLEC: Register = Register::new("RLEC", 0x4040, "10.2.7");
/// Frames that were too long.
pub const ROC: Register = Register::new("ROC", 0x40ac, "10.2.7");
/// Good frames sent.
pub const GPTC: Register = Register::new("GPTC", 0x4080, "10.2.7");
