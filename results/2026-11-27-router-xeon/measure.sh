#!/bin/sh
# TCP through the router between two network namespaces, beside the kernel's routing.
# Usage, in the folder of the sources, once unikernels/router is built in release mode:
#   unshare --user --map-root-user --net sh results/2026-11-27-router-xeon/measure.sh OUTBOARD ROUNDS
# Prints a row for each transfer: who, direction, round, Gb/s, CPU seconds of the router for each GB
# (the kernel's own work in routing cannot be told apart, and has none).
set -eu
outboard=$1 rounds=$2
image=unikernels/router/router.spt
rules=unikernels/router/rules/default.nft
folder=$(mktemp -d)
echo 'table inet t { chain c { type filter hook forward priority 0; }; }' > "$folder/open.nft"

# The client's network, and that of whoever routes.
unshare --net sleep 3600 & client=$!
unshare --net sleep 3600 & kernel=$!
sleep 0.5
inside() { nsenter --net="/proc/$client/ns/net" "$@"; }
between() { nsenter --net="/proc/$kernel/ns/net" "$@"; }
ip link set lo up
trap 'kill $client $kernel 2> /dev/null; rm -r "$folder"' EXIT

addresses() {
    ip address add 192.0.2.1/24 dev public0
    ip link set dev public0 up
    inside ip address add 10.0.0.2/24 dev private0
    inside ip link set dev private0 up
    inside ip route add default via 10.0.0.1
}

start() { # who
    case $1 in
    kernel)
        ip link add public0 type veth peer name far netns "$kernel"
        inside ip link add private0 type veth peer name near netns "$kernel"
        between ip address add 192.0.2.9/24 dev far
        between ip address add 10.0.0.1/24 dev near
        between ip link set dev far name public
        between ip link set dev near name private
        between ip link set dev public up
        between ip link set dev private up
        between sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
        between /usr/sbin/nft -f "$rules"
        addresses
        ;;
    *)
        ip tuntap add dev public0 mode tap
        ip tuntap add dev private0 mode tap
        ip link set dev public0 up
        ip link set dev private0 up
        set -- "$1" "$([ "$1" = "open" ] && echo "--rules=$folder/open.nft")"
        "$outboard" run --mem=32 $2 --net:public=public0 --net:private=private0 -- "$image" \
            --ipv4:public=192.0.2.9/24 --ipv4:private=10.0.0.1/24 > "$folder/log" 2>&1 &
        router=$!
        until grep -q "on private" "$folder/log"; do sleep 0.1; done
        ip link set dev private0 netns "$client"
        addresses
        # Without translation the server has to know the way.
        ip route add 10.0.0.0/24 via 192.0.2.9
        ;;
    esac
}

stop() { # who
    case $1 in
    kernel)
        ip link del public0
        inside ip link del private0
        between /usr/sbin/nft flush ruleset
        ;;
    *)
        kill "$router"
        wait "$router" || true
        ip link del public0
        inside ip link del private0
        ;;
    esac
}

# Ticks that the router's guest has used.
ticks() {
    guest=$(cat "/proc/$router/task/$router/children")
    awk '{ print $14 + $15 }' "/proc/${guest%% *}/stat"
}

transfer() { # who, direction, round
    iperf3 -s -1 -D
    sleep 0.3
    before=0 after=0
    [ "$1" = kernel ] || before=$(ticks)
    inside iperf3 -c 192.0.2.1 -t 3 -J $([ "$2" = in ] && echo -R) > "$folder/json"
    [ "$1" = kernel ] || after=$(ticks)
    hertz=$(getconf CLK_TCK)
    python3 - "$folder/json" "$1" "$2" "$3" "$before" "$after" "$hertz" << 'END'
import json, sys
file, who, way, turn, before, after, hertz = sys.argv[1:]
end = json.load(open(file))["end"]["sum_received"]
cpu = (int(after) - int(before)) / int(hertz) / (end["bytes"] / 1e9)
print(f"{who},{way},{turn},{end['bits_per_second'] / 1e9:.2f},{cpu:.3f}", flush=True)
END
}

echo "who,direction,round,Gb/s,CPU s/GB"
for round in $(seq "$rounds"); do
    for who in nat open kernel; do
        start $who
        sleep 0.5
        transfer $who out "$round"
        transfer $who in "$round"
        stop $who
        sleep 0.3
    done
done
