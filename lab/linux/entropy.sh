# What trials of sources of entropy are written with.

# Which source the kernel takes from.
current() { cat /sys/class/misc/hw_random/rng_current; }
card() { current; }

load() {
    insmod "/modules/$driver.ko" || return 1
    for _ in $(seq 50); do
        case $(current) in virtio_rng*) return 0 ;; esac
        usleep 100000
    done
    return 1
}

up() { true; }

# Brings everything back after a trial that failed.
renew() {
    rmmod "$driver"
    load
}
