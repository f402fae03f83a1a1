//! Registers of the 82599 that this driver uses: offsets and bits, by section of the datasheet's
//! chapter 8.

use hw::Register;

/// Bytes of BAR 0 that the driver uses: up to [`GCR_EXT`].
pub const BAR_BYTES: usize = 0x20000;
/// What a read finds when the device is gone.
pub const ALL_ONES: u32 = u32::MAX;

// 8.2.3.1: general control.

/// 8.2.3.1.1 Device Control.
pub const CTRL: Register = Register::new("CTRL", 0x00000, "8.2.3.1.1");
/// PCIe master disable (5.2.5.3.2).
pub const CTRL_MASTER_DISABLE: u32 = 1 << 2;
/// Link reset.
pub const CTRL_LRST: u32 = 1 << 3;
/// Device reset; clears itself.
pub const CTRL_RST: u32 = 1 << 26;
/// 8.2.3.1.2 Device Status.
pub const STATUS: Register = Register::new("STATUS", 0x00008, "8.2.3.1.2");
/// Requests to memory are still under way or allowed.
pub const STATUS_MASTER_ENABLE: u32 = 1 << 19;
/// 8.2.3.1.3 Extended Device Control.
pub const CTRL_EXT: Register = Register::new("CTRL_EXT", 0x00018, "8.2.3.1.3");
/// No snoop disable: what the CPU has in its caches counts.
pub const CTRL_EXT_NS_DIS: u32 = 1 << 16;
/// Tells the firmware that a driver is there.
pub const CTRL_EXT_DRV_LOAD: u32 = 1 << 28;
/// 8.2.3.1.4 Extended SDP Control: the pins between the card and what is in its cage.
pub const ESDP: Register = Register::new("ESDP", 0x00020, "8.2.3.1.4");
/// Pin 3. On the boards with a cage it switches the module's laser off.
pub const ESDP_SDP3: u32 = 1 << 3;

// 8.2.3.2: EEPROM.

/// 8.2.3.2.1 EEPROM/Flash Control.
pub const EEC: Register = Register::new("EEC", 0x10010, "8.2.3.2.1");
/// The EEPROM has been read.
pub const EEC_AUTO_RD: u32 = 1 << 9;

// 8.2.3.3: flow control.

/// 8.2.3.3.2 Flow Control Transmit Timer Value, 4 of them.
pub const FCTTV: Register = Register::new("FCTTV", 0x03200, "8.2.3.3.2");
/// 8.2.3.3.3 Flow Control Receive Threshold Low, 8.
pub const FCRTL: Register = Register::new("FCRTL", 0x03220, "8.2.3.3.3");
/// 8.2.3.3.4 Flow Control Receive Threshold High, 8.
pub const FCRTH: Register = Register::new("FCRTH", 0x03260, "8.2.3.3.4");
/// 8.2.3.3.5 Flow Control Refresh Threshold.
pub const FCRTV: Register = Register::new("FCRTV", 0x032A0, "8.2.3.3.5");
/// 8.2.3.3.7 Flow Control Configuration.
pub const FCCFG: Register = Register::new("FCCFG", 0x03D00, "8.2.3.3.7");

// 8.2.3.4: PCIe.

/// 8.2.3.4.9 Software Semaphore.
pub const SWSM: Register = Register::new("SWSM", 0x10140, "8.2.3.4.9");
/// Between the drivers of the two ports; reading it as zero takes it.
pub const SWSM_SMBI: u32 = 1 << 0;
/// Between software and firmware; taken if it reads as one once written.
pub const SWSM_SWESMBI: u32 = 1 << 1;
/// 8.2.3.4.11 Software-Firmware Synchronization.
pub const SW_FW_SYNC: Register = Register::new("SW_FW_SYNC", 0x10160, "8.2.3.4.11");
/// Software has the MAC's registers.
pub const SW_FW_SYNC_SW_MAC: u32 = 1 << 3;
/// Firmware has them.
pub const SW_FW_SYNC_FW_MAC: u32 = 1 << 8;
/// 8.2.3.4.12 PCIe Control Extended.
pub const GCR_EXT: Register = Register::new("GCR_EXT", 0x11050, "8.2.3.4.12");
/// Empties the buffers of a function that cannot finish its requests.
pub const GCR_EXT_BUFFERS_CLEAR: u32 = 1 << 30;

// 8.2.3.5: interrupts.

/// 8.2.3.5.1 Extended Interrupt Cause; writing ones clears.
pub const EICR: Register = Register::new("EICR", 0x00800, "8.2.3.5.1");
/// 8.2.3.5.3 Extended Interrupt Mask Set/Read.
pub const EIMS: Register = Register::new("EIMS", 0x00880, "8.2.3.5.3");
/// 8.2.3.5.4 Extended Interrupt Mask Clear.
pub const EIMC: Register = Register::new("EIMC", 0x00888, "8.2.3.5.4");
/// All causes; bit 31 is reserved.
pub const EIMC_ALL: u32 = 0x7fff_ffff;
/// 8.2.3.5.5 Extended Interrupt Auto Clear.
pub const EIAC: Register = Register::new("EIAC", 0x00810, "8.2.3.5.5");
/// 8.2.3.5 Extended Interrupt Auto Mask.
pub const EIAM: Register = Register::new("EIAM", 0x00890, "8.2.3.5");
/// 8.2.3.5.9 Extended Interrupt Mask Clear, causes 0 to 63, 2.
pub const EIMC_EX: Register = Register::new("EIMC_EX", 0x00AB0, "8.2.3.5.9");
/// 8.2.3.5.12 Extended Interrupt Throttle: least time between interrupts, in units of 2.048 us,
/// from bit 3. Frames are coalesced for as long.
pub const EITR: Register = Register::new("EITR", 0x00820, "8.2.3.5.12");
/// 33 us: two frames of 16 KiB at 10 Gb/s.
pub const EITR_COALESCE: u32 = 16 << 3;
/// 8.2.3.5.16 Interrupt Vector Allocation: receive queue 0 in bits 7:0, transmit queue 0 in 15:8.
pub const IVAR: Register = Register::new("IVAR", 0x00900, "8.2.3.5.16");
/// Its vector (or bit of [`EICR`]) is 0, and valid.
pub const IVAR_RX0_TO_0: u32 = 1 << 7;
/// 8.2.3.5.17 Miscellaneous Interrupt Vector Allocation.
pub const IVAR_MISC: Register = Register::new("IVAR_MISC", 0x00A00, "8.2.3.5.17");
/// 8.2.3.5.18 General Purpose Interrupt Enable.
pub const GPIE: Register = Register::new("GPIE", 0x00898, "8.2.3.5.18");
/// Several messages (MSI-X).
pub const GPIE_MULTIPLE_MSIX: u32 = 1 << 4;
/// A message masks its cause, as [`EIAM`] says.
pub const GPIE_EIAME: u32 = 1 << 30;
/// An interrupt comes 8 us after it has ended coalescing, so that what it is for is in memory.
pub const GPIE_RSC_DELAY: u32 = 1 << 11;
/// The table of pending messages works.
pub const GPIE_PBA_SUPPORT: u32 = 1 << 31;
/// The cause that receive queue 0 is allocated to.
pub const CAUSE_RX: u32 = 1 << 0;

// 8.2.3.7: receive.

/// 8.2.3.7.1 Filter Control.
pub const FCTRL: Register = Register::new("FCTRL", 0x05080, "8.2.3.7.1");
/// Multicast promiscuous.
pub const FCTRL_MPE: u32 = 1 << 8;
/// Unicast promiscuous.
pub const FCTRL_UPE: u32 = 1 << 9;
/// Broadcasts.
pub const FCTRL_BAM: u32 = 1 << 10;
/// 8.2.3.7.2 VLAN Control: EtherType of tags, no filter.
pub const VLNCTRL: Register = Register::new("VLNCTRL", 0x05088, "8.2.3.7.2");
/// EtherType 0x8100.
pub const VLNCTRL_VET: u32 = 0x8100;
/// 8.2.3.7.3 Multicast Control; filter offset 0: bits 47:36 of the address.
pub const MCSTCTRL: Register = Register::new("MCSTCTRL", 0x05090, "8.2.3.7.3");
/// The multicast table decides.
pub const MCSTCTRL_MFE: u32 = 1 << 2;
/// 8.2.3.7.4 Packet Split Receive Type, of pool 0: which headers are looked for.
pub const PSRTYPE: Register = Register::new("PSRTYPE", 0x0EA00, "8.2.3.7.4");
/// TCP's.
pub const PSRTYPE_TCP: u32 = 1 << 4;
/// 8.2.3.7.5 Receive Checksum Control.
pub const RXCSUM: Register = Register::new("RXCSUM", 0x05000, "8.2.3.7.5");
/// 8.2.3.7.6 Receive Filter Control.
pub const RFCTL: Register = Register::new("RFCTL", 0x05008, "8.2.3.7.6");
/// Nothing is coalesced, in any queue.
pub const RFCTL_RSC_DIS: u32 = 1 << 5;
/// 8.2.3.7.7 Multicast Table Array, 128.
pub const MTA: Register = Register::new("MTA", 0x05200, "8.2.3.7.7");
/// Addresses of stations that the device tells apart, its own included.
pub const ADDRESSES: usize = 128;
/// 8.2.3.7.8 Receive Address Low, 128, 8 bytes apart.
pub const RAL: Register = Register::new("RAL", 0x0A200, "8.2.3.7.8");
/// 8.2.3.7.9 Receive Address High, 128, 8 bytes apart.
pub const RAH: Register = Register::new("RAH", 0x0A204, "8.2.3.7.9");
/// The address is valid.
pub const RAH_AV: u32 = 1 << 31;
/// 8.2.3.7.10 MAC Pool Select Array, 256.
pub const MPSAR: Register = Register::new("MPSAR", 0x0A600, "8.2.3.7.10");
/// 8.2.3.7.11 VLAN Filter Table Array, 128.
pub const VFTA: Register = Register::new("VFTA", 0x0A000, "8.2.3.7.11");
/// 8.2.3.7.12 Multiple Receive Queues Command.
pub const MRQC: Register = Register::new("MRQC", 0x0EC80, "8.2.3.7.12");
/// 8.2.3.7.19 Five Tuple Queue Filter, 128.
pub const FTQF: Register = Register::new("FTQF", 0x0E600, "8.2.3.7.19");
/// 8.2.3.7.21 EType Queue Filter, 8.
pub const ETQF: Register = Register::new("ETQF", 0x05128, "8.2.3.7.21");
/// 8.2.3.27.17 PF Unicast Table Array, 128.
pub const PFUTA: Register = Register::new("PFUTA", 0x0F400, "8.2.3.27.17");
/// 8.2.3.27.15 PF VM VLAN Pool Filter, 64.
pub const PFVLVF: Register = Register::new("PFVLVF", 0x0F100, "8.2.3.27.15");
/// 8.2.3.27.16 PF VM VLAN Pool Filter Bitmap, 128.
pub const PFVLVFB: Register = Register::new("PFVLVFB", 0x0F200, "8.2.3.27.16");

// 8.2.3.8: receive DMA, queue 0.

/// 8.2.3.8.1 Receive Descriptor Base Address Low.
pub const RDBAL: Register = Register::new("RDBAL", 0x01000, "8.2.3.8.1");
/// 8.2.3.8.2 Receive Descriptor Base Address High.
pub const RDBAH: Register = Register::new("RDBAH", 0x01004, "8.2.3.8.2");
/// 8.2.3.8.3 Receive Descriptor Length, in bytes.
pub const RDLEN: Register = Register::new("RDLEN", 0x01008, "8.2.3.8.3");
/// 8.2.3.8.4 Receive Descriptor Head.
pub const RDH: Register = Register::new("RDH", 0x01010, "8.2.3.8.4");
/// 8.2.3.8.5 Receive Descriptor Tail.
pub const RDT: Register = Register::new("RDT", 0x01018, "8.2.3.8.5");
/// 8.2.3.8.6 Receive Descriptor Control.
pub const RXDCTL: Register = Register::new("RXDCTL", 0x01028, "8.2.3.8.6");
/// The queue works.
pub const RXDCTL_ENABLE: u32 = 1 << 25;
/// VLAN tags are taken off.
pub const RXDCTL_VME: u32 = 1 << 30;
/// 8.2.3.8.7 Split Receive Control: bytes of a buffer, in units of 1024, from bit 0.
pub const SRRCTL: Register = Register::new("SRRCTL", 0x01014, "8.2.3.8.7");
/// Unit of the buffer's size.
pub const SRRCTL_BUFFER_UNIT: usize = 1024;
/// Largest buffer that can be said.
pub const SRRCTL_BUFFER_BYTES_MAX: usize = 16 * SRRCTL_BUFFER_UNIT;
/// Bytes of a header buffer, in units of 64, from bit 8: its default of 256. There are no such
/// buffers here, but what coalesces wants to see at least 128.
pub const SRRCTL_HEADER_DEFAULT: u32 = 4 << 8;
/// Advanced descriptors with one buffer.
pub const SRRCTL_DESCTYPE_ADVANCED: u32 = 1 << 25;
/// What there is no descriptor for is dropped.
pub const SRRCTL_DROP_EN: u32 = 1 << 28;
/// 8.2.3.8.8 Receive DMA Control.
pub const RDRXCTL: Register = Register::new("RDRXCTL", 0x02F00, "8.2.3.8.8");
/// The frame's checksum is not passed on.
pub const RDRXCTL_CRC_STRIP: u32 = 1 << 1;
/// DMA is ready.
pub const RDRXCTL_DMA_DONE: u32 = 1 << 3;
/// Has to be set to zero.
pub const RDRXCTL_RSC_FIRST_SIZE: u32 = 0x1f << 17;
/// RSCACKC, an acknowledgement that changes ends a coalesced frame, and a reserved bit: both have
/// to be set.
pub const RDRXCTL_SET: u32 = 3 << 25;
/// 8.2.3.8.9 Receive Packet Buffer Size, 8: in units of 1024 bytes from bit 10.
pub const RXPBSIZE: Register = Register::new("RXPBSIZE", 0x03C00, "8.2.3.8.9");
/// All of its 512 KiB.
pub const RXPBSIZE_ALL: u32 = 0x200 << 10;
/// 8.2.3.8.10 Receive Control.
pub const RXCTRL: Register = Register::new("RXCTRL", 0x03000, "8.2.3.8.10");
/// Receive enable.
pub const RXCTRL_RXEN: u32 = 1 << 0;
/// 8.2.3.8.12 RSC Data Buffer Control.
pub const RSCDBU: Register = Register::new("RSCDBU", 0x03028, "8.2.3.8.12");
/// Frames without payload are left alone.
pub const RSCDBU_ACK_DIS: u32 = 1 << 7;
/// 8.2.3.8.13 RSC Control; most descriptors of a coalesced frame from bit 2, 0 for 1.
pub const RSCCTL: Register = Register::new("RSCCTL", 0x0102C, "8.2.3.8.13");
/// The queue's frames are coalesced.
pub const RSCCTL_ENABLE: u32 = 1 << 0;

// 8.2.3.9: transmit, queue 0.

/// 8.2.3.9.1 DMA Tx TCP Max Allow Size Requests.
pub const DTXMXSZRQ: Register = Register::new("DTXMXSZRQ", 0x08100, "8.2.3.9.1");
/// 1 MiB.
pub const DTXMXSZRQ_MAX: u32 = 0xfff;
/// 8.2.3.9.2 DMA Tx Control.
pub const DMATXCTL: Register = Register::new("DMATXCTL", 0x04A80, "8.2.3.9.2");
/// Transmit enable.
pub const DMATXCTL_TE: u32 = 1 << 0;
/// 8.2.3.9.3 DMA Tx TCP Flags Control Low: which flags the first and the middle segments keep.
pub const DTXTCPFLGL: Register = Register::new("DTXTCPFLGL", 0x04A88, "8.2.3.9.3");
/// The first loses FIN and PSH; the others CWR too.
pub const DTXTCPFLGL_MASKS: u32 = 0x0f76_0ff6;
/// 8.2.3.9.4 DMA Tx TCP Flags Control High: which the last one keeps.
pub const DTXTCPFLGH: Register = Register::new("DTXTCPFLGH", 0x04A8C, "8.2.3.9.4");
/// All but CWR.
pub const DTXTCPFLGH_MASK: u32 = 0x0000_0f7f;
/// 8.2.3.9.5 Transmit Descriptor Base Address Low.
pub const TDBAL: Register = Register::new("TDBAL", 0x06000, "8.2.3.9.5");
/// 8.2.3.9.6 Transmit Descriptor Base Address High.
pub const TDBAH: Register = Register::new("TDBAH", 0x06004, "8.2.3.9.6");
/// 8.2.3.9.7 Transmit Descriptor Length, in bytes.
pub const TDLEN: Register = Register::new("TDLEN", 0x06008, "8.2.3.9.7");
/// 8.2.3.9.8 Transmit Descriptor Head.
pub const TDH: Register = Register::new("TDH", 0x06010, "8.2.3.9.8");
/// 8.2.3.9.9 Transmit Descriptor Tail.
pub const TDT: Register = Register::new("TDT", 0x06018, "8.2.3.9.9");
/// 8.2.3.9.10 Transmit Descriptor Control.
pub const TXDCTL: Register = Register::new("TXDCTL", 0x06028, "8.2.3.9.10");
/// Descriptors are fetched when 32 or fewer are left and 1 or more is in memory, and written back
/// one by one, those that ask for a report (7.2.3.5.1).
pub const TXDCTL_THRESHOLDS: u32 = 32 | 1 << 8;
/// The queue works.
pub const TXDCTL_ENABLE: u32 = 1 << 25;
/// 8.2.3.9.13 Transmit Packet Buffer Size, 8: in units of 1024 bytes from bit 10.
pub const TXPBSIZE: Register = Register::new("TXPBSIZE", 0x0CC00, "8.2.3.9.13");
/// All of its 160 KiB.
pub const TXPBSIZE_ALL: u32 = 0xa0 << 10;
/// 8.2.3.9.15 Multiple Transmit Queues Command.
pub const MTQC: Register = Register::new("MTQC", 0x08120, "8.2.3.9.15");
/// 8.2.3.9.16 Tx Packet Buffer Threshold, 8.
pub const TXPBTHRESH: Register = Register::new("TXPBTHRESH", 0x04950, "8.2.3.9.16");
/// For all of the packet buffer, as 4.6.11.3.4 has it.
pub const TXPBTHRESH_ALL: u32 = 0xa0;

// 8.2.3.10 to 8.2.3.12: arbiter, DCA, security.

/// 8.2.3.10.2 DCB Transmit Descriptor Plane Control and Status.
pub const RTTDCS: Register = Register::new("RTTDCS", 0x04900, "8.2.3.10.2");
/// The arbiter is off.
pub const RTTDCS_ARBDIS: u32 = 1 << 6;
/// 8.2.3.10.4 DCB Receive User Priority to Traffic Class.
pub const RTRUP2TC: Register = Register::new("RTRUP2TC", 0x03020, "8.2.3.10.4");
/// 8.2.3.10.13 DCB Transmit Descriptor Plane Queue Select: which queue [`RTTBCNRC`] is of.
pub const RTTDQSEL: Register = Register::new("RTTDQSEL", 0x04904, "8.2.3.10.13");
/// 8.2.3.10 DCB Transmit Rate-Scheduler: how much slower than the link a queue is; 0 for not.
pub const RTTBCNRC: Register = Register::new("RTTBCNRC", 0x04984, "8.2.3.10");
/// 8.2.3.11.1 Rx DCA Control.
pub const DCA_RXCTRL: Register = Register::new("DCA_RXCTRL", 0x0100C, "8.2.3.11.1");
/// Has to be cleared.
pub const DCA_RXCTRL_CLEAR: u32 = 1 << 12;
/// 8.2.3.12.5 Security Rx Control.
pub const SECRXCTRL: Register = Register::new("SECRXCTRL", 0x08D00, "8.2.3.12.5");
/// Halts the receive path.
pub const SECRXCTRL_RX_DIS: u32 = 1 << 1;
/// 8.2.3.12.6 Security Rx Status.
pub const SECRXSTAT: Register = Register::new("SECRXSTAT", 0x08D04, "8.2.3.12.6");
/// The receive path is empty.
pub const SECRXSTAT_READY: u32 = 1 << 0;

// 8.2.3.22: MAC.

/// 8.2.3.22.8 MAC Core Control 0.
pub const HLREG0: Register = Register::new("HLREG0", 0x04240, "8.2.3.22.8");
/// A frame's checksum is appended.
pub const HLREG0_TXCRCEN: u32 = 1 << 0;
/// A frame's checksum is stripped; has to agree with [`RDRXCTL_CRC_STRIP`].
pub const HLREG0_RXCRCSTRP: u32 = 1 << 1;
/// Frames of up to [`MAXFRS`] bytes.
pub const HLREG0_JUMBOEN: u32 = 1 << 2;
/// Short frames are padded.
pub const HLREG0_TXPADEN: u32 = 1 << 10;
/// Loopback.
pub const HLREG0_LPBK: u32 = 1 << 15;
/// 8.2.3.22.13 Max Frame Size: in bytes with the checksum, from bit 16; a tag counts not.
pub const MAXFRS: Register = Register::new("MAXFRS", 0x04268, "8.2.3.22.13");
/// 8.2.3.22.19 Auto-Negotiation Control.
pub const AUTOC: Register = Register::new("AUTOC", 0x042A0, "8.2.3.22.19");
/// Forces the link up, whatever is plugged in.
pub const AUTOC_FLU: u32 = 1 << 0;
/// Applies the settings and negotiates anew; clears itself.
pub const AUTOC_RESTART_AN: u32 = 1 << 12;
/// 8.2.3.22.20 Link Status.
pub const LINKS: Register = Register::new("LINKS", 0x042A4, "8.2.3.22.20");
/// The link is up.
pub const LINKS_UP: u32 = 1 << 30;
/// Speed: 1 is 100 Mb/s, 2 is 1 Gb/s, 3 is 10 Gb/s.
pub const LINKS_SPEED_SHIFT: u32 = 28;
/// 8.2.3.22.34 MAC Flow Control.
pub const MFLCN: Register = Register::new("MFLCN", 0x04294, "8.2.3.22.34");
/// Pause frames are not passed on.
pub const MFLCN_DPF: u32 = 1 << 1;

// 8.2.3.23: statistics. All of them are cleared by being read.

/// CRC Error Count.
pub const CRCERRS: Register = Register::new("CRCERRS", 0x04000, "8.2.3.23");
/// Illegal Byte Error Count.
pub const ILLERRC: Register = Register::new("ILLERRC", 0x04004, "8.2.3.23");
/// Error Byte Count.
pub const ERRBC: Register = Register::new("ERRBC", 0x04008, "8.2.3.23");
/// Rx Missed Packets Count.
pub const RXMPC: Register = Register::new("RXMPC", 0x03FA0, "8.2.3.23");
/// Receive Length Error Count.
pub const RLEC: Register = Register::new("RLEC", 0x04040, "8.2.3.23");
/// Good Packets Received Count.
pub const GPRC: Register = Register::new("GPRC", 0x04074, "8.2.3.23");
/// Good Octets Received Count, low; reading the high half clears both.
pub const GORCL: Register = Register::new("GORCL", 0x04088, "8.2.3.23");
/// Its 4 high bits.
pub const GORCH: Register = Register::new("GORCH", 0x0408C, "8.2.3.23");
/// Good Packets Transmitted Count.
pub const GPTC: Register = Register::new("GPTC", 0x04080, "8.2.3.23");
/// Good Octets Transmitted Count, low; reading the high half clears both.
pub const GOTCL: Register = Register::new("GOTCL", 0x04090, "8.2.3.23");
/// Its 4 high bits.
pub const GOTCH: Register = Register::new("GOTCH", 0x04094, "8.2.3.23");
/// Receive Undersize Count.
pub const RUC: Register = Register::new("RUC", 0x040A4, "8.2.3.23");
/// Receive Fragment Count.
pub const RFC: Register = Register::new("RFC", 0x040A8, "8.2.3.23");
/// Receive Oversize Count.
pub const ROC: Register = Register::new("ROC", 0x040AC, "8.2.3.23");
/// Receive Jabber Count.
pub const RJC: Register = Register::new("RJC", 0x040B0, "8.2.3.23");
/// Queue Packets Received Drop Count, queue 0.
pub const QPRDC: Register = Register::new("QPRDC", 0x01430, "8.2.3.23");
