# What the QEMU of `cargo xtask lab linux` consists of besides processor and memory.
CONFIG_Q35=y
CONFIG_E1000E_PCI_EXPRESS=y
CONFIG_SERIAL_ISA=y
CONFIG_PCIE_PORT=y
CONFIG_ISAPC=n
