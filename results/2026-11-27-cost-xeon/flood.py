#!/usr/bin/env python3
"""SYNs, each of another connection, into an interface of this namespace.

Usage: flood.py INTERFACE ROUTER_MAC RATE SECONDS
RATE is frames a second, or 0 for as many as can be. Prints how many a second the interface took,
and how many it dropped.
"""
import socket, struct, sys, time

TURN = 0.001  # seconds


def counted(name):
    with open("/proc/net/dev") as file:
        for line in file:
            if line.strip().startswith(name + ":"):
                numbers = line.split(":")[1].split()
                return int(numbers[9]), int(numbers[11])
    raise SystemExit("no such interface")


def frames(mac, count):
    for number in range(count):
        source = struct.pack(">I", 0x0A010003 + number % 60000)
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 40, 0, 0, 64, 6, 0) + source + bytes([192, 0, 2, 1])
        total = sum(struct.unpack(">10H", ip))
        total = (total & 0xFFFF) + (total >> 16)
        total = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
        ports = struct.pack(">HH", 1024 + number // 60000, 7)
        tcp = ports + struct.pack(">IIBBHHH", 1, 0, 0x50, 2, 1000, 0, 0)
        yield mac + bytes([2, 0, 0, 0, 2, 2, 8, 0]) + ip[:10] + struct.pack(">H", total) + ip[12:] + tcp


def main():
    name, mac, rate, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    ready = list(frames(bytes.fromhex(mac.replace(":", "")), 120_000))
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.bind((name, 0))
    sender.setblocking(False)
    send, number = sender.send, 0
    before, start = counted(name), time.monotonic()
    while (now := time.monotonic() - start) < seconds:
        due = number + 256 if rate == 0 else int(now * rate)
        while number < due:
            try:
                send(ready[number % len(ready)])
            except BlockingIOError:
                pass
            number += 1
        if rate:
            time.sleep(TURN)
    spent = time.monotonic() - start
    after = counted(name)
    print(",".join(str(int((b - a) / spent)) for a, b in zip(before, after)))


main()
