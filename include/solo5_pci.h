/*
 * PCIe devices and DMA memory for images in C and OCaml.
 *
 * This is the contract of Outboard's tenders, in the shape of Solo5's unikernel-facing API (solo5.h).
 * It is for those who write a binding. It documents what such a binding offers; this repository does
 * not contain one yet. The Rust side of the same contract is crates/abi/src/pci.rs.
 *
 * All addresses here are virtual addresses of the guest, and are the same on every host:
 *
 *     BAR i of the n-th PCI_BASIC device   2^39 + n * 2^34 + i * 2^30
 *     DMA memory                           2^40
 *
 * Never give one of these addresses to a device. A device needs an I/O address. For a pointer p into
 * the DMA memory it is dma_iova + (p - dma).
 */
#ifndef SOLO5_PCI_H
#define SOLO5_PCI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "solo5.h" /* solo5_result_t, solo5_handle_t */

#ifdef __cplusplus
extern "C" {
#endif

/* What the manifest says of a device, and where the guest finds its registers. */
struct solo5_pci_info {
    uint16_t vendor_id;     /* This device's PCI vendor. */
    uint16_t device_id;     /* This device's device ID. */
    uint8_t class_code;     /* This device's class code. */
    uint8_t subclass_code;  /* This device's subclass code. */
    uint8_t progif;         /* This device's programming interface. */
    bool bus_master_enable; /* This device is a bus master. */
    uint8_t *bar0;          /* This device's BAR0 or NULL. */
    size_t bar0_size;       /* This device's BAR0 size or 0. */
    uint8_t *bar1;
    size_t bar1_size;
    uint8_t *bar2;
    size_t bar2_size;
    uint8_t *bar3;
    size_t bar3_size;
    uint8_t *bar4;
    size_t bar4_size;
    uint8_t *bar5;
    size_t bar5_size;
};

/*
 * Gives the caller the PCI_BASIC device that the manifest calls (name), and describes it in (info).
 *
 * The registers are 32 bits wide and not cached. Reach them by volatile accesses.
 *
 * (handle) is the device's place in the set that solo5_yield() reports as ready. The device's first
 * message-signalled interrupt sets it there. An interrupt may be lost without notice, so look at the
 * device before you sleep.
 *
 * SOLO5_R_EINVAL: the manifest has no such device.
 */
solo5_result_t solo5_pci_acquire(const char *name, solo5_handle_t *handle,
        struct solo5_pci_info *info);

/*
 * Gives the caller the DMA memory of the image: its address, its size in bytes (the manifest's
 * dma_size, rounded up to 2 MiB), and the I/O address at which every bus master of the image finds its
 * first byte.
 *
 * The memory is zero at the start. Devices may write it at any time, so read a value once before you
 * decide on it.
 *
 * SOLO5_R_EINVAL: the manifest has no dma_size.
 */
solo5_result_t solo5_dma_acquire(uint8_t **dma, size_t *size, uint64_t *dma_iova);

#ifdef __cplusplus
}
#endif

#endif /* SOLO5_PCI_H */
