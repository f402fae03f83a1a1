# Side by side: iperf3's image on a tap, and the same over a link to the stack's image on a tap.
OUT=$1; ROUNDS=$2; IMAGES=$(realpath ${IMAGES:-images})
OB=outboard
export XDG_RUNTIME_DIR=/tmp/outboard-measure; rm -rf $XDG_RUNTIME_DIR; mkdir -p $XDG_RUNTIME_DIR; chmod 700 $XDG_RUNTIME_DIR
ip link set lo up
for t in one two; do ip tuntap add dev $t mode tap; ip link set $t up; done
ip addr add 10.9.1.1/24 dev one; ip addr add 10.9.2.1/24 dev two
cat > /tmp/outboard-measure.toml <<T
[component.single]
image = "$IMAGES/iperf3.spt"
memory = 64
arguments = ["--ipv4=10.9.1.2/24", "-s"]
net.service = "tap:one"
[component.stack]
image = "$IMAGES/stack.spt"
memory = 64
arguments = ["--ipv4=10.9.2.2/24"]
net.service = "tap:two"
net.app = "link:inner"
[component.app]
image = "$IMAGES/iperf3-remote.spt"
memory = 64
arguments = ["-s"]
net.service = "link:inner"
T
$OB up /tmp/outboard-measure.toml > /tmp/outboard-measure.log 2>&1 &
sleep 2
guest() { local m=$($OB ps | awk -v n=$1 '$1==n{print $2}'); echo $m; }
ticks() { local s=0; for p in $@; do s=$((s+$(awk '{print $14+$15}' /proc/$p/stat))); done; echo $s; }
child() { cat /proc/$1/task/$1/children; }
S=$(child $(guest single)); A="$(child $(guest stack)) $(child $(guest app))"
echo "variant,direction,bytes,seconds,guest_ticks,hertz" > $OUT
run() { # variant address pids direction flag
  local b=$(ticks $3); local j=$(iperf3 -c $2 -t 3 -J $5); local e=$(ticks $3)
  echo "$1,$4,$(echo "$j" | python3 -c 'import json,sys; r=json.load(sys.stdin)["end"]["sum_received"]; print(str(r["bytes"])+","+str(r["seconds"]))'),$((e-b)),$(getconf CLK_TCK)" >> $OUT
}
for i in $(seq $ROUNDS); do for d in "received:" "sent:-R"; do
  run single 10.9.1.2 "$S" ${d%%:*} ${d##*:}
  run link 10.9.2.2 "$A" ${d%%:*} ${d##*:}
done; done
$OB ps >> /tmp/outboard-measure.log; $OB down
