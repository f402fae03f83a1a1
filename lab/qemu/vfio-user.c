/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A PCI device that another process is: the client of vfio-user 0.1.
 *
 *     -object memory-backend-memfd,id=m,size=512M,share=on,seal=on
 *     -machine q35,memory-backend=m -device vfio-user,socket=PATH
 *
 * The guest's memory is lent to the device by its descriptors. BARs are read and written by
 * messages, each of which waits for its answer; registers that the device has in a page of
 * doorbells are written there instead. The device signals MSI-X vectors and its interrupt pin
 * through eventfds. Configuration space is QEMU's own, but for the command register, which the
 * device follows, and vendors' capabilities, which are the device's. MSI, migration and guests with
 * an IOMMU are left out.
 *
 * The device is not trusted: what it sends is checked, and it cannot keep QEMU waiting for longer
 * than PATIENCE_SECONDS. If it breaks the protocol or goes away, that is reported once. From then
 * on it is as if the card were pulled out: registers read all ones.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/atomic.h"
#include "qemu/cutils.h"
#include "qemu/error-report.h"
#include "qemu/event_notifier.h"
#include "qemu/host-utils.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/sockets.h"
#include "exec/address-spaces.h"
#include "exec/memory.h"
#include "hw/pci/msix.h"
#include "hw/pci/pci.h"
#include "hw/qdev-properties.h"
#include "qom/object.h"
#include <sys/socket.h>
#include <sys/un.h>

#define TYPE_VFIO_USER "vfio-user"
OBJECT_DECLARE_SIMPLE_TYPE(VfioUser, VFIO_USER)

#define PATIENCE_SECONDS 10
#define PAYLOAD_MAX 4096
/* Descriptors in one message: servers that say nothing else take at least so many. */
#define DESCRIPTORS_MAX 8
#define VECTORS_MAX 64
#define REGIONS_MAX 32
#define CAPABILITIES_MAX 48
#define DOORBELL_PAGE 4096
#define DOORBELLS_MAX ((DOORBELL_PAGE / 8 - 2) / 2)

enum {
    VERSION = 1,
    DMA_MAP = 2,
    DMA_UNMAP = 3,
    GET_INFO = 4,
    GET_REGION_INFO = 5,
    GET_IRQ_INFO = 7,
    SET_IRQS = 8,
    REGION_READ = 9,
    REGION_WRITE = 10,
    RESET = 13,
};

enum { FLAG_REPLY = 1, FLAG_NO_REPLY = 1 << 4, FLAG_ERROR = 1 << 5, FLAG_TYPE = 0xf };
enum { REGION_CONFIG = 7, REGIONS_OF_PCI = 9, IRQ_INTX = 0, IRQ_MSIX = 2 };
enum { INFO_MMAP = 1 << 2, INFO_CAPABILITIES = 1 << 3, CAPABILITY_TYPE = 2 };
enum { DMA_READ = 1 << 0, DMA_WRITE = 1 << 1 };
enum { IRQ_NO_DATA = 1 << 0, IRQ_EVENTFD = 1 << 2, IRQ_UNMASK = 1 << 4, IRQ_TRIGGER = 1 << 5 };
enum { IRQ_CAN_EVENTFD = 1 << 0, IRQ_CAN_MASK = 1 << 1 };

/* The page of doorbells is Outboard's addition to the protocol: crates/abi/src/doorbell.rs. */
#define DOORBELL_KIND (1u << 31 | 0xffff)
#define DOORBELL_SUBTYPE 0x4244424fu /* "OBDB" */
enum { MAGIC_WORD, ASLEEP_WORD, FIRST_WORD };

/* All numbers of the protocol are little-endian, and so is the host: see realize(). */
typedef struct QEMU_PACKED {
    uint16_t id, command;
    uint32_t size, flags, error;
} Header;

typedef struct QEMU_PACKED {
    uint64_t offset;
    uint32_t region, count;
} Access;

typedef struct QEMU_PACKED {
    uint32_t argsz, flags, index, capability;
    uint64_t size, offset;
} RegionInfo;

typedef struct QEMU_PACKED {
    RegionInfo info;
    uint16_t id, version;
    uint32_t next, kind, subtype;
} TypedRegionInfo;

typedef struct QEMU_PACKED {
    uint32_t argsz, flags, index, count;
} IrqInfo;

typedef struct QEMU_PACKED {
    uint32_t argsz, flags, index, start, count;
} IrqSet;

typedef struct QEMU_PACKED {
    uint32_t argsz, flags;
    uint64_t offset, address, size;
} DmaMap;

typedef struct QEMU_PACKED {
    uint32_t argsz, flags;
    uint64_t address, size;
} DmaUnmap;

typedef struct {
    VfioUser *device;
    int number;
    uint64_t size;
    MemoryRegion memory;
} Bar;

typedef struct {
    VfioUser *device;
    int number;
    EventNotifier event;
} Vector;

struct VfioUser {
    PCIDevice parent;
    char *path;
    /* The connection; -1 once the device is dead. */
    int socket;
    uint16_t id;
    Bar bars[PCI_NUM_REGIONS - 1];
    Vector vectors[VECTORS_MAX];
    unsigned vector_count;
    /* The interrupt pin, if there is one: its event, and whether it is asserted in the guest. */
    EventNotifier pin;
    bool has_pin, pin_asserted;
    /* Bytes of configuration space that are the device's. */
    bool vendors[PCI_CONFIG_SPACE_SIZE];
    MemoryListener listener;
    bool listens;
    /* Mapped page, or NULL; offsets are read once, for the device could change them later. */
    uint64_t *doorbells;
    unsigned doorbell_count;
    uint64_t doorbell_offsets[DOORBELLS_MAX];
};

/* Every error after which the two sides no longer agree on what was said ends here. */
static void G_GNUC_PRINTF(2, 3) die(VfioUser *v, const char *format, ...)
{
    g_autofree char *why = NULL;
    va_list arguments;

    if (v->socket < 0) {
        return;
    }
    va_start(arguments, format);
    why = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    error_report("vfio-user: %s: %s: the device is dead", v->path, why);
    close(v->socket);
    v->socket = -1;
}

static bool send_message(VfioUser *v, const Header *header, const void *payload, size_t bytes,
                         const int *descriptors, unsigned count)
{
    struct iovec parts[2] = {
        { (void *)header, sizeof(*header) }, { (void *)payload, bytes },
    };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
    } control = {};
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
    size_t left = sizeof(*header) + bytes;

    assert(count <= DESCRIPTORS_MAX);
    if (count > 0) {
        struct cmsghdr *carried;

        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        carried = CMSG_FIRSTHDR(&message);
        carried->cmsg_level = SOL_SOCKET;
        carried->cmsg_type = SCM_RIGHTS;
        carried->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(carried), descriptors, count * sizeof(int));
    }
    for (;;) {
        ssize_t sent = sendmsg(v->socket, &message, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent <= 0) {
            die(v, "cannot send: %s", strerror(errno));
            return false;
        }
        left -= sent;
        if (left == 0) {
            return true;
        }
        /* Descriptors go with the first bytes. */
        message.msg_control = NULL;
        message.msg_controllen = 0;
        for (; (size_t)sent >= message.msg_iov->iov_len; message.msg_iov++) {
            sent -= message.msg_iov->iov_len;
            message.msg_iovlen--;
        }
        message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + sent;
        message.msg_iov->iov_len -= sent;
    }
}

/*
 * Reads exactly so many bytes. A descriptor that comes with them is kept in *descriptor, if the
 * caller waits for one and has none yet; all others are closed.
 */
static bool receive_bytes(VfioUser *v, void *bytes, size_t count, int *descriptor)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
    } control;

    while (count > 0) {
        struct iovec part = { bytes, count };
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1,
            .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes),
        };
        ssize_t received = recvmsg(v->socket, &message, MSG_CMSG_CLOEXEC);
        struct cmsghdr *carried;

        if (received < 0 && errno == EINTR) {
            continue;
        }
        if (received <= 0) {
            die(v, "%s", received == 0 ? "it has closed the connection" : strerror(errno));
            return false;
        }
        for (carried = CMSG_FIRSTHDR(&message); carried;
             carried = CMSG_NXTHDR(&message, carried)) {
            size_t length = carried->cmsg_len - CMSG_LEN(0), n;

            if (carried->cmsg_level != SOL_SOCKET || carried->cmsg_type != SCM_RIGHTS) {
                continue;
            }
            for (n = 0; n < length / sizeof(int); n++) {
                int one;

                memcpy(&one, CMSG_DATA(carried) + n * sizeof(int), sizeof(int));
                if (descriptor && *descriptor < 0) {
                    *descriptor = one;
                } else {
                    close(one);
                }
            }
        }
        bytes = (char *)bytes + received;
        count -= received;
    }
    return true;
}

/*
 * Sends a command and waits for its reply, which must have at least `least` bytes behind its
 * header; what is beyond `room` is dropped. Returns how many bytes are in `reply`, or -errno: the
 * device's own, or EPIPE of one that is dead.
 */
static int command(VfioUser *v, uint16_t number, const void *payload, size_t bytes,
                   const int *descriptors, unsigned count,
                   void *reply, size_t least, size_t room, int *descriptor)
{
    Header header = {
        .id = ++v->id, .command = number, .size = sizeof(Header) + bytes,
    };
    uint8_t buffer[sizeof(Access) + PAYLOAD_MAX];
    size_t length;

    if (v->socket < 0 || !send_message(v, &header, payload, bytes, descriptors, count) ||
        !receive_bytes(v, &header, sizeof(header), descriptor)) {
        return -EPIPE;
    }
    if (header.id != v->id || header.command != number ||
        (header.flags & FLAG_TYPE) != FLAG_REPLY) {
        die(v, "command %u got no reply but another message", number);
        return -EPIPE;
    }
    if (header.size < sizeof(header) || header.size - sizeof(header) > sizeof(buffer)) {
        die(v, "its reply to command %u has %" PRIu32 " bytes", number, header.size);
        return -EPIPE;
    }
    length = header.size - sizeof(header);
    if (!receive_bytes(v, buffer, length, descriptor)) {
        return -EPIPE;
    }
    if (header.flags & FLAG_ERROR) {
        return header.error > 0 && header.error < 4096 ? -(int)header.error : -EPROTO;
    }
    if (length < least) {
        die(v, "its reply to command %u has %zu bytes and not %zu", number, length, least);
        return -EPIPE;
    }
    length = MIN(length, room);
    if (length > 0) {
        memcpy(reply, buffer, length);
    }
    return length;
}

static void refused(VfioUser *v, const char *what, int error)
{
    die(v, "it refuses %s: %s", what, strerror(-error));
}

static bool region_read(VfioUser *v, uint32_t region, uint64_t offset, void *data, uint32_t count)
{
    Access access = { offset, region, count };
    uint8_t reply[sizeof(Access) + PAYLOAD_MAX];
    int got;

    assert(count <= PAYLOAD_MAX);
    got = command(v, REGION_READ, &access, sizeof(access), NULL, 0,
                  reply, sizeof(access) + count, sizeof(reply), NULL);
    if (got < 0) {
        refused(v, "to be read", got);
        memset(data, 0xff, count);
        return false;
    }
    memcpy(data, reply + sizeof(access), count);
    return true;
}

static void region_write(VfioUser *v, uint32_t region, uint64_t offset,
                         const void *data, uint32_t count)
{
    struct QEMU_PACKED {
        Access access;
        uint8_t data[8];
    } message = { .access = { offset, region, count } };
    int got;

    assert(count <= sizeof(message.data));
    memcpy(message.data, data, count);
    got = command(v, REGION_WRITE, &message, sizeof(Access) + count, NULL, 0, NULL, 0, 0, NULL);
    if (got < 0) {
        refused(v, "to be written", got);
    }
}

/* Wakes up a device that does not look at its page: a read that wants no answer. */
static void wake(VfioUser *v)
{
    Access access = { 0, REGION_CONFIG, 4 };
    Header header = {
        .command = REGION_READ, .size = sizeof(header) + sizeof(access), .flags = FLAG_NO_REPLY,
    };

    if (v->socket >= 0) {
        send_message(v, &header, &access, sizeof(access), NULL, 0);
    }
}

/* Writes a register that is a doorbell; whether it is one. */
static bool ring(VfioUser *v, hwaddr offset, uint64_t value)
{
    unsigned n;

    for (n = 0; n < v->doorbell_count; n++) {
        if (v->doorbell_offsets[n] == offset) {
            /* What the guest wrote to its memory comes first. */
            smp_wmb();
            qatomic_set(&v->doorbells[FIRST_WORD + 2 * n + 1], value);
            /* Either this looks behind the device's last look, or that one sees the value. */
            smp_mb();
            if (qatomic_read(&v->doorbells[ASLEEP_WORD])) {
                wake(v);
            }
            return true;
        }
    }
    return false;
}

/*
 * The device masks its pin when it signals it, and signals it again in the middle of UNMASK if the
 * pin is still asserted then. So the level is known after each answer, and the guest sees no edge
 * that there was not.
 */
static void look_at_pin(VfioUser *v)
{
    IrqSet set = {
        .argsz = sizeof(set), .flags = IRQ_NO_DATA | IRQ_UNMASK, .index = IRQ_INTX, .count = 1,
    };
    int got;

    if (v->has_pin && event_notifier_test_and_clear(&v->pin)) {
        v->pin_asserted = true;
    }
    if (!v->pin_asserted) {
        return;
    }
    got = command(v, SET_IRQS, &set, sizeof(set), NULL, 0, NULL, 0, 0, NULL);
    if (got < 0) {
        refused(v, "to unmask its pin", got);
    }
    v->pin_asserted = event_notifier_test_and_clear(&v->pin);
    pci_set_irq(&v->parent, v->pin_asserted);
}

static void on_pin(void *opaque)
{
    VfioUser *v = opaque;

    if (event_notifier_test_and_clear(&v->pin)) {
        v->pin_asserted = true;
        pci_set_irq(&v->parent, 1);
    }
}

static uint64_t bar_read(void *opaque, hwaddr offset, unsigned size)
{
    Bar *bar = opaque;
    uint64_t value = 0;

    region_read(bar->device, bar->number, offset, &value, size);
    look_at_pin(bar->device);
    return value;
}

static void bar_write(void *opaque, hwaddr offset, uint64_t value, unsigned size)
{
    Bar *bar = opaque;

    if (bar->number != 0 || size != 4 || !ring(bar->device, offset, value)) {
        region_write(bar->device, bar->number, offset, &value, size);
    }
    look_at_pin(bar->device);
}

static const MemoryRegionOps bar_ops = {
    .read = bar_read,
    .write = bar_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
    .impl = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
};

/* Whether the device can be lent this: memory with a descriptor, in whole pages. */
static bool lendable(MemoryRegionSection *section, DmaMap *map)
{
    if (!memory_region_is_ram(section->mr) || memory_region_is_ram_device(section->mr) ||
        memory_region_get_fd(section->mr) < 0) {
        return false;
    }
    *map = (DmaMap) {
        .argsz = sizeof(*map),
        .flags = DMA_READ | (section->readonly ? 0 : DMA_WRITE),
        .offset = section->offset_within_region,
        .address = section->offset_within_address_space,
        .size = int128_get64(section->size),
    };
    return QEMU_IS_ALIGNED(map->offset | map->address | map->size, 4096);
}

static void lend(MemoryListener *listener, MemoryRegionSection *section)
{
    VfioUser *v = container_of(listener, VfioUser, listener);
    int descriptor, got;
    DmaMap map;

    if (v->socket < 0 || !lendable(section, &map)) {
        return;
    }
    descriptor = memory_region_get_fd(section->mr);
    got = command(v, DMA_MAP, &map, sizeof(map), &descriptor, 1, NULL, 0, 0, NULL);
    if (got < 0) {
        refused(v, "memory", got);
    }
}

static void take_back(MemoryListener *listener, MemoryRegionSection *section)
{
    VfioUser *v = container_of(listener, VfioUser, listener);
    DmaUnmap unmap = { .argsz = sizeof(unmap) };
    DmaMap map;
    int got;

    if (v->socket < 0 || !lendable(section, &map)) {
        return;
    }
    unmap.address = map.address;
    unmap.size = map.size;
    got = command(v, DMA_UNMAP, &unmap, sizeof(unmap), NULL, 0, NULL, 0, 0, NULL);
    if (got < 0) {
        refused(v, "to give memory back", got);
    }
}

/* Masks are QEMU's: a vector that is masked stays pending in the guest's table. */
static void on_event(void *opaque)
{
    Vector *vector = opaque;

    if (event_notifier_test_and_clear(&vector->event)) {
        msix_notify(&vector->device->parent, vector->number);
    }
}

/* Whether all of an access is of bytes that are the device's. */
static bool is_vendors(const VfioUser *v, uint32_t address, int bytes)
{
    int n;

    for (n = 0; n < bytes; n++) {
        if (address + n >= ARRAY_SIZE(v->vendors) || !v->vendors[address + n]) {
            return false;
        }
    }
    return true;
}

static uint32_t config_read(PCIDevice *parent, uint32_t address, int bytes)
{
    VfioUser *v = VFIO_USER(parent);
    uint32_t value = 0;

    if (!is_vendors(v, address, bytes)) {
        return pci_default_read_config(parent, address, bytes);
    }
    region_read(v, REGION_CONFIG, address, &value, bytes);
    look_at_pin(v);
    return value;
}

static void config_write(PCIDevice *parent, uint32_t address, uint32_t value, int bytes)
{
    VfioUser *v = VFIO_USER(parent);

    if (is_vendors(v, address, bytes)) {
        region_write(v, REGION_CONFIG, address, &value, bytes);
        look_at_pin(v);
        return;
    }
    pci_default_write_config(parent, address, value, bytes);
    if (ranges_overlap(address, bytes, PCI_COMMAND, 2)) {
        uint16_t set = pci_get_word(parent->config + PCI_COMMAND);

        region_write(v, REGION_CONFIG, PCI_COMMAND, &set, sizeof(set));
    }
}

static bool connect_to(VfioUser *v, Error **errp)
{
    static const char capabilities[] = "\0\0\1\0"
        "{\"capabilities\":{\"max_msg_fds\":8,\"max_data_xfer_size\":4096}}";
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct timeval patience = { .tv_sec = PATIENCE_SECONDS };
    uint16_t version[2];
    int got;

    if (!v->path || strlen(v->path) >= sizeof(address.sun_path)) {
        error_setg(errp, "vfio-user: socket= must name a socket, in less than %zu bytes",
                   sizeof(address.sun_path));
        return false;
    }
    pstrcpy(address.sun_path, sizeof(address.sun_path), v->path);
    v->socket = qemu_socket(AF_UNIX, SOCK_STREAM, 0);
    if (v->socket < 0 || connect(v->socket, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        setsockopt(v->socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
        setsockopt(v->socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0) {
        error_setg_errno(errp, errno, "vfio-user: %s", v->path);
        return false;
    }
    got = command(v, VERSION, capabilities, sizeof(capabilities), NULL, 0,
                  version, sizeof(version), sizeof(version), NULL);
    if (got < 0 || version[0] != 0) {
        error_setg(errp, "vfio-user: %s does not speak version 0.1", v->path);
        return false;
    }
    return true;
}

/* The bits of a BAR that say what it is. Of one in I/O space, the third is of its address. */
static uint8_t bar_type(const uint8_t *config, int n)
{
    uint8_t low = config[PCI_BASE_ADDRESS_0 + 4 * n];

    return low & PCI_BASE_ADDRESS_SPACE_IO ? PCI_BASE_ADDRESS_SPACE_IO : low & 0xf;
}

static bool make_bars(VfioUser *v, const uint8_t *config, Error **errp)
{
    int n;

    for (n = 0; n < ARRAY_SIZE(v->bars); n++) {
        RegionInfo info = { .argsz = sizeof(info), .index = n };
        uint8_t type = bar_type(config, n);
        Bar *bar = &v->bars[n];
        g_autofree char *name = g_strdup_printf("vfio-user-bar%d", n);

        if (command(v, GET_REGION_INFO, &info, sizeof(info), NULL, 0,
                    &info, sizeof(info), sizeof(info), NULL) < 0) {
            error_setg(errp, "vfio-user: %s says nothing about BAR %d", v->path, n);
            return false;
        }
        if (info.size == 0) {
            continue;
        }
        if (!is_power_of_2(info.size) || info.size < 16 || info.size > 1ull << 40 ||
            (type & PCI_BASE_ADDRESS_MEM_TYPE_64 && n + 1 == ARRAY_SIZE(v->bars)) ||
            (n > 0 && v->bars[n - 1].size > 0 &&
             bar_type(config, n - 1) & PCI_BASE_ADDRESS_MEM_TYPE_64)) {
            error_setg(errp, "vfio-user: %s has a BAR %d of 0x%" PRIx64 " bytes that cannot be",
                       v->path, n, info.size);
            return false;
        }
        *bar = (Bar) { .device = v, .number = n, .size = info.size };
        memory_region_init_io(&bar->memory, OBJECT(v), &bar_ops, bar, name, bar->size);
        pci_register_bar(&v->parent, n, type, &bar->memory);
    }
    return true;
}

static bool make_vectors(VfioUser *v, const uint8_t *config, Error **errp)
{
    IrqInfo info = { .argsz = sizeof(info), .index = IRQ_MSIX };
    uint8_t at = config[PCI_STATUS] & PCI_STATUS_CAP_LIST ? config[PCI_CAPABILITY_LIST] : 0;
    uint32_t table, pending;
    unsigned n, hops, table_bar, pending_bar, count;

    for (hops = 0; at >= PCI_CONFIG_HEADER_SIZE && config[at] != PCI_CAP_ID_MSIX; hops++) {
        at = hops < CAPABILITIES_MAX ? config[at + 1] & ~3 : 0;
    }
    if (at < PCI_CONFIG_HEADER_SIZE) {
        return true;
    }
    if (at > PCI_CONFIG_SPACE_SIZE - MSIX_CAP_LENGTH) {
        error_setg(errp, "vfio-user: %s: its MSI-X does not fit where it is", v->path);
        return false;
    }
    count = (pci_get_word(config + at + PCI_MSIX_FLAGS) & PCI_MSIX_FLAGS_QSIZE) + 1;
    table = pci_get_long(config + at + PCI_MSIX_TABLE);
    pending = pci_get_long(config + at + PCI_MSIX_PBA);
    table_bar = table & PCI_MSIX_FLAGS_BIRMASK;
    pending_bar = pending & PCI_MSIX_FLAGS_BIRMASK;
    if (command(v, GET_IRQ_INFO, &info, sizeof(info), NULL, 0,
                &info, sizeof(info), sizeof(info), NULL) < 0 ||
        !(info.flags & IRQ_CAN_EVENTFD) || info.count < count || count > VECTORS_MAX ||
        table_bar >= ARRAY_SIZE(v->bars) || v->bars[table_bar].size == 0 ||
        pending_bar >= ARRAY_SIZE(v->bars) || v->bars[pending_bar].size == 0) {
        error_setg(errp, "vfio-user: %s: its MSI-X cannot be: %u vectors, BARs %u and %u",
                   v->path, count, table_bar, pending_bar);
        return false;
    }
    if (msix_init(&v->parent, count, &v->bars[table_bar].memory, table_bar,
                  table & ~PCI_MSIX_FLAGS_BIRMASK, &v->bars[pending_bar].memory, pending_bar,
                  pending & ~PCI_MSIX_FLAGS_BIRMASK, at, errp) < 0) {
        return false;
    }
    for (n = 0; n < count; n++) {
        Vector *vector = &v->vectors[n];

        vector->device = v;
        vector->number = n;
        if (event_notifier_init(&vector->event, 0) < 0) {
            error_setg_errno(errp, errno, "vfio-user: no eventfd");
            return false;
        }
        v->vector_count = n + 1;
        msix_vector_use(&v->parent, n);
        qemu_set_fd_handler(event_notifier_get_fd(&vector->event), on_event, NULL, vector);
    }
    return true;
}

/* Vendors' capabilities, whose third byte is their length: the header is QEMU's, as the list is. */
static bool make_vendors(VfioUser *v, const uint8_t *config, Error **errp)
{
    enum { LENGTH = 2, CONTENT = 3 };
    uint8_t at = config[PCI_STATUS] & PCI_STATUS_CAP_LIST ? config[PCI_CAPABILITY_LIST] & ~3 : 0;
    int hops;

    for (hops = 0; at >= PCI_CONFIG_HEADER_SIZE && hops < CAPABILITIES_MAX; hops++) {
        uint8_t length = config[at + LENGTH];

        if (config[at] == PCI_CAP_ID_VNDR) {
            if (length < CONTENT || at + length > PCI_CONFIG_SPACE_SIZE) {
                error_setg(errp, "vfio-user: %s has a capability of %d bytes at 0x%x that cannot be",
                           v->path, length, at);
                return false;
            }
            if (pci_add_capability(&v->parent, PCI_CAP_ID_VNDR, at, length, errp) < 0) {
                return false;
            }
            memcpy(v->parent.config + at + LENGTH, config + at + LENGTH, length - LENGTH);
            memset(v->vendors + at + CONTENT, true, length - CONTENT);
        }
        at = config[at + 1] & ~3;
    }
    return true;
}

static bool make_pin(VfioUser *v, const uint8_t *config, Error **errp)
{
    IrqInfo info = { .argsz = sizeof(info), .index = IRQ_INTX };
    IrqSet set = {
        .argsz = sizeof(set), .flags = IRQ_EVENTFD | IRQ_TRIGGER, .index = IRQ_INTX, .count = 1,
    };
    int descriptor;

    if (config[PCI_INTERRUPT_PIN] == 0) {
        return true;
    }
    if (command(v, GET_IRQ_INFO, &info, sizeof(info), NULL, 0,
                &info, sizeof(info), sizeof(info), NULL) < 0 ||
        !(info.flags & IRQ_CAN_EVENTFD) || !(info.flags & IRQ_CAN_MASK) || info.count != 1 ||
        config[PCI_INTERRUPT_PIN] > PCI_NUM_PINS) {
        error_setg(errp, "vfio-user: %s: its interrupt pin cannot be", v->path);
        return false;
    }
    if (event_notifier_init(&v->pin, 0) < 0) {
        error_setg_errno(errp, errno, "vfio-user: no eventfd");
        return false;
    }
    v->has_pin = true;
    v->parent.config[PCI_INTERRUPT_PIN] = config[PCI_INTERRUPT_PIN];
    descriptor = event_notifier_get_fd(&v->pin);
    qemu_set_fd_handler(descriptor, on_pin, NULL, v);
    if (command(v, SET_IRQS, &set, sizeof(set), &descriptor, 1, NULL, 0, 0, NULL) < 0) {
        error_setg(errp, "vfio-user: %s refuses an event for its pin", v->path);
        return false;
    }
    return true;
}

static bool give_events(VfioUser *v, Error **errp)
{
    unsigned start, n;

    for (start = 0; start < v->vector_count; start += DESCRIPTORS_MAX) {
        IrqSet set = {
            .argsz = sizeof(set), .flags = IRQ_EVENTFD | IRQ_TRIGGER, .index = IRQ_MSIX,
            .start = start, .count = MIN(DESCRIPTORS_MAX, v->vector_count - start),
        };
        int descriptors[DESCRIPTORS_MAX];

        for (n = 0; n < set.count; n++) {
            descriptors[n] = event_notifier_get_fd(&v->vectors[start + n].event);
        }
        if (command(v, SET_IRQS, &set, sizeof(set), descriptors, set.count,
                    NULL, 0, 0, NULL) < 0) {
            error_setg(errp, "vfio-user: %s refuses events for its vectors", v->path);
            return false;
        }
    }
    return true;
}

/* Maps a page of doorbells. One that the device could make shorter would end QEMU by SIGBUS. */
static bool map_doorbells(VfioUser *v, int descriptor, const TypedRegionInfo *found, Error **errp)
{
    int seals = fcntl(descriptor, F_GET_SEALS);
    struct stat status;
    uint64_t magic;
    unsigned n;
    void *page;

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(descriptor, &status) < 0 ||
        found->info.size != DOORBELL_PAGE || found->info.offset % DOORBELL_PAGE != 0 ||
        status.st_size < DOORBELL_PAGE ||
        found->info.offset > status.st_size - DOORBELL_PAGE) {
        error_setg(errp, "vfio-user: %s has doorbells that are no sealed page", v->path);
        return false;
    }
    page = mmap(NULL, DOORBELL_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor,
                found->info.offset);
    if (page == MAP_FAILED) {
        error_setg_errno(errp, errno, "vfio-user: cannot map doorbells");
        return false;
    }
    v->doorbells = page;
    magic = qatomic_read(&v->doorbells[MAGIC_WORD]);
    if ((uint32_t)magic != DOORBELL_SUBTYPE || magic >> 32 > DOORBELLS_MAX) {
        error_setg(errp, "vfio-user: %s has a page of doorbells that begins wrong", v->path);
        return false;
    }
    v->doorbell_count = magic >> 32;
    for (n = 0; n < v->doorbell_count; n++) {
        v->doorbell_offsets[n] = qatomic_read(&v->doorbells[FIRST_WORD + 2 * n]);
    }
    return true;
}

/* Looks for doorbells among the regions that are the device's own; none is no error. */
static bool find_doorbells(VfioUser *v, Error **errp)
{
    uint32_t info[4] = { sizeof(info) }, n;

    if (command(v, GET_INFO, info, sizeof(info), NULL, 0,
                info, sizeof(info), sizeof(info), NULL) < 0) {
        error_setg(errp, "vfio-user: %s says nothing about itself", v->path);
        return false;
    }
    for (n = REGIONS_OF_PCI; n < MIN(info[2], REGIONS_MAX) && !v->doorbells; n++) {
        TypedRegionInfo found = { .info = { .argsz = sizeof(found), .index = n } };
        int descriptor = -1;
        int got = command(v, GET_REGION_INFO, &found.info, sizeof(found.info), NULL, 0,
                          &found, sizeof(found.info), sizeof(found), &descriptor);
        bool is_page = got == sizeof(found) && descriptor >= 0 &&
                       found.info.flags & INFO_MMAP && found.info.flags & INFO_CAPABILITIES &&
                       found.info.capability == sizeof(found.info) &&
                       found.id == CAPABILITY_TYPE && found.kind == DOORBELL_KIND &&
                       found.subtype == DOORBELL_SUBTYPE;
        bool good = !is_page || map_doorbells(v, descriptor, &found, errp);

        if (descriptor >= 0) {
            close(descriptor);
        }
        if (!good) {
            return false;
        }
    }
    return true;
}

static void let_go(PCIDevice *parent)
{
    VfioUser *v = VFIO_USER(parent);
    unsigned n;

    if (v->listens) {
        memory_listener_unregister(&v->listener);
        v->listens = false;
    }
    for (n = 0; n < v->vector_count; n++) {
        qemu_set_fd_handler(event_notifier_get_fd(&v->vectors[n].event), NULL, NULL, NULL);
        event_notifier_cleanup(&v->vectors[n].event);
    }
    v->vector_count = 0;
    if (v->has_pin) {
        qemu_set_fd_handler(event_notifier_get_fd(&v->pin), NULL, NULL, NULL);
        event_notifier_cleanup(&v->pin);
        v->has_pin = false;
    }
    if (msix_present(parent)) {
        unsigned table = pci_get_long(parent->config + parent->msix_cap + PCI_MSIX_TABLE);
        unsigned pending = pci_get_long(parent->config + parent->msix_cap + PCI_MSIX_PBA);

        msix_uninit(parent, &v->bars[table & PCI_MSIX_FLAGS_BIRMASK].memory,
                    &v->bars[pending & PCI_MSIX_FLAGS_BIRMASK].memory);
    }
    v->doorbell_count = 0;
    if (v->doorbells) {
        munmap(v->doorbells, DOORBELL_PAGE);
        v->doorbells = NULL;
    }
    if (v->socket >= 0) {
        close(v->socket);
        v->socket = -1;
    }
}

static bool set_up(VfioUser *v, Error **errp)
{
    PCIDevice *parent = &v->parent;
    uint8_t config[PCI_CONFIG_SPACE_SIZE];

    if (!connect_to(v, errp)) {
        return false;
    }
    if (!region_read(v, REGION_CONFIG, 0, config, sizeof(config))) {
        error_setg(errp, "vfio-user: %s has no configuration space", v->path);
        return false;
    }
    memcpy(parent->config + PCI_VENDOR_ID, config + PCI_VENDOR_ID, 4);
    memcpy(parent->config + PCI_REVISION_ID, config + PCI_REVISION_ID, 4);
    memcpy(parent->config + PCI_SUBSYSTEM_VENDOR_ID, config + PCI_SUBSYSTEM_VENDOR_ID, 4);
    if (!make_bars(v, config, errp) || !make_vectors(v, config, errp) ||
        !make_vendors(v, config, errp) ||
        !give_events(v, errp) || !make_pin(v, config, errp) || !find_doorbells(v, errp)) {
        return false;
    }
    v->listener = (MemoryListener) {
        .name = TYPE_VFIO_USER, .region_add = lend, .region_del = take_back,
    };
    memory_listener_register(&v->listener, &address_space_memory);
    v->listens = true;
    if (v->socket < 0) {
        error_setg(errp, "vfio-user: %s does not take the guest's memory", v->path);
        return false;
    }
    return true;
}

static void realize(PCIDevice *parent, Error **errp)
{
    VfioUser *v = VFIO_USER(parent);

    v->socket = -1;
    if (HOST_BIG_ENDIAN) {
        error_setg(errp, "vfio-user: hosts must be little-endian");
    } else if (pci_device_iommu_address_space(parent) != &address_space_memory) {
        error_setg(errp, "vfio-user: guests must not have an IOMMU");
    } else if (!set_up(v, errp)) {
        let_go(parent);
    }
}

static void reset(DeviceState *state)
{
    VfioUser *v = VFIO_USER(state);
    int got = command(v, RESET, NULL, 0, NULL, 0, NULL, 0, 0, NULL);

    if (got < 0) {
        refused(v, "a reset", got);
    }
    look_at_pin(v);
}

static Property properties[] = {
    DEFINE_PROP_STRING("socket", VfioUser, path),
    DEFINE_PROP_END_OF_LIST(),
};

static void class_init(ObjectClass *class, void *data)
{
    DeviceClass *device = DEVICE_CLASS(class);
    PCIDeviceClass *pci = PCI_DEVICE_CLASS(class);

    pci->realize = realize;
    pci->exit = let_go;
    pci->config_read = config_read;
    pci->config_write = config_write;
    device->reset = reset;
    device->desc = "PCI device of another process";
    device_class_set_props(device, properties);
}

static const TypeInfo type = {
    .name = TYPE_VFIO_USER,
    .parent = TYPE_PCI_DEVICE,
    .instance_size = sizeof(VfioUser),
    .class_init = class_init,
    .interfaces = (InterfaceInfo[]) {
        { INTERFACE_CONVENTIONAL_PCI_DEVICE }, { },
    },
};

static void register_type(void)
{
    type_register_static(&type);
}
type_init(register_type)
