# What trials of disks are written with. Programs of the host's are called by their path: busybox has
# lesser ones of the same names.

# The disk of the driver.
card() {
    # An NVM Express disk is a namespace of what the driver has.
    for link in /sys/block/*/device/driver /sys/block/*/device/device/driver; do
        [ -e "$link" ] || continue
        case $(readlink "$link") in
            */"$driver") link=${link#/sys/block/}; echo "${link%%/*}"; return 0 ;;
        esac
    done
    return 1
}

# Waits for the disk, which comes behind its driver.
load() {
    insmod "/modules/$driver.ko" || return 1
    for _ in $(seq 50); do
        nic=$(card) && [ -b "/dev/$nic" ] && return 0
        usleep 100000
    done
    return 1
}

up() { true; }

# Its serial number, without what fills it up.
serial() {
    for file in "/sys/block/$nic/serial" "/sys/block/$nic/device/serial"; do
        [ -e "$file" ] && tr -d ' ' < "$file" && return 0
    done
    return 1
}

# A setting of the disk's queue.
setting() { cat "/sys/block/$nic/queue/$1"; }

# Brings everything back after a trial that failed.
renew() {
    umount /mnt 2> /dev/null
    rmmod "$driver"
    load
}
