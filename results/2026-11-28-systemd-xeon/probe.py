"""Sends 2,000 numbered datagrams a second to the echo service, kills it once a second, and prints
each gap: from the last datagram that came back before the kill to the first one behind it (in ms, by
the times at which they were sent)."""
import json, os, select, signal, socket, struct, subprocess, sys, time
how, kills = sys.argv[1], int(sys.argv[2])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setblocking(False)
s.connect(("10.0.0.2", 7))
def guests():
    """Processes of the component: monitor and guest."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = open(f"/proc/{pid}/cmdline", "rb").read().replace(b"\0", b" ")
            children = open(f"/proc/{pid}/task/{pid}/children").read().split()
            comm = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        found.append((int(pid), int(comm[1]), line))
    return found
def kill():
    # systemd's way: all processes of the unit. Ours: the guest, by the monitor of the instance file.
    if how == "systemd":
        subprocess.Popen(["systemctl", "kill", "--signal=KILL", "echo"])
    else:
        monitor = json.load(open("/run/outboard/echo/instance.json"))["monitor"]
        guest = open(f"/proc/{monitor}/task/{monitor}/children").read().split()[0]
        os.kill(int(guest), signal.SIGKILL)
PERIOD = 0.0005
sent, back = {}, []
begin = time.monotonic(); n = 0; killed = []
end = begin + 2 + 1.2 * kills
while time.monotonic() < end:
    now = time.monotonic()
    due = begin + n * PERIOD
    if now >= due:
        try: s.send(struct.pack("<Q", n))
        except OSError: pass
        sent[n] = now; n += 1
    try:
        while True: back.append(struct.unpack("<Q", s.recv(64))[0])
    except OSError: pass
    if len(killed) < kills and now > begin + 1 + 1.2 * len(killed):
        killed.append(now); kill()
    wait = begin + n * PERIOD - time.monotonic()
    if wait > 0: select.select([s], [], [], wait)
times = sorted(sent[b] for b in set(back))
import bisect
gaps = []
for k in killed:
    at = bisect.bisect(times, k)
    # The widest hole within half a second behind the kill.
    window = [t for t in times[max(at - 1, 0):] if t < k + 0.9]
    holes = [b - a for a, b in zip(window, window[1:])]
    gaps.append(round(1000 * max(holes), 3) if holes else None)
known = sorted(g for g in gaps if g is not None)
print(json.dumps({"how": how, "kills": len(killed), "sent": n, "back": len(back), "none": gaps.count(None),
  "median": known[len(known)//2] if known else None, "p99": known[int(len(known)*0.99)] if known else None,
  "longest": known[-1] if known else None, "gaps": gaps}))
