#!/usr/bin/env python3
"""What connection tracking costs the kernel's routing, and what it costs nf, in one run.

Usage: unshare --user --map-root-user --net python3 state.py CONNECTION_COST ROUNDS
CONNECTION_COST is the example of that name, built in release mode. Prints a row for each round:
who, what, and nanoseconds of CPU time a frame (the median of a round's batches).

The kernel routes between two taps of this process, once with rules that ask for connections and
once with rules that do not, batch by batch in turn. Frames are those of the example. What a frame
costs beside state (the call, its copy, the route) is in both, and in no difference of them.
"""
import ctypes, fcntl, os, statistics, struct, subprocess, sys, time

CLONE_NEWNET = 0x40000000
BATCH = 200  # a tap keeps 500 frames that nobody has read
BATCHES = 60
RULES = """table inet t {
    chain forward {
        type filter hook forward priority 0; policy drop;
        %s
        tcp dport 7070 counter accept
    }
}
"""
TRACKED = RULES % "ct state established,related counter accept\n ct state invalid counter drop"
PLAIN = RULES % "tcp sport 7070 counter accept"
SYN, ACK, DATA = 2, 16, 1000
SERVER = bytes([192, 0, 2, 1])


def run(command, text=None):
    subprocess.run(command, input=text, text=True, check=True)


def tap(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1002))
    run(["ip", "link", "set", "dev", name, "address", "02:00:00:00:00:0" + name[-1], "up"])
    return fd


class Kernel:
    """Routes between two taps in a namespace of its own."""

    def __init__(self, rules):
        assert ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) == 0
        self.taps = [tap("tap0"), tap("tap1")]
        run(["ip", "address", "add", "10.0.0.1/8", "dev", "tap0"])
        run(["ip", "address", "add", "192.0.2.9/24", "dev", "tap1"])
        run(["ip", "neighbour", "add", "192.0.2.1", "lladdr", "02:00:00:00:01:01", "dev", "tap1"])
        for host in range(2, 6):
            run(["ip", "neighbour", "add", f"10.0.0.{host}", "lladdr", "02:00:00:00:01:00",
                 "dev", "tap0"])
        for path, value in [("ipv4/ip_forward", 1), ("ipv6/conf/all/disable_ipv6", 1)]:
            with open(f"/proc/sys/net/{path}", "w") as file:
                file.write(str(value))
        run(["/usr/sbin/nft", "-f", "-"], rules)
        # As nf does, leave TCP's checksum to the receiver.
        if "ct state" in rules:
            with open("/proc/sys/net/netfilter/nf_conntrack_checksum", "w") as file:
                file.write("0")
        self.drain()

    def drain(self):
        seen = 0
        for fd in self.taps:
            while True:
                try:
                    seen += (os.read(fd, 2048)[23:24] == b"\x06")
                except BlockingIOError:
                    break
        return seen

    def batch(self, frames):
        """Nanoseconds of CPU time that a frame takes, each written to its tap."""
        frames = [(self.taps[side], frame) for side, frame in frames]
        write = os.write
        start = time.thread_time_ns()
        for fd, frame in frames:
            write(fd, frame)
        spent = time.thread_time_ns() - start
        assert self.drain() == len(frames), "each frame is sent on"
        return spent / len(frames)


def frame(client, port, reply, flags, sent):
    ends, ports = [client, SERVER], [port, 7070]
    seq, ack = 1 + sent, 1
    if reply:
        ends.reverse()
        ports.reverse()
        seq, ack = 1, 1 + sent
    if flags & SYN:
        seq = 0
    data = DATA if flags == ACK and not reply else 0
    options = bytes([2, 4, 5, 0xB4, 4, 2, 1, 3, 3, 0, 1, 0]) if flags & SYN else \
        bytes([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1])
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 52 + data, 0, 0, 64, 6, 0) + b"".join(ends)
    total = sum(struct.unpack(">10H", ip))
    total = (total & 0xFFFF) + (total >> 16)
    total = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    ip = ip[:10] + struct.pack(">H", total) + ip[12:]
    tcp = struct.pack(">HHIIBBHHH", *ports, seq, ack if flags & ACK else 0, 0x80, flags, 0xFF00, 0, 0)
    mac = bytes.fromhex("02000000000" + ("1" if reply else "0"))
    return int(reply), mac + bytes([2, 0, 0, 0, 1, int(reply), 8, 0]) + ip + tcp + options + bytes(data)


def opened(rounds):
    """Batches of an open connection: data and its ACK in turn."""
    client, sent = bytes([10, 0, 0, 2]), 0
    yield [frame(client, 999, *step) for step in
           [(False, SYN, 0), (True, SYN | ACK, 0), (False, ACK, 0), (True, ACK, DATA)]]
    sent = DATA
    for _ in range(rounds * BATCHES):
        batch = []
        for _ in range(BATCH // 2):
            batch.append(frame(client, 999, False, ACK, sent))
            sent += DATA
            batch.append(frame(client, 999, True, ACK, sent))
        yield batch


def begun(rounds):
    """Batches of SYNs, each of another connection."""
    number = 0
    for _ in range(rounds * BATCHES):
        batch = []
        for _ in range(BATCH):
            client = bytes([10, 0, 0, 2 + number % 4])
            batch.append(frame(client, 1024 + number // 4, False, SYN, 0))
            number += 1
        yield batch


def ours(example, what):
    said = subprocess.run([example, "1", "200000", what], capture_output=True, text=True, check=True)
    return float(said.stdout.split()[-2])


def main():
    example, rounds = sys.argv[1], int(sys.argv[2])
    kernels = {"tracked": Kernel(TRACKED), "plain": Kernel(PLAIN)}
    print("who,what,round,ns", flush=True)
    for what, batches in [("open", opened(rounds)), ("new", begun(rounds))]:
        if what == "open":
            first = next(batches)
            for kernel in kernels.values():
                kernel.batch(first)
        for round_ in range(1, rounds + 1):
            spent = {who: [] for who in kernels}
            for _ in range(BATCHES):
                batch = next(batches)
                for who, kernel in kernels.items():
                    spent[who].append(kernel.batch(batch))
            for who, all_ in spent.items():
                print(f"kernel {who},{what},{round_},{statistics.median(all_):.1f}", flush=True)
            state = ours(example, what)
            print(f"nf tracked,{what},{round_},{state:.1f}", flush=True)
            print(f"nf plain,{what},{round_},{ours(example, 'bare'):.1f}", flush=True)


main()
