#!/bin/sh
# TCP through the router while somebody at a third port begins connections.
# Usage, in the folder of the sources:
#   outboard build --manifest=results/2026-11-27-cost-xeon/three.json --out=DIRECTORY unikernels/router
#   unshare --user --map-root-user --net sh results/2026-11-27-cost-xeon/flood.sh \
#       OUTBOARD DIRECTORY/router-three.spt ROUNDS
# Prints a row for each transfer: what, round, Gb/s of established connections, SYNs a second that
# the third port took, and that it dropped.
set -eu
outboard=$1 image=$2 rounds=$3
here=$(dirname "$0")
folder=$(mktemp -d)
cat > "$folder/rules" << 'END'
table inet filter {
	chain forward {
		type filter hook forward priority filter; policy drop;

		ct state established,related counter accept
		ct state invalid counter drop
		iifname "private" counter accept
		iifname "other" counter accept
	}
}
table ip nat {
	chain postrouting {
		type nat hook postrouting priority srcnat;

		oifname "public" counter masquerade
	}
}
END
unshare --net sleep 3600 & client=$!
unshare --net sleep 3600 & other=$!
sleep 0.5
inside() { nsenter --net="/proc/$client/ns/net" "$@"; }
aside() { nsenter --net="/proc/$other/ns/net" "$@"; }
trap 'kill $client $other $router 2> /dev/null; rm -r "$folder"' EXIT

ip link set lo up
for tap in public0 private0 other0 unread0; do
    ip tuntap add dev $tap mode tap
    ip link set dev $tap up
done
"$outboard" run --mem=128 --rules="$folder/rules" --net:public=public0 --net:private=private0 \
    --net:other=other0 -- "$image" --ipv4:public=192.0.2.9/24 --ipv4:private=10.0.0.1/24 \
    --ipv4:other=10.1.0.1/16 > "$folder/log" 2>&1 &
router=$!
until grep -q "on private" "$folder/log"; do sleep 0.1; done
ip address add 192.0.2.1/24 dev public0
ip link set dev private0 netns "$client"
inside ip address add 10.0.0.2/24 dev private0
inside ip link set dev private0 up
inside ip route add default via 10.0.0.1
ip link set dev other0 netns "$other"
ip link set dev unread0 netns "$other"
for tap in other0 unread0; do aside ip link set dev $tap up; done
mac=$(inside ping -c 1 10.0.0.1 > /dev/null; inside ip neighbour show 10.0.0.1 | awk '{ print $5 }')
aside ip address add 10.1.0.2/16 dev other0
aside ping -c 1 10.1.0.1 > /dev/null || true
mac=$(aside ip neighbour show 10.1.0.1 | awk '{ print $5 }')

flood() { # tap, SYNs a second (0: as many as can be), seconds
    aside python3 "$here/flood.py" "$1" "$mac" "$2" "$3"
}

transfer() { # what, round, tap, rate
    iperf3 -s -1 -D
    sleep 0.3
    : > "$folder/flood"
    flooder=
    [ "$4" -eq 0 ] || { flood "$3" "$4" 5 > "$folder/flood" & flooder=$!; sleep 0.5; }
    inside iperf3 -c 192.0.2.1 -t 4 -J > "$folder/json"
    [ -z "$flooder" ] || wait "$flooder"
    python3 - "$folder/json" "$1" "$2" "$(cat "$folder/flood")" << 'END'
import json, sys
file, what, turn, flood = sys.argv[1:]
end = json.load(open(file))["end"]["sum_received"]
print(f"{what},{turn},{end['bits_per_second'] / 1e9:.2f},{flood or '0,0'}", flush=True)
END
}

# What the third port takes at most.
most=$(flood other0 0 3)
echo "what,round,Gb/s,taken/s,dropped/s"
echo "most,0,0,$most"
rate=$((${most%%,*} / 2))
for round in $(seq "$rounds"); do
    transfer alone "$round" other0 0
    transfer flood "$round" other0 $rate
    transfer unread "$round" unread0 $rate
done
