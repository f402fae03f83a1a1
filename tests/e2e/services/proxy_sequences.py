"""Calls of sockets in an order that a seed chooses, whose results are printed: the same on any stack.

    python3 proxy_sequences.py FIRST COUNT [SECONDS]

It makes the sequences FIRST to FIRST + COUNT - 1, all at a time, each in a process of its own with
ports of its own. After each call, what is under way has so many SECONDS to arrive. Calls of which
docs/proxy.md says that they differ from Linux are not made; `skipped` says which.
"""

import errno
import os
import random
import select
import socket
import struct
import sys
import tempfile
import time

CALLS = 40
PLACES = 6
PORTS = 2
V4, V6 = socket.AF_INET, socket.AF_INET6
STREAM, DGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
HOSTS = {V4: "127.0.0.1", V6: "::1"}
ANY = {V4: "0.0.0.0", V6: "::"}
# Who waits longer than this is told that there is nothing.
SHORT = struct.pack("ll", 0, 60000)
# Level, name, and values.
OPTIONS = [
    (1, 2, (0, 1)),
    (1, 9, (0, 1, 7)),
    (1, 15, (0, 1)),
    (1, 8, (1, 5000, 100000)),
    (6, 1, (0, 1, 2)),
    (6, 4, (0, 5, 40000)),
    (6, 13, (1,)),
    (0, 1, (16,)),
    (0, 8, (0, 1, 9)),
    (41, 26, (0, 1)),
    (41, 49, (0, 1)),
    (99, 1, (1,)),
]
# What is asked that needs no call to have been made: SO_TYPE, SO_ERROR, SO_PROTOCOL, SO_DOMAIN,
# SO_ACCEPTCONN, SO_REUSEADDR, TCP_NODELAY, IP_PKTINFO, IPV6_V6ONLY.
ASKED = [(1, 3), (1, 4), (1, 38), (1, 39), (1, 30), (1, 2), (6, 1), (0, 8), (41, 26)]


class Place:
    """A socket, and what has been asked of it so far."""

    def __init__(self, one, family, kind, blocks):
        self.one, self.family, self.kind, self.blocks = one, family, kind, blocks
        self.state = "idle"
        self.is_bound = False
        self.is_shut = False


class Sequence:
    """Calls that a seed chooses."""

    def __init__(self, seed, seconds):
        self.random = random.Random(seed)
        self.places = [None] * PLACES
        self.seconds = seconds
        # Of nobody else: sequences run at the same time.
        self.first_port = 20000 + seed % 1000 * 10

    def run(self):
        for number in range(CALLS):
            # All choices first: none depends on a result.
            at, other = self.random.randrange(PLACES), self.random.randrange(PLACES)
            call = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            draws = [self.random.random() for _ in range(6)]
            fit = [
                number
                for number, place in enumerate(self.places)
                if place and place.state == PREFERRED.get(call)
            ]
            # So that calls are made that make sense, most of the time.
            if fit and draws[5] < 0.8:
                at = fit[other % len(fit)]
            if self.places[at] is None:
                call = "make"
            result = self.attempt(call, at, other, draws)
            print(number, call, at, other, result, flush=True)
        for place in self.places:
            if place is not None:
                place.one.close()

    def attempt(self, call, at, other, draws):
        try:
            result = getattr(self, call)(at, self.places[other], draws)
        except OSError as error:
            result = errno.errorcode.get(error.errno, str(error))
        if call in CAUSES:
            time.sleep(self.seconds)
        return result

    def make(self, at, _, draws):
        if self.places[at] is not None:
            return "taken"
        family = (V4, V6)[draws[0] < 0.4]
        kind = (STREAM, DGRAM)[draws[1] < 0.35]
        one = socket.socket(family, kind)
        # What blocks waits for a short time.
        one.setsockopt(1, socket.SO_RCVTIMEO, SHORT)
        one.setsockopt(1, socket.SO_SNDTIMEO, SHORT)
        blocks = draws[2] < 0.5
        os.set_blocking(one.fileno(), blocks)
        self.places[at] = Place(one, family, kind, blocks)
        return "made"

    def address(self, family, draws, aims=0):
        """One of a few addresses, so that sockets meet."""
        host = (HOSTS[family], ANY[family])[draws[0] < 0.3]
        if draws[4] < aims:
            for place in self.places:
                if place and place.family == family and place.state == "listening":
                    return HOSTS[family], place.one.getsockname()[1]
        # Each version has its own: where one listens, the other is not refused but reset.
        own = 0 if family == V4 else PORTS
        port = self.first_port + own + int(draws[1] * PORTS)
        return host, port

    def bind(self, at, _, draws):
        place = self.places[at]
        if place.state != "idle":
            return skipped("bind behind connect")
        place.one.bind(self.address(place.family, draws))
        place.is_bound = True
        return place.one.getsockname()[:2]

    def listen(self, at, _, draws):
        place = self.places[at]
        if place.kind == STREAM and not place.is_bound and place.state == "idle":
            place.one.bind(self.address(place.family, draws[1:]))
            place.is_bound = True
        place.one.listen(int(draws[0] * 4) + 1)
        place.state = "listening"

    def connect(self, at, _, draws):
        place = self.places[at]
        if place.kind == STREAM and place.is_bound and place.state == "idle":
            return skipped("bind before connect")
        if place.kind == STREAM and place.state in ("failed", "opening") and not self.is_open(place):
            return skipped("a second connect")
        host, port = self.address(place.family, draws, 0.8)
        before, place.state = place.state, "failed"
        try:
            place.one.connect((host, port))
        except OSError as error:
            if error.errno not in (errno.EINPROGRESS, errno.ECONNREFUSED, errno.EALREADY):
                place.state = before
            elif error.errno == errno.EINPROGRESS or not place.blocks:
                place.state = "opening"
            # Over the loopback interface Linux may know at once.
            if not place.blocks and error.errno in (errno.EINPROGRESS, errno.ECONNREFUSED):
                time.sleep(self.seconds)
                return "begun"
            raise
        place.state = "open"
        if not place.blocks and place.kind == STREAM:
            return "begun"
        return port

    def accept(self, at, _, draws):
        place = self.places[at]
        free = [number for number, one in enumerate(self.places) if one is None]
        if not free:
            return skipped("no place")
        one, peer = place.one.accept()
        # socket.accept takes the flags of the listening socket's timeout, and not O_NONBLOCK.
        blocks = draws[0] < 0.5
        os.set_blocking(one.fileno(), blocks)
        one.setsockopt(1, socket.SO_RCVTIMEO, SHORT)
        one.setsockopt(1, socket.SO_SNDTIMEO, SHORT)
        new = Place(one, place.family, STREAM, blocks)
        new.state, new.is_bound = "open", True
        self.places[free[0]] = new
        return free[0], peer[0], one.getsockname()[:2]

    def is_open(self, place):
        """Whether it has a peer, as far as anybody can know."""
        try:
            place.one.getpeername()
            return True
        except OSError:
            return False

    def is_left(self, place):
        """Whether the peer sends no more."""
        poller = select.poll()
        poller.register(place.one, select.POLLRDHUP)
        return place.kind == STREAM and bool(poller.poll(0))

    def send(self, at, _, draws):
        place = self.places[at]
        if place.is_shut or self.is_left(place):
            return skipped("send behind an end")
        if not self.is_open(place):
            return skipped("send without a peer")
        size = int(draws[0] * 2000)
        work = lambda: place.one.send(bytes([at]) * size, socket.MSG_NOSIGNAL)
        return unless_refused(work) if place.kind == DGRAM else work()

    def recv(self, at, _, draws):
        place = self.places[at]
        if place.kind == DGRAM and not place.is_bound and place.state == "idle":
            return skipped("a port that is chosen")
        if place.kind == STREAM and place.state != "open":
            return skipped("recv without a connection")
        flags = (0, socket.MSG_PEEK, socket.MSG_DONTWAIT)[int(draws[0] * 3)]
        size = int(draws[1] * 3000) + 1
        if place.kind == DGRAM:
            got, _, shown, sender = unless_refused(lambda: place.one.recvmsg(size, 0, flags))
            return len(got), got[:1], shown & socket.MSG_TRUNC, sender[:1]
        got = place.one.recv(size, flags)
        return len(got), got[:1]

    def sendto(self, at, _, draws):
        place = self.places[at]
        if place.kind == STREAM or place.state != "idle":
            return skipped("an address for a peer")
        size = int(draws[2] * 2000)
        return place.one.sendto(bytes([at]) * size, self.address(place.family, draws))

    def shutdown(self, at, _, draws):
        place = self.places[at]
        if self.is_left(place) or not self.is_open(place) or place.kind == DGRAM:
            return skipped("shutdown without a connection")
        how = (socket.SHUT_WR, socket.SHUT_WR, socket.SHUT_RDWR)[int(draws[0] * 3)]
        place.one.shutdown(how)
        place.is_shut = True

    def close(self, at, *_):
        one = self.places[at].one
        # What is not read would reset the connection, which the other end learns when it asks.
        os.set_blocking(one.fileno(), False)
        try:
            while self.places[at].kind == STREAM and one.recv(1 << 16):
                pass
        except OSError:
            pass
        one.close()
        self.places[at] = None

    def set(self, at, _, draws):
        place = self.places[at]
        level, name, values = OPTIONS[int(draws[0] * len(OPTIONS))]
        value = values[int(draws[1] * len(values))]
        if level == 41 and place.family == V4:
            return skipped("an option of the other version")
        place.one.setsockopt(level, name, value)
        if (level, name) in ((6, 13), (99, 1)):
            return level, name, value
        return level, name, value, place.one.getsockopt(level, name)

    def get(self, at, _, draws):
        place = self.places[at]
        level, name = ASKED[int(draws[0] * len(ASKED))]
        if level == 41 and place.family == V4:
            return skipped("an option of the other version")
        if (level, name) == (1, 4) and place.kind == DGRAM:
            return skipped("when a datagram is found to be refused")
        return level, name, place.one.getsockopt(level, name)

    def poll(self, at, *_):
        place = self.places[at]
        poller = select.poll()
        poller.register(place.one, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
        flags = sum(flags for _, flags in poller.poll(0))
        names = ["IN", "OUT", "ERR", "HUP", "RDHUP"]
        if place.kind == DGRAM:
            names.remove("ERR")
        return [name for name in names if flags & getattr(select, "POLL" + name)]

    def names(self, at, *_):
        place = self.places[at]
        if place.is_shut or place.state in ("opening", "failed") and not self.is_open(place):
            return skipped("the names of one that is over")
        own = place.one.getsockname()[:2]
        is_known = place.is_bound and own[1] - self.first_port < 2 * PORTS
        shown = own if is_known else own[0]
        if place.kind == DGRAM and place.state != "idle" and not place.is_bound:
            shown = "chosen"
        try:
            return shown, place.one.getpeername()[0]
        except OSError as error:
            return shown, errno.errorcode[error.errno]


def unless_refused(work):
    """Does it again if an earlier datagram was refused: nobody knows when that is found."""
    try:
        return work()
    except ConnectionRefusedError:
        return work()


def skipped(why):
    return "skipped: " + why


WEIGHTS = {
    "make": 2,
    "bind": 6,
    "listen": 5,
    "connect": 8,
    "accept": 8,
    "send": 8,
    "recv": 8,
    "sendto": 5,
    "shutdown": 2,
    "close": 3,
    "set": 3,
    "get": 3,
    "poll": 8,
    "names": 3,
}
# In which state a socket is with which a call makes sense.
PREFERRED = {
    "bind": "idle",
    "listen": "idle",
    "connect": "idle",
    "accept": "listening",
    "send": "open",
    "recv": "open",
    "shutdown": "open",
}
# Calls behind which something may be under way.
CAUSES = {"connect", "send", "sendto", "shutdown", "close", "listen"}


def main():
    first, count = int(sys.argv[1]), int(sys.argv[2])
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 0.03
    children = []
    for seed in range(first, first + count):
        said = tempfile.TemporaryFile()
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 1)
            Sequence(seed, seconds).run()
            os._exit(0)
        children.append((seed, child, said))
    for seed, child, said in children:
        _, status = os.waitpid(child, 0)
        said.seek(0)
        for line in said.read().decode().splitlines():
            print(seed, line)
        print(seed, "status", status, flush=True)
    print("the end")


main()
