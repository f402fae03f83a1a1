# What the QEMU of `cargo xtask lab linux` and of `cargo xtask bench matrix` consists of besides
# processor and memory.
CONFIG_Q35=y
CONFIG_E1000E_PCI_EXPRESS=y
CONFIG_SERIAL_ISA=y
CONFIG_PCIE_PORT=y
CONFIG_ISA_DEBUG=y
CONFIG_VTD=y
CONFIG_ISAPC=n
