# What the guest's trials are written with. `driver`, `bus`, `reloads`, `seconds`, `compared` come from
# the host, and from the device's settings what differs from card to card:
#   speed      of the link, as ethtool calls it
#   mtu        the largest
#   our_mtu    the largest of our own driver, if we have one
#   offloads   those that can be switched
#   rings      lengths of rings, if others than most cards can have
#   counters   what ethtool -S calls frames that came in, frames that went out, and errors
#   intervals  of interrupts in microseconds that can be set, if any
#   unfit      trials that are not for it, one a line, with the reason
#   back_end   more of them if it is a back end of QEMU's
. /lab/settings
case $over in
    vhost-user)
        unfit="$unfit
${back_end-}" ;;
    *)
        unfit="${unfit-}
08-killed a device behind vfio-user forgets when it is killed
23-killed a device behind vfio-user forgets when it is killed" ;;
esac
host4=10.7.0.1
host6=fd07::1
# What the kernel says of a driver or a device that goes wrong.
complaints='WARNING|BUG:|Oops|hung|Tx Unit Hang|transmit queue .* timed out|Adapter removed'

# Hundredths of a second since the machine began.
clock() { read -r uptime _ < /proc/uptime; echo "${uptime%.*}${uptime#*.}"; }

# Something for the table.
note() { echo "@@ note $*"; }

# Has the host do what `lab/linux/host` calls so; fails if that does.
host() {
    echo "@@ host $*"
    read -r answer
    [ "$answer" = 0 ]
}

# A condition of a trial: says which one does not hold, and ends the trial.
must() { "$@" || { echo "failed: $*"; note "failed: $*"; exit 1; }; }
fail() { echo "failed: $*"; note "$*"; exit 1; }

# Where the card is, and QEMU's e1000e, which may have the same driver. Of virtio-mmio, ACPI describes
# only those that there are.
case $bus in
    mmio)
        card_at=platform/devices/LNRO0005:00
        unfit="$unfit
07-vlan a machine without PCI has no other card" ;;
    *) card_at=pci/devices/0000:00:01.0 ;;
esac
peer=0000:00:02.0
peer_at=pci/devices/$peer

# The interface of a device.
interface() {
    # Virtio puts a device of its own between.
    for name in /sys/bus/"$1"/net/* /sys/bus/"$1"/virtio*/net/*; do
        [ -e "$name" ] && echo "${name##*/}" && return 0
    done
    return 1
}

card() { interface "$card_at"; }

# No driver may have a device; any may.
reserve() { [ ! -e "/sys/bus/$1" ] || echo none > "/sys/bus/$1/driver_override"; }
release() { echo > "/sys/bus/$1/driver_override"; }

# QEMU's card gets its driver, or has none. At first it has none.
peer_on() {
    release "$peer_at"
    if lsmod | grep -q ^e1000e; then
        echo "$peer" > /sys/bus/pci/drivers_probe
    else
        insmod /modules/e1000e.ko
    fi
    interface "$peer_at" > /dev/null
}
peer_off() {
    reserve "$peer_at"
    if [ "$driver" = e1000e ]; then
        echo "$peer" > /sys/bus/pci/drivers/e1000e/unbind
    else
        rmmod e1000e
    fi
}

load() { insmod "/modules/$driver.ko" && nic=$(card); }

# Waits until the carrier is there (1) or is not (0).
carrier() {
    for _ in $(seq 200); do
        [ "$(cat "/sys/class/net/$nic/carrier" 2>/dev/null || echo 0)" = "$1" ] && return 0
        usleep 100000
    done
    echo "the carrier is not $1 after 20 s"
    return 1
}

# Addresses, and a link that is up.
up() {
    echo 0 > "/proc/sys/net/ipv6/conf/$nic/accept_dad"
    ip addr add 10.7.0.2/24 dev "$nic"
    ip link set "$nic" up || return 1
    ip addr add fd07::2/64 dev "$nic"
    carrier 1
}

reach() { ping -c 2 -i 0.2 -W 2 "${1:-$host4}" > /tmp/ping || { cat /tmp/ping; return 1; }; }

statistic() { cat "/sys/class/net/$nic/statistics/$1"; }

# One transfer; what iperf3's last line of the receiver says becomes a note. The server is still
# busy for a moment after the last one.
transfer() {
    name=$1
    shift
    for _ in 1 2 3; do
        if timeout $((seconds + 30)) iperf3 -t "$seconds" "$@" > /tmp/iperf 2>&1; then
            moved=$(sed -n 's/.* \([0-9.]* [KMG]*bits\/sec\).*receiver.*/\1/p' /tmp/iperf | tail -1)
            lost=$(sed -n 's/.*(\([0-9.e+-]*%\)).*receiver.*/, \1 lost/p' /tmp/iperf | tail -1)
            case $moved in
                ''|'0 '*|'0.00 '*) cat /tmp/iperf; return 1 ;;
            esac
            note "$name $moved$lost"
            return 0
        fi
        grep -q busy /tmp/iperf || break
        sleep 1
    done
    cat /tmp/iperf
    return 1
}

# Why a trial is not for this device; nothing if it is.
unfit() { echo "$unfit" | sed -n "s/^$1 //p"; }

# Runs a trial in a shell of its own. What the kernel complains about fails it.
run() {
    name=${1##*/}
    echo "@@ begin $name"
    why=$(unfit "$name")
    if [ -n "$why" ]; then
        echo "@@ skip $name $why"
        return
    fi
    dmesg -c > /dev/null
    begin=$(clock)
    nic=$(card)
    (. "$1")
    status=$?
    end=$(clock)
    dmesg > /tmp/dmesg
    if grep -E "$complaints" /tmp/dmesg; then
        note "the kernel: $(grep -E -m 1 "$complaints" /tmp/dmesg)"
        status=1
    fi
    [ "$status" = 0 ] || tail -20 /tmp/dmesg
    echo "@@ end $name $status $((end - begin))"
    # The next one begins with a driver that knows nothing of this.
    [ "$status" = 0 ] || renew
}

# Brings everything back after a trial that failed.
renew() {
    host no-bridge
    host mtu 1500
    host up
    reserve "$peer_at"
    lsmod | grep -q ^e1000e && rmmod e1000e
    lsmod | grep -q "^$driver" && rmmod "$driver"
    load && up
}

# Devices of another kind have their own `card`, `load`, `up` and `renew`.
[ ! -e /lab/kind.sh ] || . /lab/kind.sh
